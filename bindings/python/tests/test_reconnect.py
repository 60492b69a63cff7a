# SPDX-License-Identifier: BSD-3-Clause
"""Connections that break while both sides live come back by themselves, and
nothing that was acknowledged, or is to be, is lost or comes twice. Without a
session they end, with words that are true."""

import asyncio
import json
import math
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import tensormsg
from conftest import HERE, WAIT, environment
from silenced import ASYNCIO, BLOCKING, TIMEOUT

SOON = {"reconnect": True, "backoff": (.005, .02)}


class Cable:
    """What connections to a listener go through, and can be cut."""

    def __init__(self, url):
        host, _, port = url.rpartition("//")[2].rpartition(":")
        self._to = host, int(port)
        self._door = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._ends = set()
        self._out = False
        self.cuts = 0
        self.url = "127.0.0.1:%d" % self._door.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                near, _ = self._door.accept()
            except OSError:
                return
            with self._lock:
                if self._out:
                    near.close()
                    continue
                far = socket.create_connection(self._to)
                self._ends |= {near, far}
            for one, other in (near, far), (far, near):
                threading.Thread(target=self._pump, args=(one, other),
                                 daemon=True).start()

    def _pump(self, one, other):
        try:
            while True:
                data = one.recv(65536)
                if not data:
                    break
                other.sendall(data)
        except OSError:
            pass
        for end in one, other:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self, stays_out=False):
        with self._lock:
            self._out = stays_out
            ends, self._ends = self._ends, set()
            self.cuts += bool(ends)
            for end in ends:
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
                end.close()

    def mend(self):
        self._out = False

    def __enter__(self):
        return self

    def __exit__(self, *why):
        self._door.close()
        self.cut(True)


def until(holds):
    end = time.monotonic() + WAIT
    while not holds():
        assert time.monotonic() < end
        time.sleep(.002)


async def auntil(holds):
    end = time.monotonic() + WAIT
    while not holds():
        assert time.monotonic() < end
        await asyncio.sleep(.002)


@pytest.mark.parametrize("key", [None, bytes(range(32))])
def test_what_is_acked_comes_once_and_in_order(mode, key):
    """Under a cable that is cut again and again."""
    got, count = [], 0
    with tensormsg.listen(":0", reconnect=True, background=True,
                          key=key) as server, Cable(server.url) as cable:
        def receive():
            for msg in server:
                got.append((msg.meta["i"], int(msg["x"][-1]), msg.peer))
                if msg.meta["i"] == -1:
                    return

        receiving = threading.Thread(target=receive, daemon=True)
        receiving.start()

        async def scenario(ep):
            nonlocal count
            while count < 60 or cable.cuts < 6:
                assert count < 100000
                if count >= 10 * cable.cuts + 5 and cable.cuts < 6:
                    cable.cut()  # once it is back from the cut before
                await ep.send({"x": np.full(1000 * (count % 3) + 1, count)},
                              i=count, acked=True)
                count += 1
            about = getattr(ep, "endpoint", ep).describe()
            assert about["reconnects"] and about["reconnected"] > 0
            await ep.send({"x": np.zeros(1)}, i=-1, acked=True)

        mode.run(cable.url, scenario, key=key, **SOON)
        receiving.join(WAIT)
        assert [pair[:2] for pair in got] == [(i, i) for i in range(count)] + [
            (-1, 0)]
        assert len({pair[2] for pair in got}) == 1, "one peer, all the time"


def test_it_is_away_and_back():
    with tensormsg.listen(":0", reconnect=30, background=True) as server, \
            Cable(server.url) as cable, \
            tensormsg.connect(cable.url, background=True, reconnect=30,
                              backoff=(.005, .02)) as ep:
        ep.send({"x": np.arange(3)}, timeout=WAIT)
        peer = server.recv(WAIT).peer
        assert ep.connected and peer.connected
        ep.ready(WAIT)
        cable.cut(stays_out=True)
        until(lambda: not ep.connected and not peer.connected)
        assert not ep.closed and not peer.closed
        with pytest.raises(tensormsg.TimedOut, match="to come back"):
            ep.ready(.05)
        with pytest.raises(tensormsg.TimedOut):
            ep.send({"x": np.arange(3)}, i=0, acked=True, timeout=.05)
        sender = threading.Thread(
            target=ep.send, args=({"x": np.arange(3)},),
            kwargs={"acked": True, "i": 1, "timeout": WAIT})
        sender.start()
        cable.mend()
        ep.ready(WAIT)
        assert ep.connected
        assert server.recv(WAIT).meta["i"] == 1
        sender.join(WAIT)
        assert not sender.is_alive()
        peer.send({"x": np.arange(2)}, timeout=WAIT)
        assert len(ep.recv(WAIT)["x"]) == 2
    assert not ep.connected and ep.closed


