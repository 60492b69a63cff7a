# SPDX-License-Identifier: BSD-3-Clause
"""What endpoints and listeners of both kinds have in common."""

from __future__ import annotations

import functools
import logging
import weakref
from typing import Any, Callable, Dict, Generic, Mapping, Optional, Type, \
    TypeVar

from ._hub import CLOSED, WHY_NOT_CLOSED, End, Hub, Meta, Posted, end_of, \
    merge_meta
from ._lib import hot, lib
from ._linger import begin_close
from ._link import Admission
from ._message import BaseMessage, Like, _converter
from ._metrics import CallMetrics, called, metrics_text
from ._modes import Bounds, Full, Mode, queue_params
from ._offer import Version, at_least_of, boxes_of, check_which, wait_ms_of
from ._presence import Presence
from ._stays import Stays
from ._time import milliseconds
from .errors import Error, Status, error_of

H = TypeVar("H", bound=Hub)
M = TypeVar("M", bound=BaseMessage)
S = TypeVar("S")

_log = logging.getLogger("tensormsg")

ACKED = 1 << 0
VERIFY = 1 << 1
TRY = 1 << 3
KEEP_STRIDES = 1 << 5
LEND = 1 << 6  # of replies, too

CONNECTED = "connected"  # the status of an endpoint


def flags_of(acked: bool, verify: bool, keep_strides: bool, lend: bool) -> int:
    return (ACKED if acked else 0) | (VERIFY if verify else 0) | \
        (KEEP_STRIDES if keep_strides else 0) | (LEND if lend else 0)


def tell_unclosed(peer: str, timeout: Optional[float]) -> None:
    """Of a peer of a listener that is closed."""
    _log.warning("%s: closing took more than %s s, and it may lack what was sent "
                 "to it%s", peer, timeout, WHY_NOT_CLOSED)


