# SPDX-License-Identifier: BSD-3-Clause
"""Tells how far a large message is that is under way."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Callable, Optional, Tuple, Type

import numpy as np

from ._data import ITEM_BYTES
from ._hub import Hub
from ._loop import LoopHub
from ._often import often
from .errors import Error

EVERY_S = 0.1  # between two calls
SENT, RECEIVED = "sent_fragment_bytes", "received_fragment_bytes"

OnProgress = Callable[[int, Optional[int]], object]

_log = logging.getLogger("tensormsg")


def bytes_of(data: Any) -> int:
    """Of its arrays. What cannot be sent counts as nothing: who sends it, raises
    the error."""
    try:
        return _bytes_of(data)
    except RecursionError:
        return 0


def _bytes_of(data: Any) -> int:
    if isinstance(data, Mapping):
        return sum(map(_bytes_of, data.values()))
    if isinstance(data, (list, tuple)):
        kinds = set(map(type, data))
        return len(data) * ITEM_BYTES[kinds.pop()] if len(kinds) == 1 and \
            kinds <= ITEM_BYTES.keys() else sum(map(_bytes_of, data))
    if data is None or isinstance(data, (bool, int, float, str, bytes)) and \
            not isinstance(data, np.number):
        return 0
    for measure in _MEASURES:
        try:
            return int(measure(data).nbytes)
        except Exception:
            pass  # in another way, then
    return 0


# Of what is, or gives, an array. A tensor without one has raw().
_MEASURES: Tuple[Callable[[Any], Any], ...] = (
    lambda data: data, lambda data: data.raw(), memoryview,
    lambda data: np.from_dlpack(data), np.asarray)


class Progress:
    """Around a call that moves `total` bytes, or None if that is not known
    before its end. `counters`: of the endpoint, which count them."""

    def __init__(self, hub: Hub, endpoint: int, call: OnProgress,
                 counters: Tuple[str, ...], total: Optional[int]) -> None:
        if not callable(call):
            raise TypeError("progress is a function of the bytes that are done "
                            f"and of all bytes, not {call!r}; as metadata it is "
                            "meta={'progress': ...}")
        self.total = total
        self._hub = hub
        self._endpoint = endpoint
        self._call: Optional[OnProgress] = call
        self._counters = counters
        self._begun = self._done = 0
        self._told = time.monotonic()
        self._thread = threading.get_ident()
        self._timer: Optional[asyncio.TimerHandle] = None

    def __enter__(self) -> "Progress":
        self._begun = self._count() or 0
        if asyncio._get_running_loop() is not None and \
                isinstance(self._hub, LoopHub):
            loop = self._hub.bind()
            self._timer = loop.call_later(EVERY_S, self._tick, loop)
        else:
            self._hub.followed.append(self)
        return self

    def _count(self) -> Optional[int]:
        try:
            described = self._hub.describe(self._endpoint)
        except Error:  # it has ended
            return None
        return sum(int(described[counter]) for counter in self._counters)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(EVERY_S, self._tick, loop)
        self._look()

    def look(self) -> None:
        """Of a call that blocks, now and then, in whatever thread."""
        if self._thread == threading.get_ident() and \
                time.monotonic() - self._told >= EVERY_S:
            self._look()

    def _look(self) -> None:
        count = self._count()
        if count is not None:
            done = count - self._begun
            self._tell(done if self.total is None else min(done, self.total))

    def _tell(self, done: int) -> None:
        if done <= self._done or self._call is None:
            return
        self._done, self._told = done, time.monotonic()
        try:
            self._call(done, self.total)
        except Exception:
            self._call = None
            if often.may("a progress function failed"):
                _log.exception("a progress function failed")

    def __exit__(self, kind: Optional[Type[BaseException]],
                 error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        if self._timer is None:
            self._hub.followed.remove(self)
        else:
            self._timer.cancel()
        if kind is None and self.total is not None:
            if not self.total:
                self._done = -1  # so that it is called once
            self._tell(self.total)
