# SPDX-License-Identifier: BSD-3-Clause
"""TensorDicts as maps of tensors with their form, and back. Needs tensordict,
and so torch."""

from __future__ import annotations

import base64
import importlib
import json
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from . import _data
from ._lib import hot
from ._message import BaseMessage, Converter, NotTaken, _naming
from .errors import Status, error_of

torch: Any = importlib.import_module("torch")
tensordict: Any = importlib.import_module("tensordict")

# The key of the metadata that has the form, as JSON. A TensorDict is an object
# of "batch" (its batch_size), "of" (its entries by key), and, where it has them,
# "names" (of its dimensions) and "device" ("cpu"). A tensor is a number, its
# place in the map. Others are arrays: ["unbatched", place], ["data", value,
# batch_size], and ["stack", dim, [entry...]] of NonTensorData or ["lazy", dim,
# [entry...]] of TensorDicts, in that order along that dimension.
FORM = "tensordict"


class Mismatch(ValueError):
    """What came is not of the structure of what it was to be written into."""


# Values of NonTensorData: null, bool, int, float, str as they are in JSON, a
# dict with names that are str as an object of values, ["l", ...] a list,
# ["t", ...] a tuple, ["b", base64] bytes.


def _value(name: str, value: Any) -> Any:
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is bytes:
        return ["b", base64.b64encode(value).decode()]
    if kind in (list, tuple):
        return ["l" if kind is list else "t",
                *(_value(name, item) for item in value)]
    if kind is dict and all(type(key) is str for key in value):
        return {key: _value(name, item) for key, item in value.items()}
    raise ValueError(
        f"'{name}' is NonTensorData of {kind.__name__}: None, bool, int, float, "
        "str, bytes, and lists, tuples and dicts (by str) of these are sent; "
        "nothing is pickled")


def _value_of(sent: Any) -> Any:
    if isinstance(sent, dict):
        return {key: _value_of(item) for key, item in sent.items()}
    if not isinstance(sent, list):
        return sent
    kind, *items = sent
    if kind == "b":
        return base64.b64decode(items[0], validate=True)
    if kind not in ("l", "t"):
        raise ValueError(f"a value of kind {kind!r}")
    values = [_value_of(item) for item in items]
    return values if kind == "l" else tuple(values)


def _payload(tensor: Any) -> Any:
    """The tensor that an UnbatchedTensor is of."""
    flatten = getattr(tensor, "__tensor_flatten__", None)
    return tensor.as_subclass(torch.Tensor) if flatten is None else \
        getattr(tensor, flatten()[0][0])


class _Packer:
    def __init__(self) -> None:
        self.tensors: Dict[str, Any] = {}

    def tensor(self, name: str, tensor: Any) -> int:
        place = len(self.tensors)
        if name in self.tensors or not name:
            name = f"{name}~{place}"
        self.tensors[name] = _data.leaf(name, tensor)
        return place

    def entry(self, name: str, value: Any) -> Any:
        if isinstance(value, tensordict.UnbatchedTensor):
            return ["unbatched", self.tensor(name, _payload(value))]
        if isinstance(value, torch.Tensor):
            return self.tensor(name, value)
        kind = type(value)
        if kind is tensordict.NonTensorData:
            return ["data", _value(name, value.data), list(value.batch_size)]
        if kind in (tensordict.NonTensorStack,
                    tensordict.LazyStackedTensorDict):
            return ["stack" if kind is tensordict.NonTensorStack else "lazy",
                    value.stack_dim,
                    [self.entry(f"{name}/{i}" if name else str(i), item)
                     for i, item in enumerate(value.tensordicts)]]
        if not isinstance(value, tensordict.TensorDictBase):
            raise ValueError(
                f"'{name}' is a {kind.__name__}, which is not sent: as a "
                "TensorDict it is (a tensorclass by to_tensordict())")
        node: Dict[str, Any] = {"batch": list(value.batch_size)}
        names = value.names
        if any(one is not None for one in names):
            node["names"] = names
        if value.device is not None:
            node["device"] = str(value.device)
        below = name + "/" if name else ""
        node["of"] = {key: self.entry(below + key, item)
                      for key, item in value.items()}
        return node


