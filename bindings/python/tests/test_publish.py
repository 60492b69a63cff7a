# SPDX-License-Identifier: BSD-3-Clause
"""One dict to all who have connected, as they come and go."""

import asyncio
import gc
import threading
import time
import weakref

import numpy as np
import pytest

import tensormsg
from conftest import WAIT, environment, python


def run(main):
    asyncio.run(asyncio.wait_for(main(), WAIT))


class Viewer:
    """A thread that receives what is published, to its end or to a number."""

    def __init__(self, url, last=None, busy=None, **how):
        self.seen, self.error, self.last, self.busy = [], None, last, busy
        self._url, self._how = url, how
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        try:
            with tensormsg.connect(self._url, **self._how) as ep:
                for msg in ep:
                    frame = msg.meta["frame"]
                    assert (msg["x"] == frame).all()
                    self.seen.append(frame)
                    if frame == self.last:
                        return
                    if self.busy is not None:
                        self.busy.wait(WAIT)
        except tensormsg.Error as error:
            self.error = error

    def wait(self):
        self.thread.join(WAIT)
        assert not self.thread.is_alive()
        return self.seen


def test_all_get_all():
    with tensormsg.publish(":0", queue=100) as camera:
        viewers = [Viewer(camera.url) for _ in range(3)]
        camera.wait_for(3, WAIT)
        x = np.zeros(1000)
        for frame in range(100):
            x[:] = frame  # at once, though nobody may have it yet
            camera.send({"x": x}, frame=frame)
        camera.flush(WAIT)
        about = camera.describe()
        assert (about["published"], about["delivered"]) == (100, 300)
        assert camera.subscribers == 3
    assert [viewer.wait() for viewer in viewers] == [list(range(100))] * 3
    with pytest.raises(tensormsg.Closed):
        camera.send({"x": x})


LIES = {
    "columns": lambda a: a[:, ::11],
    "backwards": lambda a: a[::-1, ::-2],
    "windows": lambda a: np.lib.stride_tricks.sliding_window_view(a[3], 4),
    "repeated": lambda a: np.broadcast_to(a[:, ::3], (5, 8, 4)),
    "transposed": lambda a: a.T,
    "c order": lambda a: a,
    "number": lambda a: a[3, 4],
}


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("layout", LIES)
def test_strides_are_kept(layout, copy):
    values = LIES[layout](np.arange(96.).reshape(8, 12))
    none = np.zeros((4, 0, 3))[::-2]
    with tensormsg.publish(":0") as camera, \
            tensormsg.connect(camera.url, background=True) as ep:
        camera.wait_for(1, WAIT)
        camera.send({"x": values, "none": none}, copy=copy,
                    keep_strides=True, verify=True)
        camera.send({"x": values}, copy=copy)
        got, packed = ep.recv(WAIT), ep.recv(WAIT)
    assert not got.meta and not packed.meta
    assert np.array_equal(got["x"], values)
    assert got["x"].strides == values.strides
    assert np.array_equal(packed["x"], values)
    assert got["none"].shape == none.shape


@pytest.mark.parametrize("copy", [True, False])
def test_what_lies_between_arrives_if_strides_are_kept(copy):
    table = np.arange(96.).reshape(8, 12)

    async def main():
        async with tensormsg.publish(":0") as camera, \
                tensormsg.connect(camera.url) as ep:
            await camera.wait_for(1, WAIT)
            await camera.send({"x": table[::-1, ::11]}, copy=copy,
                              keep_strides=True)
            return (await ep.recv())["x"]

    x = asyncio.run(asyncio.wait_for(main(), WAIT))
    assert x.strides == (-96, 88)
    rest = np.lib.stride_tricks.as_strided(x, (8, 12), (-96, 8))
    assert np.array_equal(rest, table[::-1])


def test_all_get_all_with_asyncio():
    async def main():
        async def view(url):
            async with tensormsg.connect(url) as ep:
                return [msg.meta["frame"] async for msg in ep]

        async with tensormsg.publish(":0", queue=100) as camera:
            viewers = [asyncio.ensure_future(view(camera.url))
                       for _ in range(3)]
            await camera.wait_for(3, WAIT)
            x = np.zeros(1000)
            for frame in range(100):
                x[:] = frame
                await camera.send({"x": x}, frame=frame)
            await camera.flush(WAIT)
            assert camera.describe()["delivered"] == 300
        assert await asyncio.gather(*viewers) == [list(range(100))] * 3
        with pytest.raises(tensormsg.Closed):
            await camera.send({"x": x})

    run(main)


