# SPDX-License-Identifier: BSD-3-Clause
"""Streams: each way and both, from asyncio and from calls that block."""

import asyncio
import contextlib
import gc
import itertools
import subprocess
import sys
import threading

import numpy as np
import pytest

import tensormsg
from conftest import environment, place_of, python

WAIT = 30  # seconds, before something is called a failure
BIG = 1 << 20  # elements


class Seen:
    """What the handlers did."""

    def __init__(self):
        self.yielded = 0
        self.read = 0
        self.begun = threading.Event()
        self.closed = threading.Event()
        self.go = threading.Event()


def offer_async(server, seen):
    @server.method("count", description="Counts.")
    async def count(stream):
        for i in range(int(stream.request["n"][0])):
            yield {"i": np.full(3, i)}

    @server.method("sum", stream=True)
    async def total(stream):
        value = 0.
        async for msg in stream:
            value += msg["x"].sum()
        return {"sum": np.array([value])}

    @server.method("twice")
    async def twice(stream):
        async for msg in stream:
            yield {"y": 2 * msg["x"]}

    @server.method("ever")
    async def ever(stream):
        seen.begun.set()
        try:
            for i in itertools.count():
                seen.yielded += 1
                yield {"i": np.array([i])}
        finally:
            seen.closed.set()

    @server.method("slow", stream=True)
    async def slow(stream):
        while not seen.go.is_set():
            await asyncio.sleep(.01)
        async for msg in stream:
            seen.read += 1

    @server.method("wait", stream=True)
    async def wait(stream):
        seen.begun.set()
        try:
            await stream.recv()
        finally:
            seen.closed.set()

    offer_both(server, seen)


def offer_sync(server, seen):
    @server.method("count", description="Counts.")
    def count(stream):
        for i in range(int(stream.request["n"][0])):
            yield {"i": np.full(3, i)}

    @server.method("sum", stream=True)
    def total(stream):
        return {"sum": np.array([sum(msg["x"].sum() for msg in stream)])}

    @server.method("twice")
    def twice(stream):
        for msg in stream:
            yield {"y": 2 * msg["x"]}

    @server.method("ever")
    def ever(stream):
        seen.begun.set()
        try:
            for i in itertools.count():
                seen.yielded += 1
                yield {"i": np.array([i])}
        finally:
            seen.closed.set()

    @server.method("slow", stream=True)
    def slow(stream):
        assert seen.go.wait(WAIT)
        for msg in stream:
            seen.read += 1

    @server.method("wait", stream=True)
    def wait(stream):
        seen.begun.set()
        try:
            stream.recv()
        finally:
            seen.closed.set()

    offer_both(server, seen)


def offer_both(server, seen):
    @server.method("fail")
    def fail(stream):
        yield {"i": np.zeros(1)}
        raise tensormsg.CallError("too dark", code=-7,
                                  details={"level": np.arange(3), "at": "x"})

    @server.method("break")
    def broken(stream):
        yield {"i": np.zeros(1)}
        raise KeyError("no\nsuch")

    @server.method("lie")
    def lie(stream):
        yield {"x": object()}

    @server.method("about")
    def about(stream):
        assert stream.method == "about" and stream.principal is None
        assert 0 < stream.remaining <= WAIT and not stream.over
        assert "pid" in stream.peer.peer and stream.request.meta["frame"] == 7
        yield {"tree": stream.request.tree()}

    @server.method("call")
    def call(request):
        return {}


class Blocking:
    """A sync.Stream under the names of the asynchronous one."""

    def __init__(self, stream):
        self.stream = stream

    def __getattr__(self, name):
        return getattr(self.stream, name)

    async def send(self, *args, timeout=WAIT, **more):
        self.stream.send(*args, timeout=timeout, **more)

    async def recv(self, timeout=WAIT):
        return self.stream.recv(timeout)

    async def wait(self, timeout=WAIT):
        self.stream.wait(timeout)

    async def done_writing(self):
        self.stream.done_writing()

    async def __aiter__(self):
        for message in self.stream:
            yield message

    async def __aenter__(self):
        self.stream.__enter__()
        return self

    async def __aexit__(self, *error):
        self.stream.__exit__(*error)