# Most TensorDicts are flat, of plain tensors, and like the one before: the forms
# of those are known, by what they are of, and what they are, by the form.
_FORMS_MOST = 64
_FORM_CHARS_MOST = 1 << 16
_forms: Dict[Any, str] = {}


class _Flat(NamedTuple):
    keys: Tuple[str, ...]
    batch: Any  # torch.Size
    names: Optional[List[Optional[str]]]
    device: Any


_flats: Dict[str, _Flat] = {}


def _remember(known: Dict[Any, Any], key: Any, value: Any) -> None:
    if len(known) >= _FORMS_MOST:
        known.clear()  # at once, as other threads may look
    known[key] = value


def _flat_tensors(td: Any) -> Optional[Dict[str, Any]]:
    """As pack(); None where it takes more than this."""
    tensors: Dict[str, Any] = {}
    plain, strided = torch.Tensor, torch.strided
    small = _data.small_ints(torch)
    capsule = torch.utils.dlpack.to_dlpack
    if type(td) is not tensordict.TensorDict or _data._is_transforming(torch):
        return None
    try:
        for key, value in td.items():
            if type(value) is not plain or not value.is_cpu or \
                    value.requires_grad or value.layout is not strided or \
                    value.is_nested or value.is_conj() or value.is_neg() or \
                    value.dtype in small:
                return None
            tensors[key] = capsule(value)
    except (AttributeError, BufferError, RuntimeError, TypeError):
        return None
    return None if "" in tensors else tensors


def pack(td: Any) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """What to send: tensors (as DLPack's capsules), and metadata."""
    tensors = _flat_tensors(td)
    if tensors is None:
        return _pack(td)
    names, device = td.names, td.device
    about = (tuple(tensors), td.batch_size, tuple(names), device)
    form = _forms.get(about)
    if form is None:
        tensors, meta = _pack(td)
        form = meta[FORM]
        if len(form) <= _FORM_CHARS_MOST:
            _remember(_forms, about, form)
    return tensors, {FORM: form}


def _pack(td: Any) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    packer = _Packer()
    form = packer.entry("", td)
    if not isinstance(form, dict) and form[0] != "lazy":
        raise ValueError(f"a TensorDict is sent, not a {type(td).__name__}")
    return packer.tensors, {FORM: json.dumps(form, separators=(",", ":"))}


def _sizes(value: Any) -> List[int]:
    if not isinstance(value, list) or not all(
            type(size) is int and 0 <= size < 1 << 63 for size in value):
        raise ValueError("a batch size is not a list of sizes")
    return value


_from_dlpack = Converter(torch.from_dlpack, "torch.from_dlpack()")


def _untaken(message: BaseMessage, name: str, error: NotTaken) -> Exception:
    peer = None if message._peer is None else message._peer.peer
    return error_of(Status.UNSUPPORTED, message._not_taken(name, error), peer)


