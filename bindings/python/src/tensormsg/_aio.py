# SPDX-License-Identifier: BSD-3-Clause
"""Endpoints and listeners for asyncio."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import time
import weakref
from types import TracebackType
from typing import Any, AsyncIterator, Callable, Dict, List, Mapping, \
    Optional, Type

from ._aio_stream import ServerStream, Stream
from ._endpoint import BaseEndpoint, BaseListener, flags_of, \
    tell_unclosed
from ._hub import CLOSE_TIMEOUT, WHY_NOT_CLOSED, Deadline, Meta, merge_meta
from ._lib import hot, lib
from ._loop import LoopHub
from ._message import BaseMessage, Like
from ._publish import LOOK_S, BasePublisher
from ._serve import BaseServer, Request, health_of, methods_of
from ._stream import QUEUE
from ._time import seconds
from .errors import Closed, Error, Status, TimedOut, error_of

_ENDS_THE_LOOP = SystemExit, KeyboardInterrupt  # out of a task, asyncio says


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
                   keep_strides: bool = False,
                   timeout: Optional[float] = None, **more: Any) -> None:
        """Sends a dict of arrays, and returns when they may be changed again:
        where the peer does not keep up, that is when it does.

        `data`: names to arrays (numpy; anything with DLPack,
        __array_interface__ or the buffer protocol), or a tree of dicts, lists
        and tuples of arrays and of bool, int, float, str, bytes and None.
        `meta` and further keywords: metadata, frame=7 among them. `acked`:
        return when the peer's application has it. `verify`: the same, with a
        checksum of each array. `keep_strides`: what lies with gaps, or
        backwards, arrives with its strides, and what is in the gaps, which is
        sent; else it is packed. After `timeout` seconds it is given up with
        TimedOut.

        Where its task is cancelled the message is given up: it arrives whole
        or not at all. The arrays are kept until nothing can read them any
        more, and must not be changed right away.
        """
        self._check()
        if timeout is not None:
            seconds(timeout)
        hub = self._hub
        await hub.breathe(hub.bind())
        self._check()
        op = hub.post(self._number, data,
                      merge_meta(meta, more) if meta or more else None,
                      flags_of(acked, verify, keep_strides), hub.spin_us)
        if op is not None and \
                not await hub.finish(op, self._number, timeout):
            error = hub.late(op, self._number, timeout, "the send")
            hub.kick()
            raise error

    async def recv(self) -> Message:
        """The next message, in the order sent. Raises Closed when the peer has
        closed and all was taken, PeerLost. A task that is cancelled meanwhile
        takes none."""
        self._check()
        parts = await self._hub.take(self._number)
        self._left = None
        return Message(parts, self, self._convert)

    async def recv_into(self, buffers: Mapping[str, Any]) -> Message:
        """The next message, with the arrays that are in `buffers`, too, received
        into these: without a copy where UCX can, else by one.

        `buffers`: names to arrays or buffers that can be written to, without
        gaps, none of which shares a byte with another; those of the message
        have the same dtype and shape, else this raises InvalidParam, which says
        what came, and the message stays the next one. What only one of
        the two has is left as it is, and received as by recv(). In the message
        returned those names are the arrays given (with `like`, the tensors).

        A task that is cancelled meanwhile takes none. Where one was on its way
        into the buffers just then they stay lent, and it is the next to be
        received: by recv(), in these buffers, or by recv_into()."""
        posted = self._post(buffers)
        try:
            parts = await self._hub.take_into(self._number, posted)
        except BaseException:
            self._leave(posted)
            raise
        return self._received_into(posted, parts, Message)

    async def call(self, method: str, data: Any = None, *,
                   meta: Optional[Meta] = None,
                   timeout: Optional[float] = None, idempotent: bool = False,
                   attempts: int = 1) -> Message:
        """Calls a method of the peer's server and returns its reply, a message.

        `data` and `meta`: as for send(); None is an empty map. `timeout`:
        seconds for all of it; the server is told what is left. `attempts`: how
        often it may be made where it fails for a while only (ResourceExhausted,
        Unavailable, NoMemory, Busy) and no handler saw it, or the call or the
        method is `idempotent`: to run it twice is as once.
        Where its task is cancelled so is the call.

        What fails raises its class of error, with `code`, `details` and
        `may_have_run`: TimedOut, NotFound (no such method), InvalidParam (not
        what the method takes), ApplicationFailed and what else the handler
        says, Internal (the handler broke), PeerLost, ..."""
        self._check()
        hub = self._hub
        await hub.breathe(hub.bind())
        since = time.monotonic()
        op = self._call(method, data, meta, timeout, idempotent, attempts,
                        hub.patience.next_us())
        if hot.ended(op):
            hub.patience.polled()
        else:
            hub.patience.missed()
            await hub.finish(op, self._number)
            hub.patience.slept(since)
        return self._reply(op, Message)

    def stream(self, method: str, data: Any = None, *,
               meta: Optional[Meta] = None, timeout: Optional[float] = None,
               queue: int = QUEUE) -> Stream:
        """Opens a stream to a method of the peer's server, at once: enter it by
        `async with`.

        `data` and `meta`: what the handler sees as `request`, as for call().
        `timeout`: seconds for the whole of it; the server is told what is left.
        `queue`: messages of this side that may wait for the other to read,
        before send() does. Where nobody holds it any more it is cancelled.
        Raises ResourceExhausted (512 are open), Unsupported (an older peer)."""
        self._hub.bind()
        stream = self._stream(Stream, Message, method, data, meta, timeout,
                              queue)
        self._hub.watch(stream._owner)
        self._hub.kick()
        return stream

    async def methods(self, timeout: Optional[float] = 10.0
                      ) -> Dict[str, Dict[str, Any]]:
        """The methods that the peer serves, by name: "signature",
        "description", "concurrency", "queue", "health"."""
        return methods_of(await self.call("tensormsg.methods",
                                          timeout=timeout))

    async def health(self, method: Optional[str] = None,
                     timeout: Optional[float] = 10.0) -> str:
        """How the peer's server, or one method, is: "SERVING", "NOT_SERVING",
        "DRAINING", "NOT_FOUND" or "UNKNOWN"."""
        return health_of(await self.call(
            "tensormsg.health", meta=None if method is None
            else {"method": method}, timeout=timeout))

    async def ready(self, timeout: Optional[float] = None) -> None:
        """Waits until the connection stands, after it broke and where it comes
        back (`reconnect`). Raises PeerLost where it does not, TimedOut."""
        seconds(timeout)
        op = self._begin_ready()
        if not await self._hub.finish(op, self._number, timeout):
            raise self._hub.late(op, self._number, timeout, "to come back")

    def serve(self, *, concurrency: int = 1024, queue: int = 1024) -> "Server":
        """Serves what the peer calls, as Listener.serve()."""
        self._hub.bind()
        return self._serving(Server, concurrency=concurrency, queue=queue)

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Messages until the peer closes."""
        while True:
            try:
                message = await self.recv()
            except Closed:
                return
            yield message

    async def close(self, timeout: Optional[float] = CLOSE_TIMEOUT) -> None:
        """Closes in order: returns when the peer has all that was sent. Again
        does nothing. Raises PeerLost where that cannot be known, TimedOut
        after `timeout` seconds."""
        seconds(timeout)
        if self._gone or self._closing:
            return
        self._closing = True
        try:
            if self._server is not None:
                await self._server.close(timeout)
            if not await self._hub.finish(self._begin_close(), self._number,
                                          timeout):
                raise error_of(
                    Status.TIMED_OUT,
                    f"{self.peer}: closing took more than {timeout} s"
                    f"{WHY_NOT_CLOSED}", self.peer)
        except Closed:
            pass
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

    _kind = Endpoint

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

    def serve(self, *, concurrency: int = 1024, queue: int = 1024) -> "Server":
        """Serves what its peers call, from now on, as long as the event loop
        runs: a Server. `concurrency`: how many calls may run, `queue`: how
        many more may be here; others fail with ResourceExhausted. Keep it:
        where nobody holds the server or the listener it ends. Raises
        AlreadyExists (there is one)."""
        self._hub.bind()
        return self._serving(Server, concurrency=concurrency,
                             queue=queue)

    @property
    def peers(self) -> List[Endpoint]:
        """Those that are connected now."""
        self._hub.tidy()
        return list(self._hub.endpoints.values())

    async def close(self, timeout: Optional[float] = CLOSE_TIMEOUT) -> None:
        """Lets nobody in any more and closes what came in, in order."""
        seconds(timeout)
        if self._hub.closed:
            return
        try:
            if self._server is not None:
                await self._server.close(timeout)
            self._hub.stop_listening(self._listener)
            ends = await asyncio.gather(
                *(peer.close(timeout) for peer in self.peers),
                return_exceptions=True)
            for end in ends:
                if isinstance(end, TimedOut):
                    tell_unclosed(end.peer or "a peer", timeout)
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


