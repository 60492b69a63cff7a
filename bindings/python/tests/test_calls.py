# SPDX-License-Identifier: BSD-3-Clause
"""Calls: both ways of driving them, what fails, what is given up."""

import asyncio
import contextlib
import gc
import logging
import pickle
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest

import tensormsg
from conftest import environment, python
from tensormsg._often import Often, often

WAIT = 30  # seconds, before something is called a failure
X = {"x": np.arange(3)}


def offer(server):
    """Methods that both kinds of server have."""
    @server.method("twice", signature="(x: float64[n]) -> (y: float64[n])")
    def twice(request):
        """Doubles it.

        More about it."""
        return {"y": 2 * request["x"]}

    @server.method("echo")
    def echo(request):
        return {"tree": request.tree(), "frame": request.meta.get("frame")}

    @server.method("fail")
    def fail(request):
        raise tensormsg.CallError("too dark", code=-7,
                                  details={"level": np.arange(3), "at": "x"})

    @server.method("refuse")
    def refuse(request):
        raise tensormsg.CallError("not now",
                                  status=tensormsg.Status.UNAVAILABLE)

    @server.method("break")
    def broken(request):
        raise KeyError("no\nsuch")

    @server.method("lie")
    def lie(request):
        return {"x": object()}

    @server.method("overflow")
    def overflow(request):
        raise tensormsg.CallError("x", code=1 << 40)

    @server.method("who")
    def who(request):
        assert request.method == "who" and request.principal is None
        assert request.remaining is None or 0 < request.remaining <= WAIT
        assert not request.over
        return {"pid": "pid" in str(request.peer)}

    assert twice({"x": 1}) == {"y": 2}  # it is still a function


@contextlib.contextmanager
def served(threads=2, **more):
    with tensormsg.listen(":0", **more) as listener:
        with listener.serve(threads=threads) as server:
            offer(server)
            with tensormsg.connect(listener.url) as ep:
                yield server, ep


async def scenario(call):
    """`call` is ep.call(), awaited."""
    x = np.arange(5.)
    assert np.array_equal((await call("twice", {"x": x}))["y"], 2 * x)
    big = np.arange(1 << 18, dtype="f8")
    assert np.array_equal((await call("twice", {"x": big}, timeout=WAIT))["y"],
                          2 * big)
    reply = await call("echo", {"a": [x[::2], {"n": 1}], "s": "text"},
                       meta={"frame": 7})
    tree = reply.tree()
    assert tree["frame"] == 7 and tree["tree"]["s"] == "text"
    assert np.array_equal(tree["tree"]["a"][0], x[::2])
    assert (await call("echo")).tree() == {"tree": {}, "frame": None}
    assert (await call("who", timeout=WAIT))["pid"]

    with pytest.raises(tensormsg.ApplicationFailed, match="too dark") as info:
        await call("fail")
    error = info.value
    assert (error.code, error.may_have_run) == (-7, True)
    assert error.details["at"] == "x" and "fail" in error.reason
    assert np.array_equal(error.details["level"], np.arange(3))
    again = pickle.loads(pickle.dumps(error))
    assert (again.code, again.reason) == (-7, error.reason)
    assert again.details["at"] == "x"
    assert np.array_equal(again.details["level"], np.arange(3))

    for method, kind, words, ran in (
            ("refuse", tensormsg.Unavailable, "not now", True),
            ("break", tensormsg.Internal, "KeyError: 'no", True),
            ("lie", tensormsg.Internal, "neither an array", True),
            ("overflow", tensormsg.Internal, "a code of", True),
            ("nothing", tensormsg.NotFound, "nothing", False)):
        with pytest.raises(kind, match=words) as info:
            await call(method)
        assert info.value.may_have_run is ran
        assert info.value.details is None and info.value.code == 0
    with pytest.raises(tensormsg.InvalidParam, match='"x" is') as info:
        await call("twice", {"x": np.zeros((2, 2))})
    assert info.value.may_have_run is False
    with pytest.raises(TypeError):
        await call("echo", {"x": object()})
    with pytest.raises(ValueError):
        await call("echo", timeout=-1)
    with pytest.raises(ValueError):
        await call("a\0b")
    with pytest.raises(tensormsg.InvalidParam) as info:
        await call("")
    assert info.value.may_have_run is False


