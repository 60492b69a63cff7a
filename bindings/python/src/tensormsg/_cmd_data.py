# SPDX-License-Identifier: BSD-3-Clause
"""Words of a command line as what is sent, what came as lines or JSON, and files
that may change meanwhile: for the commands of `python -m tensormsg`."""

from __future__ import annotations

import json
import os
import re
import time
from typing import Any, Dict, Iterator, List, Optional, Tuple

import numpy as np

from ._cmd import BadInput
from ._data import INT64, MARK
from ._files import File, load
from ._lib import hot
from ._message import BaseMessage, RawTensor
from .errors import Error

_LITERAL = re.compile(r"\[|(true|false|nan|inf)([,\] \t:]|$)|"
                      r"[-+.0-9eE]+(:|$)")
_TICK_S = .02  # a file that is written to later has another time


class Watched:
    """A file that was loaded, and whether it is what it was."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._was = self._stat()
        try:
            self.file: File = load(path)
        except Error as error:
            raise BadInput(str(error)) from None

    def _stat(self) -> Any:
        try:
            is_now = os.stat(self.path)
        except OSError as error:
            raise BadInput(f"{self.path}: {error.strerror}") from None
        age = time.time() - is_now.st_mtime
        if 0 <= age < _TICK_S:
            time.sleep(_TICK_S - age)
        return (is_now.st_dev, is_now.st_ino, is_now.st_size,
                is_now.st_mtime_ns, is_now.st_ctime_ns)

    def changed(self) -> Optional[str]:
        """How, in words."""
        try:
            same = self._stat() == self._was
        except BadInput as gone:
            return str(gone)
        return None if same else \
            f"{self.path}: the file changed while it was in use"


def _number(text: str, dtype: "np.dtype[Any]") -> Any:
    if dtype.kind == "b":
        return {"true": True, "false": False}[text]
    return float(text) if dtype.kind == "f" else int(text)


def _literal(word: str, text: str) -> "np.ndarray[Any, Any]":
    """3, [[1, 2], [3, 4]] or [1,2]:float32, of which nothing is evaluated."""
    body, _, named = text.partition(":")
    # Each number as a string, so that JSON knows the lists alone.
    quoted = re.sub(r"[^\[\],\s]+", lambda found: json.dumps(found[0]), body)
    try:
        texts = np.array(json.loads(quoted), dtype=str)
        guess = "?" if re.search("t|fa", body) else \
            "f8" if re.search("[.eEn]", body) else "i8"
        dtype = np.dtype(named or guess)
        if dtype.kind not in "biuf" or dtype.itemsize > 8:
            raise ValueError(f"elements of {dtype} have to come in a file")
        return np.array([_number(one, dtype) for one in texts.ravel().tolist()],
                        dtype).reshape(texts.shape)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        why = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise BadInput(f"'{word}': neither a number, true, false, nor lists of "
                       f"these ({why})") from None


def _file(data: Dict[str, Any], name: Optional[str], path: str) -> Watched:
    watched = Watched(path)
    arrays = list(watched.file)
    if name is not None and len(arrays) != 1:
        raise BadInput(f"{path}: {len(arrays)} tensors for the one name "
                       f"'{name}'; without a name they come under their own")
    for own in arrays:
        if (name or own) in data:
            raise BadInput(f"{path}: there is a '{name or own}' already")
        data[name or own] = watched.file[own]
    return watched


def check_text(word: str) -> None:
    """What travels as a name, or as text, is UTF-8; an argument may be any
    bytes."""
    try:
        word.encode()
    except UnicodeEncodeError:
        raise BadInput(f"{word!r} is not UTF-8") from None


def data_of(words: List[str]) -> Tuple[Dict[str, Any], List[Watched]]:
    """What NAME=FILE, NAME=VALUE and FILE stand for, and the files."""
    data: Dict[str, Any] = {}
    files = []
    for word in words:
        name, equal, text = word.partition("=")
        check_text(name if equal else "")
        # A path may have a '=', and the name of a tensor a '/'.
        if not equal or not name or name[0] == "/" or (
                name[0] == "." and "/" in name):
            files.append(_file(data, None, word))
        elif not _LITERAL.match(text):
            files.append(_file(data, name, text))
        elif name in data:
            raise BadInput(f"'{word}': there is a '{name}' already")
        else:
            data[name] = _literal(word, text)
    return data, files


def meta_of(words: List[str]) -> Dict[str, Any]:
    """Of KEY=VALUE: true, false, an integer, a number, else text."""
    meta: Dict[str, Any] = {}
    for word in words:
        key, equal, text = word.partition("=")
        if not equal:
            raise BadInput(f"'{word}' is not KEY=VALUE")
        check_text(word)
        value = meta[key] = _value(text)
        if key[:1] == MARK:
            raise BadInput(f"'{word}': '{MARK}' begins no key")
        if type(value) is int and value not in INT64:
            raise BadInput(f"'{word}': an integer travels as 64 bits with a "
                           f"sign; {key}='\"{text}\"' is text")
    return meta


def _value(text: str) -> Any:
    if text[:1] == text[-1:] == '"' and len(text) > 1:
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    for kind in int, float:
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def name_fault(name: str) -> Optional[str]:
    """Why a peer's name is not taken for that of a file."""
    if not name:
        return "the file name is empty"
    if "/" in name or "\0" in name:
        return "the file name would leave the folder"
    if name[0] in ".-":
        return f"the file name begins with '{name[0]}'"
    if len(name.encode("utf-8", "surrogatepass")) > 240:
        return "the file name is too long"
    if hot.shown(name) != name:
        return "the file name has characters that cannot be seen"
    return None


