# SPDX-License-Identifier: BSD-3-Clause
"""Recordings: what was sent comes back, and those without this package can read
them."""

import contextlib
import json
import pathlib
import runpy
import signal
import threading
import time
import tracemalloc

import ml_dtypes
import numpy as np
import pytest
from foxglove_schemas_protobuf.RawImage_pb2 import RawImage
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from mcap.reader import make_reader
from mcap.writer import CompressionType, Writer as McapWriter

import tensormsg
from conftest import WAIT, blocks_of, python
from tensormsg import recording, sync
from tensormsg.__main__ import main

DONE, FAILED, USAGE = range(3)
PAGE = pathlib.Path(__file__).parent / "../../../docs/how-to/recording.md"
CAMERAS = "left", "right", "rear"
S = 10**9
BEGAN = 1_700_000_000 * S
TREE = {
    "image": np.arange(48 * 64 * 3, dtype="u1").reshape(48, 64, 3),
    "number": np.array(1.5), "none": np.zeros((0, 3)), "bool": np.array([True]),
    "columns": np.arange(12, dtype="c8").reshape(3, 4).T,
    "bfloat16": np.arange(4).astype(ml_dtypes.bfloat16),
    "tree": [1, {"nothing": None, "said": "hi\u00fc"}, (2.5, b"\0\xff")]}
META = {"frame": 7, "acquired_ns": BEGAN, "raw": b"\0\1", "big": 2**60 + 1,
        "inf": float("-inf"), "whole": 2.0, "lit": True, "who": "left"}


def assert_same(got, sent):
    assert list(got) == list(sent)
    for name, value in sent.items():
        if isinstance(value, np.ndarray):
            assert got[name].dtype == value.dtype
            np.testing.assert_array_equal(got[name], value)
        else:
            assert got[name] == value and type(got[name]) is type(value)


def write(path, frames=600, period_ns=S, topics=CAMERAS, **how):
    """As cameras that were synchronized would have it."""
    with recording.Writer(path, **how) as writer:
        for frame in range(frames):
            for number, topic in enumerate(topics):
                writer.write(topic, {"image": np.full((16, 20), frame % 256, "u1"),
                                     "frame": np.array(frame)},
                             meta={"frame": frame, "acquired_ns":
                                   BEGAN + frame * period_ns + number})
    return path


@pytest.fixture(scope="module")
def film(tmp_path_factory):
    """Ten minutes of three cameras."""
    return write(tmp_path_factory.mktemp("film") / "film.mcap", 601)


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_what_was_written_is_read(compression, tmp_path):
    with recording.Writer(tmp_path / "x.mcap", compression=compression) as \
            writer:
        writer.write("left", TREE, meta=META)
        writer.write("tuple", [np.ones(2)], time_ns=BEGAN + 5)
    with recording.Reader(tmp_path / "x.mcap") as reader:
        first, second = reader.read()
        assert reader.maps == ["left", "tuple"] and not reader.was_cut
        assert (reader.start_ns, reader.end_ns) == (BEGAN, BEGAN + 5)
    assert_same(first.tree(), TREE)
    assert (first.meta, first.topic, first.time_ns) == (META, "left", BEGAN)
    assert {key: type(value) for key, value in first.meta.items()} == \
        {key: type(value) for key, value in META.items()}
    assert first["tree/1/said"] == "hi\u00fc" and not first["image"].flags.writeable
    np.testing.assert_array_equal(second.tree()[0], np.ones(2))
    assert repr(second) == \
        f"<record of '0': float64[2] of 'tuple' at {BEGAN + 5} ns>"
    with pytest.raises(KeyError, match="'imag': is it 'image'"):
        first["imag"]
    assert "imag" not in first and first.get("imag") is None


def test_a_message_is_recorded_as_it_came(tmp_path):
    with sync.listen(":0", background=True) as server, \
            sync.connect(server.url) as ep, \
            recording.Writer(tmp_path / "x.mcap") as writer:
        ep.send(TREE, meta=META)
        writer.write("left", server.recv(WAIT))
    with recording.Reader(tmp_path / "x.mcap") as reader:
        record, = reader.read()
    assert_same(record.tree(), TREE)
    assert record.meta == META
    with recording.Writer(tmp_path / "again.mcap") as writer:
        writer.write("left", record)
    with recording.Reader(tmp_path / "again.mcap") as reader:
        again, = reader.read()
    assert_same(again.tree(), TREE)


