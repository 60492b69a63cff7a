# SPDX-License-Identifier: BSD-3-Clause
"""What others say of their arrays is looked at before it is believed: what is
malformed is an error that names the array, in whichever way it comes."""

import ctypes

import numpy as np
import pytest

import tensormsg
from conftest import WAIT

new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p


class Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class DType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16)]


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", Device),
                ("ndim", ctypes.c_int32), ("dtype", DType),
                ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class Plain(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p)]


class Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32),
                ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("flags", ctypes.c_uint64), ("tensor", Tensor)]


def numbers(values):
    return None if values is None else \
        (ctypes.c_int64 * max(1, len(values)))(*values)


class Foreign:
    """Three numbers with DLPack, unless said; without a deleter."""

    def __init__(self, data=True, device=(1, 0), ndim=None, dtype=(2, 64, 1),
                 shape=(3,), strides=None, byte_offset=0, version=(1, 0),
                 flags=0, on=(1, 0), plain=False):
        self.memory, self.on, self.plain = np.ones(8), on, plain
        self.shape, self.strides = numbers(shape), numbers(strides)
        tensor = Tensor(self.memory.ctypes.data if data else None,
                        Device(*device),
                        len(shape or ()) if ndim is None else ndim,
                        DType(*dtype), self.shape, self.strides, byte_offset)
        self.managed = Plain(tensor) if plain else \
            Versioned(*version, None, None, flags, tensor)

    def __dlpack__(self, *, stream=None, max_version=None):
        return new_capsule(
            ctypes.addressof(self.managed),
            b"dltensor" if self.plain else b"dltensor_versioned", None)

    def __dlpack_device__(self):
        return self.on


class Says:
    """An object with these attributes; an exception is raised."""

    def __init__(self, **attributes):
        self.attributes = attributes

    def __getattr__(self, name):
        if name == "attributes" or name not in self.attributes:
            raise AttributeError(name)
        value = self.attributes[name]
        if isinstance(value, Exception):
            raise value
        return value


def dlpack(capsule, device=(1, 0)):
    return Says(__dlpack__=lambda **more: capsule,
                __dlpack_device__=lambda: device)


def failing(error):
    def fail(**more):
        raise error

    return Says(__dlpack__=fail, __dlpack_device__=lambda: (1, 0))


MEMORY = np.ones(8)


def interface(kind, **about):
    return Says(**{f"__{kind}_interface__": {
        "shape": (3,), "typestr": "<f8", "version": 3,
        "data": (MEMORY.ctypes.data, False), **about}})


TENSORS = {  # what is wrong, and the words for that
    "shape is NULL": {"shape": None, "ndim": 1},
    "data is NULL": {"data": False},
    "shape.0. is negative": {"shape": (-3,)},
    "ndim is negative": {"ndim": -1},
    "ndim 1000000000 exceeds 64": {"ndim": 10 ** 9},
    "ndim 65 exceeds 64": {"shape": (1,) * 65},
    "product overflows": {"shape": (1 << 40, 1 << 40)},
    "the span overflows": {"strides": (1 << 61,)},
    "unknown dtype .code 99": {"dtype": (99, 64, 1)},
    "unknown dtype .code 2, bits 3": {"dtype": (2, 3, 1)},
    "0 lanes": {"dtype": (2, 64, 0)},
    "unknown device type 77": {"device": (77, 0)},
    "of (?:a device|device memory)": {"device": (2, 0)},
    "larger than any memory": {"byte_offset": (1 << 64) - 1},
}
MALFORMED = [
    *((f"{words}{', plain' if plain else ''}", words,
       lambda about=about, plain=plain: Foreign(plain=plain, **about))
      for words, about in TENSORS.items() for plain in (False, True)),
    *((words, words, make) for words, make in {
        "DLPack 2.0": lambda: Foreign(version=(2, 0)),
        "DLPack 0.9": lambda: Foreign(version=(0, 9)),
        "unknown flags": lambda: Foreign(flags=1 << 40),
        "gave no capsule of DLPack's, but 7": lambda: dlpack(7),
        "gave no capsule of DLPack's, but None": lambda: dlpack(None),
        "gave no capsule of DLPack's, but <caps": lambda: dlpack(
            new_capsule(1, b"used_dltensor", None)),
        "gave None, no pair of ints": lambda: dlpack(None, None),
        r"gave \(\), no pair of ints": lambda: dlpack(None, ()),
        "gave 'cp', no pair of ints": lambda: dlpack(None, "cp"),
        "type 77": lambda: Foreign(on=(77, 0)),
        "KeyError: 'oops'": lambda: failing(KeyError("oops")),
        "into: oops|sent: oops": lambda: failing(BufferError("oops\nand so on")),
    }.items()),
    *((f"interface, {about}", "", lambda about=about: interface(
        "array", **about)) for about in (
            {"shape": (-1,)}, {"shape": "a"}, {"shape": None},
            {"shape": (1 << 40, 1 << 40)}, {"shape": (1,) * 65},
            {"shape": (1.5,)}, {"typestr": "<x9"}, {"typestr": 7},
            {"typestr": "|O"}, {"data": (0, False)}, {"data": None},
            {"data": 7}, {"data": ("a", False)}, {"data": (1 << 70, False)},
            {"strides": (8, 8)}, {"strides": "x"})),
    ("interface is None", "", lambda: Says(__array_interface__=None)),
    ("interface raises", "KeyError: 'oops'",
     lambda: Says(__array_interface__=KeyError("oops"))),
    ("dlpack raises", "oops", lambda: Says(__dlpack__=ValueError("oops"))),
    ("buffer of pointers", "PEP 3118", lambda: (ctypes.c_void_p * 2)()),
    ("buffer of structs", "PEP 3118", lambda: (Plain * 2)()),
]
IDS = [what for what, _, _ in MALFORMED]
KINDS = TypeError, tensormsg.InvalidParam, tensormsg.Unsupported, \
    tensormsg.LimitExceeded


