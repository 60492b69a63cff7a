# SPDX-License-Identifier: BSD-3-Clause
"""Which values can be sent, and what they are when they arrive."""

import array
import asyncio
import collections
import ctypes
import dataclasses
import datetime
import decimal
import enum
import json
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import tensormsg
from conftest import environment

DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4",
          "f8", "c8", "c16", np.longlong, np.ulonglong]


@pytest.fixture(scope="module")
def ep(echo_unix):
    with tensormsg.connect(echo_unix) as endpoint:
        yield endpoint


def back(ep, data, **more):
    ep.send(data, timeout=30, **more)
    return ep.recv(30)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 0, 3),
                                   (1,) * 20, (2, 3, 4, 5)])
def test_every_dtype_and_shape(ep, dtype, shape):
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    got = back(ep, {"x": values})["x"]
    assert type(got) is np.ndarray
    assert got.shape == shape and got.dtype == values.dtype
    assert np.array_equal(got, values)
    assert got.flags.writeable and got.flags.aligned


LAYOUTS = {
    "fortran": lambda a: np.asfortranarray(a),
    "transposed": lambda a: a.T,
    "stepped": lambda a: a[::2, 1::3],
    "reversed": lambda a: a[::-1, ::-1],
    "broadcast": lambda a: np.broadcast_to(a[0], (5, 12)),
    "column": lambda a: a[:, 3],
    "sliding": lambda a: np.lib.stride_tricks.sliding_window_view(a[0], 4),
    "read-only": lambda a: _read_only(a),
    "field": lambda a: np.zeros(4, "i1,f8")["f1"],
    "unaligned": lambda a: np.frombuffer(bytes(81), "f8", 10, offset=1),
    "big-endian": lambda a: a.astype(">f8"),
    "big-endian transposed": lambda a: a.astype(">i2").T,
    "memmap-like": lambda a: a.view(Subclass),
    "empty stepped": lambda a: a[:0, ::2],
}


class Subclass(np.ndarray):
    pass


def _read_only(values):
    values = values.copy()
    values.flags.writeable = False
    return values


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout(ep, layout):
    values = LAYOUTS[layout](np.arange(96.).reshape(8, 12))
    got = back(ep, {"x": values, "y": values})
    for name in "xy":
        assert np.array_equal(got[name], values)
        assert got[name].shape == values.shape
        assert got[name].flags.writeable == (layout != "broadcast")
        assert got[name].dtype.isnative


KEPT = {
    "columns": lambda a: a[:, 2:5],
    "stepped": lambda a: a[1::2, 1::3],
    "reversed": lambda a: a[::-1, ::-2],
    "windows": lambda a: np.lib.stride_tricks.sliding_window_view(a[0], 4),
    "windows of windows": lambda a: np.lib.stride_tricks.sliding_window_view(
        a, (3, 3))[::-1],
    "shared": lambda a: np.lib.stride_tricks.as_strided(
        a, (2, 2, 2), (8, 8, 40), writeable=False),
    "transposed": lambda a: a.T,
    "c order": lambda a: a,
}


@pytest.fixture(scope="module")
def straight():
    """One way, as the echo's way back packs."""
    with tensormsg.listen(":0", background=True) as listener, \
            tensormsg.connect(listener.url, background=True) as ep:
        yield listener, ep


@pytest.mark.parametrize("layout", KEPT)
def test_strides_are_kept(straight, ep, layout):
    values = KEPT[layout](np.arange(96.).reshape(8, 12))
    listener, sending = straight
    sending.send({"x": values, "y": values}, keep_strides=True)
    got = listener.recv(30)
    assert "keep_strides" not in got.meta
    shared = layout.startswith("windows") or layout == "shared"
    for name in "xy":
        assert np.array_equal(got[name], values)
        assert got[name].strides == values.strides
        assert got[name].flags.writeable != shared
    order = "F" if layout == "transposed" else "C"
    assert got.raw("x").tobytes() == values.tobytes(order)
    again = back(ep, {"x": got["x"]})  # packed, unless that is asked for
    assert np.array_equal(again["x"], values)
    assert layout in ("transposed", "c order") or again["x"].flags.c_contiguous
    if not shared:
        got["x"][...] = -1
        assert (got["x"] == -1).all() and np.array_equal(got["y"], values)


