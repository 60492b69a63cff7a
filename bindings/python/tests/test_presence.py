# SPDX-License-Identifier: BSD-3-Clause
"""Who is there: a listener tells of peers that come, and of those that go."""

import asyncio
import logging
import threading
import time

import numpy as np
import pytest

import tensormsg
from conftest import WAIT, python
from tensormsg import sync
from test_reconnect import Cable, until

PEER = """
import sys, time, tensormsg
ep = tensormsg.sync.connect(sys.argv[1])
ep.send({"x": 1})
time.sleep(60)
"""


def run(main):
    return asyncio.run(asyncio.wait_for(main(), WAIT))


class Told:
    """What on_peer and on_lost were called with."""

    def __init__(self):
        self.events = []
        self.threads = set()
        self._more = threading.Condition()

    def _note(self, *event):
        with self._more:
            self.events.append(event)
            self.threads.add(threading.current_thread().name)
            self._more.notify_all()

    def came(self, peer):
        self._note("came", peer)

    def went(self, peer, error):
        self._note("went", peer, error)

    def wait(self, count):
        with self._more:
            assert self._more.wait_for(lambda: len(self.events) >= count, WAIT)
        return self.events

    @property
    def how(self):
        return {"on_peer": self.came, "on_lost": self.went}


def test_a_server_that_only_receives_learns_that_a_peer_died(caplog,
                                                             silent_library):
    told = Told()
    with caplog.at_level(logging.INFO, "tensormsg"), \
            tensormsg.listen(":0", background=True, **told.how) as server, \
            python("-c", PEER, server.url) as peer:
        server.recv(WAIT)
        peer.kill()
        peer.wait()
        came, went = told.wait(2)  # no call on it runs
        assert came[:1] == ("came",) and came[1] is went[1]
        assert isinstance(went[2], tensormsg.PeerLost)
        assert f"pid {peer.pid}" in came[1].peer
        assert f"pid {peer.pid}" in str(went[2]) and went[2].peer
        assert server.peers == [] and came[1].closed
    assert told.threads == {"tensormsg-peers"}
    connected, lost = [record for record in caplog.records
                       if f"pid {peer.pid}" in record.getMessage()]
    assert (connected.levelname, lost.levelname) == ("INFO", "WARNING")
    assert connected.getMessage().endswith("): connected")
    assert lost.getMessage().startswith("lost tcp://")


def test_a_receive_logs_that_a_peer_was_lost(caplog, silent_library):
    with tensormsg.listen(":0", background=True) as server:
        ep = sync.connect(server.url)
        ep.send({"x": np.ones(1)})
        server.recv(WAIT)
        ep.abort()
        deadline = time.monotonic() + WAIT
        while "lost tcp://" not in caplog.text:
            assert time.monotonic() < deadline
            with pytest.raises(tensormsg.TimedOut):
                server.recv(.05)
    assert caplog.text.count("lost ") == 1


def check_ends(told, reason=type(None)):
    came, went = told.wait(2)
    assert (came[0], went[0]) == ("came", "went")
    assert came[1] is went[1] and isinstance(went[2], reason)
    assert len(told.events) == 2
    return came[1].peer


@pytest.mark.parametrize("background", [False, True])
def test_without_asyncio(background, caplog, silent_library):
    told = Told()

    def visit():
        with sync.connect(server.url) as ep:
            ep.send({"x": np.ones(3)})

    with caplog.at_level(logging.INFO, "tensormsg"), \
            sync.listen(":0", background=background, **told.how) as server:
        thread = threading.Thread(target=visit)
        thread.start()
        server.recv(WAIT)
        deadline = time.monotonic() + WAIT
        while len(told.events) < 2:  # where nothing moves by itself
            assert time.monotonic() < deadline
            with pytest.raises(tensormsg.TimedOut):
                server.recv(.05)
        thread.join()
        name = check_ends(told)
    assert [record.getMessage() for record in caplog.records
            if name in record.getMessage()] == [f"{name}: connected",
                                                f"{name}: closed"]


def test_an_end_by_this_side_is_told_too():
    told = Told()
    with sync.listen(":0", background=True, **told.how) as server:
        ep = sync.connect(server.url, background=True)
        ep.send({"x": np.ones(3)})
        server.recv(WAIT).peer.abort()
        assert "pid" in check_ends(told)
        ep.abort()


def test_the_end_of_the_listener_is_one_of_all_its_peers():
    told = Told()
    server = sync.listen(":0", background=True, **told.how)
    ep = sync.connect(server.url, background=True)
    told.wait(1)
    server.abort()
    check_ends(told)
    ep.abort()


def test_a_function_may_fail_and_may_end_the_listener(caplog):
    ended = threading.Event()

    def came(peer):
        peer.send({"x": np.ones(1)}, acked=True, timeout=WAIT)
        raise SystemExit("no")

    def went(peer, error):
        server.abort()
        ended.set()
        raise ValueError("nor this")

    server = sync.listen(":0", background=True, on_peer=came, on_lost=went)
    ep = sync.connect(server.url, background=True)
    ep.recv(WAIT)
    ep.abort()
    assert ended.wait(WAIT)
    assert "on_peer or on_lost failed" in caplog.text
    with pytest.raises(tensormsg.Closed):
        server.recv(WAIT)


