# SPDX-License-Identifier: BSD-3-Clause
"""Who is there: the peers of a listener, as they come and go."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import weakref
from collections import deque
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, \
    Protocol, Set

from ._lib import lib
from ._logs import lines
from ._often import often
from .context import generation, is_exiting, park_at_exit
from .errors import Error, Status, error_of

# Unread events of an iteration, from which on a peer that has gone before its
# coming was read is not told at all.
MOST_UNREAD = 4096

_log = logging.getLogger("tensormsg")

OnPeer = Callable[[Any], object]
OnLost = Callable[[Any, Optional[Error]], object]


class Happened(NamedTuple):
    """A peer has come, or gone."""

    peer: Any  # its endpoint
    joined: bool
    error: Optional[Error]


class Watch:
    """What an iteration has yet to give, oldest first."""

    def __init__(self) -> None:
        self.events: Dict[int, Happened] = {}
        self._came: Dict[int, int] = {}  # where that is there, by the endpoint
        self._count = 0
        self.wake: Callable[[], object] = lambda: None

    def add(self, event: Happened) -> None:
        place = self._came.pop(id(event.peer), None)
        if place is not None and len(self.events) > MOST_UNREAD:
            del self.events[place]
            return
        self._count += 1
        self.events[self._count] = event
        if event.joined:
            self._came[id(event.peer)] = self._count

    def oldest(self) -> Optional[Happened]:
        if not self.events:
            return None
        event = self.events.pop(next(iter(self.events)))
        if event.joined:
            self._came.pop(id(event.peer), None)
        return event


class Teller(Protocol):
    """A hub that has a listener."""

    hub: Any
    loop: Optional[asyncio.AbstractEventLoop]

    @property
    def closed(self) -> bool: ...

    def news(self) -> None: ...


def _run(reference: "weakref.ref[Teller]", presence: "weakref.ref[Presence]",
         hub: Any, made_in: int) -> None:
    seen = 0
    while made_in == generation():
        seen = lib.tmsgpy_hub_await_events(hub, seen, -1)
        park_at_exit()
        owner, its = reference(), presence()
        if owner is None or its is None:
            return
        over = owner.closed
        owner.news()
        its.call_whatever_comes()
        if over:
            return
        del owner, its


class Presence:
    """Logs who comes and goes, and tells the application. Where it says so, the
    hub's lock is held (Hub._holding)."""

    def __init__(self, on_peer: Optional[OnPeer] = None,
                 on_lost: Optional[OnLost] = None) -> None:
        for name, function in (("on_peer", on_peer), ("on_lost", on_lost)):
            if function is not None and not callable(function):
                raise TypeError(f"{name} is a function, not {function!r}")
        self._on_peer = on_peer
        self._on_lost = on_lost
        self._asked = on_peer is not None or on_lost is not None
        self._there: Dict[int, Any] = {}  # who has come, by the endpoint's id
        self._unlogged: Deque[Happened] = deque()
        self._uncalled: Deque[Happened] = deque()
        self._calling = threading.Lock()
        self._scheduled = False
        self._tasks: Set[Any] = set()
        self._watches: List[Watch] = []
        self._over = False
        self._thread: Optional[threading.Thread] = None

    @property
    def followed(self) -> bool:
        """Whether somebody waits to be told."""
        return self._asked or bool(self._watches)

    # With the lock held.

    def _note(self, event: Happened) -> None:
        self._unlogged.append(event)
        if self._asked:
            self._uncalled.append(event)
        for watch in self._watches:
            watch.add(event)
            watch.wake()

    def came(self, peer: Any) -> None:
        if not self._over:
            self._there[id(peer)] = peer
            self._note(Happened(peer, True, None))

    def went(self, peer: Any, status: int = Status.CLOSED, reason: str = "",
             words: str = "") -> None:
        """Once of each. `words`: the peer's."""
        if self._there.pop(id(peer), None) is not None:
            error = None if status == Status.CLOSED else error_of(
                status, reason, words)
            self._note(Happened(peer, False, error))

    def end(self) -> None:
        """The listener is closed: all who are still there are gone."""
        for peer in list(self._there.values()):
            self.went(peer)
        self._over = True

    def wake_all(self) -> None:
        for watch in self._watches:
            watch.wake()

    def watch(self) -> Watch:
        """Begins with those who are there."""
        watch = Watch()
        for peer in self._there.values():
            watch.add(Happened(peer, True, None))
        self._watches.append(watch)
        return watch

    def unwatch(self, watch: Watch) -> None:
        if watch in self._watches:
            self._watches.remove(watch)

    # Without it.

    def use_thread(self, hub: Any) -> None:
        """The functions are called in a thread of the package's."""
        if self._asked and self._thread is None:
            for function in self._on_peer, self._on_lost:
                if inspect.iscoroutinefunction(function):
                    raise TypeError("a coroutine needs asyncio: enter the "
                                    "listener by `async with`")
            self._thread = threading.Thread(
                target=_run, args=(weakref.ref(hub), weakref.ref(self),
                                   hub.hub, generation()),
                daemon=True, name="tensormsg-peers")
            self._thread.start()

    def tell(self, hub: Teller) -> None:
        """After something may have been noted."""
        while self._unlogged:
            try:
                event = self._unlogged.popleft()
            except IndexError:  # another thread took it
                break
            self._log(event)
        loop = hub.loop
        if self._uncalled and self._thread is None and loop is not None and \
                not self._scheduled:
            self._scheduled = True
            try:
                loop.call_soon_threadsafe(self._call_in_loop)
            except RuntimeError:  # it is closed
                self._scheduled = False

    def _log(self, event: Happened) -> None:
        level = logging.INFO if event.error is None else logging.WARNING
        if lines.says(level) or not _log.isEnabledFor(level) or \
                is_exiting():
            return
        if event.error is not None:
            if often.may("a peer was lost", level):
                _log.warning("lost %s", event.error.reason)
        elif often.may("a peer came" if event.joined else "a peer went",
                       level):
            _log.info("%s: %s", event.peer.peer,
                      "connected" if event.joined else "closed")

    def _call_in_loop(self) -> None:
        self._scheduled = False
        self.call_all()

    def call_all(self) -> None:
        """One after another, in the order in which it happened."""
        if not self._calling.acquire(False):
            return
        try:
            while self._uncalled:
                self._call(self._uncalled.popleft())
        finally:
            self._calling.release()

    def call_whatever_comes(self) -> None:
        """In a thread that is to go on."""
        again = True
        while again:
            try:
                self.call_all()
                again = False
            except BaseException:
                _log.exception("on_peer or on_lost failed")

    def _call(self, event: Happened) -> None:
        name = "on_peer" if event.joined else "on_lost"
        try:
            result: Any = None
            if event.joined and self._on_peer is not None:
                result = self._on_peer(event.peer)
            elif not event.joined and self._on_lost is not None:
                result = self._on_lost(event.peer, event.error)
            if inspect.isawaitable(result):
                task = asyncio.ensure_future(result)
                self._tasks.add(task)
                task.add_done_callback(self._done)
        except Exception:
            if often.may(f"{name} failed"):
                _log.exception("%s failed", name)

    def _done(self, task: "asyncio.Future[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None and \
                often.may("on_peer or on_lost failed"):
            _log.error("on_peer or on_lost failed", exc_info=task.exception())
