# SPDX-License-Identifier: BSD-3-Clause
"""Reads the chunks of an MCAP file within a bound of memory: what it says of itself
is not believed, and a few kilobytes can expand to gigabytes."""

from __future__ import annotations

import heapq
import io
import os
import struct
import zlib
from typing import Any, Collection, Iterator, Optional, Tuple

from ._mcap import needed
from .errors import Error, Status, error_of

MEMORY_BYTES = 1 << 30  # bytes of chunks in memory
RECORD_BYTES = 512  # that a message in memory takes beside its own
SCHEMA, CHANNEL, MESSAGE = 3, 4, 5

_HEAD = struct.Struct("<BQ")
_MESSAGE = struct.Struct("<HIQQ")
_FOOTER = struct.Struct("<BQQQI8s")
_FOOTER_IS = 2, 20
_MAGIC = b"\x89MCAP0\r\n"


def _records(data: bytes) -> Iterator[Tuple[int, memoryview]]:
    """Those of a chunk: what they are, and their bodies."""
    at, view = 0, memoryview(data)
    while at < len(data):
        kind, size = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        if size > len(data) - at:
            raise ValueError("a record ends behind its chunk")
        yield kind, view[at:at + size]
        at += size


def _message(body: memoryview) -> Any:
    channel, sequence, log_time, publish_time = _MESSAGE.unpack_from(body)
    return needed("mcap.records").Message(
        channel_id=channel, data=bytes(body[_MESSAGE.size:]),
        log_time=log_time, publish_time=publish_time, sequence=sequence)


