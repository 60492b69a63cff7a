# SPDX-License-Identifier: BSD-3-Clause
"""Dicts of arrays from process to process, over UCX.

    async with tensormsg.connect("host:port") as ep:
        await ep.send({"x": x, "y": y}, frame=7)

    async for msg in tensormsg.listen(":13337"):
        print(msg["x"], msg.meta["frame"])

    reply = await ep.call("infer", {"image": image}, timeout=1)

    async with ep.stream("track") as stream:
        await stream.send({"image": image})
        print((await stream.recv())["boxes"])

    async with tensormsg.publish(":13338", keep=1) as camera:
        await camera.send({"image": image}, frame=7)

The same without asyncio: `with` and `for`.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, AsyncIterator, Dict, Generator, Iterator, Optional, \
    Tuple, Type

from . import _ucx, sync
from ._aio import Endpoint, Listener, Message, Publisher, Server
from ._aio_stream import ServerStream, Stream
from ._hub import Hub, url_of
from ._lib import lib, text
from ._link import BACKOFF, Admission, Dialling, Reconnect, admission, \
    dialling
from ._loop import LoopHub
from ._message import DLPack, Like, RawTensor
from ._moving import moving
from ._own_loop import explain
from ._publish import bounds, make_publisher
from ._serve import Request
from .allocators import Allocators, set_allocator
from .context import Context, default_context
from .errors import AlreadyExists, ApplicationFailed, Busy, CallError, \
    Canceled, Closed, Corrupt, Dropped, Error, Incompatible, Insecure, \
    Internal, InvalidParam, IOFailed, LimitExceeded, Malformed, NoMemory, \
    NotFound, PeerLost, Refused, ResourceExhausted, Status, TimedOut, \
    Unavailable, Unreachable, Unsupported, WouldBlock, error_of
from .keys import Key, Keyring, generate_key, save_key

__all__ = [
    "AlreadyExists", "ApplicationFailed", "Busy", "CallError", "Canceled",
    "Closed", "Connecting", "Context", "Corrupt", "DLPack", "Dropped",
    "Endpoint", "Error", "IOFailed", "Incompatible", "Insecure", "Internal",
    "InvalidParam", "Keyring", "LimitExceeded", "Listener", "Listening",
    "Malformed", "Message", "NoMemory", "NotFound", "PeerLost", "Publisher",
    "Publishing", "RawTensor", "Refused", "Request",
    "ResourceExhausted", "Server", "ServerStream", "Status", "Stream",
    "TimedOut", "Unavailable", "Unreachable", "Unsupported", "WouldBlock",
    "connect", "generate_key", "info", "listen", "publish", "save_key",
    "set_allocator", "sync",
]

__version__ = text(lib.tmsg_version())


class Connecting:
    """What connect() gives: enter it by `async with` or await it for an
    Endpoint, by `with` for a sync.Endpoint."""

    def __init__(self, place: str, how: Dialling, options: Dict[str, Any]
                 ) -> None:
        self._place = place
        self._how = how
        self._options = options
        self._endpoint: Any = None

    def _enter(self) -> None:
        if self._endpoint is not None:
            raise RuntimeError("this connect() is entered already: for another "
                               "connection call it again")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"what connect() gives has no '{name}' yet: enter it by `async "
            "with` or `with`, or await it; sync.connect() connects at once")

    async def _open(self) -> Endpoint:
        options = self._options
        hub = LoopHub(options["context"], options["queue_depth"],
                      options["spin_us"], options["background"],
                      options["allocators"])
        try:
            number = hub.connect(url_of(self._place), self._how)
            await hub.finish(hub.operation(lib.tmsg_endpoint_ready, number),
                             number)
        except BaseException as error:
            hub.destroy()
            explain(error, url_of(self._place))
            raise
        return Endpoint(hub, number, options["like"], dialled=True)

    def __await__(self) -> Generator[Any, None, Endpoint]:
        return self._open().__await__()

    async def __aenter__(self) -> Endpoint:
        self._enter()
        self._endpoint = False  # until it is here
        try:
            endpoint = self._endpoint = await self._open()
        finally:
            self._endpoint = self._endpoint or None
        return endpoint

    async def __aexit__(self, kind: Optional[Type[BaseException]],
                        error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        endpoint, self._endpoint = self._endpoint, None
        await endpoint.__aexit__(kind, error, trace)

    def __enter__(self) -> sync.Endpoint:
        self._enter()
        endpoint = self._endpoint = sync._connect(
            self._place, self._how, **self._options)
        return endpoint

    def __exit__(self, kind: Optional[Type[BaseException]],
                 error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        endpoint, self._endpoint = self._endpoint, None
        endpoint.__exit__(kind, error, trace)


class Listening:
    """What listen() gives: the port is open. Go through its messages by
    `async for` or `for`, or enter it by `async with` for a Listener, by `with`
    for a sync.Listener. Where nobody holds it any more it is closed at once.
    """

    def __init__(self, place: str, how: Admission, like: Like, hub: LoopHub
                 ) -> None:
        self._hub = hub
        self._listener = Listener(hub, url_of(place), like, how)
        self._sync: Optional[sync.Listener] = None

    @property
    def url(self) -> str:
        """Where it listens, with the port that was picked."""
        return self._listener.url

    def _check(self) -> None:
        if self._hub.closed:
            raise error_of(Status.CLOSED, f"the listener at {self.url} was "
                           "closed: listen() makes another")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"what listen() gives has no '{name}' yet: enter it by `async with` "
            "or `with`, or go through its messages; sync.listen() gives a "
            "listener at once")

    def _blocking(self) -> sync.Listener:
        self._check()
        if self._sync is None:
            made = self._sync = sync.Listener.__new__(sync.Listener)
            made.__dict__.update(self._listener.__dict__)
            made._make_peers()
        return self._sync

    def __aiter__(self) -> AsyncIterator[Message]:
        self._check()
        return self._listener.__aiter__()

    def __iter__(self) -> Iterator[sync.Message]:
        return iter(self._blocking())

    async def __aenter__(self) -> Listener:
        self._check()
        return await self._listener.__aenter__()

    async def __aexit__(self, kind: Optional[Type[BaseException]],
                        error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        await self._listener.__aexit__(kind, error, trace)

    def __enter__(self) -> sync.Listener:
        return self._blocking()

    def __exit__(self, kind: Optional[Type[BaseException]],
                 error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        if self._sync is not None:
            self._sync.__exit__(kind, error, trace)


class Publishing:
    """What publish() gives: the port is open. Enter it by `async with` for a
    Publisher, by `with` for a sync.Publisher. Where nobody holds it any more it
    is closed at once."""

    def __init__(self, listening: Listening, publisher: Any) -> None:
        self._listening = listening
        self._pointer = publisher
        self._publisher: Any = None

    @property
    def url(self) -> str:
        """Where to connect to, with the port that was picked."""
        return self._listening.url

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"what publish() gives has no '{name}' yet: enter it by `async "
            "with` or `with`; sync.publish() gives a publisher at once")

    def _enter(self) -> None:
        self._listening._check()
        if self._publisher is not None:
            raise RuntimeError("this publish() is entered already")

    async def __aenter__(self) -> Publisher:
        self._enter()
        publisher = self._publisher = Publisher(self._listening._listener,
                                                self._pointer)
        return await publisher.__aenter__()

    async def __aexit__(self, kind: Optional[Type[BaseException]],
                        error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        await self._publisher.__aexit__(kind, error, trace)

    def __enter__(self) -> sync.Publisher:
        self._enter()
        publisher = self._publisher = sync.Publisher(
            self._listening._blocking(), self._pointer)
        return publisher

    def __exit__(self, kind: Optional[Type[BaseException]],
                 error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self._publisher.__exit__(kind, error, trace)


def connect(place: str, *, timeout: Optional[float] = 10.0, like: Like = None,
            context: Optional[Context] = None,
            queue_depth: Optional[int] = None,
            spin_us: Optional[int] = None,
            background: bool = False,
            allocators: Optional[Allocators] = None,
            device: Any = None,
            key: Optional[Key] = None,
            reconnect: Reconnect = None,
            backoff: Tuple[float, float] = BACKOFF,
            newest: bool = False) -> Connecting:
    """Connects to a listener: `async with connect(...) as ep`, `ep = await
    connect(...)`, or `with connect(...) as ep`.

    `place`: "host:port" or a URL: tcp://host:port, unix:///path, ucx://...
    `timeout`: seconds for resolving, connecting and the hello together.
    `like`: what received arrays are: None or "numpy", "torch", "jax" (or any
    module with from_dlpack(), by name or itself), or a function of an object
    with __dlpack__.
    `context`: settings other than the process's. `queue_depth`: messages that
    may wait to be received, 256 unless said; beyond it the peer waits, and it
    may from half of it on: it hears of room when half is free.
    `spin_us`: microseconds that a wait polls before it sleeps, 50 unless said;
    four times as many where waits end soon after. 0: it sleeps at once.
    `background`: a thread of the library's own moves the messages. Without it
    they move while a call of this connection's runs or, with asyncio, whenever
    the event loop does; meanwhile the peer may wait for us. `allocators`: by
    kind, what gives the memory for what is received, as set_allocator() says,
    in place of those set there; None: the library. `device`: with
    like="torch", where to move arrays, "cuda:0" or torch.device("cuda", 0), the
    first time that one is looked at; None: they stay where they came to.

    `key`: what the listener has to prove, and this side proves: a key file's
    name, the 32 bytes of a key, a dict of principals to these, or a Keyring,
    which may change meanwhile; None: that of the context, or none.
    `reconnect`: the endpoint comes back by itself when its connection breaks,
    if the listener says so, too: True for 60 s, or so many seconds, math.inf
    for ever. `backoff`: seconds between its attempts, the first time and at
    most; each time twice as long. `newest`: of a publisher, always the newest
    message alone, in place of each in its turn.

    Leaving the block closes in order, so that the peer has what was sent; after
    an exception in it, at once. Raises NotFound, Unreachable, TimedOut,
    Refused (also for want of a key), Insecure (the listener has no such key),
    Incompatible, PeerLost, InvalidParam.
    """
    like, allocators = moving(like, device, allocators)
    how = dialling(timeout, key, reconnect, backoff, newest)
    return Connecting(place, how, {
        "like": like, "context": context, "queue_depth": queue_depth,
        "spin_us": spin_us, "background": background,
        "allocators": allocators})


def listen(place: str, *, allow_unauthenticated: bool = False,
           like: Like = None, context: Optional[Context] = None,
           queue_depth: Optional[int] = None,
           spin_us: Optional[int] = None,
           background: bool = False,
           allocators: Optional[Allocators] = None,
           device: Any = None,
           key: Optional[Key] = None,
           reconnect: Reconnect = None) -> Listening:
    """Listens, at once: `async for msg in listen(...)`, or `for`, or by `async
    with` or `with`, whose listener can be closed in order.

    `place`: ":port" for the loopback, port 0 for a free one; "host:port"; or a
    URL: tcp://, unix:///path, ucx://. An address that others can reach needs a
    `key`, which peers have to prove, or allow_unauthenticated=True
    (docs/security.md). `reconnect`: seconds for which a peer whose connection
    broke may come back, as of connect(). The rest as for connect();
    `queue_depth` is for each peer. Raises AlreadyExists, Insecure, NotFound,
    InvalidParam.
    """
    like, allocators = moving(like, device, allocators)
    how = admission(allow_unauthenticated, key, reconnect)
    hub = LoopHub(context, queue_depth, spin_us, background, allocators)
    try:
        listening = Listening(place, how, like, hub)
        if asyncio._get_running_loop() is not None:
            hub.bind()  # peers are let in from now on
        return listening
    except BaseException:
        hub.destroy()
        raise


def publish(place: str, *, keep: int = 0, queue: int = 16,
            queue_bytes: Optional[int] = None, window: int = 32,
            slow: str = "drop oldest", newest: bool = False,
            allow_unauthenticated: bool = False,
            context: Optional[Context] = None, spin_us: Optional[int] = None,
            background: Optional[bool] = None, key: Optional[Key] = None,
            reconnect: Reconnect = None) -> Publishing:
    """Listens, at once, to publish: `async with publish(...) as publisher`, or
    `with`. What it sends goes to all who connect, who are subscribers by that;
    they receive by recv(), or go through their endpoint.

    `place`: as for listen(), as are the arguments that are not named here.
    `keep`: newest messages that a newcomer is sent first. `queue` and
    `queue_bytes`: how many messages, and bytes, may wait for a subscriber;
    `window`: how many more may be on their way to it that its application has
    not taken. `slow`: what happens beyond that, to that subscriber alone: "drop
    oldest" or "drop newest" of what waits, or "disconnect", which it sees as
    LimitExceeded. `newest`: always the newest alone, for all of them; one asks
    for it by connect(..., newest=True). `background`: the library's own thread
    moves the messages; unless said, that is without asyncio.
    """
    how = admission(allow_unauthenticated, key, reconnect)
    each = bounds(keep, queue, queue_bytes, window, slow, newest)
    looping = asyncio._get_running_loop() is not None
    hub = LoopHub(context, None, spin_us,
                  not looping if background is None else background)
    try:
        publisher = make_publisher(hub, each)
        listening = Listening(place, how, None, hub)
        if looping:
            hub.bind()
        return Publishing(listening, publisher)
    except BaseException:
        hub.destroy()
        raise


def info() -> Dict[str, Any]:
    """Versions; which UCX this is, from where and why ("ucx"); and what the
    library finds on the machine ("machine")."""
    return {"version": __version__, "ucx": _ucx.describe(),
            "machine": default_context().describe()}
