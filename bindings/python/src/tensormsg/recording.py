# SPDX-License-Identifier: BSD-3-Clause
"""Recordings of tensor maps as MCAP files: what `python -m tensormsg record`,
`replay` and `cut` do, for programs. Needs the extra [mcap];
docs/how-to/recording.md says what the files hold::

    with recording.Writer("out.mcap") as writer:
        writer.write("left", msg)

    with recording.Reader("out.mcap") as reader:
        for record in reader.read(["left"]):
            print(record.time_ns, record["image"].shape, record.meta)
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
import os
import threading
import time
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, \
    Optional, Union

import numpy as np

from . import _brief, _data, _mcap
from ._chunks import MEMORY_BYTES, Chunks
from ._lib import lib, text
from ._hub import Meta, merge_meta
from ._mcap import Images, names, needed
from ._message import BaseMessage, RawTensor
from ._near import NoSuchName
from .errors import Error, Status, error_of

__all__ = ["Reader", "Record", "Writer", "cut"]

CHUNK_BYTES = 4 << 20
FLUSH_S = 1.0  # what came is in the file after that
MESSAGE_BYTES_MOST = (1 << 32) - (1 << 16)  # of what readers of MCAP take
TOPICS_MOST = 1024  # images among them; a publisher may choose their names
_NS_MOST = (1 << 64) - 1

Place = Union[str, "os.PathLike[str]"]


def refuse_existing(path: Place) -> None:
    if os.path.lexists(path):
        raise FileExistsError(f"{os.fspath(path)} exists: name another file, "
                              "or overwrite it (overwrite=True, --force)")


def _mcap_writer(file: Any, compression: str, chunk_bytes: int) -> Any:
    writing = needed("mcap.writer")
    kinds = {"none": writing.CompressionType.NONE,
             "lz4": writing.CompressionType.LZ4,
             "zstd": writing.CompressionType.ZSTD}
    if compression not in kinds:
        raise ValueError(f"compression={compression!r}: none, lz4 or zstd")
    writer = writing.Writer(file, chunk_size=chunk_bytes,
                            compression=kinds[compression])
    writer.start(library=f"tensormsg {text(lib.tmsg_version())}")
    return writer


def _when(meta: Mapping[str, Any], *keys: str) -> Optional[int]:
    """The first of these times that the metadata have."""
    for key in keys:
        at = meta.get(key)
        if type(at) is int and 0 <= at <= _NS_MOST:
            return at
    return None


def _check_topic(topic: Any) -> None:
    if not isinstance(topic, str):
        raise TypeError(f"a topic is a str, not {topic!r}")
    if not topic or "\0" in topic:
        raise ValueError("a topic has one character or more, and no NUL: "
                         f"{_data.shortened(topic)!r}")
    topic.encode()  # raises a ValueError


def _checked_time(time_ns: Any) -> int:
    try:
        checked = operator.index(time_ns)
    except TypeError:
        raise TypeError("time_ns is an int of nanoseconds, not "
                        f"{time_ns!r}") from None
    if not 0 <= checked <= _NS_MOST:
        raise ValueError(f"time_ns={checked}: 0 to 2**64 - 1")
    return checked


class Writer:
    """Writes a recording. Any thread may use it.

    `path`: a new file, unless `overwrite`. `images`: which tensors Foxglove
    shall show: None is those of uint8 of shape [h, w], [h, w, 3] (rgb8) and
    [h, w, 4] (rgba8), and of uint16 [h, w] (mono16), of 16 pixels a side or
    more; or a dict of names to encodings ("bgr8", "32FC1"; None: by dtype and
    shape). `compression`: "none", "lz4" or "zstd", of chunks of `chunk_bytes`.
    What was written is in the file at the latest a second after the next
    write(), or flush(); a process that is killed loses only what came later."""

    def __init__(self, path: Place, *, images: Optional[Images] = None,
                 compression: str = "none", chunk_bytes: int = CHUNK_BYTES,
                 overwrite: bool = False) -> None:
        _mcap.check(images)
        if not overwrite:
            refuse_existing(path)
        self._images = images
        self._file = open(path, "wb" if overwrite else "xb")
        self._lock = threading.Lock()
        self._channels: Dict[str, int] = {}
        self._of: Dict[str, str] = {}  # topic -> the topic of its maps
        self._schemas: Dict[str, int] = {}
        self._counts: Dict[str, int] = {}
        self._flushed = time.monotonic()
        self._failed = False
        try:
            self._writer = _mcap_writer(self._file, compression, chunk_bytes)
        except BaseException:
            self._file.close()
            raise

    def write(self, topic: str, data: Any, *, meta: Optional[Meta] = None,
              time_ns: Optional[int] = None) -> None:
        """Writes a message, or a dict as send() takes it. `meta`: metadata
        beside that of a message. `time_ns`: when it is in the recording;
        None is its `acquired_ns`, else its `published_ns`, else now. Raises
        TypeError and ValueError for what cannot be recorded, and OSError."""
        _check_topic(topic)
        if time_ns is not None:
            time_ns = _checked_time(time_ns)
        if isinstance(data, BaseMessage):
            said = data._meta
            found = {name: value if isinstance(value, np.ndarray)
                     else data._numpy(name)
                     for name, value in data._arrays.items()}
        else:
            found, said = _data.flatten(data)
        for value in found.values():
            if isinstance(value, RawTensor):
                raise TypeError(value.why)
        said = {**said, **(merge_meta(meta, {}) or {})}
        arrays = _mcap.plain(found)
        if sum(array.nbytes for array in arrays.values()) > MESSAGE_BYTES_MOST:
            raise ValueError("readers of MCAP take messages of up to 4 GiB")
        if time_ns is None:
            time_ns = _when(said, "acquired_ns", "published_ns")
        with self._lock:
            self._add(topic, arrays, said,
                      time.time_ns() if time_ns is None else time_ns)

    def _add(self, topic: str, arrays: Dict[str, Any], meta: Dict[str, Any],
             time_ns: int) -> None:
        published_ns = _when(meta, "published_ns")
        count = self._counts.get(topic, 0) + 1
        messages, images = [], {}
        for name, array in arrays.items():
            encoding = _mcap.encoding_of(name, array, self._images)
            if encoding is not None:
                message, offset = _mcap.image_message(array, encoding, topic,
                                                      time_ns)
                images[name] = _mcap.Elsewhere(f"{topic}/{name}", offset)
                messages.append((images[name].topic, message))
        messages.append((topic, _mcap.map_message(arrays, meta, images)))
        self._check()
        new = sum(place not in self._channels for place, _ in messages)
        if len(self._channels) + new > TOPICS_MOST:
            raise ValueError(
                f"a map of '{_data.shortened(topic)}' brings {new} new topics, "
                f"{len(images)} images among them, and a recording has up to "
                f"{TOPICS_MOST}")
        self._counts[topic] = count
        try:
            for place, message in messages:
                self._writer.add_message(self._channel(place, topic), time_ns,
                                         message, time_ns if published_ns is None
                                         else published_ns, count & 0xffffffff)
            if time.monotonic() - self._flushed >= FLUSH_S:
                self._flush()
        except OSError:
            self._failed = True
            raise

    def _channel(self, topic: str, of_map: str) -> int:
        """That of a topic, which may be an image of another."""
        is_map = topic == of_map
        if self._of.setdefault(topic, of_map) != of_map:
            raise ValueError(f"'{_data.shortened(topic)}' is the topic of an "
                             f"image of '{_data.shortened(self._of[topic])}'")
        if topic not in self._channels:
            name = _mcap.SCHEMA if is_map else _mcap.IMAGE
            if name not in self._schemas:
                self._schemas[name] = self._writer.register_schema(
                    name, _mcap.ENCODING if is_map else "protobuf",
                    _mcap.SCHEMA_TEXT.encode() if is_map
                    else _mcap.image_schema())
            self._channels[topic] = self._writer.register_channel(
                topic, _mcap.ENCODING if is_map else "protobuf",
                self._schemas[name], {} if is_map else {_mcap.OF_MAP: of_map})
        return self._channels[topic]

    def _flush(self) -> None:
        self._writer.flush()
        self._flushed = time.monotonic()

    def _check(self) -> None:
        if self._file.closed or self._failed:
            raise error_of(Status.CLOSED, "the recording is closed" if
                           self._file.closed else "writing has failed before")

    def flush(self) -> None:
        """Has all that was written in the file, where a reader finds it."""
        with self._lock:
            self._check()
            self._flush()

    def close(self) -> None:
        """Writes what is left, and the index. A second call does nothing."""
        with self._lock:
            if self._file.closed:
                return
            try:
                if not self._failed:
                    self._writer.finish()
            finally:
                with contextlib.suppress(OSError):
                    self._file.flush()
                self._file.close()

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Record(_data.Formed):
    """A map of a recording: names to arrays, which are read-only, and to what
    was sent among them, as of a message."""

    def __init__(self, topic: str, time_ns: int, arrays: Dict[str, Any],
                 meta: Dict[str, Any]) -> None:
        self._topic = topic
        self._time_ns = time_ns
        self._meta = {key: value for key, value in meta.items()
                      if not key.startswith(_data.MARK)}
        form = meta.get(_data.MARK)
        self._told_form = form if isinstance(form, str) else None
        self._leaves = {**arrays, **{
            key[len(_data.MARK):]: value for key, value in meta.items()
            if key.startswith(_data.MARK) and key != _data.MARK}}

    def __getitem__(self, name: str) -> Any:
        try:
            return self._leaves[name]
        except KeyError:
            raise NoSuchName(name, self._leaves) from None

    def __contains__(self, name: object) -> bool:
        return name in self._leaves

    def __iter__(self) -> Iterator[str]:
        return iter(self._leaves)

    def __len__(self) -> int:
        return len(self._leaves)

    def __repr__(self) -> str:
        return _brief.mapping(
            "record", [f"'{_data.shortened(name)}': {_brief.value(value)}"
                       for name, value in itertools.islice(
                           self._leaves.items(), _brief.MOST)], len(self),
            f" of '{_data.shortened(self._topic)}' at {self._time_ns} ns")

    @property
    def topic(self) -> str:
        """What it was recorded under."""
        return self._topic

    @property
    def time_ns(self) -> int:
        """When it was acquired: ns of Unix time, or of the camera's clock."""
        return self._time_ns

    @property
    def meta(self) -> Dict[str, Any]:
        """Its metadata, as of a message."""
        return dict(self._meta)

    def _form(self) -> Optional[str]:
        return self._told_form

    def tree(self) -> Any:
        """What was sent, with its dicts, lists, tuples and None."""
        form = self._form()
        return dict(self) if form is None else _data.unflatten(form, self)