class BaseEndpoint(Stays, Generic[H]):
    """A connection to one peer."""

    _instead = "send the URL that it was made with, and connect() there"

    def __init__(self, hub: H, number: int, like: Like, dialled: bool) -> None:
        self._hub = hub
        self._number = number
        self._convert = _converter(like)
        self._dialled = dialled  # and so alone on its hub
        self._gone = False
        self._end = CLOSED  # where it is gone
        self._closing = False
        self._like = like
        self._server: Any = None
        self._principal = hub.principal(number)
        self._queues = hub.queues  # what it sends, and waits for none of it
        # Buffers of a receive that was given up, and may still be written to.
        self._left: Optional[Posted] = None

    def __repr__(self) -> str:
        peer, words = self.peer, self.status
        if words in (CONNECTED, CLOSED.reason):
            words = peer
        elif not words.startswith(peer):
            words = f"{peer}: {words}"
        return f"<{type(self).__module__}.{type(self).__name__} {words}>"

    @property
    def peer(self) -> str:
        """The peer in words: "tcp://10.0.0.7:4000 (pid 4711 on node7)"."""
        return self._end.peer if self._gone else self._hub.peer(self._number)

    @property
    def principal(self) -> Optional[str]:
        """Whose key the peer has proved, by the name in this side's keys; with
        certificates the common name of the peer's. None where no proof was
        asked for. It stays when the endpoint has ended."""
        return self._principal

    @property
    def closed(self) -> bool:
        """Whether it has ended: closed on either side, or failed."""
        return self._status() < 0

    @property
    def connected(self) -> bool:
        """Whether the connection stands: False once it has ended, and while it
        is broken and to come back (`reconnect`). ready() waits for that."""
        return self._status() == 0

    @property
    def status(self) -> str:
        """How it is, in words: "connected"; "...: reconnecting, attempt 3; why
        it is away: ..." while it is to come back; how it has ended."""
        if self._gone:
            return self._end.reason
        try:
            return self._hub.words(self._number) or CONNECTED
        except Error as error:
            return error.reason

    def _status(self) -> int:
        if self._gone:
            return Status.CLOSED
        try:
            return self._hub.status(self._number)
        except Error as error:
            return error.status

    def describe(self) -> Dict[str, Any]:
        """Peer, versions, which transports carry it and why, counters."""
        self._check()
        return self._hub.describe(self._number)

    def metrics(self) -> Dict[str, CallMetrics]:
        """What was counted of the calls, streams and fetches that were made
        here, by the name of the method: of this connection since its first, or
        of all connections of its listener."""
        return called(self._hub)

    def metrics_text(self) -> str:
        """The same, and what is served here, in the text format that Prometheus
        scrapes."""
        return metrics_text(self._hub)

    def intercept(self, interceptor: Any) -> None:
        """Has calls and streams that are made from now on seen by an
        Interceptor: those of this endpoint, or of all endpoints of its listener.
        Of several the first is the outermost; there may be 8. They stay as long
        as the connection."""
        self._check()
        self._hub.intercept(interceptor, lib.TMSG_SIDE_CALLER)

    def set_queue(self, mode: Optional[Mode] = None, *,
                  queue: Optional[int] = None,
                  queue_bytes: Optional[int] = None,
                  queue_ms: Optional[int] = None,
                  window: Optional[int] = None,
                  slow: Optional[Full] = None) -> None:
        """What becomes of messages that its peer has no time for, from the next
        send() on.

        `mode`: "live": the newest alone waits, and goes when the peer's
        application took the one before; send() copies the arrays and returns at
        once. "all", and without arguments: send() waits until its message can
        go, and nothing is lost. Or, bound by bound: `queue`, `queue_bytes`: how
        many messages, and bytes of these, may wait; `queue_ms`: milliseconds
        that one may; `window`: how many may be on the way that the peer's
        application has not taken (no bound: as many as its queue_depth).
        `slow`: what becomes of the rest: "drop oldest" of those that wait,
        "drop newest", which is the one just sent, "reject": send() raises
        Busy, or "wait": it waits.

        With each but "wait" send() copies the arrays and returns at once, and
        `timeout` is how long the message may wait. With acked=True it still
        waits, and raises Dropped if the message was dropped. describe()["queue"]
        counts. Calls, streams and publishers have their own bounds."""
        self._check()
        params = queue_params(mode, Bounds(queue, queue_bytes, queue_ms, window,
                                           slow))
        self._hub.set_queue(self._number, params)
        self._queues = params is not None

    def abort(self) -> None:
        """Ends it at once: what was under way is given up, and the peer sees
        PeerLost."""
        if self._gone:
            return
        if not self._dialled:
            self._end = CLOSED._replace(peer=self.peer)
        self._gone = True
        if self._dialled:
            self._hub.destroy()
        elif self._hub.take_out(self._number, self):
            self._hub.has_left(self)
            self._hub.destroy_endpoint(self._number)

    def _over(self, end: End) -> None:
        """It has ended so, all was pulled, it was taken out, and is to be
        destroyed."""
        if not self._gone:
            self._end = end
            self._gone = True

    def _check(self) -> None:
        if self._gone:
            end = self._end
            raise error_of(end.status, end.reason,
                           None if end is CLOSED else end.peer)

    def _post(self, buffers: Mapping[str, Any]) -> Posted:
        """What to receive into: that of a receive that was given up goes on,
        where it is the same memory."""
        self._check()
        posted = Posted(buffers)
        left, self._left = self._left, None
        if left is None or not left.same(posted):
            return posted
        left.given = posted.given
        return left

    def _leave(self, posted: Posted) -> None:
        """Of a receive that was given up."""
        hot.left(posted.map, posted.lent)
        if posted.lent:
            self._left = posted

    def _take_left(self) -> None:
        """A message was taken: the one that was on its way into buffers."""
        left, self._left = self._left, None
        if left is not None:
            hot.taken(left.map)

    def _received_into(self, posted: Posted, parts: Any, kind: Type[M]) -> M:
        """A message, in which what was received into is as it was given."""
        message = kind(parts, self, self._convert)
        if self._convert is not None:
            message._ready = {name: posted.given[name]
                              for name in posted.given if name in parts[0]}
        return message

    def _call(self, method: str, data: Any, meta: Optional[Meta],
              more: Dict[str, Any], timeout: Optional[float],
              idempotent: bool, attempts: int, lend: bool, loan: bool,
              spin_us: int, posted: Optional[Posted] = None) -> Any:
        self._check()
        return self._hub.call(
            self._number, method, data,
            merge_meta(meta, more) if meta or more else None, timeout,
            (lib.TMSG_CALL_IDEMPOTENT if idempotent else 0) |
            (lib.TMSG_CALL_LEND if lend else 0) |
            (lib.TMSG_CALL_BORROW if loan else 0), attempts, spin_us,
            None if posted is None else posted.map)

    def _fetch(self, key: Optional[bytes], name: Optional[str],
               at_least: Version, slices: Any, posted: Optional[Posted],
               wait: Optional[float], timeout: Optional[float],
               loan: bool, spin_us: int) -> Any:
        self._check()
        check_which(key, name, at_least, wait)
        version, epoch = at_least_of(at_least)
        return self._hub.fetch(
            self._number, key, name, version, epoch, wait_ms_of(wait),
            boxes_of(slices), None if posted is None else posted.map,
            milliseconds(timeout), spin_us,
            lib.TMSG_FETCH_BORROW if loan else 0)

    def _stream(self, kind: Callable[..., S], message: Any, method: str,
                data: Any, meta: Optional[Meta], more: Dict[str, Any],
                timeout: Optional[float], queue: int) -> S:
        self._check()
        owner, number = self._hub.open_stream(
            self._number, method, data,
            merge_meta(meta, more) if meta or more else None, timeout, queue)
        return kind(self._hub, owner, number, self._number, self, message,
                    self._convert, method)

    def _reply(self, op: Any, kind: Type[M],
               posted: Optional[Posted] = None) -> M:
        """Of a call that has ended."""
        status, reason, code, may_have_run, parts = hot.result(op)
        if status == 0 and posted is not None:
            return self._received_into(posted, posted.placed(parts), kind)
        message = None if parts is None else kind(parts, self, self._convert)
        if status == 0:
            assert message is not None
            return message
        error = error_of(status, reason, self.peer)
        error.code = code
        error.may_have_run = bool(may_have_run)
        if message is not None and (len(message) > 0 or message.meta):
            error.details = message
        raise error

    def _fetched(self, op: Any, kind: Type[M], posted: Optional[Posted],
                 is_part: bool) -> M:
        """Of a fetch that has ended. `is_part`: slices were asked for."""
        message = self._reply(op, kind, posted)
        message._is_part = is_part
        for name in () if posted is None else posted.given:
            if name not in message._arrays:
                error = error_of(Status.INVALID_PARAM, f"buffer '{name}': no "
                                 "such tensor came", self.peer)
                error.details = message
                raise error
        return message

    def _check_dialled(self, does: str) -> None:
        self._check()
        if not self._dialled:
            raise ValueError(f"the listener {does} those that came in by it")

    def _serving(self, make: Callable[..., S], **options: Any) -> S:
        """The server of what its peer calls."""
        self._check_dialled("serves")
        this = weakref.ref(self)
        server = self._server = make(self._hub, lambda number, over: this(),
                                     self._like, **options)
        self._server._owner = this
        return server

    def _begin_ready(self) -> Any:
        self._check()
        return self._hub.operation(lib.tmsg_endpoint_ready, self._number)

    def _begin_close(self) -> Any:
        return self._hub.operation(begin_close, self._number)


