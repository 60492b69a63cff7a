# SPDX-License-Identifier: BSD-3-Clause
"""What newcomers do: it works, or is told in words that help."""

import asyncio
import math
import os
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
import warnings

import numpy as np
import pytest

import tensormsg
from conftest import WAIT, becomes_idle

X = {"x": np.arange(3)}


def run(main):
    return asyncio.run(asyncio.wait_for(main, WAIT))


def test_standard_output_is_the_programs():
    """UCX warns of a variable that it does not know: by `logging`, whose default is
    standard error."""
    ended = subprocess.run(
        [sys.executable, "-c", "import tensormsg\n"
         "server = tensormsg.sync.listen(':0')\nprint('of the program')"],
        env={**os.environ, "UCX_NO_SUCH_SETTING": "1",
             "UCX_LOG_LEVEL": "warn", "UCX_WARN_UNUSED_ENV_VARS": "y"}, timeout=WAIT,
        check=True, capture_output=True, text=True)
    assert ended.stdout == "of the program\n"
    assert "UCX_NO_SUCH_SETTING" in ended.stderr


# --- times ---

WRONG = [-1, -.001, -math.inf, math.nan, "1", b"1", [], True]


def kind_of(value):
    return ValueError if isinstance(value, (int, float)) and \
        not isinstance(value, bool) else TypeError


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_a_time_that_is_none_is_refused_before_anything_is_done(wrong):
    def refused(function, *args, name="timeout"):
        with pytest.raises(kind_of(wrong), match=f"{name}=.*seconds are"):
            function(*args, **{name: wrong})

    with tensormsg.listen(":0", background=True) as server, \
            tensormsg.connect(server.url) as ep, \
            tensormsg.sync.publish(":0") as camera:
        refused(tensormsg.connect, server.url)
        refused(tensormsg.sync.connect, server.url)
        refused(tensormsg.Context, name="peer_timeout")
        refused(server.recv)
        for use in ep.recv, ep.ready, ep.methods, ep.health, ep.close:
            refused(use)
        refused(ep.send, X)
        refused(ep.send, {"x": np.zeros(1 << 22)})
        refused(ep.recv_into, {"x": np.zeros(3)})
        refused(ep.call, "x")
        refused(ep.stream, "x")
        refused(camera.send, X)
        for use in camera.flush, camera.wait_for, camera.close, server.close:
            refused(use)
        door = server.serve()
        door.method("s", stream=True)(lambda stream: None)
        for use in door.drain, door.close:
            refused(use)
        stream = ep.stream("s")
        for use in stream.recv, stream.wait:
            refused(use)
        refused(stream.send, X)
        stream.wait(WAIT)
        assert not ep.closed and camera.describe()["published"] == 0
        with pytest.raises(tensormsg.TimedOut):  # nothing was sent
            server.recv(0)


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_a_time_that_is_none_is_refused_with_asyncio_too(wrong):
    async def main():
        async def refused(use, *args):
            with pytest.raises(kind_of(wrong), match="timeout=.*seconds are"):
                made = use(*args, timeout=wrong)
                if asyncio.iscoroutine(made):
                    await made

        async with tensormsg.listen(":0") as server, \
                tensormsg.connect(server.url) as ep, \
                tensormsg.publish(":0") as camera:
            door = server.serve()
            for use in ep.ready, ep.methods, ep.health, ep.close, \
                    camera.flush, camera.wait_for, camera.close, \
                    door.drain, door.close, server.close, ep.recv, server.recv:
                await refused(use)
            await refused(ep.recv_into, {"x": np.zeros(3)})
            door.method("s", stream=True)(lambda stream: None)
            stream = ep.stream("s")
            for use in stream.recv, stream.wait:
                await refused(use)
            await refused(stream.send, X)
            await stream.wait(WAIT)
            await refused(tensormsg.connect, server.url)
            await refused(ep.send, X)
            await refused(ep.call, "x")
            await refused(ep.stream, "x")
            await refused(camera.send, X)
            await ep.send(X)
            assert (await server.recv())["x"][2] == 2

    run(main())


