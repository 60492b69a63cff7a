# SPDX-License-Identifier: BSD-3-Clause
"""How many calls there were, how they ended, and how long they took."""

from __future__ import annotations

import re
from typing import Any, Dict, Iterator, NamedTuple

from ._hub import Hub
from ._lib import ffi, lib, text
from .errors import NotFound, check

_SERIES = re.compile(r'^tensormsg_calls_in_flight\{side="(\w+)",method="'
                     r'((?:[^"\\]|\\.)*)"\}', re.MULTILINE)
_ESCAPE = re.compile(r"\\(.)")
_PERCENTILES = 500_000, 900_000, 990_000, 999_000
_NUMBERS = ("ended", "in_flight", "rejected", "retried", "sent_bytes",
            "received_bytes", "running", "waiting", "held", "stalls",
            "long_handlers")


class Latency(NamedTuple):
    """How long the calls of a method took that have ended, in seconds: of a
    caller until the reply, retries included; of a server from the arrival of a
    request to its answer. Percentiles are off by 1.6 % at most."""

    mean: float
    p50: float
    p90: float
    p99: float
    p999: float
    most: float


class CallMetrics(NamedTuple):
    """What was counted of a method, on one side. Streams count as calls."""

    #: Calls that have ended.
    ended: int
    #: Calls that have not.
    in_flight: int
    #: At a server: calls that it refused as they came. `ended` leaves them out.
    rejected: int
    #: At a caller: attempts beyond the first.
    retried: int
    #: Bytes of arrays: at a caller of its requests, at a server of its replies.
    sent_bytes: int
    #: The other way.
    received_bytes: int
    #: At a server: calls whose handlers run, or are still to answer.
    running: int
    #: At a server: calls whose handlers have not begun.
    waiting: int
    #: At a server: calls that were answered, and of which an array is kept.
    held: int
    #: At a server: times that calls waited and none began for a second.
    stalls: int
    #: At a server: times that a handler held the event loop for a second.
    long_handlers: int
    #: How many of `ended` ended so: "ok", "timed out", "not found", ...
    by_status: Dict[str, int]
    #: How many of `rejected` were refused with what.
    rejected_by_status: Dict[str, int]
    #: How long those took that have ended.
    latency: Latency


def metrics_text(hub: Hub) -> str:
    """All that was counted of both sides, as Prometheus reads it."""
    return hub.text_of(lib.tmsg_metrics_text, hub.worker)


def _name(escaped: str) -> str:
    return _ESCAPE.sub(lambda escape: "\n" if escape[1] == "n" else escape[1],
                       escaped)


def _methods(hub: Hub, side: str) -> Iterator[str]:
    for found in _SERIES.finditer(metrics_text(hub)):
        if found[1] == side:
            yield _name(found[2])


def _by_status(counts: Any) -> Dict[str, int]:
    return {text(lib.tmsg_status_name(-i)): count
            for i, count in enumerate(counts) if count}


def _read(hub: Hub, side: int, method: str) -> CallMetrics:
    name = method.encode()
    counted = ffi.new("tmsg_call_metrics_t *")
    latency = ffi.new("uint64_t *")
    seconds = []
    hub.enter()
    try:
        check(lib.tmsg_metrics_read(hub.worker, side, name, counted))
        for millionths in _PERCENTILES:
            check(lib.tmsg_metrics_latency(hub.worker, side, name, millionths,
                                           latency))
            seconds.append(latency[0] / 1e9)
    finally:
        hub.leave()
    return CallMetrics._make((
        *(getattr(counted, number) for number in _NUMBERS),
        _by_status(counted.by_status), _by_status(counted.rejected_by_status),
        Latency._make((counted.latency_sum_ns / max(counted.ended, 1) / 1e9,
                       *seconds, counted.latency_most_ns / 1e9))))


def _all(hub: Hub, name: str, side: int) -> Dict[str, CallMetrics]:
    found = {}
    for method in _methods(hub, name):
        try:
            found[method] = _read(hub, side, method)
        except NotFound:  # a name that the text shows in another way
            pass
    return found


def called(hub: Hub) -> Dict[str, CallMetrics]:
    """Of the methods that were called here."""
    return _all(hub, "caller", lib.TMSG_SIDE_CALLER)


def served(hub: Hub) -> Dict[str, CallMetrics]:
    """Of the methods that are served here, whose handlers run in Python."""
    return _all(hub, "server", lib.TMSG_SIDE_SERVER)
