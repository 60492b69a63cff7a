# SPDX-License-Identifier: BSD-3-Clause
"""Servers at which nothing goes on: what is kept takes nobody's turn, who waits
in vain hears why, the log says it, and plain functions may leave the loop."""

import asyncio
import concurrent.futures
import contextlib
import contextvars
import gc
import pickle
import threading
import time

import numpy as np
import pytest

import tensormsg
from conftest import WAIT
from tensormsg import _tasks, _threads, _watch, sync

KEPT = 40  # more than may run and wait
BOUNDS = dict(concurrency=8, queue=8)


@pytest.fixture
def impatient(monkeypatch):
    """A second is a third of one."""
    monkeypatch.setattr(_watch, "EVERY_S", .05)
    for module in _tasks, _threads:
        monkeypatch.setattr(module, "LONG_S", .3)


def keeps(server, kept):
    @server.method("push")
    def push(request):
        kept.append(request["x"])

    @server.method("stream", stream=True)
    def stream(opened):
        kept.append(opened.request["x"])


def check_kept(kept, health):
    assert len(kept) == 2 * KEPT and kept[-1][0] == KEPT - 1
    assert health == "SERVING" and health.held == 2 * KEPT
    assert (health.running, health.waiting, health.why) == (0, 0, "")
    assert pickle.loads(pickle.dumps(health)).held == 2 * KEPT


def test_requests_that_are_kept_take_no_turn_without_asyncio():
    kept = []
    with tensormsg.listen(":0", background=True) as listener, \
            listener.serve(threads=2, **BOUNDS) as server:
        keeps(server, kept)
        with tensormsg.connect(listener.url) as ep:
            for i in range(KEPT):
                ep.call("push", {"x": np.full(4, i)}, timeout=WAIT)
            for i in range(KEPT):
                with ep.stream("stream", {"x": np.full(4, i)},
                               timeout=WAIT) as stream:
                    stream.wait(WAIT)
            while ep.health().running > 0:  # a thread that has just answered
                time.sleep(.001)
            check_kept(kept, ep.health())
            kept.clear()
            gc.collect()
            assert ep.health().held <= 2  # the last of each thread


def test_requests_that_are_kept_take_no_turn_with_asyncio():
    async def main():
        kept = []
        async with tensormsg.listen(":0") as listener:
            server = listener.serve(**BOUNDS)
            keeps(server, kept)
            async with tensormsg.connect(listener.url) as ep:
                for i in range(KEPT):
                    await ep.call("push", {"x": np.full(4, i)}, timeout=WAIT)
                for i in range(KEPT):
                    async with ep.stream("stream", {"x": np.full(4, i)},
                                         timeout=WAIT) as stream:
                        await stream.wait()
                check_kept(kept, await ep.health())
                kept.clear()
                gc.collect()
                assert (await ep.health()).held == 0

    asyncio.run(main())


async def late(ep, method, **more):
    """How a call ends whose turn does not come: as the server says, unless it
    was too busy to say so in time."""
    while True:
        with pytest.raises(tensormsg.TimedOut) as info:
            await ep.call(method, timeout=.4, **more)
        if "no reply in" not in str(info.value):
            assert info.value.may_have_run is False
            return str(info.value)


async def until(done):
    end = time.monotonic() + WAIT
    while not done():
        assert time.monotonic() < end
        await asyncio.sleep(.01)