# --- counts ---

NO_COUNTS = [-1, 1.5, "5", b"5", 1 << 64, (1 << 64) + 2, math.nan]


@pytest.mark.parametrize("wrong", NO_COUNTS, ids=repr)
def test_a_count_that_is_none_is_refused_before_anything_is_done(wrong):
    kind = ValueError if type(wrong) is int else TypeError

    def refused(function, *args, **names):
        for name in names:
            with pytest.raises(kind, match=f"{name}=.* (not a whole|possible)"):
                function(*args, **{name: names[name]})

    refused(lambda **limits: tensormsg.Context(limits=limits), held_bytes=wrong)
    for made in tensormsg, tensormsg.sync:
        refused(made.listen, ":0", spin_us=wrong, queue_depth=wrong)
        refused(made.publish, ":0", keep=wrong, queue=wrong, window=wrong,
                queue_bytes=wrong, spin_us=wrong)
    with tensormsg.listen(":0") as listener:
        refused(listener.serve, threads=wrong, concurrency=wrong, queue=wrong)
        with listener.serve(threads=1) as server:  # none was left half made
            @server.method("m")
            def method(request):
                return {"n": np.array(1)}

            with tensormsg.sync.connect(listener.url) as ep:
                refused(ep.call, "m", attempts=wrong)
                refused(ep.stream, "m", queue=wrong)
                assert ep.call("m", attempts=np.int64(2))["n"] == 1


def test_counts_have_a_most():
    with tensormsg.listen(":0") as listener:
        with pytest.raises(ValueError, match="threads=2000: 1 to 1024"):
            listener.serve(threads=2000)
        with pytest.raises(TypeError, match="threads=True"):
            listener.serve(threads=True)
        with listener.serve(), tensormsg.connect(listener.url) as ep:
            with pytest.raises(ValueError, match="attempts=4294967297"):
                ep.call("m", attempts=(1 << 32) + 1)


@pytest.mark.parametrize("wrong", [None, 5, b"m"], ids=repr)
def test_a_method_that_has_no_name_is_refused(wrong):
    with tensormsg.listen(":0") as listener, listener.serve(), \
            tensormsg.connect(listener.url) as ep:
        for use in ep.call, ep.stream:
            with pytest.raises(TypeError, match="name is str, not"):
                use(wrong)


# --- options ---

def test_an_option_of_another_call_is_no_metadata():
    def refused(use, *names):
        for name in names:
            with pytest.raises(TypeError, match=f"{name}= .*meta={{'{name}'"):
                use(X, **{name: True})

    def of_method(use):
        return lambda data, **more: use("m", data, **more)

    with tensormsg.listen(":0") as listener, listener.serve(threads=1) as server, \
            tensormsg.connect(listener.url) as ep, \
            tensormsg.sync.publish(":0") as camera:
        @server.method("m")
        def method(stream):
            refused(stream.send, "acked", "copy", "keep_strides", "verify")
            for msg in stream:
                yield {"x": msg["x"], "copy": msg.meta["copy"]}

        refused(ep.send, "copy", "attempts", "into", "idempotent", "loan")
        refused(camera.send, "acked")
        refused(of_method(ep.call), "acked", "copy", "keep_strides")
        refused(of_method(ep.start_call), "acked", "verify")
        refused(of_method(ep.stream), "acked", "attempts", "into", "lend")
        refused(tensormsg.Reply, "acked", "timeout", "into")
        with ep.stream("m") as stream:
            refused(stream.send, "acked", "copy", "keep_strides", "verify")
            stream.send(X, meta={"copy": 3})
            stream.done_writing()
            assert stream.recv(WAIT)["copy"] == 3


