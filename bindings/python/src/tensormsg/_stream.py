# SPDX-License-Identifier: BSD-3-Clause
"""What streams of both kinds, and of both sides, have in common."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Dict, Generic, Optional, Tuple, Type, \
    TypeVar

from . import _data
from ._hub import Hub, Meta, merge_meta
from ._lib import hot, lib
from ._message import BaseMessage
from ._stays import Stays
from .errors import Closed, Error, Status, error_of

H = TypeVar("H", bound=Hub)
M = TypeVar("M", bound=BaseMessage)

QUEUE = 64  # messages of this side that may wait for the other to read
# What becomes of arrays that are sent: they may be changed when the send has
# ended, are lent, or may be changed at once. A session keeps what it may send
# again until the other side has read it, which must not hold up the sender.
_BORROWS, _LENDS, _COPIES = range(3)


def describe(data: Any, meta: Optional[Meta], more: Dict[str, Any]
             ) -> Tuple[Any, Optional[Dict[str, Any]]]:
    """What is sent as the extension takes it, but for arrays of other kinds
    than numpy's."""
    return {} if data is None else data, \
        merge_meta(meta, more) if meta or more else None


def streams(handler: Callable[..., Any]) -> bool:
    """Whether a handler tells by what it is that it serves a stream."""
    return inspect.isgeneratorfunction(handler) or \
        inspect.isasyncgenfunction(handler)


class BaseStream(Stays, Generic[H, M]):
    """One side of a stream."""

    _instead = "take its messages here; they can be pickled"

    def __init__(self, hub: H, owner: Any, number: int, at: int, endpoint: Any,
                 kind: Type[M], convert: Optional[Callable[[Any], Any]],
                 method: str) -> None:
        self._hub = hub
        self._at = at  # the number of the endpoint
        self._owner = owner
        self._number = number  # by which the hub knows it
        self._endpoint = endpoint
        self._kind = kind
        self._convert = convert
        self._method = method
        self._opener = True
        self._finished = False
        self._given_up = False  # here
        self._told = False  # how it failed
        self._lost = False  # the peer, or it closes, as a call on it has said
        self._going_through = False  # and not at the end

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} " \
            f"'{self._method}' with {self._endpoint}>"

    @property
    def method(self) -> str:
        """The name of the method."""
        return self._method

    @property
    def remaining(self) -> Optional[float]:
        """Seconds that are left of the opener's time; None: it set no
        limit."""
        left = hot.stream_state(self._owner)[1]
        return None if left < 0 else left / 1000

    @property
    def over(self) -> bool:
        """Whether it has ended, in whatever way; what came before an orderly
        end can still be read."""
        return bool(hot.stream_state(self._owner)[0] != lib.TMSG_IN_PROGRESS)

    def cancel(self) -> None:
        """Gives it up, on both sides: what was not read is dropped. Nothing
        where it is over."""
        if not self.over:
            self._given_up = True
            hot.stream_cancel(self._owner)
        self._stir()

    def _stir(self) -> None:
        """Something was done that has to move."""

    def _name(self) -> str:
        """The other side, in words."""
        return str(getattr(self._endpoint, "peer", self._endpoint))

    def _late(self, what: str, timeout: Optional[float]) -> Error:
        peer = self._name()
        try:
            why = self._hub.why_late(self._at, what)
        except Error:  # it was closed meanwhile
            why = ""
        return error_of(Status.TIMED_OUT,
                        f"{peer}: {what} took more than {timeout} s{why}", peer)

    def _failure(self) -> Error:
        """How it has failed."""
        status, reason, code, may_have_run, parts = hot.stream_result(
            self._owner)
        error = error_of(status, reason, self._name())
        if self._opener:
            error.code = code
            error.may_have_run = bool(may_have_run)
            if parts is not None:
                details = self._kind(parts, self._endpoint, self._convert)
                if len(details) > 0 or details.meta:
                    error.details = details
        self._told = True
        return error

    def _failed(self) -> bool:
        return hot.stream_state(self._owner)[0] < 0

    def _better(self, error: Error) -> Error:
        """What a call on it answered, or how the stream itself failed. What is
        under way on a connection that has ended is told of before that."""
        if self._failed():
            return self._failure()
        self._lost = self._lost or error.status == Status.PEER_LOST or (
            error.status == Status.CLOSED and not self._finished)
        return error

    def _message(self, parts: Any) -> Optional[M]:
        """Of what was received, which is not nothing."""
        if parts is True:
            raise self._failure()
        return None if parts is None else \
            self._kind(parts, self._endpoint, self._convert)

    def _finish(self) -> None:
        """Says that no more is sent. Again, or where it is over in order, it
        does nothing."""
        if self._finished:
            return
        try:
            hot.stream_finish(self._owner)
        except Closed:
            if self._failed():
                raise self._failure() from None
            if self._hub.closed:
                raise
        except Error as error:
            raise self._better(error) from None
        self._finished = True
        self._stir()

    def _post(self, data: Any, meta: Any, spin_us: int, lends: bool) -> Any:
        """(operation; None: it has ended; False: there is no room, the data,
        metadata: to be tried again with)."""
        def take(arrays: Any, leaves: Any) -> Any:
            nonlocal data, meta
            data, meta = arrays, leaves
            return hot.stream_send(self._owner, data, meta, spin_us,
                                   _LENDS if lends else
                                   _COPIES if self._hub.sends_again else
                                   _BORROWS)

        try:
            op = _data.packed(take, data, meta)
        except Error as error:
            better = self._better(error)
            better._unsent_on = self._number
            raise better from None
        if op is not None and op is not False:
            self._hub.pending.append(op)
        return op, data, meta


class BaseServed:
    """What the server's side has beside that."""

    _opening: Any
    _who: Optional[str]

    @property
    def principal(self) -> Optional[str]:
        """Whose key the opener has proved; None where none was asked for."""
        return self._who
