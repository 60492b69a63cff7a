# SPDX-License-Identifier: BSD-3-Clause
"""TensorDicts from process to process: in the place of tensordict's own pipe
over UCXX.

    from tensormsg.tensordict import TensorDictPipe  # was: tensordict._ucxx

    pipe = await TensorDictPipe.connect("node-b", 13337)
    await pipe.asend(TensorDict(obs=torch.randn(64, 84), batch_size=[64]))

What is sent arrives as it was: batch sizes, names of dimensions, TensorDicts
in it, NonTensorData, NonTensorStack, UnbatchedTensor and lazy stacks. Nothing is
pickled.
"""

from __future__ import annotations

import asyncio
import importlib
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any, AsyncIterator, Awaitable, Callable, \
    List, Optional, Set, Type, Union, cast

from . import _tensordict, connect, listen, sync
from ._aio import Endpoint, Listener
from .errors import Closed

__all__ = ["Pipe", "Server", "TensorDictPipe", "TensorDictServer",
           "recv_tensordict", "send_tensordict"]

_LOOK_S = 0.1  # whether a listener has been closed meanwhile

# `td.send(pipe)` and `td.recv(pipe)` ask whether it is one of theirs.
if TYPE_CHECKING:
    _Theirs = object
else:
    try:
        _Theirs = importlib.import_module("tensordict._ucxx").TensorDictPipe
    except (ImportError, AttributeError):
        _Theirs = object


def _place(host: str, port: Union[int, str]) -> str:
    return f"{host}:{port}" if isinstance(port, int) else port


def _not_in_a_loop(name: str) -> None:
    if asyncio._get_running_loop() is not None:
        raise RuntimeError(f"Pipe.{name}() would block the event loop that runs "
                           f"here: await pipe.a{name}() instead")


class _Door:
    """A listener, and the endpoints that came in by it, in that order."""

    def __init__(self, place: str, options: Any) -> None:
        self._listening = listen(place, **options)
        self.listener: Listener = self._listening._listener
        self._given: "weakref.WeakSet[Endpoint]" = weakref.WeakSet()
        self._waiting: List[Endpoint] = []

    async def accept(self) -> Optional[Endpoint]:
        """The next peer; None: none came in a while."""
        hub = self.listener._hub
        loop = hub.bind()
        self._look()
        if not self._waiting:
            # No wait_for(): of old Pythons that may lose a cancellation.
            timer = loop.call_later(_LOOK_S, hub._wake_receivers)
            try:
                await hub._sleep(loop, 0)
            finally:
                timer.cancel()
            self._look()
        return self._waiting.pop(0) if self._waiting else None

    def _look(self) -> None:
        for peer in self.listener.peers:
            if peer not in self._given:
                self._given.add(peer)
                self._waiting.append(peer)

    def stop(self) -> None:
        """Lets nobody in any more; those that were given stay."""
        hub = self.listener._hub
        if not hub.closed:
            hub.stop_listening(self.listener._listener)
            self._look()
        while self._waiting:
            self._waiting.pop().abort()


