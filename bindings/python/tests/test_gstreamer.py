# SPDX-License-Identifier: BSD-3-Clause
"""Frames of GStreamer's elements in examples/embed, as arrays."""

import base64
import contextlib
import hashlib
import os
import subprocess
import time

import numpy as np
import pytest

import tensormsg
from conftest import WAIT, environment
from recipes import recipe  # noqa: F401

PEER = os.environ.get("TMSG_GST_PEER", "").split()
pytestmark = pytest.mark.skipif(not PEER, reason="no GStreamer here")


def pattern(plane, rows, row_bytes):
    """What tests/embed/gst_pattern.c writes into a plane."""
    y, i = np.ogrid[:rows, :row_bytes]
    return (plane * 91 + y * 13 + i * 7 + 1).astype("u1")


def peer(*args, **more):
    return subprocess.Popen([*PEER, *args], env=environment(), **more)


@contextlib.contextmanager
def sending(receiver):
    """Its process ends with the stream, whatever was still to be said."""
    with contextlib.suppress(tensormsg.PeerLost), \
            tensormsg.connect(receiver.url) as endpoint:
        yield endpoint


# In the order of send_frames() of tests/embed/gst_peer.c: what each plane is.
LOOKS = [
    ("RGB", [("u1", (48, 641, 3))]),
    ("GRAY8", [("u1", (33, 31))]),
    ("I420", [("u1", (33, 31)), ("u1", (17, 16)), ("u1", (17, 16))]),
    ("NV12", [("u1", (33, 31)), ("u1", (17, 16, 2))]),
    ("P010_10LE", [("u2", (33, 31)), ("u2", (17, 16, 2))]),
    ("YUY2", [("u1", (33, 32, 2))]),
    ("v210", [("u1", (33, 128))]),
    ("RGB16", [("u1", (33, 31, 2))]),
    ("GRAY16_BE", [("u1", (33, 31, 2))]),
    ("RGB", [("u1", (12, 10, 3))]),  # its caps say 8 x 4
]


def test_each_plane_is_an_array():
    with tensormsg.listen(":0", background=True) as server, \
            peer("send", server.url) as sender:
        messages = [server.recv(timeout=WAIT) for _ in range(len(LOOKS) + 1)]
        assert sender.wait(WAIT) == 0
    for n, (format, planes) in enumerate(LOOKS):
        msg = messages[n]
        assert list(msg) == [f"plane{p}" for p in range(len(planes))]
        for p, (dtype, shape) in enumerate(planes):
            array = msg[f"plane{p}"]
            assert (array.dtype, array.shape) == (np.dtype(dtype), shape), \
                format
            got = np.ascontiguousarray(array).view("u1")
            got = got.reshape(shape[0], -1)
            assert (got == pattern(p, *got.shape)).all(), (format, p)
        assert msg.meta["gst.caps"].startswith("video/x-raw")
        assert f"format=(string){format}," in msg.meta["gst.caps"]
        assert msg.meta["gst.pts"] == n
        assert msg.meta.get("gst.dts") == (2 * n if n else None)
        size = msg.meta.get("gst.height"), msg.meta.get("gst.width")
        if format == "YUY2":  # which has no GstVideoMeta
            assert size == (None, None)
        elif format != "v210":
            assert size == planes[0][1][:2]
    assert dict(messages[-1].meta) == {"gst.eos": True}


def caps(format, width, height):
    return {"gst.caps": f"video/x-raw,format={format},width={width},"
                        f"height={height},framerate=30/1"}


def in_memory(*planes):
    """As GStreamer lays out what has no GstVideoMeta: rows of 4 bytes each."""
    parts = []
    for plane in planes:
        rows = np.ascontiguousarray(plane).view("u1").reshape(len(plane), -1)
        parts.append(np.pad(rows, ((0, 0), (0, -rows.shape[1] % 4))))
    return b"".join(part.tobytes() for part in parts)


IMAGE = pattern(0, 5, 21).reshape(5, 7, 3)
WIDE = pattern(0, 5, 200).reshape(5, 200)
GRAY = pattern(0, 5, 7)
TALL = pattern(0, 6, 7)
HALVES = pattern(1, 3, 4), pattern(2, 3, 4)

FINE = [
    (caps("RGB", 7, 5), [IMAGE]),
    (caps("RGB", 7, 5), [IMAGE.transpose(2, 0, 1).copy().transpose(1, 2, 0)]),
    (caps("RGB", 7, 5), [WIDE[:, :21]]),
    (caps("RGB", 7, 5), [IMAGE[::-1]]),
    (caps("RGB", 7, 5), [np.broadcast_to(IMAGE[:1], (5, 7, 3))]),
    (caps("GRAY8", 7, 5), [GRAY[..., None]]),
    (caps("GRAY16_LE", 7, 5), [GRAY.astype("u2") * 257]),
    (caps("GRAY16_BE", 7, 5), [(GRAY.astype("u2") * 256).view("u1")]),
    (caps("I420", 7, 6), [TALL, *HALVES]),
    (caps("NV12", 7, 6), [TALL, np.stack(HALVES, axis=-1)]),
]


