# SPDX-License-Identifier: BSD-3-Clause
"""Endpoints and listeners for asyncio."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections import deque
from types import TracebackType
from typing import Any, AsyncIterator, Deque, Dict, List, Optional, Type

from ._endpoint import BaseEndpoint, BaseListener, flags_of
from ._hub import CLOSE_TIMEOUT, Hub, Meta, merge_meta
from ._lib import hot, lib
from ._message import BaseMessage
from .context import check_process
from .errors import Closed, Error, Status, error_of

_TURN_S = 0.001  # a task that never waits lets others run so often
_SOON_S = 0.0002  # a message that came so soon could have been spun for
_MISSES = 3  # in a row, and nobody spins any more
_ROUNDS = 16


def _wake(reference: "weakref.ref[LoopHub]") -> None:
    hub = reference()
    if hub is not None:
        hub.turn()


def _forget(loop: asyncio.AbstractEventLoop, fd: int) -> None:
    if not loop.is_closed():
        loop.remove_reader(fd)
    os.close(fd)


def _unbind(bound: List[Any]) -> None:
    """Takes the descriptor out of its loop, in that loop's thread."""
    while bound:
        loop, fd = bound.pop()
        if loop.is_closed() or not loop.is_running() or \
                asyncio._get_running_loop() is loop:
            _forget(loop, fd)
        else:
            try:
                loop.call_soon_threadsafe(_forget, loop, fd)
            except RuntimeError:  # it was closed just now
                os.close(fd)