def test_what_cannot_be_called_is_refused():
    with pytest.raises(TypeError, match="on_peer is a function, not 7"):
        tensormsg.listen(":0", on_peer=7)

    async def later(peer):
        pass

    with pytest.raises(TypeError, match="a coroutine needs asyncio"):
        sync.listen(":0", on_peer=later)
    listening = tensormsg.listen(":0", on_peer=later)
    with pytest.raises(TypeError, match="a coroutine needs asyncio"), \
            listening:
        pass


def test_asyncio():
    told, loop_thread = Told(), threading.current_thread().name
    spoken = []

    async def greet(peer):
        told.came(peer)
        await peer.send({"hello": np.ones(1)})
        spoken.append(peer)

    async def main():
        async with tensormsg.listen(":0", on_peer=greet,
                                    on_lost=told.went) as server:
            async with tensormsg.connect(server.url) as ep:
                await ep.recv()
            while len(told.events) < 2:
                await asyncio.sleep(.001)
            peer = server.url
        return peer

    run(main)
    check_ends(told)
    assert told.threads == {loop_thread} and spoken == [told.events[0][1]]


def test_presence_with_asyncio():
    async def main():
        seen = []

        async def follow(server, here):
            async for event in server.presence():
                seen.append(event)
                here.release()

        here = asyncio.Semaphore(0)
        async with tensormsg.listen(":0") as server:
            first = await tensormsg.connect(server.url)
            while not server.peers:
                await asyncio.sleep(.001)
            task = asyncio.ensure_future(follow(server, here))
            await here.acquire()  # who is there already
            second = await tensormsg.connect(server.url)
            await here.acquire()
            await first.close()
            await here.acquire()
            second.abort()
            await here.acquire()
            third = await tensormsg.connect(server.url)
            await here.acquire()
        await task  # the listener is closed
        assert [event.joined for event in seen] == [
            True, True, False, False, True, False]
        assert [event.peer for event in seen] == [
            seen[0].peer, seen[1].peer, seen[0].peer, seen[1].peer,
            seen[4].peer, seen[4].peer]
        assert [type(event.error) for event in seen[2:]] == [
            type(None), tensormsg.PeerLost, type(None), type(None)]
        assert isinstance(seen[0], tensormsg.PeerEvent)
        third.abort()

    run(main)


@pytest.mark.parametrize("background", [False, True])
def test_presence_without_asyncio(background):
    with sync.listen(":0", background=background) as server:
        events = server.presence()
        ep = sync.connect(server.url, background=True) if background else None
        if ep is None:  # the listener moves while next() runs
            opened = []
            thread = threading.Thread(target=lambda: opened.append(
                sync.connect(server.url, background=True)))
            thread.start()
        came = next(events)
        if ep is None:
            thread.join()
            ep, = opened
        assert came.joined and came.error is None
        assert came.peer in server.peers
        ep.abort()
        went = next(events)
        assert not went.joined and went.peer is came.peer
        assert isinstance(went.error, tensormsg.PeerLost)
        server.abort()
        assert list(events) == []


def test_events_that_nobody_reads_are_bounded():
    from tensormsg import _presence
    presence = _presence.Presence()
    watch = presence.watch()
    stays = object()
    presence.came(stays)
    for _ in range(3 * _presence.MOST_UNREAD):
        peer = object()
        presence.came(peer)
        presence.went(peer)
    assert len(watch.events) <= _presence.MOST_UNREAD + 1
    seen = list(iter(watch.oldest, None))
    assert seen[0].peer is stays
    assert sum(1 if event.joined else -1 for event in seen) == 1


def test_a_publisher_tells_of_its_subscribers():
    told = Told()
    with tensormsg.publish(":0", **told.how) as camera:
        events = camera.presence()
        with sync.connect(camera.url) as viewer:
            came = next(events)
            camera.send({"x": np.ones(3)})
            viewer.recv(WAIT)
        assert came.joined and not next(events).joined
        check_ends(told)


def test_one_that_comes_back_has_not_gone():
    told = Told()
    with sync.listen(":0", background=True, reconnect=True,
                     **told.how) as server, Cable(server.url) as cable, \
            sync.connect(cable.url, background=True, reconnect=True,
                         backoff=(.01, .05)) as ep:
        ep.send({"x": np.ones(1)}, timeout=WAIT)
        server.recv(WAIT)
        cable.cut()
        until(lambda: ep.connected and ep.describe()["reconnected"] == 1)
        ep.send({"x": np.ones(1)}, timeout=WAIT)
        server.recv(WAIT)
        assert [event[0] for event in told.events] == ["came"]
    check_ends(told)


def test_no_thread_is_left():
    told = Told()
    with sync.listen(":0", background=True, **told.how):
        assert "tensormsg-peers" in [thread.name for thread in
                                     threading.enumerate()]
    deadline = time.monotonic() + WAIT
    while "tensormsg-peers" in [thread.name for thread in
                                threading.enumerate()]:
        assert time.monotonic() < deadline
        time.sleep(.001)
    server = sync.listen(":0", **told.how)
    del server  # where nobody holds it any more, too
    while "tensormsg-peers" in [thread.name for thread in
                                threading.enumerate()]:
        assert time.monotonic() < deadline
        time.sleep(.001)
