# SPDX-License-Identifier: BSD-3-Clause
"""When the arrays of a handler's reply may be changed."""

import asyncio
import pathlib
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import tensormsg
from conftest import WAIT
from tensormsg import sync

HERE = pathlib.Path(__file__).parent
ROUNDS = 60
AHEAD = 3  # calls that are under way at once


@pytest.fixture(params=["unix", "tcp"])
def place(request, tmp_path):
    """A URL, and settings of UCX."""
    if request.param == "unix":
        return f"unix://{tmp_path}/socket", ""
    return "tcp://127.0.0.1:0", "TLS=tcp,self"


@pytest.mark.parametrize("size", [8, 2000, 300_000])
def test_an_array_that_is_changed_when_it_may_be_arrives_as_it_was(place, size):
    url, config = place
    with subprocess.Popen([sys.executable, HERE / "lender.py", url, config,
                           str(size)], stdin=subprocess.PIPE, text=True,
                          stdout=subprocess.PIPE) as lender:
        try:
            context = tensormsg.Context(ucx_config=config or None)
            with sync.connect(lender.stdout.readline().strip(),
                              context=context) as ep:
                calls = []
                for number in range(ROUNDS + AHEAD):
                    if number < ROUNDS:
                        calls.append(ep.start_call("give", timeout=WAIT,
                                                   meta={"number": number}))
                    if number >= AHEAD:
                        x = calls.pop(0).wait()["x"]
                        assert x.shape == (size,)
                        assert (x == number - AHEAD).all(), \
                            np.unique(x, return_counts=True)
                end = time.monotonic() + WAIT
                while True:
                    counts = ep.call("count").tree()
                    if counts["made"] == counts["free"]:
                        break
                    assert time.monotonic() < end
                    time.sleep(0.001)
        finally:
            lender.kill()


def test_a_reply_that_is_not_sent_is_free_at_once():
    freed = threading.Semaphore(0)

    def is_free():
        freed.release()
        raise ValueError("is logged")

    with sync.listen(":0", background=True) as listener, \
            listener.serve(threads=2) as server, \
            sync.connect(listener.url) as ep:
        @server.method("odd")
        def odd(request):
            return tensormsg.Reply({"x": object()}, on_release=is_free)

        @server.method("wrong", signature="() -> (x: float32[3])")
        def wrong(request):
            return sync.Reply({"x": np.zeros(4)}, on_release=is_free)

        @server.method("slow")
        def slow(request):
            while not request.over:
                time.sleep(0.001)
            return tensormsg.Reply(None, on_release=is_free)

        for method in ("odd", "wrong"):
            with pytest.raises(tensormsg.Internal):
                ep.call(method, timeout=WAIT)
            assert freed.acquire(timeout=WAIT)
        with pytest.raises(tensormsg.TimedOut):
            ep.call("slow", timeout=0.1)
        assert freed.acquire(timeout=WAIT)
        assert not freed.acquire(timeout=0.05)  # once each
    with pytest.raises(TypeError, match="a function"):
        tensormsg.Reply({}, on_release=3)
    assert tensormsg.Reply({}).on_release is None


