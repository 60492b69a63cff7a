# SPDX-License-Identifier: BSD-3-Clause
"""Modes: how far behind who is slow may be, and what is lost. What is compared
are numbers of frames, not times."""

import asyncio
import json
import threading
import time

import numpy as np
import pytest

import tensormsg
from conftest import WAIT
from tensormsg._lib import ffi, lib

FACES = ["asyncio", "blocking"]
SHM_BYTES = 1 << 20  # of a frame


def run(main):
    return asyncio.run(asyncio.wait_for(main(), WAIT))


def until(holds):
    end = time.monotonic() + WAIT
    while not holds():
        assert time.monotonic() < end
        time.sleep(.001)


def frame_of(number):
    return {"x": np.full(SHM_BYTES, number % 256, "u1")}


def take(ep, timeout=WAIT):
    msg = ep.recv(timeout)
    assert (msg["x"] == msg.meta["frame"] % 256).all()
    return msg.meta["frame"]


def take_live(ep, send, is_taken):
    """Each frame is the newest that there was when the one before was taken,
    however many are sent meanwhile."""
    for number in range(5):
        send(number)
    assert take(ep) == 0
    newest = 4
    for taken in range(1, 8):
        until(lambda: is_taken(taken))
        for number in range(newest + 1, newest + 4):
            send(number)
        assert take(ep) == newest
        newest += 3


@pytest.mark.parametrize("by", ["publisher", "subscriber", "newest"])
@pytest.mark.parametrize("scheme", ["tcp", "unix"])
def test_a_live_viewer_gets_the_newest(by, scheme, tmp_path):
    place = ":0" if scheme == "tcp" else f"unix://{tmp_path}/camera"
    modes = {"publisher": ({"mode": "live"}, {}),
             "subscriber": ({}, {"mode": "live"}),
             "newest": ({"mode": "all"}, {"newest": True})}[by]
    with tensormsg.publish(place, keep=3, **modes[0]) as camera:
        for number in range(-3, 0):  # of these the newest
            camera.send(frame_of(number), frame=number)
        with tensormsg.connect(camera.url, background=True, **modes[1]) as ep:
            camera.wait_for(1, WAIT)
            assert take(ep) == -1
            until(lambda: camera.describe()["delivered"] == 1)
            take_live(ep, lambda number: camera.send(
                          frame_of(number), frame=number),
                      lambda n: camera.describe()["delivered"] == n + 1)
            about = camera.describe()
            assert about["subscribers"][0]["mode"] == "live"
            assert about["dropped"] == about["dropped_for"]["messages"] > 0
            assert about["blocked"] == 0


@pytest.mark.parametrize("who", ["dials", "listens", "asks later"])
def test_a_live_endpoint_sends_the_newest(who):
    """send() returns at once, though the arrays are changed right after, and the
    viewer's queue has room for 256."""
    mode = {} if who == "asks later" else {"mode": "live"}
    if who == "listens":
        with tensormsg.listen(":0", **mode) as listener, \
                tensormsg.connect(listener.url, background=True) as viewer:
            until(lambda: listener.peers)
            check_live_endpoint(listener.peers[0], viewer)
            viewer.abort()
        return
    with tensormsg.listen(":0", background=True) as listener, \
            tensormsg.connect(listener.url, background=True, **mode) as camera:
        if who == "asks later":
            camera.set_queue("live")
        check_live_endpoint(camera, listener)


def check_live_endpoint(camera, viewer):
    x = np.zeros(SHM_BYTES, "u1")

    def send(number):
        x[:] = number % 256
        camera.send({"x": x}, frame=number)

    def is_taken(count):
        return camera.describe()["queue"]["under_way"] <= 1 and \
            camera.describe()["waiting_messages"] == 0

    take_live(viewer, send, is_taken)
    queue = camera.describe()["queue"]
    assert queue["policy"] == "newest"
    assert queue["dropped_oldest"] == queue["dropped_for"]["messages"] > 0
    camera.abort()  # close() would wait until the last ones are taken


@pytest.mark.parametrize("face", FACES)
def test_a_live_listener_asks_a_camera_that_dials(face):
    """Whose publisher is one in C."""
    async def listen_with_asyncio():
        async with tensormsg.listen(":0", mode="live") as viewer:
            return await asyncio.to_thread(mode_at, viewer.url)

    def mode_at(url):
        made = ffi.new("tmsg_publisher_t **")
        words = ffi.new("char **")
        with tensormsg.connect(url, background=True) as camera:
            assert lib.tmsg_publisher_create(camera._hub.worker, ffi.NULL,
                                             made) == 0
            assert lib.tmsg_publisher_add(
                made[0], ffi.cast("tmsg_endpoint_t *", camera._number),
                ffi.NULL) == 0
            assert lib.tmsg_publisher_describe(made[0], words) == 0
            about = json.loads(ffi.string(words[0]))
            lib.tmsg_string_free(words[0])
            lib.tmsg_publisher_destroy(made[0])
            return about["subscribers"][0]["mode"]

    if face == "asyncio":
        assert run(listen_with_asyncio) == "live"
    else:
        with tensormsg.sync.listen(":0", mode="live") as viewer:
            assert mode_at(viewer.url) == "live"