class BaseListener(Stays, Generic[H]):
    """Accepts connections at a URL."""

    _instead = "send its url, and connect() there"

    _kind: Any  # of its peers
    _by_thread: bool  # who is there is told in a thread, not in an event loop

    def __init__(self, hub: H, url: str, like: Like, how: Admission) -> None:
        self._hub = hub
        self._like = like
        self._convert = _converter(like)
        self._server: Any = None
        self._make_peers()
        self._listener, self._url = hub.listen(url, how)

    def _make_peers(self) -> None:
        """Those who come in are of its kind, and those who have come in by
        the other face become so."""
        self._hub.kind = functools.partial(self._kind, like=self._like,
                                           dialled=False)
        for peer in list(self._hub.endpoints.values()):
            peer.__class__ = self._kind
        if self._hub.presence is None:
            self._hub.presence = Presence()
        if self._by_thread:
            self._hub.presence.use_thread(self._hub)

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} {self._url}>"

    @property
    def url(self) -> str:
        """Where it listens, with the port that was picked."""
        return self._url

    def describe(self) -> Dict[str, Any]:
        """Where it listens, who is connected, and counters: "offers",
        "lent_bytes", "fetches", "running_calls", "long_handlers" (how often one
        held the event loop for a second) and others."""
        described = self._hub.describe_listener(self._listener)
        described["long_handlers"] = self._hub.long_handlers
        return described

    def _serving(self, make: Callable[..., S], **options: Any) -> S:
        """The server of what its peers call."""
        server = self._server = make(self._hub, self._hub.sender, self._like,
                                     **options)
        self._server._owner = weakref.ref(self)
        return server

    def _sender(self, number: int) -> Any:
        """Of a message, which keeps the memory of an endpoint that was destroyed
        meanwhile."""
        peer = self._hub.sender(number)
        if peer is None:
            peer = self._hub.kind(self._hub, number)
            peer._end, peer._gone = end_of(number), True
        return peer