def test_an_option_of_another_call_is_no_metadata_with_asyncio():
    async def main():
        async with tensormsg.listen(":0") as listener, \
                tensormsg.connect(listener.url) as ep, \
                tensormsg.publish(":0") as camera:
            @listener.serve().method("m")
            async def method(stream):
                async for msg in stream:
                    yield {"x": msg["x"]}

            with pytest.raises(TypeError, match="acked= "):
                await camera.send(X, acked=True)
            async with ep.stream("m") as stream:
                with pytest.raises(TypeError, match="copy= "):
                    await stream.send(X, copy=False)
                with pytest.raises(TypeError, match="verify= "):
                    await ep.call("m", X, verify=True)
                await stream.done_writing()
                assert await stream.recv() is None

    run(main())


def warned(record):
    """The keywords, and what was said to be meant; each of a line of this
    file."""
    assert all(one.filename == __file__ for one in record)
    words = [str(one.message).split() for one in record]
    return [(one[0], one[6]) for one in words]


# Of an application's, which are close to options.
WORDS = ("lon", "len", "led", "int", "intro", "metal", "attempt", "asked",
         "process", "very", "progressive", "idempotency")


def test_a_keyword_that_looks_like_an_option_is_warned_of():
    with tensormsg.listen(":0", background=True) as listener, \
            tensormsg.connect(listener.url) as ep, \
            tensormsg.sync.publish(":0") as camera, \
            warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("default")
        for _ in range(3):  # once in a place
            ep.send(X, ack=True, time_out=5)
            assert listener.recv(WAIT).meta == {"ack": True, "time_out": 5}
        ep.send(X, meta={"ack": 1}, frame=7, packed=1, lens="wide", load=.5)
        assert listener.recv(WAIT).meta["ack"] == 1
        ep.send(X, **dict.fromkeys(WORDS, 1))
        camera.send(X, verfy=False)
        tensormsg.Reply(X, on_relase=1)
        ep.start_call("m", X, atempts=2).cancel()
        assert warned(record) == [
            ("ack=", "acked="), ("time_out=", "timeout="), ("verfy=", "verify="),
            ("on_relase=", "on_release="), ("atempts=", "attempts=")]


def test_a_stream_and_asyncio_warn_of_such_a_keyword():
    async def main():
        async with tensormsg.listen(":0") as listener, \
                tensormsg.connect(listener.url) as ep:
            @listener.serve().method("m")
            async def method(stream):
                async for msg in stream:
                    yield {"ack": msg.meta["ack"]}

            with warnings.catch_warnings(record=True) as record:
                warnings.simplefilter("default")
                async with ep.stream("m", timout=WAIT) as stream:
                    for _ in range(2):
                        await stream.send(X, ack=1)
                        assert (await stream.recv())["ack"] == 1
                await asyncio.create_task(ep.send(X, frame=1))
                assert warned(record) == [("timout=", "timeout="),
                                          ("ack=", "acked=")]

    run(main())


def test_a_task_of_such_a_call_is_warned_of_with_where_it_was_made():
    async def main():
        async with tensormsg.listen(":0") as listener, \
                tensormsg.connect(listener.url) as ep:
            with warnings.catch_warnings(record=True) as record:
                warnings.simplefilter("default")
                await asyncio.create_task(ep.send(X, ack=1))
            (one,) = record
            (made,) = tracemalloc.get_object_traceback(one.source)
            assert made.filename == __file__

    tracemalloc.start()
    try:
        run(main())
    finally:
        tracemalloc.stop()


# --- no limit ---

@pytest.mark.parametrize("endless", [None, math.inf, 1e300,
                                     np.float64(1e9)], ids=repr)
def test_no_limit(endless):
    with tensormsg.listen(":0", background=True) as server:
        with tensormsg.connect(server.url, timeout=endless) as ep:
            ep.send(X, timeout=endless)
            assert server.recv(endless)["x"][2] == 2
            ep.ready(endless)
            with pytest.raises(tensormsg.Unavailable):
                ep.call("x", timeout=endless)
            ep.close(endless)


def test_no_limit_with_asyncio():
    async def main():
        async with tensormsg.listen(":0") as server:
            for endless in None, math.inf:
                ep = await tensormsg.connect(server.url, timeout=endless)
                await ep.send(X, timeout=endless, acked=False)
                await server.recv()
                await ep.ready(endless)
                await ep.close(endless)

    run(main())


