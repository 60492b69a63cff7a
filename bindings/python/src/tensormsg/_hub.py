# SPDX-License-Identifier: BSD-3-Clause
"""A worker of the C library with what Python knows of it."""

from __future__ import annotations

import json
import math
import threading
import time
import weakref
from typing import Any, Dict, List, Mapping, Optional, Tuple

from . import _data
from ._lib import address, ffi, hot, lib, take_text, text
from .context import Context, check_process, default_context, \
    generation, park_at_exit
from .errors import Closed, Error, Status, check, error_of

SLICE_MS = 100  # a wait looks for signals so often
CLOSE_TIMEOUT = 10.0  # seconds

Meta = Mapping[str, Any]


def url_of(place: str) -> str:
    """ "host:port", ":port" and URLs."""
    return place if "://" in place else f"tcp://{place}"


def _end(hub: Any, made_in: int, pending: List[Any]) -> None:
    """The worker goes with the last that uses it, or at exit; never in the
    child of a fork, whose parent still talks over its sockets."""
    if made_in == generation():
        lib.tmsgpy_hub_close(hub)
        pending.clear()


def _free(hub: Any, made_in: int, pending: List[Any]) -> None:
    _end(hub, made_in, pending)
    if made_in == generation():
        lib.tmsgpy_hub_free(hub)


def merge_meta(meta: Optional[Meta], more: Dict[str, Any]) -> Optional[
        Dict[str, Any]]:
    """Both as one dict; None if that would be empty."""
    merged = {**meta, **more} if meta else more
    for key in merged:
        if key[:1] == _data.MARK:
            raise ValueError(f"metadata {key!r}: '/' begins no key")
    return merged or None


class Deadline:
    """Slices of a wait of so many seconds; None is no limit."""

    def __init__(self, timeout: Optional[float]) -> None:
        self._end = math.inf if timeout is None else time.monotonic() + timeout

    def slice_ms(self) -> int:
        left = self._end - time.monotonic()
        return SLICE_MS if left > SLICE_MS / 1000 else max(
            0, math.ceil(left * 1000))

    def passed(self) -> bool:
        return time.monotonic() >= self._end


