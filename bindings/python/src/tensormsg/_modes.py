# SPDX-License-Identifier: BSD-3-Clause
"""What may wait for a peer that is slow, and what becomes of the rest: by a
mode, or bound by bound."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Optional

from ._count import UINT32, UINT64, count
from ._lib import ffi, lib

Mode = Literal["live", "all"]
Slow = Literal["drop oldest", "drop newest", "disconnect", "wait"]
Full = Literal["drop oldest", "drop newest", "reject", "wait"]

# Of a publisher's subscribers, and of one endpoint's sends.
_SLOW = {"drop oldest": "TMSG_SLOW_DROP_OLDEST",
         "drop newest": "TMSG_SLOW_DROP_NEWEST",
         "disconnect": "TMSG_SLOW_DISCONNECT",
         "wait": "TMSG_SLOW_WAIT"}
_FULL = {"drop oldest": "TMSG_QUEUE_DROP_OLDEST",
         "drop newest": "TMSG_QUEUE_DROP_NEWEST",
         "reject": "TMSG_QUEUE_REJECT",
         "wait": ""}


def check_mode(mode: Any) -> None:
    if mode not in (None, "live", "all"):
        raise ValueError(f"mode={mode!r}: it is 'live', 'all' or None")


def is_live(mode: Any) -> bool:
    check_mode(mode)
    return bool(mode == "live")


class Bounds(NamedTuple):
    """None: as the library has it."""

    queue: Optional[int]
    queue_bytes: Optional[int]
    queue_ms: Optional[int]
    window: Optional[int]
    slow: Optional[str]

    def check(self, words: Any) -> None:
        for name, least, most in (("queue", 1, UINT32),
                                  ("queue_bytes", 0, UINT64),
                                  ("queue_ms", 1, UINT32 - 1),
                                  ("window", 1, UINT32)):
            value = getattr(self, name)
            if value is not None:
                count(value, name, least, most)
        if self.slow is not None and self.slow not in words:
            raise ValueError(f"slow={self.slow!r}: it is one of "
                             f"{', '.join(words)}")

    @property
    def are_open(self) -> bool:
        """Whether there is none, but perhaps a policy."""
        return all(bound is None for bound in self[:4])

    def fill(self, params: Any, prefix: str) -> None:
        """The numbers, into a struct."""
        for value, field, bit in ((self.queue, "messages", "MESSAGES"),
                                  (self.queue_bytes, "bytes", "BYTES"),
                                  (self.queue_ms, "most_ms", "MOST_MS"),
                                  (self.window, "window", "WINDOW")):
            if value is not None:
                params.field_mask |= getattr(lib, f"{prefix}_PARAM_{bit}")
                setattr(params, field, value)


def _contradicts(mode: str, slow: str) -> ValueError:
    return ValueError(f"mode={mode!r} and slow={slow!r}: they say different "
                      "things")


def subscriber_params(mode: Optional[Mode], bounds: Bounds) -> Any:
    """Of the arguments of publish()."""
    check_mode(mode)
    bounds.check(_SLOW)
    slow = bounds.slow
    each = ffi.new("tmsg_subscriber_params_t *")
    each.field_mask = lib.TMSG_SUBSCRIBER_PARAM_SLOW
    if mode == "live":
        if slow not in (None, "drop oldest"):
            raise _contradicts(mode, str(slow))
        if bounds.queue is None and bounds.window is None:
            each.field_mask |= lib.TMSG_SUBSCRIBER_PARAM_FLAGS
            each.flags = lib.TMSG_SUBSCRIBER_NEWEST
        bounds = bounds._replace(queue=bounds.queue or 1,
                                 window=bounds.window or 1)
    elif mode == "all":
        if slow not in (None, "wait"):
            raise _contradicts(mode, str(slow))
        slow = "wait"
    each.slow = getattr(lib, _SLOW[slow or "drop oldest"])
    bounds.fill(each, "TMSG_SUBSCRIBER")
    return each


def queue_params(mode: Optional[Mode], bounds: Bounds) -> Any:
    """Of the arguments of set_queue(); None: sends wait, and nothing else."""
    check_mode(mode)
    bounds.check(_FULL)
    slow = bounds.slow
    if mode == "live":
        if slow not in (None, "drop oldest"):
            raise _contradicts(mode, str(slow))
        slow = "drop oldest"
        bounds = bounds._replace(queue=bounds.queue or 1,
                                 window=bounds.window or 1)
    elif mode == "all" and slow not in (None, "wait"):
        raise _contradicts(mode, str(slow))
    if slow in (None, "wait"):
        if not bounds.are_open:
            raise ValueError("a queue with bounds needs slow=: 'drop oldest', "
                             "'drop newest' or 'reject'; else send() waits")
        return None
    params = ffi.new("tmsg_queue_params_t *")
    params.field_mask = lib.TMSG_QUEUE_PARAM_POLICY
    params.policy = lib.TMSG_QUEUE_NEWEST \
        if mode == "live" and bounds.queue == bounds.window == 1 \
        else getattr(lib, _FULL[slow])
    bounds.fill(params, "TMSG_QUEUE")
    return params


def live_queue() -> Any:
    """Of mode="live"."""
    return queue_params("live", Bounds(None, None, None, None, None))
