# SPDX-License-Identifier: BSD-3-Clause
"""Files of tensors, mapped: .safetensors, .npz and .npy
(docs/reference/files.md)."""

from __future__ import annotations

import importlib
import json
import os
from typing import Any, Dict, Mapping, NoReturn, Optional, Type, TypeVar, Union

from . import _data
from ._hub import Meta, merge_meta
from ._lib import hot, lib
from ._message import BaseMessage, Like, _converter
from .errors import Status, error_of

Path = Union[str, "os.PathLike[str]"]
_NUMBER_MOST = 40  # characters
_OF_LOADING = "file_name", "file_format"  # what load() says
F = TypeVar("F", bound="File")

_FORMATS = {
    None: 0, "safetensors": lib.TMSG_FILE_SAFETENSORS,
    "npz": lib.TMSG_FILE_NPZ, "npy": lib.TMSG_FILE_NPY}
# What libzip needs, in Python's own version of it, which must be the first that
# the process loads.
_BEFORE_ZIP = "zlib", "bz2", "hashlib"


class _Closed(Dict[str, Any]):
    """In place of what a file has."""

    def __init__(self, path: str) -> None:
        self._path = path

    def _refuse(self, *args: object) -> NoReturn:
        raise error_of(Status.CLOSED, f"{self._path} was closed: open it again, "
                       "or take its arrays before")

    __getitem__ = __contains__ = __iter__ = __len__ = _refuse
    keys = values = items = _refuse


class File(BaseMessage):
    """The arrays of a file, by name, as load() and open() give them: a mapping
    like a Message, with `meta`, and in the same way sent.

    The file is mapped, not read: an array lies in the page cache, and is read
    when its elements are. To write to one copies the page, and never changes
    the file. Each array keeps the mapping for as long as it lives, also when the
    file was closed or removed; apart() copies all of them. The file must not be
    written to or cut meanwhile: save() and os.replace() put another in its place.
    """

    __slots__ = ("path",)

    def __init__(self, path: str, parts: Any, like: Like) -> None:
        super().__init__(parts, None, _converter(like))
        self.path = path
        for key, value in self._meta.items():
            if key.startswith(_data.MARK) and key != _data.MARK:
                self._meta[key] = _read_leaf(value)

    def _own(self) -> Dict[str, Any]:
        return {"path": self.path}

    def close(self) -> None:
        """Lets go of the file: its arrays go on, and no others are made."""
        closed: Any = _Closed(self.path)
        self._arrays = self._ready = self._parts = closed
        self._owner = self._places = None

    def __enter__(self: F) -> F:
        return self

    def __exit__(self, *why: object) -> None:
        self.close()

    def _called(self) -> str:
        return f"file '{_data.shortened(os.path.basename(self.path))}'"

    def __repr__(self) -> str:
        return f"<{self._called()}, closed>" \
            if isinstance(self._arrays, _Closed) else super().__repr__()


def _read_leaf(text: str) -> Any:
    """A number, bool or str that was saved among the arrays, or the text of
    another program."""
    if text[:1] != '"' and len(text) > _NUMBER_MOST:
        return text
    try:
        leaf = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return leaf if isinstance(leaf, (bool, int, float, str)) else text


def _name(path: Path) -> str:
    name = os.fsdecode(path)
    if "\0" in name:
        raise ValueError(f"path {name!r} has a NUL")
    return name


def _format(path: str, name: Optional[str]) -> str:
    """Its name; "": the library says what is wrong with the path."""
    if name not in _FORMATS:
        raise ValueError(f"format={name!r}: 'safetensors', 'npz' or 'npy', or "
                         "None, which is by the name of the file")
    _, dot, ending = path.rpartition(".")  # as the library: also of ".npz"
    made = name if name is not None else ending.lower() if dot else ""
    if made == "npz":
        _need_zip()
    return made


def _need_zip() -> None:
    for module in _BEFORE_ZIP:
        importlib.import_module(module)
    why = hot.load_zip()
    if why is not None:
        raise error_of(Status.UNSUPPORTED, ".npz files need libzip, which cannot "
                       f"be loaded: {why}: install it, or use .safetensors")


def _load(path: Path, like: Like, format: Optional[str], later: bool) -> File:
    name = _name(path)
    _format(name, format)
    _data.know_ml_dtypes()
    return File(name, hot.file_load(os.fsencode(name), _FORMATS[format], later),
                like)


