# SPDX-License-Identifier: BSD-3-Clause
"""A server that is killed and started anew: an endpoint with reconnect= goes on
by a new session, what was under way ends by name, and the application is told."""

import asyncio
import contextlib
import gc
import threading
import time
import weakref

import numpy as np
import pytest

import tensormsg
from conftest import WAIT, without_loop
from kills import Blocking
from restarted import Restarted
from tensormsg import sync

SOON = {"reconnect": 60, "backoff": (.005, .02)}
FACES = ["asyncio", "blocking", "background"]


@pytest.fixture(scope="module")
def forks():
    made = Restarted()
    yield made
    made.close()


@pytest.fixture
def server(forks):
    yield forks
    forks.kill()


@pytest.fixture(params=["tcp", "unix"])
def way(request, tmp_path):
    """A place, and for how long its listener keeps sessions: not at all in one
    of them."""
    return (":0", 0) if request.param == "tcp" else (
        f"unix://{tmp_path}/socket", 60)


@pytest.fixture(params=FACES)
def face(request):
    return request.param


class Face:
    """An endpoint of a face, under the names of asyncio's, and work beside it."""

    def __init__(self, name, ep):
        self.ep = ep if name == "asyncio" else Blocking(ep)
        self.plain = ep
        self.name = name

    def __getattr__(self, name):
        return getattr(self.ep, name)

    def begin(self, coroutine):
        """It goes on: await what this returns for its result."""
        if self.name == "asyncio":
            return asyncio.ensure_future(coroutine)
        return asyncio_like(coroutine)

    async def until(self, holds):
        """Drives the endpoint meanwhile."""
        end = time.monotonic() + WAIT
        while not holds():
            assert time.monotonic() < end
            if self.name == "asyncio":
                await asyncio.sleep(.002)
            else:
                self.plain._hub._move()
                time.sleep(.002)


def asyncio_like(coroutine):
    """What a thread runs meanwhile."""
    went = []

    def run():
        try:
            went.append((without_loop(coroutine), None))
        except BaseException as error:
            went.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    class Later:
        def done(self):
            return not thread.is_alive()

        def __await__(self):
            thread.join(WAIT)
            (result, error), = went
            if error is not None:
                raise error
            return result
            yield

    return Later()


def run(face, url, scenario, **options):
    """`scenario` with an endpoint, in that face."""
    async def main():
        async with tensormsg.connect(url, **options) as ep:
            await scenario(Face(face, ep))

    if face == "asyncio":
        asyncio.run(asyncio.wait_for(main(), 2 * WAIT))
        return
    with tensormsg.connect(url, background=face == "background",
                           **options) as ep:
        without_loop(scenario(Face(face, ep)))


async def fails(awaitable, kind=tensormsg.PeerLost):
    with pytest.raises(kind) as caught:
        await awaitable
    assert type(caught.value) is kind
    return caught.value


def test_the_next_call_goes_to_the_new_server(server, way, face):
    url, kept = server.start(*way), way[1]
    first = server.pid
    told = []

    async def scenario(ep):
        assert (await ep.call("add", {"x": 1}, timeout=WAIT))["pid"] == first
        assert ep.plain.status == "connected"
        server.kill()
        await ep.until(lambda: not ep.plain.connected)
        assert "reconnecting" in ep.plain.status and not ep.plain.closed
        assert "reconnecting" in repr(ep.plain)
        calling = ep.begin(ep.call("add", {"x": 2}, timeout=WAIT))
        sending = ep.begin(ep.send({}, n=7, acked=True, timeout=WAIT))
        await fails(ep.call("add", {"x": 2}, timeout=.02), tensormsg.TimedOut)
        server.start(url, kept)
        reply = await calling
        assert reply["y"] == 3 and reply["pid"] == server.pid != first
        await sending
        taken = []
        while not taken:  # it is acknowledged a moment before
            taken = (await ep.call("taken", timeout=WAIT))["n"].tolist()
        assert taken == [7]
        assert ep.plain.status == "connected"
        assert f"pid {server.pid}" in ep.plain.peer
        assert ep.plain.describe()["sessions"] == 2
        await ep.until(lambda: len(told) == 2)

    run(face, url, scenario, on_session=told.append, **SOON)
    assert [event.kind for event in told] == ["away", "new"]
    assert f"pid {server.pid}" in told[1].words


def test_what_was_under_way_ends_by_name(server, way, face):
    url, kept = server.start(*way), way[1]

    async def scenario(ep):
        pid = {"pid": server.pid}
        async with contextlib.AsyncExitStack() as opened:
            stream = await opened.enter_async_context(ep.stream("count"))
            await stream.send({"n": 1})
            assert (await stream.recv())["n"] == 1
            # By this reply it is known that it is idempotent.
            await ep.call("held", {"pid": 0}, timeout=WAIT, attempts=2)
            calls = {name: ep.begin(ep.call(name, pid, timeout=WAIT,
                                            attempts=3))
                     for name in ("hold", "held")}
            fetch = ep.begin(ep.fetch(name="later", wait=None, timeout=WAIT))
            while (await ep.call("taken", timeout=WAIT))["inside"] < 3:
                pass
            server.kill()
            server.start(url, kept)
            error = await fails(calls["hold"])
            assert error.may_have_run and "taken or not" in str(error)
            assert (await calls["held"])["pid"] == server.pid
            await fails(fetch)
            await fails(stream.recv())
        for data in {"n": 1}, {"n": 2}:
            async with ep.stream("count") as stream:
                await stream.send(data)
                assert (await stream.recv())["pid"] == server.pid
        assert (await ep.fetch(name="weights", timeout=WAIT))[
            "pid"][-1] == server.pid

    run(face, url, scenario, **SOON)


