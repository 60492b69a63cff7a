# SPDX-License-Identifier: BSD-3-Clause
"""What was sent on connections that nobody has closed goes on its way, for a
bounded time: when they are dropped, and when the program ends."""

from __future__ import annotations

import _thread
import logging
import os
import sys
import time
from collections import Counter
from typing import Any, Callable, List, Set, Tuple

from ._lib import ffi, lib, text
from ._weakly import Weakly

LINGER_S = 1.6  # with all else an end of the program takes 2 s
_NAP_S = 0.0005
_NAMES = 3  # that a line of the log has

_log = logging.getLogger("tensormsg")

Begun = Tuple["Life", Any, str]  # a request, and the peer that it is for


def begin_close(endpoint: Any, request_p: Any) -> int:
    """tmsg_endpoint_close() for an endpoint from which nobody receives any
    more. What lies there untaken would hold its end up."""
    lib.tmsg_endpoint_discard(endpoint)
    status: int = lib.tmsg_endpoint_close(endpoint, request_p)
    return status


class Life:
    """Of a hub, beside it: what is left when it is collected."""

    def __init__(self, hub: Any, worker: Any) -> None:
        self.hub = hub
        self.worker = worker
        self.numbers: Set[int] = set()  # of its endpoints
        self.publisher: Any = None  # where it has one
        self.publishing = False  # that is being closed
        self.sent = False  # something, that may be on its way

    def begin(self) -> List[Begun]:
        """Closes its endpoints in order, its publisher before them: the
        requests."""
        begun: List[Begun] = []
        if not self.sent or not lib.tmsgpy_hub_enter(self.hub):
            return begun
        try:
            request_p = ffi.new("tmsg_request_t **")
            # Its clients are told that it shuts down, where there is a server.
            lib.tmsgpy_hub_drain(self.hub, 0)
            publisher, self.publisher = self.publisher, None
            if publisher is not None and \
                    lib.tmsg_publisher_close(publisher, request_p) == 0:
                self.publishing = True
                return [(self, request_p[0], "subscribers")]
            for number in list(self.numbers):
                endpoint = ffi.cast("tmsg_endpoint_t *", number)
                if begin_close(endpoint, request_p) == 0:
                    begun.append((self, request_p[0],
                                  text(lib.tmsg_endpoint_peer(endpoint))))
        finally:
            lib.tmsgpy_hub_leave(self.hub)
        return begun

    def begin_next(self) -> List[Begun]:
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


class _Flush:
    """Of some lives, until the peers have all that was sent, or it is over."""

    def __init__(self, lives: List[Life], after: Callable[[], None],
                 end: float) -> None:
        self._lives = lives
        self._after = after
        self._end = end
        self._begun = [one for life in lives for one in life.begin()]

    def look(self) -> bool:
        """Whether it is to go on."""
        left: List[Begun] = []
        for one in self._begun:
            life, request, _ = one
            if lib.tmsg_request_test(request) == lib.TMSG_IN_PROGRESS:
                left.append(one)
            else:
                lib.tmsg_request_destroy(request)
                left += life.begin_next()
        self._begun = left
        return bool(left) and time.monotonic() < self._end

    def move(self) -> bool:
        """Whether something did."""
        return any([life.move() for life in self._lives])

    def finish(self) -> List[str]:
        """Whose peers lack something."""
        for life in self._lives:  # not before: who collects the hub is to wait
            life.sent = False
        late = [peer for _, _, peer in self._begun]
        for _, request, _ in self._begun:
            lib.tmsg_request_destroy(request)
        self._begun = []
        try:
            self._after()
        except Exception:  # the others are not to suffer
            _log.exception("what follows the end of a hub failed")
        return late


def _tell(late: List[str]) -> None:
    """One line, however many they are."""
    if not late:
        return
    peers = [f"{count} to {peer}" if count > 1 else peer
             for peer, count in Counter(late).most_common()]
    if len(peers) > _NAMES:
        peers[_NAMES:] = [f"{len(peers) - _NAMES} more"]
    one = len(late) == 1
    _log.warning("%s ended before %s had all that was sent on %s, after %g s: "
                 "close() %s (%s)",
                 "a connection" if one else f"{len(late)} connections",
                 "its peer" if one else "their peers",
                 "it" if one else "them", LINGER_S, "it" if one else "them",
                 ", ".join(peers))


class _Dropped:
    """Hubs that were collected. One thread flushes them, rarely two; finalizers,
    which come in at any moment, and in any thread, tell it of more."""

    def __init__(self) -> None:
        self._new: List[Tuple[Life, Callable[[], None], float]] = []
        self._threads: List[object] = []  # one of each: no step of it is cut

    def busy(self) -> bool:
        return bool(self._threads or self._new)

    def add(self, life: Life, after: Callable[[], None]) -> bool:
        entry = (life, after, time.monotonic() + LINGER_S)
        self._new.append(entry)
        if self._threads:
            return True
        thread = object()
        self._threads.append(thread)
        try:
            _thread.start_new_thread(self._run, (thread,))
        except RuntimeError:  # the interpreter takes no more
            self._threads.remove(thread)
            try:
                self._new.remove(entry)
            except ValueError:  # another thread has it
                return True
            return False
        return True

    def _run(self, thread: object) -> None:
        while True:
            try:
                self._flush_all()
            finally:
                self._threads.remove(thread)
            if not self._new:
                return
            self._threads.append(thread)  # one came before that was seen

    def _begin_new(self) -> List[_Flush]:
        begun: List[_Flush] = []
        while True:
            try:
                life, after, end = self._new.pop(0)
            except IndexError:  # another thread may have taken it
                return begun
            begun.append(_Flush([life], after, end))

    def _flush_all(self) -> None:
        flushes: List[_Flush] = []
        late: List[str] = []
        while self._new or flushes:
            flushes += self._begin_new()
            moved = any([flush.move() for flush in flushes])
            for flush in [each for each in flushes if not each.look()]:
                flushes.remove(flush)
                late += flush.finish()
            if not moved:
                time.sleep(_NAP_S)
        _tell(late)


_dropped = _Dropped()


def at_exit() -> None:
    lives = list(_lives)
    end = time.monotonic() + LINGER_S
    flush = _Flush(lives, lambda: None, end)
    while flush.look():
        if not flush.move():
            time.sleep(_NAP_S)
    _tell(flush.finish())
    while _dropped.busy() and time.monotonic() < end:
        time.sleep(_NAP_S)


def _forked() -> None:
    """The connections of the parent are the parent's to close."""
    global _lives, _dropped
    _lives, _dropped = Weakly(), _Dropped()


os.register_at_fork(after_in_child=_forked)


def drop(life: Life, after: Callable[[], None]) -> bool:
    """Of a hub that was collected. True: a thread flushes it and calls
    `after`."""
    _lives.discard(life)  # at exit it is not closed a second time
    return _dropped.add(life, after)
