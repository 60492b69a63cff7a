# SPDX-License-Identifier: BSD-3-Clause
"""Says why nothing goes on at servers of this process: a thread looks at them
now and then, so that no call has to."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import weakref
from types import CodeType, FrameType
from typing import Any, Dict, Optional, Tuple

from ._hub import Hub
from ._lib import ffi, lib
from .context import generation, park_at_exit
from .errors import Error

EVERY_S = 0.25
LONG_S = 1.0  # a handler that holds an event loop for so long is named
_SILENT_S = 60.0  # between two records of a server's stalls

_log = logging.getLogger("tensormsg")


def request_in(thread: Optional[int], codes: Dict[CodeType, str]
               ) -> Tuple[Any, Optional[FrameType]]:
    """The request whose handler that thread runs, and the frame it is in; None:
    it runs none. `codes`: of the functions that call handlers, each with the
    name of its variable that is the request."""
    innermost = None if thread is None else sys._current_frames().get(thread)
    frame = innermost
    while frame is not None:
        name = codes.get(frame.f_code)
        if name is not None:
            return frame.f_locals.get(name), innermost
        frame = frame.f_back
    return None, None


def place_of(frame: FrameType) -> str:
    code = frame.f_code
    return f"{code.co_name}(), line {frame.f_lineno} of {code.co_filename}"


class Long:
    """A handler that a thread is seen in again and again."""

    def __init__(self) -> None:
        self._seen: Any = None  # a weak reference to its request
        self.since = 0.0
        self.said = False

    def look(self, request: Any, now: float) -> bool:
        """Whether it was seen before; else it begins now."""
        if request is None:
            self._seen = None
            return False
        if self._seen is not None and self._seen() is request:
            return True
        self._seen = weakref.ref(request)
        self.since, self.said = now, False
        return False


class Stalls:
    """Says that calls wait at a server and none begins, which the library
    counts; and that a server finds no memory."""

    def __init__(self) -> None:
        self._counted = 0
        self._said = -_SILENT_S

    def look(self, hub: Hub, now: float) -> None:
        report = ffi.new("tmsg_health_report_t *")
        hub.enter()
        try:
            lib.tmsgpy_hub_report(hub.hub, report)
        finally:
            hub.leave()
        hub.tell_that_it_starves()
        if report.stalls <= self._counted:
            return
        why = ffi.string(report.why).decode()
        if why and now - self._said >= _SILENT_S:
            self._said = now
            held = f"; {report.held} more were answered and are held by what " \
                "their handlers keep of them" if report.held else ""
            _log.warning(
                "%s: %d calls wait, and none of their method has begun for a "
                "second: %s%s. Have handlers return, or allow more at once "
                "(concurrency=, threads=, executor=); further stalls are "
                "counted", hub.place or hub._dialled, report.waiting, why, held)
        self._counted = report.stalls


class _Watcher:
    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """In the child of a process that was forked, too."""
        self._lock = threading.Lock()
        self._servers: "weakref.WeakSet[Any]" = weakref.WeakSet()
        self._made_in: Optional[int] = None

    def add(self, server: Any) -> None:
        with self._lock:
            if self._made_in != generation():
                threading.Thread(target=self._run, args=(generation(),),
                                 daemon=True, name="tensormsg-watch").start()
                self._made_in = generation()
            self._servers.add(server)

    def _run(self, made_in: int) -> None:
        while made_in == generation():
            time.sleep(EVERY_S)
            park_at_exit()
            with self._lock:
                servers = list(self._servers)
                if not servers:
                    self._made_in = None
                    return
            for server in servers:
                if server._closed or not self._look(server):
                    with self._lock:
                        self._servers.discard(server)
            del servers, server

    @staticmethod
    def _look(server: Any) -> bool:
        try:
            server._watch(time.monotonic())
        except Error:  # it was closed just now
            return False
        except Exception:
            _log.exception("the watch over a server failed")
            return False
        return True


watcher = _Watcher()
os.register_at_fork(after_in_child=watcher.forget)