def test_the_page_has_a_reader_without_us(tmp_path, monkeypatch, capsys):
    ours, theirs = blocks_of(PAGE)
    assert "tensormsg" not in theirs.replace('"tensormsg"', "")
    assert len(theirs.splitlines()) <= 15
    for name, block in ("ours", ours), ("theirs", theirs):
        (tmp_path / f"{name}.py").write_text(block)
    monkeypatch.chdir(tmp_path)
    runpy.run_path("ours.py")
    assert capsys.readouterr().out.splitlines()[-1] == \
        "80000000 (480, 640, 3) 2"
    said = runpy.run_path("theirs.py")
    assert capsys.readouterr().out.splitlines() == [
        f"left {at} {{'image': (480, 640, 3), 'pose': (4, 4)}}"
        for at in (0, 40000000, 80000000)]
    assert (said["arrays"]["image"] == 2).all()
    np.testing.assert_array_equal(said["arrays"]["pose"], np.eye(4))


def test_others_read_each_kind_of_value(tmp_path):
    """The arrays, and the metadata as docs/reference/json.md has them."""
    with recording.Writer(tmp_path / "out.mcap") as writer:
        writer.write("left", TREE, meta=META)
    (tmp_path / "theirs.py").write_text(blocks_of(PAGE)[1])
    with contextlib.chdir(tmp_path):
        said = runpy.run_path("theirs.py")
    for name, array in said["arrays"].items():
        np.testing.assert_array_equal(array, TREE[name])
    assert {key: value for key, value in said["about"]["metadata"].items()
            if not key.startswith("/")} == {
        "frame": {"i64": 7}, "acquired_ns": {"i64": str(BEGAN)},
        "raw": {"bytes": "AAE="}, "big": {"i64": str(2**60 + 1)},
        "inf": {"f64": "-Infinity"}, "whole": {"f64": 2.0},
        "lit": {"bool": True}, "who": {"string": "left"}}
    assert b"little-endian" in said["schema"].data


IMAGES = {
    "rgb8": np.zeros((16, 20, 3), "u1"), "rgba8": np.ones((16, 20, 4), "u1"),
    "mono8": np.zeros((16, 20), "u1"), "mono16": np.ones((16, 20, 1), "u2"),
    "32FC1": np.ones((16, 20), "f4"), "bgr8": np.ones((2, 20, 3), "u1"),
    "yuyv": np.ones((16, 20, 2), "u1")}


def test_foxglove_sees_images(tmp_path):
    """By its own schema, and by the descriptor that the file has, which is
    complete."""
    with recording.Writer(tmp_path / "x.mcap",
                          images={name: name for name in IMAGES}) as writer:
        writer.write("left", IMAGES, meta={"acquired_ns": BEGAN + 7})
    with open(tmp_path / "x.mcap", "rb") as file:
        got = {channel.topic: (schema, channel, message) for
               schema, channel, message in make_reader(file).iter_messages()}
    assert list(got) == [*(f"left/{name}" for name in IMAGES), "left"]
    schema, channel, _ = got["left/rgb8"]
    assert (schema.name, schema.encoding, channel.message_encoding) == \
        ("foxglove.RawImage", "protobuf", "protobuf")
    files = descriptor_pb2.FileDescriptorSet.FromString(schema.data)
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:  # each after those that it imports
        pool.Add(file)
    theirs = descriptor_pb2.DescriptorProto()
    RawImage.DESCRIPTOR.CopyToProto(theirs)
    ours = descriptor_pb2.DescriptorProto()
    found = pool.FindMessageTypeByName("foxglove.RawImage")
    found.CopyToProto(ours)
    assert ours == theirs
    for name, array in IMAGES.items():
        data = got[f"left/{name}"][2].data
        for kind in RawImage, message_factory.GetMessageClass(found):
            image = kind.FromString(data)
            assert (image.encoding, image.height, image.width) == \
                (name, *array.shape[:2])
            assert image.data == array.tobytes() and image.frame_id == "left"
            assert image.step * image.height == len(image.data)
            assert (image.timestamp.seconds, image.timestamp.nanos) == \
                divmod(BEGAN + 7, S)


def test_what_looks_like_an_image_is_one(tmp_path):
    looks = {name: IMAGES[name] for name in
             ("rgb8", "rgba8", "mono8", "mono16")}
    others = {"32FC1": IMAGES["32FC1"], "small": np.zeros((4, 4), "u1"),
              "row": np.zeros(99, "u1"), "many": np.zeros((16, 20, 5), "u1")}
    for images, expected in (None, set(looks)), ({}, set()), \
            ({"mono8": None}, {"mono8"}):
        with recording.Writer(tmp_path / "x.mcap", images=images,
                              overwrite=True) as writer:
            writer.write("a/b", {**looks, **others})
        with recording.Reader(tmp_path / "x.mcap") as reader:
            assert set(reader.topics) == {"a/b", *(
                f"a/b/{name}" for name in expected)}
            assert_same(next(reader.read()), {**looks, **others})


