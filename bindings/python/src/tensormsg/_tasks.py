# SPDX-License-Identifier: BSD-3-Clause
"""A server whose handlers run as tasks of the event loop."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import weakref
from typing import Any, Callable, Dict, Optional

from ._lib import lib
from ._loop import LoopHub
from ._message import Like
from ._serve import BaseServer, Request
from ._signals import Caught
from ._told import in_loop
from .errors import Status

_ENDS_THE_LOOP = SystemExit, KeyboardInterrupt  # out of a task, asyncio says


class TaskServer(BaseServer[LoopHub]):
    """Answers calls, each in a task of its own."""

    def __init__(self, hub: LoopHub, sender: Callable[[int, bool], Any],
                 like: Like, *, concurrency: int, queue: int,
                 ready: bool) -> None:
        super().__init__(hub, sender, like, concurrency, queue, ready)
        self._running: Dict["asyncio.Task[None]", Any] = {}
        self._overs = 0
        self._context = contextvars.copy_context()
        self._ended = asyncio.Event()
        hub.server = weakref.ref(self)

    def _turn(self) -> bool:
        """Begins what came in, and cancels what nobody waits for. Whether
        there was any."""
        hub = self._hub
        loop = hub.loop
        assert loop is not None
        woke = False
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
            result = handler(request)
            if inspect.isawaitable(result):
                result = await result
        except asyncio.CancelledError:
            if not request.over:
                self._refuse(request, Status.UNAVAILABLE, 0,
                             "its handler was cancelled", {})
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
            made = handler(stream)
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

    async def _wait_drained(self, timeout: Optional[float]) -> None:
        loop = self._hub.bind()
        try:
            await loop.run_in_executor(None, self._drain, timeout)
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