def test_a_live_endpoint_with_asyncio():
    async def main():
        async with tensormsg.listen(":0") as viewer, \
                tensormsg.connect(viewer.url, mode="live") as camera:
            x = np.zeros(SHM_BYTES, "u1")
            for number in range(20):
                x[:] = number
                await camera.send({"x": x}, frame=number)
            seen = []
            while not seen or seen[-1] < 19:
                msg = await viewer.recv()
                assert (msg["x"] == msg.meta["frame"]).all()
                seen.append(msg.meta["frame"])
            assert len(seen) <= 3
            await camera.send({"x": x}, acked=False, frame=20)
            acked = asyncio.ensure_future(camera.send({"x": x}, acked=True))
            assert (await viewer.recv()).meta["frame"] == 20
            await viewer.recv()
            await acked

    run(main)


@pytest.mark.parametrize("face", FACES)
def test_all_loses_nothing(face):
    """The publisher goes as the slowest does."""
    if face == "asyncio":
        seen = run(all_with_asyncio)
    else:
        seen = []
        with tensormsg.publish(":0", mode="all", queue=2, window=1) as camera:
            def view():
                with tensormsg.connect(camera.url) as ep:
                    for msg in ep:
                        seen.append(msg.meta["frame"])
            viewer = threading.Thread(target=view)
            viewer.start()
            camera.wait_for(1, WAIT)
            for number in range(60):
                camera.send(frame_of(number), frame=number, timeout=WAIT)
        viewer.join(WAIT)
    assert seen == list(range(60))


async def all_with_asyncio():
    seen = []

    async def view(url):
        async with tensormsg.connect(url) as ep:
            async for msg in ep:
                seen.append(msg.meta["frame"])
                await asyncio.sleep(0)

    async with tensormsg.publish(":0", mode="all", queue=2,
                                 window=1) as camera:
        viewer = asyncio.ensure_future(view(camera.url))
        await camera.wait_for(1, WAIT)
        for number in range(60):
            await camera.send(frame_of(number), frame=number, timeout=WAIT)
    await viewer
    return seen


def large(number):
    return {"x": np.full(20000, number % 256, "u1")}


@pytest.mark.parametrize("face", FACES)
def test_all_waits_for_the_bytes_of_a_large_message(face):
    """A small one would have room, but not the one that is to be sent."""
    if face == "asyncio":
        run(waits_for_bytes)
        return
    with tensormsg.publish(":0", mode="all", window=1,
                           queue_bytes=30000) as camera:
        ep = tensormsg.sync.connect(camera.url, background=True)
        camera.wait_for(1, WAIT)
        camera.send(large(0), frame=0)
        camera.send(large(1), frame=1)
        with pytest.raises(tensormsg.TimedOut, match="has not taken 2"):
            camera.send(large(2), timeout=.05)
        assert [take(ep), take(ep)] == [0, 1]
        camera.send(large(2), frame=2, timeout=WAIT)
        assert take(ep) == 2
        ep.abort()


async def waits_for_bytes():
    async with tensormsg.publish(":0", mode="all", window=1,
                                 queue_bytes=30000) as camera:
        async with tensormsg.connect(camera.url) as ep:
            await camera.wait_for(1, WAIT)
            await camera.send(large(0), frame=0)
            await camera.send(large(1), frame=1)
            with pytest.raises(tensormsg.TimedOut, match="has not taken 2"):
                await camera.send(large(2), timeout=.05)
            later = asyncio.ensure_future(
                camera.send(large(2), frame=2, timeout=WAIT))
            for number in range(3):
                msg = await asyncio.wait_for(ep.recv(), WAIT)
                assert msg.meta["frame"] == number
            await later


