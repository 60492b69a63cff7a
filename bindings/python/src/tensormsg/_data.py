# SPDX-License-Identifier: BSD-3-Clause
"""What a user sends, as a flat dict of arrays and one of metadata, and back."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import itertools
import json
import numbers
import os
import sys
import threading
from typing import Any, Callable, Dict, FrozenSet, Iterable, List, Mapping, \
    NoReturn, Optional, Set, Tuple, Union

import numpy as np

from . import _device
from ._lib import hot
from .context import most_keys
from .errors import Error, Status, error_of

# What can be sent, as far as types can say it.
Data = Union[Mapping[Any, Any], List[Any], Tuple[Any, ...]]

# Beside the tensors of a map there may be leaves that are no arrays: metadata
# whose key is "/" and the leaf's name. Where names alone do not tell how the
# leaves hang together, the key "/" has that as JSON: an object is a dict,
# ["d", [key, value], ...] a dict some of whose keys are int, ["l", ...] a list,
# ["t", ...] a tuple, 0 a leaf, null None. ["L"] is a list of numbers of one
# type, which is one array, and ["T"] such a tuple; ["L", "T"] is a list of such
# tuples, which are as long. An "n" behind these says that they are numpy's.
MARK = "/"
DEPTH_MOST = 256  # of a tree: what the other side can build
INT64 = range(-(1 << 63), 1 << 63)
# Numbers, and the dtypes of lists of them.
_NUMBERS = {bool: np.dtype("?"), int: np.dtype("i8"), float: np.dtype("f8")}
_AS_NUMBERS = frozenset(_NUMBERS.values())
_DIMENSIONS_MOST = 3  # of one array: more would be large trees of few bytes
ITEM_BYTES = {kind: dtype.itemsize for kind, dtype in _NUMBERS.items()}

_CPU = (1, 3)  # DLPack's device types of memory that the CPU reads
_ML_DTYPES = (  # name, code of DLPack, bits
    ("bfloat16", 4, 16), ("float8_e3m4", 7, 8), ("float8_e4m3", 8, 8),
    ("float8_e4m3b11fnuz", 9, 8), ("float8_e4m3fn", 10, 8),
    ("float8_e4m3fnuz", 11, 8), ("float8_e5m2", 12, 8),
    ("float8_e5m2fnuz", 13, 8), ("float8_e8m0fnu", 14, 8),
    ("complex32", 5, 32))
OF_ML_DTYPES = frozenset(known[0] for known in _ML_DTYPES)
_BUILTIN = range(24)  # numpy's numbers of its own types of numbers
_SMALL = ("int1", "int2", "int4", "uint1", "uint2", "uint4", "float4_",
          "float6_")  # of ml_dtypes' types
_ml_dtypes: Optional[bool] = None
_known: Set[Any] = set()  # of their types
_small_ints: Optional[FrozenSet[Any]] = None
_registering = threading.RLock()


def know_ml_dtypes() -> bool:
    """Has ml_dtypes' types stand for bfloat16, the float8 kinds and complex32;
    False where it is not installed."""
    global _ml_dtypes
    if _ml_dtypes is None:
        try:
            import ml_dtypes
        except ImportError:
            _ml_dtypes = False
            return False
        with _registering:
            for name, code, bits in _ML_DTYPES:
                if not _ml_dtypes and hasattr(ml_dtypes, name):
                    dtype = np.dtype(getattr(ml_dtypes, name))
                    hot.register(dtype, code, bits)
                    _known.add(dtype)
            _ml_dtypes = True  # last: others look without the lock
    return _ml_dtypes


def _is_tensors(dtype: "np.dtype[Any]") -> bool:
    """Whether a tensor may have it. The kind and the letter of a type that
    another package has made say nothing."""
    if dtype.num in _BUILTIN and dtype.kind in "biufc":
        return dtype.char not in "gG"
    know_ml_dtypes()
    return dtype in _known


def _instead_of(dtype: "np.dtype[Any]") -> str:
    """What is wrong with it, and what to send instead."""
    if dtype.num not in _BUILTIN and str(dtype).startswith(_SMALL):
        return "numpy keeps in a byte each and a tensor packs: send " \
            ".view('uint8')"
    if dtype.names:
        return "is not a tensor's dtype: send its fields, {field: x[field] " \
            "for field in x.dtype.names}"
    return "is not a tensor's dtype" + {
        "M": ": send .view('int64')", "m": ": send .view('int64')",
        "O": ": Python objects do not travel; send .tolist() of texts",
        "U": ": send .tolist(), or .view('uint32') where there are many",
        "T": ": send .tolist()",
        "S": ": send .tolist(), or .view('uint8') where there are many",
        "V": ": send .view('uint8')" if dtype.itemsize else "",
        "f": ": send .astype('float64')",
        "c": ": send .astype('complex128')"}.get(dtype.kind, "")


def check_dtype(name: str, dtype: "np.dtype[Any]") -> None:
    """Raises TypeError if no tensor has it."""
    if not _is_tensors(dtype):
        raise TypeError(f"'{name}' has dtype {dtype}, which "
                        f"{_instead_of(dtype)}")


def _array(name: str, value: "np.ndarray[Any, Any]") -> Any:
    """An array as the extension takes it: of class ndarray, in this machine's
    byte order, with strides in whole elements."""
    dtype = value.dtype
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"'{name}' is a masked array: send its .data and its "
                        ".mask")
    check_dtype(name, dtype)
    value = np.asarray(value)
    if not dtype.isnative:
        return value.astype(dtype.newbyteorder("="))
    if any(stride % dtype.itemsize for stride in value.strides):
        return value.copy()
    return value


def _is_torch(value: Any) -> bool:
    """Whether it is a tensor of torch's, which only the user imports."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value,
                                            getattr(torch, "Tensor", ()))