def test_not_to_wait():
    with tensormsg.listen(":0", background=True) as server:
        with tensormsg.connect(server.url) as ep:
            since = time.monotonic()
            for use in (lambda: ep.recv(0), lambda: server.recv(0),
                        lambda: ep.send(X, acked=True, timeout=0),
                        lambda: tensormsg.sync.connect("127.0.0.1:1",
                                                       timeout=0)):
                with pytest.raises((tensormsg.TimedOut,
                                    tensormsg.Unreachable)):
                    use()
            ep.send(X, timeout=0, i=1)
            assert time.monotonic() - since < 5
            msg = server.recv(WAIT)
            while msg.meta.get("i") != 1:
                msg = server.recv(WAIT)
            ep.send(X)
            end = time.monotonic() + WAIT
            while True:  # what is there is taken
                try:
                    assert server.recv(0)["x"][2] == 2
                    break
                except tensormsg.TimedOut:
                    assert time.monotonic() < end


def test_not_to_wait_with_asyncio():
    async def main():
        async with tensormsg.listen(":0") as server, \
                tensormsg.connect(server.url) as ep:
            @server.serve().method("idle", stream=True)
            async def idle(stream):
                await asyncio.sleep(WAIT)

            x = np.zeros(3)
            stream = ep.stream("idle")
            for use in (lambda: ep.recv(0), lambda: server.recv(timeout=0),
                        lambda: ep.recv_into({"x": x}, 0),
                        lambda: stream.recv(0), lambda: stream.wait(0)):
                with pytest.raises(tensormsg.TimedOut):
                    await use()
            stream.cancel()
            await ep.send(X)
            end = time.monotonic() + WAIT
            while True:  # what is there is taken, and others have their turns
                try:
                    assert (await server.recv(0))["x"][2] == 2
                    break
                except tensormsg.TimedOut:
                    assert time.monotonic() < end

    run(main())


# --- before anybody listens ---

def later(url, go):
    """A thread that listens there when it may, for one message."""
    def listen():
        go.wait(WAIT)
        with tensormsg.sync.listen(url) as listener:
            assert listener.recv(WAIT).meta["frame"] == 7

    thread = threading.Thread(target=listen)
    thread.start()
    return thread


def free_place(place, tmp_path):
    if place == "unix":
        return f"unix://{tmp_path}/later"
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"127.0.0.1:{free.getsockname()[1]}"


@pytest.mark.parametrize("place, timeout", [("tcp", WAIT), ("unix", None)])
def test_who_connects_may_come_first(place, timeout, tmp_path):
    url, go = free_place(place, tmp_path), threading.Event()
    thread = later(url, go)
    threading.Timer(.1, go.set).start()
    with tensormsg.connect(url, wait=True, timeout=timeout) as ep:
        assert go.is_set()
        ep.send(X, frame=7)
    thread.join()


@pytest.mark.parametrize("place, timeout", [("tcp", None), ("unix", WAIT)])
def test_who_connects_may_come_first_with_asyncio(place, timeout, tmp_path):
    url, go = free_place(place, tmp_path), threading.Event()
    thread = later(url, go)

    async def connect():
        return await tensormsg.connect(url, wait=True, timeout=timeout)

    async def main():
        connecting = asyncio.ensure_future(connect())
        idle = await becomes_idle(.5, .05)  # some 3 attempts
        assert not connecting.done()
        go.set()
        async with await connecting as ep:
            await ep.send(X, frame=7)
        return idle

    assert run(main())
    thread.join()


def test_to_wait_for_somebody_in_vain(tmp_path):
    url = f"unix://{tmp_path}/none"

    async def connect(**how):
        await tensormsg.connect(url, **how)

    for use in (lambda **how: tensormsg.sync.connect(url, **how),
                lambda **how: run(connect(**how))):
        with pytest.raises(tensormsg.Unreachable,
                           match="No such file.*; wait=True waits until"):
            use(timeout=10)
        with pytest.raises(tensormsg.Unreachable,
                           match="nobody listened for 0.* s: .*No such file"
                           ) as raised:
            use(timeout=.2, wait=True)
        assert "wait=True" not in raised.value.reason
    with pytest.raises(tensormsg.NotFound, match="wait=True waits"):
        tensormsg.sync.connect("no-such-host.invalid:1")
    with pytest.raises(tensormsg.Unsupported, match="ucx://"):
        tensormsg.sync.connect("ucx://127.0.0.1:1", wait=True)