def context_of(transport):
    return tensormsg.Context(
        ucx_config="TLS=tcp" if transport == "tcp" else None)


@pytest.fixture(params=["asyncio-tcp", "asyncio-unix", "uvloop-unix",
                        "sync-tcp", "sync-unix"])
def serve(request, tmp_path):
    """Runs a scenario, a coroutine of (how to open a stream, what handlers
    saw), written for asyncio, in each of the ways."""
    mode, transport = request.param.split("-")

    def run(scenario, **more):
        place, context = place_of(transport, tmp_path), context_of(transport)
        seen = Seen()

        async def main():
            async with tensormsg.listen(place, context=context,
                                        **more) as listener:
                async with listener.serve() as server:
                    offer_async(server, seen)
                    async with tensormsg.connect(listener.url,
                                                 context=context) as ep:
                        await asyncio.wait_for(scenario(ep.stream, seen), WAIT)

        async def main_sync():
            with tensormsg.listen(place, background=True, context=context,
                                  **more) as listener, \
                    listener.serve(threads=2) as server:
                offer_sync(server, seen)
                # Driven between calls, too: a scenario waits for what the
                # server saw, and makes none meanwhile.
                with tensormsg.connect(listener.url, context=context,
                                       background=True) as ep:
                    await scenario(lambda *args, **more: Blocking(
                        ep.stream(*args, **more)), seen)

        if mode == "uvloop":
            pytest.importorskip("uvloop").run(main())
        else:
            asyncio.run(main() if mode == "asyncio" else main_sync())
    run.mode = mode
    return run


async def until(condition):
    for _ in range(WAIT * 100):
        if condition():
            return
        await asyncio.sleep(.01)
    raise AssertionError("it never came")


def test_each_way_and_both(serve):
    async def scenario(stream, seen):
        n = {"n": np.array([300])}
        async with stream("count", n) as s:
            got = [int(msg["i"][2]) async for msg in s]
            assert got == list(range(300)) and await s.recv() is None
        async with stream("sum") as s:
            for i in range(300):
                await s.send({"x": np.full(4, float(i))})
            await s.done_writing()
            await s.done_writing()
            assert (await s.recv())["sum"][0] == 4 * sum(range(300))
            with pytest.raises(tensormsg.Closed):
                await s.send({"x": np.zeros(1)})
        async with stream("twice") as s:
            for size in 0, 1, 1000, BIG:
                x = np.arange(float(size))
                await s.send({"x": x}, frame=size)
                assert np.array_equal((await s.recv())["y"], 2 * x)
            await s.done_writing()
            await s.wait()
        # Nothing is read: leaving the block waits for the end all the same.
        async with stream("twice") as s:
            for i in range(20):
                await s.send({"x": np.ones(9)})
        assert s.over
        async with stream("about", {"a": [np.arange(3), {"n": 1}], "s": "text"},
                          meta={"frame": 7}, timeout=WAIT) as s:
            tree = (await s.recv()).tree()["tree"]
            assert tree["s"] == "text" and tree["a"][1] == {"n": 1}
            assert 0 < s.remaining <= WAIT and s.method == "about"

    serve(scenario)


def test_how_it_ends(serve):
    async def scenario(stream, seen):
        async with stream("fail") as s:
            assert await s.recv() is not None
            with pytest.raises(tensormsg.ApplicationFailed,
                               match="too dark") as info:
                await s.recv()
            error = info.value
            assert (error.code, error.may_have_run) == (-7, True)
            assert error.details["at"] == "x" and "fail" in error.reason
            assert np.array_equal(error.details["level"], np.arange(3))
            with pytest.raises(tensormsg.ApplicationFailed):
                await s.send({"x": np.zeros(1)})
            with pytest.raises(tensormsg.ApplicationFailed):
                await s.done_writing()
        for method, kind, words, ran in (
                ("fail", tensormsg.ApplicationFailed, "too dark", True),
                ("break", tensormsg.Internal, "KeyError: 'no", True),
                ("lie", tensormsg.Internal, "neither an array", True),
                ("call", tensormsg.NotFound, "call", False),
                ("nothing", tensormsg.NotFound, "nothing", False)):
            with pytest.raises(kind, match=words) as info:
                async with stream(method) as s:
                    async for msg in s:
                        pass
            assert info.value.may_have_run is ran
            with pytest.raises(kind):  # and by leaving alone
                async with stream(method):
                    pass
        for wrong in {"timeout": -1}, {"queue": 0}:
            with pytest.raises(ValueError):
                stream("count", **wrong)
        with pytest.raises(ValueError):
            stream("a\0b")
        with pytest.raises(tensormsg.InvalidParam):
            stream("")
        with pytest.raises(TypeError):
            stream("count", {"x": object()})
        async with stream("twice") as s:
            with pytest.raises(TypeError):
                await s.send({"x": object()})
            with pytest.raises(TypeError, match="keep_strides= "):
                await s.send({"x": np.ones(1)}, keep_strides=True)
            await s.send({"x": np.ones(1)})  # it goes on

    serve(scenario)