def bytes_of(value: Any) -> int:
    """0 of what is no array."""
    if isinstance(value, RawTensor):
        return len(value.raw())
    return int(value.nbytes) if isinstance(value, np.ndarray) else 0


def size_of(message: BaseMessage) -> int:
    return sum(bytes_of(value) for value in message.values())


def in_units(size: float) -> str:
    for unit in "B", "kB", "MB", "GB":
        if size < 999.5:
            break
        size /= 1000
    else:
        unit = "TB"
    return f"{size:.3g} {unit}"


def arrays_of(message: BaseMessage) -> Dict[str, Any]:
    """What is no leaf that came among them."""
    return {name: value for name, value in message.items()
            if isinstance(value, (np.ndarray, RawTensor))}


def summary(message: BaseMessage) -> str:
    count = len(arrays_of(message))
    return f"{count} tensor{'' if count == 1 else 's'}, " \
        f"{in_units(size_of(message))}"


def lines(message: BaseMessage) -> Iterator[str]:
    """An array a line, and what is none, and the metadata."""
    wide = max((len(name) for name in message), default=0)
    for name, value in message.items():
        if isinstance(value, (np.ndarray, RawTensor)):
            shape = ",".join(map(str, value.shape))
            value = f"{message.dtype(name):<8}  [{shape}]  {bytes_of(value)}"
        else:
            value = f"{type(value).__name__:<8}  {value!r}"
        yield f"  {name:<{min(wide, 40)}}  {value}"
    for key, value in message.meta.items():
        yield f"  @{key}  {type(value).__name__}  {value!r}"


def _plain(value: Any) -> Any:
    return f"{len(value)} bytes" if isinstance(value, bytes) else value


def event(name: str, message: Optional[BaseMessage] = None,
          **more: Any) -> str:
    """A line of JSON."""
    made: Dict[str, Any] = {"event": name, **more}
    if message is not None:
        arrays = arrays_of(message)
        made.update(tensors=len(arrays), bytes=size_of(message), map={
            "tensors": [{"name": name, "dtype": message.dtype(name),
                         "shape": value.shape, "bytes": bytes_of(value)}
                        for name, value in arrays.items()],
            "leaves": {name: _plain(value) for name, value in message.items()
                       if name not in arrays},
            "metadata": {key: _plain(value)
                         for key, value in message.meta.items()}})
    return json.dumps(made)