def test_a_refusal_ends_the_wait():
    key, another = tensormsg.generate_key(), tensormsg.generate_key()
    with tensormsg.listen(":0", key=key, background=True) as server:
        with pytest.raises(tensormsg.Refused):
            tensormsg.sync.connect(server.url, key=another, wait=True,
                                   timeout=None)


# --- what is entered more than once ---

def test_a_connect_is_entered_once_at_a_time():
    with tensormsg.listen(":0", background=True) as server:
        connecting = tensormsg.connect(server.url)
        for _ in range(2):  # one after the other is two connections
            with connecting as ep:
                with pytest.raises(RuntimeError, match="is entered already"):
                    with connecting:
                        pass
                ep.send(X, timeout=WAIT)
                assert server.recv(WAIT)["x"][2] == 2


def test_a_connect_is_entered_once_at_a_time_with_asyncio():
    async def main():
        async with tensormsg.listen(":0") as server:
            connecting = tensormsg.connect(server.url)
            for _ in range(2):
                async with connecting as ep:
                    with pytest.raises(RuntimeError, match="entered already"):
                        async with connecting:
                            pass
                    await ep.send(X)
                    await server.recv()

            async def enter():
                async with connecting as ep:
                    await ep.send(X)
                    await server.recv()

            outcomes = await asyncio.gather(enter(), enter(),
                                            return_exceptions=True)
            assert sorted(map(type, outcomes), key=str) == [
                type(None), RuntimeError]
            bad = tensormsg.connect("127.0.0.1:1")
            for _ in range(2):
                with pytest.raises(tensormsg.Unreachable):
                    async with bad:
                        pass

    run(main())


def test_a_listener_that_was_closed_says_so():
    async def aenter(made):
        async with made:
            pass

    async def through(made):
        async for _ in made:
            pass

    async def awaited(made):
        await made

    async def received(made):
        await made.recv()

    for use in (lambda made: made.__enter__(), iter,
                lambda made: run(aenter(made)), lambda made: run(through(made)),
                lambda made: run(awaited(made)),
                lambda made: run(received(made))):
        made = tensormsg.listen(":0")
        with made:
            pass
        with pytest.raises(tensormsg.Closed, match="listen\\(\\) makes another"):
            use(made)


def test_what_is_opened_may_be_awaited_and_used_at_once():
    async def main():
        listening = tensormsg.listen(":0")
        ep = await tensormsg.connect(listening.url)
        await ep.send(X, frame=1)
        assert (await listening.recv(WAIT)).meta == {"frame": 1}
        with pytest.raises(tensormsg.TimedOut, match="no message in 0.01 s"):
            await listening.recv(timeout=.01)
        listener = await listening
        assert await listening is listener
        del listening
        await ep.send(X, frame=2)
        assert (await listener.recv()).meta == {"frame": 2}
        server = listener.serve()
        server.method("m")(lambda request: request)
        assert (await ep.call("m", X))["x"][2] == 2
        await ep.close()
        await listener.close()

        camera = await tensormsg.publish(":0", keep=1)
        await camera.send(X, frame=3)
        async with tensormsg.connect(camera.url) as ep:
            assert (await ep.recv(WAIT)).meta == {"frame": 3}
        await camera.close()

    run(main())


def test_a_publish_is_entered_once():
    made = tensormsg.publish(":0")
    with made as camera:
        with pytest.raises(RuntimeError, match="entered already"):
            made.__enter__()
        camera.send(X)
    with pytest.raises(tensormsg.Closed):
        made.__enter__()


# --- what is bounded ---

