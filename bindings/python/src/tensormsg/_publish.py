# SPDX-License-Identifier: BSD-3-Clause
"""What publishers of both kinds have in common."""

from __future__ import annotations

import json
from typing import Any, Dict, Generic, Optional, Tuple, TypeVar

from . import _data
from ._count import count
from ._hub import Hub, Meta, merge_meta
from ._lib import address, ffi, hot, lib
from ._modes import Bounds, Mode, subscriber_params
from ._stays import Stays
from ._time import milliseconds
from .errors import Error, Status, check, error_of

H = TypeVar("H", bound=Hub)
L = TypeVar("L", bound=Any)

LOOK_S = 0.02  # what waits for others looks so often at last


def publishing(keep: int, mode: Optional[Mode], newest: bool,
               bounds: Bounds) -> Tuple[int, Any]:
    """Of the arguments of publish(), for make_publisher()."""
    if newest and mode == "all":
        raise ValueError("mode='all' and newest=True: they say different things")
    return count(keep, "keep"), subscriber_params(
        "live" if newest else mode, bounds)


def make_publisher(hub: Hub, how: Tuple[int, Any]) -> Any:
    """Of all who come in from now on: before the hub has a listener."""
    keep, each = how
    hub.waits_for_room = each.slow == lib.TMSG_SLOW_WAIT
    params = ffi.new("tmsg_publisher_params_t *")
    params.field_mask = lib.TMSG_PUBLISHER_PARAM_KEEP | \
        lib.TMSG_PUBLISHER_PARAM_SUBSCRIBER
    params.keep = keep
    params.subscriber = each
    publisher_p = ffi.new("tmsg_publisher_t **")
    hub.enter()
    try:
        check(lib.tmsg_publisher_create(hub.worker, params, publisher_p))
        lib.tmsgpy_hub_publish_by(hub.hub, publisher_p[0])
        hub.life.publisher = publisher_p[0]
    finally:
        hub.leave()
    return publisher_p[0]


class BasePublisher(Stays, Generic[H, L]):
    """Sends each map to all who have connected to its listener. None of them
    slows another, or the publisher."""

    _instead = "send its url, and connect() there"

    def __init__(self, listener: L, publisher: Any) -> None:
        self._listener = listener
        self._hub: H = listener._hub
        self._publisher = publisher
        self._closing = False

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} {self.url}>"

    @property
    def url(self) -> str:
        """Where to connect to, with the port that was picked."""
        url: str = self._listener.url
        return url

    @property
    def listener(self) -> L:
        """What the subscribers came in by: has `peers`, and recv() and serve()
        for what they say or call."""
        return self._listener

    @property
    def subscribers(self) -> int:
        """How many there are."""
        hub = self._hub
        hub.enter()
        try:
            return int(lib.tmsg_publisher_size(self._publisher))
        finally:
            hub.leave()

    def describe(self) -> Dict[str, Any]:
        """How many maps were "published" and are "kept"; messages "delivered"
        (the peer's application took it), "dropped" (by `slow`, or its
        subscriber left) and "failed" (under way when it left, or refused by
        it); "dropped_for", how many for which reason ("messages", "bytes",
        "age", "timeout", "left", "memory"); "blocked", how often publishing
        waited; "lent" and "not_lent" messages of send(lend=True), and
        "why_not_lent", if some were not; and "subscribers", a list with
        "peer", "delivered", "dropped", "failed", "dropped_for", "mode"
        ("live", "all" or ""), and how many are "waiting" and "under_way"."""
        description: Dict[str, Any] = json.loads(self._hub.text_of(
            lib.tmsg_publisher_describe, self._publisher))
        return description

    def _send(self, data: Any, meta: Optional[Meta], more: Dict[str, Any],
              flags: int, timeout: Optional[float], copy: bool) -> None:
        if self._closing:
            raise error_of(Status.CLOSED, "the publisher is closed")
        hub = self._hub
        merged = merge_meta(meta, more) if meta or more else None
        timeout_ms = milliseconds(timeout)
        hub.life.sent = True
        op = _data.packed(
            lambda data, meta: hot.publish(
                hub.number, address(self._publisher), data, meta,
                flags, timeout_ms, bool(copy)),
            data, merged)
        if op is not None:
            hub.pending.append(op)
        if hub.pending:
            hot.reap(hub.pending)
        hub.look_for_ended()

    def _begin_room(self) -> Any:
        """The operation that ends when there is room for one more message."""
        if self._closing:
            raise error_of(Status.CLOSED, "the publisher is closed")
        hub = self._hub
        request_p = ffi.new("tmsg_request_t **")
        hub.enter()
        try:
            check(lib.tmsg_publisher_ready(self._publisher, request_p))
        finally:
            hub.leave()
        op = hot.op(address(request_p[0]), None)
        hub.pending.append(op)
        return op

    def _late(self, timeout: Optional[float]) -> Error:
        """What is raised where there is no room in time."""
        slow = max(self.describe()["subscribers"], default=None,
                   key=lambda one: one["waiting"] * (one["mode"] == "all"))
        who = "" if slow is None else \
            f"{slow['peer']} has not taken " \
            f"{slow['waiting'] + slow['under_way']} messages, and "
        return error_of(Status.TIMED_OUT, f"{who}there was no room for another "
                        f"in {timeout} s: nobody is sent it")

    def _is_idle(self) -> bool:
        return all(one["waiting"] + one["under_way"] == 0
                   for one in self.describe()["subscribers"])

    def _begin_close(self) -> Any:
        """The operation of closing in order; None: it is closed."""
        if self._closing or self._hub.closed:
            return None
        self._closing = True
        hub = self._hub
        request_p = ffi.new("tmsg_request_t **")
        hub.enter()
        try:
            check(lib.tmsg_publisher_close(self._publisher, request_p))
        finally:
            hub.leave()
        op = hot.op(address(request_p[0]), None)
        hub.pending.append(op)
        return op

    def abort(self) -> None:
        """Ends it and its connections at once: the subscribers see
        PeerLost."""
        self._closing = True
        self._listener.abort()