class Pipe(_Theirs):
    """A connection that TensorDicts go over, both ways; in the place of
    tensordict's TensorDictPipe, with its methods. Make it by connect() and
    listen(), or give it a tensormsg.Endpoint.

    `consolidated` is taken for those who pass it, and changes nothing: each
    message has its form with it, and each tensor is received for itself. Each
    receive gives a TensorDict of its own, which views the memory of its message
    and keeps it, unless it is told to receive into one: clone() what you keep of
    a large message, as that memory counts against the limit `held_bytes`.

    It is a context manager of both kinds. After an exception in the block the
    connection ends at once; else it closes in order, when the peer has all.
    """

    def __init__(self, endpoint: Endpoint, *, consolidated: bool = True,
                 listener: Optional[Any] = None) -> None:
        if not isinstance(endpoint, Endpoint):
            raise TypeError("a Pipe is made of a tensormsg.Endpoint, not of "
                            f"{type(endpoint)}")
        self._endpoint = endpoint
        self._consolidated = consolidated
        self._listener = listener
        self._closed = False
        self._kept: Optional[Any] = None  # what did not fit

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} {self.peer}>"

    @classmethod
    async def connect(cls, host: str, port: Union[int, str, None] = None, *,
                      consolidated: bool = True, **options: Any) -> "Pipe":
        """Connects to a pipe that listens there. `host` may be a URL
        ("unix:///path") without a port. `options`: as for
        tensormsg.connect(), whose errors it raises."""
        place = host if port is None else f"{host}:{port}"
        return cls(await connect(place, **options), consolidated=consolidated)

    @classmethod
    async def listen(cls, port: Union[int, str], *, consolidated: bool = True,
                     host: str = "", **options: Any) -> "Pipe":
        """Waits for the first that connects, and lets nobody else in. Without
        a `host` that is this machine only: for others say "0.0.0.0" or an
        address, and allow_unauthenticated=True (docs/understand/security.md).
        `port` may
        be a URL. `options`: as for tensormsg.listen(), whose errors it
        raises."""
        door = _Door(_place(host, port), options)
        try:
            while True:
                endpoint = await door.accept()
                if endpoint is not None:
                    door.stop()
                    return cls(endpoint, consolidated=consolidated,
                               listener=door.listener)
        except BaseException:
            door.listener.abort()
            raise

    @property
    def peer(self) -> str:
        """The peer in words."""
        return self._endpoint.peer

    @property
    def closed(self) -> bool:
        """Whether it was closed here."""
        return self._closed

    def _open(self, what: str) -> None:
        if self._closed:
            raise RuntimeError(f"Cannot {what} on a closed pipe.")

    async def asend(self, td: Any) -> None:
        """Sends a TensorDict, and returns when its tensors may be changed
        again. They are on the CPU, as for send() of an endpoint; gradients are
        not sent. Raises RuntimeError (the pipe is closed), TypeError or
        ValueError with the name of what cannot be sent, and what
        Endpoint.send() does."""
        self._open("send")
        await send_tensordict(self._endpoint, td)

    async def arecv(self, td: Optional[Any] = None, *,
                    device: Optional[Any] = None,
                    into: Optional[Any] = None) -> Any:
        """The next TensorDict, one of its own.

        `td`: the values are written into it, and it is what is returned, where
        it has the same entries, batch sizes, shapes and dtypes; where not it
        stays as it is and a new one is returned. `into`: the same, but where
        not this raises ValueError with the first difference, and what came is
        the next to be received. `device`: where a new one is moved to; it
        arrives on the CPU. Raises RuntimeError (the pipe is closed), Malformed,
        and what Endpoint.recv() does: Closed when the peer has closed and all
        was taken, PeerLost."""
        self._open("recv")
        came = _tensordict.unpack(await self._endpoint.recv()) \
            if self._kept is None else self._kept
        return self._place(came, td, into, device)

    def _place(self, came: Any, td: Optional[Any], into: Optional[Any],
               device: Optional[Any]) -> Any:
        self._kept = came
        placed = _tensordict.placed(came, td if into is None else into, device,
                                    into is not None)
        self._kept = None
        return placed

    def send(self, td: Any, *, timeout: Optional[float] = None) -> None:
        """asend() where no event loop runs: blocks, for `timeout` seconds."""
        _not_in_a_loop("send")
        self._open("send")
        tensors, meta = _tensordict.pack(td)
        sync.Endpoint.send(self._blocking(), tensors, meta=meta,
                           timeout=timeout)

    def recv(self, td: Optional[Any] = None, *, device: Optional[Any] = None,
             into: Optional[Any] = None, timeout: Optional[float] = None
             ) -> Any:
        """arecv() where no event loop runs: blocks, for `timeout` seconds."""
        _not_in_a_loop("recv")
        self._open("recv")
        came = _tensordict.unpack(sync.Endpoint.recv(
            self._blocking(), timeout)) if self._kept is None else self._kept
        return self._place(came, td, into, device)

    def _blocking(self) -> sync.Endpoint:
        return cast(sync.Endpoint, self._endpoint)

    def _end(self) -> None:
        self._closed = True
        if self._listener is not None:
            self._listener.abort()

    async def aclose(self) -> None:
        """Closes in order: returns when the peer has all that was sent. Again
        does nothing. Raises PeerLost where that cannot be known."""
        if not self._closed:
            self._closed = True
            try:
                await self._endpoint.close()
            finally:
                self._end()

    def close(self) -> None:
        """aclose() where no event loop runs."""
        if not self._closed:
            _not_in_a_loop("close")
            self._closed = True
            try:
                sync.Endpoint.close(self._blocking())
            finally:
                self._end()

    def abort(self) -> None:
        """Ends it at once: the peer sees PeerLost."""
        self._endpoint.abort()
        self._end()

    def __aiter__(self) -> "Pipe":
        return self

    async def __anext__(self) -> Any:
        """Until the peer, or this side, closes. What fails is raised."""
        if self._closed:
            raise StopAsyncIteration
        try:
            return await self.arecv()
        except Closed:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> "Pipe":
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]],
                        error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        if kind is None:
            await self.aclose()
        else:
            self.abort()

    def __enter__(self) -> "Pipe":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]],
                 error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def __del__(self) -> None:
        """Does nothing, unlike tensordict's: its endpoint is not its own alone.
        What connect() and listen() made ends at once when nobody holds it or
        its endpoint; what a Server gave goes on until the peer or the Server's
        end, so close it."""


