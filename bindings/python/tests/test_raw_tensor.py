# SPDX-License-Identifier: BSD-3-Clause
"""A tensor that no array can be made of is there all the same, under its name,
and keeps nobody from the others."""

import asyncio
import copy
import operator
import pickle
import types

import numpy as np
import pytest

import tensormsg
from conftest import WAIT
from tensormsg import _message
from test_malformed import Foreign

INT4, LANES = (0, 4, 1), (2, 32, 4)  # dtypes that numpy has no name for
SENT = {"a": np.arange(3), "t": None, "n": 7, "deep": [np.ones(2)]}


def sent(dtype=INT4):
    """Three numbers of four bits, in two bytes."""
    value = Foreign(dtype=dtype)
    value.memory.view("u1")[:2] = 0x21, 0x03
    return {**SENT, "t": value}


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Both ends, by what arrays are to be like."""
    opened = {}
    folder = tmp_path_factory.mktemp("pair")

    def back(data, like=None):
        if like not in opened:
            listener = tensormsg.sync.listen(
                f"unix://{folder}/{len(opened)}", background=True, like=like)
            opened[like] = listener, tensormsg.sync.connect(listener.url)
        listener, ep = opened[like]
        ep.send(data, timeout=WAIT)
        return listener.recv(WAIT)

    yield back
    for listener, ep in opened.values():
        ep.close()
        listener.close()


USES = {
    "array": np.asarray, "copy": np.array, "shape": np.shape,
    "ufunc": lambda t: np.add(t, 1), "function": lambda t: np.stack([t, t]),
    "before": lambda t: t + 1, "behind": lambda t: 1 + t,
    "array behind": lambda t: np.ones(3) * t, "less": lambda t: t < 1,
    "item": operator.itemgetter(0), "write": lambda t: operator.setitem(
        t, 0, 1), "length": len, "iterate": list, "truth": bool, "int": int,
    "float": float, "complex": complex, "index": operator.index,
    "contains": lambda t: 1 in t}


@pytest.mark.parametrize("like", [None, np], ids=["numpy", "like"])
def test_it_is_among_the_others(pair, like):
    msg = pair(sent(), like)
    got = dict(msg)
    assert list(got) == list(msg) == list(msg.keys()) == \
        ["a", "t", "deep/0", "n"]
    assert got["a"].tolist() == [0, 1, 2] and got["n"] == 7
    for t in got["t"], msg["t"], dict(msg.items())["t"], msg.tree()["t"], \
            list(msg.values())[1], msg.get("t"):
        assert isinstance(t, tensormsg.RawTensor)
        assert (t.name, t.dtype, t.shape, t.ndim) == ("t", "int4", (3,), 1)
        assert t.tobytes() == t.raw().tobytes() == b"\x21\x03"
        assert repr(t) == "<tensor 't' of int4, shape (3,): no array>"
    assert msg.tree()["deep"][0].tolist() == [1, 1]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("like", [None, np], ids=["numpy", "like"])
def test_used_as_an_array_it_says_why_it_is_none(pair, like, use):
    t = pair(sent(), like)["t"]
    with pytest.raises(TypeError, match="tensor 't' is int4") as caught:
        USES[use](t)
    assert str(caught.value) == t.why and "msg.raw('t')" in t.why


@pytest.mark.parametrize("like", [None, np], ids=["numpy", "like"])
def test_it_equals_itself_alone(pair, like):
    msg, other = pair(sent(), like), pair(sent(), like)
    t, u = dict(msg)["t"], other["t"]
    array = np.ones(3)
    assert t == t and not t != t and t != u and not t == u
    assert t != 1 and not 1 == t and t is not None and t != None  # noqa: E711
    assert t in [1, array, t] and t not in [u, array] and [1, t].index(t) == 1
    assert not (array == t) and not (t == array) and array != t
    assert len({t, u, t}) == 2 and {t: 1}[t] == 1 and hash(t) == hash(t)
    assert {"t": t, "n": 7} == {"n": 7, "t": t} != {"t": u, "n": 7}
    assert len({msg.dlpack("t"), t}) == 2


def test_an_attribute_that_it_lacks(pair):
    t = pair(sent())["t"]
    with pytest.raises(AttributeError, match="no .mean: tensor 't' is int4"):
        t.mean()
    assert not hasattr(t, "__array_interface__") and not hasattr(t, "_x")
    assert copy.copy(t).tobytes() == t.tobytes()


def test_why_of_a_librarys(pair):
    """Whose own words it has."""
    t = pair(sent(), np)["t"]
    assert t.why.startswith("tensor 't' is int4 of shape (3,), which "
                            "numpy.from_dlpack() does not take (")


@pytest.mark.parametrize("dtype, name", [(INT4, "int4"), (LANES, "float32x4"),
                                         ((3, 24, 1), "opaque24")])
def test_it_is_sent_on_as_it_is(pair, dtype, name):
    first = pair(sent(dtype))
    for data in first, dict(first), {"t": first["t"], "more": {"t": first["t"]}}:
        got = pair(data)
        assert got["t"].dtype == name and got["t"].shape == (3,)
        assert got["t"].tobytes() == first["t"].tobytes()


def test_it_keeps_its_memory(pair):
    t = pair(sent())["t"]
    for i in range(4):
        pair({"x": np.full(1000, i)})
    assert t.tobytes() == b"\x21\x03"


def test_in_calls_and_streams():
    async def main():
        async with tensormsg.listen(":0") as listener:
            server = listener.serve()

            @server.method("back")
            def back(request):
                return dict(request)

            @server.method("each")
            async def each(stream):
                async for msg in stream:
                    yield dict(msg)

            async with tensormsg.connect(listener.url) as ep:
                reply = await ep.call("back", sent(), timeout=WAIT)
                assert dict(reply)["t"].tobytes() == b"\x21\x03"
                async with ep.stream("each", timeout=WAIT) as stream:
                    await stream.send(sent())
                    msg = await stream.recv()
                    assert msg["t"].dtype == "int4" and msg["a"][2] == 2

    asyncio.run(main())


class Odd(Exception):
    pass


def test_what_a_function_raises_names_the_tensor(pair):
    """And stays what it is, for it is the user's own."""
    def convert(tensor):
        if tensor.__dlpack_device__() != (1, 0) or calls.append(1):
            return None
        raise kind(*args)

    calls = []
    for kind, args, words in (
            (Odd, ("no room",), "tensor 'a': no room"), (Odd, (), ""),
            (OSError, (5, "eio"), "[Errno 5] eio"),
            (MemoryError, ("much",), "tensor 'a': much"),
            (Odd, ("of 'a' already",), "of 'a' already")):
        msg = pair({"a": np.ones(1)}, convert)
        for _ in range(2):
            with pytest.raises(kind) as caught:
                msg["a"]
            assert str(caught.value) == words
    assert len(calls) == 10


