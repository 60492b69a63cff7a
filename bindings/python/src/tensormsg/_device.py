# SPDX-License-Identifier: BSD-3-Clause
"""What a user sends from memory of CUDA's."""

from __future__ import annotations

import math
from typing import Any, Dict, Optional, Tuple

import numpy as np

from ._lib import ffi, hot, lib
from .context import default_context
from .errors import check

CUDA = (2, 13)  # DLPack's device types: its own memory, and managed memory
_NDIM_MOST = 64
_LEGACY = 1  # of CUDA's streams, as DLPack and __cuda_array_interface__ have it


def type_of(name: str, value: Any) -> int:
    """Of the device, as DLPack numbers them."""
    said = value.__dlpack_device__()
    try:
        kind, _ = said
        return int(kind)
    except (TypeError, ValueError):
        raise TypeError(f"'{name}': its __dlpack_device__() gave {said!r}, no "
                        "pair of ints") from None


def dlpack(value: Any, **more: int) -> Any:
    """Its capsule, with a version where it knows of them."""
    try:
        return value.__dlpack__(max_version=(1, 0), **more)
    except TypeError:
        return value.__dlpack__(**more)


def capsule(name: str, value: Any) -> Any:
    """A tensor that has __dlpack__(). Its owner has the legacy default stream
    wait for its work, and the library reads behind that."""
    return hot.device_tensor(name, dlpack(value, stream=_LEGACY), _LEGACY)


def _whole(value: Any, least: Optional[int] = None) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(
        value, bool) and (least is None or int(value) >= least)


def checked(name: str, about: Any) -> Dict[str, Any]:
    """What an object says of itself by __cuda_array_interface__."""
    def wrong(key: str, words: str) -> TypeError:
        said = repr(about.get(key))
        return TypeError(f"'{name}': its __cuda_array_interface__ has "
                         f"{key}={said[:60]}, which is {words}")

    if not isinstance(about, dict):
        raise TypeError(f"'{name}': its __cuda_array_interface__ is a "
                        f"{type(about).__name__}, no dict")
    shape, strides = about.get("shape"), about.get("strides")
    if not isinstance(shape, tuple) or not all(_whole(n, 0) for n in shape):
        raise wrong("shape", "no tuple of ints, each 0 or more")
    if len(shape) > _NDIM_MOST:
        raise wrong("shape", f"{len(shape)} dimensions, at most "
                    f"{_NDIM_MOST} are possible")
    if strides is not None and not (
            isinstance(strides, tuple) and len(strides) == len(shape) and
            all(_whole(n) for n in strides)):
        raise wrong("strides", "neither None nor a tuple of as many ints")
    try:
        if not isinstance(about.get("typestr"), str):
            raise TypeError
        itemsize = np.dtype(about["typestr"]).itemsize
    except (TypeError, ValueError):
        raise wrong("typestr", "no type of numpy's") from None
    if math.prod(int(n) for n in shape) * itemsize >= 1 << 63:
        raise wrong("shape", "more than there is memory")
    data = about.get("data")
    if not (isinstance(data, tuple) and len(data) == 2 and
            _whole(data[0], 0) and data[0] < 1 << 64):
        raise wrong("data", "no address with whether it is read-only")
    if data[0] == 0 and 0 not in shape:
        raise wrong("data", "no address for elements that there are")
    stream = about.get("stream")
    if stream is not None and not (_whole(stream, 0) and stream < 1 << 64):
        raise wrong("stream", "neither None nor CUDA's number of a stream")
    return about


def _stream(name: str, about: Any) -> int:
    """Of the interface's version 3; 0: the data are there."""
    stream = about.get("stream")
    if stream is None:
        return 0
    if stream == 0:
        raise ValueError(f"'{name}' has stream 0, which is ambiguous: 1 is "
                         "the legacy default stream, 2 that of the thread")
    return int(stream)


def _device(name: str, address: int) -> Tuple[int, int]:
    memory = ffi.new("tmsg_memory_t *")
    check(lib.tmsg_memory_query(ffi.cast("void *", address), memory))
    if memory.device.type == 1:
        driver = default_context().describe()["cuda_driver"]
        raise TypeError(f"'{name}' says that it is CUDA's memory, at "
                        f"{address:#x}, which no driver of this process knows "
                        f"({driver})")
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
