# SPDX-License-Identifier: BSD-3-Clause
"""What connect(), listen() and publish() give: `async with` enters the asyncio
face of it, `with` the blocking one."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Any, AsyncIterator, Coroutine, Generator, \
    Iterator, Optional, Type, TypeVar

from . import _aio, sync
from ._hub import url_of
from ._link import Admission
from ._loop import LoopHub
from ._message import Like
from ._stays import Stays
from .errors import Status, error_of

L = TypeVar("L", _aio.Listener, sync.Listener)


def _shown(thing: object, place: str, words: str) -> str:
    return f"<{type(thing).__module__}.{type(thing).__name__} {place}: {words}>"


class Connecting(Stays):
    """What connect() gives: enter it by `async with` or await it for an
    Endpoint, by `with` for a sync.Endpoint."""

    _instead = "send the URL, and connect() there"

    def __init__(self, *how: Any) -> None:
        """`how`: what dial() takes."""
        self._how = how
        self._endpoint: Any = None

    def __repr__(self) -> str:
        return _shown(self, self._how[0], "not connected before it is awaited "
                      "or entered")

    def _enter(self) -> None:
        if self._endpoint is not None:
            raise RuntimeError("this connect() is entered already: for another "
                               "connection call it again")

    if not TYPE_CHECKING:  # which tell of a missing attribute themselves
        def __getattr__(self, name: str) -> Any:
            raise AttributeError(
                f"the result of connect() has no '{name}' yet: enter it by "
                "`async with` or `with`, or await it; sync.connect() connects "
                "at once")

    def __await__(self) -> Generator[Any, None, _aio.Endpoint]:
        return _aio.dial(*self._how).__await__()

    async def __aenter__(self) -> _aio.Endpoint:
        self._enter()
        self._endpoint = False  # until it is here
        try:
            endpoint = self._endpoint = await _aio.dial(*self._how)
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
        endpoint = self._endpoint = sync.dial(*self._how)
        return endpoint

    def __exit__(self, kind: Optional[Type[BaseException]],
                 error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        endpoint, self._endpoint = self._endpoint, None
        endpoint.__exit__(kind, error, trace)


class Listening(Stays):
    """What listen() gives: the port is open. Go through its messages by
    `async for` or `for`, or enter it by `async with` or await it for a
    Listener, by `with` for a sync.Listener. With asyncio it can be received
    from at once, by recv(). Where nobody holds it any more it is closed at
    once."""

    _instead = "send the URL, and connect() or listen() there"

    def __init__(self, place: str, how: Admission, like: Like, hub: LoopHub
                 ) -> None:
        self._hub = hub
        self._listener = _aio.Listener(hub, url_of(place), like, how)
        self._sync: Optional[sync.Listener] = None
        self._face: Any = self._listener  # of which its peers are

    def __repr__(self) -> str:
        return _shown(self, self.url, "closed" if self._hub.closed
                      else "listening")

    @property
    def url(self) -> str:
        """Where it listens, with the port that was picked."""
        return self._listener.url

    def _check(self) -> None:
        if self._hub.closed:
            raise error_of(Status.CLOSED, f"the listener at {self.url} was "
                           "closed: listen() makes another")

    if not TYPE_CHECKING:
        def __getattr__(self, name: str) -> Any:
            raise self._lacks(name)

    def _lacks(self, name: str) -> AttributeError:
        return AttributeError(
            f"the result of listen() has no '{name}' yet: enter it by `async "
            "with` or `with`, await it, or go through its messages; "
            "sync.listen() gives a listener at once")

    def _blocking(self) -> sync.Listener:
        self._check()
        if self._sync is None:
            self._sync = sync.Listener.__new__(sync.Listener)
            self._sync.__dict__.update(self._listener.__dict__)
        return self._entered(self._sync)

    def _looping(self) -> _aio.Listener:
        self._check()
        return self._entered(self._listener)

    def _entered(self, listener: L) -> L:
        if self._face is not listener:
            listener._make_peers()
            self._face = listener
        return listener

    def recv(self, timeout: Optional[float] = None
             ) -> Coroutine[Any, Any, _aio.Message]:
        """With asyncio: the next message of any peer, as Listener.recv()."""
        if asyncio._get_running_loop() is None:
            raise self._lacks("recv")
        return self._looping().recv(timeout)

    async def _await(self) -> _aio.Listener:
        return await self._looping().__aenter__()

    def __await__(self) -> Generator[Any, None, _aio.Listener]:
        return self._await().__await__()

    def __aiter__(self) -> AsyncIterator[_aio.Message]:
        return self._looping().__aiter__()

    def __iter__(self) -> Iterator[sync.Message]:
        return iter(self._blocking())

    async def __aenter__(self) -> _aio.Listener:
        return await self._await()

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


class Publishing(Stays):
    """What publish() gives: the port is open. Enter it by `async with` or await
    it for a Publisher, by `with` for a sync.Publisher. Where nobody holds it any
    more it is closed at once."""

    _instead = "send the URL, and connect() or publish() there"

    def __init__(self, listening: Listening, publisher: Any) -> None:
        self._listening = listening
        self._pointer = publisher
        self._publisher: Any = None

    def __repr__(self) -> str:
        return _shown(self, self.url, "no publisher before it is awaited or "
                      "entered")

    @property
    def url(self) -> str:
        """Where to connect to, with the port that was picked."""
        return self._listening.url

    if not TYPE_CHECKING:
        def __getattr__(self, name: str) -> Any:
            raise AttributeError(
                f"the result of publish() has no '{name}' yet: enter it by "
                "`async with` or `with`, or await it; sync.publish() gives a "
                "publisher at once")

    def _enter(self) -> None:
        self._listening._check()
        if self._publisher is not None:
            raise RuntimeError("this publish() is entered already")

    async def __aenter__(self) -> _aio.Publisher:
        self._enter()
        publisher = self._publisher = _aio.Publisher(
            self._listening._listener, self._pointer)
        return await publisher.__aenter__()

    def __await__(self) -> Generator[Any, None, _aio.Publisher]:
        return self.__aenter__().__await__()

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