def loops():
    yield "asyncio", asyncio.run
    try:
        import uvloop
        yield "uvloop", uvloop.run
    except ImportError:
        pass


run_in = pytest.mark.parametrize(
    "run", [run for _, run in loops()], ids=[name for name, _ in loops()])


@pytest.mark.parametrize("background", [False, True])
def test_calls_that_block(background):
    with served(background=background) as (_, ep):
        async def call(*args, **more):
            return ep.call(*args, **more)

        asyncio.run(scenario(call))


@run_in
@pytest.mark.parametrize("background", [False, True])
def test_calls_of_asyncio(run, background):
    async def main():
        async with tensormsg.listen(":0", background=background) as listener:
            async with listener.serve() as server:
                offer(server)
                async with tensormsg.connect(
                        listener.url, background=background) as ep:
                    await asyncio.wait_for(scenario(ep.call), WAIT)

    run(main())


class NoMemory:
    """The extension, that once has no memory for a call that came in."""

    def __init__(self, extension):
        self._extension = extension
        self.had_none = False

    def __getattr__(self, name):
        return getattr(self._extension, name)

    def task(self, *args):
        work = self._extension.task(*args)
        if work and not self.had_none:
            self.had_none = True
            del work
            raise MemoryError
        return work


def test_a_call_that_there_is_no_memory_for_fails_alone(caplog, monkeypatch):
    monkeypatch.setattr("tensormsg._serve.hot", NoMemory(tensormsg._lib.hot))
    with served() as (_, ep):
        with pytest.raises(tensormsg.Internal):
            ep.call("echo", X, timeout=WAIT)
        assert len(ep.call("echo", X, timeout=WAIT)) == 1
    assert "a call that came in was dropped" in caplog.text


def test_a_call_that_there_is_no_memory_for_with_asyncio(caplog, monkeypatch):
    monkeypatch.setattr("tensormsg._serve.hot", NoMemory(tensormsg._lib.hot))

    async def main():
        async with tensormsg.listen(":0") as listener, \
                tensormsg.connect(listener.url) as ep:
            offer(listener.serve())
            with pytest.raises(tensormsg.Internal):
                await ep.call("echo", X, timeout=WAIT)
            assert len(await ep.call("echo", X, timeout=WAIT)) == 1

    asyncio.run(main())
    assert "a call that came in was dropped" in caplog.text


def test_a_handler_that_breaks_is_logged(caplog):
    with served() as (_, ep), caplog.at_level(logging.ERROR):
        with pytest.raises(tensormsg.Internal):
            ep.call("break")
    record, = caplog.records
    assert "break" in record.getMessage() and record.exc_info[0] is KeyError


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_a_handler_that_exits_ends_its_call_alone(kind, caplog):
    with tensormsg.listen(":0") as listener, listener.serve() as server:
        @server.method("quit")
        def leave(request):
            raise kind

        @server.method("quit/stream", stream=True)
        def leave_stream(stream):
            raise kind

        @server.method("quit/end")
        def leave_late(stream):
            try:
                while True:
                    yield {"x": np.zeros(1)}
            finally:
                raise kind

        @server.method("ok")
        def ok(request):
            return {}

        with tensormsg.connect(listener.url) as ep:
            with pytest.raises(tensormsg.Internal, match=kind.__name__):
                ep.call("quit", timeout=WAIT)
            with pytest.raises(tensormsg.Internal, match=kind.__name__):
                with ep.stream("quit/stream", timeout=WAIT) as stream:
                    stream.recv()
            stream = ep.stream("quit/end", timeout=WAIT)
            stream.recv()
            stream.cancel()
            ep.call("ok", timeout=WAIT)
    assert "'quit' failed" in caplog.text
    assert "'quit/end' failed at its end" in caplog.text


def test_failures_that_repeat_are_counted(caplog):
    """A peer has a record written with each call that fails, but ten in 10 s."""
    with served() as (_, ep):
        for _ in range(25):
            with pytest.raises(tensormsg.Internal):
                ep.call("break", timeout=WAIT)
    assert caplog.text.count("Traceback") == 10
    often.tell(True)
    assert "method 'break' failed 15 more times in the last " in caplog.text


