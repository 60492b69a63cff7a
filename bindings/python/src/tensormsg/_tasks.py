# SPDX-License-Identifier: BSD-3-Clause
"""A server whose handlers run as tasks of the event loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import functools
import inspect
import logging
import threading
import weakref
from typing import Any, AsyncIterator, Callable, Dict, List, Optional, Set, \
    Union

from ._lib import hot, lib
from ._loop import LoopHub
from ._message import Like
from ._serve import BaseServer, Request
from ._signals import Caught
from ._told import in_loop
from ._watch import LONG_S, Long, Stalls, place_of, request_in, watcher
from .errors import Status

_ENDS_THE_LOOP = SystemExit, KeyboardInterrupt  # out of a task, asyncio says
_OVER = object()  # what comes of a generator that is over

Executor = Union[concurrent.futures.Executor, bool, None]

_log = logging.getLogger("tensormsg")


class _OffLoop:
    """A plain function that runs in an executor. The hub has it, and must not
    keep the server."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __call__(self, request: Any) -> Any:
        return self.function(request)


def _is_plain(handler: Any) -> bool:
    """Whether it is no coroutine function, as far as that can be seen."""
    call = getattr(handler, "__call__", handler)
    return not any(is_one(each) for each in (handler, call) for is_one in
                   (inspect.iscoroutinefunction, inspect.isasyncgenfunction))


def _checked(executor: Executor) -> Executor:
    if executor not in (None, True, False) and \
            not callable(getattr(executor, "submit", None)):
        raise TypeError("executor: a concurrent.futures.Executor, or True for "
                        f"the event loop's own, not {executor!r}")
    return executor


