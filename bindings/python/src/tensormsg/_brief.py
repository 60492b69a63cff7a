# SPDX-License-Identifier: BSD-3-Clause
"""Maps in words, on at most one screen."""

from __future__ import annotations

from typing import Any, Iterable

from ._data import shortened
from ._lib import hot

MOST = 10  # names
_LINE = 100  # characters
_TEXT = 40  # of a str or bytes


def tensor(dtype: Any, shape: Iterable[int]) -> str:
    """ "float32[3,4]"; `dtype`: a name, or one of numpy or torch."""
    name = str(dtype).rpartition(".")[2]
    return shortened(f"{name}[{','.join(map(str, shape))}]")


def value(given: Any) -> str:
    """What lies at a name, before it is sent or when it came."""
    if hasattr(given, "dtype") and isinstance(
            getattr(given, "shape", None), tuple):
        return tensor(given.dtype, given.shape)
    if isinstance(given, (str, bytes)):
        more = "..." if len(given) > _TEXT else ""
        return hot.shown(repr(given[:_TEXT])) + more
    if given is None or isinstance(given, (bool, int, float)):
        return shortened(repr(given))
    kind = type(given).__name__
    return f"{kind} of {len(given)}" if hasattr(given, "__len__") else kind


def mapping(what: str, names: Iterable[str], count: int, end: str) -> str:
    """`what` it is; MOST of the `count` names at most, each with what lies
    there; the `end`."""
    names = list(names)
    if count > len(names):
        names.append(f"... and {count - len(names)} more")
    line = f"<{what} of {', '.join(names) or 'nothing'}{end}>"
    return line if len(line) <= _LINE else \
        "\n  ".join([f"<{what}{end} of", *names]) + ">"
