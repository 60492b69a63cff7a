# SPDX-License-Identifier: BSD-3-Clause
"""What was sent on connections that nobody has closed goes on its way, for a
bounded time: when they are dropped, and when the program ends."""

from __future__ import annotations

import _thread
import logging
import sys
import time
from typing import Any, Callable, List, Set, Tuple

from ._lib import ffi, lib
from ._weakly import Weakly

LINGER_S = 2.0
_NAP_S = 0.0005

_log = logging.getLogger("tensormsg")


class Life:
    """Of a hub, beside it: what is left when it is collected."""

    def __init__(self, hub: Any, worker: Any) -> None:
        self.hub = hub
        self.worker = worker
        self.numbers: Set[int] = set()  # of its endpoints
        self.publisher: Any = None  # where it has one
        self.publishing = False  # that is being closed
        self.sent = False  # something, that may be on its way

    def begin(self) -> List[Tuple["Life", Any]]:
        """Closes its endpoints in order, its publisher before them: the
        requests."""
        begun: List[Tuple[Life, Any]] = []
        if not self.sent or not lib.tmsgpy_hub_enter(self.hub):
            return begun
        try:
            request_p = ffi.new("tmsg_request_t **")
            publisher, self.publisher = self.publisher, None
            if publisher is not None and \
                    lib.tmsg_publisher_close(publisher, request_p) == 0:
                self.publishing = True
                return [(self, request_p[0])]
            for number in list(self.numbers):
                if lib.tmsg_endpoint_close(
                        ffi.cast("tmsg_endpoint_t *", number), request_p) == 0:
                    begun.append((self, request_p[0]))
        finally:
            lib.tmsgpy_hub_leave(self.hub)
        return begun

    def begin_next(self) -> List[Tuple["Life", Any]]:
        """What follows where one of the requests has ended."""
        publishing, self.publishing = self.publishing, False
        return self.begin() if publishing else []

    def move(self) -> bool:
        """Whether something did."""
        if not lib.tmsgpy_hub_enter(self.hub):
            return False
        try:
            return bool(lib.tmsg_worker_progress(self.worker) > 0)
        finally:
            lib.tmsgpy_hub_leave(self.hub)


_lives: Weakly[Life] = Weakly()
_finalize: Any = None  # of multiprocessing
_dropped: List[Any] = []  # those that a thread looks after


def keep_in_mind(life: Life) -> None:
    """At the program's end. Processes of multiprocessing have one of their
    own."""
    global _finalize
    if "multiprocessing.util" in sys.modules and (
            _finalize is None or not _finalize.still_active()):
        # Another thread may be importing the module: this waits for it.
        from multiprocessing import util
        _finalize = util.Finalize(None, at_exit, exitpriority=10)
    _lives.add(life)


def _flush(those: List[Life], beside: List[Life]) -> None:
    """Until the peers have all that was sent; `beside` moves meanwhile."""
    end = time.monotonic() + LINGER_S
    begun = [one for life in those for one in life.begin()]
    while begun and time.monotonic() < end:
        moved = [life.move() for life in beside]
        left = []
        for life, request in begun:
            if lib.tmsg_request_test(request) == lib.TMSG_IN_PROGRESS:
                left.append((life, request))
            else:
                lib.tmsg_request_destroy(request)
                left += life.begin_next()
        begun = left
        if begun and not any(moved):
            time.sleep(_NAP_S)
    for life in those:  # not before: who collects the hub is to wait
        life.sent = False
    for _, request in begun:
        _log.warning("a connection ended before its peer had all that was sent "
                     "on it, after %g s: close() it", LINGER_S)
        lib.tmsg_request_destroy(request)


def at_exit() -> None:
    lives = list(_lives)
    _flush(lives, lives)
    end = time.monotonic() + LINGER_S
    while _dropped and time.monotonic() < end:
        time.sleep(_NAP_S)


def drop(life: Life, after: Callable[[], None]) -> bool:
    """Of a hub that was collected. True: a thread flushes it and calls
    `after`."""
    token = object()
    _lives.discard(life)  # at exit it is not closed a second time

    def run() -> None:
        try:
            _flush([life], [life])
        finally:
            after()
            _dropped.remove(token)

    _dropped.append(token)
    try:
        _thread.start_new_thread(run, ())
    except RuntimeError:  # the interpreter takes no more
        _dropped.remove(token)
        return False
    return True
