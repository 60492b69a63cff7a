# SPDX-License-Identifier: BSD-3-Clause
"""What servers of both kinds have in common."""

from __future__ import annotations

import inspect
import json
import logging
import threading
from typing import Any, Callable, ContextManager, Dict, Generic, Mapping, Optional, Tuple, \
    TypeVar

from . import _data
from ._count import count
from ._hub import Hub, Meta, merge_meta
from ._intercept import everywhere, within, words_of
from ._lib import ffi, hot, lib, utf8
from ._message import BaseMessage, Like, _converter
from ._metrics import CallMetrics, metrics_text, served
from ._often import often
from ._stays import Stays
from ._stream import BaseStream, streams
from ._time import milliseconds
from ._told import Reply, call, teller
from .errors import CallError, Closed, Error, Status, check, \
    error_of

H = TypeVar("H", bound=Hub)
F = TypeVar("F", bound=Callable[[Any], Any])

_log = logging.getLogger("tensormsg")

# Exit codes of run(), as of `tensormsg serve`.
ANSWERED, CUT = 0, 8
GOODBYE_S = 3.0  # for the goodbyes of peers, at least

# Of a task that is over: nobody waits for its answer.
_OVER = (Status.CANCELED, Status.TIMED_OUT, Status.PEER_LOST,
         Status.UNAVAILABLE, Status.CLOSED)
# Of a message that its receiver, or this machine's memory, has no room for.
_UNSENDABLE = (Status.LIMIT_EXCEEDED, Status.UNSUPPORTED, Status.NO_MEMORY)


def task_is_over(task: Any) -> bool:
    """Whether nobody waits for its answer."""
    return hot.task_state(task)[0] not in (0, Status.ALREADY_EXISTS)


class Health(str):
    """How a server, or a method, is, in a word: "SERVING", "NOT_SERVING",
    "DRAINING", "STALLED", "NOT_FOUND" or "UNKNOWN"; with figures of the moment,
    which are 0 where an older server does not tell them."""

    __slots__ = {
        "running": "Calls whose handlers run, or are still to answer.",
        "waiting": "Calls whose handlers have not begun.",
        "held": "Calls that were answered, and of which the request or an array "
                "is still there: they count against the limit held_bytes.",
        "stalls": "How often calls of a method waited and none began for a "
                  "second.",
        "why": 'What a STALLED server does; "" else.'}

    running: int
    waiting: int
    held: int
    stalls: int
    why: str

    def __new__(cls, word: str, load: Mapping[str, Any] = {}) -> "Health":
        made = super().__new__(cls, word)
        for name in ("running", "waiting", "held", "stalls"):
            figure = load.get(name)
            setattr(made, name, figure if type(figure) is int else 0)
        why = load.get("why")
        made.why = why if isinstance(why, str) else ""
        return made

    def __getnewargs__(self) -> Tuple[Any, ...]:
        return str(self), {name: getattr(self, name)
                           for name in Health.__slots__}


class Request(BaseMessage):
    """A call as its handler sees it: a mapping of names to arrays like a
    message, with `meta`. Its memory is held until the last array of it is gone,
    and counts against the limit held_bytes: copy what you keep, or take it
    after apart(), which copies all."""

    __slots__ = ("_method", "_principal", "_task", "__weakref__")

    def __init__(self, parts: Any, peer: Any,
                 convert: Optional[Callable[[Any], Any]], method: str,
                 principal: Optional[str]) -> None:
        super().__init__(parts, peer, convert)
        self._method = method
        self._principal = principal
        self._task = parts[1]

    def _own(self) -> Dict[str, Any]:
        return {"_method": self._method, "_principal": self._principal,
                "_task": None}

    def _called(self) -> str:
        return f"request '{_data.shortened(self._method)}'"

    @property
    def method(self) -> str:
        """The name that was called."""
        return self._method

    @property
    def peer(self) -> Any:
        """The endpoint of who called; None where it is gone."""
        return self._peer

    @property
    def principal(self) -> Optional[str]:
        """Whose key the caller has proved; None where none was asked for."""
        return self._principal

    @property
    def remaining(self) -> Optional[float]:
        """Seconds that are left of the caller's time; None: it set no limit."""
        left = -1 if self._task is None else hot.task_state(self._task)[1]
        return None if left < 0 else left / 1000

    @property
    def over(self) -> bool:
        """Whether nobody waits for an answer: canceled, its time is up, the
        caller is gone, or the server was closed; or it was pickled."""
        return self._task is None or task_is_over(self._task)


def _words_of(text: str) -> str:
    """In one line, as it can travel."""
    line = " ".join(text.replace("\0", " ").split())
    return line.encode("utf-8", "replace").decode()