def test_counts_add_up_and_are_told_when_their_time_is_over(caplog):
    now = 0.
    counted = Often(lambda: now)
    assert [counted.may("a") for _ in range(12)] == 10 * [True] + 2 * [False]
    assert counted.may("b")
    now = 9.9
    counted.tell()
    assert "more times" not in caplog.text
    now = 10.
    counted.tell()
    assert "a 2 more times in the last 10 s" in caplog.text
    assert counted.may("a")
    caplog.clear()
    counted.tell(True)
    assert not caplog.text


def test_methods_and_health():
    with served() as (server, ep):
        methods = ep.methods()
        assert methods["twice"]["description"] == "Doubles it."
        assert methods["twice"]["signature"].startswith("(x: float64[n])")
        assert "signature" not in methods["echo"]
        assert ep.health() == ep.health("twice") == "SERVING"
        assert ep.health("nothing") == "NOT_FOUND"
        with pytest.raises(tensormsg.AlreadyExists):
            server.method("twice")(lambda request: None)
        with pytest.raises(tensormsg.InvalidParam):
            server.method("bad", signature="(x: ")(lambda request: None)
        with pytest.raises(TypeError):
            server.method("bad")(7)


@run_in
def test_a_cancelled_call_cancels_its_handler(run):
    async def main():
        began, ended = asyncio.Event(), asyncio.Event()
        async with tensormsg.listen(":0") as listener:
            server = listener.serve()

            @server.method("wait")
            async def wait(request):
                began.set()
                try:
                    await asyncio.sleep(WAIT)
                except asyncio.CancelledError:
                    assert request.over
                    ended.set()
                    raise

            async with tensormsg.connect(listener.url) as ep:
                calling = asyncio.ensure_future(ep.call("wait"))
                await asyncio.wait_for(began.wait(), WAIT)
                calling.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await calling
                await asyncio.wait_for(ended.wait(), WAIT)

                ended.clear()
                with pytest.raises(tensormsg.TimedOut):
                    await ep.call("wait", timeout=5)
                await asyncio.wait_for(ended.wait(), WAIT)
                assert await ep.health() == "SERVING"

                began.clear()
                ended.clear()
                calling = asyncio.ensure_future(ep.call("wait"))
                await asyncio.wait_for(began.wait(), WAIT)
                await server.close(timeout=.05)
                with pytest.raises(tensormsg.Unavailable) as info:
                    await calling
                assert info.value.may_have_run and ended.is_set()
                with pytest.raises(tensormsg.Unavailable, match="nobody serves"):
                    await ep.call("wait")
                await asyncio.wait_for(server.run(), WAIT)

    run(main())


def test_a_handler_is_cancelled_once():
    """The calls that are canceled later leave it time to clean up."""
    async def main():
        cleaned, over = asyncio.Queue(), asyncio.Queue()
        first = asyncio.Event()
        async with tensormsg.listen(":0") as listener:
            server = listener.serve()

            @server.method("hold")
            async def hold(request):
                try:
                    over.put_nowait("begun")
                    await asyncio.sleep(WAIT)
                finally:
                    over.put_nowait("over")
                    if request.meta["first"]:
                        await first.wait()
                        cleaned.put_nowait(True)

            async with tensormsg.connect(listener.url) as ep:
                for i in range(3):
                    calling = asyncio.ensure_future(
                        ep.call("hold", meta={"first": i == 0}))
                    assert await asyncio.wait_for(over.get(), WAIT) == "begun"
                    calling.cancel()
                    assert await asyncio.wait_for(over.get(), WAIT) == "over"
                first.set()
                assert await asyncio.wait_for(cleaned.get(), WAIT)

    asyncio.run(main())