def test_calls_that_wait_in_vain_are_told_and_logged(caplog):
    async def main():
        async with tensormsg.listen(":0") as listener:
            server = listener.serve()
            go = asyncio.Event()

            @server.method("hang", concurrency=2)
            async def hang(request):
                await go.wait()

            async with tensormsg.connect(listener.url) as ep:
                calls = [asyncio.ensure_future(ep.call("hang"))
                         for _ in range(3)]
                await until(lambda: listener.describe()["waiting_calls"] == 1)
                words = await late(ep, "hang")
                assert "2 calls of 'hang' run there, as many as may " \
                    "(concurrency), and 1 waited before it" in words
                health = await ep.health()
                while health != "STALLED":
                    health = await ep.health()
                assert (health.running, health.waiting, health.stalls) == \
                    (2, 1, 1)
                assert "2 calls of 'hang' run there" in health.why
                assert await ep.health("hang") == "STALLED"
                await until(lambda: "1 calls wait, and none of their method "
                            "has begun for a second: 2 calls of 'hang' run"
                            in caplog.text)
                go.set()
                await asyncio.gather(*calls)
                health = await ep.health()
                assert health == "SERVING" and health.stalls == 1
                assert listener.describe()["stalls"] == 1

    asyncio.run(main())


def test_a_server_whose_threads_are_all_in_handlers_says_so(caplog, impatient):
    go, ran = threading.Event(), []
    with tensormsg.listen(":0") as listener, listener.serve(threads=2) as server:
        @server.method("wait")
        def wait(request):
            ran.append(1)
            assert go.wait(WAIT)

        with tensormsg.connect(listener.url, background=True) as ep:
            calls = [ep.start_call("wait") for _ in range(2)]
            end = time.monotonic() + WAIT
            while "all threads of its server (2) have been in handlers " \
                    "('wait')" not in caplog.text:
                assert time.monotonic() < end
                time.sleep(.01)
            go.set()
            for call in calls:
                call.wait(WAIT)
    assert len(ran) == 2


def test_no_handler_sees_a_call_that_has_waited_for_a_thread_in_vain():
    go, ran = threading.Event(), []
    with tensormsg.listen(":0", background=True) as listener, \
            listener.serve() as server:
        @server.method("wait")
        def wait(request):
            ran.append(request.meta.get("n"))
            assert go.wait(WAIT)

        with tensormsg.connect(listener.url, background=True) as ep:
            first = ep.start_call("wait", meta={"n": 1})
            while not ran:
                time.sleep(.001)
            with pytest.raises(tensormsg.TimedOut):
                ep.call("wait", meta={"n": 2}, timeout=.2)
            last = ep.start_call("wait", meta={"n": 3})
            go.set()
            first.wait(WAIT)
            last.wait(WAIT)
    assert ran == [1, 3]


def test_a_handler_that_holds_the_loop_is_named(caplog, impatient):
    async def main():
        async with tensormsg.listen(":0") as listener:
            server = listener.serve()

            @server.method("slow")
            def slow(request):
                end = time.monotonic() + WAIT
                while "held the event loop" not in caplog.text:
                    assert time.monotonic() < end
                    time.sleep(.01)

            @server.method("steps")
            async def steps(request):
                end = time.monotonic() + .6
                while time.monotonic() < end:
                    time.sleep(.005)
                    await asyncio.sleep(0)

            async with tensormsg.connect(listener.url) as ep:
                await ep.call("steps")
                assert "held the event loop" not in caplog.text
                await ep.call("slow")
            assert "handler 'slow' has held the event loop for 0.3 s (in " \
                in caplog.text
            assert caplog.text.count("held the event loop") == 1
            assert "test_stall.py" in caplog.text
            assert listener.describe()["long_handlers"] == 1

    asyncio.run(main())


def test_a_wait_on_a_stream_says_what_for():
    go = threading.Event()
    with tensormsg.listen(":0", background=True) as listener, \
            listener.serve() as server:
        @server.method("mute", stream=True)
        def mute(stream):
            assert go.wait(WAIT)

        @server.method("slow")
        def slow(request):
            assert go.wait(WAIT)

        with tensormsg.connect(listener.url) as ep:
            stream = ep.stream("mute", queue=1)
            with pytest.raises(tensormsg.TimedOut, match="has sent none"):
                stream.recv(.05)
            with pytest.raises(tensormsg.TimedOut, match="its handler goes on"):
                stream.wait(.05)
            with pytest.raises(tensormsg.TimedOut,
                               match="its application takes no messages"):
                while True:
                    stream.send({"x": np.zeros(1000)}, timeout=.05)
            go.set()
            stream.cancel()
            go.clear()
            with pytest.raises(tensormsg.TimedOut, match="was sent, and its"):
                ep.call("slow", timeout=.2)
            go.set()


