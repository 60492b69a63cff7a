# SPDX-License-Identifier: BSD-3-Clause
"""Streams whose calls block."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Iterator, Optional, Type

from ._hub import SLICE_MS, Deadline, Hub, Meta
from ._lib import hot
from ._stream import BaseServed, BaseStream, describe
from .context import park_at_exit
from .errors import Closed, Error, Status, error_of

if TYPE_CHECKING:
    from .sync import Endpoint, Message

    Base = BaseStream[Hub, Message]
else:
    Base = BaseStream

_ROOM_MS = 10  # another thread may have seen that there is room


class StreamSide(Base):
    """What both sides of a stream can do."""

    @property
    def peer(self) -> "Endpoint":
        """The endpoint of the other side."""
        endpoint: Endpoint = self._endpoint
        return endpoint

    def send(self, data: Any, *, meta: Optional[Meta] = None,
             timeout: Optional[float] = None, **more: Any) -> None:
        """Sends a dict of arrays, as Endpoint.send(), behind those that were
        sent before, and returns when they may be changed again. Where the
        other side does not read, that is when it does. Raises how the stream
        failed; Closed after done_writing(), or where it is over in order.
        After `timeout` seconds, and by Ctrl-C, that message is left out, and
        the stream goes on."""
        hub = self._hub
        deadline = Deadline(timeout)
        data, described = describe(data, meta, more)
        while True:
            op, data, described = self._post(data, described, 0)
            if op is not False:
                break
            if deadline.passed():
                raise self._late("the send", timeout)
            hub.look_around(deadline, True)
            hot.rest(hub.number, min(_ROOM_MS, deadline.slice_ms()))
            hot.reap(hub.pending)
        if op is None:
            return
        try:
            while not hot.wait(hub.number, op, deadline.slice_ms()):
                if deadline.passed():
                    raise self._late("the send", timeout)
                hub.look_around(deadline, True)
                hub.outwait()
        except BaseException:
            hot.cancel(hub.number, op)
            raise
        hot.reap(hub.pending)
        if hub.closed:
            park_at_exit()
        try:
            hot.outcome(op, self._name())
        except Error as error:
            raise self._better(error) from None

    def recv(self, timeout: Optional[float] = None) -> "Optional[Message]":
        """The next message; None where the other side has finished, or ended
        the stream in order, and all was read. Raises how it failed, and
        TimedOut after `timeout` seconds, where the stream goes on."""
        deadline = Deadline(timeout)
        while True:
            try:
                parts = hot.stream_recv(self._owner, deadline.slice_ms(), 0)
            except Closed:
                park_at_exit()
                raise
            if parts is not False:
                return self._message(parts)
            if deadline.passed():
                raise self._late("a message", timeout)
            self._hub.look_around(deadline, True)

    def __iter__(self) -> "Iterator[Message]":
        """Messages until the other side has finished. Raises how it failed."""
        self._going_through = True
        while True:
            message = self.recv()
            if message is None:
                self._going_through = False
                return
            yield message

    def done_writing(self) -> None:
        """Says that this side sends no more. Again does nothing."""
        self._finish()

    def _late(self, what: str, timeout: Optional[float]) -> Error:
        peer = self._name()
        return error_of(Status.TIMED_OUT,
                        f"{peer}: {what} took more than {timeout} s", peer)


class Stream(StreamSide):
    """A stream that was opened here. Leave its block, by `with`: that waits for
    the server's end and raises how it failed. Where the block went through the
    messages, and not to the last one, and after an exception, the stream is
    cancelled instead."""

    def wait(self, timeout: Optional[float] = None) -> None:
        """Waits until the server has ended it. Raises how it failed: as a call,
        with `code` and `details`; TimedOut after `timeout` seconds. While there
        are more messages than the window they have to be read first."""
        deadline = Deadline(timeout)
        while not hot.stream_wait(self._owner, min(SLICE_MS,
                                                   deadline.slice_ms())):
            if deadline.passed():
                raise self._late("the end of the stream", timeout)
            self._hub.look_around(deadline, True)
            self._hub.outwait()
        if self._hub.closed:
            park_at_exit()
        if self._failed():
            raise self._failure()

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]],
                 error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        try:
            if kind is None and not (self._going_through or self._given_up or
                                     self._told):
                self.done_writing()
                while self.recv() is not None:
                    pass
                self.wait()
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
