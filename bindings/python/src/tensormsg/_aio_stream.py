# SPDX-License-Identifier: BSD-3-Clause
"""Streams for asyncio."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, AsyncIterator, Optional, Type

from ._hub import Meta
from ._lib import hot
from ._stream import BaseServed, BaseStream, describe
from .errors import Error

if TYPE_CHECKING:
    from ._aio import Endpoint, Message
    from ._loop import LoopHub

    Base = BaseStream[LoopHub, Message]
else:
    Base = BaseStream


class StreamSide(Base):
    """What both sides of a stream can do."""

    @property
    def peer(self) -> "Endpoint":
        """The endpoint of the other side."""
        endpoint: Endpoint = self._endpoint
        return endpoint

    def _stir(self) -> None:
        self._hub.kick()

    async def send(self, data: Any, *, meta: Optional[Meta] = None,
                   **more: Any) -> None:
        """Sends a dict of arrays, as Endpoint.send(), behind those that were
        sent before, and returns when they may be changed again. Where the
        other side does not read, that is when it does. Raises how the stream
        failed; Closed after done_writing(), or where it is over in order.

        Where its task is cancelled that message is left out, and the stream
        goes on."""
        hub = self._hub
        await hub.breathe(hub.bind())
        data, described = describe(data, meta, more)
        while True:
            op, data, described = self._post(data, described, hub.spin_us)
            if op is not False:
                break
            await hub.stirred(0)
        try:
            if op is not None:
                await hub.finish(op, self._at)
        except Error as error:
            raise self._better(error) from None
        finally:
            hub.kick()

    async def recv(self) -> "Optional[Message]":
        """The next message; None where the other side has finished, or ended
        the stream in order, and all was read. Raises how it failed. A task that
        is cancelled meanwhile takes none, and the stream goes on."""
        hub = self._hub
        await hub.breathe(hub.bind())
        since = time.monotonic()
        parts = hot.stream_recv(self._owner, 0, hub.patience.next_us())
        if parts is not False:
            hub.patience.polled()
        else:
            hub.patience.missed()
        while parts is False:
            await hub.stirred(self._number)
            parts = hot.stream_recv(self._owner, 0, 0)
            if parts is not False:
                hub.patience.slept(since)
        hub.kick()
        return self._message(parts)

    async def __aiter__(self) -> "AsyncIterator[Message]":
        """Messages until the other side has finished. Raises how it failed."""
        self._going_through = True
        while True:
            message = await self.recv()
            if message is None:
                self._going_through = False
                return
            yield message

    async def done_writing(self) -> None:
        """Says that this side sends no more. Again does nothing."""
        self._hub.bind()
        self._finish()


class Stream(StreamSide):
    """A stream that was opened here. Leave its block, by `async with`: that
    waits for the server's end and raises how it failed. Where the block went
    through the messages, and not to the last one, and after an exception, the
    stream is cancelled instead."""

    async def wait(self) -> None:
        """Waits until the server has ended it. Raises how it failed: as a call,
        with `code` and `details`. While there are more messages than the
        window they have to be read first."""
        hub = self._hub
        hub.bind()
        while not self.over:
            await hub.stirred(self._number)
        if self._failed():
            raise self._failure()

    async def __aenter__(self) -> "Stream":
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]],
                        error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        try:
            if kind is None and not (self._going_through or self._given_up or
                                     self._told):
                await self.done_writing()
                while await self.recv() is not None:
                    pass
                await self.wait()
        finally:
            self.cancel()


class ServerStream(BaseServed, StreamSide):
    """A stream as its handler sees it. It counts as running until its handler
    has ended and the last array of `request` is gone."""

    @property
    def request(self) -> "Message":
        """What it was opened with."""
        message: Message = self._opening
        return message
