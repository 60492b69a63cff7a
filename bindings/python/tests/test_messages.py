# SPDX-License-Identifier: BSD-3-Clause
"""What is sent arrives: in each way to drive it, over each transport, in every
size, to another process and back."""

import asyncio
import sys
import time
import types

import numpy as np
import pytest

import tensormsg
from conftest import WAIT

SIZES = [0, 1, 64, 5000, 1 << 16, 1 << 20, 12 << 20]  # bytes


@pytest.mark.parametrize("size", SIZES)
def test_arrays_come_back(mode, echo_url, size):
    array = np.random.default_rng(size).integers(0, 255, size, "u1")

    async def scenario(ep):
        for frame in range(3):
            await ep.send({"a": array, "b": array[::-1]}, frame=frame)
            msg = await ep.recv()
            assert list(msg) == ["a", "b"]
            assert np.array_equal(msg["a"], array)
            assert np.array_equal(msg["b"], array[::-1])
            assert msg.meta == {"frame": frame}

    mode.run(echo_url, scenario)


def test_many_in_flight_keep_their_order(mode, echo_url):
    count = 200

    async def scenario(ep):
        for frame in range(count):
            await ep.send({"x": np.full(100, frame)}, frame=frame)
        for frame in range(count):
            msg = await ep.recv()
            assert msg.meta["frame"] == frame and (msg["x"] == frame).all()

    mode.run(echo_url, scenario)


@pytest.mark.parametrize("count", [1000, 1024, 1025])
def test_a_thousand_arrays(mode, echo_unix, count):
    async def scenario(ep):
        for size in 7, 7, 9:
            data = {f"layer.{i}": np.arange(i % size) for i in range(count)}
            await ep.send(data)
            msg = await ep.recv()
            assert list(msg) == list(data)
            assert all(np.array_equal(msg[name], data[name]) for name in data)

    mode.run(echo_unix, scenario)


def kinds_of_dicts(seed):
    """What differs, from one dict to the next, in one thing or in none: names,
    the order of these, dtypes, shapes, strides, metadata, what is no array."""
    random = np.random.default_rng(seed)
    names = ["x", "y", "long name " * 9, "z/w", "ö"]
    dtypes = ["f4", "i4", "u4", "u1", ">f4"]
    shapes = [(4, 4), (4, 4), (4, 4), (2, 8), (0, 4), ()]
    kinds = [("x", "f4", (4, 4), False), ("y", "f4", (), False)]
    while True:
        for _ in range(int(random.integers(1, 5))):
            # Names are the same objects, or others that are equal.
            meta = {"frame": int(random.integers(9))} if random.random() < .3 \
                else {}
            yield [("".join(list(name)) if random.random() < .2 else name,
                    dtype, shape, turned)
                   for name, dtype, shape, turned in kinds], meta
        choice = int(random.integers(6))
        if choice == 0 and len(kinds) > 1:
            kinds = kinds[::-1]
        elif choice == 1 and len(kinds) < len(names):
            unused = [name for name in names
                      if name not in [kind[0] for kind in kinds]]
            kinds = kinds + [(unused[0], "u1", (5,), False)]
        elif choice == 2 and len(kinds) > 1:
            kinds = kinds[1:]
        else:
            at = int(random.integers(len(kinds)))
            name, dtype, shape, turned = kinds[at]
            what = int(random.integers(4))
            if what == 0:
                dtype = dtypes[int(random.integers(len(dtypes)))]
            elif what == 1:
                shape = shapes[int(random.integers(len(shapes)))]
            else:
                turned = not turned
            kinds = [*kinds[:at], (name, dtype, shape, turned), *kinds[at + 1:]]


def test_dicts_that_are_like_those_before_and_some_that_are_not(mode,
                                                                echo_unix):
    random = np.random.default_rng(1)

    def array(dtype, shape, turned):
        made = random.integers(0, 99, shape).astype(dtype)
        return made.T if turned else made

    async def scenario(ep):
        kinds = kinds_of_dicts(20261127)
        for _ in range(1500):
            kind, meta = next(kinds)
            data = {name: array(dtype, shape, turned)
                    for name, dtype, shape, turned in kind}
            if len(data) == 3:
                data["no array"] = 7
            await ep.send(data, **meta)
            msg = await ep.recv()
            assert list(msg) == list(data) and msg.meta == meta
            for name, value in data.items():
                assert np.array_equal(msg[name], value)
                if name != "no array":
                    assert msg[name].dtype == value.dtype.newbyteorder("=")
                    assert msg[name].shape == value.shape

    mode.run(echo_unix, scenario)


