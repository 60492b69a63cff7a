# SPDX-License-Identifier: BSD-3-Clause
"""A message that came."""

from __future__ import annotations

import copy
import importlib
import itertools
import re
from types import ModuleType
from typing import Any, Callable, Dict, Iterator, List, NoReturn, \
    Optional, Tuple, Type, TypeVar, Union

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from . import _brief, _data
from ._lib import hot
from ._near import NoSuchName
from .errors import Error

_shown = _data.shortened  # a name, which came from a peer, in words

CPU = 1  # as DLPack calls it

Like = Union[None, str, ModuleType, Callable[[Any], Any]]

T = TypeVar("T", bound="BaseMessage")


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


class RawTensor(DLPack, NDArrayOperatorsMixin):
    """A tensor of a message that no array can be made of: its dtype has no name
    in numpy, or in the library that `like` says, or its memory is a device's.

    It has the tensor's `name`, `dtype` (as Message.dtype()), `shape` and
    `ndim`. `why` says why there is no array. `raw()` and `tobytes()` give its
    bytes, as Message.raw(). It can be sent on, and from_dlpack() of another
    library may take it. It equals itself alone. Used as an array otherwise it
    raises TypeError, or AttributeError, with `why`."""

    __slots__ = ("_name", "_why")

    def __init__(self, owner: Any, index: int, name: str, why: str) -> None:
        super().__init__(owner, index)
        self._name = name
        self._why = why

    @property
    def name(self) -> str:
        """What the message calls it."""
        return self._name

    @property
    def why(self) -> str:
        """Why there is no array of it, in one line."""
        return self._why

    @property
    def dtype(self) -> str:
        """The name of its dtype."""
        return hot.dtype(self._owner, self._index)

    @property
    def shape(self) -> Tuple[int, ...]:
        """Its extents."""
        return hot.shape(self._owner, self._index)

    @property
    def ndim(self) -> int:
        """How many of these."""
        return len(self.shape)

    def raw(self) -> Any:
        """Its bytes, as Message.raw()."""
        return _raw(self._owner, self._index, self._name)

    def tobytes(self) -> bytes:
        """A copy of its bytes."""
        copied: bytes = self.raw().tobytes()
        return copied

    def __repr__(self) -> str:
        return f"<tensor '{_shown(self._name)}' of {self.dtype}, shape " \
            f"{self.shape}: no array>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # of a protocol; or it is being made
            raise AttributeError(name)
        raise AttributeError(f"no .{name}: {self._why}")

    def _refuse(self, *args: Any, **more: Any) -> NoReturn:
        raise TypeError(self._why)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    __hash__ = object.__hash__

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any,
                        **more: Any) -> Any:
        if ufunc is np.equal and method == "__call__":
            return inputs[0] is inputs[1]  # of == of an array
        if ufunc is np.not_equal and method == "__call__":
            return inputs[0] is not inputs[1]
        self._refuse()

    __array__ = __array_function__ = _refuse  # numpy's
    __len__ = __iter__ = __contains__ = __getitem__ = __setitem__ = _refuse
    __bool__ = __int__ = __float__ = __complex__ = __index__ = _refuse


def _raw(owner: Any, index: int, name: str) -> Any:
    try:
        return hot.raw(owner, index)
    except TypeError as error:
        raise TypeError(f"tensor '{_shown(name)}' has no bytes here: "
                        f"{error}") from None


class NotTaken(TypeError):
    """Another library has no array of that tensor."""


# What libraries say of memory that is used up by a RuntimeError: torch, cupy,
# JAX. MemoryError is none.
_FULL = re.compile("out.?of.?memory|allocate.memory|RESOURCE_EXHAUSTED", re.I)
# Those that begin so are of the tensor, also where it is in a device's memory:
# torch and numpy (Unsupported kInt bits 4), torch, JAX.
_OF_TENSOR = re.compile(
    "Unsupported |ATen does not support |UNIMPLEMENTED: |INVALID_ARGUMENT: ")