def small_ints(torch: Any) -> FrozenSet[Any]:
    """torch's dtypes int1 to int7 and uint1 to uint7, which it exports by
    DLPack as int8 and uint8: whoever receives that cannot tell."""
    global _small_ints
    if _small_ints is None:
        names = [f"{kind}{bits}" for kind in ("int", "uint")
                 for bits in range(1, 8)]
        _small_ints = frozenset(getattr(torch, name) for name in names
                                if hasattr(torch, name))
    return _small_ints


def _is_transforming(torch: Any) -> bool:
    """Whether a transform runs, whose tensors stand for others."""
    functorch = getattr(torch._C, "_functorch", None)
    return functorch is None or functorch.peek_interpreter_stack() is not None


def _refuse_without_memory(name: str, value: Any) -> None:
    """Tensors of torch's that stand for others, or for none."""
    torch = sys.modules["torch"]
    functorch = getattr(torch._C, "_functorch", None)
    what = None
    if value.is_nested:
        what = "is nested: send its tensors, .unbind() of it"
    elif hasattr(value, "fake_mode"):
        what = "is a FakeTensor, which has no data"
    elif (functorch is not None and
          functorch.is_functorch_wrapped_tensor(value)) or \
            torch._is_functional_tensor(value):
        what = "stands for others inside of a transform (vmap, grad, jvp, " \
            "functionalize): send outside of it"
    if what is not None:
        raise TypeError(f"'{name}' {what}")


def _refuse_small_ints(name: str, value: Any) -> None:
    dtype = value.dtype
    if dtype in small_ints(sys.modules["torch"]):
        whole = str(dtype).rpartition(".")[2].rstrip("1234567") + "8"
        raise TypeError(f"'{name}' is {dtype}, which would arrive as {whole}: "
                        "send .view(torch.uint8)")


