# SPDX-License-Identifier: BSD-3-Clause
"""Receiving into buffers, which are lent and come back."""

import array
import asyncio
import contextlib
import gc
import time
import weakref

import numpy as np
import pytest

import tensormsg
from conftest import WAIT, becomes_idle, place_of, python
from tensormsg._lib import hot

BIG = 1 << 20  # bytes that are not sent at once

# Sends what it is told to, as messages come: their metadata says what.
PEER = """
import asyncio, sys
import numpy as np
import tensormsg

with tensormsg.listen(sys.argv[1]) as listener:
    print(listener.url, flush=True)
    for msg in listener:
        count, size = msg.meta["count"], msg.meta["size"]
        for i in range(count):
            msg.peer.send({"x": np.full(size, i % 251, "u1"),
                           "more": np.arange(3)}, frame=i)
"""


class Blocking:
    """A sync.Endpoint under the names of the asynchronous one."""

    def __init__(self, endpoint):
        self.endpoint = endpoint

    async def send(self, *args, **more):
        self.endpoint.send(*args, timeout=WAIT, **more)

    async def recv(self):
        return self.endpoint.recv(timeout=WAIT)

    async def recv_into(self, buffers):
        return self.endpoint.recv_into(buffers, timeout=WAIT)


@pytest.fixture(scope="module", params=["tcp", "unix"])
def sender(request, tmp_path_factory):
    place = place_of(request.param, tmp_path_factory.mktemp("sender"))
    with python("-c", PEER, place) as process:
        yield process.stdout.readline().strip()


@pytest.fixture(params=["asyncio", "sync"])
def run(request, sender):
    def run(scenario):
        async def main():
            async with tensormsg.connect(sender) as ep:
                await asyncio.wait_for(scenario(ep), WAIT)

        async def main_sync():
            with tensormsg.connect(sender) as ep:
                await scenario(Blocking(ep))

        asyncio.run(main() if request.param == "asyncio" else main_sync())
    return run


def test_the_same_buffers_over_and_over(run):
    async def scenario(ep):
        for size in 0, 1, 5000, BIG:
            x = np.full(size, 255, "u1")
            other = np.zeros(2)
            await ep.send({}, count=20, size=size)
            for i in range(20):
                msg = await ep.recv_into({"x": x, "other": other})
                assert msg["x"] is x and (x == i).all()
                assert "other" not in msg and msg.meta["frame"] == i
                assert np.array_equal(msg["more"], [0, 1, 2])
        # Those that came before anybody asked.
        await ep.send({}, count=3, size=BIG)
        assert (await ep.recv())["x"][7] == 0
        await asyncio.sleep(.1)
        msg = await ep.recv_into({"x": x})
        assert msg["x"] is x and x[7] == 1
        kept = (await ep.recv_into({}))["x"]
        assert kept[7] == 2 and x[7] == 1

    run(scenario)


def test_kinds_of_buffers(run):
    async def scenario(ep):
        await ep.send({}, count=3, size=12)
        raw = bytearray(12)
        await ep.recv_into({"x": raw})
        assert raw == bytes(12)
        words = array.array("B", bytes(12))
        await ep.recv_into({"x": words})
        assert words.tobytes() == b"\1" * 12
        view = np.zeros((4, 12), "u1")
        await ep.recv_into({"x": view[2]})
        assert view.sum() == view[2].sum() == 24

    run(scenario)


def test_what_cannot_be_received_into(run):
    async def scenario(ep):
        constant = np.zeros(12, "u1")
        constant.flags.writeable = False
        for value, kind, words in (
                (constant, tensormsg.InvalidParam, "'x' is read-only"),
                (b"12345678", tensormsg.InvalidParam, "'x' is read-only"),
                (np.zeros(12, ">i2"), ValueError, "byte order"),
                (np.ma.zeros(12), (TypeError, ValueError), "mask"),
                (np.zeros(12, object), TypeError, "objects"),
                (7, TypeError, "neither")):
            with pytest.raises(kind, match=words):
                await ep.recv_into({"x": value})
        with pytest.raises(TypeError, match="dict"):
            await ep.recv_into([constant])
        with pytest.raises(TypeError, match="names"):
            await ep.recv_into({1: np.zeros(1)})
        with pytest.raises(tensormsg.InvalidParam, match="without gaps"):
            await ep.recv_into({"x": np.zeros(24, "u1")[::2]})
        await ep.send({}, count=1, size=12)
        for wrong in np.zeros(11, "u1"), np.zeros(12, "i1"), np.zeros((3, 4)):
            with pytest.raises(tensormsg.InvalidParam, match="'x'"):
                await ep.recv_into({"x": wrong})
            assert not wrong.any()
        right = np.ones(12, "u1")
        assert (await ep.recv_into({"x": right}))["x"] is right
        assert not right.any()

    run(scenario)