def _of_tensor(error: Exception, tensor: Any) -> bool:
    """Whether from_dlpack() raised it because of what the tensor is, so that
    it would again, and not of what became of the machine."""
    if isinstance(error, (TypeError, BufferError, ValueError,
                          NotImplementedError)):
        return True
    if not isinstance(error, RuntimeError):
        return False
    words = str(error)
    if _FULL.search(type(error).__name__ + " " + words):
        return False
    return tensor.__dlpack_device__()[0] == CPU or \
        _OF_TENSOR.match(words) is not None


class Converter:
    """What makes another library's arrays of tensors: its from_dlpack(), and
    what is done with each then."""

    def __init__(self, take: Callable[[Any], Any], called: str,
                 then: Optional[Callable[[Any], Any]] = None) -> None:
        self._take = take
        self._called = called
        self._then = then

    def __call__(self, tensor: Any) -> Any:
        try:
            made = self._take(tensor)
        except Exception as error:
            if isinstance(error, Error) or not _of_tensor(error, tensor):
                raise
            words = str(error).split("\n")[0]
            raise NotTaken(f"{self._called} does not take "
                           f"({words or type(error).__name__})") from error
        return made if self._then is None else self._then(made)

    def __reduce__(self) -> Tuple[Any, ...]:
        return _converter, (self._called[:-len(".from_dlpack()")],)


def _naming(error: Exception, name: str) -> Exception:
    """The same exception, whose words begin with the tensor that it is of."""
    args = error.args
    name = _shown(name)
    if args and isinstance(args[0], str) and f"'{name}'" not in args[0]:
        error.args = (f"tensor '{name}': {args[0]}", *args[1:])
    return error


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
    called = getattr(module, "__name__", str(like))
    return Converter(convert, f"{called}.from_dlpack()")


def _restored(kind: Type[T], arrays: Dict[str, Any], others: Dict[str, Any],
              meta: Dict[str, Any], convert: Optional[Callable[[Any], Any]],
              is_part: bool, own: Dict[str, Any]) -> T:
    """A message that was pickled. `others`: arrays of another library where
    numpy has none; `own`: attributes of its kind."""
    message = kind.__new__(kind)
    owner = hot.owner({name: _data.leaf(name, others.get(name, array))
                       for name, array in arrays.items()})
    BaseMessage.__init__(message, (arrays, owner, meta), None, convert)
    message._ready.update(others)
    message._is_part = is_part
    for name, value in own.items():
        setattr(message, name, value)
    return message


