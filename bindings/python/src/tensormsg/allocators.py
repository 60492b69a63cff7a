# SPDX-License-Identifier: BSD-3-Clause
"""Functions of Python's that give the memory for what is received."""

from __future__ import annotations

import threading
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

import numpy as np

from . import _data, _device
from .errors import Error, InvalidParam, Status

KINDS = ("host", "cuda")

Allocate = Callable[..., Any]
Allocators = Mapping[str, Optional[Allocate]]

_global: Dict[str, Allocate] = {}
_lock = threading.Lock()


def _checked(kind: str, allocate: Optional[Allocate]) -> None:
    if kind not in KINDS:
        raise ValueError(f"there is memory of kind {' and '.join(KINDS)}, not "
                         f"of {kind!r}")
    if allocate is not None and not callable(allocate):
        raise TypeError(f"the allocator of {kind} is {allocate!r}, which "
                        "cannot be called")


def set_allocator(kind: str, allocate: Optional[Allocate]
                  ) -> Optional[Allocate]:
    """Has `allocate` give the memory for what is received by connections and
    listeners that are made from now on; None: the library does, as before.
    Returns the one that was set. `allocators=` of connect() and listen() is for
    one of them alone.

    `kind`: "host" or "cuda". `allocate(nbytes)` of "host" returns an object
    with that many bytes at least that can be written to, in one piece: a buffer
    (bytearray, mmap, numpy array, ...), or what has __array_interface__ or
    DLPack on the CPU (a pinned tensor of torch). All arrays of a message come to
    one of those, whose beginning is aligned to 64 bytes inside of it: for that
    it is asked for 63 bytes more. `allocate(nbytes, device)` of "cuda" returns
    one with __cuda_array_interface__ on that device, aligned to 64, which
    nothing that was queued on a stream still uses; where none is set, or none
    for a message's device, tensors come to the host.

    What it returns is kept until the message and all its arrays are gone, and
    dropped then, once, in whatever thread comes to it. It does not count
    against `held_bytes`.

    It is called with the interpreter's lock held, in the thread that moves the
    messages, which waits for it: it may not use its connection. Where it
    raises, or returns something else, that one message is refused: the
    receiver's next recv() raises the class of error that was raised, if it is
    one of tensormsg's, NoMemory for MemoryError, else Internal, which names the
    function and has what it raised as its __cause__; its sender hears the same
    words, if it waits for them (acked=True). A call, or stream, fails with
    them. Where a "cuda" one raises MemoryError or NotFound the tensor comes to
    the host instead, if its sender allows that.
    """
    _checked(kind, allocate)
    with _lock:
        before = _global.pop(kind, None)
        if allocate is not None:
            _global[kind] = allocate
    return before


def in_use(allocators: Optional[Allocators]) -> "Dict[str, Allocator]":
    """Those of a connection: of its own, or the process's."""
    with _lock:
        chosen: Dict[str, Optional[Allocate]] = dict(_global)
    for kind, allocate in (allocators or {}).items():
        _checked(kind, allocate)
        chosen[kind] = allocate
    return {kind: Allocator(kind, allocate)
            for kind, allocate in chosen.items() if allocate is not None}


def _host(value: Any, nbytes: int, alignment: int) -> Tuple[int, Any]:
    try:
        array = _data.buffer("memory", value)
    except InvalidParam as error:  # for who has buffers, not functions
        raise ValueError(error.reason) from None
    if not array.flags.c_contiguous:
        raise ValueError("memory with gaps")
    if array.nbytes < nbytes:
        raise ValueError(f"{array.nbytes} bytes, not {nbytes}")
    address = int(array.ctypes.data)
    return address + -address % alignment, (array, value)


def _cuda(value: Any, nbytes: int, alignment: int) -> Tuple[int, Any]:
    about = getattr(value, "__cuda_array_interface__", None)
    if about is None:
        raise TypeError(f"{type(value)}, which has no "
                        "__cuda_array_interface__")
    _device.checked("memory", about)
    address, read_only = about["data"]
    if read_only or about.get("strides") is not None:
        raise ValueError("memory that is read-only, or with gaps")
    size = int(np.prod(about["shape"], dtype=object)) * \
        np.dtype(about["typestr"]).itemsize
    if size < nbytes:
        raise ValueError(f"{size} bytes, not {nbytes}")
    if address % alignment:
        raise ValueError(f"memory that is not aligned to {alignment}")
    return int(address), (value,)


class Allocator:
    """One as the extension calls it."""

    def __init__(self, kind: str, allocate: Allocate) -> None:
        self._kind = kind
        self._allocate = allocate
        self.failure: Optional[BaseException] = None

    def __call__(self, nbytes: int, alignment: int, device: int
                 ) -> Tuple[int, Any]:
        """(address, owner), or (status, words)."""
        name = getattr(self._allocate, "__name__", type(self._allocate))
        what = f"'{name}'"
        try:
            if self._kind == "host":
                padded = nbytes + alignment - 1
                value = self._allocate(padded)
                what += " gave"
                return _host(value, padded, alignment)
            value = self._allocate(nbytes, device)
            what += " gave"
            return _cuda(value, nbytes, alignment)
        except KeyboardInterrupt:  # it is asked again
            raise
        except BaseException as error:
            self.failure = error
            if not what.endswith("gave"):
                what += f" raised {type(error).__name__}:"
            words = " ".join(f"{what} {error}".replace("\0", " ").split())
            return self._status(error), words.encode("utf-8", "replace")

    def _status(self, error: BaseException) -> int:
        status = error.status if isinstance(error, Error) else \
            Status.NO_MEMORY if isinstance(error, MemoryError) else \
            Status.INTERNAL
        # This one means something else to the library.
        return int(Status.INTERNAL if status == Status.UNSUPPORTED or
                   status >= 0 else status)