def test_buffers_that_overlap_are_refused(run):
    """Which of them would be whole is chance."""
    async def scenario(ep):
        memory, other = np.zeros(40, "u1"), np.zeros(0, "u1")
        for x, more in ((memory[:12], memory[4:28].view("i8")),
                        (memory[12:24], memory[:24].view("i8")),
                        (memory[:12], memory[:24].view("i8"))):
            await ep.send({}, count=1, size=12)
            with pytest.raises(tensormsg.InvalidParam,
                               match="tensors 'x' and 'more' overlap"):
                await ep.recv_into({"x": x, "more": more})
            with pytest.raises(tensormsg.InvalidParam, match="'b' and 'x' over"):
                await ep.recv_into({"a": other, "b": more, "x": x})
            assert not (await ep.recv())["x"].any() and not memory.any()
        await ep.send({}, count=1, size=12)
        await ep.recv_into({"x": memory[:12], "more": memory[12:36].view("i8"),
                            "empty": memory[5:5]})
        assert not memory[:12].any() and memory[20] == 1

    run(scenario)


def test_what_differs_is_told(run):
    async def scenario(ep):
        await ep.send({}, count=1, size=12)
        for wrong, words in (
                (np.zeros((3, 4), "f4"), r"float32\[3,4\]"),
                (np.zeros(11, "u1"), r"uint8\[11\]"),
                (np.zeros((), "c8"), r"complex64\[\]")):
            with pytest.raises(tensormsg.InvalidParam, match=(
                    r"tensor 'x': the message has uint8\[12\], the map to "
                     "receive "
                    f"into has {words}$")):
                await ep.recv_into({"x": wrong})

    run(scenario)


def test_buffers_are_kept_and_given_back(run):
    async def scenario(ep):
        await ep.send({}, count=2, size=BIG)
        msg = await ep.recv_into({"x": np.full(BIG, 255, "u1")})
        ref = weakref.ref(msg["x"])
        gc.collect()
        assert not msg["x"].any()
        held = msg.dlpack("x")
        del msg
        assert not np.from_dlpack(held).any()
        del held
        await ep.recv()
        gc.collect()
        assert ref() is None

    run(scenario)


@pytest.mark.parametrize("size", [100, 1 << 23])
def test_cancelled_receives_take_nothing(sender, size):
    count = 40

    async def main():
        async with tensormsg.connect(sender) as ep:
            await ep.send({}, count=count, size=size)
            x, other = np.zeros(size, "u1"), np.zeros(size, "u1")
            got, cancelled = [], 0
            while len(got) < count:
                way = len(got) % 3
                receiving = asyncio.ensure_future(
                    ep.recv() if way == 2 else
                    ep.recv_into({"x": x if way else other}))
                for _ in range((cancelled + len(got)) % 7):
                    await asyncio.sleep(0)
                if cancelled < 20 * count:
                    receiving.cancel()
                try:
                    msg = await asyncio.wait_for(receiving, WAIT)
                except asyncio.CancelledError:
                    cancelled += 1
                    continue
                i = msg.meta["frame"]
                assert (msg["x"] == i).all()
                got.append(i)
            assert got == list(range(count)) and cancelled > 0

    asyncio.run(main())


def test_a_wait_that_is_too_short_with_asyncio(sender):
    async def main():
        async with tensormsg.connect(sender) as ep:
            x = np.zeros(1 << 23, "u1")
            with pytest.raises(tensormsg.TimedOut):
                await ep.recv_into({"x": x}, timeout=0)
            await ep.send({}, count=30, size=1 << 23)
            got = late = 0
            while got < 30:
                try:
                    msg = await (ep.recv(.001) if got % 3 == 2 else
                                 ep.recv_into({"x": x}, timeout=.001))
                except tensormsg.TimedOut:
                    late += 1
                    continue
                assert msg.meta["frame"] == got and (msg["x"] == got).all()
                got += 1
            assert late > 0

    asyncio.run(asyncio.wait_for(main(), WAIT))