class BaseServer(Stays, Generic[H]):
    """Answers the calls of a listener's peers, or of one peer."""

    _instead = "send the url of its listener, and connect() there"

    _kinds: Tuple[Any, Any]  # what its face has as a stream, and as a message

    def __init__(self, hub: H, sender: Callable[[int, bool], Any], like: Like,
                 concurrency: int, queue: int, ready: bool) -> None:
        self._hub = hub
        self._sender = sender
        self._owner: Callable[[], Any] = lambda: None  # whose it is
        self._ready = bool(ready)
        self._convert = _converter(like)
        self._draining = threading.Lock()
        self._closed = False
        params = ffi.new("tmsg_server_params_t *")
        params.field_mask = lib.TMSG_SERVER_PARAM_CONCURRENCY | \
            lib.TMSG_SERVER_PARAM_QUEUE | lib.TMSG_SERVER_PARAM_FLAGS
        params.flags = 0 if ready else lib.TMSG_SERVER_NOT_READY
        params.concurrency = count(concurrency, "concurrency", 1)
        params.queue = count(queue, "queue")
        hub.enter()
        try:
            check(lib.tmsgpy_hub_serve(hub.hub, params))
        finally:
            hub.leave()
        hub.count_calls()
        for interceptor in everywhere:
            self.intercept(interceptor)

    @property
    def ready(self) -> bool:
        """Whether the server says that it is ready: its health is SERVING, or
        NOT_SERVING. That is for those who ask, and refuses no call. Set it when
        a model is loaded, for example, after serve(ready=False)."""
        return self._ready

    @ready.setter
    def ready(self, ready: bool) -> None:
        hub = self._hub
        hub.enter()
        try:
            check(lib.tmsgpy_hub_set_health(
                hub.hub, lib.TMSG_HEALTH_SERVING if ready
                else lib.TMSG_HEALTH_NOT_SERVING))
        finally:
            hub.leave()
        self._ready = bool(ready)

    def intercept(self, interceptor: Any) -> None:
        """Has calls and streams that come from now on seen by an Interceptor,
        those of the library's own methods (tensormsg.health, ...) included. Of
        several the first is the outermost; there may be 8. They stay as long as
        the listener."""
        self._hub.intercept(interceptor, lib.TMSG_SIDE_SERVER)

    def metrics(self) -> Dict[str, CallMetrics]:
        """What was counted of each method since serve(), by name; "" stands for
        all names that callers ask for and nobody serves. Counts stay when a
        connection ends, and go with the listener."""
        return served(self._hub)

    def metrics_text(self) -> str:
        """The same, and what was called by the connections of this listener or
        endpoint, in the text format that Prometheus scrapes."""
        return metrics_text(self._hub)

    def method(self, name: str, *, signature: Optional[str] = None,
               description: Optional[str] = None,
               concurrency: Optional[int] = None, queue: Optional[int] = None,
               principals: Optional[str] = None,
               idempotent: bool = False,
               stream: Optional[bool] = None) -> Callable[[F], F]:
        """Decorates a handler: a function of a Request that returns a dict as
        send() takes it, None for an empty one, or a Reply, to give metadata or
        to learn when the arrays may be changed; or, for a stream, a generator of a ServerStream.

        `stream`: it serves streams. A generator always does: what it yields is
        sent, and the stream ends when it does. Another function that does may
        receive and send on its ServerStream; what it returns, unless None, is
        sent last.

        `signature`: what it takes and gives, "(image: uint8[b,h,w,3]) ->
        (scores: float32[b,1000])" (docs/reference/signatures.md); calls and
        replies that
        are not so fail and say why. `description`: a line for people, the
        first of the docstring unless said. `concurrency`: how many may run at
        once, `queue`: how many more may wait. `principals`: names of who may
        call it. `idempotent`: to run it twice is as once.

        A handler fails its call with CallError; another exception is logged,
        and its caller gets Internal with its type and words. Raises
        InvalidParam (a signature, with line and column), AlreadyExists."""
        if not isinstance(name, str):
            raise TypeError('@server.method("name"): the name that is called '
                            f"comes first, not {name!r}")

        def decorate(handler: F) -> F:
            self._offer(name, handler, signature, description, concurrency,
                        queue, principals, idempotent, stream)
            return handler
        return decorate

    def _offer(self, name: str, handler: Callable[[Request], Any],
               signature: Optional[str], description: Optional[str],
               concurrency: Optional[int], queue: Optional[int],
               principals: Optional[str], idempotent: bool,
               stream: Optional[bool]) -> None:
        self._refuse_handler(handler)
        if stream is None:
            stream = streams(handler)
        elif not stream and streams(handler):
            raise TypeError("a generator serves streams, not calls")
        if description is None:
            lines = (inspect.getdoc(handler) or "").splitlines()
            description = _words_of(lines[0])[:250] if lines else None
        called = utf8("method", name)
        params = ffi.new("tmsg_method_params_t *")
        kept = []
        for field, value, bit in (
                ("signature", signature, lib.TMSG_METHOD_PARAM_SIGNATURE),
                ("description", description,
                 lib.TMSG_METHOD_PARAM_DESCRIPTION),
                ("principals", principals, lib.TMSG_METHOD_PARAM_PRINCIPALS)):
            if value is not None:
                kept.append(ffi.new("char[]", utf8(field, value)))
                setattr(params, field, kept[-1])
                params.field_mask |= bit
        for field, number, bit in (
                ("concurrency", concurrency,
                 lib.TMSG_METHOD_PARAM_CONCURRENCY),
                ("queue", queue, lib.TMSG_METHOD_PARAM_QUEUE)):
            if number is not None:
                setattr(params, field, number)
                params.field_mask |= bit
        if idempotent:
            params.field_mask |= lib.TMSG_METHOD_PARAM_FLAGS
            params.flags = lib.TMSG_METHOD_IDEMPOTENT
        hub = self._hub
        with hub.offering:
            index = len(hub.methods)
            hub.methods.append((name, self._offered(handler)))
            hub.enter()
            try:
                check(lib.tmsgpy_hub_offer(hub.hub, called, index, stream,
                                           params))
            except BaseException:
                hub.methods[index] = None
                raise
            finally:
                hub.leave()

    def _offered(self, handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """What is called for it."""
        return handler

    def _refuse_handler(self, handler: Any) -> None:
        if not callable(handler):
            raise TypeError(f"a handler is a function, not {handler!r}")

    def _take(self, timeout_ms: int, spin_us: int) -> Any:
        """What hot.task() gives. A call that there is no memory to look at fails
        alone, as nobody holds it."""
        while True:
            try:
                return hot.task(self._hub.number, timeout_ms, spin_us)
            except Exception:
                if often.may("a call that came in was dropped"):
                    _log.exception("a call that came in was dropped")

    def _request(self, work: Any) -> Any:
        """(handler, request or stream) of what _take() gave."""
        index, parts, principal, number = work
        name, handler = self._hub.methods[index]
        if not number:
            peer = self._sender(parts[3], task_is_over(parts[1]))
            return handler, Request(parts, peer, self._convert, name,
                                    principal)
        kind, message = self._kinds
        state = hot.stream_state(parts[1])[0]
        peer = self._sender(parts[3], state != lib.TMSG_IN_PROGRESS)
        stream = kind(self._hub, parts[1], number, parts[3], peer, message,
                      self._convert, name)
        stream._opener = False
        stream._opening = message(parts, peer, self._convert)
        stream._who = principal
        return handler, stream

    def _within(self, request: Any) -> ContextManager[None]:
        """What its handler runs in."""
        return within(self._hub.around, request._owner if
                      isinstance(request, BaseStream) else request._task)

    def _answer(self, request: Request, data: Any) -> None:
        """Whatever is wrong with the reply is told to the caller."""
        told = given = None
        flags = 0
        if isinstance(data, Reply):
            if data.on_release is not None:
                told = self._teller(data.on_release)
            flags = lib.TMSG_SEND_LEND if data.lend else 0
            given, data = data.meta, data.data
        if data is None:
            data = {}
        number, task = self._hub.number, request._task
        self._hub.life.sent = True
        try:
            outcome = _data.packed(
                lambda data, meta: hot.answer(number, task, data, meta, told,
                                              flags),
                data, merge_meta(given, {}) if given else None)
        except Exception as error:
            self._fail(request, error)
            if told is not None:
                call(told)
            return
        self._tell(request, outcome)
        if told is not None and outcome[0] < 0:
            call(told)

    @staticmethod
    def _to_send(data: Any) -> Tuple[Any, Optional[Meta], bool]:
        """What a handler of a stream yielded, or returned, its metadata, and
        whether it is lent."""
        if not isinstance(data, Reply):
            return data, None, False
        if data.on_release is not None:
            raise TypeError("on_release is for the reply of a call: arrays "
                            "that a generator yields may be changed when it "
                            "goes on")
        return data.data, data.meta, bool(data.lend)

    def _teller(self, on_release: Callable[[], object]
                ) -> Callable[[], object]:
        """What is called in the thread that tells."""
        teller.start()
        return on_release

    def _fail(self, request: Any, error: BaseException) -> None:
        if isinstance(error, CallError):
            try:
                if not -1 << 31 <= error.code < 1 << 31:
                    raise OverflowError(f"a code of {error.code}")
                if not -1 << 31 <= error.status < 0:
                    raise ValueError(f"{error.status} is not a failure")
                self._refuse(request, error.status, error.code, error.reason,
                             error.details or {})
                return
            except Exception as another:
                error = another
        in_vain = self._in_vain(request, error)
        if self._is_unsent(request, error):
            assert isinstance(error, Error)
            reason = error.reason
            if not in_vain and often.may(
                    f"method '{request.method}': a message was not sent"):
                _log.error("method '%s': a message was not sent: %s",
                           request.method, reason)
            here = f"{request._name()}: "  # whom these words are for
            self._refuse(request, error.status, 0, reason[len(here):]
                         if reason.startswith(here) else reason, {})
            return
        if not in_vain and often.may(f"method '{request.method}' failed"):
            _log.error("method '%s' failed", request.method, exc_info=error)
        self._refuse(request, Status.INTERNAL, 0,
                     f"{type(error).__name__}: {words_of(error)}", {})

    def _is_unsent(self, request: Any, error: BaseException) -> bool:
        """Whether it tells of a message of that stream that could not be sent,
        which then ends as a call does whose reply cannot be."""
        return isinstance(request, BaseStream) and \
            isinstance(error, Error) and error.status in _UNSENDABLE and \
            error._unsent_on == request._number

    def _in_vain(self, request: Any, error: BaseException) -> bool:
        """Whether nobody waits for the answer, of which that error may tell: what
        a handler waits for on a connection ends before the calls and streams
        on it are over."""
        if request.over or self._hub.closed or (
                isinstance(request, BaseStream) and request._lost):
            return True
        peer = request.peer
        return isinstance(error, Error) and error.status in _OVER and \
            (peer is None or peer.closed)

    def _refuse(self, request: Any, status: int, code: int, words: str,
                details: Any) -> None:
        """Ends a stream, too, with 0 in order."""
        refuse = hot.stream_end if isinstance(request, BaseStream) else \
            hot.refuse
        number = self._hub.number
        task = request._owner if isinstance(request, BaseStream) else \
            request._task
        how = number, task, int(status), code, _words_of(str(words))
        outcome = _data.packed(
            lambda data, meta: refuse(*how, data, meta), details, None)
        self._tell(request, outcome)

    def _tell(self, request: Any, outcome: Any) -> None:
        status, words = outcome
        if status < 0 and status not in _OVER and often.may(
                f"method '{request.method}': its answer was not sent"):
            _log.error("method '%s': its answer was not sent: %s",
                       request.method, words)

    def _drain(self, timeout: Optional[float]) -> None:
        """Blocks, and not for signals."""
        with self._draining:
            try:
                self._hub.enter()
            except Closed:
                return
            try:
                check(lib.tmsgpy_hub_drain(
                    self._hub.hub, 0 if timeout == 0 else
                    milliseconds(timeout)))
            finally:
                self._hub.leave()

    def _was_cut(self, grace: float) -> None:
        _log.warning("%s s after the signal calls were under way; they are cut",
                     grace)

    def _hurry(self) -> None:
        """Ends a drain that waits, and what is left."""
        self._hub.hurry()

    def _unserve(self) -> None:
        with self._draining:
            self._closed = True
            try:
                self._hub.enter()
            except Error:
                return
            try:
                lib.tmsgpy_hub_unserve(self._hub.hub)
            finally:
                self._hub.leave()


def methods_of(reply: BaseMessage) -> Dict[str, Dict[str, Any]]:
    """What a peer says of its methods."""
    methods = {}
    for key, value in reply.meta.items():
        if key.startswith("method/"):
            try:
                about = json.loads(value)
            except (TypeError, ValueError, RecursionError):
                about = None
            if not isinstance(about, dict):
                raise error_of(Status.MALFORMED, "the peer's list of methods "
                               f"is malformed at '{_data.shortened(key)}'")
            methods[key[len("method/"):]] = about
    return methods


def health_of(reply: BaseMessage) -> Health:
    health = reply.meta.get("health")
    try:
        load = json.loads(reply.meta.get("load", "{}"))
    except (TypeError, ValueError, RecursionError):
        load = None
    return Health(health if health in ("SERVING", "NOT_SERVING", "DRAINING",
                                       "NOT_FOUND", "STALLED") else "UNKNOWN",
                  load if isinstance(load, dict) else {})
