# SPDX-License-Identifier: BSD-3-Clause
"""Memory of a GPU that a peer on the same machine copies out of by itself."""

from __future__ import annotations

import math
import re
import weakref
from typing import Any, Dict, Optional, Tuple

import numpy as np

from ._lib import address, ffi, lib
from .errors import check

_CUDA = 2  # as DLPack calls it


def number_of(device: Any, torch: Any) -> Optional[int]:
    """Of a GPU; None: the host. `torch`, or None, says which one "cuda" is."""
    found = re.fullmatch(r"(cpu)|cuda(?::(\d{1,9}))?", str(device))
    if device is None or (found and found[1]):
        return None
    if not found:
        raise ValueError(f"device={device!r}: None, 'cpu', 'cuda' or 'cuda:1'")
    if found[2] is None:
        return 0 if torch is None else int(torch.cuda.current_device())
    return int(found[2])


class Block:
    """A block of such memory, of bytes that are not set."""

    def __init__(self, nbytes: int, number: int) -> None:
        device = {"type": _CUDA, "id": number}
        params = ffi.new("tmsg_shareable_params_t *", {
            "field_mask": lib.TMSG_SHAREABLE_PARAM_DEVICE, "device": device})
        memory_p = ffi.new("void **")
        self.number = number
        self.address = 0
        check(lib.tmsg_domain_use(ffi.new("tmsg_device_t *", device)[0]))
        if nbytes > 0:
            check(lib.tmsg_shareable_alloc(nbytes, params, memory_p))
            self.address = address(memory_p[0])
            weakref.finalize(self, lib.tmsg_shareable_free,
                             memory_p[0]).atexit = False


class DeviceArray:
    """An array in such memory, which all that know __cuda_array_interface__
    take: torch.as_tensor(x, device=x.device), cupy.asarray(x), numba's
    kernels, send()."""

    __slots__ = ("_block", "_offset", "dtype", "shape", "__weakref__")

    def __init__(self, block: Block, offset: int, shape: Tuple[int, ...],
                 dtype: "np.dtype[Any]") -> None:
        self._block = block
        self._offset = offset
        self.shape = shape
        self.dtype = dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def device(self) -> str:
        return f"cuda:{self._block.number}"

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        at = self._block.address + self._offset if self.nbytes > 0 else 0
        return {"shape": self.shape, "typestr": self.dtype.str,
                "data": (at, False), "strides": None, "version": 3}

    def __repr__(self) -> str:
        return f"<array of {self.dtype}, shape {self.shape}, on {self.device}>"