def test_a_wait_that_is_too_short(sender):
    with tensormsg.connect(sender) as ep:
        x = np.zeros(1 << 23, "u1")
        with pytest.raises(tensormsg.TimedOut):
            ep.recv_into({"x": x}, timeout=0)
        ep.send({}, count=30, size=1 << 23)
        got = 0
        while got < 30:
            try:
                msg = ep.recv_into({"x": x}, timeout=.001)
            except tensormsg.TimedOut:
                continue
            assert msg.meta["frame"] == got and (x == got).all()
            got += 1


def test_a_sender_that_dies(tmp_path):
    for way in "asyncio", "sync":
        with python("-c", PEER, f"unix://{tmp_path}/{way}") as process:
            url = process.stdout.readline().strip()
            x = np.zeros(1 << 24, "u1")

            async def main():
                async with tensormsg.connect(url) as ep:
                    await ep.send({}, count=1000, size=1 << 24)
                    while True:
                        msg = await ep.recv_into({"x": x})
                        assert (x == msg.meta["frame"] % 251).all()
                        if msg.meta["frame"] == 5:
                            process.kill()

            def main_sync():
                with tensormsg.connect(url) as ep:
                    ep.send({}, count=1000, size=1 << 24)
                    while True:
                        msg = ep.recv_into({"x": x}, timeout=WAIT)
                        assert (x == msg.meta["frame"] % 251).all()
                        if msg.meta["frame"] == 5:
                            process.kill()

            with pytest.raises(tensormsg.PeerLost):
                asyncio.run(asyncio.wait_for(main(), WAIT)) \
                    if way == "asyncio" else main_sync()


@contextlib.asynccontextmanager
async def idle_peer():
    """An endpoint, and a blocking one that it talks to, which moves only when
    it is told to."""
    loop = asyncio.get_running_loop()
    with tensormsg.sync.listen(":0") as listener:
        coming = loop.run_in_executor(None, listener.recv, WAIT)
        ep = await tensormsg.connect(listener.url)
        await ep.send({})
        peer = (await coming).peer
        peer.send({}, timeout=WAIT)
        await ep.recv()
        try:
            yield ep, peer
        finally:
            ep.abort()


def test_what_another_task_moves_wakes_who_waits():
    """The other goes on waiting, and nothing else happens."""
    async def give_up(task):
        for _ in range(100):
            await asyncio.sleep(0)
        task.cancel()

    async def main():
        async with idle_peer() as (ep, peer):
            x = np.zeros(12, "u1")
            receiving = asyncio.ensure_future(ep.recv_into({"x": x}))
            await asyncio.sleep(.1)
            peer.send({"x": np.ones(12, "u1")}, timeout=WAIT)
            giving_up = asyncio.ensure_future(give_up(asyncio.current_task()))
            with pytest.raises(asyncio.CancelledError):
                await ep.send({"big": np.zeros(1 << 26, "u1")})
            assert giving_up.done() and receiving.done()
            assert (await receiving)["x"] is x and x.all()

    asyncio.run(main())


@pytest.mark.parametrize("way", ["recv", "recv_into"])
def test_what_a_call_that_spins_moves_wakes_who_waits(way):
    """It had what came when the loop was told: nothing else tells of it."""
    async def main():
        async with idle_peer() as (ep, peer):
            x = np.zeros(12, "u1")
            receiving = asyncio.ensure_future(
                ep.recv() if way == "recv" else ep.recv_into({"x": x}))
            await asyncio.sleep(.1)
            peer.send({"x": np.ones(12, "u1")}, timeout=WAIT)
            op = ep._hub.post(ep._number, {"big": np.zeros(1 << 26)}, None, 0,
                              100000)
            ep._hub.kick()
            for _ in range(1000):
                await asyncio.sleep(0)
            assert op is not None and receiving.done()
            assert (await receiving)["x"].all()

    asyncio.run(main())


