# SPDX-License-Identifier: BSD-3-Clause
"""Tells when the arrays of a reply may be changed, in a thread for that alone:
the library says so in any thread, and at any time."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import threading
from typing import Any, Callable, Mapping, Optional

from . import _brief, _data
from ._data import Data
from ._hub import merge_meta
from ._lib import hot
from ._often import often
from .context import generation, park_at_exit

_log = logging.getLogger("tensormsg")


def call(told: Callable[[], object]) -> None:
    try:
        told()
    except Exception:
        if often.may("an on_release failed"):
            _log.exception("an on_release failed")


def _run(made_in: int) -> None:
    while made_in == generation():
        told = hot.released()
        park_at_exit()
        try:
            call(told)
        except BaseException:  # others are still to be told
            _log.exception("an on_release failed")
        del told


class _Teller:
    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """In the child of a process that was forked, too."""
        self._lock = threading.Lock()
        self._made_in: Optional[int] = None

    def start(self) -> None:
        """Once in a process."""
        if self._made_in == generation():
            return
        with self._lock:
            if self._made_in != generation():
                threading.Thread(target=_run, args=(generation(),),
                                 daemon=True, name="tensormsg-released").start()
                self._made_in = generation()


teller = _Teller()
os.register_at_fork(after_in_child=teller.forget)


def in_loop(loop: asyncio.AbstractEventLoop,
            on_release: Callable[[], object]) -> Callable[[], object]:
    """What is told in that event loop, as long as it is there."""
    def tell() -> None:
        try:
            loop.call_soon_threadsafe(call, on_release)
        except RuntimeError:  # it is closed
            on_release()
    return tell


class Reply:
    """What a handler may return in place of a dict: `data`, as it would be
    returned, and more about it.

    `meta` and further keywords: its metadata, as of send(), for example frame=7:
    the caller has them as `meta` of the reply. `on_release`: a function that is called
    once, without arguments, when nothing can read the arrays any more. Then they
    may be changed, or used again. It is called in a thread of the package's or,
    with asyncio, in the event loop. If the reply cannot be sent, because nobody
    waits for it or something is wrong with it, that is at once. `lend`: a caller
    that has loan=True, for the call or its connection, gets views of the arrays,
    as for send().

    What a handler of a stream yields, or returns, may be a Reply without
    `on_release`: when its generator goes on, the arrays may be changed, but for
    those of empty() with `lend`, which are read-only while they are read."""

    __slots__ = {"data": "What is sent, as the handler would return it.",
                 "meta": "Its metadata, or None.",
                 "on_release": "What is called when the arrays are free, or "
                               "None.",
                 "lend": "Whether the arrays may be lent."}

    def __init__(self, data: Optional[Data], *,
                 meta: Optional[Mapping[str, Any]] = None,
                 on_release: Optional[Callable[[], object]] = None,
                 lend: bool = False, **more: Any) -> None:
        if on_release is not None and not callable(on_release):
            raise TypeError(f"on_release is a function, not {on_release!r}")
        self.data = data
        self.meta = merge_meta(meta, more) if more else meta
        self.on_release = on_release
        self.lend = lend

    def __repr__(self) -> str:
        data, end = self.data, ", lent" if self.lend else ""
        if not isinstance(data, Mapping):
            return f"<reply of {_brief.value(data)}{end}>"
        return _brief.mapping(
            "reply", [f"'{_data.shortened(str(name))}': {_brief.value(value)}"
                      for name, value in itertools.islice(data.items(),
                                                          _brief.MOST)],
            len(data), end)