class Publisher(BasePublisher[Listener]):
    """Sends each dict to all who have connected, and never waits for one of
    them. Leaving the block of `async with` closes in order: it returns when
    those who keep up have all that waits for them, at the latest after 10 s."""

    async def send(self, data: Any, *, meta: Optional[Meta] = None,
                   verify: bool = False, keep_strides: bool = False,
                   timeout: Optional[float] = None, copy: bool = True,
                   **more: Any) -> None:
        """Sends a dict of arrays to all subscribers, and waits for none of
        them: when it returns the arrays may be changed again.

        `data`, `meta` and further keywords, `verify`, `keep_strides`: as of
        Endpoint.send(). `timeout`: seconds after which it goes to nobody any
        more who has not begun to receive it, nor is kept for newcomers.
        `copy`: False where the arrays will not be changed any more: they are
        kept as they are until all have them, and no copy is made; so go arrays
        of a GPU alone."""
        hub = self._listener._hub
        await hub.breathe(hub.bind())
        self._send(data, meta, more, flags_of(False, verify, keep_strides),
                   timeout, copy)
        hub.kick()

    async def flush(self, timeout: Optional[float] = None) -> None:
        """Waits until every subscriber's application has taken what was sent,
        or it was dropped for it. Raises TimedOut after `timeout` seconds."""
        await self._until(self._is_idle, timeout,
                          "a subscriber did not take all")

    async def wait_for(self, count: int = 1, timeout: Optional[float] = None
                       ) -> None:
        """Waits until there are so many subscribers. Raises TimedOut after
        `timeout` seconds."""
        await self._until(lambda: self.subscribers >= count, timeout,
                          f"not {count} subscribers")

    async def _until(self, holds: Callable[[], bool], timeout: Optional[float],
                     what: str) -> None:
        deadline, nap_s = Deadline(timeout), 0.0005
        self._listener._hub.bind()
        while not holds():
            if deadline.passed():
                raise error_of(Status.TIMED_OUT, f"{what} in {timeout} s")
            nap_s = min(2 * nap_s, LOOK_S)
            await asyncio.sleep(min(nap_s, deadline.left()))

    async def close(self, timeout: Optional[float] = CLOSE_TIMEOUT) -> None:
        """Closes in order: nothing more is sent and nobody let in, what waits
        is sent, and the subscribers see Closed. Those who do not keep up are
        left after `timeout` seconds. Again does nothing."""
        seconds(timeout)
        op = self._begin_close()
        if op is None:
            return
        try:
            if await self._listener._hub.finish(op, 0, timeout):
                await self._listener.close(timeout)
        finally:
            self.abort()

    async def __aenter__(self) -> "Publisher":
        self._listener._hub.bind()
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]],
                        error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        if kind is None:
            await self.close()
        else:
            self.abort()