class OutOfMemoryError(RuntimeError):
    """As torch's, whose words of others may be any."""


class Library(types.ModuleType):
    """Has a from_dlpack() that says no to one number."""

    def __init__(self, error):
        super().__init__("library")
        self.error = error

    def from_dlpack(self, tensor):
        array = np.from_dlpack(tensor)
        if array.shape == (1,):
            raise self.error
        return array


# What torch, numpy and JAX say of a dtype that they lack.
NOT_THIS = [
    RuntimeError("Unsupported kUInt bits 4"), BufferError("Unsupported code 9"),
    RuntimeError("ATen does not support lanes != 1"),
    RuntimeError("UNIMPLEMENTED: DLPack types with lanes != 1"),
    RuntimeError("INVALID_ARGUMENT: Unknown or unsupported DLPack type"),
    TypeError("Unsupported type in DLTensor."), ValueError("no"),
    NotImplementedError("no"), RuntimeError()]

# What came of the machine, or is a fault of the library's.
NOT_NOW = [
    RuntimeError("CUDA error: out of memory"), OutOfMemoryError("no 2 GiB"),
    RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
    RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes"),
    MemoryError("none"), OSError("none"), AttributeError("a"),
    AssertionError("b"), Odd("d")]


def of_it(error):
    return f"{type(error).__name__}: {error}"


@pytest.fixture
def like_library(pair):
    """A message with such a library's arrays."""
    library = Library(None)

    def back(error):
        library.error = error
        return pair({"one": np.ones(1), "two": np.ones(2)}, library)

    return back


@pytest.mark.parametrize("error", NOT_THIS, ids=of_it)
def test_what_says_that_the_library_has_no_such_type(like_library, error):
    got = dict(like_library(error))
    assert isinstance(got["one"], tensormsg.RawTensor)
    assert got["two"].tolist() == [1, 1]
    assert (str(error) or "RuntimeError") in got["one"].why


@pytest.mark.parametrize("error", NOT_NOW, ids=of_it)
def test_what_says_something_else_is_raised(like_library, error):
    msg = like_library(error)
    words = str(error)
    assert msg["two"].tolist() == [1, 1]
    for _ in range(2):
        with pytest.raises(type(error), match="^tensor 'one': ") as caught:
            msg["one"]
        assert caught.value is error and str(error).endswith(words)


@pytest.mark.parametrize("words, is_of_it", [
    ("Unsupported kInt bits 4", True), ("Unsupported device_type: 3", True),
    ("UNIMPLEMENTED: of lanes", True), ("CUDA error: invalid argument", False),
    ("CUDA error: operation not supported", False), ("", False),
    ("INTERNAL: CUDA_ERROR_ILLEGAL_ADDRESS", False)])
def test_a_runtime_error_of_memory_of_a_device(words, is_of_it):
    """Where a device may have failed."""
    def take(tensor):
        raise RuntimeError(words)

    convert = _message.Converter(take, "take()")
    with pytest.raises(TypeError if is_of_it else RuntimeError) as caught:
        convert(Foreign(on=(2, 0)))
    assert isinstance(caught.value, _message.NotTaken) == is_of_it


def test_bytes_that_are_not_here_are_missed_by_name(pair):
    with pytest.raises(KeyError, match="other"):
        pair(sent()).raw("other")


def test_a_message_with_one_is_not_pickled(pair):
    message = pair(sent())
    for attempt in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled or copied whose "
                           "tensor 't' is int4"):
            attempt(message)
    assert copy.copy(message)["t"].dtype == "int4"