def test_what_lies_between_arrives(straight):
    table = np.arange(96.).reshape(8, 12)
    listener, ep = straight
    ep.send({"x": table[:, ::11]}, keep_strides=True)
    x = listener.recv(30)["x"]
    rest = np.lib.stride_tricks.as_strided(x, (8, 12), (96, 8))
    assert np.array_equal(rest, table)


def test_kept_strides_are_received_into_arrays_without(straight):
    values = np.arange(96.).reshape(8, 12)[::-1, ::2]
    listener, ep = straight
    ep.send({"x": values}, keep_strides=True)
    peer = listener.recv(30).peer
    ep.send({"x": values}, keep_strides=True)
    room = np.zeros((8, 6))
    assert peer.recv_into({"x": room}, 30)["x"] is room
    assert np.array_equal(room, values)


def test_broadcast_travels_once(ep):
    x = np.arange(96.).reshape(8, 12)
    views = {
        "rows": np.broadcast_to(x, (1000, 8, 12)),
        "columns": np.broadcast_to(x[:, :, None], (8, 12, 1000)),
        "reversed": np.broadcast_to(x[::-1, ::2], (7, 8, 6)),
        "one": np.broadcast_to(np.float32(3), (50, 60)),
        "row of ones": np.broadcast_to(x, (1, 8, 12)),
        "empty": np.broadcast_to(x, (0, 8, 12)),
        "view": np.broadcast_to(x, (5, 8, 12))[::2, 3],
    }
    got = back(ep, views)
    for name, values in views.items():
        assert np.array_equal(got[name], values), name
        once = np.prod([n for n, s in zip(values.shape, values.strides)
                        if n < 2 or s], dtype=int)
        spread = {n for n, s in zip(got[name].shape, got[name].strides)
                  if n > 1 and s == 0}
        assert values.size == once * (np.prod(list(spread)) if spread else 1)
        assert got[name].flags.writeable != bool(spread)
    assert got["rows"].strides == (0, 96, 8)
    assert got.raw("rows").tobytes() == x.tobytes()
    assert len(got.raw("columns")) == x.nbytes and len(got.raw("one")) == 4
    assert len(got.raw("empty")) == 0
    with pytest.raises(ValueError):
        got["rows"][0, 0, 0] = 1
    # nearly the limit of a message, in a byte
    got = back(ep, {"x": np.broadcast_to(np.uint8(7), (2**20, 2**19))})
    assert got["x"].shape == (2**20, 2**19) and got["x"][-1, -1] == 7


def test_fortran_order_stays(ep):
    assert back(ep, {"x": np.zeros((3, 4), order="F")})["x"].flags.f_contiguous


@pytest.mark.parametrize("name", [
    "bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz",
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
    "float8_e8m0fnu"])
def test_ml_dtypes(ep, name):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    values = np.array([[1, 2, .5], [4, 8, 1]]).astype(getattr(ml_dtypes, name))
    assert tensormsg._data._array("x", values) is values  # by whatever letter
    msg = back(ep, {"x": values, "t": values.T})
    for key, want in ("x", values), ("t", values.T):
        assert msg[key].dtype == values.dtype and msg.dtype(key) == name
        assert np.array_equal(msg[key].astype("f4"), want.astype("f4"))


@pytest.mark.parametrize("name", [
    "int1", "int2", "int4", "uint1", "uint2", "uint4", "float4_e2m1fn",
    "float6_e2m3fn", "float6_e3m2fn", "bcomplex32"])
def test_types_of_ml_dtypes_that_are_no_tensors(ep, name):
    """numpy has a byte for what a tensor packs."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    if not hasattr(ml_dtypes, name):
        pytest.skip(f"an older ml_dtypes, without {name}")
    x = np.zeros(3, getattr(ml_dtypes, name))
    words = "not a tensor's" if name == "bcomplex32" else r"send .view\('uint8'\)"
    with pytest.raises(TypeError, match=f"'x' has dtype {name}, .*{words}"):
        ep.send({"x": x})


def test_ml_dtypes_complex(ep):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.array([1 + 2j, -.5j]).astype(ml_dtypes.complex32)
    got = back(ep, {"x": x})
    assert got.dtype("x") == "complex32" and got["x"].dtype == x.dtype
    assert got["x"].tobytes() == x.tobytes()


def test_the_first_of_ml_dtypes_to_be_sent():
    """Also one that says of itself that it is of numpy's kind of floats."""
    pytest.importorskip("ml_dtypes")
    subprocess.run([sys.executable, "-c", """
import ml_dtypes, numpy as np, tensormsg
with tensormsg.listen(":0", background=True) as server, \\
        tensormsg.connect(server.url) as ep:
    ep.send({"x": np.arange(3).astype(ml_dtypes.float8_e5m2)})
    assert server.recv(30)["x"].dtype == "float8_e5m2"
"""], check=True, timeout=60, env=environment())


