# SPDX-License-Identifier: BSD-3-Clause
"""Objects of the application that see calls and streams."""

from __future__ import annotations

import _thread
import contextlib
import functools
import inspect
import itertools
import logging
from typing import Any, Callable, ContextManager, Dict, Iterator, List, \
    Mapping, Optional, Tuple

import numpy as np

from . import _data
from ._lib import ffi, hot, lib, text
from ._often import often
from .errors import Status, status_of

_SIDES = {lib.TMSG_SIDE_CALLER: "caller", lib.TMSG_SIDE_SERVER: "server"}
_BITS = {"begin": lib.TMSG_INTERCEPTOR_BEGIN,
         "message": lib.TMSG_INTERCEPTOR_MESSAGE,
         "end": lib.TMSG_INTERCEPTOR_END,
         "refused": lib.TMSG_INTERCEPTOR_REFUSED}
_NAMES = (*_BITS, "around")
_INTERNAL = int(Status.INTERNAL)

_log = logging.getLogger("tensormsg")


def words_of(error: BaseException) -> str:
    """What it says, where it can: its __str__() is the application's."""
    try:
        return str(error)
    except Exception:
        return "it has no words"


def _meta_of(map: int) -> Dict[str, Any]:
    return _data.without_own(hot.map_meta(map) or {})


class InterceptedCall:
    """A call or a stream as an Interceptor sees it: the same object in all of
    its hooks, with the figures as they were at the last one."""

    __slots__ = {
        "side": '"caller": it was made here; "server": it is served here.',
        "method": "Its name; in refused() as the caller named it, whoever that "
                  "is.",
        "is_stream": "Whether it is a stream.",
        "peer": 'The other side, in words: "tcp://10.0.0.7:4000 (pid 4711 on '
                'node7)".',
        "principal": "At a server: whose key the caller has proved, or None.",
        "meta": "The metadata that it was made with, a dict; empty in refused().",
        "state": "Whatever the interceptor keeps here; None at first.",
        "remaining": "Seconds that are left of its time, or None.",
        "elapsed": "Seconds since it began.",
        "sent_bytes": "Bytes of arrays that this side has sent,",
        "received_bytes": "and those of the other side.",
        "sent": "Messages of a stream that this side has sent,",
        "received": "and those of the other side.",
        "attempts": "At a caller: how often it was tried.",
        "status": "How it has ended, a Status, or 0 in order; None before "
                  "end().",
        "error": 'Why it failed, in one line; "" otherwise.',
        "_seen": "Of a caller in begin(): what the library calls it.",
        "_map": "At a server: the address of its request."}

    side: str
    method: str
    is_stream: bool
    peer: str
    principal: Optional[str]
    meta: Dict[str, Any]
    state: Any
    remaining: Optional[float]
    elapsed: float
    sent_bytes: int
    received_bytes: int
    sent: int
    received: int
    attempts: int
    status: Optional[int]
    error: str

    def __init__(self, seen: Any, meta: Dict[str, Any]) -> None:
        self.side = _SIDES[seen.side]
        self.method = text(seen.method)
        self.is_stream = bool(seen.is_stream)
        self.peer = text(lib.tmsg_endpoint_peer(seen.endpoint))
        self.principal = text(seen.principal) or None
        self.meta = meta
        self.state: Any = None
        self.status: Optional[int] = None
        self._seen = self._map = 0
        self._look(seen)

    def _look(self, seen: Any) -> None:
        self.remaining = None if seen.remaining_ms < 0 else \
            seen.remaining_ms / 1000
        self.elapsed = seen.elapsed_ns / 1e9
        self.sent_bytes = seen.sent_bytes
        self.received_bytes = seen.received_bytes
        self.sent, self.received = seen.sent, seen.received
        self.attempts = seen.attempts
        self.error = text(seen.error)

    def _over(self, seen: Any) -> None:
        self._look(seen)
        status = int(seen.status)
        self.status = Status(status) if status in Status._value2member_map_ \
            else status

    def __repr__(self) -> str:
        return f"<tensormsg.InterceptedCall {self.side} '{self.method}'>"

    def add_meta(self, name: str, value: Any) -> None:
        """In a caller's begin(): adds metadata to this request alone, in place
        of what it has under that name."""
        if not self._seen:
            raise RuntimeError("add_meta() is for the begin() of a call that is "
                               "made here")
        if not isinstance(name, str) or name[:1] == _data.MARK:
            _data.refuse_key(name)
        if isinstance(value, np.generic):
            value = _data.scalar(f"metadata '{name}'", value)
        hot.add_meta(self._seen, name, value)
        self.meta[name] = value


class Interceptor:
    """What sees calls and streams, given to `intercept()` of an endpoint or a
    server. Override the methods that you want; any object that has some of them
    will do. They are called inside of the library: they are plain functions,
    return soon, and wait for no call. An exception of begin() or around()
    fails the call; one of the others is logged, and changes nothing."""

    def begin(self, call: InterceptedCall) -> None:
        """A call is about to be sent, by the thread that calls; or has come, in
        the thread that moves messages, before its handler is found. An exception
        refuses it: with the status of an Error or a CallError, else INTERNAL."""

    def around(self, call: InterceptedCall
               ) -> Optional[ContextManager[Any]]:
        """What is entered around the handler, in its own task or thread, as
        `with` does, but that it swallows no exception."""

    def message(self, call: InterceptedCall, sent: bool,
                meta: Mapping[str, Any]) -> None:
        """A message of a stream was sent, or has come."""

    def end(self, call: InterceptedCall) -> None:
        """It has ended, in whatever way; once for each that begin() let go."""

    def refused(self, call: InterceptedCall) -> None:
        """At a server: it ended before begin(): no such method, for others,
        beyond the bounds, or lost on its way."""