def test_they_come_and_go():
    with tensormsg.publish(":0", queue=1000) as camera:
        stays = Viewer(camera.url)
        camera.wait_for(1, WAIT)
        frame = 0
        for _ in range(5):
            comes = Viewer(camera.url, last=frame + 9)
            camera.wait_for(2, WAIT)
            with python("-c", f"""
import tensormsg
with tensormsg.connect({camera.url!r}) as ep:
    print(ep.recv().meta["frame"], flush=True)
    ep.recv(60)
""") as killed:
                camera.wait_for(3, WAIT)
                for _ in range(5):
                    camera.send({"x": np.full(9, frame)}, frame=frame)
                    frame += 1
                assert killed.stdout.readline() == f"{frame - 5}\n"
            for _ in range(5):
                camera.send({"x": np.full(9, frame)}, frame=frame)
                frame += 1
            assert comes.wait() == list(range(frame - 10, frame))
            end = time.monotonic() + WAIT
            while camera.subscribers > 1:
                assert time.monotonic() < end
                time.sleep(.001)
        while len(camera.listener.peers) > 1:  # those that went are forgotten
            assert time.monotonic() < end
            camera.send({"x": np.full(9, frame)}, frame=frame)
            frame += 1
            time.sleep(.001)
    assert stays.wait() == list(range(frame))


@pytest.mark.parametrize("mode", [None, "all"])
def test_a_newcomer_gets_all_that_is_kept(mode):
    """More than may wait for it, and go to it at once, by default."""
    with tensormsg.publish(":0", keep=64, mode=mode) as camera:
        for frame in range(100):
            camera.send({"x": np.full(3, frame)}, frame=frame)
        assert camera.describe()["kept"] == 64
        assert Viewer(camera.url, 99).wait() == list(range(36, 100))


def test_a_newcomer_gets_all_that_is_kept_with_asyncio():
    async def main():
        async with tensormsg.publish(":0", keep=64) as camera:
            for frame in range(100):
                await camera.send({"x": np.full(3, frame)}, frame=frame)
            async with tensormsg.connect(camera.url) as ep:
                assert [(await ep.recv()).meta["frame"] for _ in range(64)] == \
                    list(range(36, 100))

    run(main)



@pytest.mark.parametrize("copy", [True, False])
def test_a_newcomer_gets_the_last_ones(copy):
    with tensormsg.publish(":0", keep=3) as camera:
        refs = []
        for frame in range(10):
            x = np.full(100000, frame)
            refs.append(weakref.ref(x))
            camera.send({"x": x}, frame=frame, copy=copy)
            del x
        camera.send({"x": np.full(3, 10)}, frame=10)
        gc.collect()
        held = [] if copy else [8, 9]
        assert [i for i, ref in enumerate(refs) if ref() is not None] == held
        assert camera.describe()["kept"] == 3
        viewers = [Viewer(camera.url, last=11) for _ in range(2)]
        camera.wait_for(2, WAIT)
        camera.send({"x": np.full(3, 11)}, frame=11)
        assert [one.wait() for one in viewers] == [[8, 9, 10, 11]] * 2


@pytest.mark.parametrize("by", ["subscriber", "publisher"])
def test_the_newest_alone(by):
    """Of who asks for it, or of all."""
    go = threading.Event()
    with tensormsg.publish(":0", queue=None if by == "publisher" else 1000,
                           newest=by == "publisher") as camera:
        every = Viewer(camera.url)
        newest = Viewer(camera.url, newest=by == "subscriber", busy=go)
        camera.wait_for(2, WAIT)
        for frame in range(100):
            camera.send({"x": np.full(9, frame)}, frame=frame)
        go.set()
        camera.flush(WAIT)
    seen = newest.wait()
    assert seen[-1] == 99 and seen == sorted(seen) and len(seen) <= 3
    seen = every.wait()
    assert seen == list(range(100)) if by == "subscriber" else seen[-1] == 99