class WithDLPack:
    def __init__(self, values, versioned=False):
        self.values, self.versioned = values, versioned

    def __dlpack__(self, **more):
        if not self.versioned and "max_version" in more:
            raise TypeError("an older producer")
        return self.values.__dlpack__(**more)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


class WithInterface:
    def __init__(self, values):
        self.values = values
        self.__array_interface__ = values.__array_interface__


SOURCES = {
    "dlpack": WithDLPack,
    "dlpack 1": lambda a: WithDLPack(a, True),
    "dlpack of a view": lambda a: WithDLPack(np.vstack([a, a])[::2][:len(a)]),
    "interface": WithInterface,
    "memoryview": memoryview,
}


@pytest.mark.parametrize("source", SOURCES)
def test_every_kind_of_source(ep, source):
    values = np.arange(6, dtype="i4").reshape(2, 3)
    sent = SOURCES[source](values)
    want = sent.values if hasattr(sent, "values") else values
    assert np.array_equal(back(ep, {"x": sent})["x"], want)


class Capsules:
    """A producer whose capsules say what ctypes writes into them."""
    def __init__(self, versioned, at, value):
        self.versioned, self.at, self.value = versioned, at, value

    def __dlpack__(self, max_version=None):
        self.values = np.arange(8, dtype="f4")[:6]
        api = ctypes.pythonapi
        api.PyCapsule_GetPointer.restype = ctypes.c_void_p
        api.PyCapsule_GetPointer.argtypes = ctypes.py_object, ctypes.c_char_p
        if self.versioned:
            name, capsule = b"dltensor_versioned", self.values.__dlpack__(
                max_version=(1, 0))
        else:
            name, capsule = b"dltensor", self.values.__dlpack__()
        struct = api.PyCapsule_GetPointer(capsule, name)
        ctypes.memmove(struct + self.at, bytes(self.value), len(self.value))
        return capsule

    def __dlpack_device__(self):
        return 1, 0


@pytest.mark.parametrize("capsules, words", [
    (Capsules(True, 0, [2]), "tensor 'x': the tensor is of DLPack 2.0; this "
                             "version of tensormsg reads DLPack 1"),
    (Capsules(True, 24, [16]), "tensor 'x': unknown flags 0x10"),
    (Capsules(False, 20, [99]), r"tensor 'x': unknown dtype \(code 99, bits 32"),
    (Capsules(False, 8, [99]), "tensor 'x': unknown device type 99"),
    (Capsules(False, 22, [0, 0]), "tensor 'x': dtype has 0 lanes"),
])
@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.1.0",
                    reason="numpy has no versioned capsules before 2.1")
def test_capsules_that_are_refused(ep, capsules, words):
    why = None
    try:
        ep.send({"x": capsules})
    except tensormsg.Unsupported as error:
        why = str(error)
    assert why and re.search(words, why)
    references = sys.getrefcount(capsules.values)
    assert references == 2, "the capsule still has it"


@pytest.mark.parametrize("before", ["", "a", "ab"])
def test_a_long_name_is_told_to_a_whole_character(ep, before):
    with pytest.raises(tensormsg.Unsupported,
                       match=f"tensor '{before}(\xe9)+.?': unknown dtype"):
        ep.send({before + 60 * "\xe9": Capsules(False, 20, [99])})