def test_a_task_waits_while_it_is_away():
    async def main():
        async with tensormsg.listen(":0", reconnect=True) as server, \
                tensormsg.connect(server.url) as direct:
            await direct.send({"x": np.arange(1)})
            await server.recv()
            with Cable(server.url) as cable:
                ep = await tensormsg.connect(cable.url, **SOON)
                await ep.send({"x": np.arange(3)})
                peer = (await server.recv()).peer
                waiting = asyncio.ensure_future(ep.recv())
                await asyncio.sleep(0)
                cable.cut(stays_out=True)
                await auntil(lambda: not ep.connected)
                await auntil(lambda: not peer.connected)
                sending = asyncio.ensure_future(
                    peer.send({"x": np.arange(7)}, acked=True))
                with pytest.raises(tensormsg.TimedOut):
                    await ep.ready(.02)
                assert not sending.done() and not waiting.done()
                await direct.send({"x": np.arange(2)})  # others go on
                assert len((await server.recv())["x"]) == 2
                cable.mend()
                assert len((await asyncio.wait_for(waiting, WAIT))["x"]) == 7
                await asyncio.wait_for(sending, WAIT)
                await ep.ready(WAIT)
                await ep.close()

    asyncio.run(main())


def test_calls_and_streams_go_on():
    async def main():
        async with tensormsg.listen(":0", reconnect=True) as listener:
            server = listener.serve()
            ran = []

            @server.method("slow")
            async def slow(request):
                ran.append(request["i"])
                await asyncio.sleep(.05)
                return {"i": request["i"]}

            @server.method("twice")
            async def twice(stream):
                async for msg in stream:
                    yield {"y": 2 * msg["x"]}

            with Cable(listener.url) as cable:
                async with tensormsg.connect(cable.url, **SOON) as ep, \
                        ep.stream("twice") as stream:
                    for i in range(5):
                        call = asyncio.ensure_future(
                            ep.call("slow", {"i": i}, timeout=WAIT))
                        await stream.send({"x": np.full(3, i)})
                        await asyncio.sleep(.01)
                        cable.cut()
                        assert (await call)["i"] == i
                        assert (await stream.recv())["y"][0] == 2 * i
                assert cable.cuts == 5 and ran == list(range(5))

    asyncio.run(asyncio.wait_for(main(), WAIT))


@pytest.mark.parametrize("face", ["asyncio", "blocking"])
def test_streams_go_ahead_of_their_readers(face):
    """Of a session, too, which keeps what it may send again: either side sends
    before it reads, and may change the arrays at once."""
    def check(read):
        assert [int(msg["x"][-1]) for msg in read] == list(range(10))

    async def main():
        async with tensormsg.listen(":0", reconnect=True) as listener, \
                tensormsg.connect(listener.url, reconnect=True) as ep:
            @listener.serve().method("both", stream=True)
            async def both(stream):
                x = np.zeros(30000)
                for i in range(10):
                    x[:] = i
                    await stream.send({"x": x})
                check([msg async for msg in stream])

            async with ep.stream("both", timeout=WAIT) as stream:
                x = np.zeros(30000)
                for i in range(10):
                    x[:] = i
                    await stream.send({"x": x})
                await stream.done_writing()
                check([msg async for msg in stream])

    if face == "asyncio":
        asyncio.run(asyncio.wait_for(main(), WAIT))
        return
    with tensormsg.sync.listen(":0", reconnect=True) as listener, \
            listener.serve() as server, \
            tensormsg.sync.connect(listener.url, reconnect=True) as ep:
        @server.method("both", stream=True)
        def answer(stream):
            x = np.zeros(30000)
            for i in range(10):
                x[:] = i
                stream.send({"x": x})
            check(list(stream))

        with ep.stream("both", timeout=WAIT) as stream:
            x = np.zeros(30000)
            for i in range(10):
                x[:] = i
                stream.send({"x": x}, timeout=WAIT)
            stream.done_writing()
            check(list(stream))