def test_a_queue_takes_between_half_of_it_and_all():
    """As `queue_depth` says, whatever was received before."""
    with tensormsg.listen(":0", background=True, queue_depth=16) as server:
        ep = tensormsg.sync.connect(server.url)
        counts = set()
        for taken in 1, 7, 8, 15:
            for _ in range(taken):
                ep.send(X, timeout=WAIT)
                server.recv(WAIT)
            count = 0
            try:
                while True:
                    ep.send(X, timeout=.5)
                    count += 1
            except tensormsg.TimedOut:
                counts.add(count)
            for _ in range(count):
                server.recv(WAIT)
        assert min(counts) >= 8 and max(counts) <= 17, counts
        ep.abort()


@pytest.mark.parametrize("place", [13337, None, b"127.0.0.1:1", ("a", 1)])
def test_a_place_is_a_str(place):
    for module in tensormsg, tensormsg.sync:
        with pytest.raises(TypeError, match='is not an address: give a str, '
                                            '"host:port"'):
            module.listen(place)
        with pytest.raises(TypeError, match='is not an address: give a str, '
                                            '"host:port"'):
            with module.connect(place):
                pass


def test_a_method_has_a_name():
    with tensormsg.sync.listen(":0") as listener, listener.serve() as server:
        with pytest.raises(TypeError, match="the name that is called"):
            @server.method
            def method(request):
                return {}


def test_what_listen_gives_says_what_to_do():
    with pytest.raises(AttributeError, match="result of listen.. has no 'recv' yet"):
        tensormsg.listen(":0").recv()


def test_insecure_says_it_in_pythons_words():
    with pytest.raises(tensormsg.Insecure,
                       match="give key=, or allow_unauthenticated=True if"):
        tensormsg.listen("0.0.0.0:0")


def test_a_listener_that_nobody_moves_is_named():
    async def main():
        with pytest.raises(tensormsg.TimedOut, match="nothing moves"):
            await tensormsg.connect(server.url, timeout=.5)

    server = tensormsg.sync.listen(":0")
    for background in False, True:
        with pytest.raises(tensormsg.TimedOut, match="nothing moves: make it"):
            tensormsg.sync.connect(server.url, timeout=.5,
                                   background=background)
    asyncio.run(main())
    server.abort()


@pytest.mark.parametrize("way", ["sync", "asyncio"])
def test_a_listener_leaves_those_that_stand_still_together(way, caplog):
    async def close(listening, eps):
        async with listening as listener:
            while len(listener.peers) < len(eps):
                await asyncio.sleep(.01)
            await listener.close(.5)

    listening = tensormsg.listen(":0", background=True)
    eps = [tensormsg.sync.connect(listening.url) for _ in range(3)]
    since = time.monotonic()
    if way == "asyncio":
        asyncio.run(close(listening, eps))
    else:
        with listening as listener:
            while len(listener.peers) < len(eps):
                time.sleep(.01)
            since = time.monotonic()
            listener.close(.5)
    assert time.monotonic() - since < 1.4
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 3 and all(
        "closing took more than 0.5 s" in one and "needs background=True" in one
        for one in said), said
    for ep in eps:
        ep.abort()


@pytest.mark.parametrize("face", [tensormsg, tensormsg.sync],
                         ids=["asyncio", "blocking"])
def test_a_stream_carries_what_either_side_asks_for(face):
    for listening, dialling in ("stream", None), (None, "stream"):
        with face.listen(":0", carrier=listening, background=True) as listener, \
                face.connect(listener.url, carrier=dialling) as ep:
            assert ep.describe()["carrier"] == "stream"
    with face.publish("127.0.0.1:0", carrier="stream",
                      background=True) as publisher, \
            face.connect(publisher.url) as ep:
        assert ep.describe()["carrier"] == "stream"
    with face.listen(":0", carrier="ucx", background=True) as listener, \
            pytest.raises(tensormsg.Incompatible, match="carrier=stream"):
        with face.connect(listener.url, carrier="stream"):
            pass
    with pytest.raises(ValueError, match="carrier='tls': it is 'ucx'"):
        face.connect("127.0.0.1:9", carrier="tls")
