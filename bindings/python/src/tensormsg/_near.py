# SPDX-License-Identifier: BSD-3-Clause
"""Names that are almost another: which one may have been meant."""

from __future__ import annotations

import asyncio
import difflib
import functools
import itertools
import sys
import warnings
from typing import Any, Collection, Iterable, List, Optional, Tuple

from ._data import shortened
from .errors import Error

# What calls that send take beside metadata.
OPTIONS = frozenset(("acked", "attempts", "copy", "idempotent", "into",
                     "keep_strides", "lend", "loan", "progress", "timeout",
                     "verify"))
_MEANT = OPTIONS | {"meta", "on_release"}
_OTHER_WORDS = {"ack": "acked", "acks": "acked", "acknowledged": "acked",
                "checksum": "verify", "metadata": "meta", "retries": "attempts",
                "timeout_ms": "timeout"}
# Short options are close to too many words: "lon" and "len", "metal", "intro".
_LONG = [option for option in _MEANT if len(option) >= 6]
_CLOSE = 0.83  # of 1; "process" is not "progress"
_NOT_MEANT = frozenset(("attempt", "idempotency", "progressive"))


def close_names(name: str, names: Iterable[str], most: int) -> List[str]:
    """Those that the name is close to, the closest first."""
    return difflib.get_close_matches(name, names, most, .6)


@functools.lru_cache(1024)
def option_meant(key: str) -> Optional[str]:
    """The option that a keyword may stand for, which is no option itself."""
    if not isinstance(key, str) or key in _MEANT or key in _NOT_MEANT:
        return None
    word = key.lower()
    close = difflib.get_close_matches(word, _LONG, 1, _CLOSE)
    return close[0] if close else _OTHER_WORDS.get(word)


def _coroutine_of(frame: Any) -> Any:
    """Its coroutine, if a task runs that alone."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop runs
        return None
    coroutine: Any = None if task is None else task.get_coro()
    return coroutine if getattr(coroutine, "cr_frame", None) is frame else None


def _caller() -> Tuple[int, Any]:
    """The level of the first frame outside of the package, for a warning in the
    caller. A coroutine of ours that is a task has no caller: then that coroutine,
    too, of which tracemalloc knows where it was made."""
    level, frame = 1, sys._getframe(1)
    inner = frame
    while frame.f_back is not None and \
            frame.f_globals.get("__name__", "").partition(".")[0] == __package__:
        level, inner, frame = level + 1, frame, frame.f_back
    return level, _coroutine_of(inner)


def warn_of_options(keywords: Iterable[str]) -> None:
    """Warns, once in each place, of keywords that look like an option and
    become metadata."""
    for key in keywords:
        option = option_meant(key)
        if option is not None:
            level, coroutine = _caller()
            warnings.warn(
                f"{key}= is sent as metadata: was {option}= meant? As metadata, "
                f"without this warning, it is meta={{{key!r}: ...}}",
                stacklevel=level, source=coroutine)


_LOOKED_AT = 1000  # names of a message, which a peer has chosen


class NoSuchName(KeyError):
    """A KeyError whose words name what there is. They are made when they are
    read: get() drops it."""

    __slots__ = ("_kind", "_names")

    def __init__(self, name: Any, names: Collection[str],
                 kind: str = "") -> None:
        super().__init__(name)
        self._names = names
        self._kind = kind

    def __reduce__(self) -> Any:
        return KeyError, (str(self),)

    def __str__(self) -> str:
        words = f"no {self._kind}{shortened(repr(self.args[0]))}"
        try:
            return words + self._there()
        except Error:  # of a file that was closed meanwhile
            return words

    def _there(self) -> str:
        name, names = str(self.args[0]), self._names
        alike = (one for one in names if len(one) <= 2 * len(name) + 1)
        close = close_names(name, itertools.islice(alike, _LOOKED_AT), 3)
        told = close or list(itertools.islice(names, 5))
        words = ", ".join(f"'{shortened(one)}'" for one in told)
        if close:
            return f": is it {words}? It has {len(names)} names"
        more = len(names) - len(told)
        return f": there is {words or 'nothing'}" + (
            f" and {more} more" if more > 0 else "")


# As tracebacks, and callers of a handler that raises it, see it.
NoSuchName.__name__ = NoSuchName.__qualname__ = "KeyError"
NoSuchName.__module__ = "builtins"