@pytest.mark.parametrize("there, here", [(None, True), (True, None),
                                         (False, False)])
def test_both_sides_have_to_wish_it(there, here):
    with tensormsg.listen(":0", reconnect=there, background=True) as server, \
            Cable(server.url) as cable:
        ep = tensormsg.sync.connect(cable.url, reconnect=here,
                                    same_process=True)
        ep.send({"x": np.arange(3)}, timeout=WAIT)
        server.recv(WAIT)
        assert not ep.describe()["reconnects"]
        cable.cut()
        with pytest.raises(tensormsg.PeerLost):
            ep.recv(WAIT)
        assert ep.closed and not ep.connected
        ep.abort()


def test_it_gives_up_in_time(mode):
    with tensormsg.listen(":0", reconnect=.4, background=True) as server, \
            Cable(server.url) as cable:
        async def scenario(ep):
            await ep.send({"x": np.arange(3)})
            server.recv(WAIT)
            cable.cut(stays_out=True)
            await ep.recv()

        since = time.monotonic()
        with pytest.raises(tensormsg.PeerLost):
            mode.run(cable.url, scenario, reconnect=.3, backoff=(.01, .01))
        assert .25 < time.monotonic() - since < WAIT


def test_it_may_never_give_up():
    with tensormsg.listen(":0", reconnect=math.inf, background=True) as server, \
            Cable(server.url) as cable, \
            tensormsg.connect(cable.url, reconnect=math.inf,
                              backoff=(.005, .02)) as ep:
        cable.cut()
        sending = threading.Thread(
            target=ep.send, args=({"x": np.arange(3)},),
            kwargs={"acked": True, "timeout": WAIT})
        sending.start()
        assert len(server.recv(WAIT)["x"]) == 3
        sending.join(WAIT)
        ep.ready(WAIT)


@pytest.mark.parametrize("value", [0, -1, math.nan, "60", 0.0, []])
def test_what_is_no_time_is_refused(value):
    for use in tensormsg.connect, tensormsg.listen, tensormsg.publish:
        with pytest.raises((ValueError, TypeError),
                           match="reconnect=.*math.inf for no limit; None or "
                           "False keeps nothing"):
            use(":0", reconnect=value)
    with pytest.raises((ValueError, TypeError), match="backoff"):
        tensormsg.connect(":0", backoff=(-1, 5))
    with pytest.raises((ValueError, TypeError), match="backoff"):
        tensormsg.connect(":0", backoff=3)


@pytest.mark.parametrize("value", [5, 0.5, 1, None, "yes"])
def test_wait_takes_no_seconds(value):
    for connect in tensormsg.connect, tensormsg.sync.connect:
        with pytest.raises(TypeError, match="wait=.*timeout= is the seconds"):
            connect(":0", wait=value)


def test_by_ucx_nothing_comes_back():
    with pytest.raises(tensormsg.Unsupported):
        tensormsg.listen("ucx://:0", reconnect=True)


LATE = 4  # seconds more, for a machine that is busy
ALONE = ["unshare", "--net"]


@pytest.fixture(scope="module")
def silenced():
    """A firewall silences UCX's TCP connection, or the one for large payloads,
    and heartbeats go on."""
    if subprocess.run([*ALONE, "nft", "list", "ruleset"],
                      capture_output=True).returncode != 0:
        pytest.skip("no leave to make a network namespace, or no nft")
    ran = subprocess.run([*ALONE, sys.executable, HERE / "silenced.py"],
                         stdout=subprocess.PIPE, text=True, timeout=2 * WAIT,
                         env={**environment(), "UCX_TLS": "tcp,self"})
    assert ran.returncode == 0
    print(ran.stdout)
    return {name: end for name, *end in map(json.loads,
                                            ran.stdout.splitlines())}


@pytest.mark.parametrize("name", [*BLOCKING, *ASYNCIO])
def test_what_waits_on_a_silent_path(silenced, name):
    raised, took, words = silenced[name]
    assert took < 2 * TIMEOUT + LATE
    if "session" in name:
        assert raised == "", words
    elif "in time" in name:
        assert raised == "TimedOut", words
        assert "its host does not acknowledge what is sent" in words
        assert "takes no messages" not in words
    else:
        assert raised == "PeerLost", words
        assert "nothing was acknowledged there" in words