@run_in
def test_many_at_once(run):
    count = 300

    async def main():
        async with tensormsg.listen(":0") as listener:
            async with listener.serve(concurrency=16) as server:
                most = now = 0

                @server.method("i")
                async def i(request):
                    nonlocal most, now
                    now += 1
                    most = max(most, now)
                    await asyncio.sleep(.001)
                    now -= 1
                    return {"i": request["i"]}

                async with tensormsg.connect(listener.url) as ep:
                    replies = await asyncio.gather(
                        *(ep.call("i", {"i": np.full(9, n)})
                          for n in range(count)))
                    assert [int(reply["i"][8]) for reply in replies] == \
                        list(range(count))
                    assert 1 < most <= 16

    run(main())


def test_who_waits_for_a_server_meets_its_methods():
    """Its threads begin when there is one; others come at once."""
    with tensormsg.sync.listen(":0") as listener:
        replies = []

        def call():
            with tensormsg.sync.connect(listener.url) as ep:
                ep.send({})
                replies.extend(ep.call(name, timeout=30)["n"]
                               for name in ("first", "second"))

        caller = threading.Thread(target=call)
        caller.start()
        listener.recv(30)
        with listener.serve() as server:
            time.sleep(.1)

            @server.method("first")
            def first(request):
                return {"n": 1}

            @server.method("second")
            def second(request):
                return {"n": 2}

            caller.join(30)
        assert replies == [1, 2]


def test_from_many_threads():
    with served(threads=3) as (_, ep):
        got = []

        def work(n):
            for i in range(30):
                x = np.full(100 * n, float(i))
                assert (ep.call("twice", {"x": x})["y"] == 2 * i).all()
                got.append(i)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT)
        assert len(got) == 120


def test_a_handler_that_blocks_and_a_drain():
    with tensormsg.listen(":0", background=True) as listener, \
            listener.serve() as server:
        began, go = threading.Event(), threading.Event()
        overs = []

        @server.method("wait")
        def wait(request):
            began.set()
            assert go.wait(WAIT)
            overs.append(request.over)

        with tensormsg.connect(listener.url) as ep:
            with pytest.raises(tensormsg.TimedOut) as info:
                ep.call("wait", timeout=.2)
            assert info.value.may_have_run is not None
            go.set()
            ep.call("wait")
            assert overs[-1] is False

            began.clear()
            go.clear()
            failed = []

            def call():
                try:
                    ep.call("wait")
                except tensormsg.Error as error:
                    failed.append(error)

            calling = threading.Thread(target=call)
            calling.start()
            assert began.wait(WAIT)
            with pytest.raises(tensormsg.TimedOut):
                server.drain(.05)
            calling.join(WAIT)
            assert isinstance(failed[0], tensormsg.Unavailable)
            with pytest.raises(tensormsg.Unavailable) as info:
                ep.call("wait")
            assert info.value.may_have_run is False
            go.set()


def test_either_side_serves():
    with tensormsg.listen(":0", background=True) as listener:
        with tensormsg.connect(listener.url) as ep:
            with ep.serve() as server:
                offer(server)
                ep.send({"hello": np.zeros(1)})
                peer = listener.recv(WAIT).peer
                assert peer.call("twice", {"x": np.ones(2)})["y"][1] == 2
                with pytest.raises(ValueError):
                    peer.serve()
                with pytest.raises(tensormsg.AlreadyExists):
                    ep.serve()


def test_replies_and_requests_outlive_all():
    kept = []
    with served() as (server, ep):
        @server.method("keep")
        def keep(request):
            kept.append(request["x"])
            return {"back": request["x"]}

        reply = ep.call("keep", {"x": np.arange(1 << 16)})
        kept.append(reply["back"])
        del reply
    del server, ep
    gc.collect()
    for array in kept:
        assert np.array_equal(array, np.arange(1 << 16))
        array += 1


def test_the_arrays_of_a_call_are_given_back():
    with served() as (_, ep):
        x = np.zeros(1 << 18)
        ref = weakref.ref(x)
        ep.call("twice", {"x": x})
        del x
        gc.collect()
        assert ref() is None


def test_servers_that_nobody_holds_end():
    listener = tensormsg.sync.listen(":0")
    server = listener.serve()
    threads = list(server._threads)
    del listener, server
    gc.collect()
    for thread in threads:
        thread.join(WAIT)
        assert not thread.is_alive()


