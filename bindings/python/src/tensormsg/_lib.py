# SPDX-License-Identifier: BSD-3-Clause
"""The C library: `ffi` and `lib` of cffi, and `hot`, the calls of every
message. Both modules lie in one file, which holds the library once."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

from . import _ucx

_ucx.load()

from . import _native  # noqa: E402 (UCX comes first)

if TYPE_CHECKING:
    from . import _hot as hot
else:
    def _load_hot() -> Any:
        name = "tensormsg._hot"
        loader = importlib.machinery.ExtensionFileLoader(
            name, _native.__file__)
        spec = importlib.util.spec_from_loader(name, loader)
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
        sys.modules[name] = module
        return module

    hot = _load_hot()
    _has_lock = getattr(sys, "_is_gil_enabled", lambda: True)
    if not _has_lock():
        raise ImportError(
            "tensormsg needs the interpreter's lock (GIL), which a "
            "free-threaded Python enables for it unless told otherwise: run "
            "it without PYTHON_GIL=0 and -X gil=0")

__all__ = ["address", "ffi", "hot", "lib", "take_text", "text", "utf8"]

ffi = _native.ffi
lib = _native.lib


def address(pointer: Any) -> int:
    """The number of a pointer of cffi's, as `hot` takes it."""
    return int(ffi.cast("uintptr_t", pointer))


def text(pointer: Any) -> str:
    """A C string."""
    return "" if pointer == ffi.NULL else \
        str(ffi.string(pointer).decode("utf-8", "replace"))


def utf8(what: str, value: str) -> bytes:
    """Of what becomes a C string, which a NUL would end."""
    if "\0" in value:
        raise ValueError(f"{what} {value!r} has a NUL")
    return value.encode()


def take_text(pointer_p: Any) -> str:
    """A string that the library gave out: freed here."""
    try:
        return text(pointer_p[0])
    finally:
        lib.tmsg_string_free(pointer_p[0])
