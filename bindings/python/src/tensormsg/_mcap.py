# SPDX-License-Identifier: BSD-3-Clause
"""A tensor map as a message of an MCAP file, and an image of it as one that
Foxglove shows. docs/how-to/recording.md has the layout."""

from __future__ import annotations

import base64
import importlib
import json
import math
import struct
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, \
    Tuple, Union

import numpy as np

from . import _data
from ._lib import hot
from .errors import Status, error_of

SCHEMA, ENCODING, IMAGE = "tensormsg.Map", "tensormsg", "foxglove.RawImage"
OF_MAP = "tensormsg.map"  # of an image's channel: the topic of its maps
ALIGNMENT = 64  # of a tensor in a message
EXACT = 1 << 53  # up to there every reader of JSON has integers
SIDE_LEAST = 16  # pixels: what is smaller is a matrix, unless it is said

SCHEMA_TEXT = """\
A message is one tensor map: the bytes of its tensors, then a description in
JSON (UTF-8), then the number of bytes of that description (uint32, little-endian).

{"tensors": [{"name": "x", "dtype": "float32", "shape": [2, 3],
              "offset": 0, "bytes": 24}],
 "metadata": {"frame": {"i64": 7}}}

A tensor's elements lie at "offset" of the message: little-endian, in C order,
without gaps. "dtype" is a name of numpy's, or of ml_dtypes' ("bfloat16").
If the tensor has a "topic" it is an image, and its elements lie at "offset" of
the last message of that topic instead, which has the same log_time and sequence.
A value of metadata is an object whose one key is its type: bool, i64 (a string
beyond 2^53), f64 ("NaN", "Infinity", "-Infinity" where it is not finite), string,
bytes (base64). A key that begins with "/" is a value that was sent among the
tensors under the rest of the key; "/" alone is the form of the tree.
log_time is when the map was acquired; publish_time, when it was published.
"""

_WANTS = {  # encodings of images: dtype, and channels
    "rgb8": ("uint8", 3), "bgr8": ("uint8", 3), "8UC3": ("uint8", 3),
    "rgba8": ("uint8", 4), "bgra8": ("uint8", 4), "mono8": ("uint8", 1),
    "8UC1": ("uint8", 1), "mono16": ("uint16", 1), "16UC1": ("uint16", 1),
    "32FC1": ("float32", 1), "bayer_rggb8": ("uint8", 1),
    "bayer_bggr8": ("uint8", 1), "bayer_gbrg8": ("uint8", 1),
    "bayer_grbg8": ("uint8", 1), "uyvy": ("uint8", 2), "yuyv": ("uint8", 2)}
_KNOWN = {("uint8", 3): "rgb8", ("uint8", 4): "rgba8", ("uint8", 1): "mono8",
          ("uint16", 1): "mono16"}

Images = Mapping[str, Optional[str]]


