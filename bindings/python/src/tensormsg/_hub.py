# SPDX-License-Identifier: BSD-3-Clause
"""A worker of the C library with what Python knows of it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import math
import threading
import time
import weakref
from typing import Any, Callable, Dict, Iterator, List, Mapping, \
    NamedTuple, Optional, Set, Tuple

import numpy as np

from . import _data
from .allocators import Allocator, Allocators, in_use
from ._count import count
from ._lib import address, ffi, hot, lib, take_text, text, utf8
from ._intercept import Hooks, everywhere
from ._linger import Life, drop, keep_in_mind
from ._link import Admission, Dialling, with_tls_of
from ._logs import lines
from ._modes import live_queue
from ._near import OPTIONS, option_meant, warn_of_options
from ._own_loop import look_at_own_loop, note_door
from ._presence import Presence, Watch
from ._session import OnSession, Sessions, ThreadSessions
from ._time import milliseconds, seconds
from .context import Context, check_process, default_context, \
    generation, is_exiting, park_at_exit
from .errors import Busy, Closed, Error, Status, check, error_of

SLICE_MS = 100  # a wait looks for signals so often
_CLOSE_SLICE_MS = 40  # and one for a peer that may have nothing to say
_TOLD_S = 1.0  # the library tells of a peer within that
_SOON_S = 0.25  # of one at the address of another that is gone
_LOOKS = 8  # at what has come, before something is sent
_AGAIN_S = 0.05  # those that have ended are looked at again
_DEPARTED_MAX = 4096
_MOST_ATTEMPTS = 100  # of a call
_MOST_QUEUE = 0x7fffffff  # messages of a stream
CLOSE_TIMEOUT = 10.0  # seconds
WHY_NOT_CLOSED = "; the peer does not run, or nothing moves its messages: in " \
    "this thread, without asyncio, it needs background=True; or what it " \
    "sent waits for memory here: let go of messages that are kept"

# Why a buffer cannot be received into now (places.h).
_WRITTEN = 0
_OCCUPIED = (
    "an earlier receive may still write to it",
    "another receive into it goes on",
    "a message there was not taken yet: take it first, by wait() of the call "
    "or fetch, or by recv()")

Meta = Mapping[str, Any]


def url_of(place: str) -> str:
    """ "host:port", ":port" and URLs."""
    if not isinstance(place, str):
        raise TypeError(f'{place!r} is not an address: give a str, '
                        f'"host:port", ":port" or '
                        "a URL")
    return place if "://" in place else f"tcp://{place}"


# What the library says to a program in C, and what it is here.
_WORDS = (("set a keyring, or allow_unauthenticated",
           "give key=, or allow_unauthenticated=True"),
          ("certificates (tls) or a keyring",
           "certificates (tls=tensormsg.TLS(...)) or a key (key=)"))


@contextlib.contextmanager
def _in_words_of_python() -> Iterator[None]:
    try:
        yield
    except Error as error:
        for theirs, ours in _WORDS:
            error.reason = error.reason.replace(theirs, ours)
        raise


_log = logging.getLogger("tensormsg")
_left: List[Any] = []  # allocators and hooks of workers that go after their hub


def _end(hub: Any, made_in: int, pending: List[Any],
         used: Dict[str, Allocator], hooks: List[Hooks], life: Life) -> None:
    """The worker goes with the last that uses it, or at exit, when what was
    sent has gone; never in the child of a fork, whose parent still talks over
    its sockets. Its allocators and interceptors live as long."""
    if made_in != generation():
        return

    def end() -> None:
        if not lib.tmsgpy_hub_close(hub):
            _left.append((dict(used), list(hooks)))
        pending.clear()
        used.clear()
        hooks.clear()

    if not life.sent or is_exiting() or lib.tmsgpy_hub_is_closed(hub) or \
            not drop(life, end):
        end()


def _free(made_in: int, hub: Any) -> None:
    """When nothing can call it any more. Not as a finalizer of the Hub: where a
    coroutine goes with it that one is called first, and the coroutine then
    leaves its blocks. At exit a daemon thread may still be in a call."""
    if made_in == generation() and not is_exiting():
        lib.tmsgpy_hub_free(hub)


def merge_meta(meta: Optional[Meta], more: Dict[str, Any]) -> Optional[
        Dict[str, Any]]:
    """Both as one dict; None if that would be empty. `more`: what a call does
    not take of its keywords."""
    if not OPTIONS.isdisjoint(more):
        option = min(OPTIONS.intersection(more))
        raise TypeError(f"{option}= is not an option here; to send it as "
                        f"metadata, write meta={{{option!r}: ...}}")
    if any(map(option_meant, more)):
        warn_of_options(more)
    try:
        merged = {**meta, **more} if meta else more
    except TypeError:
        raise TypeError(f"meta={meta!r} is not a dict of names") from None
    for key, value in merged.items():
        if not isinstance(key, str) or key[:1] == _data.MARK:
            _data.refuse_key(key)
        if isinstance(value, np.generic):
            merged = {**merged, key: _data.scalar(f"metadata '{key}'", value)}
    return merged or None


class End(NamedTuple):
    """How an endpoint has ended, and whose it was."""

    status: int
    reason: str
    peer: str


CLOSED = End(Status.CLOSED, "the endpoint is closed", "a closed endpoint")


def end_of(number: int) -> End:
    """Of one that nobody destroys now."""
    endpoint = ffi.cast("tmsg_endpoint_t *", number)
    status = int(lib.tmsg_endpoint_status(endpoint))
    return CLOSED if status >= 0 else End(
        status, text(lib.tmsg_endpoint_error(endpoint)),
        text(lib.tmsg_endpoint_peer(endpoint)))


# By number.
_hubs: "weakref.WeakValueDictionary[int, Hub]" = weakref.WeakValueDictionary()


def occupied(name: str, why: int, writer: int) -> Error:
    """What is raised for a buffer that cannot be received into now."""
    error = error_of(Status.BUSY,
                     f"buffer '{_data.shortened(name)}': {_OCCUPIED[why]}")
    error.may_have_run = False
    if why == _WRITTEN:
        error._writer = writer
    return error


class Deadline:
    """Slices of a wait of so many seconds; None is no limit."""

    def __init__(self, timeout: Optional[float], begun_ms: int = 0) -> None:
        """`begun_ms`: ago."""
        self._begun = time.monotonic() - begun_ms / 1000
        self._end = self._begun + seconds(timeout)

    def left(self) -> float:
        return max(0.0, self._end - time.monotonic())

    def slice_ms(self) -> int:
        left = self._end - time.monotonic()
        return SLICE_MS if left > SLICE_MS / 1000 else max(
            0, math.ceil(left * 1000))

    def passed(self) -> bool:
        return time.monotonic() >= self._end

    def waited(self) -> float:
        """Seconds since it was made."""
        return time.monotonic() - self._begun


class Posted:
    """Arrays to receive into."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.arrays = arrays = _data.buffers(given)
        self.given = dict(given)
        self.map = hot.posted(arrays)
        self.lent = False  # a message is on its way into them

    def renew(self) -> None:
        """Its map has gone with a message."""
        hot.renew(self.map, self.arrays)

    def same(self, other: "Posted") -> bool:
        """Whether it is the same memory."""
        return self.arrays.keys() == other.arrays.keys() and all(
            array.__array_interface__ ==
            other.arrays[name].__array_interface__
            for name, array in self.arrays.items())

    def placed(self, parts: Any) -> Any:
        """The parts of a message, with the arrays that it was received
        into."""
        for name in self.arrays.keys() & parts[0].keys():
            parts[0][name] = self.arrays[name]
        return parts