@pytest.mark.parametrize("slow, seen", [
    ("drop oldest", [0, 1, 2, 97, 98, 99]),
    ("drop newest", [0, 1, 2, 3, 4, 5]),
    ("disconnect", None)])
def test_who_is_slow(slow, seen):
    with tensormsg.publish(":0", slow=slow, queue=3, window=3) as camera:
        fast = Viewer(camera.url)
        ep = tensormsg.sync.connect(camera.url, background=True)
        camera.wait_for(2, WAIT)
        for frame in range(100):
            camera.send({"x": np.full(9, frame)}, frame=frame)
            end = time.monotonic() + WAIT
            while len(fast.seen) <= frame:
                assert time.monotonic() < end and fast.error is None
                time.sleep(0)
        assert fast.seen == list(range(100))
        if seen is None:
            with pytest.raises(tensormsg.LimitExceeded, match="too slow"):
                for _ in range(10):
                    ep.recv(WAIT)
            assert camera.subscribers == 1
            ep.abort()
            return
        assert [ep.recv(WAIT).meta["frame"] for _ in range(6)] == seen
        camera.flush(WAIT)
        about = camera.describe()
        assert (about["delivered"], about["dropped"]) == (106, 94)
        with pytest.raises(tensormsg.TimedOut):
            ep.recv(.05)
        ep.abort()


def test_a_bound_in_bytes():
    with tensormsg.publish(":0", window=1, queue_bytes=20000) as camera:
        ep = tensormsg.sync.connect(camera.url, background=True)
        camera.wait_for(1, WAIT)
        for frame in range(10):
            camera.send({"x": np.full(1000, frame)}, frame=frame)
        assert [ep.recv(WAIT).meta["frame"] for _ in range(3)] == [0, 8, 9]
        ep.abort()


def test_what_is_too_late_is_dropped():
    with tensormsg.publish(":0", window=1, keep=5) as camera:
        ep = tensormsg.sync.connect(camera.url, background=True)
        camera.wait_for(1, WAIT)
        camera.send({"x": np.zeros(9)}, frame=0)
        camera.send({"x": np.zeros(9)}, frame=1, timeout=.02)
        end = time.monotonic() + WAIT
        while camera.describe()["dropped"] == 0:
            assert time.monotonic() < end
            time.sleep(.001)
        camera.send({"x": np.zeros(9)}, frame=2)
        assert [ep.recv(WAIT).meta["frame"] for _ in range(2)] == [0, 2]
        assert camera.describe()["kept"] == 2
        ep.abort()


def test_who_takes_nothing_does_not_hold_up_the_end():
    with tensormsg.publish(":0") as camera:
        ep = tensormsg.sync.connect(camera.url, background=True)
        fast = Viewer(camera.url)
        camera.wait_for(2, WAIT)
        for frame in range(10):
            camera.send({"x": np.full(9, frame)}, frame=frame)
        with pytest.raises(tensormsg.TimedOut, match="did not take all"):
            camera.flush(.05)
        since = time.monotonic()
        camera.close(.2)
        camera.close()
        assert time.monotonic() - since < 8
        assert fast.wait() == list(range(10))
        ep.abort()


def sum_of(camera):
    about = camera.describe()
    return about["delivered"] + about["dropped"] + about["failed"]


@pytest.mark.parametrize("face", ["asyncio", "blocking"])
def test_a_viewer_that_breaks_off_leaves_at_once(face):
    """What it has not received is dropped, and the camera knows. close() would
    raise TimedOut after 10 s."""
    async def view(url):
        async with tensormsg.connect(url) as ep:
            await asyncio.to_thread(send)
            async for msg in ep:
                return msg.meta["frame"]

    def send():
        camera.wait_for(1, WAIT)
        for frame in range(60):
            camera.send({"x": np.full(9, frame)}, frame=frame)

    with tensormsg.publish(":0") as camera:
        if face == "asyncio":
            assert asyncio.run(asyncio.wait_for(view(camera.url), WAIT)) == 0
        else:
            with tensormsg.connect(camera.url, background=True) as ep:
                send()
                for msg in ep:
                    assert msg.meta["frame"] == 0
                    break
        end = time.monotonic() + WAIT
        while sum_of(camera) < 60 or camera.subscribers:
            assert time.monotonic() < end
            time.sleep(.001)
        about = camera.describe()
        assert about["delivered"] >= 1 and about["dropped"] >= 12
        assert about["failed"] > 0