VARIABLE = contextvars.ContextVar("VARIABLE", default="none")


@contextlib.asynccontextmanager
async def serving(executor):
    VARIABLE.set("of the server")
    async with tensormsg.listen(":0", background=True) as listener:
        async with listener.serve(executor=executor) as server:
            async with tensormsg.connect(listener.url) as ep:
                yield server, ep


def where():
    return {"thread": threading.current_thread().name,
            "variable": VARIABLE.get()}


async def check_executor(executor, prefix):
    async with serving(executor) as (server, ep):
        closed = []

        @server.method("plain")
        def plain(request):
            return {**where(), "x": request["x"] * 2}

        @server.method("coroutine")
        async def coroutine(request):
            return where()

        @server.method("both")
        def both(request):
            return coroutine(request)

        @server.method("fails")
        def fails(request):
            raise tensormsg.CallError("so", code=7)

        @server.method("yields")
        def yields(stream):
            try:
                for i in range(3):
                    yield {"i": i, **where()}
            finally:
                closed.append(threading.current_thread().name)

        @server.method("last", stream=True)
        def last(stream):
            return where()

        here = threading.current_thread().name
        reply = await ep.call("plain", {"x": np.arange(3)})
        assert reply["thread"].startswith(prefix) and reply["x"][2] == 4
        assert reply["variable"] == "of the server"
        for method in "coroutine", "both":
            assert (await ep.call(method))["thread"] == here
        with pytest.raises(tensormsg.ApplicationFailed, match="so") as info:
            await ep.call("fails")
        assert info.value.code == 7
        async with ep.stream("yields") as stream:
            got = [message async for message in stream]
        assert [int(each["i"]) for each in got] == [0, 1, 2]
        assert all(each["thread"].startswith(prefix) for each in got)
        assert closed[0].startswith(prefix)
        async with ep.stream("last") as stream:
            assert (await stream.recv())["thread"].startswith(prefix)


def test_plain_handlers_run_in_an_executor():
    with concurrent.futures.ThreadPoolExecutor(
            2, thread_name_prefix="ours") as executor:
        asyncio.run(check_executor(executor, "ours"))
    asyncio.run(check_executor(True, "asyncio"))


def test_what_an_executor_has_no_thread_for_waits():
    ran, over = [], threading.Event()

    async def main():
        async with serving(executor) as (server, ep):
            @server.method("until over")
            def until_over(request):
                ran.append(1)
                while not request.over:
                    time.sleep(.001)
                over.set()

            @server.method("ticks")
            def ticks(stream):
                while True:
                    time.sleep(.01)
                    yield {}

            hangs = asyncio.ensure_future(ep.call("until over"))
            await until(lambda: ran)
            assert "1 calls run there, and no thread is free for another" in \
                await late(ep, "until over")
            assert (await ep.health()).running == 1
            hangs.cancel()
            await until(over.is_set)
            async with ep.stream("ticks") as stream:
                await stream.recv()
                stream.cancel()
            health = await ep.health()
            while health.running:
                health = await ep.health()
            assert len(ran) == 1

    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        asyncio.run(main())


def test_an_executor_is_one():
    async def main():
        async with tensormsg.listen(":0") as listener:
            with pytest.raises(TypeError, match="an Executor|Executor, or True"):
                listener.serve(executor=4)
            listener.serve(executor=False)

    asyncio.run(main())
    with sync.listen(":0") as listener, pytest.raises(TypeError):
        listener.serve(executor=True)
