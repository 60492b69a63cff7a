# SPDX-License-Identifier: BSD-3-Clause
"""A tensor that no array can be made of is there all the same, under its name,
and keeps nobody from the others."""

import asyncio
import copy
import operator

import numpy as np
import pytest

import tensormsg
from conftest import WAIT
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
    "array behind": lambda t: np.ones(3) * t, "equal": lambda t: t == 1,
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


def test_bytes_that_are_not_here_are_missed_by_name(pair):
    with pytest.raises(KeyError, match="other"):
        pair(sent()).raw("other")