def test_a_byte_offset_counts(ep):
    sent = Capsules(False, 40, [8])
    assert back(ep, {"x": sent})["x"].tolist() == [2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("version", [None, (0, 8), (1, 0), (1, 3), (2, 0)])
def test_a_capsule_is_of_the_version_that_is_asked_for(ep, version):
    view = back(ep, {"x": np.arange(6.0)[::2]}).dlpack("x")
    capsule = view.__dlpack__(max_version=version)
    versioned = version is not None and version >= (1, 0)
    assert ('"dltensor_versioned"' if versioned else '"dltensor"') in \
        repr(capsule)


def test_a_capsule_is_not_for_another_device(ep):
    view = back(ep, {"x": np.arange(6.0)}).dlpack("x")
    assert "dltensor" in repr(view.__dlpack__(dl_device=(1, 0)))
    for wrong in ({"dl_device": (2, 0)}, {"copy": True}):
        with pytest.raises(BufferError):
            view.__dlpack__(**wrong)


def test_buffers(ep):
    msg = back(ep, {"a": bytearray(b"abc"), "b": array.array("d", [1, 2])})
    assert bytes(msg["a"]) == b"abc" and msg["b"].tolist() == [1, 2]
    assert msg["b"].dtype == "f8"


def test_numpy_scalars_arrive_as_arrays(ep):
    msg = back(ep, {"f": np.float32(2), "d": np.float64(3), "b": np.bool_(1)})
    assert [msg[n].dtype.char for n in "fdb"] == ["f", "d", "?"]
    assert [msg[n].shape for n in "fdb"] == [()] * 3


def test_subclasses_of_what_travels(ep):
    class Colour(enum.IntEnum):
        RED = 1

    data = collections.OrderedDict(a=np.ones(1), colour=Colour.RED)
    msg = back(ep, data)
    assert list(msg) == ["a", "colour"] and msg["colour"] == 1


def deep(levels):
    made = np.zeros(1)
    for _ in range(levels):
        made = {"a": made}
    return made


def ring():
    made = {"x": []}
    made["x"].append(made)
    return made


class Device:
    def __init__(self, **about):
        self.__cuda_array_interface__ = {
            "shape": (3,), "typestr": "<f4", "data": (4096, False),
            "version": 3, **about}


class Colour(enum.Enum):
    RED = 1


class Word(str, enum.Enum):
    AND = "and"


@dataclasses.dataclass
class Box:
    left: int = 1


class Table:
    """As pandas' DataFrame."""
    columns = ["a"]

    def items(self):
        return [("a", Column())]

    def __array__(self, dtype=None, copy=None):
        raise AssertionError("its names would be lost")


class Column:
    """As pandas' Series."""
    def __array__(self, dtype=None, copy=None):
        return np.arange(3.)


REFUSED = [
    ({"x": np.array([object()])}, TypeError, "Python objects"),
    ({"x": np.array(["a"])}, TypeError, r"dtype <U1.*send \.tolist\(\)"),
    ({"x": np.array([b"a"])}, TypeError, r"dtype \|S1.*send \.tolist\(\)"),
    ({"x": np.zeros(2, "i4,f4")}, TypeError, r"\{field: x\[field\] for field in"),
    ({"x": np.zeros(2, "V3")}, TypeError, r"send \.view\('uint8'\)"),
    ({"x": Colour.RED}, TypeError, r"'x' is of .*send its \.value"),
    ({"x": [pathlib.Path("/a")]}, TypeError, r"'x/0' is .*: send str\(\) of it"),
    ({"x": Box()}, TypeError, r"send dataclasses.asdict\(\) of it"),
    (Box(), TypeError, r"a dict of arrays .*send dataclasses.asdict\(\) of it"),
    ({"x": Table()}, TypeError, r"send its columns, dict\(x.items\(\)\)"),
    (Table(), TypeError, r"a dict of arrays .*send its columns, dict\("),
    ({"x": datetime.date(2026, 1, 1)}, TypeError, r"send \.isoformat\(\)"),
    ({"x": datetime.timedelta(1)}, TypeError, r"send \.total_seconds\(\)"),
    ({"x": 1j}, TypeError, r"send np\.complex128\(\) of it"),
    ({"x": decimal.Decimal(1)}, TypeError, r"send float\(\) or str\(\) of it"),
    ({"x": np.dtype("f4")}, TypeError, r"send str\(\) of it"),
    ({"x": range(3)}, TypeError, r"send list\(\) of it"),
    ({1.5: 1}, TypeError, r"the dict has the key 1\.5 \(float\): names are str"),
    ({"x": {True: 1}}, TypeError, r"'x' has the key True \(bool\): names are"),
    ({"x": {1 << 63: 1}}, TypeError, r"has the key 9\d+ \(int\): .* of 64 bits"),
    ({"x": {(1, 2): 1}}, TypeError, r"has the key \(1, 2\) \(tuple\)"),
    ({"x": {1: 1, "1": 1}}, ValueError, "two leaves would be called 'x/1'"),
    ({"x": [1, 1 << 63]}, OverflowError, "^'x/1': an int travels as 64"),
    ({"v": [.5, 1] * 33000}, tensormsg.LimitExceeded,
     r"'v/65536': .*metadata_keys.*np\.array\(\.\.\.\)"),
    ({"x": np.zeros(2, "M8[s]")}, TypeError, "int64"),
    ({"x": np.zeros(2, "m8[s]")}, TypeError, "int64"),
    ({"x": np.zeros(2, "i4,i4")}, TypeError, "not a tensor's"),
    ({"x": np.zeros(2, "g")}, TypeError, "float64"),
    ({"x": np.zeros(2, "G")}, TypeError, "'x' has dtype complex256.*complex128"),
    ({"x": np.zeros(2, [])}, TypeError, "not a tensor's"),
    ({"x": np.zeros(1, "i4,i4")[0]}, TypeError, "'x' has dtype .*not a tensor's"),
    ({"x": [np.rec.array([(1, 2.)])]}, TypeError, "'x/0' has dtype .*not a tensor"),
    ({"x": np.ma.masked_array([1, 2], [0, 1])}, TypeError, "masked"),
    ({"x": object()}, TypeError, "'x' is of"),
    ({"x": {1, 2}}, TypeError, "'x' is of"),
    ({"x": 1 << 63}, OverflowError, "64 bits"),
    ({"": np.zeros(1)}, tensormsg.InvalidParam, "name"),
    *(({"": value, **more}, ValueError, "the key ''")
      for value in (1, "x", b"", '{"y":0}')
      for more in ({}, {"x": np.zeros(1)}, {"x": [np.zeros(1)], "y": 2})),
    ({"": np.zeros(1), "x": 1}, ValueError, "the key ''|name is empty"),
    ({"x": [{2.: np.zeros(1)}]}, TypeError, r"'x/0' has the key 2.0 \(float"),
    ({"x": {"y": {b"z": 1}}}, TypeError, r"'x/y' has the key b'z' \(bytes\)"),
    ({"a\0b": np.zeros(1)}, ValueError, r"'a\\x00b': a name has no NUL"),
    ({"x": {"a\0b": 1}}, ValueError, r"'x/a\\x00b': a name has no NUL"),
    ({"\ud800": np.zeros(1)}, ValueError, r"'\\ud800': a name has no lone"),
    ({"x": "\ud800"}, ValueError, "'x': the str has a lone surrogate"),
    ({"x": [1, -(1 << 63) - 1]}, OverflowError, "^'x/1': an int travels as 64"),
    ({"x": np.longdouble(1)}, TypeError, "float64"),
    ({"x": np.datetime64("2026-01-01")}, TypeError, "'x' has dtype datetime64"),
    (deep(257), ValueError, "a/a' is nested more than 256 deep"),
    (deep(100000), ValueError, "is nested more than 256 deep"),
    (ring(), ValueError, "'x/0' holds itself"),
    ({"x": Device()}, TypeError, "'x' says that it is CUDA's memory.*no driver"),
    ({"x": [Device(shape=(-1,))]}, TypeError, r"'x/0': .* shape=\(-1,\)"),
    ({"x": Device(shape=3)}, TypeError, "shape=3, which is no tuple"),
    ({"x": Device(shape=None)}, TypeError, "shape=None"),
    ({"x": Device(shape=(1 << 70,))}, TypeError, "more than there is memory"),
    ({"x": Device(shape=(1,) * 65)}, TypeError, "65 dimensions"),
    ({"x": Device(strides=(1, 2))}, TypeError, "strides="),
    ({"x": Device(typestr="zz")}, TypeError, "typestr='zz'"),
    ({"x": Device(typestr=None)}, TypeError, "typestr=None"),
    ({"x": Device(data=None)}, TypeError, "data=None"),
    ({"x": Device(data=(-5, False))}, TypeError, "no address"),
    ({"n" * 4097: np.zeros(1)}, tensormsg.Error, "4096"),
    ({"a/b": np.zeros(1), "a": {"b": 2}}, ValueError, "two leaves"),
    (np.zeros(3), TypeError, 'a dict of arrays .*: send {"x": it}'),
    ("text", TypeError, 'a dict of arrays .*: send {"x": it}'),
    (None, TypeError, 'a dict of arrays .*: send {"x": it}'),
]


@pytest.mark.parametrize("data, kind, words", REFUSED)
def test_what_cannot_be_sent_is_refused(ep, data, kind, words):
    with pytest.raises(kind, match=words):
        ep.send(data)
    assert back(ep, {"x": np.ones(1)})["x"][0] == 1  # and nothing was sent


@pytest.mark.parametrize("meta, kind", [
    ({"k": [1]}, TypeError), ({"k": None}, TypeError), ({1: 1}, TypeError),
    ({"k": 1 << 64}, OverflowError), ({"/k": 1}, ValueError),
    ({"k": -(1 << 63) - 1}, OverflowError), ({"k\0": 1}, ValueError),
    ({"k": "\ud800"}, ValueError), ({"\ud800": 1}, ValueError),
    ({"k": np.longdouble(1)}, TypeError), ({"k": np.complex64(1)}, TypeError),
    ({"k": np.datetime64("2026-01-01")}, TypeError),
    ({"k": np.zeros(())}, TypeError),
    ({"frame": "seven"}, tensormsg.InvalidParam),
    ({"tensormsg.x": 1}, tensormsg.InvalidParam)])
def test_metadata_that_cannot_be_sent_is_refused(ep, meta, kind):
    with pytest.raises(kind) as caught:
        ep.send({"x": np.zeros(1)}, meta=meta)
    name, = meta
    assert str(name).strip("/").encode(errors="backslashreplace") in \
        str(caught.value).encode() or repr(name) in str(caught.value)


@pytest.mark.parametrize("value, arrives", [
    (np.bool_(True), True), (np.int8(-3), -3), (np.uint64(7), 7),
    (np.float16(.5), .5), (np.float32(3), 3.), (np.float64(1e300), 1e300),
    (np.str_("abc"), "abc"), (np.bytes_(b"abc"), b"abc")])
def test_scalars_of_numpy_are_metadata_too(ep, value, arrives):
    meta = back(ep, {}, k=value).meta
    assert meta == {"k": arrives} and type(meta["k"]) is type(arrives)
    meta = {"k": value}
    assert back(ep, {}, meta=meta).meta == {"k": arrives}
    assert meta["k"] is value, "what was given stays"
    assert back(ep, {}, frame=np.int32(7)).meta == {"frame": 7}
    got = back(ep, {"k": [value]}).tree()["k"][0]
    if isinstance(arrives, (str, bytes)):
        assert got == arrives and type(got) is type(arrives)
    else:  # an array, which keeps its dtype
        assert got.shape == () and got.dtype == value.dtype and got == value


@pytest.mark.parametrize("levels", [1, 10, 256])
def test_a_deep_tree_arrives(ep, levels):
    got = back(ep, deep(levels)).tree()
    for _ in range(levels):
        got = got["a"]
    assert got.shape == (1,)


def test_a_peer_may_send_a_tree_that_lies(ep):
    from tensormsg import _data
    for form in ('{"x":0}', "[", '["q"]', '"0"', "[" * 100000, "[[]]",
                 '{"n":5}', '["d",[0]]', '["d",[0.5,null]]', f'["d",[{1 << 63},null]]',
                 '["d",[true,null]]',
                 '["d",0]', '{"n":["L"]}'):
        with pytest.raises(ValueError):
            _data.unflatten(form, {})
    for lie in (1, np.ones(2, "f4"), np.ones((1, 1)), np.array(["a"]),
                np.broadcast_to(np.ones(1), 1 << 40)):
        with pytest.raises(ValueError, match="malformed at 'n'"):
            _data.unflatten('{"n":["L"]}', {"n": lie})
    for form, lie in (("LL", np.ones(2)), ("LL", np.ones((1 << 40, 0))),
                      ("Ll", np.ones((1, 1))), ("LLLL", np.ones((1,) * 4)),
                      ("nn", np.ones(1)), ("n", np.ones(())), ("Ln", 1),
                      ("LL", np.broadcast_to(np.ones(1), (1 << 40, 1)))):
        with pytest.raises(ValueError, match="malformed"):
            _data.unflatten(json.dumps({"n": list(form)}), {"n": lie})
    leaves = {"a/b": 1, "//c": 2}
    assert _data.unflatten('[ "l", {"a/b":0} ]', {"0/a/b": 1}) == [{"a/b": 1}]
    assert _data.unflatten('{"a":{"b":0},"":{"":{"c":0}}}', leaves) == {
        "a": {"b": 1}, "": {"": {"c": 2}}}
    with pytest.raises(ValueError):  # each leaf once: names may be long
        _data.unflatten('{"a/b":0,"a":{"b":0}}', leaves)


TREES = {  # name: (what is sent, what tree() gives)
    "int keys": ({"state": {0: {"m": np.ones(2)}, 7: {"m": None}}, "": {-1: 2}},
                 None),
    "int keys at the top": ({0: np.ones(2), "a": 1, 2: [{3: None}]}, None),
    "an int of numpy's": ({np.int16(4): 1}, {4: 1}),
    "numbers": ({"betas": (.9, .999), "params": [0, 1], "on": [True, False],
                 "all": [-2**63, 2**63 - 1], "nan": (float("inf"),)}, None),
    "numbers in a list": ([[1, 2], (3,), [[4.5]], 5], None),
    "rows": ({"boxes": [(1, 2), (3, 4)], "deep": ([[.5], [1.]], [[2.], [3.]]),
              "ragged": [[1], [2, 3]], "empty": [[], []], "odd": [[1], [2.5]],
              "too deep": [[[[1]]]]}, None),
    "numpy's numbers": ({"means": [np.float64(.5), np.float64(2)],
                         "half": ((np.float16(.5),), (np.float16(1),))}, None),
    "several types": ({"x": [1, 2.5, True, "a", None], "y": []}, None),
    "an enum": ({Word.AND: [Word.AND], "x": [Word.AND]},
                {"and": ["and"], "x": ["and"]}),
    "an ordered dict": (collections.OrderedDict(b=1, a=collections.Counter([7])),
                        {"b": 1, "a": {7: 1}}),
    "named tuples": ({"p": collections.namedtuple("P", "x y")(1, 2)},
                     {"p": (1, 2)}),
    "columns": (dict(Table().items()), {"a": np.arange(3.)}),
}


@pytest.mark.parametrize("face", ["blocking", "asyncio"])
@pytest.mark.parametrize("name", TREES)
def test_a_tree_comes_back(straight, name, face):
    sent, want = TREES[name]
    listener, sending = straight
    if face == "blocking":
        sending.send(sent)
        got = listener.recv(30).tree()
    else:
        got = came_by_asyncio(sent).tree()
    assert equal(got, sent if want is None else want)


def test_what_came_is_sent_on_with_its_tree(straight):
    listener, sending = straight
    sent = {"state": {0: {"m": np.ones(2)}}, "betas": [(.9, .999)], "none": None}
    sending.send(sent)
    for _ in range(2):
        msg = listener.recv(30)
        assert equal(msg.tree(), sent)
        sending.send(msg)
    assert listener.recv(30).get("state/0/m") is not None
    sending.send(dict(msg))
    assert listener.recv(30).tree().keys() == msg.keys()
    with tensormsg.connect(listener.url, like=lambda tensor: [1, "a"]) as other:
        other.send({})
        listener.recv(30).peer.send({"t": [np.ones(1)]})
        other.send(other.recv(30))  # whose names are others
        assert listener.recv(30).tree() == {"t/0": [1, "a"]}


def came_by_asyncio(data):
    async def run():
        async with tensormsg.listen(":0") as listener, \
                tensormsg.connect(listener.url) as ep:
            await ep.send(data)
            return await listener.recv(30)
    return asyncio.run(run())


def test_a_list_of_numbers_is_one_array(straight):
    listener, sending = straight
    sending.send({"v": [.5] * 1_000_000, "deep": [{"n": (1, 2)}]})
    msg = listener.recv(30)
    assert list(msg) == ["v", "deep/0/n"]
    assert msg["v"].dtype == "f8" and msg["v"].shape == (1_000_000,)
    assert msg["deep/0/n"].dtype == "i8"
    assert msg.tree()["v"] == [.5] * 1_000_000


@pytest.mark.parametrize("rows, shape, dtype", [
    ([(.5, 1.)] * 100_000, (100_000, 2), "f8"),
    ([np.float32(.5)] * 100_000, (100_000,), "f4"),
    ([[[True], [False]]], (1, 2, 1), "?")], ids=["rows", "numpy's", "deeper"])
def test_so_are_rows_of_numbers_and_those_of_numpy(straight, rows, shape, dtype):
    listener, sending = straight
    sending.send({"v": rows})
    msg = listener.recv(30)
    assert list(msg) == ["v"]
    assert msg["v"].dtype == dtype and msg["v"].shape == shape
    assert equal(msg.tree(), {"v": rows})
    with pytest.raises(OverflowError, match="'v/1/0': an int travels as 64"):
        sending.send({"v": [[1, 2], [1 << 63, 3]]})


def test_a_limit_that_was_raised_counts():
    """metadata_keys of a context, at both ends."""
    many = {"v": [.5, 1] * 33000}
    context = tensormsg.Context(limits={"metadata_keys": 70000})
    with tensormsg.listen(":0", background=True, context=context) as listener, \
            tensormsg.connect(listener.url, context=context) as ep:
        ep.send(many)
        assert listener.recv(30).tree() == many


names = st.text(st.characters(exclude_categories=["Cs"],
                              exclude_characters="\0"),
                min_size=1, max_size=12)
dtypes = st.one_of(
    hnp.boolean_dtypes(), hnp.integer_dtypes(endianness="?"),
    hnp.unsigned_integer_dtypes(endianness="?"),
    hnp.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
    hnp.complex_number_dtypes(endianness="?", sizes=(64, 128)))


@st.composite
def arrays(draw):
    values = draw(hnp.arrays(dtypes, hnp.array_shapes(
        min_dims=0, max_dims=4, min_side=0, max_side=6)))
    if draw(st.booleans()):
        values = values.T
    if values.ndim and draw(st.booleans()):
        values = values[::draw(st.sampled_from([1, 2, 3, -1, -2]))]
    if draw(st.booleans()):
        values = np.asfortranarray(values)
    values = values.view()
    values.flags.writeable = draw(st.booleans())
    return values


def same(got, want):
    return got.shape == want.shape and got.tobytes() == \
        want.astype(want.dtype.newbyteorder("=")).tobytes()


@settings(max_examples=80, deadline=None,
          suppress_health_check=list(HealthCheck))
@given(st.dictionaries(names, arrays(), max_size=6))
def test_any_dict_of_arrays(ep, data):
    msg = back(ep, data)
    assert list(msg) == list(data)
    for name, want in data.items():
        assert same(msg[name], want), name


leaves = st.one_of(arrays(), st.booleans(), st.none(), st.text(max_size=9),
                   st.integers(-(1 << 63), (1 << 63) - 1), st.binary(),
                   st.floats(allow_nan=False))
keys = st.one_of(st.text("abc.", min_size=1, max_size=3), st.integers(-9, 9))
trees = st.recursive(leaves, lambda inner: st.one_of(
    st.dictionaries(keys, inner, max_size=4), st.lists(inner, max_size=4),
    st.tuples(inner, inner)), max_leaves=12)


def equal(got, want):
    if isinstance(want, np.ndarray):
        return same(got, want)
    if type(got) is not type(want):
        return False
    if isinstance(want, dict):
        return list(got) == list(want) and all(
            equal(got[k], want[k]) for k in want)
    if isinstance(want, (list, tuple)):
        return len(got) == len(want) and all(map(equal, got, want))
    return got == want


@pytest.mark.parametrize("tree", [
    {"": {"x": 1, "": "y"}, "x": np.ones(2)}, {"a": {"": np.ones(2), "b": 1}},
    {"": [1, np.ones(2)], "a": None}, {"": None, "a": {"": [{"": 2}]}}])
def test_keys_of_no_characters_in_a_tree(ep, tree):
    assert equal(back(ep, tree).tree(), tree)


@settings(max_examples=50, deadline=None,
          suppress_health_check=list(HealthCheck))
@given(st.dictionaries(keys, trees, max_size=4))
def test_any_tree(ep, tree):
    got = back(ep, tree).tree()
    assert set(got) == set(tree)
    assert all(equal(got[key], tree[key]) for key in tree)
