# SPDX-License-Identifier: BSD-3-Clause
"""Arrays in memory that can be lent to peers, or copied by them."""

from __future__ import annotations

import importlib
import math
from types import ModuleType
from typing import Any, Dict, Mapping, Optional, Tuple, Union

import numpy as np

from . import _data, _shareable
from ._count import count
from ._lib import hot

_ALIGNMENT = 64  # of each array of a block


def _shape_of(name: str, shape: Any) -> Tuple[int, ...]:
    if not isinstance(shape, (tuple, list)):
        shape = shape,
    return tuple(count(extent, f"shape of '{name}'", most=1 << 62)
                 for extent in shape)


class _Wanted:
    """One array: what it is to be, and where in its block."""

    def __init__(self, name: str, shape: Any, dtype: Any, torch: Any) -> None:
        self.shape = _shape_of(name, shape)
        self.as_torch: Any = None  # a dtype that numpy may lack
        if torch is not None and isinstance(dtype, torch.dtype):
            self.as_torch = dtype
            self.dtype = np.dtype("u1")
            itemsize = torch.empty((), dtype=dtype).element_size()
        else:
            self.dtype = np.dtype(dtype)
            _data.check_dtype(name, self.dtype)
            itemsize = self.dtype.itemsize
        self.bytes = math.prod(self.shape) * itemsize
        self.offset = 0

    def of(self, block: Any, torch: Any) -> Any:
        """The array, as numpy's or torch's."""
        piece = block[self.offset:self.offset + self.bytes]
        if torch is None:
            array = piece.view(self.dtype).reshape(self.shape)
            hot.block_given(array)
            return array
        if self.as_torch is None:
            return torch.from_numpy(
                piece.view(self.dtype).reshape(self.shape))
        return torch.from_numpy(piece).view(self.as_torch).reshape(self.shape)


    def on_device(self, block: _shareable.Block, library: Any) -> Any:
        """The array in memory of a GPU, as this module's, torch's or cupy's."""
        array = _shareable.DeviceArray(block, self.offset, self.shape,
                                       self.dtype)
        if library is None:
            return array
        if library.__name__ == "cupy":
            return library.asarray(array)
        if self.bytes == 0:
            return library.empty(
                self.shape, device=array.device, dtype=self.as_torch or
                library.from_numpy(np.empty(0, self.dtype)).dtype)
        if self.as_torch is None:
            return library.as_tensor(array, device=array.device)
        array.shape = self.bytes,
        return library.as_tensor(array, device=array.device).view(
            self.as_torch).reshape(self.shape)


def _cupy_of(like: Union[None, str, ModuleType]) -> Any:
    if like == "cupy" or getattr(like, "__name__", "") == "cupy":
        return importlib.import_module("cupy")
    return None


def _torch_of(like: Union[None, str, ModuleType]) -> Any:
    if like is None or like == "numpy":
        return None
    if like == "torch" or getattr(like, "__name__", "") == "torch":
        return importlib.import_module("torch")
    raise ValueError(f"like={like!r}: None, 'numpy' or 'torch', or 'cupy' for "
                     "a GPU")


def empty(shape: Any, dtype: Any = "float32", *,
          like: Union[None, str, ModuleType] = None, device: Any = None) -> Any:
    """An array in memory that can be lent to peers, which then read it in place:
    ep.send({"image": array}, lend=True). It is all zeros.

    `shape` and `dtype`: as for numpy.empty(). Or `shape` is a dict of names to
    (shape, dtype): this gives a dict of arrays in one block of memory, which
    are lent together, in one message. `like`: "torch" gives tensors of torch on
    the CPU, whose `dtype` may be one of torch's.

    A block takes whole pages and a descriptor, and all its memory at once. It is
    freed when its arrays and their views are gone, here and at the peers. While
    it is lent the numpy arrays that were sent are read-only; tensors of torch
    cannot be: do not write to them while is_lent(). The child of a fork shares
    this memory: it must not write to it.

    `device`: "cuda:1" or the like, or one of torch's, gives memory of that GPU,
    not set. A process of the same machine and GPU copies what is sent of it by
    itself, once; nothing is lent. The array has __cuda_array_interface__, with
    `like` it is torch's or cupy's. It may be written to again when send() has
    returned.

    Raises NoMemory, LimitExceeded (RLIMIT_NOFILE, RLIMIT_FSIZE), Unsupported (no
    memfd_create(), or Linux before 5.1), TypeError (no tensor has that
    dtype); of a GPU Unsupported (no driver, or it shares no memory) and NotFound
    (no such GPU), too."""
    cupy = None if device is None else _cupy_of(like)
    torch = _torch_of(like) if cupy is None else None
    number = _shareable.number_of(device, torch)
    library = torch if number is None else cupy or torch
    if not isinstance(shape, Mapping):
        return _arrays({"": _Wanted("array", shape, dtype, torch)}, library,
                       number)[""]
    return _arrays({name: _Wanted(name, each[0], each[1], torch)
                    for name, each in shape.items()}, library, number)


def _arrays(wanted: Dict[str, _Wanted], library: Any, number: Optional[int]
            ) -> Dict[str, Any]:
    end = 0
    for one in wanted.values():
        one.offset = -(-end // _ALIGNMENT) * _ALIGNMENT
        if one.bytes > 0:
            end = one.offset + one.bytes
    if number is not None:
        there = _shareable.Block(end, number)
        return {name: one.on_device(there, library)
                for name, one in wanted.items()}
    block = hot.block(end) if end > 0 else np.empty(0, "u1")
    return {name: one.of(block, library) for name, one in wanted.items()}


def is_lent(array: Any) -> bool:
    """Whether a peer may read the memory of an array or tensor of empty(), or of
    a view of it, now or by a message that waits: then it must not be written
    to. One that is not lent stays so until it is sent or offered with lend=True.
    Other memory is never lent. In the child of a fork, the arrays of the parent
    always count as lent."""
    if hasattr(array, "data_ptr"):
        return hot.is_lent(array.data_ptr())
    if hasattr(array, "__cuda_array_interface__"):
        return False
    return hot.is_lent(np.asarray(array).__array_interface__["data"][0])
