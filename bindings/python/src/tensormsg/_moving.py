# SPDX-License-Identifier: BSD-3-Clause
"""What is received as tensors of torch's on a device of the caller's choice."""

from __future__ import annotations

import collections
import importlib
import threading
import weakref
from typing import Any, Deque, Optional, Tuple

import numpy as np

from ._message import Converter, Like, _converter
from .allocators import Allocators, in_use

PINNED_BYTES = 256 << 20  # of one connection or listener, at once


class Pinned:
    """Page-locked memory, from which a GPU reads by itself. torch keeps what is
    dropped for the next one. Beyond the limit, or where the system gives no
    more, ordinary memory."""

    def __init__(self, torch: Any, limit: int = PINNED_BYTES) -> None:
        self._torch = torch
        self._left = limit
        self._lock = threading.RLock()
        self._back: Deque[int] = collections.deque()

    def _give_back(self, nbytes: int) -> None:
        """Without the lock: what drops a tensor may come in between, in the
        thread that has it."""
        self._back.append(nbytes)

    def take(self, nbytes: int) -> Any:
        with self._lock:
            while self._back:
                back = self._back.popleft()
                self._left += back
            if nbytes > self._left:
                return np.empty(nbytes, "u1")
            self._left -= nbytes
        try:
            tensor = self._torch.empty(nbytes, dtype=self._torch.uint8,
                                       pin_memory=True)
        except RuntimeError:
            self._give_back(nbytes)
            return np.empty(nbytes, "u1")
        weakref.finalize(tensor, self._give_back, nbytes).atexit = False
        return tensor


def moving(like: Like, device: Any, allocators: Optional[Allocators]
           ) -> Tuple[Like, Optional[Allocators]]:
    """`like` and `allocators` of a connection with `device`; raises TypeError
    where arrays cannot be like that."""
    if device is None:
        _converter(like)
        return like, allocators
    if like != "torch" and getattr(like, "__name__", "") != "torch":
        raise ValueError(f"device={device!r} needs like='torch', not {like!r}")
    torch = importlib.import_module("torch")
    target = torch.device(device)
    if target.type == "cuda":
        if not torch.cuda.is_available():
            raise ValueError(f"device={device!r}: torch finds no such device")
        if "host" not in in_use(allocators):
            allocators = {**(allocators or {}), "host": Pinned(torch).take}
    return Converter(torch.from_dlpack, "torch.from_dlpack()",
                     lambda tensor: tensor.to(target)), allocators