SERVER = """
import os, tensormsg
listener = tensormsg.sync.listen(":0")
server = listener.serve()

@server.method("die")
def die(request):
    os._exit(0)

print(listener.url, flush=True)
server.run()
"""


def test_a_server_that_dies():
    with python("-c", SERVER) as process:
        url = process.stdout.readline().strip()
        with pytest.raises(tensormsg.PeerLost) as info:
            with tensormsg.connect(url) as ep:
                ep.call("die")
        assert info.value.may_have_run


def test_exit_with_a_server_that_runs():
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", """
import tensormsg, numpy as np
listener = tensormsg.sync.listen(":0")
server = listener.serve(threads=2)
server.method("echo")(lambda request: dict(request))
ep = tensormsg.sync.connect(listener.url)
print(ep.call("echo", {"x": np.arange(3)})["x"].sum())
"""], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        timeout=WAIT, env=environment())
    assert (ran.returncode, ran.stdout) == (0, "3\n")


def test_retries_run_until_it_is_there():
    with served() as (server, ep):
        tried = []

        @server.method("flaky", idempotent=True)
        def flaky(request):
            tried.append(1)
            if len(tried) < 3:
                raise tensormsg.CallError(
                    "not yet", status=tensormsg.Status.UNAVAILABLE)

        ep.call("flaky", attempts=5)
        assert len(tried) == 3


@pytest.mark.parametrize("kind", ["call", "stream"])
@pytest.mark.parametrize("how", ["sys.exit(3)", "raise KeyboardInterrupt"])
def test_a_handler_that_exits_ends_its_program(tmp_path, kind, how):
    """With asyncio, as any task that does; who called is told."""
    body = f"async def exits(request):\n        {how}"
    if kind == "stream":
        body += "\n        yield {}"
    (tmp_path / "main.py").write_text(f"""
import asyncio, sys, tensormsg

async def main():
    async with tensormsg.listen(":0") as listener, listener.serve() as server:
        print(listener.url, flush=True)
        server.method("exits")(exits)
        await server.run()

if True:
    {body}

asyncio.run(main())
""")
    with subprocess.Popen(
            [sys.executable, str(tmp_path / "main.py")], env=environment(),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            ) as process:
        ep = tensormsg.sync.connect(process.stdout.readline().strip())
        with pytest.raises(tensormsg.Internal,
                           match="SystemExit: 3|KeyboardInterrupt"):
            if kind == "call":
                ep.call("exits", timeout=WAIT)
            else:
                with ep.stream("exits", timeout=WAIT) as stream:
                    stream.recv()
        _, error = process.communicate(timeout=WAIT)
        assert process.returncode == (3 if "exit" in how else -2)
        assert "method 'exits' failed" in error
        ep.abort()


def test_a_handler_that_raises_what_is_no_exception_fails_its_call():
    class Odd(BaseException):
        pass

    async def main():
        async with tensormsg.listen(":0") as listener, \
                listener.serve() as server, \
                tensormsg.connect(listener.url) as ep:
            @server.method("odd")
            async def odd(request):
                raise Odd("one")

            for _ in range(2):
                with pytest.raises(tensormsg.Internal, match="Odd: one"):
                    await ep.call("odd", timeout=WAIT)

    asyncio.run(main())


def test_an_answer_after_the_end_says_that_it_was_closed():
    """And nothing of what went wrong before in that thread."""
    told = []
    with tensormsg.listen(":0", background=True) as listener, \
            tensormsg.connect(listener.url, background=True) as ep:
        server = listener.serve()
        hot = tensormsg._lib.hot

        @server.method("last")
        def last(request):
            hub = listener._hub
            with pytest.raises(tensormsg.InvalidParam):
                tensormsg.connect("nowhere://").__enter__()
            hub.destroy()
            told.append(hot.answer(hub.number, request._owner, {}, None,
                                   None, 0))
            told.append(hot.refuse(hub.number, request._owner, -1, 0, "no", {},
                                   None))
            over.set()

        over = threading.Event()
        with pytest.raises(tensormsg.Error):
            ep.call("last", timeout=WAIT)
        assert over.wait(WAIT)
        assert [words for _, words in told] == 2 * ["it was closed here"]
        ep.abort()
