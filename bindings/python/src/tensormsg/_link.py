# SPDX-License-Identifier: BSD-3-Clause
"""How connections are made and kept, beside where to."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Optional, Tuple, TypeVar, Union

from ._lib import ffi, lib
from ._modes import Mode, check_mode, is_live
from ._time import bounded_ms, milliseconds, seconds
from .keys import Key, Keyring, keyring_of
from .tls import TLS, tls_of

KEPT_S = 60.0  # a connection that broke, unless said
BACKOFF = 0.1, 5.0  # seconds

Reconnect = Union[None, bool, float]
Carrier = Literal["ucx", "stream"]

_CARRIERS = {None: 0, "ucx": 1, "stream": 2}


def _carrier(carrier: Any) -> int:
    """Of the argument of that name; 0: what the peer asks for."""
    try:
        return _CARRIERS[carrier]
    except (KeyError, TypeError):
        raise ValueError(f"carrier={carrier!r}: it is 'ucx', 'stream' or "
                         "None") from None


def _kept_ms(reconnect: Reconnect) -> Optional[int]:
    """How long it is kept; None: it ends when it breaks."""
    if reconnect is None or reconnect is False:
        return None
    kept = KEPT_S if reconnect is True else reconnect
    if isinstance(kept, (str, bytes)) or not hasattr(kept, "__float__"):
        raise TypeError(f"reconnect={kept!r}: seconds are a number, math.inf "
                        "for no limit; None or False keeps nothing")
    if not float(kept) > 0:
        raise ValueError(f"reconnect={kept!r}: seconds are above 0, math.inf "
                         "for no limit; None or False keeps nothing")
    return milliseconds(kept, "reconnect")


class Dialling(NamedTuple):
    timeout_ms: int = 10000
    keyring: Optional[Keyring] = None
    kept_ms: Optional[int] = None
    backoff_ms: Tuple[int, int] = (100, 5000)
    newest: bool = False
    same_process: bool = False
    waits: bool = False  # until somebody listens; then -1 is no limit
    live: bool = False  # what is sent, too
    carrier: int = 0
    tls: Optional[TLS] = None

    def params(self) -> Any:
        params = ffi.new("tmsg_endpoint_params_t *")
        params.field_mask = lib.TMSG_ENDPOINT_PARAM_CONNECT_TIMEOUT
        params.connect_timeout_ms = self.timeout_ms
        params.field_mask |= lib.TMSG_ENDPOINT_PARAM_CARRIER
        params.carrier = self.carrier
        if self.keyring is not None:
            params.field_mask |= lib.TMSG_ENDPOINT_PARAM_KEYRING
            params.keyring = self.keyring.pointer
        if self.tls is not None:
            params.field_mask |= lib.TMSG_ENDPOINT_PARAM_TLS
            params.tls = self.tls.pointer
        if self.newest or self.live:
            params.field_mask |= lib.TMSG_ENDPOINT_PARAM_SUBSCRIBE
            params.subscribe = lib.TMSG_SUBSCRIBE_NEWEST
        if self.waits:
            params.field_mask |= lib.TMSG_ENDPOINT_PARAM_FLAGS
            params.flags |= lib.TMSG_ENDPOINT_WAIT
        if self.kept_ms is not None:
            params.field_mask |= lib.TMSG_ENDPOINT_PARAM_RECONNECT
            again = params.reconnect
            again.first_backoff_ms, again.most_backoff_ms = self.backoff_ms
            again.give_up_ms = self.kept_ms
        if self.same_process:
            params.field_mask |= lib.TMSG_ENDPOINT_PARAM_FLAGS
            params.flags |= lib.TMSG_ENDPOINT_SAME_PROCESS
        return params


def dialling(timeout: Optional[float], key: Optional[Key],
             reconnect: Reconnect, backoff: Tuple[float, float],
             newest: bool, same_process: bool = False,
             wait: bool = False, mode: Optional[Mode] = None,
             carrier: Optional[Carrier] = None,
             tls: Optional[TLS] = None) -> Dialling:
    """Of the arguments of connect()."""
    check_mode(mode)
    if not isinstance(wait, bool):
        raise TypeError(f"wait={wait!r}: wait is True or False; timeout= is "
                        "the seconds")
    if not isinstance(backoff, (tuple, list)) or len(backoff) != 2:
        raise TypeError(f"backoff={backoff!r}: two numbers, of seconds")
    first, most = backoff
    return Dialling(milliseconds(timeout) if wait else bounded_ms(timeout),
                    keyring_of(key), _kept_ms(reconnect),
                    (bounded_ms(first, "backoff"), bounded_ms(most, "backoff")),
                    newest, same_process, wait, mode == "live",
                    _carrier(carrier), tls_of(tls, key))


class Admission(NamedTuple):
    allow_unauthenticated: bool
    keyring: Optional[Keyring]
    kept_ms: Optional[int]
    live: bool = False
    carrier: int = 0
    tls: Optional[TLS] = None

    def params(self) -> Any:
        params = ffi.new("tmsg_listener_params_t *")
        params.field_mask = lib.TMSG_LISTENER_PARAM_ALLOW_UNAUTHENTICATED
        params.allow_unauthenticated = self.allow_unauthenticated
        params.field_mask |= lib.TMSG_LISTENER_PARAM_CARRIER
        params.carrier = self.carrier
        if self.keyring is not None:
            params.field_mask |= lib.TMSG_LISTENER_PARAM_KEYRING
            params.keyring = self.keyring.pointer
        if self.tls is not None:
            params.field_mask |= lib.TMSG_LISTENER_PARAM_TLS
            params.tls = self.tls.pointer
        if self.kept_ms is not None:
            params.field_mask |= lib.TMSG_LISTENER_PARAM_RESUME
            params.resume_ms = self.kept_ms
        if self.live:
            params.field_mask |= lib.TMSG_LISTENER_PARAM_SUBSCRIBE
            params.subscribe = lib.TMSG_SUBSCRIBE_NEWEST
        return params


def admission(allow_unauthenticated: bool, key: Optional[Key],
              reconnect: Reconnect, mode: Optional[Mode] = None,
              carrier: Optional[Carrier] = None,
              tls: Optional[TLS] = None) -> Admission:
    """Of the arguments of listen()."""
    return Admission(allow_unauthenticated, keyring_of(key),
                     _kept_ms(reconnect), is_live(mode), _carrier(carrier),
                     tls_of(tls, key))


How = TypeVar("How", Dialling, Admission)


def with_tls_of(context_tls: Optional[TLS], url: str, how: How) -> How:
    """As it is, or with the certificates of the context, at tls:// without
    proof of its own."""
    own = how.tls is not None or how.keyring is not None
    return how if own or not url.startswith("tls://") else \
        how._replace(tls=context_tls)