@pytest.fixture(scope="module")
def pair():
    with tensormsg.listen(":0", background=True) as listener, \
            tensormsg.connect(listener.url, background=True) as ep:
        ep.send({})
        yield ep, listener.recv(WAIT).peer


@pytest.mark.parametrize("what, words, make", MALFORMED, ids=IDS)
def test_it_is_not_sent(pair, what, words, make):
    ep, peer = pair
    with pytest.raises(KINDS, match=f"'deep/1'.*(?:{words})"):
        ep.send({"deep": [np.ones(1), make()]})
    ep.send({}, frame=7)
    assert peer.recv(WAIT).meta["frame"] == 7  # and nothing else was


@pytest.mark.parametrize("what, words, make", MALFORMED, ids=IDS)
def test_it_is_not_received_into(pair, what, words, make):
    ep, peer = pair
    ep.send({"deep/1": np.zeros(3)})
    with pytest.raises(KINDS, match=f"'deep/1'.*(?:{words})"):
        peer.recv_into({"deep/1": make()}, WAIT)
    assert not peer.recv(WAIT)["deep/1"].any()  # it is there


@pytest.mark.parametrize("about", [
    {"data": (0, False)}, {"stream": "x"}, {"stream": -1}, {"stream": 1.5},
    {"stream": 1 << 70}, {"stream": True}, {"shape": None}, {"data": 7},
    {"strides": (8, 8)}, {"typestr": None}, {"shape": (1 << 40, 1 << 40)}], ids=str)
def test_cudas_interface_is_looked_at_first(pair, about):
    with pytest.raises(TypeError, match="'deep/1': its __cuda_array_interface"):
        pair[0].send({"deep": [1, interface("cuda_array", **about)]})


def test_what_is_well_formed(pair):
    """In the same clothes."""
    ep, peer = pair
    for value in Foreign(), Foreign(plain=True), Foreign(flags=1), \
            interface("array"):
        ep.send({"deep": [1, value]})
        assert (peer.recv(WAIT)["deep/1"] == 1).all()
    for value in Foreign(), Foreign(device=(3, 0)):
        ep.send({"deep/1": np.arange(3.)})
        got = peer.recv_into({"deep/1": value}, WAIT)
        assert (got["deep/1"] == [0, 1, 2]).all()
        assert (value.memory[:4] == [0, 1, 2, 1]).all()
    for value in Foreign(flags=1), Foreign(plain=True):
        with pytest.raises(tensormsg.InvalidParam, match="'x' is read-only"):
            peer.recv_into({"x": value}, WAIT)


def test_bfloat16_is_received_into_by_dlpack(pair):
    pytest.importorskip("ml_dtypes")
    ep, peer = pair
    value = Foreign(dtype=(4, 16, 1))
    ep.send({"x": Foreign(dtype=(4, 16, 1))})
    assert peer.recv_into({"x": value}, WAIT)["x"].dtype == "bfloat16"
    with pytest.raises(TypeError, match="'x' is float32x4, which numpy has no"):
        peer.recv_into({"x": Foreign(dtype=(2, 32, 4))}, WAIT)


@pytest.mark.parametrize("shape, strides", [
    ((3, 1), (2, -1 << 63)), ((1, 3), ((1 << 63) - 1, 2)),
    ((0, 1 << 40), (-1 << 63, 1 << 62))], ids=str)
def test_a_stride_that_leads_nowhere_may_be_any(pair, shape, strides):
    """Of one element, or none; sanitizers look at what is reckoned with it."""
    ep, peer = pair
    ep.send({"x": Foreign(shape=shape, strides=strides)}, keep_strides=True)
    got = peer.recv(WAIT)
    assert got["x"].shape == shape and (got["x"] == 1).all()
    assert len(got.raw("x")) == got["x"].size * 8


def test_a_shape_that_numpy_refuses_costs_its_array_alone(pair):
    """Without elements it may be of any size; a server goes on, too."""
    ep, peer = pair
    wide = Foreign(shape=(0, 1 << 62))
    ep.send({"x": wide, "y": np.ones(2)})
    got = peer.recv(WAIT)
    assert (got["y"] == 1).all() and len(got.raw("x")) == 0
    with pytest.raises(TypeError, match="'x' has a shape that numpy has no"):
        np.asarray(got["x"])
    assert got["x"].shape == (0, 1 << 62) and dict(got)["y"][0] == 1
    with tensormsg.sync.listen(":0", background=True) as listener, \
            tensormsg.sync.connect(listener.url, background=True) as caller:
        with listener.serve() as server:
            server.method("names")(lambda request: {
                "n": np.array(len(request))})
            for _ in range(2):
                reply = caller.call("names", {"x": wide}, timeout=WAIT)
                assert reply["n"] == 1