def load(path: Path, *, like: Like = None,
         format: Optional[str] = None) -> File:
    """Loads a .safetensors, .npz or .npy file as a mapping of names to arrays,
    which is sent as it is: `ep.send(tensormsg.load("model.safetensors"))`. The
    one of a .npy is called "array". `meta` has the metadata, with `file_name` and
    `file_format`; `tree()` what was saved, with its dicts and lists.

    Nothing is read but the header, and nothing copied: arrays lie in the page
    cache (File says until when). Compressed members of a .npz, and what is in
    another byte order, take memory of their own. Everything is checked before it
    is believed, and nothing in a file is evaluated (docs/reference/files.md).
    `like`: what the arrays are, as for connect(). `format`: "safetensors", "npz"
    or "npy", whatever the file's name is.

    Raises NotFound, IOFailed, Malformed, Unsupported, LimitExceeded.
    """
    return _load(path, like, format, later=False)


def open(path: Path, *, like: Like = None,
         format: Optional[str] = None) -> File:
    """Opens a file as load() does, and makes each array when it is asked for: for
    a file of which you want some arrays (compressed members of a .npz are
    inflated at once). The end of the block lets go of the file::

        with tensormsg.open("model.safetensors", like="torch") as file:
            weights = file["layers/0/weight"]
    """
    return _load(path, like, format, later=True)


def _text_of(key: str, value: Any, name: str) -> Any:
    """A value of the metadata; what is no text becomes text in the library."""
    if isinstance(value, bytes) or (isinstance(value, str) and "\0" in value):
        what = "is bytes" if isinstance(value, bytes) else "has a NUL"
        raise error_of(
            Status.UNSUPPORTED, f"{name}: metadata '{_data.shortened(key)}' "
            f"{what}, and a .safetensors holds text alone: save it as an array "
            "of uint8")
    return value


def _told(leaves: Dict[str, Any], meta: Optional[Dict[str, Any]],
          name: str) -> Dict[str, Any]:
    """The metadata of a .safetensors. What lies among the arrays is JSON, so
    that a str comes back as a str, and a number as a number."""
    made = {key: value if key == _data.MARK else json.dumps(
        _text_of(key[1:], value, name)) for key, value in leaves.items()}
    for key, value in (meta or {}).items():
        made[key] = _text_of(key, value, name)
    return made


def _refuse_more(leaves: Dict[str, Any], meta: Optional[Dict[str, Any]],
                 name: str, format: str) -> None:
    """A .npz and a .npy hold arrays by name, and nothing else."""
    if meta:
        what = f"the metadata {_data.shortened(next(iter(meta)))!r}"
    elif _data.MARK in leaves:
        what = "dicts, lists or None inside of the dict"
    elif leaves:
        key, value = next(iter(leaves.items()))
        what = f"'{_data.shortened(key[1:])}', which is a {type(value).__name__}"
    else:
        return
    raise error_of(Status.UNSUPPORTED, f"{name}: a .{format} holds arrays alone, "
                   f"not {what}: save a .safetensors")


def save(path: Path, data: Any, *, meta: Optional[Meta] = None,
         overwrite: bool = False, format: Optional[str] = None) -> None:
    """Saves a dict of arrays as a .safetensors, .npz or .npy file: whatever
    send() takes, in memory of the CPU. A .npy is of one array, in a dict or by
    itself. The file appears under its name only when it is whole and on the
    disk; one that is there is kept, and that is an error, but with `overwrite`.

    A .safetensors also holds `meta`, as text, and nested dicts, lists, tuples,
    None, numbers and strings among the arrays, which `load(path).tree()` gives
    back. The others hold a flat dict of arrays. `format`: as for load().

    Raises AlreadyExists, Unsupported (what the format cannot hold, with one that
    can), NotFound (the folder), IOFailed, LimitExceeded.
    """
    name = _name(path)
    kind = _format(name, format)
    if kind == "npy" and not isinstance(data, (Mapping, list, tuple)):
        data = {"array": data}
    arrays, leaves = _data.flatten(data)
    meta = {key: value for key, value in (merge_meta(meta, {}) or {}).items()
            if key not in _OF_LOADING}
    if kind in ("npz", "npy"):
        if isinstance(data, _data.Formed):  # by the names that it has
            leaves.pop(_data.MARK, None)
        _refuse_more(leaves, meta, name, kind)
    flags = lib.TMSG_SAVE_OVERWRITE if overwrite else 0

    def put(arrays: Any, meta: Optional[Dict[str, Any]]) -> Any:
        return hot.file_save(os.fsencode(name), _FORMATS[format], flags,
                             arrays, meta)

    if put(arrays, _told(leaves, meta, name)) is NotImplemented:
        _data.flattened(put, arrays, None)  # raises, and says which it is