class Topic(NamedTuple):
    """What there is of a topic."""
    messages: Optional[int]  # None: the file was cut
    encoding: str  # of these
    of_map: Optional[str]  # of an image: the topic of its maps


def _image_of(message: Any, images: Mapping[str, Any], topic: str) -> bytes:
    """The message that a map refers to."""
    image = images.get(topic)
    if image is None or (image.log_time, image.sequence) != \
            (message.log_time, message.sequence):
        raise ValueError(f"its image of '{_data.shortened(topic)}' is missing")
    data: bytes = image.data
    return data


class Reader:
    """Reads a recording, also one whose writer was killed (`was_cut`), which is
    read once from end to end for that. `memory_bytes`: that chunks of it may take
    in memory, or as many as the file has; LimitExceeded where that is too little
    for what a small file expands to."""

    def __init__(self, path: Place, *, memory_bytes: int = MEMORY_BYTES) -> None:
        needed("mcap.reader")
        self._path = os.fspath(path)
        self._file = open(path, "rb")
        try:
            self._chunks = Chunks(self._file, self._path, memory_bytes)
            self._summary, self.was_cut = self._look()
        except BaseException:
            self._file.close()
            raise

    def _look(self) -> Any:
        try:
            summary = self._chunks.summary()
        except Exception:  # its end is not that of a file
            summary = None
        if summary is not None and summary.statistics is not None:
            return summary, False
        return self._chunks.scanned(), True

    @property
    def topics(self) -> Dict[str, Topic]:
        """By name: how many messages there are, their encoding ("tensormsg" of
        maps), and of an image the topic of its maps."""
        counted = self._summary.statistics
        return {channel.topic: Topic(
            None if counted is None else
            counted.channel_message_counts.get(channel.id, 0),
            channel.message_encoding, channel.metadata.get(_mcap.OF_MAP))
            for channel in self._summary.channels.values()}

    @property
    def maps(self) -> List[str]:
        """The topics that have tensor maps."""
        return [name for name, topic in self.topics.items()
                if topic.encoding == _mcap.ENCODING]

    @property
    def start_ns(self) -> int:
        """The first time in it; 0 where it is empty."""
        return min((chunk.message_start_time
                    for chunk in self._summary.chunk_indexes), default=0)

    @property
    def end_ns(self) -> int:
        """The last one."""
        return max((chunk.message_end_time
                    for chunk in self._summary.chunk_indexes), default=0)

    def _with_images(self, topics: Optional[Iterable[str]]
                     ) -> Optional[List[str]]:
        if topics is None:
            return None
        there, wanted = self.topics, list(topics)
        for topic in wanted:
            if topic not in there:
                raise error_of(Status.NOT_FOUND, f"{self._path} has no topic "
                               f"'{topic}': {names(list(there))}")
        return [*wanted, *(name for name, topic in there.items()
                           if topic.of_map in wanted and name not in wanted)]

    def messages(self, topics: Optional[Iterable[str]] = None,
                 start_ns: Optional[int] = None, end_ns: Optional[int] = None
                 ) -> Iterator[Any]:
        """(schema, channel, message) of mcap, in the order of their time."""
        try:
            yield from self._chunks.messages(
                self._summary, None if topics is None else set(topics), start_ns,
                end_ns)
        except (Error, GeneratorExit):
            raise
        except Exception as error:
            raise error_of(Status.CORRUPT, f"{self._path}: " + (
                str(error) or type(error).__name__)) from error

    def read(self, topics: Optional[Iterable[str]] = None, *,
             start_ns: Optional[int] = None, end_ns: Optional[int] = None
             ) -> Iterator[Record]:
        """The maps of these topics (None: all) from `start_ns` on, before
        `end_ns`, in the order of their time. Raises NotFound, Corrupt,
        Malformed, LimitExceeded."""
        images: Dict[str, Any] = {}
        at, held = 0, 0  # the time of these images, and their bytes
        for _, channel, message in self.messages(self._with_images(topics),
                                                 start_ns, end_ns):
            if message.log_time != at:
                images.clear()
                at, held = message.log_time, 0
            if channel.message_encoding != _mcap.ENCODING:
                images[channel.topic] = message
                held += len(message.data)
                if held > self._chunks.most:
                    raise self._chunks.too_much(f"the images at {at} ns")
                continue
            try:
                arrays, meta = _mcap.read_message(
                    message.data, functools.partial(_image_of, message, images))
            except Exception as error:
                raise error_of(
                    Status.MALFORMED, f"{self._path}: the message of "
                    f"'{channel.topic}' at {message.log_time} ns is not a "
                    f"tensor map: {type(error).__name__}: {error}") from None
            yield Record(channel.topic, message.log_time, arrays, meta)

    def close(self) -> None:
        """A second call does nothing."""
        self._file.close()

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def cut(source: Place, target: Place, *, topics: Optional[Iterable[str]] = None,
        start_ns: Optional[int] = None, end_ns: Optional[int] = None,
        compression: str = "none", overwrite: bool = False,
        memory_bytes: int = MEMORY_BYTES) -> int:
    """Copies the messages of these topics (None: all, those of other programs,
    too) from `start_ns` on, before `end_ns`, into a new recording; returns how
    many. That of a recording whose writer was killed is whole. The file is made,
    or replaced, when all of it was read. `memory_bytes`: as of Reader."""
    with Reader(source, memory_bytes=memory_bytes) as reader:
        if os.path.exists(target) and os.path.samefile(source, target):
            raise ValueError(f"{os.fspath(target)} is the file that is read: "
                             "name another file")
        wanted = reader._with_images(topics)
        if not overwrite:
            refuse_existing(target)
        target = os.path.realpath(target)
        is_file = os.path.isfile(target) or not os.path.exists(target)
        path = f"{target}.{os.getpid()}.part" if is_file else target
        try:
            with open(path, "wb") as file:
                count = _copy(reader.messages(wanted, start_ns, end_ns),
                              _mcap_writer(file, compression, CHUNK_BYTES))
            if is_file:
                os.replace(path, target)
        except BaseException:
            if is_file:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
            raise
        return count


def _copy(messages: Iterator[Any], writer: Any) -> int:
    schemas: Dict[int, int] = {0: 0}
    channels: Dict[int, int] = {}
    count = 0
    for schema, channel, message in messages:
        if channel.schema_id not in schemas:
            schemas[channel.schema_id] = writer.register_schema(
                schema.name, schema.encoding, schema.data)
        if channel.id not in channels:
            channels[channel.id] = writer.register_channel(
                channel.topic, channel.message_encoding,
                schemas[channel.schema_id], channel.metadata)
        writer.add_message(channels[channel.id], message.log_time,
                           message.data, message.publish_time,
                           message.sequence)
        count += 1
    writer.finish()
    return count