def test_replies_have_metadata():
    with sync.listen(":0", background=True) as listener, \
            listener.serve() as server, sync.connect(listener.url) as ep:
        @server.method("one")
        def one(request):
            return tensormsg.Reply({"a": [np.ones(2), 5]},
                                   meta={"frame": 7, "mine": "x"})

        @server.method("none")
        def none(request):
            return tensormsg.Reply(None, meta=request.meta)

        @server.method("by_keyword")
        def by_keyword(request):
            return tensormsg.Reply({}, meta={"n": 1, "mine": False}, mine=True,
                                   frame=request.meta["frame"] + 1)

        @server.method("odd")
        def odd(request):
            return tensormsg.Reply({}, meta={"x": object()})

        @server.method("opened")
        def opened(stream):
            yield tensormsg.Reply({}, frame=stream.request.meta["frame"])

        @server.method("more")
        def more(stream):
            for i in range(3):
                yield tensormsg.Reply({"i": np.array(i)}, meta={"frame": i})

        @server.method("last", stream=True)
        def last(stream):
            return tensormsg.Reply(None, meta={"end": True})

        @server.method("told")
        def told(stream):
            yield tensormsg.Reply({}, on_release=print)

        reply = ep.call("one", timeout=WAIT)
        assert reply.meta == {"frame": 7, "mine": "x"}
        assert reply.tree()["a"][1] == 5
        assert ep.call("none", meta={"n": 1}, timeout=WAIT).meta == {"n": 1}
        assert ep.call("none", frame=7, timeout=WAIT).meta == {"frame": 7}
        assert ep.call("none", {"x": np.ones(3)}, meta={"n": 1, "frame": 1},
                       frame=7, mine="y").meta == {
                           "n": 1, "frame": 7, "mine": "y"}
        assert ep.start_call("none", frame=8).wait(WAIT).meta == {"frame": 8}
        assert not ep.call("none", timeout=WAIT).meta
        assert ep.call("by_keyword", frame=2, timeout=WAIT).meta == {
            "frame": 3, "n": 1, "mine": True}
        with pytest.raises(tensormsg.Internal, match="metadata 'x'"):
            ep.call("odd", timeout=WAIT)
        with ep.stream("more") as stream:
            assert [(int(m["i"]), m.meta) for m in stream] == [
                (i, {"frame": i}) for i in range(3)]
        with ep.stream("last") as stream:
            assert stream.recv(WAIT).meta == {"end": True}
        with ep.stream("opened", frame=9) as stream:
            assert stream.recv(WAIT).meta == {"frame": 9}
        with pytest.raises(tensormsg.Internal, match="of a call"):
            with ep.stream("told") as stream:
                stream.recv(WAIT)


def test_replies_have_metadata_with_asyncio():
    async def main():
        async with tensormsg.listen(":0") as listener, \
                listener.serve() as server, \
                tensormsg.connect(listener.url) as ep:
            @server.method("one")
            async def one(request):
                return tensormsg.Reply({"x": np.ones(2)}, meta={"frame": 7})

            @server.method("more")
            async def more(stream):
                yield tensormsg.Reply({}, meta={"frame": 1})

            @server.method("plain")
            def plain(stream):
                yield tensormsg.Reply({}, meta={"frame": 2})

            @server.method("last", stream=True)
            async def last(stream):
                return tensormsg.Reply({}, meta={"frame": 3})

            @server.method("same")
            async def same(request):
                return tensormsg.Reply({}, **request.meta)

            @server.method("opened")
            async def opened(stream):
                yield tensormsg.Reply({}, frame=stream.request.meta["frame"])

            assert (await ep.call("one")).meta == {"frame": 7}
            assert (await ep.call("same", frame=8, mine="y", timeout=WAIT)
                    ).meta == {"frame": 8, "mine": "y"}
            assert (await ep.start_call("same", frame=9)).meta == {"frame": 9}
            async with ep.stream("opened", frame=9) as stream:
                assert [m.meta async for m in stream] == [{"frame": 9}]
            for i, method in enumerate(("more", "plain", "last")):
                async with ep.stream(method) as stream:
                    assert [m.meta async for m in stream] == [{"frame": i + 1}]

    asyncio.run(asyncio.wait_for(main(), WAIT))


def test_with_asyncio_it_is_told_in_the_loop():
    async def main():
        told = asyncio.Queue()
        async with tensormsg.listen("tcp://127.0.0.1:0") as listener, \
                listener.serve() as server, \
                tensormsg.connect(listener.url) as ep:
            x = np.zeros(100_000)

            @server.method("give")
            async def give(request):
                return tensormsg.Reply(
                    {"a": [x, 1]},  # a tree is flattened first
                    on_release=lambda: told.put_nowait(
                        threading.current_thread()))

            for i in range(5):
                x[:] = i
                reply = await ep.call("give", timeout=WAIT)
                assert (reply.tree()["a"][0] == i).all()
                assert await told.get() is threading.current_thread()
            assert told.empty()

    asyncio.run(asyncio.wait_for(main(), WAIT))