def test_who_holds_up_all_is_named():
    with tensormsg.publish(":0", slow="wait", queue=2, window=1) as camera:
        ep = tensormsg.sync.connect(camera.url, background=True)
        camera.wait_for(1, WAIT)
        for number in range(3):
            camera.send(frame_of(number), frame=number)
        with pytest.raises(tensormsg.TimedOut,
                           match=r"pid .* has not taken 3 messages"):
            camera.send(frame_of(3), frame=3, timeout=.02)
        assert camera.describe()["published"] == 3
        waits = threading.Thread(target=camera.send, args=(frame_of(3),),
                                 kwargs={"frame": 3}, daemon=True)
        waits.start()
        assert take(ep) == 0
        waits.join(WAIT)
        assert [take(ep) for _ in range(3)] == [1, 2, 3]
        about = camera.describe()
        assert about["dropped"] == 0
        assert about["subscribers"][0]["mode"] == "all"

        async def cancelled():
            async with tensormsg.publish(":0", mode="all", queue=1,
                                         window=1) as other:
                slow = await asyncio.to_thread(tensormsg.sync.connect,
                                               other.url)
                await other.wait_for(1, WAIT)
                await other.send(frame_of(0))
                await other.send(frame_of(1))
                with pytest.raises(tensormsg.TimedOut, match="has not taken 2"):
                    await other.send(frame_of(2), timeout=.02)
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(other.send(frame_of(2)), .02)
                slow.abort()
                other.abort()

        run(cancelled)
        ep.abort()


def test_what_is_too_old_is_dropped():
    with tensormsg.publish(":0", queue_ms=20, window=1) as camera:
        ep = tensormsg.sync.connect(camera.url, background=True)
        camera.wait_for(1, WAIT)
        for number in range(3):
            camera.send(frame_of(number), frame=number)
        until(lambda: camera.describe()["dropped_for"]["age"] == 2)
        assert take(ep) == 0
        ep.abort()


@pytest.mark.parametrize("how, seen, dropped", [
    ({"slow": "drop oldest", "queue": 2}, [0, 8, 9], {"messages": 7}),
    ({"slow": "drop newest", "queue": 2}, [0, 1, 2], {"messages": 7}),
    ({"slow": "drop oldest", "queue_bytes": 2 * SHM_BYTES}, [0, 8, 9],
     {"bytes": 7}),
    ({"slow": "drop oldest", "queue_ms": 20}, [0], {"age": 9})])
def test_the_queue_of_an_endpoint(how, seen, dropped):
    with tensormsg.listen(":0", background=True) as viewer, \
            tensormsg.connect(viewer.url, background=True) as camera:
        camera.set_queue(window=1, **how)
        for number in range(10):
            camera.send(frame_of(number), frame=number)
        (bound, count), = dropped.items()
        until(lambda: camera.describe()["queue"]["dropped_for"][bound]
              == count)
        assert [take(viewer) for _ in seen] == seen
        camera.set_queue()  # send() waits again
        assert camera.describe()["queue"]["policy"] == "reject"
        camera.send(frame_of(3), frame=3, acked=False)
        assert take(viewer) == 3


def test_a_queue_that_rejects():
    with tensormsg.listen(":0", background=True) as viewer, \
            tensormsg.connect(viewer.url, background=True) as camera:
        camera.set_queue(queue=1, window=1, slow="reject")
        camera.send(frame_of(0), frame=0)
        camera.send(frame_of(1), frame=1)
        with pytest.raises(tensormsg.Busy, match="1 messages wait, of 1"):
            camera.send(frame_of(2), frame=2)
        camera.set_queue(queue=1, window=1, slow="drop newest")
        with pytest.raises(tensormsg.Dropped):
            camera.send(frame_of(2), frame=2, acked=True)
        assert [take(viewer) for _ in range(2)] == [0, 1]


@pytest.mark.parametrize("how, words", [
    ({"mode": "now"}, "mode='now'"),
    ({"mode": "live", "slow": "wait"}, "different things"),
    ({"mode": "all", "slow": "drop oldest"}, "different things"),
    ({"mode": "all", "newest": True}, "different things"),
    ({"queue_ms": 0}, "queue_ms"), ({"queue_ms": 1 << 32}, "queue_ms")])
def test_modes_that_there_are_not(how, words):
    for use in tensormsg.publish, tensormsg.sync.publish:
        with pytest.raises(ValueError, match=words):
            use(":0", **how)
    if "newest" in how:
        return
    with tensormsg.listen(":0", background=True) as listener, \
            tensormsg.connect(listener.url) as ep:
        with pytest.raises(ValueError, match=words):
            ep.set_queue(**how)
        with pytest.raises(ValueError, match="needs slow="):
            ep.set_queue(queue=3)
        if list(how) == ["mode"]:
            for use in tensormsg.connect, tensormsg.listen, \
                    tensormsg.sync.connect, tensormsg.sync.listen:
                with pytest.raises(ValueError, match=words):
                    use(listener.url, **how)