def needed(module: str) -> Any:
    """A module of what the extra [mcap] brings."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise error_of(
            Status.UNSUPPORTED, "recordings need the packages mcap (1.6 or "
            "later) and foxglove-schemas-protobuf: pip install "
            f"'tensormsg[mcap]' ({error})") from None


def _channels(array: "np.ndarray[Any, Any]") -> int:
    return array.shape[2] if array.ndim == 3 else 1 if array.ndim == 2 else 0


def encoding_of(name: str, array: "np.ndarray[Any, Any]",
                images: Optional[Images]) -> Optional[str]:
    """As which image a tensor is recorded; None: it is none. `images`: what is
    said of it by name; None: dtype and shape tell."""
    kind = array.dtype.name, _channels(array)
    if images is None:
        return _KNOWN.get(kind) if min(array.shape[:2], default=0) >= \
            SIDE_LEAST else None
    if name not in images:
        return None
    said = images[name] or _KNOWN.get(kind)
    if said is None or kind != _WANTS[said] or not array.size:
        wants = "an image of uint8 or uint16" if said is None else \
            "{} with {} channels".format(*_WANTS[said])
        raise ValueError(f"'{_data.shortened(name)}' is {array.dtype.name} of "
                         f"shape {array.shape}: {said or 'an image'} is "
                         f"{wants}, [height, width, channels]")
    return said


def check(images: Optional[Images]) -> None:
    """What a writer is given, and that it has what it needs."""
    needed("foxglove_schemas_protobuf.RawImage_pb2")
    needed("mcap.writer")
    for name, said in (images or {}).items():
        if said is not None and said not in _WANTS:
            raise ValueError(f"image '{name}': there is no encoding '{said}': "
                             + ", ".join(_WANTS))


def _bytes(array: "np.ndarray[Any, Any]") -> Any:
    return array.reshape(-1).view("u1")


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out) + bytes((number,))


def image_message(array: "np.ndarray[Any, Any]", encoding: str, frame_id: str,
                  time_ns: int) -> Tuple[bytes, int]:
    """The foxglove.RawImage, and where its pixels begin: last, so that they are
    copied once."""
    schema = needed("foxglove_schemas_protobuf.RawImage_pb2").RawImage
    image = schema(frame_id=frame_id, height=array.shape[0],
                   width=array.shape[1], encoding=encoding,
                   step=array.nbytes // array.shape[0])
    image.timestamp.seconds, image.timestamp.nanos = divmod(time_ns, 10**9)
    head = image.SerializeToString() + _varint(
        schema.DATA_FIELD_NUMBER << 3 | 2) + _varint(array.nbytes)
    return b"".join((head, _bytes(array))), len(head)


def image_schema() -> bytes:
    """The descriptor of foxglove.RawImage, and of what that imports."""
    files = needed("google.protobuf.descriptor_pb2").FileDescriptorSet()
    seen = set()

    def add(file: Any) -> None:
        if file.name not in seen:
            seen.add(file.name)
            for other in file.dependencies:
                add(other)
            file.CopyToProto(files.file.add())
    add(needed("foxglove_schemas_protobuf.RawImage_pb2").DESCRIPTOR)
    said: bytes = files.SerializeToString()
    return said


def _typed(value: Any) -> Dict[str, Any]:
    if isinstance(value, bool):
        return {"bool": value}
    if isinstance(value, int):
        return {"i64": value if -EXACT <= value <= EXACT else str(value)}
    if isinstance(value, float):
        return {"f64": value if math.isfinite(value) else "NaN"
                if math.isnan(value) else
                "Infinity" if value > 0 else "-Infinity"}
    if isinstance(value, str):
        return {"string": value}
    return {"bytes": base64.b64encode(value).decode()}


_UNTYPED: Dict[str, Callable[[Any], Any]] = {
    "bool": bool, "i64": int, "f64": float, "string": str,
    "bytes": lambda text: base64.b64decode(text, validate=True)}


class Elsewhere(NamedTuple):
    """Where an image was written."""
    topic: str
    offset: int


def map_message(arrays: Mapping[str, "np.ndarray[Any, Any]"],
                meta: Mapping[str, Any],
                images: Mapping[str, Elsewhere]) -> bytes:
    parts: List[Any] = []
    tensors = []
    end = 0
    for name, array in arrays.items():
        about = {"name": name, "dtype": array.dtype.name,
                 "shape": list(array.shape)}
        if name in images:
            about.update(topic=images[name].topic, offset=images[name].offset)
        else:
            gap = -end % ALIGNMENT
            about["offset"] = end + gap
            end += gap + array.nbytes
            parts += bytes(gap), _bytes(array)
        tensors.append({**about, "bytes": array.nbytes})
    said = json.dumps(
        {"tensors": tensors,
         "metadata": {key: _typed(value) for key, value in meta.items()}},
        ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    return b"".join((*parts, said, struct.pack("<I", len(said))))


def _array(about: Mapping[str, Any], data: Union[bytes, memoryview]) -> Any:
    """Raises what comes of a description that lies. np.ndarray() takes an offset
    that lies outside of `data`."""
    name, offset, size = about["name"], about["offset"], about["bytes"]
    if not (type(name) is str and type(offset) is type(size) is int and
            0 <= offset <= offset + size <= len(data)):
        raise ValueError(f"{about} is not a tensor of these {len(data)} bytes")
    _data.know_ml_dtypes()
    dtype = np.dtype(about["dtype"])
    _data.check_dtype(name, dtype)
    array = np.ndarray(tuple(about["shape"]), dtype.newbyteorder("<"), data,
                       offset)
    if list(array.shape) != about["shape"] or array.nbytes != about["bytes"]:
        raise ValueError(f"{about} is not a tensor")  # as with an extent of -1
    return array


def read_message(data: bytes, image_of: Callable[[str], bytes]
                 ) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """Arrays and metadata of a message; `image_of`: the message of another topic
    that belongs to it. Raises what comes of a message that lies."""
    bytes_of, = struct.unpack_from("<I", data, len(data) - 4)
    end = len(data) - 4 - bytes_of  # of the tensors
    if end < 0:
        raise ValueError(f"its description has {bytes_of} bytes, and the "
                         f"message {len(data)}")
    said = json.loads(data[end:-4])
    own = memoryview(data)[:end]
    arrays = {about["name"]: _array(about, image_of(about["topic"])
                                    if "topic" in about else own)
              for about in said["tensors"]}
    meta = {}
    for key, typed in said["metadata"].items():
        (kind, value), = typed.items()
        meta[key] = _UNTYPED[kind](value)
    return arrays, meta


def plain(arrays: Mapping[str, Any]) -> Dict[str, "np.ndarray[Any, Any]"]:
    """As they are written: of the CPU, and in C order."""
    made = {}
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):  # a capsule
            array = hot.view(name, array)
        made[name] = np.require(array, array.dtype.newbyteorder("<"), "C")
    return made


def names(topics: Sequence[str]) -> str:
    return ", ".join(f"'{_data.shortened(topic)}'" for topic in topics) or \
        "none"