class _Builder:
    def __init__(self, message: BaseMessage) -> None:
        self.message = message
        self.names = list(message._arrays)
        self.failed: Optional[Exception] = None  # which is not the peer's fault

    def tensor(self, place: Any) -> Any:
        if type(place) is not int or not 0 <= place < len(self.names):
            raise ValueError(f"no tensor at {place!r}")
        try:
            return _from_dlpack(self.message.dlpack(self.names[place]))
        except NotTaken as error:
            raise _untaken(self.message, self.names[place], error) from None
        except Exception as error:
            self.failed = _naming(error, self.names[place])
            raise

    def entry(self, node: Any) -> Any:
        if type(node) is int:
            return self.tensor(node)
        if isinstance(node, dict):
            batch, names = _sizes(node["batch"]), node.get("names")
            if names is not None and (len(names) != len(batch) or not all(
                    name is None or type(name) is str for name in names)):
                raise ValueError("the number of names is not that of its "
                                 "dimensions")
            # "cpu" is where everything arrives.
            return tensordict.TensorDict(
                {key: self.entry(item) for key, item in node["of"].items()},
                batch_size=batch, names=names,
                device="cpu" if "device" in node else None)
        kind, first, *rest = node
        if kind == "unbatched":
            return tensordict.UnbatchedTensor(self.tensor(first))
        if kind == "data":
            return tensordict.NonTensorData(_value_of(first),
                                            batch_size=_sizes(rest[0]))
        if kind not in ("stack", "lazy"):
            raise ValueError(f"an entry of kind {kind!r}")
        made = tensordict.NonTensorStack if kind == "stack" else \
            tensordict.LazyStackedTensorDict
        items = [self.entry(item) for item in rest[0]]
        of = tensordict.NonTensorData if kind == "stack" else \
            tensordict.TensorDictBase
        if type(first) is not int or not items or not all(
                isinstance(item, (of, made)) for item in items):
            raise ValueError(f"a {kind} of other things")
        return made(*items, stack_dim=first)


def _flat_of(node: Any, td: Any) -> Optional[_Flat]:
    """Of what was built by entry(); None: it is not flat, or its tensors are
    not in their order."""
    if not isinstance(node, dict) or \
            list(node["of"].values()) != list(range(len(node["of"]))) or \
            not all(type(place) is int for place in node["of"].values()):
        return None
    return _Flat(tuple(node["of"]), td.batch_size, node.get("names"), td.device)


def _build_flat(flat: _Flat, owner: Any) -> Any:
    """The TensorDict; None where tensordict itself is to say what is wrong."""
    dlpack, tensor = hot.dlpack, torch._C._from_dlpack
    batch = flat.batch
    dims = len(batch)
    source = {}
    for i, key in enumerate(flat.keys):
        value = source[key] = tensor(dlpack(owner, i, True))
        if not value.is_cpu or (dims and value.shape[:dims] != batch):
            return None
    return tensordict.TensorDict._new_unsafe(
        source, batch_size=batch, device=flat.device,
        names=flat.names and list(flat.names))


def _tensor(message: BaseMessage, name: str) -> Any:
    try:
        return message._made(name, _from_dlpack)
    except NotTaken as error:
        raise _untaken(message, name, error) from None
    except Exception as error:
        _naming(error, name)
        raise


def unpack(message: BaseMessage) -> Any:
    """A TensorDict whose tensors view the memory of the message, and keep it.
    What another program sent as a dict of arrays is one without a batch
    size."""
    form = message._meta.get(FORM)
    flat = _flats.get(form) if isinstance(form, str) else None
    if flat is not None and len(flat.keys) == len(message._arrays):
        try:
            td = _build_flat(flat, message._owner)
        except Exception:  # of another version, or what is told below
            td = None
        if td is not None:
            return td
    if not isinstance(form, str):
        return tensordict.TensorDict(
            {name: _tensor(message, name) for name in message._arrays},
            batch_size=[])
    builder = _Builder(message)
    try:
        node = json.loads(form)
        if not isinstance(node, dict) and node[0] != "lazy":
            raise ValueError("it is not a TensorDict")
        td = builder.entry(node)
        flat = _flat_of(node, td)
        if flat is not None and len(form) <= _FORM_CHARS_MOST:
            _remember(_flats, form, flat)
        return td
    except (ValueError, TypeError, KeyError, IndexError, RuntimeError,
            AttributeError, RecursionError, BufferError) as error:
        if error is builder.failed:
            raise
        peer = None if message._peer is None else message._peer.peer
        raise error_of(
            Status.MALFORMED, f"the peer's TensorDict is malformed: "
            f"{type(error).__name__}: {hot.shown(str(error))}", peer) from None


