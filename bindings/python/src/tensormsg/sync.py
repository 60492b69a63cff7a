# SPDX-License-Identifier: BSD-3-Clause
"""The same without asyncio: calls that block, in as many threads as you like.

They let other threads run meanwhile, and Ctrl-C ends their wait within 0.1 s.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Iterator, List, Optional, Type

from ._endpoint import BaseEndpoint, BaseListener, flags_of
from ._hub import CLOSE_TIMEOUT, Hub, Meta, merge_meta, url_of
from ._lib import lib
from ._message import BaseMessage, Like
from .context import Context
from .errors import Closed, Error

__all__ = ["Endpoint", "Listener", "Message", "connect", "listen"]


class Message(BaseMessage):
    __doc__ = BaseMessage.__doc__
    __slots__ = ()

    @property
    def peer(self) -> "Endpoint":
        """Who sent it, to be answered."""
        peer: Endpoint = self._peer
        return peer


class Endpoint(BaseEndpoint[Hub]):
    """A connection to one peer. Any thread may use it; several at once."""

    def send(self, data: Any, *, meta: Optional[Meta] = None,
             acked: bool = False, verify: bool = False,
             timeout: Optional[float] = None, **more: Any) -> None:
        """Sends a dict of arrays, and returns when they may be changed again.

        `data`: names to arrays (numpy; anything with DLPack,
        __array_interface__ or the buffer protocol), or a tree of dicts, lists
        and tuples of arrays and of bool, int, float, str, bytes and None.
        `meta` and further keywords: metadata, frame=7 among them. `acked`:
        return when the peer's application has it. `verify`: the same, with a
        checksum of each array. After `timeout` seconds it is given up with
        TimedOut: it arrives whole or not at all. The arrays are kept until
        nothing can read them any more, and must not be changed right away.
        """
        self._check()
        op = self._hub.post(self._number, data,
                            merge_meta(meta, more) if meta or more else None,
                            flags_of(acked, verify), 0)
        if op is not None:
            self._hub.wait(op, self._number, timeout, "the send")

    def recv(self, timeout: Optional[float] = None) -> Message:
        """The next message, in the order sent; waits up to `timeout` seconds.
        Raises TimedOut, Closed when the peer has closed and all was taken,
        PeerLost."""
        self._check()
        return Message(self._hub.pull(self._number, timeout), self,
                       self._convert)

    def __iter__(self) -> Iterator[Message]:
        """Messages until the peer closes."""
        while True:
            try:
                message = self.recv()
            except Closed:
                return
            yield message

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Closes in order: returns when the peer has all that was sent. Again
        does nothing. Raises PeerLost where that cannot be known."""
        if self._gone or self._closing:
            return
        self._closing = True
        try:
            self._hub.wait(self._begin_close(), self._number, timeout,
                           "closing")
        except Closed:
            pass
        finally:
            self.abort()

    def __enter__(self) -> "Endpoint":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]],
                 error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


class Listener(BaseListener[Hub]):
    """A door that peers come in by; gives their messages."""

    def _make(self, number: int) -> Endpoint:
        return Endpoint(self._hub, number, self._like, dialled=False)

    def recv(self, timeout: Optional[float] = None) -> Message:
        """The next message of any peer; waits up to `timeout` seconds."""
        parts = self._hub.pull(0, timeout)
        return Message(parts, self._sender(parts[3]), self._convert)

    def __iter__(self) -> Iterator[Message]:
        """Messages of all peers until it is closed."""
        while True:
            try:
                message = self.recv()
            except Closed:
                return
            yield message

    @property
    def peers(self) -> List[Endpoint]:
        """Those that are connected now."""
        self._hub.news(self._make)
        return list(self._hub.endpoints.values())

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Lets nobody in any more and closes what came in, in order."""
        if self._hub.closed:
            return
        try:
            self._hub.stop_listening(self._listener)
            for peer in self.peers:
                try:
                    peer.close(timeout)
                except Error:  # it is gone, which is what was asked for
                    pass
        finally:
            self.abort()

    def abort(self) -> None:
        """Ends it and its connections at once."""
        self._hub.destroy()

    def __enter__(self) -> "Listener":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]],
                 error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


def connect(place: str, *, timeout: float = 10.0, like: Like = None,
            context: Optional[Context] = None,
            queue_depth: Optional[int] = None,
            spin_us: Optional[int] = None,
            background: bool = False) -> Endpoint:
    """Connects and returns the endpoint: as `with tensormsg.connect(...)`,
    which says what the arguments are."""
    hub = Hub(context, queue_depth, spin_us, background)
    try:
        number = hub.connect(url_of(place), timeout)
        hub.wait(hub.operation(lib.tmsg_endpoint_ready, number), number, None,
                 "connecting")
    except BaseException:
        hub.destroy()
        raise
    return Endpoint(hub, number, like, dialled=True)


def listen(place: str, *, allow_unauthenticated: bool = False,
           like: Like = None, context: Optional[Context] = None,
           queue_depth: Optional[int] = None,
           spin_us: Optional[int] = None,
           background: bool = False) -> Listener:
    """Listens and returns the listener: as `with tensormsg.listen(...)`, which
    says what the arguments are."""
    return Listener(Hub(context, queue_depth, spin_us, background), url_of(place), like,
                    allow_unauthenticated)