class LoopHub(Hub):
    """A hub that the running event loop drives: by the worker's descriptor,
    which is readable when there is something to do."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.loop: Optional[asyncio.AbstractEventLoop] = None
        self._bound: List[Any] = []  # (loop, a copy of the descriptor)
        self._ops: Dict[Any, "asyncio.Future[None]"] = {}
        self._receivers: Deque["asyncio.Future[None]"] = deque()
        self._stirred = False  # something may have come since a turn
        self._kicked = False
        self._turned = 0.0
        self._misses = 0
        self._unbinder = weakref.finalize(self, _unbind, self._bound)
        self._unbinder.atexit = False

    def bind(self) -> asyncio.AbstractEventLoop:
        """To the running loop; from one that has ended, or waits for nothing
        of ours."""
        loop = asyncio.get_running_loop()
        if loop is self.loop:
            return loop
        check_process(self.generation)
        if self.loop is not None and self.loop.is_running() and \
                (self._ops or self._receivers):
            raise RuntimeError("another event loop waits on this connection")
        self.enter()
        try:
            fd = os.dup(lib.tmsg_worker_fd(self.worker))
        finally:
            self.leave()
        _unbind(self._bound)
        self._ops.clear()
        self._receivers.clear()
        loop.add_reader(fd, _wake, weakref.ref(self))
        self._bound.append((loop, fd))
        self.loop = loop
        self._kicked = False
        self.kick()
        return loop

    def kick(self) -> None:
        """Before the loop sleeps next the worker is armed."""
        if not self._kicked and self.loop is not None:
            self._kicked = True
            self.loop.call_soon(self.turn)

    def turn(self) -> None:
        """Does what there is to do, and arms the descriptor."""
        self._kicked = False
        if self.loop is None or self.closed:
            _unbind(self._bound)
            self._deliver(True)
            return
        self._turned = self.loop.time()
        for _ in range(_ROUNDS):
            self._deliver(hot.progress(self.number) > 0)
            if hot.arm(self.number):
                return
        self.kick()

    def _deliver(self, stirred: bool) -> None:
        if self.pending:
            for op in hot.reap(self.pending):
                future = self._ops.pop(op, None)
                if future is not None and not future.done():
                    future.set_result(None)
        if stirred or self._stirred:
            self._stirred = False
            self._wake_receivers()

    def _wake_receivers(self) -> None:
        """Each looks for itself: a message is only taken by a task that runs,
        so that none is lost with one that is cancelled."""
        while self._receivers:
            future = self._receivers.popleft()
            if not future.done():
                future.set_result(None)

    def destroy(self) -> None:
        _unbind(self._bound)
        super().destroy()
        if self.loop is not None and not self.loop.is_closed():
            for future in [*self._ops.values(), *self._receivers]:
                if not future.done():
                    future.set_result(None)
        self._ops.clear()
        self._receivers.clear()

    async def breathe(self, loop: asyncio.AbstractEventLoop) -> None:
        """Before a call that may end without waiting: lets other tasks run,
        now and then, and sees to it that the worker is armed again."""
        if not self._kicked:
            self.kick()
        elif loop.time() - self._turned > _TURN_S:
            await asyncio.sleep(0)
            self._turned = loop.time()

    async def finish(self, op: Any, endpoint: int) -> None:
        """Waits until an operation has ended. Cancelled, that is given up."""
        loop = self.bind()
        self._stirred = True
        while not hot.ended(op):
            future: "asyncio.Future[None]" = loop.create_future()
            self._ops[op] = future
            self.turn()
            try:
                await future
            except asyncio.CancelledError:
                hot.cancel(self.number, op)
                self.kick()
                raise
            finally:
                self._ops.pop(op, None)
        hot.outcome(op, self.peer(endpoint))

    async def take(self, endpoint: int) -> Any:
        """Waits for a message: its parts."""
        loop = self.bind()
        await self.breathe(loop)
        spin_us = self.spin_us if self._misses < _MISSES else 0
        parts = self._look(endpoint, spin_us)
        if parts is not None:
            self._misses = 0
            return parts
        self._misses += 1
        while True:
            since = loop.time()
            await self._sleep(loop)
            parts = self._look(endpoint, 0)
            if parts is not None:
                if loop.time() - since < _SOON_S:
                    self._misses = 0
                return parts

    def _look(self, endpoint: int, spin_us: int) -> Any:
        try:
            parts = hot.recv(self.number, endpoint, 0, spin_us)
        except BaseException:
            self._pass_on()
            raise
        if parts is not None:
            self._pass_on()
        else:
            self.bury()
        return parts

    def _pass_on(self) -> None:
        """There may be more, for others that wait."""
        if self._receivers or self.pending:
            self._stirred = True
            self.kick()

    async def _sleep(self, loop: asyncio.AbstractEventLoop) -> None:
        future: "asyncio.Future[None]" = loop.create_future()
        self._receivers.append(future)
        self.turn()
        try:
            await future
        finally:
            if not future.done() or future.cancelled():
                try:
                    self._receivers.remove(future)
                except ValueError:
                    pass


class Message(BaseMessage):
    __doc__ = BaseMessage.__doc__
    __slots__ = ()

    @property
    def peer(self) -> "Endpoint":
        """Who sent it, to be answered."""
        peer: Endpoint = self._peer
        return peer


class Endpoint(BaseEndpoint[LoopHub]):
    """A connection to one peer, for the tasks of one event loop at a time."""

    async def send(self, data: Any, *, meta: Optional[Meta] = None,
                   acked: bool = False, verify: bool = False,
                   **more: Any) -> None:
        """Sends a dict of arrays, and returns when they may be changed again:
        where the peer does not keep up, that is when it does.

        `data`: names to arrays (numpy; anything with DLPack,
        __array_interface__ or the buffer protocol), or a tree of dicts, lists
        and tuples of arrays and of bool, int, float, str, bytes and None.
        `meta` and further keywords: metadata, frame=7 among them. `acked`:
        return when the peer's application has it. `verify`: the same, with a
        checksum of each array.

        Where its task is cancelled the message is given up: it arrives whole
        or not at all. The arrays are kept until nothing can read them any
        more, and must not be changed right away.
        """
        self._check()
        hub = self._hub
        await hub.breathe(hub.bind())
        op = hub.post(self._number, data,
                      merge_meta(meta, more) if meta or more else None,
                      flags_of(acked, verify), hub.spin_us)
        if op is not None:
            await hub.finish(op, self._number)

    async def recv(self) -> Message:
        """The next message, in the order sent. Raises Closed when the peer has
        closed and all was taken, PeerLost. A task that is cancelled meanwhile
        takes none."""
        self._check()
        return Message(await self._hub.take(self._number), self, self._convert)

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Messages until the peer closes."""
        while True:
            try:
                message = await self.recv()
            except Closed:
                return
            yield message

    async def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Closes in order: returns when the peer has all that was sent. Again
        does nothing. Raises PeerLost where that cannot be known, TimedOut
        after `timeout` seconds."""
        if self._gone or self._closing:
            return
        self._closing = True
        try:
            await asyncio.wait_for(
                self._hub.finish(self._begin_close(), self._number), timeout)
        except Closed:
            pass
        except asyncio.TimeoutError:
            raise error_of(Status.TIMED_OUT,
                           f"{self.peer}: closing took more than {timeout} s",
                           self.peer) from None
        finally:
            self.abort()

    async def __aenter__(self) -> "Endpoint":
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]],
                        error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        if kind is None:
            await self.close()
        else:
            self.abort()


class Listener(BaseListener[LoopHub]):
    """A door that peers come in by; gives their messages."""

    def _make(self, number: int) -> Endpoint:
        return Endpoint(self._hub, number, self._like, dialled=False)

    async def recv(self) -> Message:
        """The next message of any peer."""
        parts = await self._hub.take(0)
        return Message(parts, self._sender(parts[3]), self._convert)

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Messages of all peers until it is closed."""
        while True:
            try:
                message = await self.recv()
            except Closed:
                return
            yield message

    @property
    def peers(self) -> List[Endpoint]:
        """Those that are connected now."""
        self._hub.news(self._make)
        return list(self._hub.endpoints.values())

    async def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Lets nobody in any more and closes what came in, in order."""
        if self._hub.closed:
            return
        try:
            self._hub.stop_listening(self._listener)
            await asyncio.gather(*(peer.close(timeout) for peer in self.peers),
                                 return_exceptions=True)
        finally:
            self.abort()

    def abort(self) -> None:
        """Ends it and its connections at once."""
        self._hub.destroy()

    async def __aenter__(self) -> "Listener":
        self._hub.bind()
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]],
                        error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        if kind is None:
            await self.close()
        else:
            self.abort()
