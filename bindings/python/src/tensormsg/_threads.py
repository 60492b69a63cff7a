# SPDX-License-Identifier: BSD-3-Clause
"""A server whose handlers run in threads of its own."""

from __future__ import annotations

import inspect
import logging
import threading
import time
import weakref
from typing import Any, Callable, List, Optional

from ._count import count
from ._hub import SLICE_MS, Hub
from ._logs import complain
from ._message import Like
from ._often import often
from ._serve import BaseServer
from ._signals import Caught
from ._watch import LONG_S, Long, Stalls, request_in, watcher
from .context import park_at_exit
from .errors import Error

_MOST_THREADS = 1024  # of a server
_QUIET_S = 0.02  # without a new method, and its threads begin
_NONE_S = 0.2  # where there is none at all

_log = logging.getLogger("tensormsg")


def _serve(reference: "weakref.ref[ThreadServer]") -> None:
    """Begins when the methods are there: a caller that waited for a server that
    is started anew would be told that there is none of that name."""
    while True:
        server = reference()
        if server is None or server._closed:
            return
        left = server._begins - time.monotonic()
        del server
        if left <= 0:
            break
        time.sleep(min(left, _QUIET_S))
    while True:
        server = reference()
        try:
            if server is None or not server._step():
                return
        except Exception:  # of a handler of `logging`
            complain()
        del server


class ThreadServer(BaseServer[Hub]):
    """Answers calls, in threads of its own."""

    def __init__(self, hub: Hub, sender: Callable[[int, bool], Any],
                 like: Like, *, threads: int, concurrency: int,
                 queue: int, ready: bool) -> None:
        threads = count(threads, "threads", 1, _MOST_THREADS)
        super().__init__(hub, sender, like, concurrency, queue, ready)
        hub.threads_move_it = True
        self._begins = time.monotonic() + _NONE_S
        self._threads = [threading.Thread(
            target=_serve, args=(weakref.ref(self),), daemon=True,
            name=f"tensormsg-{i}") for i in range(threads)]
        self._longs = [Long() for _ in self._threads]
        self._stalls = Stalls()
        self._stood = False
        for thread in self._threads:
            thread.start()
        watcher.add(self)

    def _watch(self, now: float) -> None:
        """What a thread of the package does with it now and then: says that
        calls wait in vain; or that all threads are in handlers for long, and
        nothing moves the listener meanwhile, so that none can even come."""
        self._stalls.look(self._hub, now)
        if self._hub.background or self._stood:
            return
        names = []
        for thread, long in zip(self._threads, self._longs):
            request, _ = request_in(thread.ident, _CODES)
            if long.look(request, now) and now - long.since >= LONG_S:
                names.append(f"'{request.method}'")
        if len(names) < len(self._threads):
            return
        self._stood = True
        _log.warning(
            "%s: all threads of its server (%d) have been in handlers (%s) for "
            "%.1f s, and nothing else moves it meanwhile: calls do not come in. "
            "Give it background=True, or more threads; this is said once",
            self._hub.place or self._hub._dialled, len(names),
            ", ".join(sorted(set(names))), LONG_S)

    def _refuse_handler(self, handler: Any) -> None:
        self._begins = time.monotonic() + _QUIET_S
        super()._refuse_handler(handler)
        if inspect.iscoroutinefunction(handler) or \
                inspect.isasyncgenfunction(handler):
            raise TypeError("a coroutine needs asyncio: enter the listener by "
                            "`async with`")

    def _step(self) -> bool:
        self._hub.look_for_ended()
        work = self._take(SLICE_MS, self._hub.spin_us)
        if work is None:
            return not self._closed
        if not work:
            park_at_exit()
            return False
        handler, request = self._request(work)
        if work[3]:
            self._run_stream(handler, request)
            return True
        try:
            with self._within(request):
                result = handler(request)
        except BaseException as error:  # sys.exit(), too, ends just the call
            self._fail(request, error)
        else:
            self._answer(request, result)
        return True

    def _run_stream(self, handler: Callable[[Any], Any],
                    stream: Any) -> None:
        made: Any = None
        try:
            with self._within(stream):
                made = handler(stream)
                if inspect.isgenerator(made):
                    for data in made:
                        data, meta, lend = self._to_send(data)
                        stream.send(data, meta=meta, lend=lend)
                elif made is not None:
                    data, meta, lend = self._to_send(made)
                    stream.send(data, meta=meta, lend=lend)
        except BaseException as error:
            self._fail(stream, error)
        else:
            self._refuse(stream, 0, 0, "", {})
        if inspect.isgenerator(made):
            try:
                made.close()
            except BaseException:
                if often.may(f"method '{stream.method}' failed at its end"):
                    _log.exception("method '%s' failed at its end",
                                   stream.method)

    def _wait_drained(self, timeout: Optional[float]) -> None:
        failed: List[Error] = []

        def run() -> None:
            try:
                self._drain(timeout)
            except Error as error:
                failed.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                thread.join(SLICE_MS / 1000)
        except BaseException:
            self._hurry()
            raise
        if failed:
            raise failed[0]

    def _end_handlers(self) -> None:
        """A handler that goes on is left to itself."""
        end = time.monotonic() + 1  # for all of them
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0, end - time.monotonic()))

    def _wait_closed(self) -> None:
        for thread in self._threads:
            while thread.is_alive():
                thread.join(SLICE_MS / 1000)

    def _wait_signal(self, caught: Caught) -> bool:
        """False: it was closed before one came."""
        for thread in self._threads:
            while thread.is_alive() and caught.number is None:
                thread.join(SLICE_MS / 1000)
        return caught.number is not None


_CODES = {ThreadServer._step.__code__: "request",
          ThreadServer._run_stream.__code__: "stream"}