class Server(BaseServer[LoopHub]):
    """Answers calls, each in a task of its own: a handler may be a coroutine,
    which is cancelled where nobody waits for its answer any more, or a plain
    function, which holds up the event loop while it runs. Leaving the block of
    `async with` drains and closes it."""

    def __init__(self, hub: LoopHub, sender: Callable[[int, bool], Any],
                 like: Like, *, concurrency: int, queue: int) -> None:
        super().__init__(hub, sender, like, concurrency, queue)
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
            handler, request = self._request(work, ServerStream, Message)
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
                          stream: ServerStream) -> None:
        made: Any = None
        try:
            made = handler(stream)
            if inspect.isasyncgen(made):
                async for data in made:
                    await stream.send(data)
            elif inspect.isgenerator(made):
                for data in made:
                    await stream.send(data)
            else:
                last = await made if inspect.isawaitable(made) else made
                if last is not None:
                    await stream.send(last)
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

    async def drain(self, timeout: Optional[float] = CLOSE_TIMEOUT) -> None:
        """Takes no further calls (they fail with Unavailable) and waits until
        those that are here have been answered. Raises TimedOut after `timeout`
        seconds: what was left failed with Unavailable, and its handlers were
        cancelled."""
        seconds(timeout)
        loop = self._hub.bind()
        try:
            await loop.run_in_executor(None, self._drain, timeout)
        except asyncio.CancelledError:
            self._hurry()
            raise

    async def close(self, timeout: Optional[float] = CLOSE_TIMEOUT) -> None:
        """Drains it, and ends it. Again does nothing."""
        seconds(timeout)
        if self._closed:
            return
        try:
            await self.drain(timeout)
        except TimedOut:
            pass
        finally:
            self._unserve()
            self._ended.set()
        rest = [task for task in self._running
                if task is not asyncio.current_task()]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    async def run(self) -> None:
        """Waits until it is closed."""
        await self._ended.wait()

    async def __aenter__(self) -> "Server":
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]],
                        error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        await self.close(CLOSE_TIMEOUT if kind is None else 0)
