# SPDX-License-Identifier: BSD-3-Clause
"""Finds the UCX that the extension then uses: it is not in the wheel, for a
process can have but one."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
from typing import Dict, Iterator, Optional, Tuple

LEAST = (1, 13)
NAME = "libucp.so.0"

_why = ""
_path = ""


def _loaded() -> Optional[str]:
    """The path of the UCX that this process has already."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            path = line.rstrip("\n").rpartition(" ")[2]
            if os.path.basename(path).startswith("libucp.so"):
                return path
    return None


def _load_system() -> str:
    ctypes.CDLL(NAME)
    return "the loader found it: the distribution's, or LD_LIBRARY_PATH's"


def _load_wheel() -> str:
    libucx = importlib.import_module("libucx")
    libucx.load_library()
    if _loaded() is None:
        raise OSError(f"libucx {libucx.__version__} has no {NAME}")
    return f"from the package libucx {libucx.__version__}"


def _choose() -> str:
    if _loaded() is not None:
        return "this process had loaded it before"
    wanted = os.environ.get("TENSORMSG_UCX", "")
    if wanted == "system":
        return f"TENSORMSG_UCX=system; {_load_system()}"
    if wanted == "wheel":
        return f"TENSORMSG_UCX=wheel; {_load_wheel()}"
    if wanted:
        ctypes.CDLL(os.path.join(wanted, NAME))
        return f"TENSORMSG_UCX={wanted}"
    try:
        return _load_system()
    except OSError as error:
        why = f"no other was found ({error})"
    return f"{_load_wheel()}; {why}"


@contextlib.contextmanager
def _to_stderr() -> Iterator[None]:
    """What UCX says while it is loaded, before it can be given a function for
    that, goes to standard error: standard output is the program's."""
    if "UCX_LOG_FILE" in os.environ:
        yield
        return
    os.environ["UCX_LOG_FILE"] = "stderr"
    try:
        yield
    finally:
        del os.environ["UCX_LOG_FILE"]


def load() -> None:
    """Loads one, if none is loaded. Raises ImportError."""
    global _why, _path
    try:
        with _to_stderr():
            _why = _choose()
        _path = _loaded() or ""
    except (OSError, ImportError) as error:
        raise ImportError(
            "tensormsg needs UCX 1.13.1 or later. Install the distribution's "
            "(apt-get install libucx0) or PyPI's (pip install "
            "'tensormsg[ucx]', which is libucx-cu13 and needs no GPU), or name "
            f"the folder of {NAME} in TENSORMSG_UCX ({error})") from error
    number, text = version()
    if number < LEAST:
        raise ImportError(
            f"tensormsg needs UCX 1.13.1 or later; {_loaded()} is {text} "
            f"({_why}). TENSORMSG_UCX=wheel takes PyPI's (pip install "
            "'tensormsg[ucx]'), TENSORMSG_UCX=FOLDER another")


def version() -> Tuple[Tuple[int, int], str]:
    """(major, minor) and the text of the one that is loaded."""
    library = ctypes.CDLL(NAME)
    library.ucp_get_version_string.restype = ctypes.c_char_p
    numbers = [ctypes.c_uint() for _ in range(3)]
    library.ucp_get_version(*[ctypes.byref(number) for number in numbers])
    return ((numbers[0].value, numbers[1].value),
            library.ucp_get_version_string().decode())


def describe() -> Dict[str, str]:
    """Which UCX, from where, and why that one."""
    return {"version": version()[1], "path": _path, "why": _why}