class Receiver:
    """gst_peer recv: its lines, by their first word."""

    def __enter__(self):
        self.process = peer("recv", stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def lines(self, word):
        if not hasattr(self, "said"):
            self.said = self.process.communicate(timeout=WAIT)[0].splitlines()
            assert self.process.returncode == 0
        return [line.split(" ", 1)[1] for line in self.said
                if line.startswith(word)]


def arrays(planes):
    return {f"plane{p}": plane for p, plane in enumerate(planes)}


def line_of(format, data, pts=-1):
    return f"{format} {len(data)} {hashlib.sha256(data).hexdigest()} {pts}"


def test_arrays_become_frames():
    with Receiver() as receiver:
        with sending(receiver) as ep:
            for n, (meta, planes) in enumerate(FINE):
                ep.send(arrays(planes), meta={**meta, "gst.pts": n})
            ep.send({}, meta={"gst.eos": True})
        assert receiver.lines("warning") == []
        wanted = [line_of(meta["gst.caps"].split("=")[1].split(",")[0],
                          in_memory(*planes), n)
                  for n, (meta, planes) in enumerate(FINE)]
        assert receiver.lines("buffer") == wanted


LIES = [
    (caps("RGB", 7, 5), {"plane0": GRAY}, "has 35 bytes, not 5 rows of 21"),
    (caps("RGB", 7, 5), {"plane0": IMAGE.reshape(3, 35)}, "not 5 rows of 21"),
    (caps("RGB", 7, 5), {"plane0": np.uint8(1)}, "not 5 rows of 21"),
    (caps("I420", 7, 6), arrays([TALL, HALVES[0]]), "no tensor 'plane2'"),
    (caps("RGB", 7, 5), {"image": IMAGE}, "no tensor 'plane0'"),
    ({"gst.caps": "video/x-raw,format=RGB,width=[1,7],height=5"},
     {"plane0": IMAGE}, "not fixed"),
    ({"gst.caps": "video/x-raw,format=RGB"}, {"plane0": IMAGE},
     "not understood"),
    ({"gst.caps": "\""}, {"plane0": IMAGE}, "'\"' is no caps"),
    ({"gst.caps": "ANY"}, {"plane0": IMAGE}, "not fixed"),
    ({"gst.caps": "EMPTY"}, {"plane0": IMAGE}, "not fixed"),
    (caps("NV12_4L4", 64, 64), {"plane0": IMAGE}, "lies in tiles"),
    ({"gst.caps": "video/x-raw(memory:DMABuf),format=RGB,width=7,height=5"},
     {"plane0": IMAGE}, "memory:DMABuf"),
    ({**caps("RGB", 7, 5), "gst.width": 2**31 - 1}, {"plane0": IMAGE},
     "a frame of 2147483647x5"),
    ({**caps("RGB", 7, 5), "gst.height": 2**40}, {"plane0": IMAGE},
     "a frame of 7x1099511627776"),
    ({**caps("RGB", 7, 5), "gst.width": 6}, {"plane0": IMAGE[:, :6]},
     "a frame of 6x5 in caps of 7x5"),
]

DEEP = 100_000  # of GStreamer's parser: more than its stack holds
OPENERS = "{", "<", "(int){", "[a, b=", "<(int){", '"a, b={', "["
SAMPLE = base64.b64encode(b"a, b=" + b"{" * 48000).decode()
HOSTILE = [
    *(opener * (60000 // len(opener)) for opener in OPENERS),
    "{" * DEEP, "a" * DEEP, "{" * 17 + "1" + "}" * 17, "<{" * 9,
    # Closed in quotes only, where the parser does not look.
    '{ "}", ' * 17, "{ (string)\"}\", " * 17,
    # Brackets that only the second of two parsers sees.
    '(GstStructure)"a, b=' + "\\173" * 17 + '"',
    '(GstCaps)"a/b, b=(GstStructure)\\"c, d=' + "\\\\\\173" * 17 + '\\""',
    # Behind ';' the parser reads nothing up to ']'.
    '{ [a; "], "]}", ' * 17,
    f"(GstSample)None:None:None:{SAMPLE}", f"( sample )00:{SAMPLE}:None:None",
    "(int/int){ 1 }", "(/int){ 1 }"]


def hostile(text):
    """Metadata that has such text, each with its key."""
    as_field = f", x={text};"
    yield "gst.caps", "video/x-raw" + as_field
    yield "gst.segment", f'"GstSegment{as_field}"'
    for n, meta in enumerate(METAS):
        yield f"gst.meta.{n}", meta + as_field


METAS = "GstVideoCropMeta", "GstVideoRegionOfInterestMeta"
GOOD = {"gst.meta.0": "GstVideoCropMeta, x=(uint)1;"}

BYTES = [
    ({"gst.caps": "application/octet-stream"}, WIDE[1]),
    ({"gst.caps": "application/octet-stream"}, np.arange(9, dtype="f4")),
    ({"gst.caps": "application/octet-stream"},
     np.broadcast_to(np.uint8(7), (100000,))),
    ({"gst.caps": "application/octet-stream"}, np.empty(0, "u1")),
    # A GstMeta that means nothing leaves the buffer alone.
    ({"gst.caps": "application/octet-stream", "gst.meta.0": "(",
      "gst.meta.1": "GstElement, a=1;", "gst.meta.2": "GstVideoTimeCodeMeta;",
      "gst.meta.3": "GstVideoCaptionMeta, data=(buffer)01;",
      "gst.meta.4": "GstReferenceTimestampMeta, reference=(int)1;",
      "gst.segment": "nothing"}, WIDE[2]),
    ({}, WIDE[0]),  # still of these caps
]


def test_what_is_no_frame_is_left_out():
    with Receiver() as receiver:
        with sending(receiver) as ep:
            for meta, tensors, _ in LIES:
                ep.send(tensors, meta=meta)
            for n, (meta, array) in enumerate(BYTES):
                ep.send({"buffer": array}, meta={**meta, "gst.pts": n})
            ep.send({"plane0": IMAGE}, meta=caps("RGB", 7, 5))
            ep.send({}, meta={"gst.eos": True})
        warnings = receiver.lines("warning")
        assert len(warnings) == len(LIES), warnings
        for warning, (_, _, words) in zip(warnings, LIES):
            assert words in warning
        assert receiver.lines("buffer") == [
            *(line_of("(null)", array.tobytes(), n)
              for n, (_, array) in enumerate(BYTES)),
            line_of("RGB", in_memory(IMAGE))]


def test_text_that_its_parser_would_crash_of_is_refused():
    bad = [(key, text) for deep in HOSTILE for key, text in hostile(deep)]
    octets = {"gst.caps": "application/octet-stream"}
    with Receiver() as receiver:
        with sending(receiver) as ep:
            for key, text in bad:
                meta = {**octets, **GOOD, key: text}
                ep.send({"buffer": WIDE[0]}, meta=meta)
            ep.send({"buffer": WIDE[1]}, meta={**octets, "gst.pts": 5})
            ep.send({}, meta={"gst.eos": True})
        warnings = receiver.lines("warning")
        assert len(warnings) == len(bad), warnings
        for warning, (key, text) in zip(warnings, bad):
            assert f"'{key}' " in warning, (warning, key, text[:80])
        assert receiver.lines("buffer") == [line_of("(null)",
                                                    WIDE[1].tobytes(), 5)]


FINE_TEXT = [
    "(GstStructure)\"a\\,\\ b\\=\\{\\ \\(int\\)1\\ \\}\\;\"",
    "(string)\"{{{{{{{{{{{{{{{{{{{{ [[1, 2], [3]] \\173\"", "(int)[ 1, 7 ]",
    "{" * 15 + "1" + "}" * 15, ", ".join(["y=<1, <2, 3>>"] * 1000)[2:]]


def test_text_that_it_writes_is_taken():
    with Receiver() as receiver:
        with sending(receiver) as ep:
            for text in FINE_TEXT:
                meta = {f"gst.meta.{n}": f"{name}, x={text};"
                        for n, name in enumerate(METAS)}
                ep.send({"buffer": WIDE[0]}, meta={
                    "gst.caps": "application/octet-stream", **meta})
            ep.send({}, meta={"gst.eos": True})
        assert receiver.lines("warning") == []
        assert len(receiver.lines("buffer")) == len(FINE_TEXT)


def test_the_programs_of_the_recipe(recipe, tmp_path):  # noqa: F811
    start = recipe("gstreamer-holoscan.md", play={"range(90)": "range(3)"})
    show = start("python show.py")
    end = time.monotonic() + WAIT
    while not (tmp_path / "socket").exists():
        assert show.process.poll() is None and time.monotonic() < end
        time.sleep(0.02)
    with peer("send", f"unix://{tmp_path}/socket") as sender:
        assert sender.wait(WAIT) == 0
    printed = show.rest()
    assert show.process.returncode == 0, printed
    assert printed.splitlines()[0] == "0 {'plane0': (48, 641, 3)}"
    assert len(printed.splitlines()) == len(LOOKS)
    with Receiver() as receiver:
        (tmp_path / "play.py").write_text((tmp_path / "play.py").read_text()
                                          .replace(f"unix://{tmp_path}/socket",
                                                   receiver.url))
        start("python play.py").ends()
        frames = [np.full(480 * 640 * 3, frame, "u1").tobytes()
                  for frame in range(3)]
        assert receiver.lines("buffer") == [
            line_of("RGB", data, frame * 33_333_333)
            for frame, data in enumerate(frames)]