@pytest.mark.parametrize("face", ["asyncio", "blocking"])
def test_a_listener_that_closes_drops_what_it_has_not_received(face):
    """acked=True raises; what waits at the other side for room ends as well."""
    async def close_with_asyncio():
        async with tensormsg.listen(":0", queue_depth=2) as listener, \
                tensormsg.connect(listener.url) as ep:
            sends = [asyncio.ensure_future(ep.send({"x": np.zeros(9)}, acked=True))
                     for _ in range(5)]
            await listener.recv()
            await listener.close()
            return await asyncio.gather(*sends, return_exceptions=True)

    def close_blocking():
        ends = []

        def send():
            try:
                ends.append(ep.send({"x": np.zeros(9)}, acked=True))
            except tensormsg.Error as error:
                ends.append(error)

        with tensormsg.listen(":0", queue_depth=2, background=True) as listener, \
                tensormsg.connect(listener.url, background=True) as ep:
            threads = [threading.Thread(target=send) for _ in range(5)]
            for thread in threads:
                thread.start()
            listener.recv(WAIT)
            listener.close()
            for thread in threads:
                thread.join(WAIT)
        return ends

    ends = asyncio.run(asyncio.wait_for(close_with_asyncio(), WAIT)) \
        if face == "asyncio" else close_blocking()
    assert ends.count(None) == 1 and len(ends) == 5
    for error in ends:
        assert error is None or isinstance(
            error, (tensormsg.Refused, tensormsg.Closed))
    assert any("takes no more messages" in str(error) for error in ends)


def test_a_cancelled_close_waits_for_nobody():
    async def main():
        camera = tensormsg.publish(":0")
        async with camera as publisher:
            slow = await asyncio.to_thread(tensormsg.sync.connect, camera.url)
            await publisher.wait_for(1, WAIT)
            await publisher.send({"x": np.zeros(1 << 23)})
            since = time.monotonic()
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(publisher.close(), .2)
            assert time.monotonic() - since < 5
        slow.abort()

    run(main)


def test_subscribers_have_keys_and_come_back(tmp_path):
    from test_reconnect import SOON, Cable
    key = tensormsg.generate_key()
    with tensormsg.publish(":0", key={"viewer": key}, reconnect=True,
                           queue=1000) as camera, Cable(camera.url) as cable:
        with pytest.raises(tensormsg.Refused):
            tensormsg.sync.connect(cable.url)
        viewer = Viewer(cable.url, last=99, key=key, **SOON)
        camera.wait_for(1, WAIT)
        assert camera.listener.peers[0].principal == "viewer"
        for frame in range(100):
            camera.send({"x": np.full(9, frame)}, frame=frame)
            if frame % 20 == 10:
                cable.cut()
            time.sleep(.001)
        assert viewer.wait() == list(range(100))
        assert cable.cuts > 1


def test_they_may_speak_and_call_as_well():
    async def main():
        async with tensormsg.publish(":0", keep=1) as camera:
            server = camera.listener.serve()

            @server.method("set")
            async def set_level(request):
                await camera.send({"level": request["level"]})
                return {}

            async with tensormsg.connect(camera.url) as ep:
                await ep.call("set", {"level": 7}, timeout=WAIT)
                assert (await ep.recv())["level"] == 7
                await ep.send({"x": np.arange(3)})
                msg = await camera.listener.recv()
                assert msg["x"][2] == 2

    run(main)


def test_strides_trees_and_what_is_repeated():
    big = np.broadcast_to(np.arange(3, dtype="i2")[:, None], (3, 1 << 34))
    a = np.arange(24.).reshape(2, 3, 4)
    with tensormsg.publish(":0", keep=9) as camera:
        camera.send({"big": big, "t": a.T, "r": a[::-1, :, ::2],
                     "f": np.asfortranarray(a), "none": a[:0],
                     "scalar": np.float32(3), "tree": [1, {"b": a[0]}]},
                    verify=True, note="x")
        with tensormsg.connect(camera.url) as ep:
            msg = ep.recv(WAIT)
            assert msg["big"].shape == big.shape
            assert (msg["big"][:, ::1 << 32] == big[:, ::1 << 32]).all()
            assert (msg["t"] == a.T).all() and msg["none"].shape == (0, 3, 4)
            assert (msg["r"] == a[::-1, :, ::2]).all()
            assert (msg["f"] == a).all() and msg["scalar"] == 3
            assert (msg.tree()["tree"][1]["b"] == a[0]).all()
            assert msg.meta == {"note": "x"}