class Hub:
    """Owns the worker. Each connection, and each listener with all that comes
    in by it, has one. Any thread may use it."""

    def __init__(self, context: Optional[Context], queue_depth: Optional[int],
                 spin_us: Optional[int], background: bool) -> None:
        context = context or default_context()
        params = ffi.new("tmsg_worker_params_t *")
        params.field_mask = lib.TMSG_WORKER_PARAM_FLAGS
        params.flags = lib.TMSG_WORKER_HOST_ONLY | (
            lib.TMSG_WORKER_THREAD if background else lib.TMSG_WORKER_SHARED)
        if queue_depth is not None:
            params.field_mask |= lib.TMSG_WORKER_PARAM_QUEUE_DEPTH
            params.queue_depth = queue_depth
        if spin_us is not None:
            params.field_mask |= lib.TMSG_WORKER_PARAM_SPIN_US
            params.spin_us = spin_us
        worker_p = ffi.new("tmsg_worker_t **")
        check(lib.tmsg_worker_create(context.pointer, params, worker_p))
        self.hub = lib.tmsgpy_hub_create(worker_p[0])
        if self.hub == ffi.NULL:
            lib.tmsg_worker_destroy(worker_p[0])
            raise MemoryError
        self.spin_us = 50 if spin_us is None else spin_us
        self.worker = worker_p[0]
        self.number = address(self.hub)
        self.generation = generation()
        self.pending: List[Any] = []  # operations that go on
        self.endpoints: Dict[int, Any] = {}  # by address
        self.ended: List[int] = []  # of those, to be destroyed
        self._closing = threading.Lock()
        ended = weakref.finalize(self, _end, self.hub, self.generation,
                                 self.pending)
        freed = weakref.finalize(self, _free, self.hub, self.generation,
                                 self.pending)
        freed.atexit = False  # a daemon thread may still be in a call
        self._finalizers = ended, freed

    def enter(self) -> None:
        """To be followed by lib.tmsgpy_hub_leave(self.hub)."""
        check_process(self.generation)
        if not lib.tmsgpy_hub_enter(self.hub):
            raise Closed("it was closed here", Status.CLOSED)

    def leave(self) -> None:
        lib.tmsgpy_hub_leave(self.hub)

    @property
    def closed(self) -> bool:
        return bool(lib.tmsgpy_hub_is_closed(self.hub))

    def destroy(self) -> None:
        """At once. What waits on it in other threads ends with Closed."""
        if self.generation == generation():
            with self._closing:
                lib.tmsgpy_hub_close(self.hub)
                hot.reap(self.pending)
                self.endpoints.clear()

    # Connections

    def connect(self, url: str, timeout: float) -> int:
        params = ffi.new("tmsg_endpoint_params_t *")
        params.field_mask = lib.TMSG_ENDPOINT_PARAM_CONNECT_TIMEOUT
        params.connect_timeout_ms = max(1, round(timeout * 1000))
        endpoint_p = ffi.new("tmsg_endpoint_t **")
        self.enter()
        try:
            check(lib.tmsg_endpoint_connect(self.worker, url.encode(), params,
                                            endpoint_p))
        finally:
            self.leave()
        return address(endpoint_p[0])

    def listen(self, url: str, allow_unauthenticated: bool) -> Tuple[Any, str]:
        params = ffi.new("tmsg_listener_params_t *")
        params.field_mask = lib.TMSG_LISTENER_PARAM_ON_ACCEPT | \
            lib.TMSG_LISTENER_PARAM_ALLOW_UNAUTHENTICATED
        params.on_accept = ffi.addressof(lib, "tmsgpy_on_accept")
        params.on_accept_arg = self.hub
        params.allow_unauthenticated = allow_unauthenticated
        listener_p = ffi.new("tmsg_listener_t **")
        self.enter()
        try:
            check(lib.tmsg_listener_create(self.worker, url.encode(), params,
                                           listener_p))
            return listener_p[0], text(lib.tmsg_listener_url(listener_p[0]))
        finally:
            self.leave()

    def stop_listening(self, listener: Any) -> None:
        self.enter()
        try:
            lib.tmsg_listener_destroy(listener)
        finally:
            self.leave()

    def operation(self, begin: Any, endpoint: int) -> Any:
        """That of tmsg_endpoint_ready() or tmsg_endpoint_close()."""
        request_p = ffi.new("tmsg_request_t **")
        self.enter()
        try:
            check(begin(ffi.cast("tmsg_endpoint_t *", endpoint), request_p),
                  self.peer(endpoint))
        finally:
            self.leave()
        op = hot.op(address(request_p[0]), None)
        self.pending.append(op)
        return op

    def peer(self, endpoint: int) -> str:
        """The peer in words."""
        try:
            self.enter()
        except Error:
            return "a closed endpoint"
        try:
            return text(lib.tmsg_endpoint_peer(
                ffi.cast("tmsg_endpoint_t *", endpoint)))
        finally:
            self.leave()

    def describe(self, endpoint: int) -> Dict[str, Any]:
        text_p = ffi.new("char **")
        self.enter()
        try:
            check(lib.tmsg_endpoint_describe(
                ffi.cast("tmsg_endpoint_t *", endpoint), text_p))
        finally:
            self.leave()
        description: Dict[str, Any] = json.loads(take_text(text_p))
        return description

    def status(self, endpoint: int) -> int:
        self.enter()
        try:
            return int(lib.tmsg_endpoint_status(
                ffi.cast("tmsg_endpoint_t *", endpoint)))
        finally:
            self.leave()

    def news(self, make: Any) -> None:
        """Takes note of peers that came in (`make` makes their objects) and of
        those that have ended."""
        event = ffi.new("tmsgpy_event_t *")
        while lib.tmsgpy_hub_event(self.hub, event):
            number = address(event.endpoint)
            if event.accepted:
                self.endpoints[number] = make(number)
            elif number in self.endpoints:
                self.ended.append(number)

    def bury(self) -> None:
        """Destroys the endpoints that have ended, when no message of theirs
        waits to be pulled any more."""
        while self.ended:
            number = self.ended.pop()
            endpoint = self.endpoints.pop(number, None)
            if endpoint is not None:
                endpoint.bury()

    def destroy_endpoint(self, endpoint: int) -> None:
        try:
            self.enter()
        except Error:
            return
        try:
            lib.tmsg_endpoint_destroy(ffi.cast("tmsg_endpoint_t *", endpoint))
        finally:
            self.leave()

    # Messages

    def post(self, endpoint: int, data: Any, meta: Optional[Dict[str, Any]],
             flags: int, spin_us: int) -> Any:
        """Starts to send: None where that has ended, else the operation."""
        check_process(self.generation)
        op = hot.send(self.number, endpoint, data, meta, flags, spin_us)
        if op is NotImplemented:
            arrays, leaves = _data.flatten(data)
            leaves.update(meta or {})
            op = hot.send(self.number, endpoint, arrays, leaves or None, flags,
                          spin_us)
            if op is NotImplemented:
                raise TypeError("one of the arrays cannot be described")
        if op is not None:
            self.pending.append(op)
        return op

    def wait(self, op: Any, endpoint: int, timeout: Optional[float],
             what: str) -> None:
        """Blocks until the operation has ended, or gives it up."""
        deadline = Deadline(timeout)
        try:
            while not hot.wait(self.number, op, deadline.slice_ms()):
                if deadline.passed():
                    raise error_of(
                        Status.TIMED_OUT, f"{self.peer(endpoint)}: {what} took "
                        f"more than {timeout} s", self.peer(endpoint))
        except BaseException:
            hot.cancel(self.number, op)
            raise
        hot.reap(self.pending)
        if self.closed:
            park_at_exit()
        hot.outcome(op, self.peer(endpoint))

    def pull(self, endpoint: int, timeout: Optional[float]) -> Any:
        """Blocks until there is a message: its parts."""
        check_process(self.generation)
        deadline = Deadline(timeout)
        while True:
            try:
                parts = hot.recv(self.number, endpoint, deadline.slice_ms(), 0)
            except Closed:
                park_at_exit()
                raise
            if self.pending:
                hot.reap(self.pending)
            if parts is not None:
                return parts
            self.bury()
            if deadline.passed():
                raise error_of(Status.TIMED_OUT,
                               f"no message in {timeout} s")
