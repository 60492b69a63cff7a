# SPDX-License-Identifier: BSD-3-Clause
"""Tells the application what becomes of the session of its endpoint."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import weakref
from collections import deque
from typing import Any, Callable, Deque, NamedTuple, Optional

from ._lib import ffi, lib, text
from ._logs import lines
from ._often import often
from .context import generation, park_at_exit

_log = logging.getLogger("tensormsg")
_KINDS = {lib.TMSG_SESSION_AWAY: "away", lib.TMSG_SESSION_BACK: "back",
          lib.TMSG_SESSION_NEW: "new"}
_FAILED = "an on_session failed"


class SessionEvent(NamedTuple):
    """What `on_session` of connect() is called with. `kind`: "away": the
    connection broke, and the endpoint tries to come back. "back": it is, and the
    same session goes on. "new": it has begun a new session with another
    process, and what was under way has ended. `words`: the same for people,
    with the reason. `endpoint`: which."""

    kind: str
    words: str
    endpoint: Any


OnSession = Optional[Callable[[SessionEvent], Any]]


class Sessions:
    """Of the endpoint that a hub has dialled. Its hub holds it."""

    def __init__(self, hub: Any, endpoint: Any, on_session: OnSession) -> None:
        """`hub`: its pointer."""
        self._hub = hub
        self._endpoint = weakref.ref(endpoint)
        self._on_session = on_session
        self._event = ffi.new("tmsgpy_session_t *")

    def _made(self, event: Any) -> SessionEvent:
        words, endpoint = text(event.words), self._endpoint()
        kind = _KINDS.get(event.event, "new")
        if kind == "new" and not lines.says(logging.WARNING) and often.may("a new session began"):
            _log.warning("%s: %s", getattr(endpoint, "peer", "a peer"), words)
        return SessionEvent(kind, words, endpoint)

    def _next(self) -> Optional[SessionEvent]:
        if not lib.tmsgpy_hub_session(self._hub, 0, self._event):
            return None
        return self._made(self._event)

    def _call(self, event: SessionEvent) -> Any:
        if self._on_session is None:
            return None
        try:
            return self._on_session(event)
        except Exception:
            self._tell_failure()
        return None

    def _tell_failure(self) -> None:
        if often.may(_FAILED):
            _log.exception(_FAILED)

    def look(self) -> None:
        """Now and then, in a call that moves messages."""
        raise NotImplementedError

    def settle(self) -> None:
        """Before something is given to who waits for it."""


class ThreadSessions(Sessions):
    """For who blocks: a thread tells, so that the function may call whatever it
    likes. Where there is no function, who moves messages writes the log."""

    def __init__(self, hub: Any, endpoint: Any, on_session: OnSession) -> None:
        super().__init__(hub, endpoint, on_session)
        if on_session is not None:
            threading.Thread(
                target=_run, args=(hub, weakref.ref(self), generation()),
                daemon=True, name="tensormsg-session").start()

    def look(self) -> None:
        if self._on_session is None:
            while self._next() is not None:
                pass

    def tell(self, event: Any) -> None:
        self._call(self._made(event))


def _run(hub: Any, reference: "weakref.ref[ThreadSessions]",
         made_in: int) -> None:
    """Until the hub is closed. It keeps nothing of the application's
    meanwhile."""
    event = ffi.new("tmsgpy_session_t *")
    while made_in == generation() and lib.tmsgpy_hub_session(hub, 1, event):
        park_at_exit()
        sessions = reference()
        if sessions is None:
            return
        sessions.tell(event)
        del sessions


class LoopSessions(Sessions):
    """For an event loop: in its thread, one after the other, also where the
    function is a coroutine."""

    def __init__(self, hub: Any, endpoint: Any, on_session: OnSession) -> None:
        super().__init__(hub, endpoint, on_session)
        self._events = lib.tmsgpy_hub_events(hub)
        self._seen = -1  # of these
        self._waiting: Deque[SessionEvent] = deque()
        self._telling: Optional["asyncio.Future[Any]"] = None

    def look(self) -> None:
        """What is told so comes before what the loop is woken for after it."""
        if self._events[0] != self._seen:
            loop = asyncio._get_running_loop()
            if loop is not None and self._take():
                loop.call_soon(self.tell)

    def settle(self) -> None:
        if (self._waiting or self._events[0] != self._seen) and \
                asyncio._get_running_loop() is not None and self._take():
            self.tell()

    def _take(self) -> bool:
        """Whether there is something to tell."""
        self._seen = self._events[0]
        event = self._next()
        while event is not None:
            self._waiting.append(event)
            event = self._next()
        return bool(self._waiting)

    def tell(self) -> None:
        while self._waiting and self._telling is None:
            made = self._call(self._waiting.popleft())
            if inspect.isawaitable(made):
                self._telling = asyncio.ensure_future(made)
                self._telling.add_done_callback(self._told)

    def _told(self, future: "asyncio.Future[Any]") -> None:
        self._telling = None
        if not future.cancelled() and future.exception() is not None:
            if often.may(_FAILED):
                _log.error(_FAILED, exc_info=future.exception())
        self.tell()


def check_on_session(on_session: OnSession, reconnect: Any) -> None:
    """Of the arguments of connect()."""
    if on_session is None:
        return
    if not callable(on_session):
        raise TypeError(f"on_session is a function, not {on_session!r}")
    if reconnect is None or reconnect is False:
        raise ValueError("on_session= is called for an endpoint with "
                         "reconnect= alone")


def check_blocks(on_session: OnSession) -> None:
    if inspect.iscoroutinefunction(on_session):
        raise TypeError("on_session= is a coroutine function, which needs the "
                        "event loop of `async with connect(...)`")