def _writable(name: str, tensor: Any) -> None:
    """Raises Mismatch where torch would refuse to write to it."""
    if tensor.is_nested or tensor.layout is not torch.strided:
        raise Mismatch(f"'{name}' is not dense, and nothing is written to it")
    if tensor.numel() > 0 and any(
            size > 1 and stride == 0
            for size, stride in zip(tensor.shape, tensor.stride())):
        raise Mismatch(f"'{name}' is expanded: some of its elements are one, "
                       "and nothing is written to it")
    if tensor.is_inference() and not torch.is_inference_mode_enabled():
        raise Mismatch(f"'{name}' is of torch's inference mode, and is only "
                       "written to in that")


def _pairs(into: Any, came: Any, path: str, tensors: List[Tuple[Any, Any]],
           others: List[Tuple[Any, str, Any]]) -> None:
    """Collects which tensors are written from which, and which entries that
    are none are replaced. Raises Mismatch."""
    if into.batch_size != came.batch_size:
        raise Mismatch(f"'{path}': batch_size {list(into.batch_size)}, and "
                       f"{list(came.batch_size)} came")
    lazy = tensordict.LazyStackedTensorDict
    if isinstance(into, lazy) or isinstance(came, lazy):
        if type(into) is not type(came) or \
                into.stack_dim != came.stack_dim or \
                len(into.tensordicts) != len(came.tensordicts):
            raise Mismatch(f"'{path}': a stack of others came")
        for i, pair in enumerate(zip(into.tensordicts, came.tensordicts)):
            _pairs(*pair, f"{path}/{i}", tensors, others)
        return
    if set(into.keys()) != set(came.keys()):
        raise Mismatch(f"'{path}' has {sorted(into.keys())}, and "
                       f"{sorted(came.keys())} came")
    theirs = dict(came.items())
    for key, mine in into.items():
        _pair(into, key, mine, theirs[key], path, tensors, others)


def _pair(into: Any, key: str, mine: Any, its: Any, path: str,
          tensors: List[Tuple[Any, Any]],
          others: List[Tuple[Any, str, Any]]) -> None:
    name = f"{path}/{key}" if path else key
    unbatched = isinstance(mine, tensordict.UnbatchedTensor)
    if unbatched != isinstance(its, tensordict.UnbatchedTensor):
        raise Mismatch(f"'{name}': one of the two is an UnbatchedTensor")
    if isinstance(mine, torch.Tensor) and isinstance(its, torch.Tensor):
        _writable(name, _payload(mine) if unbatched else mine)
        if mine.shape != its.shape or mine.dtype != its.dtype:
            raise Mismatch(f"'{name}': {mine.dtype} {list(mine.shape)}, and "
                           f"{its.dtype} {list(its.shape)} came")
        tensors.append((_payload(mine), _payload(its)) if unbatched
                       else (mine, its))
    elif tensordict.is_non_tensor(mine) and tensordict.is_non_tensor(its):
        if into.is_locked:
            raise Mismatch(f"'{name}' is not a tensor, and '{path}' is locked")
        others.append((into, key, its))
    elif isinstance(mine, tensordict.TensorDictBase) and \
            isinstance(its, tensordict.TensorDictBase):
        _pairs(mine, its, name, tensors, others)
    else:
        raise Mismatch(f"'{name}': a {type(mine).__name__}, and a "
                       f"{type(its).__name__} came")


def write(into: Any, came: Any) -> None:
    """Writes all of it into a TensorDict, or nothing and raises Mismatch."""
    tensors: List[Tuple[Any, Any]] = []
    others: List[Tuple[Any, str, Any]] = []
    if not isinstance(into, tensordict.TensorDictBase):
        raise Mismatch(f"it is a {type(into).__name__}, no TensorDict")
    _pairs(into, came, "", tensors, others)
    with torch.no_grad():
        for mine, its in tensors:
            mine.copy_(its)
    for at, key, value in others:
        at.set(key, value)


def placed(came: Any, into: Any, device: Optional[Any], must: bool) -> Any:
    """What a receive gives: `into` where it fits, else, or where there is none,
    what came, on the device asked for."""
    if into is not None:
        try:
            write(into, came)
            return into
        except Mismatch as error:
            if must:
                raise Mismatch(f"into: {error}") from None
    return came if device is None else came.to(device)