def test_names_whose_bytes_look_alike(mode, echo_unix):
    """The UTF-8 of the one is the Latin-1 of the other; and some are longer
    than what is known of names."""
    names = ["ö", "ö".encode().decode("latin-1"), "x" * 55, "x" * 56, "x" * 57]

    async def scenario(ep):
        for _ in range(3):
            for name in names + names[::-1]:
                for made in name, "".join(list(name)):
                    await ep.send({made: np.zeros(3)})
                    assert list(await ep.recv()) == [name]

    mode.run(echo_unix, scenario)


def test_metadata_of_every_type(mode, echo_unix):
    meta = {"frame": 7, "acquired_ns": 1 << 62, "lit": True, "gain": 2.5,
            "camera": "left \N{EYE}", "nul": "a\0b", "key": b"\0\xff",
            "least": -(1 << 63), "": None}
    del meta[""]

    async def scenario(ep):
        await ep.send({"x": np.zeros(3)}, meta=meta)
        got = (await ep.recv()).meta
        assert got == meta
        assert {k: type(v) for k, v in got.items()} == \
            {k: type(v) for k, v in meta.items()}

    mode.run(echo_unix, scenario)


def test_trees_come_back(mode, echo_unix):
    x = np.arange(3)
    tree = {"a": {"b": [x, {"c": x + 1}], "empty": {}}, "none": None,
            "pair": (1, 2.5), "flags": [True, False], "text": "t",
            "bytes": b"\0", "nothing": [], "deep": [[[x]]]}

    async def scenario(ep):
        await ep.send(tree)
        msg = await ep.recv()
        assert np.array_equal(msg["a/b/1/c"], x + 1)
        assert msg["pair/0"] == 1 and msg["text"] == "t"
        assert msg.meta == {}
        got = msg.tree()
        assert repr(got) == repr(tree)

    mode.run(echo_unix, scenario)


def test_flat_dicts_keep_their_names(mode, echo_unix):
    data = {"a/b": np.ones(2), "lr": 0.5, "\N{SNOWMAN}": np.ones(1)}

    async def scenario(ep):
        await ep.send(data)
        msg = await ep.recv()
        assert set(msg) == set(data) and len(msg) == 3 and "lr" in msg
        assert msg["lr"] == 0.5 and isinstance(msg["a/b"], np.ndarray)
        assert set(msg.tree()) == set(data)

    mode.run(echo_unix, scenario)


def test_acked_and_verified(mode, echo_url):
    async def scenario(ep):
        await ep.send({"x": np.arange(10)}, acked=True)
        await ep.send({"x": np.arange(10)}, verify=True)
        for _ in range(2):
            assert (await ep.recv())["x"].sum() == 45

    mode.run(echo_url, scenario)


def test_the_five_lines():
    """As the documentation has them, but for the port."""
    async def main():
        server = tensormsg.listen(":0")

        async def one():
            async for msg in server:
                return msg["x"], msg["y"], msg.meta["frame"]

        first = asyncio.ensure_future(one())
        x, y = np.arange(3.), np.eye(2)
        async with tensormsg.connect(server.url) as ep:
            await ep.send({"x": x, "y": y}, frame=7)
        got = await first
        assert np.array_equal(got[0], x) and np.array_equal(got[1], y)
        assert got[2] == 7

    asyncio.run(main())


def uses_no_processor(wait):
    """Whether a wait of a second sleeps, once what was before is over."""
    for _ in range(8):
        before = time.process_time()
        with pytest.raises(tensormsg.TimedOut):
            wait(timeout=1)
        if time.process_time() - before <= .05:
            return True
    return False


def test_a_call_that_waits_uses_no_processor(echo_unix):
    with tensormsg.listen(":0") as listener:
        assert uses_no_processor(listener.recv)
    with tensormsg.sync.listen(":0") as listener:
        assert uses_no_processor(listener.recv)
    with tensormsg.connect(echo_unix) as ep:
        assert uses_no_processor(ep.recv)
        buffers = {"x": np.zeros(3)}
        assert uses_no_processor(lambda timeout: ep.recv_into(buffers, timeout))


def test_several_peers_are_answered_each():
    async def client(url, number):
        async with tensormsg.connect(url) as ep:
            for i in range(20):
                await ep.send({"n": np.array([number, i])})
                assert (await ep.recv())["n"].tolist() == [number, i]

    async def main():
        async with tensormsg.listen(":0") as server:
            async def serve():
                async for msg in server:
                    await msg.peer.send(msg)

            task = asyncio.ensure_future(serve())
            await asyncio.gather(*(client(server.url, n) for n in range(5)))
            for _ in range(100):  # the last may just be leaving
                if not [p for p in server.peers if not p.closed]:
                    break
                await asyncio.sleep(.01)
            assert not [p for p in server.peers if not p.closed]
        await task

    asyncio.run(main())