class Server:
    """Gives a Pipe for each client; in the place of TensorDictServer. It
    listens from the moment it is made. `port`, `host` and `options`: as for
    Pipe.listen()."""

    def __init__(self, port: Union[int, str], *, consolidated: bool = True,
                 host: str = "", **options: Any) -> None:
        self._consolidated = consolidated
        self._door = _Door(_place(host, port), options)
        self._closed = False
        self._tasks: Set["asyncio.Task[None]"] = set()

    @property
    def url(self) -> str:
        """Where it listens, with the port that was picked for 0."""
        return self._door.listener.url

    async def __aiter__(self) -> AsyncIterator[Pipe]:
        """The pipes, as their clients connect, until it is closed."""
        while not self._closed:
            endpoint = await self._door.accept()
            if endpoint is not None:
                yield Pipe(endpoint, consolidated=self._consolidated)

    async def serve(self, on_connect: Callable[[Pipe], Awaitable[None]]
                    ) -> None:
        """Runs `on_connect(pipe)` as a task for each client, until it is
        closed."""
        async for pipe in self:
            task: "asyncio.Task[None]" = asyncio.ensure_future(
                _awaited(on_connect, pipe))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Lets nobody in any more; the pipes stay open. Again does nothing."""
        if not self._closed:
            self._closed = True
            self._door.stop()

    async def aclose(self) -> None:
        """The same."""
        self.close()

    async def __aenter__(self) -> "Server":
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]],
                        error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        self.close()


async def _awaited(on_connect: Callable[[Pipe], Awaitable[None]],
                   pipe: Pipe) -> None:
    await on_connect(pipe)


async def send_tensordict(endpoint: Endpoint, td: Any, *,
                          consolidated: bool = True) -> None:
    """Sends a TensorDict over an endpoint, as Pipe.asend() does."""
    tensors, meta = _tensordict.pack(td)
    await endpoint.send(tensors, meta=meta)


async def recv_tensordict(endpoint: Endpoint, td: Optional[Any] = None, *,
                          device: Optional[Any] = None,
                          consolidated: bool = True) -> Any:
    """The next message of an endpoint as a TensorDict, as Pipe.arecv()."""
    return _tensordict.placed(_tensordict.unpack(await endpoint.recv()), td,
                              device, False)


TensorDictPipe = Pipe
TensorDictServer = Server
