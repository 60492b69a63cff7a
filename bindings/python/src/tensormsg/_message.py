# SPDX-License-Identifier: BSD-3-Clause
"""A message that came."""

from __future__ import annotations

import importlib
import itertools
from types import ModuleType
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Tuple, \
    Union

import numpy as np

from . import _data
from ._lib import hot

CPU = 1  # as DLPack calls it

Like = Union[None, str, ModuleType, Callable[[Any], Any]]


class DLPack:
    """One tensor of a message as `torch.from_dlpack()` and its kin take it. It
    keeps the message's memory alive."""

    __slots__ = ("_index", "_owner")

    def __init__(self, owner: Any, index: int) -> None:
        self._owner = owner
        self._index = index

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None,
                   dl_device: Any = None, copy: Optional[bool] = None) -> Any:
        if copy:
            raise BufferError("a message's tensors are not copied")
        if dl_device not in (None, self.__dlpack_device__()):
            raise BufferError("a message's tensors are where they came to")
        versioned = max_version is not None and max_version[0] >= 1
        return hot.dlpack(self._owner, self._index, versioned)

    def __dlpack_device__(self) -> Tuple[int, int]:
        return hot.device(self._owner, self._index)


def _converter(like: Like) -> Optional[Callable[[Any], Any]]:
    if like is None or like == "numpy":
        return None
    if callable(like):
        return like
    module: Any = like
    if isinstance(like, str):
        module = importlib.import_module(
            "jax.numpy" if like == "jax" else like)
    convert: Optional[Callable[[Any], Any]] = \
        getattr(module, "from_dlpack", None)
    if convert is None:
        raise TypeError(f"like={like!r}: None, the name of a module with "
                        "from_dlpack(), that module, or a function")
    return convert


class BaseMessage(Mapping[str, Any]):
    """A mapping of names to arrays, in the order in which they were sent, and
    to the scalars, strings and bytes that were sent among them.

    An array views the memory that the message came into: nothing is copied, it
    is writable, aligned to 16 bytes at least, and keeps that memory for as long
    as it lives, also when the message and the connection are gone. A message
    counts against the limit `held_bytes` until its last array is gone.
    """

    __slots__ = ("_arrays", "_owner", "_meta", "_convert", "_ready", "_peer",
                 "_places")

    def __init__(self, parts: Any, peer: Any,
                 convert: Optional[Callable[[Any], Any]]) -> None:
        self._arrays: Dict[str, Any] = parts[0]
        self._owner = parts[1]
        self._meta: Dict[str, Any] = parts[2] or {}
        self._peer = peer
        self._convert = convert
        # What is given at once: the arrays, or what was made of them so far.
        self._ready: Dict[str, Any] = self._arrays if convert is None else {}
        self._places: Optional[Dict[str, int]] = None  # once one is asked for

    def _index(self, name: str) -> int:
        if self._places is None:
            self._places = {key: i for i, key in enumerate(self._arrays)}
        return self._places[name]

    def _without_numpy(self, name: str) -> Any:
        index = self._index(name)
        _data.know_ml_dtypes()
        value = hot.array(self._owner, index)
        if value is None and hot.device(self._owner, index)[0] != CPU:
            raise TypeError(
                f"tensor '{name}' is in memory of a device, which numpy cannot "
                f"read: take it by msg.dlpack('{name}'), or connect with "
                "like='torch' or 'cupy'")
        if value is None:
            dtype = hot.dtype(self._owner, index)
            if hasattr(np, dtype):  # numpy 1 has 32 dimensions, too
                raise TypeError(
                    f"tensor '{name}' has a shape that numpy has no array of: "
                    f"take it by msg.dlpack('{name}')")
            raise TypeError(
                f"tensor '{name}' is {dtype}, which numpy has no type for: "
                + ("pip install ml_dtypes, or " if "float" in dtype else "")
                + f"take it by msg.dlpack('{name}'), or its bytes by "
                f"msg.raw('{name}')")
        self._arrays[name] = value
        return value

    def _made(self, name: str, convert: Callable[[Any], Any]) -> Any:
        """The tensor by another's from_dlpack(), from a copy where that knows
        no strides that go backwards, as torch."""
        try:
            return convert(self.dlpack(name))
        except Exception:
            array = self._arrays[name]
            if array is None or min(array.strides, default=0) >= 0:
                raise
            return convert(array.copy())

    def _find(self, name: str) -> Any:
        convert = self._convert
        if name in self._arrays:
            if convert is None:
                return self._without_numpy(name)
            if name not in self._ready:
                self._ready[name] = self._made(name, convert)
            return self._ready[name]
        if name in self:
            return self._meta[_data.MARK + name]
        raise KeyError(name)

    def __getitem__(self, name: str) -> Any:
        try:
            value = self._ready[name]
        except KeyError:
            value = None
        return self._find(name) if value is None else value

    def __contains__(self, name: object) -> bool:
        return name in self._arrays or (
            isinstance(name, str) and name != "" and
            _data.MARK + name in self._meta)

    def _leaves(self) -> Iterator[str]:
        """Names of what came among the arrays and is none."""
        return (key[len(_data.MARK):] for key in self._meta
                if key.startswith(_data.MARK) and key != _data.MARK)

    def __iter__(self) -> Iterator[str]:
        names = iter(self._arrays)
        return itertools.chain(names, self._leaves()) if self._meta else names

    def __len__(self) -> int:
        return len(self._arrays) + sum(1 for _ in self._leaves())

    def __repr__(self) -> str:
        return f"<message of {list(self)} from {self._peer}>"

    @property
    def meta(self) -> Dict[str, Any]:
        """The metadata: frame, acquired_ns and what else the sender gave, each
        a bool, int, float, str or bytes. Times are ns of Unix time."""
        return {key: value for key, value in self._meta.items()
                if not key.startswith(_data.MARK)}

    def tree(self) -> Any:
        """What was sent, with its dicts, lists, tuples and None."""
        form = self._meta.get(_data.MARK)
        return dict(self) if not isinstance(form, str) else \
            _data.unflatten(form, self)

    def dlpack(self, name: str) -> DLPack:
        """The tensor for any library that has from_dlpack()."""
        return DLPack(self._owner, self._index(name))

    def raw(self, name: str) -> Any:
        """The tensor's bytes, packed in C order or a permutation of it, of a
        broadcast one each element once, as a flat uint8 array. Where it came
        with gaps (`keep_strides`) it is a copy."""
        return hot.raw(self._owner, self._index(name))

    def dtype(self, name: str) -> str:
        """The name of a tensor's dtype, also of one that numpy lacks."""
        return hot.dtype(self._owner, self._index(name))