def test_a_send_that_was_not_acknowledged(server, face):
    """Nobody takes it before the server is killed: it says so."""
    url = server.start(":0", 60)

    async def scenario(ep):
        pid = {"pid": server.pid}
        hold = ep.begin(ep.call("hold", pid, timeout=WAIT))
        while (await ep.call("taken", timeout=WAIT))["inside"] < 1:
            pass
        sends = [ep.begin(ep.send({"x": np.zeros(1 << 20)}, n=n, acked=True,
                                  timeout=WAIT)) for n in range(3)]
        server.kill()
        server.start(url, 60)
        await fails(hold)
        for n, send in enumerate(sends):
            try:
                await send
            except tensormsg.PeerLost as error:
                assert "taken or not" in str(error)
        await ep.send({}, n=100, acked=True, timeout=WAIT)

    run(face, url, scenario, **SOON)


def test_subscriptions_come_back(server, way, face):
    url, kept = server.start(*way, rate=500), way[1]
    seen = []

    async def scenario(ep):
        pids = []
        if face == "asyncio":
            async for message in ep.plain:
                pids.append(int(message["pid"]))
                if add(pids):
                    break
        else:
            for message in ep.plain:
                pids.append(int(message["pid"]))
                if add(pids):
                    break
        seen.extend(pids)
        ep.plain.abort()  # the publisher goes on

    def add(pids):
        if len(pids) == 5:
            server.kill()
            server.start(url, kept, rate=500)
        return len(pids) > 10 and pids[-5] != pids[0]

    run(face, url, scenario, **SOON)
    assert seen == sorted(seen, key=seen.index) and len(set(seen)) == 2


def test_what_is_live_stays_so(server):
    """Of what is sent while nobody is there the new server gets the newest."""
    url = server.start(":0")
    with sync.connect(url, background=True, **SOON) as ep:
        ep.set_queue("live")
        ep.send({"x": 0}, n=0, acked=True)
        server.kill()
        end = time.monotonic() + WAIT
        while ep.connected:
            assert time.monotonic() < end
            time.sleep(.002)
        for n in range(1, 20):
            ep.send({"x": n}, n=n)
        server.start(url)
        ep.ready(WAIT)
        ep.send({"x": 20}, n=20, acked=True, timeout=WAIT)
        taken = []
        while 20 not in taken:  # it has it, and is about to note that
            taken = ep.call("taken", timeout=WAIT)["n"].tolist()
        assert taken in ([20], [19, 20])
        queue = ep.describe()["queue"]
        assert queue["policy"] == "newest" and queue["under_way"] == 0


def start_in_order(place, serves=True):
    """A listener that can be closed in order, in this process: by its context it
    is another one for its peers."""
    listener = sync.listen(place, context=tensormsg.Context(), reconnect=60,
                           background=not serves)
    if serves:
        listener.serve().method("add")(lambda request: {"y": request["x"] + 1})
    return listener


async def close_in_order(ep, listener):
    thread = threading.Thread(target=listener.close, args=(WAIT,))
    thread.start()
    await ep.until(lambda: not thread.is_alive())


def test_a_server_that_ends_in_order_is_looked_for(face):
    """It has drained, and says that it shuts down."""
    listener = start_in_order(":0")
    told = []

    async def scenario(ep):
        nonlocal listener
        assert (await ep.call("add", {"x": 1}, timeout=WAIT))["y"] == 2
        await close_in_order(ep, listener)
        await ep.until(lambda: not ep.plain.connected)
        listener = start_in_order(listener.url)
        assert (await ep.call("add", {"x": 2}, timeout=WAIT))["y"] == 3
        await ep.until(lambda: len(told) == 2)

    run(face, listener.url, scenario, on_session=told.append, **SOON)
    assert [event.kind for event in told] == ["away", "new"]
    listener.abort()


def test_who_serves_nothing_ends_in_order_for_good(face):
    listener = start_in_order(":0", serves=False)

    async def scenario(ep):
        await ep.send({}, timeout=WAIT)
        await close_in_order(ep, listener)
        await fails(ep.recv(), tensormsg.Closed)

    run(face, listener.url, scenario, **SOON)


def test_an_endpoint_of_one_process_ends(server, face):
    url = server.start(":0", 60)

    async def scenario(ep):
        assert (await ep.call("add", {"x": 1}, timeout=WAIT))["y"] == 2
        server.kill()
        server.start(url, 60)
        error = await fails(ep.recv())
        assert "restarted" in str(error)
        assert ep.plain.closed and "restarted" in ep.plain.status

    with contextlib.suppress(tensormsg.PeerLost):  # as the block ends
        run(face, url, scenario, same_process=True, **SOON)