def test_a_message_is_a_mapping(echo_unix):
    with tensormsg.connect(echo_unix) as ep:
        ep.send({"x": np.arange(3), "n": 4})
        msg = ep.recv(10)
        assert dict(msg).keys() == {"x", "n"} and msg.get("z") is None
        assert msg.peer is ep
        with pytest.raises(KeyError):
            msg["z"]
        with pytest.raises(KeyError):
            msg[""]
        assert "x" in repr(msg)


def test_to_ask_for_a_name_converts_nothing(echo_unix):
    with tensormsg.connect(echo_unix, like=lambda _: 1 / 0) as ep:
        ep.send({"x": np.zeros(3), "n": 7})
        msg = ep.recv(WAIT)
    assert "x" in msg and "n" in msg.keys() and "y" not in msg
    assert 3 not in msg and "" not in msg and "/n" not in msg
    for no_name in 3, None, b"x", "y", "", "/n":
        with pytest.raises(KeyError):
            msg[no_name]
    with pytest.raises(ZeroDivisionError):
        msg["x"]


def test_an_endpoint_describes_itself(echo_url):
    with tensormsg.connect(echo_url) as ep:
        assert "pid" in ep.peer and not ep.closed
        described = ep.describe()
        assert described["peer"] and described["transport"] == (
            "shm" if echo_url.startswith("unix") else "tcp")
    assert ep.closed and "closed" in repr(ep)


def test_the_peer_closes_and_iteration_ends():
    async def main():
        async with tensormsg.listen(":0") as server:
            async with tensormsg.connect(server.url) as ep:
                await ep.send({"x": np.zeros(1)})
                msg = await server.recv()
                await msg.peer.send({"y": np.zeros(1)})
                closing = asyncio.ensure_future(msg.peer.close())
                assert [list(m) async for m in ep] == [["y"]]
                await closing
                with pytest.raises(tensormsg.Closed):
                    await ep.send({"x": np.zeros(1)})

    asyncio.run(main())


def test_many_are_converted_in_little_time(echo_unix):
    """Each is found at once: to look for it from the first on takes 15 s."""
    names = [f"n{i}" for i in range(30000)]
    with tensormsg.connect(echo_unix, like=lambda tensor: tensor) as ep:
        ep.send(dict.fromkeys(names, np.zeros(1, "u1")))
        msg = ep.recv(WAIT)
        since = time.process_time()
        assert all(msg[name] is msg[name] for name in names)
        assert time.process_time() - since < 2
        with pytest.raises(KeyError):
            msg.dlpack("n")


@pytest.mark.parametrize("name", ["cupy", "some.module"])
def test_arrays_are_like_those_of_any_module(monkeypatch, name):
    module = types.ModuleType(name)
    module.from_dlpack = lambda tensor: (name, np.from_dlpack(tensor))
    monkeypatch.setitem(sys.modules, name, module)
    for like in name, module:
        with tensormsg.sync.listen(":0", background=True,
                                   like=like) as listener, \
                tensormsg.sync.connect(listener.url) as ep:
            ep.send({"x": np.arange(5)})
            msg = listener.recv(WAIT)
            said, array = msg["x"]
            assert said == name and (array == np.arange(5)).all()
            assert np.shares_memory(array, msg.raw("x"))  # nothing is copied


def test_what_knows_no_strides_backwards_gets_a_copy():
    """As torch, which said how a size overflowed."""
    def forwards(tensor):
        array = np.from_dlpack(tensor)
        if min(array.strides) < 0:
            raise RuntimeError("overflowed")
        return array

    x = np.arange(12.).reshape(3, 4)
    with tensormsg.sync.listen(":0", background=True,
                               like=forwards) as listener, \
            tensormsg.sync.connect(listener.url) as ep:
        ep.send({"x": x[::-1], "y": x[:, ::2]}, keep_strides=True)
        msg = listener.recv(WAIT)
        assert (msg["x"] == x[::-1]).all() and msg["x"] is msg["x"]
        assert msg["y"].strides == (32, 16)  # as it came
        assert np.shares_memory(msg["y"], msg._arrays["y"])


@pytest.mark.parametrize("like", ["os", 3, sys])
def test_what_arrays_cannot_be_like_is_named(like):
    with tensormsg.sync.listen(":0", background=True) as listener:
        with pytest.raises(TypeError, match="like="):
            tensormsg.sync.connect(listener.url, like=like)
    with pytest.raises(TypeError, match="like="):
        tensormsg.sync.listen(":0", like=like)