def test_deadlines_and_cancels(serve):
    async def scenario(stream, seen):
        with pytest.raises(tensormsg.TimedOut) as info:
            async with stream("wait", timeout=1.5) as s:
                await s.recv()
        assert info.value.may_have_run is not None
        await until(seen.closed.is_set)

        seen.closed.clear()
        async with stream("ever") as s:
            async for msg in s:
                if msg["i"][0] == 20:
                    break
        await until(seen.closed.is_set)

        seen.closed.clear()
        async with stream("wait") as s:
            with pytest.raises(tensormsg.TimedOut, match="a message took more"):
                await s.recv(timeout=.02)
            with pytest.raises(tensormsg.TimedOut, match="the end of the strea"):
                await s.wait(.02)
            s.cancel()
            s.cancel()
            with pytest.raises(tensormsg.Canceled):
                await s.recv()
        seen.closed.clear()
        with pytest.raises(KeyError):
            async with stream("ever") as s:
                await s.recv()
                raise KeyError
        await until(seen.closed.is_set)

        seen.closed.clear()
        s = stream("ever")
        await s.recv()
        del s
        gc.collect()
        with pytest.raises(tensormsg.NotFound):  # which moves what there is
            await stream("nothing").wait()
        await until(seen.closed.is_set)

    serve(scenario)


def test_who_does_not_read_holds_the_other_up(serve):
    async def scenario(stream, seen):
        async with stream("ever") as s:
            await s.recv()
            await asyncio.sleep(.3)
            most = seen.yielded
            assert most < 400  # the window, the queue and what is under way
            for i in range(400):
                assert (await s.recv())["i"][0] == i + 1
            await until(lambda: seen.yielded > most)
            s.cancel()

        async with stream("slow", queue=3) as s:
            with pytest.raises(tensormsg.TimedOut, match="the send took more"):
                while True:
                    await s.send({"x": np.zeros(4)}, timeout=.1)
            s.cancel()

        s = stream("slow", queue=3)
        sent = 0

        async def write():
            nonlocal sent
            for i in range(400):
                await s.send({"x": np.zeros(4)})
                sent += 1
            await s.done_writing()

        if serve.mode == "sync":
            thread = threading.Thread(target=asyncio.run, args=(write(),))
            thread.start()
        else:
            writing = [asyncio.ensure_future(write())]
        await until(lambda: sent >= 4)
        await asyncio.sleep(.3)
        assert sent < 40
        seen.go.set()
        if serve.mode == "sync":
            thread.join(WAIT)
        else:
            await asyncio.gather(*writing)
        await s.wait()
        assert (sent, seen.read) == (400, 400)

    serve(scenario, queue_depth=8)


def test_tasks_that_wait_for_room_all_get_it():
    async def main():
        seen = Seen()
        async with tensormsg.listen(":0", queue_depth=2) as listener:
            server = listener.serve()
            offer_async(server, seen)
            async with tensormsg.connect(listener.url) as ep:
                s = ep.stream("slow", queue=1)
                writing = [asyncio.ensure_future(s.send({"x": np.zeros(4)}))
                           for _ in range(50)]
                await asyncio.sleep(.1)
                for task in writing[::5]:
                    task.cancel()
                seen.go.set()
                done = await asyncio.wait_for(asyncio.gather(
                    *writing, return_exceptions=True), WAIT)
                await s.done_writing()
                await asyncio.wait_for(s.wait(), WAIT)
                kept = sum(each is None for each in done)
                assert 40 <= seen.read and kept <= seen.read <= 50

    asyncio.run(main())