class Hub:
    """Owns the worker. Each connection, and each listener with all that comes
    in by it, has one. Any thread may use it."""

    def __init__(self, context: Optional[Context], queue_depth: Optional[int],
                 spin_us: Optional[int], background: Optional[bool],
                 allocators: Optional[Allocators] = None,
                 borrows: bool = False, live: bool = False) -> None:
        """`background`: None is from the first offer on. `borrows`: messages
        may come as loans. `live`: its endpoints send by mode="live"."""
        lines.follow()
        context = context or default_context()
        self._context_tls = context.tls
        self.allocators = in_use(allocators)
        params = ffi.new("tmsg_worker_params_t *")
        params.field_mask = lib.TMSG_WORKER_PARAM_FLAGS
        params.flags = lib.TMSG_WORKER_THREAD if background else \
            lib.TMSG_WORKER_SHARED
        if "cuda" not in self.allocators:
            params.flags |= lib.TMSG_WORKER_HOST_ONLY
        if borrows:
            params.flags |= lib.TMSG_WORKER_BORROW
        if queue_depth is not None:
            params.field_mask |= lib.TMSG_WORKER_PARAM_QUEUE_DEPTH
            params.queue_depth = count(queue_depth, "queue_depth")
        self.queues = live  # of endpoints that do not say it themselves
        self.waits_for_room = False  # its publisher does
        self.call_flags = 0  # of all its calls
        if live:
            params.field_mask |= lib.TMSG_WORKER_PARAM_SEND_QUEUE
            params.send_queue = live_queue()[0]
        if spin_us is not None:
            params.field_mask |= lib.TMSG_WORKER_PARAM_SPIN_US
            params.spin_us = count(spin_us, "spin_us")
        hub = lib.tmsgpy_hub_create()
        if hub == ffi.NULL:
            raise MemoryError
        self.hub = ffi.gc(hub, functools.partial(_free, generation()))
        keep = self._give(params)
        worker_p = ffi.new("tmsg_worker_t **")
        check(lib.tmsg_worker_create(context.pointer, params, worker_p))
        del keep
        lib.tmsgpy_hub_own(self.hub, worker_p[0])
        self.spin_us = 50 if spin_us is None else params.spin_us
        self.worker = worker_p[0]
        self.number = address(self.hub)
        _hubs[self.number] = self
        self.generation = generation()
        self.pending: List[Any] = []  # operations that go on
        self.endpoints: Dict[int, Any] = {}  # by address
        self.ended: List[int] = []  # of those, to be destroyed
        self.kind: Any = None  # makes those that come in, of (hub, number)
        self._events = lib.tmsgpy_hub_events(self.hub)  # how many there were
        self._seen = 0  # of these
        self._buried = 0.0  # when that was done
        self.pulls = False  # somebody receives messages
        self.methods: List[Any] = []  # handlers, by the numbers C has for them
        self.offering = threading.Lock()  # who adds one
        self.long_handlers = 0  # how often one held the loop
        self._listens = False
        self.place = ""  # where it listens
        self.presence: Optional[Presence] = None  # of a listener's peers
        self._dialled = ""  # or whom it has connected to
        self.background = bool(background)
        self._awaits_offer = background is None
        self.loop: Optional[asyncio.AbstractEventLoop] = None
        self.server: Optional["weakref.ref[Any]"] = None  # of that loop's
        self.sends_again = False  # what was under way when it broke
        self.sessions: Optional[Sessions] = None  # of who comes back
        self.threads_move_it = False  # by calls that block
        self._starved = False  # a message has waited for memory
        self._counts = False  # calls
        self.followed: List[Any] = []  # what tells of its progress
        self._held: Dict[int, int] = {}  # how many wait for an endpoint's
        self.doomed: Set[int] = set()  # of those, to be destroyed
        # Addresses of those destroyed, and the peers of those that had ended.
        self._departed: Dict[int, str] = {}
        self._holding = threading.RLock()  # a finalizer may come in between
        self._closing = threading.RLock()  # an allocator may come in between
        self.life = Life(self.hub, self.worker)
        keep_in_mind(self.life)
        self._hooks: List[Hooks] = []  # of all interceptors
        self.around: List[Hooks] = []  # of those that serve, and are around
        weakref.finalize(self, _end, self.hub, self.generation, self.pending,
                         self.allocators, self._hooks, self.life)
        for interceptor in everywhere:
            self.intercept(interceptor, lib.TMSG_SIDE_CALLER)

    def _give(self, params: Any) -> List[Any]:
        """The allocators, for the worker: what must live until it has them."""
        keep = []
        for kind, allocator in self.allocators.items():
            what = "" if kind == "host" else "device_"
            table = ffi.new(f"tmsg_{what}allocator_t *")
            table.alloc = ffi.addressof(lib, f"tmsgpy_{what}alloc")
            table.release = ffi.addressof(lib, f"tmsgpy_{what}dealloc")
            table.arg = lib.tmsgpy_hub_asker(
                self.hub, kind != "host", ffi.cast("void *", id(allocator)))
            setattr(params, f"{what}allocator", table)
            params.field_mask |= getattr(
                lib, f"TMSG_WORKER_PARAM_{what.upper()}ALLOCATOR")
            keep.append(table)
        if keep:
            params.field_mask |= lib.TMSG_WORKER_PARAM_ON_REFUSED
            params.on_refused = ffi.addressof(lib, "tmsgpy_on_refused")
            params.on_refused_arg = self.hub
        return keep

    def look_for_refused(self, endpoint: int) -> None:
        """Raises what became of a message of that endpoint, or of any (0), that
        an allocator gave no memory."""
        if not self.allocators:
            return
        refused = ffi.new("tmsgpy_refused_t *")
        if not lib.tmsgpy_hub_refused(
                self.hub, ffi.cast("tmsg_endpoint_t *", endpoint), refused):
            return
        cause = None
        for one in self.allocators.values():
            cause, one.failure = one.failure or cause, None
        raise error_of(refused.status, text(refused.words),
                       self.peer(endpoint) if endpoint else None) from cause

    def receive_into(self, endpoint: int, posted: Posted, slice_ms: int,
                     spin_us: int) -> Any:
        """The parts of a message; None, or False or True where it is on its
        way, or not there."""
        try:
            parts = hot.recv_into(self.number, endpoint, posted.map, slice_ms,
                                  spin_us)
        except Error:
            self.look_for_refused(endpoint)
            raise
        if parts is None:
            self.look_for_refused(endpoint)
        elif isinstance(parts, tuple) and len(parts) == 3:
            raise occupied(*parts)
        return parts

    def move_for(self, busy: Error) -> None:
        """Moves what may still write to a buffer, a little; raises the error
        where that is not why."""
        if busy._writer is None:
            raise busy
        for hub in self, _hubs.get(busy._writer):
            if hub is None or hub.closed:
                continue
            hot.reap(hub.pending)
            if hub.loop is None and not hub.background:
                hot.rest(hub.number, 1)
            else:
                hub._move()

    def _claimed(self, begin: Callable[[], Any]) -> Any:
        """The operation that `begin` makes, with buffers. Raises Busy where one
        of them is not free."""
        op = begin()
        if isinstance(op, tuple):
            writer = _hubs.get(op[2])
            if writer is not None:  # what it did is over, and not yet dropped
                hot.reap(writer.pending)
                op = begin()
        if isinstance(op, tuple):
            raise occupied(*op)
        return op

    def enter(self) -> None:
        """To be followed by lib.tmsgpy_hub_leave(self.hub)."""
        check_process(self.generation)
        if not lib.tmsgpy_hub_enter(self.hub):
            raise error_of(Status.CLOSED, "it was closed here")

    def leave(self) -> None:
        lib.tmsgpy_hub_leave(self.hub)

    def note_long(self, method: str) -> None:
        """Counts a handler that holds the loop, which the library cannot see."""
        self.enter()
        try:
            lib.tmsg_metrics_note_long(self.worker, method.encode())
        finally:
            self.leave()
        self.long_handlers += 1

    @property
    def closed(self) -> bool:
        return bool(lib.tmsgpy_hub_is_closed(self.hub))

    def destroy(self) -> None:
        """At once. What waits on it in other threads ends with Closed."""
        if self.generation == generation():
            self.hurry()
            self._end_presence()
            with self._closing:
                lib.tmsgpy_hub_close(self.hub)
                hot.reap(self.pending)
                self.endpoints.clear()

    def _end_presence(self) -> None:
        presence = self.presence
        if presence is not None:
            with self._holding:
                presence.end()
            presence.tell(self)

    def hurry(self) -> None:
        """Calls that are not answered end, and with them a server's drain."""
        if self.methods:
            try:
                self.enter()
            except Error:
                return
            try:
                lib.tmsgpy_hub_drain(self.hub, 0)
            finally:
                self.leave()

    # Connections

    def connect(self, url: str, how: Dialling) -> int:
        params = with_tls_of(self._context_tls, url, how).params()
        endpoint_p = ffi.new("tmsg_endpoint_t **")
        self.enter()
        try:
            with _in_words_of_python():
                check(lib.tmsg_endpoint_connect(self.worker, utf8("URL", url),
                                                params, endpoint_p))
        finally:
            self.leave()
        self._dialled = url
        self.sends_again = how.kept_ms is not None
        if self.sends_again:
            lib.tmsgpy_hub_note_sessions(self.hub, endpoint_p[0])
        self.life.numbers.add(address(endpoint_p[0]))
        return address(endpoint_p[0])

    def listen(self, url: str, how: Admission) -> Tuple[Any, str]:
        params = with_tls_of(self._context_tls, url, how).params()
        params.field_mask |= lib.TMSG_LISTENER_PARAM_ON_ACCEPT
        params.on_accept = ffi.addressof(lib, "tmsgpy_on_accept")
        params.on_accept_arg = self.hub
        listener_p = ffi.new("tmsg_listener_t **")
        self._listens = True
        self.sends_again = how.kept_ms is not None
        self.enter()
        try:
            with _in_words_of_python():
                check(lib.tmsg_listener_create(self.worker, utf8("URL", url),
                                               params, listener_p))
            self.place = text(lib.tmsg_listener_url(listener_p[0]))
            note_door(self)
            return listener_p[0], self.place
        finally:
            self.leave()

    def tell_sessions(self, endpoint: Any, on_session: OnSession) -> None:
        """From now on, of the endpoint that was dialled."""
        self.sessions = ThreadSessions(self.hub, endpoint, on_session)

    def stop_listening(self, listener: Any) -> None:
        self.enter()
        try:
            lib.tmsg_listener_destroy(listener)
        finally:
            self.leave()

    def operation(self, begin: Any, endpoint: int) -> Any:
        """That of tmsg_endpoint_ready() or begin_close()."""
        request_p = ffi.new("tmsg_request_t **")
        with self.holding(endpoint):
            check(begin(ffi.cast("tmsg_endpoint_t *", endpoint), request_p),
                  self.peer(endpoint))
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
            with self._holding:
                if self._listens and endpoint not in self.endpoints and \
                        endpoint not in self._held:
                    return self._departed.get(endpoint) or "a closed endpoint"
                return text(lib.tmsg_endpoint_peer(
                    ffi.cast("tmsg_endpoint_t *", endpoint)))
        finally:
            self.leave()

    def principal(self, endpoint: int) -> Optional[str]:
        """Whose key the peer has proved. Of one that nobody destroys now."""
        try:
            self.enter()
        except Error:
            return None
        try:
            name = lib.tmsg_endpoint_principal(
                ffi.cast("tmsg_endpoint_t *", endpoint))
            return None if name == ffi.NULL else text(name)
        finally:
            self.leave()

    def describe(self, endpoint: int) -> Dict[str, Any]:
        text_p = ffi.new("char **")
        with self.holding(endpoint):
            check(lib.tmsg_endpoint_describe(
                ffi.cast("tmsg_endpoint_t *", endpoint), text_p))
        description: Dict[str, Any] = json.loads(take_text(text_p))
        return description

    def text_of(self, tell: Callable[..., int], it: Any) -> str:
        """What a function of the library tells of `it`, which this enters."""
        text_p = ffi.new("char **")
        self.enter()
        try:
            check(tell(it, text_p))
        finally:
            self.leave()
        return take_text(text_p)

    def describe_listener(self, listener: Any) -> Dict[str, Any]:
        description: Dict[str, Any] = json.loads(
            self.text_of(lib.tmsg_listener_describe, listener))
        return description

    def status(self, endpoint: int) -> int:
        with self.holding(endpoint):
            return int(lib.tmsg_endpoint_status(
                ffi.cast("tmsg_endpoint_t *", endpoint)))

    def words(self, endpoint: int) -> str:
        """Those to its status; "" while all is well."""
        with self.holding(endpoint):
            return text(lib.tmsg_endpoint_error(
                ffi.cast("tmsg_endpoint_t *", endpoint)))

    def news(self) -> None:
        """Takes note of peers that came in and of those that have ended."""
        event = ffi.new("tmsgpy_event_t *")
        if self.sessions is not None:
            self.sessions.look()
        presence = self.presence
        with self._holding:
            while lib.tmsgpy_hub_event(self.hub, event):
                number = address(event.endpoint)
                if event.accepted:  # at the address of another that is gone
                    self.ended = [one for one in self.ended if one != number]
                    self._departed.pop(number, None)
                    self.endpoints[number] = self.kind(self, number)
                    self.life.numbers.add(number)
                    if presence is not None:
                        presence.came(self.endpoints[number])
                elif number in self.endpoints:
                    self.ended.append(number)
                    if presence is not None:
                        self._went(presence, number)
        if presence is not None:
            presence.tell(self)

    def _went(self, presence: Presence, number: int) -> None:
        """With _holding: nobody destroys it now."""
        if lib.tmsgpy_hub_enter(self.hub):
            try:
                presence.went(self.endpoints[number], *end_of(number))
            finally:
                lib.tmsgpy_hub_leave(self.hub)

    def has_left(self, endpoint: Any) -> None:
        """One that came in was closed by this side, and is taken out."""
        presence = self.presence
        if presence is not None:
            with self._holding:
                presence.went(endpoint)
            presence.tell(self)
            if presence.followed:
                lib.tmsgpy_hub_nudge(self.hub)

    def watch_peers(self) -> Watch:
        """To be followed by unwatch_peers()."""
        assert self.presence is not None
        self.tidy()
        with self._holding:
            return self.presence.watch()

    def unwatch_peers(self, watch: Watch) -> None:
        assert self.presence is not None
        with self._holding:
            self.presence.unwatch(watch)

    def hear_of_peers(self, watch: Watch) -> None:
        """Blocks until something may have happened to a peer."""
        check_process(self.generation)
        seen = self._events[0]
        self.tidy()
        if self.loop is not None:
            self.moved_by_thread()
        if watch.events or self.closed:
            return
        if self.background:
            lib.tmsgpy_hub_await_events(self.hub, seen, SLICE_MS)
        else:
            hot.rest(self.number, SLICE_MS)
        park_at_exit()

    def sender(self, number: int, over: bool = False) -> Any:
        """The peer that a message is of; None: it is gone. The thread that moves
        things, the library's own or another that waits here, may have queued it
        before it told of the peer, which it is about to; to wait for that is no
        use where the call is `over`, and hardly any for a peer that has been
        destroyed here."""
        there = self.endpoints.get(number)
        if there is not None:
            return there
        patience = _SOON_S if number in self._departed else _TOLD_S
        if over or (self.loop is not None and not self.background):
            patience = 0.0
        deadline = time.monotonic() + patience
        while number not in self.endpoints:
            self.news()
            if number in self.endpoints or time.monotonic() >= deadline:
                break
            if not self.background:
                self._move()  # who was about to has left
            time.sleep(0.0002)
        return self.endpoints.get(number)

    def _move(self) -> None:
        """Outside of a wait."""
        if lib.tmsgpy_hub_enter(self.hub):
            try:
                lib.tmsg_worker_progress(self.worker)
            finally:
                lib.tmsgpy_hub_leave(self.hub)

    def look_for_ended(self) -> None:
        """So that who has gone is not kept while messages of others come; costs
        next to nothing while all stay. Not between a pull and sender()."""
        if self._events[0] != self._seen or (
                self.ended and time.monotonic() - self._buried > _AGAIN_S):
            self.tidy()

    def tidy(self) -> None:
        """Takes note of peers, and destroys the endpoints that are over."""
        self._seen = self._events[0]
        self.news()
        self.bury()

    def _is_over(self, endpoint: int) -> bool:
        """Of one that has ended: whether no message of it waits to be pulled, or
        nobody pulls any. One that somebody receives from is not: the end is for
        them to see. Inside, with _holding."""
        return endpoint not in self._held and (
            not self.pulls or not lib.tmsgpy_hub_waits(
                self.hub, ffi.cast("tmsg_endpoint_t *", endpoint)))

    def bury(self) -> None:
        """Destroys the endpoints that have ended and are over."""
        if not self.ended or not lib.tmsgpy_hub_enter(self.hub):
            return
        gone = []
        try:
            with self._holding:
                ended, self.ended = self.ended, []
                for number in ended:
                    endpoint: Any = self.endpoints.get(number)
                    if endpoint is not None and not self._is_over(number):
                        self.ended.append(number)
                    elif self.take_out(number, endpoint):
                        end = end_of(number)
                        endpoint._over(end)  # of all, before one is destroyed
                        gone.append((number, end.peer))
        finally:
            lib.tmsgpy_hub_leave(self.hub)
        for number, peer in gone:
            self.destroy_endpoint(number, peer)
        self._buried = time.monotonic()

    def take_out(self, number: int, endpoint: Any) -> bool:
        """True: it is the caller's to destroy."""
        with self._holding:
            there = endpoint is not None and \
                self.endpoints.get(number) is endpoint
            if there:
                del self.endpoints[number]
            return there

    def hold(self, endpoint: int) -> bool:
        """Somebody waits for messages of it. True: it came in, and is not
        destroyed before let_go(), which is to follow. Raises Closed where it
        has been."""
        if endpoint == 0 or not self._listens:
            return False
        with self._holding:
            if endpoint not in self.endpoints:
                raise error_of(Status.CLOSED, "the endpoint is closed")
            self._held[endpoint] = self._held.get(endpoint, 0) + 1
        return True

    def let_go(self, endpoint: int) -> None:
        with self._holding:
            self._held[endpoint] -= 1
            if self._held[endpoint] > 0:
                return
            del self._held[endpoint]
            gone = endpoint in self.doomed
            self.doomed.discard(endpoint)
            ended = endpoint in self.ended
        if gone:
            self.destroy_endpoint(endpoint)
        elif ended:
            self.bury()

    @contextlib.contextmanager
    def holding(self, endpoint: int) -> Iterator[None]:
        """Around a call on it: nobody destroys it, or the worker, meanwhile.
        Raises Closed where they have."""
        held = self.hold(endpoint)
        try:
            self.enter()
            try:
                yield
            finally:
                self.leave()
        finally:
            if held:
                self.let_go(endpoint)

    def look_alive(self, endpoint: int) -> None:
        """Raises Closed where it was closed here while it was waited for."""
        if endpoint in self.doomed:
            raise error_of(Status.CLOSED, "the endpoint is closed")

    def destroy_endpoint(self, endpoint: int, peer: str = "") -> None:
        with self._holding:
            if endpoint in self._held:
                self.doomed.add(endpoint)
                return
            self._departed.pop(endpoint, None)
            self._departed[endpoint] = peer
            if len(self._departed) > _DEPARTED_MAX:
                del self._departed[next(iter(self._departed))]
            self.life.numbers.discard(endpoint)
        try:
            self.enter()
        except Error:
            return
        try:
            pointer = ffi.cast("tmsg_endpoint_t *", endpoint)
            lib.tmsg_endpoint_destroy(pointer)
            if self.allocators:
                refused = ffi.new("tmsgpy_refused_t *")
                while lib.tmsgpy_hub_refused(self.hub, pointer, refused):
                    pass
        finally:
            self.leave()

    # Messages

    def post(self, endpoint: int, data: Any, meta: Optional[Dict[str, Any]],
             flags: int, spin_us: int) -> Any:
        """Starts to send: None where that has ended, else the operation."""
        check_process(self.generation)
        # Asked there, too: a call costs more than all else here.
        held = self._listens and self.hold(endpoint)
        self.life.sent = True
        if self.sessions is not None:
            self.look_first()
        try:
            op = hot.send(self.number, endpoint, data, meta, flags, spin_us)
            if op is NotImplemented:
                op = _data.flattened(
                    lambda data, meta: hot.send(self.number, endpoint, data,
                                                meta, flags, spin_us),
                    data, meta)
        finally:
            if held:
                self.let_go(endpoint)
        if op is not None:
            self.pending.append(op)
        return op

    def post_queued(self, endpoint: int, data: Any,
                    meta: Optional[Dict[str, Any]], flags: int,
                    timeout: Optional[float]) -> None:
        """Sends copies of the arrays, and waits for nothing."""
        check_process(self.generation)
        timeout_ms = milliseconds(timeout)
        held = self._listens and self.hold(endpoint)
        self.life.sent = True
        try:
            _data.packed(lambda data, meta: hot.send_queued(
                self.number, endpoint, data, meta, flags, timeout_ms),
                data, meta)
        finally:
            if held:
                self.let_go(endpoint)

    def give_turn(self) -> None:
        """After what waits for nothing, where no thread moves messages."""
        if not self.background:
            self.moved_by_thread()
            hot.progress(self.number, 0)

    def set_queue(self, endpoint: int, params: Any) -> None:
        with self.holding(endpoint):
            check(lib.tmsg_endpoint_set_queue(
                ffi.cast("tmsg_endpoint_t *", endpoint),
                ffi.NULL if params is None else params), self.peer(endpoint))

    def late(self, op: Any, endpoint: int, timeout: Optional[float],
             what: str) -> Error:
        """Gives the operation up, with what is to be raised."""
        hot.cancel(self.number, op)
        peer = self.peer(endpoint)
        why = self.why_late(endpoint, what)
        return error_of(Status.TIMED_OUT,
                        f"{peer}: {what} took more than {timeout} s{why}", peer)

    def why_late(self, endpoint: int, what: str) -> str:
        """In words, as far as it can be told."""
        if endpoint and self.status(endpoint) == 0:
            if self.describe(endpoint)["unacknowledged_ms"] > 0:
                return "; its host does not acknowledge what is sent to it: " \
                    "a firewall or the network drops it"
            if what == "the send":
                return "; its application takes no messages, or keeps so " \
                    "many that its limit held_bytes is used up, or it does " \
                    "not run, or the network is slow"
        if what == "a message":
            return self.starvation() or "; the other side has sent none"
        return {"closing": WHY_NOT_CLOSED,
                "the end of the stream": "; its handler goes on, or the other "
                "side does not run"}.get(what, "")

    def outwait(self) -> None:
        """Nobody waits inside of what is closed: an operation on it ends with
        the call that its worker is in."""
        if self.closed:
            time.sleep(0.001)

    def starvation(self) -> str:
        """Why nothing comes, in words, where a message waits for memory."""
        if not lib.tmsgpy_hub_enter(self.hub):
            return ""
        try:
            if not lib.tmsg_worker_starves(self.worker):
                return ""
        finally:
            lib.tmsgpy_hub_leave(self.hub)
        return "; a message waits for memory: messages and requests that " \
            "are kept, by themselves or by one of their arrays, have used up " \
            "the limit held_bytes. Drop them, copy what you keep, or raise it " \
            "(Context(limits=...))"

    def tell_that_it_starves(self) -> None:
        """Once."""
        if not self._starved:
            words = self.starvation()
            if words:
                self._starved = True
                if not lines.says(logging.WARNING):
                    _log.warning("nothing is received%s", words)

    def look_first(self) -> None:
        """Of an endpoint that comes back, before something goes by it, where
        nothing was moved meanwhile: whether its connection has broken. What is
        handed over to one that has may have run, as far as anybody knows."""
        if self.background or not lib.tmsgpy_hub_enter(self.hub):
            return
        try:
            for _ in range(_LOOKS):
                if lib.tmsg_worker_progress(self.worker) <= 0:
                    break
        finally:
            lib.tmsgpy_hub_leave(self.hub)

    def moved_by_thread(self) -> None:
        """A call that blocks does, in another thread than its loop's."""
        if asyncio._get_running_loop() is not self.loop:
            self.threads_move_it = True

    def look_around(self, deadline: Deadline, asks: bool = False) -> None:
        """Of a call that waits, now and then: raises WouldBlock where it waits
        for the event loop that it is made in. `asks`: for a handler."""
        for progress in list(self.followed):
            progress.look()
        if self._dialled:
            look_at_own_loop(self._dialled, deadline.waited(), asks)

    def wait(self, op: Any, endpoint: int, timeout: Optional[float],
             what: str, asks: bool = False,
             deadline: Optional[Deadline] = None) -> None:
        """Blocks until the operation has ended, or gives it up. `asks`: it ends
        when a handler has run. `deadline`: of a timeout that runs already."""
        if deadline is None:
            deadline = Deadline(timeout)
        most_ms = _CLOSE_SLICE_MS if what == "closing" else SLICE_MS
        try:
            while not hot.wait(self.number, op,
                               min(most_ms, deadline.slice_ms())):
                if deadline.passed():
                    raise self.late(op, endpoint, timeout, what)
                self.look_around(deadline, asks)
                self.outwait()
        except BaseException:
            hot.cancel(self.number, op)
            raise
        hot.reap(self.pending)
        if self.closed:
            park_at_exit()
        if self.sessions is not None and self._events[0] != self._seen:
            self.tidy()
        hot.outcome(op, self.peer(endpoint))

    def _until(self, endpoint: int, timeout: Optional[float],
               look: Callable[[int, int], Any]) -> Any:
        """Blocks until `look`, which waits for so many milliseconds, has the
        parts of a message of the endpoint: these."""
        check_process(self.generation)
        # Mostly something comes in the first slice, and none is needed.
        deadline = None if timeout is None else Deadline(timeout)
        self.pulls = True
        if self.loop is not None:
            self.moved_by_thread()
        held = self._listens and self.hold(endpoint)
        try:
            while True:
                # It looks closer; mostly there is nothing to look at.
                if self.ended or self._events[0] != self._seen:
                    self.look_for_ended()
                parts = look(endpoint, SLICE_MS if deadline is None
                             else deadline.slice_ms())
                if self.pending:
                    hot.reap(self.pending)
                if parts is not None:
                    return parts
                if deadline is None:
                    deadline = Deadline(None, SLICE_MS)
                self.look_alive(endpoint)
                if deadline.passed():
                    raise error_of(Status.TIMED_OUT,
                                   f"no message in {timeout} s"
                                   f"{self.starvation()}")
                self.tell_that_it_starves()
                self.look_around(deadline)
        except Closed:
            park_at_exit()
            raise
        finally:
            if held:
                self.let_go(endpoint)

    def _receive(self, endpoint: int, slice_ms: int) -> Any:
        try:
            parts = hot.recv(self.number, endpoint, slice_ms, 0)
        except Error:
            self.look_for_refused(endpoint)
            raise
        if parts is None:
            self.look_for_refused(endpoint)
            if endpoint == 0:
                self.bury()
        return parts

    def pull(self, endpoint: int, timeout: Optional[float]) -> Any:
        """Blocks until there is a message: its parts."""
        return self._until(endpoint, timeout, self._receive)

    def pull_into(self, endpoint: int, posted: Posted,
                  timeout: Optional[float]) -> Any:
        """The same, with buffers for it."""
        def look(endpoint: int, slice_ms: int) -> Any:
            try:
                parts = self.receive_into(endpoint, posted, slice_ms, 0)
            except Busy as busy:
                self.move_for(busy)
                time.sleep(min(0.001, slice_ms / 1000))
                return None
            if isinstance(parts, tuple):
                return posted.placed(parts)
            posted.lent = parts is False
            if parts:
                posted.renew()
                hot.rest(self.number, min(1, slice_ms))
            return None

        return self._until(endpoint, timeout, look)

    # Calls

    def intercept(self, interceptor: Any, side: int) -> None:
        hooks = Hooks(interceptor)
        self.enter()
        try:
            self._hooks.append(hooks)
            check(lib.tmsgpy_hub_intercept(self.hub, side, hooks.mask,
                                           ffi.cast("void *", id(hooks))))
        except BaseException:
            self._hooks.remove(hooks)
            raise
        finally:
            self.leave()
        if side == lib.TMSG_SIDE_SERVER and hooks.is_around:
            self.around.append(hooks)

    def count_calls(self) -> None:
        """From now on, for metrics."""
        self.enter()
        try:
            check(lib.tmsg_metrics_start(self.worker))
        finally:
            self.leave()
        self._counts = True

    def _ask(self, endpoint: int, method: str, begin: Callable[..., Any],
             data: Any, meta: Optional[Dict[str, Any]], *how: int) -> Any:
        """What `begin`, of the extension, makes of a method's name and what goes
        to it. Where it raises nothing has run."""
        check_process(self.generation)
        if not isinstance(method, str):
            raise TypeError(f"a method's name is str, not {type(method)}")
        if "\0" in method:
            raise ValueError("a method's name has no NUL")
        if self.sessions is not None:
            self.look_first()
        held = False
        try:
            if not self._counts:
                self.count_calls()
            held = self.hold(endpoint)
            return _data.packed(
                lambda data, meta: begin(self.number, endpoint, method, data,
                                         meta, *how),
                {} if data is None else data, meta)
        except Error as error:
            error.may_have_run = False
            raise
        finally:
            if held:
                self.let_go(endpoint)

    def call(self, endpoint: int, method: str, data: Any,
             meta: Optional[Dict[str, Any]], timeout: Optional[float],
             flags: int, attempts: int, spin_us: int,
             posted: Any = None) -> Any:
        """Starts a call: its operation."""
        if attempts != 1:
            attempts = count(attempts, "attempts", 1, _MOST_ATTEMPTS)
        op = self._claimed(lambda: self._ask(
            endpoint, method, hot.call, data, meta, milliseconds(timeout),
            flags | self.call_flags, attempts, spin_us, posted))
        if not hot.ended(op):
            self.pending.append(op)
        return op

    def fetch(self, endpoint: int, *how: Any) -> Any:
        """Starts a fetch: its operation."""
        check_process(self.generation)
        if self.sessions is not None:
            self.look_first()
        if not self._counts:
            self.count_calls()
        held = self.hold(endpoint)
        try:
            op = self._claimed(lambda: hot.fetch(self.number, endpoint, *how))
        finally:
            if held:
                self.let_go(endpoint)
        if not hot.ended(op):
            self.pending.append(op)
        return op

    def offer(self, data: Any, meta: Optional[Dict[str, Any]],
              *how: Any) -> Tuple[Any, bytes]:
        """An offer, and its key."""
        check_process(self.generation)
        if self.closed:
            raise error_of(Status.CLOSED,
                           f"the {'listener' if self._listens else 'endpoint'} "
                           "was closed here")
        offer, key = _data.packed(
            lambda data, meta: hot.offer(self.number, data, meta, *how),
            data, meta)
        if self._awaits_offer:
            self._go_to_background()
        return offer, key

    def bell(self, endpoint: int, data: Any, meta: Optional[Dict[str, Any]],
             *how: Any) -> Any:
        """A bell of these arrays. Who waits for a stream may be who drives the
        worker otherwise."""
        bell = _data.packed(
            lambda data, meta: hot.bell(self.number, endpoint, data, meta,
                                        *how), data, meta)
        if not self.background:
            self._go_to_background()
        return bell

    def _go_to_background(self) -> None:
        self.enter()
        try:
            check(lib.tmsg_worker_start_thread(self.worker))
        finally:
            self.leave()
        self._awaits_offer = False
        self.background = True

    def open_stream(self, endpoint: int, method: str, data: Any,
                    meta: Optional[Dict[str, Any]], timeout: Optional[float],
                    queue: int) -> Tuple[Any, int]:
        """A stream: its owner, and its number."""
        queue = count(queue, "queue", 1, _MOST_QUEUE)
        owner, number = self._ask(endpoint, method, hot.stream_open, data, meta,
                                  milliseconds(timeout), queue)
        return owner, number