BAD = {
    "no such encoding": lambda path: recording.Writer(path, images={"x": "rgb"}),
    "no such compression": lambda path: recording.Writer(
        path, compression="gzip"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_setting_is_named(what, tmp_path):
    with pytest.raises(ValueError, match="rgb8, bgr8|none, lz4 or zstd"):
        BAD[what](tmp_path / "x.mcap")


def test_what_cannot_be_written_is_refused_by_name(tmp_path):
    with pytest.raises(FileExistsError, match="x.mcap exists.*overwrite=True"):
        (tmp_path / "x.mcap").touch()
        recording.Writer(tmp_path / "x.mcap")
    with recording.Writer(tmp_path / "y.mcap",
                          images={"x": "32FC1"}) as writer:
        with pytest.raises(ValueError, match="'x' is uint8.*float32 with 1"):
            writer.write("left", {"x": np.zeros((16, 20), "u1")})
        with pytest.raises(TypeError, match="'o' has dtype object"):
            writer.write("left", {"o": np.array([None])})
        writer.write("left", {"x": np.zeros((16, 20), "f4")})
        with pytest.raises(ValueError, match="topic of an image of 'left'"):
            writer.write("left/x", {"y": np.ones(2)})
    with pytest.raises(tensormsg.Closed):
        writer.write("left", {"y": np.ones(2)})
    with recording.Reader(tmp_path / "y.mcap") as reader:
        assert len(list(reader.read())) == 1
        with pytest.raises(tensormsg.NotFound, match="'rear': 'left"):
            list(reader.read(["rear"]))


@pytest.mark.parametrize("topic, time_ns, kind, words", [
    (5, 1, TypeError, "a topic is a str, not 5"),
    ("", 1, ValueError, "a topic has one character or more"),
    ("a\0b", 1, ValueError, "no NUL"),
    ("\ud800", 1, ValueError, "surrogates"),
    ("a", 1.5, TypeError, "time_ns is an int of nanoseconds, not 1.5"),
    ("a", -5, ValueError, "time_ns=-5: 0 to"),
    ("a", 1 << 64, ValueError, "0 to 2")])
def test_a_bad_topic_or_time_spoils_nothing(topic, time_ns, kind, words,
                                            tmp_path):
    with recording.Writer(tmp_path / "x.mcap") as writer:
        with pytest.raises(kind, match=words):
            writer.write(topic, {"x": np.ones(3)}, time_ns=time_ns)
        writer.write("a", {"x": np.ones(3)}, time_ns=np.int64(7))
        writer.flush()
    with recording.Reader(tmp_path / "x.mcap") as reader:
        record, = reader.read()
        assert (record.time_ns, reader.was_cut) == (7, False)


def test_a_recording_has_topics_up_to_a_limit(tmp_path, monkeypatch):
    """Publishers name their images; what has its topic goes on."""
    monkeypatch.setattr(recording, "TOPICS_MOST", 3)
    with recording.Writer(tmp_path / "x.mcap") as writer:
        writer.write("left", {"a": IMAGES["mono8"], "b": IMAGES["mono8"]})
        for name in "cd":
            with pytest.raises(ValueError, match="1 new topics, 1 images"):
                writer.write("left", {name: IMAGES["mono8"]})
        with pytest.raises(ValueError, match="'right'.* up to 3"):
            writer.write("right", {"x": np.ones(2)})
        writer.write("left", {"b": IMAGES["mono8"]})
    with recording.Reader(tmp_path / "x.mcap") as reader:
        assert [list(record) for record in reader.read()] == [["a", "b"], ["b"]]
        assert list(reader.topics) == ["left/a", "left/b", "left"]


def test_a_full_disk_ends_it_with_its_error():
    with pytest.raises(OSError, match="No space left"):
        with recording.Writer("/dev/full", overwrite=True) as writer:
            writer.write("left", {"x": np.zeros(1 << 20)})


@pytest.mark.parametrize("data", [b"", b"hello", b"hello, this is no MCAP file"])
def test_what_is_no_recording_is_refused(data, tmp_path):
    (tmp_path / "x.mcap").write_bytes(data)
    with pytest.raises(tensormsg.Malformed, match="x.mcap is not an MCAP file"):
        recording.Reader(tmp_path / "x.mcap")
    assert main_usage("replay", "--list", tmp_path / "x.mcap")


MIB = 1 << 20


def expanding(path, compression="ZSTD", messages=((0, bytes(16 * MIB)),),
              chunk_bytes=MIB, lie=None):
    """What has more than a mebibyte in it, and is small."""
    with open(path, "wb") as file:
        writer = McapWriter(file, chunk_size=chunk_bytes,
                            compression=CompressionType[compression])
        writer.start()
        schema = writer.register_schema("tensormsg.Map", "tensormsg", b"")
        channels = [writer.register_channel(topic, encoding, schema)
                    for topic, encoding in (("x", "tensormsg"),
                                            ("y", "protobuf"))]
        for at, data in messages:
            writer.add_message(channels["y" in path.name], at, data, at)
        writer.finish()
    whole = path.read_bytes()
    assert len(whole) < MIB
    if lie is not None:  # the first chunk says that it has so many bytes
        at = whole.index(b"\x06", 30)
        path.write_bytes(whole[:at + 25] + lie.to_bytes(8, "little") +
                         whole[at + 33:])
    return path


TOO_LARGE = {
    "of zstd": lambda path: expanding(path / "z"),
    "of lz4": lambda path: expanding(path / "l", "LZ4"),
    "by its own words": lambda path: expanding(path / "w", messages=[(0, b"")],
                                               lie=2 << 30),
    "many at one time": lambda path: expanding(
        path / "m", messages=[(0, bytes(MIB // 2))] * 8),
    "of nothing but messages": lambda path: expanding(
        path / "n", messages=[(0, b"")] * 4000),
    "images at one time": lambda path: expanding(
        path / "y", messages=[(0, bytes(MIB // 3))] * 8,
        chunk_bytes=MIB // 4),
}


@pytest.mark.parametrize("what", TOO_LARGE)
@pytest.mark.parametrize("cut", [False, True])
def test_a_small_file_does_not_expand_beyond_its_bound(what, cut, tmp_path,
                                                       capsys):
    path = TOO_LARGE[what](tmp_path)
    if cut:  # as that of a writer that was killed
        path.write_bytes(path.read_bytes()[:-8])
    tracemalloc.start()
    with pytest.raises(tensormsg.LimitExceeded, match="more than 1048576 bytes"):
        with recording.Reader(path, memory_bytes=MIB) as reader:
            list(reader.read())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * MIB
    if "images" in what:
        return  # they are not together where maps are not read
    assert main(["cut", "--memory", "1M", str(path), str(tmp_path / "new")]) == \
        FAILED
    assert "--memory" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_chunk_that_has_more_than_it_says_is_corrupt(tmp_path):
    for compression in "ZSTD", "LZ4", "NONE":
        path = expanding(tmp_path / compression, compression,
                         [(0, bytes(MIB // 2))], lie=100)
        with recording.Reader(path) as reader:
            with pytest.raises(tensormsg.Corrupt, match="not have the 100"):
                list(reader.read())


def test_a_summary_of_chunks_expands_none(tmp_path):
    path = expanding(tmp_path / "x")
    data = path.read_bytes()
    path.write_bytes(data[:-28] + (8).to_bytes(8, "little") + data[-20:])
    tracemalloc.start()
    with recording.Reader(path) as reader:
        assert list(reader.topics) == ["x", "y"]
    assert tracemalloc.get_traced_memory()[1] < 4 * MIB
    tracemalloc.stop()


def test_half_a_chunk_is_the_end(tmp_path):
    path = write(tmp_path / "x.mcap", 30, chunk_bytes=4096)
    with recording.Reader(path) as reader:
        index = reader._summary.chunk_indexes[-1]
        count = len(list(reader.read()))
    path.write_bytes(path.read_bytes()[:index.chunk_start_offset +
                                       index.chunk_length // 2])
    with recording.Reader(path) as reader:
        assert reader.was_cut and 0 < len(list(reader.read())) < count


LIES = {
    "an offset": lambda about: about["tensors"][0].update(offset=1 << 20),
    "a negative offset": lambda about: about["tensors"][0].update(offset=-8),
    "an offset far away": lambda about: about["tensors"][0].update(
        offset=-10**12),
    "an offset that runs over": lambda about: about["tensors"][0].update(
        offset=(1 << 63) - 4),
    "an offset into its description": lambda about: about["tensors"][0].update(
        offset=4),
    "a name": lambda about: about["tensors"][0].update(name=5),
    "a shape": lambda about: about["tensors"][0].update(shape=[-1]),
    "a dtype": lambda about: about["tensors"][0].update(dtype="O"),
    "a topic": lambda about: about["tensors"][0].update(topic="x"),
    "a type": lambda about: about.update(metadata={"x": {"i32": 1}}),
    "its length": lambda about: None,
}


def hand_made(path, about, end=None):
    """A recording of one message with this description."""
    said = json.dumps(about).encode()
    number = len(said) if end is None else end
    with open(path, "wb") as file:
        writer = McapWriter(file)
        writer.start()
        channel = writer.register_channel(
            "left", "tensormsg", writer.register_schema("x", "x", b""))
        writer.add_message(channel, 5, b"1234" + said +
                           number.to_bytes(4, "little"), 5)
        writer.finish()
    return path


@pytest.mark.parametrize("what", LIES)
def test_a_message_that_lies_is_malformed(what, tmp_path):
    about = {"tensors": [{"name": "x", "dtype": "uint8", "shape": [4],
                          "offset": 0, "bytes": 4}], "metadata": {}}
    LIES[what](about)
    with recording.Reader(hand_made(
            tmp_path / "x.mcap", about,
            1 << 31 if what == "its length" else None)) as reader:
        with pytest.raises(tensormsg.Malformed, match="'left' at 5 ns"):
            list(reader.read())


UNSENDABLE = {
    "a tree": {"/": {"string": "[" * 100000}},
    "a part of a tree": {"/": {"string": '["l",'}},
    "an integer": {"x": {"i64": 1 << 64}},
    "a string": {"x": {"string": "\ud800"}}}


@pytest.mark.parametrize("what", UNSENDABLE)
def test_what_no_message_can_have_ends_a_replay_in_words(what, tmp_path, capsys):
    path = hand_made(tmp_path / "x.mcap",
                     {"tensors": [], "metadata": UNSENDABLE[what]})
    Viewer(f"unix://{tmp_path}/socket")
    assert main(["replay", str(path), f"unix://{tmp_path}/socket"]) == FAILED
    assert "the map of 'left' at 5 ns cannot be sent: " in \
        capsys.readouterr().err


def test_an_image_that_is_not_of_its_map_is_missing(tmp_path):
    """A map is not given the image of another."""
    with recording.Writer(tmp_path / "x.mcap") as writer:
        for frame in range(2):
            writer.write("left", {"image": np.full((16, 20), frame, "u1")},
                         time_ns=frame)
    with open(tmp_path / "x.mcap", "rb") as file, \
            open(tmp_path / "y.mcap", "wb") as new:
        writer = McapWriter(new)
        writer.start()
        channels = {}
        for schema, channel, message in make_reader(file).iter_messages():
            if channel.topic not in channels:
                channels[channel.topic] = writer.register_channel(
                    channel.topic, channel.message_encoding,
                    writer.register_schema(schema.name, schema.encoding,
                                           schema.data))
            if (channel.topic, message.log_time) != ("left/image", 1):
                writer.add_message(channels[channel.topic], message.log_time,
                                   message.data, 0, message.sequence)
        writer.finish()
    with recording.Reader(tmp_path / "y.mcap") as reader:
        records = reader.read()
        assert (next(records)["image"] == 0).all()
        with pytest.raises(tensormsg.Malformed, match="'left/image' is missing"):
            next(records)


def test_a_flipped_bit_is_found(tmp_path):
    data = bytearray(write(tmp_path / "x.mcap", 10).read_bytes())
    data[len(data) // 4] ^= 1
    (tmp_path / "x.mcap").write_bytes(data)
    with recording.Reader(tmp_path / "x.mcap") as reader:
        with pytest.raises(tensormsg.Corrupt, match="x.mcap.*crc"):
            list(reader.read())


def test_a_part_is_sought(film):
    with recording.Reader(film) as reader:
        assert (reader.end_ns - reader.start_ns) // S == 600
        assert reader.topics["left"].messages == 601
        part = list(reader.read(["right"], start_ns=BEGAN + 300 * S,
                                end_ns=BEGAN + 310 * S))
    assert [record.meta["frame"] for record in part] == list(range(300, 310))
    assert all((record["image"] == record.meta["frame"] % 256).all()
               for record in part)


def test_a_chunk_beyond_the_part_is_not_read(tmp_path):
    data = bytearray(write(tmp_path / "x.mcap", 100, chunk_bytes=4096)
                     .read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "x.mcap").write_bytes(data)
    with recording.Reader(tmp_path / "x.mcap") as reader:
        assert len(list(reader.read(end_ns=BEGAN + 10 * S))) == 30


def main_usage(*words):
    with pytest.raises(SystemExit) as ended:
        main(list(map(str, words)))
    return ended.value.code == USAGE


def test_a_cut_is_a_recording(film, tmp_path, capsys):
    new = tmp_path / "new.mcap"
    words = ["cut", "--from", "1:00", "--to", "2:00", "--topic", "left",
             "--compression", "zstd", str(film), str(new)]
    assert main(words) == DONE
    with recording.Reader(new) as reader:
        assert set(reader.topics) == {"left", "left/image"}
        records = list(reader.read())
    assert [record.meta["frame"] for record in records] == list(range(60, 120))
    assert (records[0]["image"] == 60).all()
    assert main_usage(*words) and "new.mcap exists" in capsys.readouterr().err
    assert main([*words[:1], "-f", *words[1:]]) == DONE
    assert main_usage("cut", "-f", new, new)
    assert len(list(recording.Reader(new).read())) == 60


@pytest.mark.parametrize("words, said", [
    (["--from", "11:00"], "ends after 600.000 s"),
    (["--from", "5", "--to", "4"], "--from 5 is not before --to 4"),
    (["--from", "soon"], "'soon' is not a time"),
    (["--from", "0.4", "--to", "0.6", "--subscribers", "0"],
     "no maps to publish in that part"),
    (["--topic", "top"], "the recording has 'left/image', 'left'"),
    (["--speed", "-1"], "'-1': a number above 0, or max"),
    (["--speed", "0"], "'0': a number above 0, or max")])
def test_a_part_that_is_not_there_is_bad_usage(film, words, said, capsys):
    assert main_usage("replay", *words, film, ":0")
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("words, said", [
    (["record", ":1", ":2", "x.mcap"], "give each a name"),
    (["record", "a=:1", "a=:2", "x.mcap"], "'a' occurs twice"),
    (["record", "a=:1", "a/b=:2", "x.mcap"], "'a/b' lies below 'a'"),
    (["record", "--image", "x=rgb", ":1", "x.mcap"], "no encoding 'rgb'"),
    (["record", "-n", "0", ":1", "x.mcap"], "--count 0"),
    (["replay", "FILM"], "where to publish it is missing"),
    (["replay", "FILM", "top=:0"], "top: the recording has 'left'"),
    (["replay", "none.mcap", ":0"], "No such file")])
def test_bad_usage(film, words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main_usage(*(film if word == "FILM" else word for word in words))
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


class Viewer(threading.Thread):
    """Receives to the end, and notes when."""

    def __init__(self, url):
        super().__init__(daemon=True)
        self.url, self.got, self.times = url, [], []
        self.start()

    def run(self):
        with sync.connect(self.url, wait=True, timeout=WAIT) as ep:
            for msg in ep:
                self.times.append(time.monotonic())
                self.got.append((msg.meta, dict(msg)))

    def wait(self):
        self.join(WAIT)
        assert not self.is_alive()
        return [meta["frame"] for meta, _ in self.got]


def test_three_cameras_are_recorded_and_played(tmp_path, capsys):
    """Ten minutes by their clocks; each map comes back where it was."""
    path = tmp_path / "x.mcap"
    with contextlib.ExitStack() as stack:
        cameras = [stack.enter_context(sync.publish(":0", mode="all"))
                   for _ in CAMERAS]

        def film():
            for camera in cameras:
                camera.wait_for(1, WAIT)
            for frame in range(61):
                for number, camera in enumerate(cameras):
                    camera.send({"image": np.full((16, 20, 3), frame, "u1"),
                                 "number": number}, frame=frame,
                                acquired_ns=BEGAN + frame * 10 * S + number)
            for camera in cameras:
                camera.close()
        thread = threading.Thread(target=film, daemon=True)
        thread.start()
        assert main(["record", *(f"{name}={camera.url}" for name, camera in
                                 zip(CAMERAS, cameras)), str(path)]) == DONE
        thread.join(WAIT)
    assert capsys.readouterr().out == \
        "left: 61 maps\nright: 61 maps\nrear: 61 maps\n"
    assert main(["replay", "--list", "--json", str(path)]) == DONE
    about = json.loads(capsys.readouterr().out)
    assert about["seconds"] == pytest.approx(600, abs=1e-6)
    assert about["topics"]["rear/image"] == {
        "messages": 61, "encoding": "protobuf", "of_map": "rear"}

    urls = [f"unix://{tmp_path}/{name}" for name in CAMERAS]
    viewers = [Viewer(url) for url in urls]
    assert main(["replay", "--speed", "6000", str(path),
                 *(f"{name}={url}" for name, url in zip(CAMERAS, urls))]) == \
        DONE
    for number, viewer in enumerate(viewers):
        assert viewer.wait() == list(range(61))
        for frame, (meta, arrays) in enumerate(viewer.got):
            assert meta == {"frame": frame, "acquired_ns":
                            BEGAN + frame * 10 * S + number}
            assert (arrays["image"] == frame).all()
            assert arrays["number"] == number

    viewer = Viewer(f"unix://{tmp_path}/all")  # all of them at one URL
    assert main(["replay", "--speed", "max", "--from", "9:59", str(path),
                 viewer.url]) == DONE
    assert viewer.wait() == [60] * 3
    assert [meta["topic"] for meta, _ in viewer.got] == list(CAMERAS)


def test_the_distances_in_time_are_kept(tmp_path, capsys):
    """At its own speed, and at four times that; a loaded machine is late, and
    never early."""
    path = write(tmp_path / "x.mcap", 5, S // 5, ["left"])
    for number, speed in enumerate((1, 4)):
        viewer = Viewer(f"unix://{tmp_path}/{number}")
        assert main(["replay", "--speed", str(speed), str(path),
                     viewer.url]) == DONE
        assert viewer.wait() == list(range(5))
        took = viewer.times[-1] - viewer.times[0]
        assert .8 / speed - .15 < took < .8 / speed + 5
    out = capsys.readouterr().out
    assert "5 maps" in out


def test_a_loop_ends_by_a_signal(tmp_path):
    path = write(tmp_path / "x.mcap", 3, S // 100, ["left"])
    with python("-m", "tensormsg", "replay", "--loop", path, ":0") as process:
        url = process.stdout.readline().strip()
        with sync.connect(url) as ep:
            frames = [ep.recv(WAIT).meta["frame"] for _ in range(9)]
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(tensormsg.Closed):
                while True:
                    ep.recv(WAIT)
        out, _ = process.communicate(timeout=WAIT)
    assert frames == [0, 1, 2] * 3 and process.returncode == DONE
    assert " maps" in out


def test_a_replay_that_a_signal_ends_has_failed(tmp_path):
    path = write(tmp_path / "x.mcap", 3, 100 * S, ["left"])
    with python("-m", "tensormsg", "replay", path, ":0") as process:
        url = process.stdout.readline().strip()
        with sync.connect(url) as ep:
            ep.recv(WAIT)
            process.send_signal(signal.SIGINT)
            with pytest.raises(tensormsg.Closed):
                ep.recv(WAIT)
        process.wait(WAIT)
    assert process.returncode == FAILED


def maps_in(path):
    """Of a recording that is being written."""
    with contextlib.suppress(OSError, tensormsg.Error), \
            recording.Reader(path) as reader:
        return len(list(reader.read()))
    return 0


def test_a_killed_recording_is_read_to_its_last_second(tmp_path, capsys):
    path = tmp_path / "x.mcap"
    with sync.publish(":0", mode="all") as camera, \
            python("-m", "tensormsg", "record", camera.url, path) as process:
        camera.wait_for(1, WAIT)
        for frame in range(20):
            camera.send({"image": np.full((16, 20), frame, "u1")}, frame=frame,
                        acquired_ns=BEGAN + frame * S)
        camera.flush(WAIT)
        end = time.monotonic() + WAIT  # for the flush of each second
        while maps_in(path) < 20 and time.monotonic() < end:
            time.sleep(.05)
        process.kill()
        process.wait(WAIT)
        camera.abort()
    with open(path, "ab") as file:  # and half a chunk
        file.write(b"\x06\xff\xff\0\0\0\0\0\0half of it")
    with recording.Reader(path) as reader:
        assert reader.was_cut and reader.maps == ["maps"]
        assert [record.meta["frame"] for record in reader.read()] == \
            list(range(20))
        part = reader.read(start_ns=BEGAN + 5 * S, end_ns=BEGAN + 7 * S)
        assert [int(record["image"][0, 0]) for record in part] == [5, 6]
    assert main(["cut", str(path), str(tmp_path / "whole.mcap")]) == DONE
    with recording.Reader(tmp_path / "whole.mcap") as reader:
        assert not reader.was_cut and reader.topics["maps"].messages == 20
    assert main(["replay", "--list", str(path)]) == DONE
    assert "cut: its writer was killed" in capsys.readouterr().out


def record_while(path, words, send):
    """The exit code of a recording of what is sent to who has connected."""
    with sync.publish(":0", mode="all") as camera:
        def film():
            camera.wait_for(1, WAIT)
            with contextlib.suppress(tensormsg.Error):
                send(camera)
        thread = threading.Thread(target=film, daemon=True)
        thread.start()
        code = main(["record", *words, f"cam={camera.url}", str(path)])
        thread.join(WAIT)
        camera.abort()
    return code


def test_a_count_ends_it(tmp_path, capsys):
    def send(camera):
        for frame in 1, 2, 5, 6, 7, 8:
            camera.send({"x": np.ones(3)}, frame=frame, timeout=WAIT)
    path = tmp_path / "x.mcap"
    assert record_while(path, ["-n", "4"], send) == DONE
    assert capsys.readouterr().out == \
        "cam: 4 maps, 2 were lost before they came here\n"
    with recording.Reader(path) as reader:
        assert [record.meta["frame"] for record in reader.read()] == \
            [1, 2, 5, 6]


def test_a_camera_that_comes_back_goes_on(tmp_path, capsys):
    """And one that is gone for good ends with its error; what came is there."""
    url, path = f"unix://{tmp_path}/camera", tmp_path / "x.mcap"

    def film(runs):
        for run in range(runs):
            with sync.publish(url, mode="all") as camera:
                camera.wait_for(1, WAIT)
                for frame in range(3):
                    camera.send({"x": np.ones(3)}, frame=3 * run + frame)
                camera.flush(WAIT)
                camera.abort()
    thread = threading.Thread(target=film, args=(2,), daemon=True)
    thread.start()
    assert main(["record", "--wait", "--reconnect", "20", "-n", "6",
                 "--duration", str(WAIT), f"cam={url}", str(path)]) == DONE
    thread.join(WAIT)
    with recording.Reader(path) as reader:
        assert [record.meta["frame"] for record in reader.read()] == \
            list(range(6))
    capsys.readouterr()
    thread = threading.Thread(target=film, args=(1,), daemon=True)
    thread.start()
    assert main(["record", "-f", "--wait", f"cam={url}", str(path)]) == FAILED
    said = capsys.readouterr()
    assert said.out == "cam: 3 maps\n" and "tensormsg: cam: " in said.err
    thread.join(WAIT)


def test_cameras_that_dial_their_viewer(tmp_path):
    path, url = tmp_path / "x.mcap", f"unix://{tmp_path}/viewer"

    def film():
        with sync.connect(url, wait=True, timeout=WAIT) as camera:
            for frame in range(3):
                camera.send({"x": np.full(3, frame)}, frame=frame,
                            acquired_ns=BEGAN + frame)
    thread = threading.Thread(target=film, daemon=True)
    thread.start()
    assert main(["record", "--listen", "-n", "3", f"cam={url}", str(path)]) == \
        DONE
    thread.join(WAIT)
    got = []

    def view():
        with sync.listen(url) as viewer:
            got.extend(viewer.recv(WAIT).meta["frame"] for _ in range(3))
    thread = threading.Thread(target=view, daemon=True)
    thread.start()
    assert main(["replay", "--dial", "--wait", str(path), url]) == DONE
    thread.join(WAIT)
    assert got == [0, 1, 2]


def test_its_time_ends_it(tmp_path):
    began = time.monotonic()
    with sync.publish(":0") as camera:
        assert main(["record", "--duration", ".3", camera.url,
                     str(tmp_path / "x.mcap")]) == DONE
    assert time.monotonic() - began >= .3


def test_a_topic_by_metadata_and_what_is_refused(tmp_path, capsys):
    def send(camera):
        camera.send({"x": np.ones((16, 20), "f4")}, camera="left")
        camera.send({"x": np.ones(3)}, camera="right")  # no image of that kind
        camera.send({"x": np.ones((16, 20), "f4")})
        camera.close()
    path = tmp_path / "x.mcap"
    assert record_while(path, ["--topic-from", "camera", "--image", "x=32FC1"],
                        send) == FAILED
    said = capsys.readouterr()
    assert said.out == "cam: 2 maps, 1 could not be recorded\n"
    assert "cam/right: not recorded: 'x' is float64" in said.err
    with recording.Reader(path) as reader:
        assert reader.maps == ["cam/left", "cam"]


def test_who_cannot_be_reached_is_named(tmp_path, capsys):
    """And no file is made, or written over."""
    path = tmp_path / "x.mcap"
    assert main(["record", "left=127.0.0.1:1", str(path)]) == FAILED
    assert "tensormsg: left: " in capsys.readouterr().err
    assert not path.exists()
    path.write_text("old")
    for more in [], ["--wait", "--duration", ".1"]:
        assert main(["record", "-f", *more, "127.0.0.1:1", str(path)]) == FAILED
    assert "no publisher was reached" in capsys.readouterr().err
    assert path.read_text() == "old"


def test_a_cut_that_fails_leaves_what_was_there(tmp_path, capsys):
    write(tmp_path / "x.mcap", 4, chunk_bytes=64)
    data = bytearray((tmp_path / "x.mcap").read_bytes())
    at = data.index(b'"frame"', len(data) // 2)
    data[at] ^= 1
    (tmp_path / "x.mcap").write_bytes(data)
    new = tmp_path / "y.mcap"
    new.write_text("old")
    assert main(["cut", "-f", str(tmp_path / "x.mcap"), str(new)]) == FAILED
    assert new.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "x.mcap", "y.mcap"]


def test_messages_of_others_are_cut_and_not_played(tmp_path, capsys):
    with open(tmp_path / "x.mcap", "wb") as file:
        writer = McapWriter(file)
        writer.start()
        writer.add_message(writer.register_channel("imu", "json", 0), 5,
                           b"{}", 5)
        writer.finish()
    assert main(["cut", str(tmp_path / "x.mcap"),
                 str(tmp_path / "y.mcap")]) == DONE
    with open(tmp_path / "y.mcap", "rb") as file:
        (schema, channel, message), = make_reader(file).iter_messages()
    assert (schema, channel.topic, message.data) == (None, "imu", b"{}")
    assert main_usage("replay", tmp_path / "y.mcap", ":0")
    assert "no tensor maps to publish; its topics: 'imu'" in \
        capsys.readouterr().err