def test_many_streams_at_once():
    async def main():
        async with tensormsg.listen(":0") as listener:
            server = listener.serve()
            offer_async(server, Seen())

            async def one(ep, n):
                async with ep.stream("twice") as s:
                    for i in range(10):
                        await s.send({"x": np.full(n, float(i))})
                        assert ((await s.recv())["y"] == 2 * i).all()

            async with tensormsg.connect(listener.url) as ep:
                await asyncio.wait_for(asyncio.gather(
                    *(one(ep, n + 1) for n in range(100))), WAIT)
                with contextlib.ExitStack() as stack:
                    open_ = [ep.stream("wait") for _ in range(512)]
                    stack.callback(open_.clear)
                    with pytest.raises(tensormsg.ResourceExhausted):
                        ep.stream("wait")

    asyncio.run(main())


def test_either_side_opens():
    with tensormsg.listen(":0", background=True) as listener, \
            tensormsg.connect(listener.url, background=True) as ep, \
            ep.serve() as server:
        offer_sync(server, Seen())
        ep.send({"hello": np.zeros(1)})
        with listener.recv(WAIT).peer.stream("count",
                                             {"n": np.array([5])}) as s:
            assert [int(msg["i"][0]) for msg in s] == list(range(5))


def test_what_a_handler_may_not_be():
    with tensormsg.listen(":0") as listener, listener.serve() as server:
        async def coroutine(stream):
            yield {}

        with pytest.raises(TypeError, match="asyncio"):
            server.method("a")(coroutine)
        with pytest.raises(TypeError, match="generator"):
            server.method("b", stream=False)(lambda stream: (yield {}))


PEER = """
import asyncio, os, sys
import numpy as np
import tensormsg

async def main():
    async with tensormsg.listen(sys.argv[1]) as listener:
        server = listener.serve()

        @server.method("ever")
        async def ever(stream):
            while True:
                yield {"x": np.zeros(1 << 16)}

        @server.method("deaf", stream=True)
        async def deaf(stream):
            await asyncio.sleep(100)

        print(listener.url, flush=True)
        await server.run()

asyncio.run(main())
"""


@pytest.mark.parametrize("way, transport, method", [
    ("asyncio", "tcp", "ever"), ("asyncio", "unix", "deaf"),
    ("sync", "unix", "ever"), ("sync", "tcp", "deaf")])
def test_a_server_that_is_killed(way, method, transport, tmp_path):
    async def use(stream, process):
        if method == "ever":
            async for msg in stream:
                process.kill()
        else:
            await stream.send({"x": np.zeros(1)})
            process.kill()
            while True:
                await stream.send({"x": np.zeros(1 << 16)})

    async def main(url, process):
        if way == "sync":
            with tensormsg.connect(url) as ep:
                await use(Blocking(ep.stream(method)), process)
        else:
            async with tensormsg.connect(url) as ep:
                await asyncio.wait_for(use(ep.stream(method), process), WAIT)

    with python("-c", PEER, place_of(transport, tmp_path)) as process:
        url = process.stdout.readline().strip()
        with pytest.raises(tensormsg.PeerLost):
            asyncio.run(main(url, process))


OPENER = """
import sys, numpy as np, tensormsg
ep = tensormsg.sync.connect(sys.argv[1])
s = ep.stream(sys.argv[2])
s.send({"x": np.zeros(1)})
print("open", flush=True)
s.wait()
"""


@pytest.mark.parametrize("way, transport, method", [
    ("asyncio", "tcp", "wait"), ("asyncio", "unix", "ever"),
    ("sync", "unix", "wait"), ("sync", "tcp", "ever")])