def test_what_cannot_be_published_names_the_array():
    with tensormsg.publish(":0") as camera:
        with pytest.raises(TypeError, match="'names/0' has dtype object"):
            camera.send({"names": [np.array([None])]})
        with pytest.raises(ValueError, match="begins no key"):
            camera.send({}, meta={"/x": 1})
        assert camera.describe()["published"] == 0


@pytest.mark.parametrize("how", [
    {"slow": "block"}, {"keep": -1}, {"queue": 0}, {"window": 0},
    {"queue_bytes": -1}, {"queue": 1 << 32}])
def test_bounds_that_there_are_not(how):
    name, = how
    for use in tensormsg.publish, tensormsg.sync.publish:
        with pytest.raises(ValueError, match=name):
            use(":0", **how)


def test_from_threads_while_it_is_closed():
    for _ in range(5):
        camera = tensormsg.sync.publish(":0", keep=2)
        viewer = Viewer(camera.url)
        camera.wait_for(1, WAIT)
        count = []

        def send():
            try:
                while True:
                    camera.send({"x": np.zeros(3)}, frame=0,
                                copy=len(count) % 2 == 0)
                    count.append(1)
            except tensormsg.Closed:
                pass

        threads = [threading.Thread(target=send) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(.02)
        camera.close()
        for thread in threads:
            thread.join(WAIT)
            assert not thread.is_alive()
        assert viewer.wait() and viewer.error is None


def test_without_a_thread_of_its_own():
    """What is published moves while it calls."""
    with tensormsg.publish(":0", background=False) as camera:
        viewer = Viewer(camera.url)
        camera.wait_for(1, WAIT)
        for frame in range(100):
            camera.send({"x": np.full(9, frame)}, frame=frame)
            camera.flush(WAIT)
    assert viewer.wait() == list(range(100))


def test_made_in_a_loop_or_before_it():
    early = tensormsg.publish(":0", keep=1)

    async def main():
        for made in early, tensormsg.publish(":0", keep=1):
            async with made as camera:
                await camera.send({"x": np.arange(3)})
                async with tensormsg.connect(made.url) as ep:
                    assert (await ep.recv())["x"][2] == 2

    run(main)
    with pytest.raises(AttributeError, match="enter it by"):
        tensormsg.publish(":0").send


def test_a_program_that_just_ends():
    """In the middle of it, with one who takes nothing: it says so."""
    with python("-W", "error", "-c", """
import numpy as np, tensormsg
camera = tensormsg.sync.publish(":0", keep=3)
ep = tensormsg.sync.connect(camera.url)
for i in range(50):
    camera.send({"x": np.zeros(100000)}, copy=i % 2 == 0)
print(ep.recv(30)["x"].shape)
""", stderr=-2, env=environment()) as process:
        said = process.communicate(timeout=WAIT)[0].splitlines()
        assert said[0] == "(100000,)" and process.returncode == 0
        assert len(said) == 2 and "ended before its peer had all" in said[1]


@pytest.mark.parametrize("ends", ["", "del camera; import gc; gc.collect()"])
@pytest.mark.parametrize("background", [True, False])
def test_what_waits_when_a_program_just_ends_arrives(background, ends):
    with python("-W", "error", "-c", f"""
import numpy as np, tensormsg
camera = tensormsg.sync.publish(":0", queue=100, window=1,
                                background={background})
print(camera.url, flush=True)
camera.wait_for(1, 30)
for i in range(20):
    camera.send({{"x": np.full(1000, i)}}, frame=i)
{ends}
""", stderr=-2, env=environment()) as process:
        with tensormsg.connect(process.stdout.readline().strip()) as ep:
            frames = []
            for msg in ep:
                frames.append(msg.meta["frame"])
                time.sleep(.02)
        assert frames == list(range(20))
        assert process.communicate(timeout=WAIT)[0] == ""
        assert process.returncode == 0