def _hook(interceptor: Any, name: str) -> Optional[Callable[..., Any]]:
    """None where it does nothing."""
    hook: Optional[Callable[..., Any]] = getattr(interceptor, name, None)
    if hook is None or getattr(hook, "__func__", None) is \
            getattr(Interceptor, name):
        return None
    if not callable(hook):
        raise TypeError(f"{name} of an interceptor is a function, not {hook!r}")
    if inspect.iscoroutinefunction(hook):
        raise TypeError(f"{name} of an interceptor is a coroutine function: the "
                        "library cannot await it")
    return hook


class Hooks:
    """What the extension calls, with addresses: it has one for each interceptor
    of a side of a hub. None of it raises."""

    def __init__(self, interceptor: Any) -> None:
        if isinstance(interceptor, type):
            raise TypeError(f"{interceptor!r} is a class: give an object of it, "
                            f"{interceptor.__name__}()")
        hooks = [_hook(interceptor, name) for name in _NAMES]
        if not any(hooks):
            raise TypeError(f"{interceptor!r} is not an interceptor: it has "
                            f"no method of {', '.join(_NAMES)}")
        self._begin, self._message, self._end, self._refused, self._around = \
            hooks
        self.mask = sum(bit for name, bit in _BITS.items()
                        if getattr(self, f"_{name}") is not None)
        if any(hooks[:3]) or self._around is not None:
            # Of each its object is known until its end.
            self.mask |= _BITS["begin"] | _BITS["end"]
        self._calls: Dict[int, InterceptedCall] = {}
        self._served: Dict[int, InterceptedCall] = {}  # by their maps
        self._numbers = itertools.count(1)

    @property
    def is_around(self) -> bool:
        return self._around is not None

    def _run(self, hook: Callable[..., Any], *args: Any
             ) -> Optional[BaseException]:
        try:
            hook(*args)
        except KeyboardInterrupt as error:
            _thread.interrupt_main()
            return error
        except BaseException as error:
            return error
        return None

    def _tell(self, name: str, error: Optional[BaseException]) -> None:
        if error is not None and often.may(f"{name}() of an interceptor failed"):
            _log.error("%s() of an interceptor failed", name, exc_info=error)

    def begin(self, address: int, sent: int, map: int) -> int:
        seen = ffi.cast("tmsg_intercepted_t *", address)
        call = InterceptedCall(seen, _meta_of(map))
        if self._begin is not None:
            call._seen = address if call.side == "caller" else 0
            error = self._run(self._begin, call)
            call._seen = 0
            if error is not None:
                return self._refuse(seen, error)
        number = next(self._numbers)
        self._calls[number] = call
        seen.state = ffi.cast("void *", number)
        if call.side == "server" and self._around is not None:
            call._map = map
            self._served[map] = call
        return 0

    def _refuse(self, seen: Any, error: BaseException) -> int:
        status = status_of(error) if isinstance(error, Exception) else None
        words = " ".join(words_of(error).split())
        if status is None:
            self._tell("begin", error)
            status = _INTERNAL
            words = f"an interceptor failed: {type(error).__name__}: {words}"
        return int(lib.tmsg_intercepted_refuse(
            seen, status, words.replace("\0", " ").encode("utf-8", "replace")))

    def _call_of(self, address: int) -> Tuple[Any, Optional[InterceptedCall]]:
        seen = ffi.cast("tmsg_intercepted_t *", address)
        return seen, self._calls.get(int(ffi.cast("uintptr_t", seen.state)))

    def message(self, address: int, sent: int, map: int) -> int:
        seen, call = self._call_of(address)
        if call is not None and self._message is not None:
            call._look(seen)
            self._tell("message", self._run(self._message, call, bool(sent),
                                            _meta_of(map)))
        return 0

    def end(self, address: int, sent: int, map: int) -> int:
        seen, call = self._call_of(address)
        if call is None:
            return 0
        del self._calls[int(ffi.cast("uintptr_t", seen.state))]
        self._served.pop(call._map, None)
        call._over(seen)
        if self._end is not None:
            self._tell("end", self._run(self._end, call))
        return 0

    def refused(self, address: int, sent: int, map: int) -> int:
        seen = ffi.cast("tmsg_intercepted_t *", address)
        call = InterceptedCall(seen, {})
        call._over(seen)
        if self._refused is not None:
            self._tell("refused", self._run(self._refused, call))
        return 0

    def around(self, map: int) -> Optional[ContextManager[Any]]:
        """Around the handler of the call with that map."""
        call = self._served.get(map)
        if call is None or self._around is None:
            return None
        made: Optional[ContextManager[Any]] = self._around(call)
        return made


def _leave(manager: ContextManager[Any], *error: Any) -> None:
    """Whatever it says, an exception of the handler goes on."""
    manager.__exit__(*error)


@contextlib.contextmanager
def _within(hooks: List[Hooks], map: int) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for one in hooks:
            manager = one.around(map)
            if manager is not None:
                manager.__enter__()
                stack.push(functools.partial(_leave, manager))
        yield


_NOTHING = contextlib.nullcontext()


def within(hooks: List[Hooks], request: Any) -> ContextManager[None]:
    """What a handler runs in. `request`: its task, or its stream."""
    return _within(hooks, hot.request_map(request)) if hooks else _NOTHING


# Of each hub that is made from now on.
everywhere: List[Any] = []