class Chunks:
    """Of a file that is open. `most`: bytes of them that are in memory at a time;
    a file that is larger may take as much as it has."""

    def __init__(self, file: Any, path: str, most: int) -> None:
        self._file, self._path = file, path
        self.most = max(most, os.fstat(file.fileno()).st_size)
        if file.read(len(_MAGIC)) != _MAGIC:
            raise error_of(Status.MALFORMED, f"{path} is not an MCAP file: "
                                             "its first bytes are wrong")

    def too_much(self, what: str) -> Error:
        return error_of(
            Status.LIMIT_EXCEEDED, f"{self._path}: {what} would take more than "
            f"{self.most} bytes of memory: allow it more, if you trust the "
            "file (memory_bytes=, --memory)")

    def summary(self) -> Any:
        """What is in the file; None: its end does not say it."""
        self._file.seek(-_FOOTER.size, os.SEEK_END)
        kind, size, start, _, _, magic = _FOOTER.unpack(
            self._file.read(_FOOTER.size))
        if (kind, size) != _FOOTER_IS or magic != _MAGIC or start == 0:
            return None
        self._file.seek(start)
        records, summary = needed("mcap.records"), _new_summary()
        for record in needed("mcap.stream_reader").StreamReader(
                self._file, skip_magic=True, emit_chunks=True).records:
            _know(summary, record)
            if isinstance(record, records.Statistics):
                summary.statistics = record
            elif isinstance(record, records.ChunkIndex):
                summary.chunk_indexes.append(record)
        return summary

    def scanned(self) -> Any:
        """The summary of a file that has none, as its writer was killed: what is
        whole of it. One chunk at a time is in memory."""
        reading, records = needed("mcap.stream_reader"), needed("mcap.records")
        stream, summary = needed("mcap.data_stream").ReadDataStream, \
            _new_summary()
        self._file.seek(0)
        start = 0
        try:
            for record in reading.StreamReader(self._file,
                                               emit_chunks=True).records:
                _know(summary, record)
                if isinstance(record, records.Chunk):
                    data = self._expanded(record, start, 0)
                    summary.chunk_indexes.append(_index_of(
                        record, start, self._file.tell() - start))
                    for kind, body in _records(data):
                        if kind in (SCHEMA, CHANNEL):
                            _know(summary, (
                                records.Schema if kind == SCHEMA else
                                records.Channel).read(stream(io.BytesIO(body))))
                start = self._file.tell()
        except Error:
            raise
        except Exception:  # whatever comes of half a record: it is the end
            pass
        return summary

    def _expanded(self, chunk: Any, at: int, held: int) -> bytes:
        """What is in a chunk. `held`: bytes of others that are in memory."""
        data: bytes = chunk.data
        size: int = chunk.uncompressed_size
        if max(size, len(data)) > self.most - held:
            raise self.too_much(f"the chunk at byte {at}, of {size} bytes,")
        if chunk.compression == "zstd":
            data = needed("zstandard").ZstdDecompressor().stream_reader(
                data).read(size + 1)
        elif chunk.compression == "lz4":
            data = needed("lz4.frame").LZ4FrameDecompressor().decompress(
                data, max_length=size + 1)
        elif chunk.compression:
            raise error_of(Status.UNSUPPORTED, f"{self._path}: a compression "
                           f"'{chunk.compression[:40]}'")
        if len(data) != size:
            raise ValueError(f"the chunk at byte {at} does not have the {size} "
                             "bytes that it says")
        return data

    def messages(self, summary: Any, topics: Optional[Collection[str]],
                 start_ns: Optional[int], end_ns: Optional[int]
                 ) -> Iterator[Any]:
        """(schema, channel, message) of mcap, in the order of their time."""
        first = 0 if start_ns is None else start_ns
        end = 1 << 64 if end_ns is None else end_ns
        wanted = {number for number, channel in summary.channels.items()
                  if topics is None or channel.topic in topics}
        # Time, chunk, place in it (-1: the chunk, to be opened), the one or other.
        heap = [(index.message_start_time, index.chunk_start_offset, -1, number,
                 index) for number, index in enumerate(summary.chunk_indexes)
                if index.message_end_time >= first
                and index.message_start_time < end
                and not wanted.isdisjoint(index.message_index_offsets or wanted)]
        heapq.heapify(heap)
        held = 0
        while heap:
            _, start, place, number, item = heapq.heappop(heap)
            if place >= 0:
                held -= len(item.data) + RECORD_BYTES
                channel = summary.channels[item.channel_id]
                yield summary.schemas[channel.schema_id] \
                    if channel.schema_id else None, channel, item
                continue
            self._file.seek(start + _HEAD.size)
            chunk = needed("mcap.records").Chunk.read(
                needed("mcap.data_stream").ReadDataStream(self._file))
            data = self._expanded(chunk, start, held)
            if chunk.uncompressed_crc not in (0, zlib.crc32(data)):
                raise ValueError(f"the crc of the chunk at byte {start} is "
                                 "another")
            for place, (kind, body) in enumerate(_records(data)):
                if kind != MESSAGE:
                    continue
                channel_id, _, at, _ = _MESSAGE.unpack_from(body)
                if not first <= at < end or (topics is not None
                                             and channel_id not in wanted):
                    continue
                held += len(body) - _MESSAGE.size + RECORD_BYTES
                if held > self.most:
                    raise self.too_much(
                        f"the messages of the chunk at byte {start}")
                heapq.heappush(heap, (at, start, place, number, _message(body)))


def _new_summary() -> Any:
    return needed("mcap.summary").Summary()


def _know(summary: Any, record: Any) -> None:
    records = needed("mcap.records")
    if isinstance(record, records.Schema):
        summary.schemas[record.id] = record
    elif isinstance(record, records.Channel):
        summary.channels[record.id] = record


def _index_of(chunk: Any, start: int, size: int) -> Any:
    return needed("mcap.records").ChunkIndex(
        chunk_length=size, chunk_start_offset=start,
        compression=chunk.compression, compressed_size=len(chunk.data),
        message_index_length=0, message_end_time=chunk.message_end_time,
        message_index_offsets={}, message_start_time=chunk.message_start_time,
        uncompressed_size=chunk.uncompressed_size)