def _plain(name: str, value: Any) -> Any:
    """A tensor of torch's whose memory has what it stands for. DLPack knows no
    gradients, and torch hands out the memory of lazily negated tensors as it
    is, and of those that wrap others without any."""
    if hasattr(value, "__tensor_flatten__"):
        raise TypeError(f"'{name}' is a {type(value).__name__}, which wraps "
                        "other tensors: send those")
    if value.requires_grad:
        value = value.detach()
    if value.is_conj():
        value = value.resolve_conj()
    return value.resolve_neg() if value.is_neg() else value


def _capsule(name: str, value: Any) -> Any:
    if _is_torch(value):
        torch = sys.modules["torch"]
        if type(value) not in (torch.Tensor, torch.nn.Parameter) or \
                value.is_nested or _is_transforming(torch):
            _refuse_without_memory(name, value)
        _refuse_small_ints(name, value)
        value = _plain(name, value)
        if type(value) is torch.Tensor and value.device.type == "cpu" and \
                value.layout is torch.strided:
            try:  # as __dlpack__(), whose checks are above: ten times as fast
                return torch.utils.dlpack.to_dlpack(value)
            except (AttributeError, BufferError, RuntimeError, TypeError):
                pass
    device = _device.type_of(name, value)
    if device in _device.CUDA:
        return _device.capsule(name, value)
    if device not in _CPU:
        raise TypeError(f"'{name}' is in memory of a device (DLPack's type "
                        f"{device}), which this version cannot send: copy it "
                        "to the CPU")
    return _device.dlpack(value)


def _cuda(name: str, value: Any) -> Any:
    about = _device.checked(name, value.__cuda_array_interface__)
    dtype = np.dtype(about["typestr"])
    _array(name, np.empty((), dtype))  # raises where it is no tensor's
    if 0 in about["shape"]:  # and no memory
        return np.empty(about["shape"], dtype.newbyteorder("="))
    return _device.interface(name, value, about, dtype)


# Whose words say what is wrong without their name.
_SPEAKING = (AttributeError, BufferError, NotImplementedError, RuntimeError,
             TypeError, ValueError)


def _telling(error: Exception, name: str, what: str) -> Optional[Exception]:
    """What an object of the user's has answered, with which that is; None: it
    says so."""
    words = str(error).split("\n")[0]
    if isinstance(error, (Error, MemoryError)) or \
            words.startswith((f"'{name}'", f"buffer '{name}'")):
        return None
    kind = "" if isinstance(error, _SPEAKING) else f"{type(error).__name__}: "
    return TypeError(f"{what}: {kind}{words}")


def leaf(name: str, value: Any) -> Any:
    """An array as the extension takes it, or a capsule."""
    try:
        return _taken(name, value)
    except Exception as error:
        told = _telling(error, name, f"'{name}' cannot be sent")
        if told is None:
            raise
        raise told from error