def test_an_opener_that_is_killed(way, method, transport, tmp_path):
    place, seen = place_of(transport, tmp_path), Seen()

    async def main():
        async with tensormsg.listen(place) as listener:
            offer_async(listener.serve(), seen)
            with python("-c", OPENER, listener.url, method) as process:
                await asyncio.get_running_loop().run_in_executor(
                    None, process.stdout.readline)
                await until(seen.begun.is_set)
                process.kill()
                await until(seen.closed.is_set)

    def main_sync():
        with tensormsg.listen(place, background=True) as listener:
            offer_sync(listener.serve(), seen)
            with python("-c", OPENER, listener.url, method) as process:
                process.stdout.readline()
                assert seen.begun.wait(WAIT)
                process.kill()
                assert seen.closed.wait(WAIT)

    asyncio.run(main()) if way == "asyncio" else main_sync()


def test_what_is_closed_beneath_it():
    async def main():
        seen = Seen()
        async with tensormsg.listen(":0") as listener:
            server = listener.serve()
            offer_async(server, seen)
            ep = await tensormsg.connect(listener.url)
            streams = [ep.stream(name) for name in ("ever", "wait")]
            await streams[0].recv()
            waiting = asyncio.ensure_future(streams[1].recv())
            await asyncio.sleep(.05)
            ep.abort()
            with pytest.raises(tensormsg.Error):
                await asyncio.wait_for(waiting, WAIT)
            for s in streams:
                with pytest.raises(tensormsg.Error):
                    while await s.recv() is not None:
                        pass
                with pytest.raises(tensormsg.Error):
                    await s.send({"x": np.zeros(1)})
                assert s.over
            await until(seen.closed.is_set)

            seen.closed.clear()
            async with tensormsg.connect(listener.url) as ep:
                s = ep.stream("wait")
                await until(lambda: server._running)
                await server.close(timeout=.05)
                with pytest.raises(tensormsg.Unavailable):
                    await asyncio.wait_for(s.wait(), WAIT)
                assert seen.closed.is_set()

    asyncio.run(main())


def test_messages_and_requests_outlive_all():
    kept = []
    with tensormsg.listen(":0", background=True) as listener, \
            listener.serve() as server:
        @server.method("keep")
        def keep(stream):
            kept.append(stream.request["x"])
            yield {"back": stream.request["x"]}

        with tensormsg.connect(listener.url) as ep:
            with ep.stream("keep", {"x": np.arange(1 << 16)}) as s:
                kept.append(s.recv()["back"])
    del server, ep, s, listener
    gc.collect()
    for array in kept:
        assert np.array_equal(array, np.arange(1 << 16))
        array += 1


@pytest.mark.parametrize("place", [":0", "unix"])
@pytest.mark.parametrize("how", ["abort", "close"])
def test_an_opener_that_ends_is_no_fault_of_the_handlers(
        place, how, tmp_path, caplog, silent_library):
    """Whatever it hears of first: the end of what it sends, of the connection,
    or of the stream."""
    done = threading.Semaphore(0)
    count = 15
    with tensormsg.sync.listen(place_of("unix" if place == "unix" else "tcp",
                                        tmp_path), background=True) as listener:
        with listener.serve(threads=2) as server:
            @server.method("ever")
            def ever(stream):
                try:
                    for i in itertools.count():
                        yield {"i": np.full(5000, i)}
                finally:
                    done.release()

            for _ in range(count):
                ep = tensormsg.sync.connect(listener.url)
                stream = ep.stream("ever")
                stream.recv(WAIT)
                getattr(ep, how)()
            for _ in range(count):
                assert done.acquire(timeout=WAIT)
    assert not [record for record in caplog.records  # but that it was lost
                if not record.getMessage().startswith("lost ")]


def test_exit_with_streams_that_go_on():
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", """
import itertools, numpy as np, tensormsg
listener = tensormsg.sync.listen(":0", background=True)
server = listener.serve(threads=2)

@server.method("ever")
def ever(stream):
    for i in itertools.count():
        yield {"i": np.array([i])}

ep = tensormsg.sync.connect(listener.url)
s = ep.stream("ever")
print(s.recv()["i"][0], s.recv()["i"][0])
"""], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        timeout=WAIT, env=environment())
    assert (ran.returncode, ran.stdout) == (0, "0 1\n")