class BaseMessage(_data.Formed):
    """A mapping of names to arrays, in the order in which they were sent, and
    to the scalars, strings and bytes that were sent among them.

    What there is no array of, by its dtype or its memory, is a RawTensor: it
    does not keep from the others, nor from dict() of a message.

    An array views the memory that the message came into: nothing is copied, it
    is writable, aligned to 16 bytes at least, and keeps that memory for as long
    as it lives, also when the message and the connection are gone. A message
    counts against the limit `held_bytes` until its last array is gone. apart()
    has each array keep its own memory only. Arrays of a loan (`lent`) are
    read-only.

    It can be pickled, by protocol 5 with its arrays out of band, and is then of
    use without a connection. copy.copy() shares the arrays.
    """

    __slots__ = ("_arrays", "_owner", "_meta", "_convert", "_ready", "_parts",
                 "_peer", "_places", "_is_part")

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
        # Owners of one tensor each, in place of that of all.
        self._parts: Optional[List[Any]] = None
        self._is_part = False  # of a map that was fetched

    def _own(self) -> Dict[str, Any]:
        """Attributes of its kind that are pickled, too."""
        return {}

    def _array(self, name: str) -> Any:
        """Of numpy, or what the library that `like` says makes of it."""
        array = self._arrays[name]
        if not isinstance(array, np.ndarray):
            array = self._numpy(name)
        if isinstance(array, RawTensor):
            array = self[name]
        if isinstance(array, RawTensor):
            raise TypeError(f"a message cannot be pickled or copied whose "
                            f"{array.why}")
        return array

    def __reduce_ex__(self, protocol: Any) -> Tuple[Any, ...]:
        values = {name: self._array(name) for name in self._arrays}
        others = {name: value for name, value in values.items()
                  if not isinstance(value, np.ndarray)}
        return _restored, (type(self), {**values, **dict.fromkeys(others)},
                           others, self._meta, self._convert, self._is_part,
                           self._own())

    def __copy__(self: T) -> T:
        made = type(self).__new__(type(self))
        for kind in type(self).__mro__:
            for name in getattr(kind, "__slots__", ()):
                if name != "__weakref__":
                    setattr(made, name, getattr(self, name))
        made._arrays = dict(self._arrays)
        made._ready = made._arrays if self._ready is self._arrays else \
            dict(self._ready)
        return made

    def __deepcopy__(self: T, memo: Dict[int, Any]) -> T:
        restored, state = self.__reduce_ex__(4)
        made: T = restored(*copy.deepcopy(state, memo))
        made._peer = self._peer
        return made

    def _index(self, name: str) -> int:
        if self._places is None:
            self._places = {key: i for i, key in enumerate(self._arrays)}
        try:
            return self._places[name]
        except KeyError:
            raise NoSuchName(name, self._arrays, "array ") from None

    def _at(self, name: str) -> Tuple[Any, int]:
        """The owner of a tensor, and where it has that."""
        owner, parts = self._owner, self._parts
        index = self._index(name)
        return (owner, index) if parts is None else (parts[index], 0)

    def _numpy(self, name: str) -> Any:
        _data.know_ml_dtypes()
        value = hot.array(*self._at(name))
        if value is None:
            value = self._raw_tensor(name, self._without_numpy(name))
        self._arrays[name] = value
        return value

    def _numpy_of(self, name: str) -> Any:
        """What there is of that name, an array as numpy's, whatever `like`
        says."""
        value = self._arrays.get(name)
        return self._numpy(name) if value is None and name in self._arrays \
            else value

    def _without_numpy(self, name: str) -> str:
        """Why there is no array of it."""
        at = self._at(name)
        name = _shown(name)
        if hot.device(*at)[0] != CPU:
            return (
                f"tensor '{name}' is in memory of a device, which numpy cannot "
                f"read: take it by msg.dlpack('{name}'), or connect with "
                "like='torch' or 'cupy'")
        dtype = hot.dtype(*at)
        if hasattr(np, dtype):  # numpy 1 has 32 dimensions, too
            return (
                f"tensor '{name}' has a shape that numpy has no array of: "
                f"take it by msg.dlpack('{name}')")
        return (
            f"tensor '{name}' is {dtype}, which numpy has no type for: "
            + ("pip install ml_dtypes, or " if dtype in _data.OF_ML_DTYPES
               else "")
            + f"take it by msg.dlpack('{name}'), or its bytes by "
            f"msg.raw('{name}')")

    def _raw_tensor(self, name: str, why: str) -> RawTensor:
        return RawTensor(*self._at(name), name, why)

    def _made(self, name: str, convert: Callable[[Any], Any]) -> Any:
        """The tensor by another's from_dlpack(), from a copy where that knows
        no strides that go backwards, as torch."""
        try:
            return convert(self.dlpack(name))
        except Exception:
            array = self._arrays[name]
            if not isinstance(array, np.ndarray) or \
                    min(array.strides, default=0) >= 0:
                raise
            return convert(array.copy())

    def _not_taken(self, name: str, error: NotTaken) -> str:
        dtype = self.dtype(name)
        shape = hot.shape(*self._at(name))
        name = _shown(name)
        return f"tensor '{name}' is {dtype} of shape {shape}, which {error}: " \
            f"its bytes are msg.raw('{name}')"

    def _converted(self, name: str, convert: Callable[[Any], Any]) -> Any:
        """What the library, or the function, that `like` says makes of it."""
        if name not in self._ready:
            try:
                self._ready[name] = self._made(name, convert)
            except NotTaken as error:
                return self._raw_tensor(name, self._not_taken(name, error))
            except Exception as error:
                _naming(error, name)
                raise
        return self._ready[name]

    def _find(self, name: str) -> Any:
        convert = self._convert
        if name in self._arrays:
            return self._numpy(name) if convert is None else \
                self._converted(name, convert)
        if name in self:
            return self._meta[_data.MARK + name]
        raise NoSuchName(name, self)

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
                if key.startswith(_data.MARK) and key != _data.MARK and
                key[len(_data.MARK):] not in self._arrays)

    def __iter__(self) -> Iterator[str]:
        names = iter(self._arrays)
        return itertools.chain(names, self._leaves()) if self._meta else names

    def __len__(self) -> int:
        return len(self._arrays) + sum(1 for _ in self._leaves())

    def _called(self) -> str:
        return "message"

    def _from(self) -> str:
        return "" if self._peer is None else f" from {self._peer}"

    def _brief(self, name: str) -> str:
        if name not in self._arrays:
            return _brief.value(self._meta[_data.MARK + name])
        array = self._arrays[name]
        return _brief.value(array) if isinstance(array, np.ndarray) else \
            _brief.tensor(self.dtype(name), hot.shape(*self._at(name)))

    def __repr__(self) -> str:
        return _brief.mapping(
            self._called(), [f"'{_shown(name)}': {self._brief(name)}"
                             for name in itertools.islice(self, _brief.MOST)],
            len(self), hot.shown(self._from()))

    @property
    def meta(self) -> Dict[str, Any]:
        """The metadata: frame, acquired_ns and what else the sender gave, each
        a bool, int, float, str or bytes. Times are ns of Unix time."""
        return _data.without_own(self._meta)

    def _form(self) -> Optional[str]:
        """Which a part of a map has, and cannot be sent with."""
        return None if self._is_part else self._told_form()

    def _told_form(self) -> Optional[str]:
        form = self._meta.get(_data.MARK)
        return form if isinstance(form, str) else None

    def tree(self) -> Any:
        """What was sent, with its dicts, lists, tuples and None."""
        form = self._told_form()
        return dict(self) if form is None else \
            _data.unflatten(form, self, self._is_part, self._numpy_of)

    @property
    def lent(self) -> bool:
        """Whether an array of it lies in memory that the sender lends
        (`loan`): it is read-only, and the sender cannot reuse that memory before
        the array, and all others of the message, are gone."""
        owners = [self._owner] if self._parts is None else self._parts
        return any(hot.borrows(owner) for owner in owners)

    def apart(self: T) -> T:
        """Has each array keep its own memory only, and returns the message.
        When an array, with its views, is gone its memory is free, while the
        others live. Take the arrays after this: what was made of the message
        before keeps all of it, as the message itself does.

        Arrays shorter than 4 KiB, and all of a message of up to 1 MiB, are
        copied. Of others whole pages are given back, and nothing is copied;
        memory of a device or of `allocators`, and that of a loan, stays until the
        last of them is gone."""
        owner, values = self._owner, list(self._arrays.values())
        if self._parts is not None:
            return self
        parts = hot.apart(owner, values)
        arrays = {}
        ready: Dict[str, Any] = {}
        for (name, value), part in zip(self._arrays.items(), parts):
            if isinstance(value, np.ndarray) and value.base is not owner:
                arrays[name] = value  # it was received into this
                if name in self._ready:
                    ready[name] = self._ready[name]
            else:
                arrays[name] = hot.array(part, 0)
        self._arrays = arrays
        self._ready = arrays if self._convert is None else ready
        self._parts, self._owner = parts, None
        return self

    def dlpack(self, name: str) -> DLPack:
        """The tensor for any library that has from_dlpack()."""
        return DLPack(*self._at(name))

    def raw(self, name: str) -> Any:
        """The tensor's bytes, packed in C order or a permutation of it, of a
        broadcast one each element once, as a flat uint8 array. Where it came
        with gaps (`keep_strides`) it is a copy."""
        return _raw(*self._at(name), name)

    def dtype(self, name: str) -> str:
        """The name of a tensor's dtype, also of one that numpy lacks."""
        return hot.dtype(*self._at(name))
