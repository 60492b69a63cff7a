# SPDX-License-Identifier: BSD-3-Clause
"""What the connections of a process share."""

from __future__ import annotations

import atexit
import json
import os
import threading
import time
import weakref
from typing import Any, Dict, Mapping, Optional

from ._count import UINT64, count
from ._lib import ffi, lib, take_text, utf8
from ._linger import at_exit
from ._logs import lines
from ._stays import Stays
from ._time import milliseconds
from .errors import Status, before_error, check, error_of
from .keys import Key, keyring_of
from .tls import TLS, tls_of

_FORKED = ("it belongs to the process that this one was forked from: call "
           "connect() or listen() again in this process")


_EXITED = "the interpreter is exiting, and has ended all connections"
_PARK_S = 1.0


class _Process:
    generation = 0  # how often it was forked
    most_keys = 65536
    leaving = False  # what was sent goes on its way still
    exiting = False


def _exit() -> None:
    _Process.leaving = True
    at_exit()
    _Process.exiting = True


def is_exiting() -> bool:
    return _Process.exiting


def park_at_exit() -> None:
    """Daemon threads, which alone are left beside the main one then, are not to
    hear of the end: they go with the interpreter. Where somebody waits for them,
    as who registered before us with atexit, they end all the same."""
    if _Process.leaving and \
            threading.current_thread() is not threading.main_thread():
        time.sleep(_PARK_S)
        raise SystemExit


before_error.append(park_at_exit)


# What is registered last runs first: before all finalizers.
weakref.finalize(_Process, int)
atexit.register(_exit)


def check_process(generation: int) -> None:
    """Raises Unsupported for what was made before a fork, in the child."""
    if generation != _Process.generation:
        raise error_of(Status.UNSUPPORTED, _FORKED)


def most_keys() -> int:
    """The highest limit metadata_keys of this process's contexts."""
    return _Process.most_keys


def generation() -> int:
    """Of this process: changes where it is forked."""
    return _Process.generation


def _destroy(context: Any, made_in: int) -> None:
    if made_in == _Process.generation:
        lib.tmsg_context_destroy(context)


def _silence_ms(timeout: float) -> int:
    """0: it is never too long."""
    made = milliseconds(timeout, "peer_timeout")
    return 0 if timeout == 0 or made < 0 else made


class Context(Stays):
    """Settings that connections and listeners share; without one they use the
    process's own, which has the defaults.

    `limits`: what peers may send, fields of tmsg_limits_t by name: tensors,
    ndim, name_bytes, metadata_bytes, metadata_keys, header_bytes,
    message_bytes, held_bytes, lent_bytes (counts, or bytes). `ucx_config`:
    keys of UCX, "TLS=tcp;RNDV_THRESH=64k". `peer_timeout`: seconds of silence
    after which a peer is lost, 0 for never, at least 0.2, default 5.
    `heartbeat_thread`: False forbids the small thread that sends signs of
    life. `key`: whom listeners let in, and whom connections trust, that are
    given no key of their own; as for connect(). `tls`: the same with
    certificates, for those of tls://.
    """

    _instead = "make one there with the same arguments"

    def __init__(self, *, limits: Optional[Mapping[str, int]] = None,
                 ucx_config: Optional[str] = None,
                 peer_timeout: Optional[float] = None,
                 heartbeat_thread: bool = True,
                 key: Optional[Key] = None,
                 tls: Optional[TLS] = None) -> None:
        if is_exiting():
            raise error_of(Status.CLOSED, _EXITED)
        self.tls = tls_of(tls, key)
        lines.follow()
        params = ffi.new("tmsg_context_params_t *")
        keep = []
        if limits is not None:
            params.field_mask |= lib.TMSG_CONTEXT_PARAM_LIMITS
            bounds = params.limits = ffi.new("tmsg_limits_t *")
            keep.append(bounds)
            for name, value in limits.items():
                bit = getattr(lib, f"TMSG_LIMIT_{name.upper()}", None)
                if bit is None or name == "all":
                    raise ValueError(f"no limit is called {name!r}")
                bounds.field_mask |= bit
                setattr(bounds, name, count(value, name, 0, UINT64))
            _Process.most_keys = max(_Process.most_keys, bounds.metadata_keys)
        if ucx_config is not None:
            params.field_mask |= lib.TMSG_CONTEXT_PARAM_UCX_CONFIG
            keep.append(ffi.new("char[]", utf8("ucx_config", ucx_config)))
            params.ucx_config = keep[-1]
        keyring = keyring_of(key)
        if keyring is not None:
            params.field_mask |= lib.TMSG_CONTEXT_PARAM_KEYRING
            params.keyring = keyring.pointer
        if not heartbeat_thread:
            params.field_mask |= lib.TMSG_CONTEXT_PARAM_FLAGS
            params.flags = lib.TMSG_CONTEXT_NO_THREAD
        if peer_timeout is not None:
            params.field_mask |= lib.TMSG_CONTEXT_PARAM_PEER_TIMEOUT
            params.peer_timeout_ms = _silence_ms(peer_timeout)
        context_p = ffi.new("tmsg_context_t **")
        check(lib.tmsg_context_create(params, context_p))
        self._context = context_p[0]
        self._generation = _Process.generation
        self._finalizer = weakref.finalize(self, _destroy, self._context,
                                           self._generation)

    @property
    def pointer(self) -> Any:
        """The context of the C library."""
        check_process(self._generation)
        if not self._finalizer.alive:
            raise error_of(Status.CLOSED, _EXITED)
        return self._context

    def describe(self) -> Dict[str, Any]:
        """The machine and the set-up: versions, transports and devices that
        UCX finds, limits, and each UCX key with its value and origin."""
        text_p = ffi.new("char **")
        check(lib.tmsg_context_describe(self.pointer, text_p))
        description: Dict[str, Any] = json.loads(take_text(text_p))
        return description


_default: Optional[Context] = None
_lock = threading.Lock()


def default_context() -> Context:
    """The process's own."""
    global _default
    with _lock:
        if _default is None:
            _default = Context()
        return _default


def _forked() -> None:
    """A thread of the parent may have held the lock."""
    global _default, _lock
    _Process.generation += 1
    _default, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forked)
