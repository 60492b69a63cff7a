# SPDX-License-Identifier: BSD-3-Clause
"""What a user sends from memory of CUDA's."""

from __future__ import annotations

from typing import Any, Tuple

import numpy as np

from ._lib import ffi, hot, lib
from .errors import check

CUDA = (2, 13)  # DLPack's device types: its own memory, and managed memory
_LEGACY = 1  # of CUDA's streams, as DLPack and __cuda_array_interface__ have it


def capsule(name: str, value: Any) -> Any:
    """A tensor that has __dlpack__(). Its owner has the legacy default stream
    wait for its work, and the library reads behind that."""
    try:
        tensor = value.__dlpack__(stream=_LEGACY, max_version=(1, 0))
    except TypeError:
        tensor = value.__dlpack__(stream=_LEGACY)
    return hot.device_tensor(name, tensor, _LEGACY)


def _stream(name: str, about: Any) -> int:
    """Of the interface's version 3; 0: the data are there."""
    stream = about.get("stream")
    if stream is None:
        return 0
    if stream == 0:
        raise ValueError(f"'{name}' has stream 0, which nobody can tell what it "
                         "means: 1 is the legacy default one, 2 the thread's")
    return int(stream)


def _device(name: str, address: int) -> Tuple[int, int]:
    memory = ffi.new("tmsg_memory_t *")
    check(lib.tmsg_memory_query(ffi.cast("void *", address), memory))
    if memory.device.type == 1:
        raise TypeError(f"'{name}' says that it is CUDA's memory, which this "
                        "process's driver does not know")
    return memory.device.type, memory.device.id


def interface(name: str, value: Any, about: Any,
              dtype: "np.dtype[Any]") -> Any:
    """One with `about` as __cuda_array_interface__ that has elements, of a
    dtype that a tensor may have."""
    if about.get("mask") is not None:
        raise TypeError(f"'{name}' is masked: send its data and its mask")
    if not dtype.isnative:
        raise TypeError(f"'{name}' is in another byte order: copy it")
    strides = about.get("strides")
    if strides is not None:
        if any(stride % dtype.itemsize for stride in strides):
            raise TypeError(f"'{name}' has strides that are no whole elements: "
                            "copy it")
        strides = tuple(stride // dtype.itemsize for stride in strides)
    address = int(about["data"][0])
    return hot.device_memory(value, address, _device(name, address),
                             dtype.name, tuple(about["shape"]), strides,
                             _stream(name, about))