def test_a_receive_that_is_given_up_leaves_its_work_to_the_loop(monkeypatch):
    """Where it had just found that there is more to do."""
    calls = []

    class Hot:
        def __getattr__(self, name):
            calls.append(name)
            return getattr(hot, name)

        def came(self, number):
            return True

    async def main():
        async with idle_peer() as (ep, _):
            monkeypatch.setattr("tensormsg._loop.hot", Hot())
            receiving = asyncio.ensure_future(
                ep.recv_into({"x": np.zeros(12, "u1")}))
            await asyncio.sleep(.1)
            receiving.cancel()
            calls.clear()
            await asyncio.gather(receiving, return_exceptions=True)
            await asyncio.sleep(.01)
            assert "arm" in calls
            monkeypatch.undo()

    asyncio.run(main())


def test_a_receive_that_was_given_up_keeps_nothing(sender):
    """Where no message was on its way into the buffers; and what is received
    by recv() no longer."""
    def gone(ref):
        gc.collect()
        return ref() is None

    async def cancelled(ep, x):
        receiving = asyncio.ensure_future(ep.recv_into({"x": x}))
        await asyncio.sleep(.05)
        receiving.cancel()
        await asyncio.gather(receiving, return_exceptions=True)

    async def main():
        async with tensormsg.connect(sender) as ep:
            x = np.zeros(BIG, "u1")
            ref = weakref.ref(x)
            await cancelled(ep, x)
            del x
            end = time.monotonic() + WAIT
            while not gone(ref) and time.monotonic() < end:
                await asyncio.sleep(.001)
            assert gone(ref)

    with tensormsg.connect(sender) as ep:
        x = np.zeros(BIG, "u1")
        ref = weakref.ref(x)
        try:
            ep.recv_into({"x": x}, timeout=.01)
        except tensormsg.TimedOut:
            pass
        del x
        assert gone(ref)
        # One that came into them is the next, and keeps them as long.
        ep.send({}, count=1, size=1 << 23)
        x = np.zeros(1 << 23, "u1")
        ref = weakref.ref(x)
        try:
            msg = ep.recv_into({"x": x}, timeout=.001)
        except tensormsg.TimedOut:
            msg = ep.recv(WAIT)
        assert not msg["x"].any()
        del x, msg
        assert gone(ref)
    asyncio.run(main())


def test_receives_that_wait_use_no_processor():
    """Nor after a call of another task on its connection has timed out."""
    async def main():
        async with tensormsg.listen(":0") as listener:
            server = listener.serve()

            @server.method("slow")
            async def slow(request):
                await asyncio.sleep(WAIT)

            async with tensormsg.connect(listener.url) as ep:
                waiting = [asyncio.ensure_future(
                    ep.recv_into({"x": np.zeros(12, "u1")}))
                    for _ in range(2)]
                await asyncio.sleep(.1)
                with pytest.raises(tensormsg.TimedOut):
                    await ep.call("slow", timeout=.02)
                idle = await becomes_idle(.5, .1)
                assert not any(task.done() for task in waiting)
                for task in waiting:
                    task.cancel()
                await asyncio.gather(*waiting, return_exceptions=True)
                return idle

    assert asyncio.run(main())


def test_of_those_that_wait_few_are_woken(tmp_path, monkeypatch):
    """Each peer has a task of its own that receives into its buffers; one
    looks for all."""
    peers, count = 40, 25
    looked = []

    async def take(peer):
        got, x = [], np.zeros(3)
        with contextlib.suppress(tensormsg.Closed):
            while True:
                message = await peer.recv_into({"x": x})
                assert message["x"] is x
                got.append(int(x[0]))
        return got

    async def main():
        async with tensormsg.listen(f"unix://{tmp_path}/s") as server:
            eps = [await tensormsg.connect(server.url) for _ in range(peers)]
            while len(server.peers) < peers:
                await asyncio.sleep(.001)
            tasks = [asyncio.ensure_future(take(peer))
                     for peer in server.peers]
            await asyncio.sleep(.1)
            look = server._hub.receive_into
            monkeypatch.setattr(
                server._hub, "receive_into",
                lambda *args: looked.append(1) or look(*args))
            for i in range(count):
                await eps[i % peers].send({"x": np.full(3, float(i))},
                                          acked=True)
            assert len(looked) < 8 * count, len(looked)
            for ep in eps:
                await ep.close()
            assert sorted(sum(await asyncio.gather(*tasks), [])) == \
                list(range(count))

    asyncio.run(asyncio.wait_for(main(), WAIT))