def _taken(name: str, value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return _array(name, value)
    if isinstance(value, np.generic):
        return _array(name, np.asarray(value))
    if hasattr(value, "__dlpack__"):
        return _capsule(name, value)
    if hasattr(value, "__array_interface__"):
        return _array(name, np.asarray(value))
    if hasattr(value, "__cuda_array_interface__"):
        return _cuda(name, value)
    try:
        view: Any = memoryview(value)
    except TypeError:
        hint = _hint(value)
        if hint or not hasattr(value, "__array__"):
            raise TypeError(
                f"'{name}' is of {type(value)}" + (hint or ": neither an array "
                "(DLPack, __array_interface__, __array__, buffer) nor a dict, "
                "list, tuple, bool, int, float, str, bytes or None")) from None
        view = value
    return _array(name, np.asarray(view))


# What does not travel, and what to send instead.
_INSTEAD: Tuple[Tuple[Any, str], ...] = (
    (enum.Enum, "its .value, or its .name"),
    (os.PathLike, "str() of it"),
    ((datetime.date, datetime.time), ".isoformat() of it, or .timestamp()"),
    (datetime.timedelta, ".total_seconds() of it"),
    (complex, "np.complex128() of it"),
    (numbers.Number, "float() or str() of it"),
    (np.dtype, "str() of it"),
)


def _hint(value: Any) -> str:
    """What to send in place of what is no array; "": nothing is known."""
    kind = type(value)
    if hasattr(value, "columns") and hasattr(value, "items"):
        return ": send its columns, dict(x.items())"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return ": send dataclasses.asdict() of it"
    if kind.__module__ == "torch" and kind.__name__ in ("dtype", "device"):
        return ": send str() of it"
    for kinds, instead in _INSTEAD:
        if isinstance(value, kinds):
            return f": send {instead}"
    if isinstance(value, Iterable) and not hasattr(value, "__array__"):
        return ": send list() of it"
    return ""


def _one_array(name: str, values: Any) -> Optional[
        Tuple["np.ndarray[Any, Any]", List[str]]]:
    """A list of numbers of one type, or of such lists, which are as long, as an
    array, and its form; None: it is another."""
    form: List[str] = []
    shape: List[int] = []
    first = values
    while isinstance(first, (list, tuple)):
        if len(form) == _DIMENSIONS_MOST or not first:
            return None
        form.append("T" if isinstance(first, tuple) else "L")
        shape.append(len(first))
        first = first[0]
    dtype = _NUMBERS.get(type(first))
    if isinstance(first, np.generic) and _is_tensors(first.dtype):
        dtype = first.dtype
        form.append("n")
    if dtype is None:
        return None
    for _ in shape[1:]:
        if len(set(map(type, values))) != 1 or len(set(map(len, values))) != 1:
            return None
        values = list(itertools.chain.from_iterable(values))
    if set(map(type, values)) != {type(first)}:
        return None
    try:
        return np.array(values, dtype).reshape(shape), form
    except OverflowError:
        at = next(i for i, one in enumerate(values) if one not in INT64)
        place = "/".join(map(str, np.unravel_index(at, shape)))
        raise OverflowError(
            f"'{shortened(name)}/{place}': an int travels as 64 bits with a "
            "sign, -2**63 to 2**63 - 1; send a larger one as str") from None


def _items_of(array: "np.ndarray[Any, Any]", form: List[str]) -> Any:
    """The list again."""
    if form[1:] == ["n"]:
        items = list(array)
    elif len(form) == 1:
        items = array.tolist()
    else:
        items = [_items_of(row, form[1:]) for row in array]
    return tuple(items) if form[0] == "T" else items


def _key(where: str, key: Any) -> Union[int, str]:
    """A key of a dict as it travels."""
    if isinstance(key, str):
        return str.__str__(key)  # also of an Enum
    if isinstance(key, (int, np.integer)) and not isinstance(key, bool) and \
            int(key) in INT64:
        return int(key)
    raise TypeError(f"{where} has the key {key!r} ({type(key).__name__}): names "
                    "are str, or int of 64 bits; send str() of it")


def scalar(name: str, value: "np.generic[Any]") -> Any:
    """One of numpy's as Python's own, which it arrives as."""
    if isinstance(value, (np.bool_, np.integer, np.str_, np.bytes_)) or (
            isinstance(value, np.floating) and value.dtype.itemsize <= 8):
        return value.item()
    raise TypeError(f"{name} is a {type(value).__name__}, which is neither a "
                    "bool, int or float of 64 bits, str nor bytes: send it "
                    "among the arrays")


def refuse_key(key: Any) -> NoReturn:
    """Of metadata: it is no str, or one of the package's own."""
    if not isinstance(key, str):
        raise TypeError(f"metadata has a key {key!r}: names are str")
    raise ValueError(f"metadata {key!r}: '{MARK}' begins no key")


def without_own(meta: Dict[str, Any]) -> Dict[str, Any]:
    """Metadata as the application gave it."""
    return {key: value for key, value in meta.items()
            if not key.startswith(MARK)}


class _Flat:
    def __init__(self) -> None:
        self.arrays: Dict[str, Any] = {}
        self.meta: Dict[str, Any] = {}
        self.seen: Set[str] = set()
        self.around: List[int] = []  # what we are in

    def _enter(self, name: str, value: Any) -> None:
        if id(value) in self.around:
            raise ValueError(f"'{shortened(name)}' holds itself")
        if len(self.around) == DEPTH_MOST:
            raise ValueError(f"'{shortened(name)}' is nested more than "
                             f"{DEPTH_MOST} deep")
        self.around.append(id(value))

    def _put(self, into: Dict[str, Any], key: str, name: str,
             value: Any) -> int:
        if not name:
            raise ValueError("the dict has the key '' for a leaf: names of "
                             "leaves have one character or more")
        if name in self.seen:
            raise ValueError("two leaves would be called "
                             f"'{shortened(name)}'")
        self.seen.add(name)
        into[key] = value
        if into is self.meta and len(into) > most_keys():
            raise error_of(
                Status.LIMIT_EXCEEDED, f"'{shortened(name)}': a map has "
                f"{most_keys()} leaves that are no arrays at most (the limit "
                "metadata_keys): send many numbers as one array, np.array(...)")
        return 0

    def walk(self, name: str, value: Any, top: bool = False) -> Any:
        """Adds what hangs at `name`; returns how, in the words above."""
        if isinstance(value, (np.str_, np.bytes_)):
            value = value.item()
        if not isinstance(value, np.generic) and \
                isinstance(value, (bool, int, float, str, bytes)):
            return self._put(self.meta, MARK + name, name, value)
        if value is None:
            return None
        below = "" if top else name + "/"
        if isinstance(value, (list, tuple)):
            one = _one_array(name, value) if name else None
            if one is not None:
                self._put(self.arrays, name, name, one[0])
                return one[1]
            self._enter(name, value)
            form: Any = ["t" if isinstance(value, tuple) else "l"]
            for i, item in enumerate(value):
                form.append(self.walk(f"{below}{i}", item))
            self.around.pop()
            return form
        if isinstance(value, Mapping):
            self._enter(name, value)
            where = "the dict" if top else f"'{shortened(name)}'"
            pairs = []
            for key, item in value.items():
                key = _key(where, key)
                pairs.append([key, self.walk(f"{below}{key}", item)])
            self.around.pop()
            return dict(pairs) if all(type(key) is str for key, _ in pairs) \
                else ["d", *pairs]
        return self._put(self.arrays, name, name, leaf(name, value))


def shortened(name: str) -> str:
    """A name as an error quotes it: it may have come from a peer."""
    return hot.shown(name if len(name) <= 100
                     else f"{name[:60]}...{name[-30:]}")


class Formed(Mapping[str, Any]):
    """What has the names of leaves for its keys, and may know their tree."""

    __slots__ = ()

    def _form(self) -> Optional[str]:
        raise NotImplementedError


def flatten(data: Any) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """A tree (dicts, lists, tuples, arrays, scalars) as arrays and metadata."""
    if not isinstance(data, (Mapping, list, tuple)):
        is_value = data is None or hasattr(data, "__dlpack__") or isinstance(
            data, (bool, int, float, str, bytes))
        raise TypeError(f"a dict of arrays can be sent, not {type(data)}" + (
            ': send {"x": it}' if is_value else _hint(data)))
    flat = _Flat()
    form = flat.walk("", data, top=True)
    is_flat = isinstance(form, dict) and all(at == 0 for at in form.values())
    known = data._form() if is_flat and isinstance(data, Formed) else None
    if known is not None:
        flat.meta[MARK] = known
    elif not is_flat:
        flat.meta[MARK] = json.dumps(form, separators=(",", ":"))
    return flat.arrays, flat.meta


def packed(take: Callable[[Any, Optional[Dict[str, Any]]], Any], data: Any,
           meta: Optional[Dict[str, Any]]) -> Any:
    """What `take`, of a dict and metadata, does: a call of the extension, which
    takes arrays of numpy's. Others, and trees, are flattened for it."""
    done = take(data, meta)
    return flattened(take, data, meta) if done is NotImplemented else done


def flattened(take: Callable[[Any, Optional[Dict[str, Any]]], Any], data: Any,
              meta: Optional[Dict[str, Any]]) -> Any:
    """The same for one who has seen that it does not take these."""
    arrays, leaves = flatten(data)
    leaves.update(meta or {})
    done = take(arrays, leaves or None)
    if done is NotImplemented:
        for name, value in arrays.items():
            if not isinstance(value, np.ndarray):
                hot.device_tensor(name, value, 0)  # raises where that is it
        raise TypeError("one of the arrays cannot be described")
    return done


class _Tree:
    """Builds a tree. A name is put together for a leaf alone, which the peer
    has sent the name of, and once: else a long key with many short ones below
    it would cost the product of both."""

    def __init__(self, leaves: Mapping[str, Any], is_part: bool,
                 numpy_of: Callable[[str], Any]) -> None:
        self._leaves = leaves
        self._numpy_of = numpy_of
        self._is_part = is_part
        self._taken: Set[str] = set()
        self._path: List[str] = []

    def _below(self, key: Union[int, str], at: Any) -> Any:
        self._path.append(str(key))
        made = self.build(at)
        self._path.pop()
        return made

    def _malformed(self) -> ValueError:
        return ValueError("the peer's tree is malformed at "
                          f"'{shortened('/'.join(self._path))}'")

    def _leaf(self) -> str:
        """The name of the leaf that is here."""
        name = "/".join(self._path)
        if self._is_part and name not in self._leaves:
            raise ValueError("only a part was fetched: "
                             f"'{shortened(name)}' is not in it; tree() needs "
                             "the whole map")
        if name in self._taken or name not in self._leaves:
            raise self._malformed()
        self._taken.add(name)
        return name

    def _numbers(self, form: List[Any]) -> Any:
        """Those of a list that came as one array, with its bytes: one that
        repeats an element, or has none, would become more than was sent."""
        is_numpys = form[-1] == "n"
        letters = form[:-1] if is_numpys else form
        array = self._numpy_of(self._leaf())
        if len(letters) > _DIMENSIONS_MOST or \
                any(one not in ("L", "T") for one in letters) or \
                not isinstance(array, np.ndarray) or \
                array.ndim != len(letters) or 0 in array.shape[1:] or \
                not array.flags.c_contiguous or \
                not (is_numpys or array.dtype in _AS_NUMBERS):
            raise self._malformed()
        return _items_of(array, form)

    def _pairs(self, pairs: List[Any]) -> Dict[Union[int, str], Any]:
        made = {}
        for pair in pairs:
            if not isinstance(pair, list) or len(pair) != 2 or \
                    type(pair[0]) not in (int, str) or \
                    type(pair[0]) is int and pair[0] not in INT64:
                raise self._malformed()
            made[pair[0]] = self._below(*pair)
        return made

    def build(self, at: Any) -> Any:
        if at is None:
            return None
        if isinstance(at, dict):
            return {key: self._below(key, item) for key, item in at.items()}
        if isinstance(at, list) and at:
            if at[0] in ("l", "t"):
                items: List[Any] = [self._below(i, item)
                                    for i, item in enumerate(at[1:])]
                return tuple(items) if at[0] == "t" else items
            if at[0] == "d":
                return self._pairs(at[1:])
            if at[0] in ("L", "T"):
                return self._numbers(at)
        if at != 0:
            raise self._malformed()
        return self._leaves[self._leaf()]


def unflatten(form: str, leaves: Mapping[str, Any], is_part: bool = False,
              numpy_of: Optional[Callable[[str], Any]] = None) -> Any:
    """The tree again. `form` came from a peer: ValueError where it lies.
    `is_part`: only some of the leaves were asked for. `numpy_of`: gives the leaf
    of a name as numpy's array, if the leaves are another library's."""
    try:
        return _Tree(leaves, is_part, numpy_of or leaves.__getitem__).build(
            json.loads(form))
    except RecursionError:
        raise ValueError("the peer's tree is nested too deep") from None


def _torch_buffer(name: str, value: Any) -> Any:
    """The memory of a tensor of torch's as an array, also of a dtype that numpy
    lacks."""
    _refuse_without_memory(name, value)
    value = _plain(name, value) if not (value.is_conj() or value.is_neg()) \
        else None
    if value is None or value.device.type != "cpu":
        raise ValueError(f"buffer '{name}' is not plain memory of the CPU")
    dtype = str(value.dtype).rpartition(".")[2]
    if dtype not in OF_ML_DTYPES:
        return value.numpy()
    if not know_ml_dtypes():
        raise TypeError(f"buffer '{name}' is {dtype}: pip install ml_dtypes")
    import ml_dtypes
    torch = sys.modules["torch"]
    as_bits = {1: torch.int8, 2: torch.int16, 4: torch.int32}[
        value.element_size()]
    return value.view(as_bits).numpy().view(getattr(ml_dtypes, dtype))


def _is_dense(array: "np.ndarray[Any, Any]") -> bool:
    """Whether it has no gaps, in some order of its dimensions."""
    order = sorted(range(array.ndim), key=lambda i: -array.strides[i])
    return bool(array.flags.c_contiguous or
                array.transpose(order).flags.c_contiguous)


def _imported(name: str, value: Any) -> Any:
    """The memory of what has __dlpack__(), which is checked: numpy's own import
    believes it."""
    device = _device.type_of(name, value)
    if device not in _CPU:
        raise TypeError(f"buffer '{name}' is in memory of a device (DLPack's "
                        f"type {device}), not of the CPU")
    know_ml_dtypes()
    return hot.view(name, _device.dlpack(value))


def _shared(name: str, value: Any) -> Any:
    """An array of numpy's class itself that shares the memory of a buffer."""
    if isinstance(value, np.ndarray):
        return np.asarray(value)
    if _is_torch(value):
        return _torch_buffer(name, value)
    if hasattr(value, "__array_interface__"):
        return np.asarray(value)
    try:
        view = memoryview(value)
    except TypeError:
        if hasattr(value, "__dlpack__"):
            return _imported(name, value)
        raise TypeError(
            f"buffer '{name}' is of {type(value)}: neither an array "
            "(__array_interface__, DLPack) nor a buffer") from None
    return np.asarray(view)


def buffer(name: str, value: Any) -> Any:
    """The same, of memory that can be received into."""
    try:
        array = _shared(name, value)
    except Exception as error:
        told = _telling(error, name,
                        f"buffer '{name}' cannot be received into")
        if told is None:
            raise
        raise told from error
    if isinstance(value, np.ma.MaskedArray) or \
            _array(name, array) is not array:
        raise error_of(
            Status.INVALID_PARAM, f"buffer '{name}' cannot be received into: its "
            "memory is masked, in another byte order, or not in whole elements")
    if not array.flags.writeable:
        raise error_of(Status.INVALID_PARAM, f"buffer '{name}' is read-only")
    if not _is_dense(array):
        raise error_of(Status.INVALID_PARAM,
                       f"buffer '{name}' of shape {array.shape} has strides of "
                       f"{array.strides} bytes: the memory to receive into "
                       "must be without gaps")
    return array


def buffers(data: Any) -> Dict[str, Any]:
    """What is to be received into, as arrays."""
    if not isinstance(data, Mapping):
        raise TypeError("the target of a receive is a dict of buffers, not "
                        f"{type(data)}")
    for name in data:
        if not isinstance(name, str):
            raise TypeError(f"names are str, not {name!r}")
    return {str(name): buffer(name, value) for name, value in data.items()}
