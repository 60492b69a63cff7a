# SPDX-License-Identifier: BSD-3-Clause
"""What can go wrong: one class for each status of the C library."""

from __future__ import annotations

import enum
import threading
from pickle import dumps
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, Type

from ._lib import hot, lib, text


class Status(enum.IntEnum):
    """The statuses of the C library (include/tensormsg/status.h)."""

    INVALID_PARAM = -1
    NO_MEMORY = -2
    TIMED_OUT = -3
    CANCELED = -4
    PEER_LOST = -5
    REFUSED = -6
    LIMIT_EXCEEDED = -7
    MALFORMED = -8
    UNSUPPORTED = -9
    INSECURE = -10
    BUSY = -11
    NOT_FOUND = -12
    ALREADY_EXISTS = -13
    UNREACHABLE = -14
    INCOMPATIBLE = -15
    WOULD_BLOCK = -16
    CLOSED = -17
    IO = -18
    INTERNAL = -19
    CORRUPT = -20
    DROPPED = -21
    RESOURCE_EXHAUSTED = -22
    UNAVAILABLE = -23
    APPLICATION = -24

    @classmethod
    def _missing_(cls, value: object) -> Optional["Status"]:
        """One that this package does not know."""
        if not isinstance(value, int):
            return None
        made = int.__new__(cls, value)
        made._name_, made._value_ = f"UNKNOWN ({value})", value
        return made


_trying = threading.local()


def _pickled(details: Any, protocol: int) -> Any:
    """These, if they can be pickled, else None: of an exception its words matter
    more."""
    if details is None or getattr(_trying, "on", False):
        return details  # those of an exception that is among others' details
    _trying.on = True
    try:
        # By protocol 5 nothing of an array is copied for that.
        dumps(details, protocol, buffer_callback=None if protocol < 5
              else lambda buffer: None)
    except Exception:
        return None
    finally:
        _trying.on = False
    return details


class Error(Exception):
    """What the library answered. `status` is its Status, `reason` its words in
    one line, `peer` the peer that it is about ("tcp://10.0.0.7:4000 (pid 4711
    on node7)") or None.

    Of a call that failed: `code`, the number that its handler gave, or 0;
    `details`, the message that came with it, or None; `may_have_run`, False
    where it is certain that no handler saw the call. None of what is no call.

    It can be pickled, with `details` where these can, else without.
    """

    status: Status
    reason: str
    peer: Optional[str]
    code: int = 0
    details: Any = None
    may_have_run: Optional[bool] = None
    _unsent_on: int = 0  # the stream that had to send what it is about
    # The hub that may write to a buffer still, and then lets go of it.
    _writer: Optional[int] = None

    def __init__(self, reason: str, status: int = Status.INTERNAL,
                 peer: Optional[str] = None) -> None:
        super().__init__(reason)
        self.status = Status(status)
        self.reason = reason
        self.peer = peer

    def __str__(self) -> str:
        return self.reason

    def __reduce_ex__(self, protocol: Any) -> Tuple[Any, ...]:
        return type(self), (self.reason, int(self.status), self.peer), {
            "code": self.code, "may_have_run": self.may_have_run,
            "details": _pickled(self.details, protocol)}


class InvalidParam(Error, ValueError):
    """An argument is out of its domain."""


class NoMemory(Error, MemoryError):
    """An allocation failed."""


class TimedOut(Error, TimeoutError):
    """A deadline passed."""


class Canceled(Error):
    """The operation was given up here."""


class PeerLost(Error, ConnectionError):
    """The peer died or was cut off."""


class Refused(Error):
    """The peer, or its policy, said no."""


class LimitExceeded(Error):
    """Beyond a limit, of this side or of the peer's."""


class Malformed(Error, ValueError):
    """Bytes that break their format."""


class Unsupported(Error):
    """Well-formed, but not done here."""


class Insecure(Error, PermissionError):
    """It would open a door to strangers."""


class Busy(Error):
    """In use, or over its capacity now."""


class NotFound(Error, OSError):
    """No such host or file."""


class AlreadyExists(Error, OSError):
    """That name or address is taken."""


class Unreachable(Error, ConnectionError):
    """Nobody answers at that address."""


class Incompatible(Error, ConnectionError):
    """The peer's wire or UCX version: both ends are named."""


class WouldBlock(Error, BlockingIOError):
    """It would block where that is barred."""


class Closed(Error, ConnectionError):
    """The endpoint was closed in order, by the peer or here."""


class IOFailed(Error, OSError):
    """A system call failed."""


class Internal(Error, RuntimeError):
    """UCX or the library broke a promise."""


class Corrupt(Error):
    """Data came that are not those sent."""


class Dropped(Error):
    """The policy of a full queue gave it up."""


class ResourceExhausted(Error):
    """A server has all the calls that it takes."""


class Unavailable(Error, ConnectionError):
    """A server is being shut down."""


class ApplicationFailed(Error):
    """A handler's own failure, which its number and words tell."""


class CallError(Exception):
    """For handlers to raise: the call fails with `status` (APPLICATION, unless
    said), `code` (an int of 32 bits), these words and `details`, a dict as of a
    reply. Its caller gets ApplicationFailed, or the class of that status. It can
    be pickled, with `details` where these can, else without."""

    def __init__(self, reason: str = "", *, code: int = 0,
                 details: Optional[Mapping[str, Any]] = None,
                 status: int = Status.APPLICATION) -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code
        self.details = details
        self.status = status

    def __reduce_ex__(self, protocol: Any) -> Tuple[Any, ...]:
        return type(self), self.args, {
            **self.__dict__, "details": _pickled(self.details, protocol)}


_classes: Dict[int, Type[Error]] = {
    Status.INVALID_PARAM: InvalidParam, Status.NO_MEMORY: NoMemory,
    Status.TIMED_OUT: TimedOut, Status.CANCELED: Canceled,
    Status.PEER_LOST: PeerLost, Status.REFUSED: Refused,
    Status.LIMIT_EXCEEDED: LimitExceeded, Status.MALFORMED: Malformed,
    Status.UNSUPPORTED: Unsupported, Status.INSECURE: Insecure,
    Status.BUSY: Busy, Status.NOT_FOUND: NotFound,
    Status.ALREADY_EXISTS: AlreadyExists, Status.UNREACHABLE: Unreachable,
    Status.INCOMPATIBLE: Incompatible, Status.WOULD_BLOCK: WouldBlock,
    Status.CLOSED: Closed, Status.IO: IOFailed, Status.INTERNAL: Internal,
    Status.CORRUPT: Corrupt, Status.DROPPED: Dropped,
    Status.RESOURCE_EXHAUSTED: ResourceExhausted,
    Status.UNAVAILABLE: Unavailable, Status.APPLICATION: ApplicationFailed,
}


# Called before each: a daemon thread goes by that when the interpreter exits.
before_error: List[Callable[[], None]] = []


def error_of(status: int, reason: str, peer: Optional[str] = None) -> Error:
    """The exception of a status."""
    for call in before_error:
        call()
    kind = _classes.get(status, Error)
    return kind(reason or text(lib.tmsg_status_name(status)), status, peer)


def status_of(error: Exception) -> Optional[int]:
    """The status of an error that was raised here, where it is one of the
    library's."""
    if isinstance(error, CallError):
        return error.status
    for status, kind in _classes.items():
        if type(error) is kind:
            return status
    return error.status if isinstance(error, Error) else None


def check(status: int, peer: Optional[str] = None) -> None:
    """Raises what the call just made in this thread answered."""
    if status < 0:
        raise error_of(status, text(lib.tmsg_error_message()), peer)


hot.setup(error_of)