def test_it_gives_up(server, face):
    url = server.start(":0", 60)

    async def scenario(ep):
        assert (await ep.call("add", {"x": 1}, timeout=WAIT))["y"] == 2
        server.kill()
        assert "gave up" in str(await fails(ep.recv()))
        assert ep.plain.closed and "gave up" in ep.plain.status

    with contextlib.suppress(tensormsg.PeerLost):  # as the block ends
        run(face, url, scenario, reconnect=.1, backoff=(.005, .02))


def test_many_restarts_of_one_endpoint(server, face):
    url = server.start(":0", 60)
    told = []

    async def scenario(ep):
        for n in range(1, 4):
            reply = await ep.call("add", {"x": n}, timeout=WAIT)
            assert reply["pid"] == server.pid
            await ep.send({}, n=n, answer=True, timeout=WAIT)
            message = await ep.recv()
            assert message["pid"] == server.pid
            assert message.peer is ep.plain
            assert ep.plain.describe()["sessions"] == n
            server.kill()
            server.start(url, 60)
        await ep.ready(WAIT)
        await ep.until(lambda: len(told) == 6)

    run(face, url, scenario, on_session=told.append, **SOON)
    assert [event.kind for event in told] == 3 * ["away", "new"]
    assert len({event.endpoint for event in told}) == 1


def test_what_is_told_may_call(server, face):
    """As who logs in again; asyncio's by a coroutine. One that raises is
    logged, and others are told all the same."""
    url = server.start(":0", 60)
    went = []

    async def answer(ep, kind):
        went.append(kind)
        if kind == "new":
            went.append(int((await ep.call("add", {"x": 1}, timeout=WAIT))[
                "pid"]))
        raise ValueError("of the application")

    def on_session(event):
        answering = answer(Face(face, event.endpoint), event.kind)
        return answering if face == "asyncio" else without_loop(answering)

    async def scenario(ep):
        server.kill()
        server.start(url, 60)
        await ep.until(lambda: len(went) == 3)

    run(face, url, scenario, on_session=on_session, **SOON)
    assert went == ["away", "new", server.pid]


def test_failures_of_what_is_told_are_logged(server, face, caplog):
    def times(words):
        return sum(words in record.getMessage() for record in caplog.records)

    test_what_is_told_may_call(server, face)
    assert times("an on_session failed") == 2
    until = time.monotonic() + WAIT
    while times("a new session") == 0 and time.monotonic() < until:
        time.sleep(0.01)  # the library's lines come by a thread of their own
    assert times("a new session") == 1


def test_it_is_told_before_what_the_new_session_brings(server):
    """With asyncio."""
    url = server.start(":0", 60, rate=500)
    went = []

    async def main():
        async with tensormsg.connect(
                url, on_session=lambda event: went.append(event.kind),
                **SOON) as ep:
            async for message in ep:
                went.append(int(message["pid"]))
                if len(went) == 3:
                    server.kill()
                    server.start(url, 60, rate=500)
                if len(set(went)) > 3 and went[-1] == server.pid:
                    ep.abort()
                    return

    asyncio.run(asyncio.wait_for(main(), WAIT))
    assert went.index("new") == went.index(server.pid) - 1


def test_a_cut_connection_is_told_as_back(face):
    from test_reconnect import Cable
    told = []
    with tensormsg.listen(":0", reconnect=60, background=True) as listener, \
            Cable(listener.url) as cable:
        async def scenario(ep):
            await ep.send({"x": 1}, timeout=WAIT)
            cable.cut()
            await ep.until(lambda: len(told) == 2)
            assert ep.plain.describe()["sessions"] == 1

        run(face, cable.url, scenario, on_session=told.append, **SOON)
    assert [event.kind for event in told] == ["away", "back"]


def test_what_cannot_be_told_is_refused():
    async def later(event):
        pass

    for use in tensormsg.connect, sync.connect:
        with pytest.raises(ValueError, match="reconnect="):
            use(":1", on_session=print)
        with pytest.raises(TypeError, match="function"):
            use(":1", on_session=3, reconnect=1)
    for use in sync.connect, lambda *args, **more: tensormsg.connect(
            *args, **more).__enter__():
        with pytest.raises(TypeError, match="coroutine"):
            use(":1", on_session=later, reconnect=1)


def test_who_is_told_does_not_keep_the_endpoint(server):
    """A cycle by the callback ends with its last user, and so does its thread."""
    url = server.start(":0", 60)
    threads = threading.active_count()

    class User:
        def __init__(self):
            self.ep = sync.connect(url, on_session=self.on_session, **SOON)

        def on_session(self, event):
            pass

    user = weakref.ref(User())
    gc.collect()
    assert user() is None
    end = time.monotonic() + WAIT
    while threading.active_count() > threads:
        assert time.monotonic() < end
        time.sleep(.002)