class TaskServer(BaseServer[LoopHub]):
    """Answers calls, each in a task of its own."""

    def __init__(self, hub: LoopHub, sender: Callable[[int, bool], Any],
                 like: Like, *, executor: Executor, concurrency: int,
                 queue: int, ready: bool) -> None:
        self._executor = _checked(executor)
        super().__init__(hub, sender, like, concurrency, queue, ready)
        self._running: Dict["asyncio.Task[None]", Any] = {}
        self._overs = 0
        self._context = contextvars.copy_context()
        self._ended = asyncio.Event()
        self._thread: Optional[int] = None  # the loop's
        self._long = Long()
        self._named: Set[str] = set()  # handlers that held the loop
        self._beats: List[bool] = []  # the loop went on since then
        self._stalls = Stalls()
        hub.server = weakref.ref(self)
        watcher.add(self)

    def _watch(self, now: float) -> None:
        """What a thread of the package does with it now and then: names a
        handler that holds the event loop for long."""
        self._stalls.look(self._hub, now)
        loop, long = self._hub.loop, self._long
        request, frame = request_in(self._thread, _CODES)
        if loop is None or not long.look(request, now) or self._beats:
            self._beats = []  # another than that of a call before
            long.since, long.said = now, False
            if request is not None and loop is not None:
                loop.call_soon_threadsafe(self._beats.append, True)
            return
        if long.said or now - long.since < LONG_S:
            return
        long.said = True
        name = request.method
        self._hub.note_long(name)
        if name not in self._named:
            self._named.add(name)
            assert frame is not None
            _log.warning(
                "handler '%s' has held the event loop for %.1f s (in %s): "
                "nothing else is served meanwhile. Serve with executor=, or "
                "await long work; further times are counted "
                "(long_handlers of describe())", name, LONG_S,
                place_of(frame))

    def _offered(self, handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
        if self._executor in (None, False) or not _is_plain(handler):
            return handler
        return _OffLoop(handler)

    def _in_executor(self, call: Callable[..., Any], *args: Any
                     ) -> "asyncio.Future[Any]":
        """Has it called in the executor, in the context of the calling
        task."""
        context = contextvars.copy_context()
        executor = None if self._executor is True else self._executor
        assert not isinstance(executor, bool)
        return asyncio.get_running_loop().run_in_executor(
            executor, context.run, call, *args)

    async def _off_loop(self, handler: Callable[[Any], Any],
                        request: Any) -> Any:
        if isinstance(request, Request):
            hot.task_put_off(request._task)
        result = await self._in_executor(self._call, handler, request)
        return await result if inspect.isawaitable(result) else result

    def _call(self, handler: Callable[[Any], Any], request: Any) -> Any:
        """In a thread of the executor, whose turn may come too late. Who is
        called there counts as running until it returns, whoever waits."""
        if not isinstance(request, Request):
            return handler(request)
        if not hot.task_begin(request._task):
            return None
        try:
            return handler(request)
        finally:
            if request.over:
                self._done_in_vain(request)

    async def _generate(self, handler: Callable[[Any], Any],
                        stream: Any) -> AsyncIterator[Any]:
        """What a generator yields, which goes on in the executor."""
        made = handler(stream)
        step: Any = None
        try:
            while True:
                step = self._in_executor(next, made, _OVER)
                data = await asyncio.shield(step)
                if data is _OVER:
                    return
                yield data
        finally:
            if step is not None and not step.done():  # it was cancelled
                step.add_done_callback(
                    functools.partial(self._close_later, made))
            else:
                await self._in_executor(made.close)

    def _close_later(self, made: Any, step: "asyncio.Future[Any]") -> None:
        """Of a generator that was in a step when its stream was cancelled."""
        error = None if step.cancelled() else step.exception()
        if error is None:
            self._in_executor(made.close)

    def _done_in_vain(self, request: Request) -> None:
        """Its handler is over, and nobody waits any more: it gives its place
        to another."""
        self._refuse(request, Status.CANCELED, 0, "nobody waits", {})

    def _turn(self) -> bool:
        """Begins what came in, and cancels what nobody waits for. Whether
        there was any."""
        hub = self._hub
        loop = hub.loop
        assert loop is not None
        woke = False
        self._thread = threading.get_ident()
        while True:
            work = self._take(-1, 0)
            if not work:
                break
            woke = True
            if work[3]:
                hub.watch(work[1][1])
            handler, request = self._request(work)
            run = self._run_stream if work[3] else self._run
            task = self._context.copy().run(
                loop.create_task, run(handler, request))
            self._running[task] = request
            task.add_done_callback(self._running.pop)
        overs = lib.tmsgpy_hub_overs(hub.hub)
        if overs != self._overs:
            woke = True
            self._overs = overs
            for task, request in list(self._running.items()):
                if request is not None and request.over:
                    self._running[task] = None  # it is cancelled once
                    task.cancel()
        return woke

    async def _run(self, handler: Callable[[Request], Any],
                   request: Request) -> None:
        try:
            with self._within(request):
                result = self._off_loop(handler.function, request) \
                    if isinstance(handler, _OffLoop) else handler(request)
                if inspect.isawaitable(result):
                    result = await result
        except asyncio.CancelledError:
            if not request.over:
                self._refuse(request, Status.UNAVAILABLE, 0,
                             "its handler was cancelled", {})
            elif not isinstance(handler, _OffLoop):
                self._done_in_vain(request)
            raise
        except BaseException as error:
            self._fail(request, error)
            self._hub.kick()
            if isinstance(error, _ENDS_THE_LOOP):
                raise
        else:
            self._answer(request, result)
            self._hub.kick()

    async def _run_stream(self, handler: Callable[[Any], Any],
                          stream: Any) -> None:
        made: Any = None
        try:
            with self._within(stream):
                if not isinstance(handler, _OffLoop):
                    made = handler(stream)
                elif inspect.isgeneratorfunction(handler.function):
                    made = self._generate(handler.function, stream)
                else:
                    made = self._off_loop(handler.function, stream)
                await self._give(made, stream)
        except asyncio.CancelledError:
            if not stream.over:
                self._refuse(stream, Status.UNAVAILABLE, 0,
                             "its handler was cancelled", {})
            raise
        except BaseException as error:
            self._fail(stream, error)
            if isinstance(error, _ENDS_THE_LOOP):
                raise
        else:
            self._refuse(stream, 0, 0, "", {})
        finally:
            if inspect.isasyncgen(made):
                await made.aclose()
            elif inspect.isgenerator(made):
                made.close()
            self._hub.kick()

    async def _give(self, made: Any, stream: Any) -> None:
        """Sends what the handler of a stream made."""
        if inspect.isasyncgen(made):
            async for data in made:
                data, meta, lend = self._to_send(data)
                await stream.send(data, meta=meta, lend=lend)
        elif inspect.isgenerator(made):
            for data in made:
                data, meta, lend = self._to_send(data)
                await stream.send(data, meta=meta, lend=lend)
        else:
            last = await made if inspect.isawaitable(made) else made
            if last is not None:
                data, meta, lend = self._to_send(last)
                await stream.send(data, meta=meta, lend=lend)

    async def _wait_drained(self, timeout: Optional[float]) -> None:
        """In a thread of its own: handlers may have all of an executor's."""
        loop = self._hub.bind()
        drained: "asyncio.Future[None]" = loop.create_future()

        def end(error: Optional[BaseException]) -> None:
            if not drained.done() and error is None:
                drained.set_result(None)
            elif not drained.done() and error is not None:
                drained.set_exception(error)

        def run() -> None:
            failed: Optional[BaseException] = None
            try:
                self._drain(timeout)
            except BaseException as error:
                failed = error
            try:
                loop.call_soon_threadsafe(end, failed)
            except RuntimeError:  # it is closed
                pass

        threading.Thread(target=run, daemon=True, name="tensormsg-drain").start()
        try:
            await drained
        except asyncio.CancelledError:
            self._hurry()
            raise

    def _teller(self, on_release: Callable[[], object]
                ) -> Callable[[], object]:
        super()._teller(on_release)
        loop = self._hub.loop
        assert loop is not None
        return in_loop(loop, on_release)

    def _unserve(self) -> None:
        try:
            super()._unserve()
        finally:
            self._ended.set()

    async def _end_handlers(self) -> None:
        """Cancels those that still run."""
        rest = [task for task in self._running
                if task is not asyncio.current_task()]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    async def _wait_closed(self) -> None:
        await self._ended.wait()

    async def _wait_signal(self, caught: Caught) -> bool:
        """False: it was closed before one came."""
        assert caught.came is not None
        waits = [asyncio.ensure_future(event.wait())
                 for event in (caught.came, self._ended)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
        return caught.number is not None


_CODES = {TaskServer._run.__code__: "request",
          TaskServer._run_stream.__code__: "stream"}
