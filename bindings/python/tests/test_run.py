# SPDX-License-Identifier: BSD-3-Clause
"""A server that is ended by a signal: it drains within its grace time, and its
exit code tells whether calls were cut. What it says of itself meanwhile."""

import asyncio
import os
import signal
import threading
import time

import numpy as np
import pytest

import tensormsg
from conftest import WAIT, python
from tensormsg import sync

SERVER = {"sync": """
import sys, time, numpy as np, tensormsg
with tensormsg.listen(":0", background=True) as listener:
    server = listener.serve(threads=4)

    @server.method("slow")
    def slow(request):
        print("begun", flush=True)
        end = time.monotonic() + float(request["seconds"])
        while time.monotonic() < end and not request.over:
            time.sleep(.01)
        return {"x": np.ones(3_000_000)}

    print(listener.url, flush=True)
    code = server.run(grace=float(sys.argv[1]))
    assert listener._hub.closed
sys.exit(code)
""", "asyncio": """
import asyncio, sys, numpy as np, tensormsg

async def main():
    async with tensormsg.listen(":0") as listener:
        server = listener.serve()

        @server.method("slow")
        async def slow(request):
            print("begun", flush=True)
            await asyncio.sleep(float(request["seconds"]))
            return {"x": np.ones(3_000_000)}

        print(listener.url, flush=True)
        code = await server.run(grace=float(sys.argv[1]))
        assert listener._hub.closed
        return code

sys.exit(asyncio.run(main()))
"""}
CUT = 8


def until_draining(ep):
    end = time.monotonic() + WAIT
    while ep.health() != "DRAINING":
        assert time.monotonic() < end
        time.sleep(.01)


@pytest.mark.parametrize("face", SERVER)
def test_a_signal_lets_calls_end(face):
    with python("-c", SERVER[face], 20) as process:
        url = process.stdout.readline().strip()
        with sync.connect(url, background=True) as ep:
            call = ep.start_call("slow", {"seconds": .7})
            assert process.stdout.readline() == "begun\n"
            assert ep.health() == "SERVING"
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGTERM)  # that is the same
            until_draining(ep)
            with pytest.raises(tensormsg.Unavailable) as refused:
                ep.call("slow", {"seconds": 0.}, timeout=WAIT)
            assert not refused.value.may_have_run
            assert call.wait(WAIT)["x"].sum() == 3_000_000
        assert process.wait(WAIT) == 0


def test_what_takes_longer_is_cut():
    with python("-c", SERVER["sync"], .2) as process:
        url = process.stdout.readline().strip()
        ep = sync.connect(url, background=True)
        call = ep.start_call("slow", {"seconds": WAIT})
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        with pytest.raises(tensormsg.Unavailable, match="shut down"):
            call.wait(WAIT)
        assert process.wait(WAIT / 2) == CUT
        ep.abort()


def test_a_second_signal_ends_it_at_once():
    with python("-c", SERVER["asyncio"], WAIT) as process:
        url = process.stdout.readline().strip()
        ep = sync.connect(url, background=True)
        call = ep.start_call("slow", {"seconds": WAIT})
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGTERM)
        until_draining(ep)
        time.sleep(.2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT / 2) == -signal.SIGTERM
        with pytest.raises(tensormsg.PeerLost):
            call.wait(WAIT)
        ep.abort()


def handlers():
    return [signal.getsignal(number)
            for number in (signal.SIGTERM, signal.SIGINT)]


def test_it_ends_with_its_server_and_leaves_the_handlers():
    before = handlers()
    with tensormsg.listen(":0", background=True) as listener:
        server = listener.serve()
        timer = threading.Timer(.1, server.close)
        timer.start()
        assert server.run(grace=5) == 0
        timer.join()
        assert handlers() == before
        failed = []

        def run():
            with pytest.raises(RuntimeError, match="main thread") as error:
                server.run(grace=5)
            failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        assert failed
        with pytest.raises(ValueError, match="grace=-1"):
            server.run(grace=-1)

    async def main():
        async with tensormsg.listen(":0") as listener:
            server = listener.serve()
            asyncio.get_running_loop().call_later(
                .1, asyncio.ensure_future, server.close())
            assert await server.run(grace=5) == 0
            os.kill(os.getpid(), signal.SIGTERM)

    caught = []
    signal.signal(signal.SIGTERM, lambda number, frame: caught.append(number))
    ours = handlers()
    asyncio.run(main())
    assert handlers() == ours and caught == [signal.SIGTERM]
    signal.signal(signal.SIGTERM, before[0])


def test_a_server_says_whether_it_is_ready():
    with tensormsg.listen(":0", background=True) as listener, \
            listener.serve(ready=False) as server, \
            sync.connect(listener.url, background=True) as ep:
        assert not server.ready and ep.health() == "NOT_SERVING"

        @server.method("echo")
        def echo(request):
            return dict(request)

        assert ep.call("echo", {"x": 1})["x"] == 1  # it refuses no call
        server.ready = True
        assert server.ready and ep.health() == ep.health("echo") == "SERVING"
        server.ready = False
        assert ep.health() == "NOT_SERVING"


@pytest.mark.parametrize("face", SERVER)
def test_who_reconnects_goes_on_with_the_next_server(face):
    """And who does not sees an orderly end."""
    with python("-c", SERVER[face], 20) as process:
        url = process.stdout.readline().strip()
        ep = sync.connect(url, background=True, reconnect=WAIT,
                          backoff=(.005, .02))
        other = sync.connect(url, background=True)
        call = ep.start_call("slow", {"seconds": .3})
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGTERM)
        assert call.wait(WAIT)["x"].sum() == 3_000_000
        assert process.wait(WAIT) == 0
        with pytest.raises(tensormsg.Closed):
            other.recv(timeout=WAIT)
        other.close()
    source = SERVER[face].replace('":0"', repr(url))
    with python("-c", source, 20) as process:
        process.stdout.readline()
        assert ep.call("slow", {"seconds": 0.}, timeout=WAIT, attempts=20,
                       idempotent=True)["x"].sum() == 3_000_000
        ep.close()


@pytest.mark.parametrize("face", SERVER)
@pytest.mark.parametrize("how", ["wait", "attempts"])
def test_a_call_waits_for_who_listens_and_does_not_serve_yet(face, how):
    """It was answered already, and more often than it has attempts."""
    def begin(server):
        time.sleep(.2)
        server.method("ready")(lambda request: {})

    async def wait_with_asyncio():
        async with tensormsg.listen(":0") as listener, \
                tensormsg.connect(listener.url, wait=how == "wait") as ep:
            call = ep.start_call("ready", timeout=WAIT, attempts=attempts)
            await asyncio.sleep(.2)
            await asyncio.to_thread(begin, listener.serve())
            await call

    attempts = 1 if how == "wait" else 2
    if face == "asyncio":
        asyncio.run(asyncio.wait_for(wait_with_asyncio(), WAIT))
        return
    with sync.listen(":0", background=True) as listener, \
            sync.connect(listener.url, wait=how == "wait") as ep:
        late = threading.Timer(.2, lambda: begin(listener.serve()))
        late.start()
        ep.call("ready", timeout=WAIT, attempts=attempts)
        late.join()


def test_who_waits_for_a_server_hears_that_nobody_serves():
    with sync.listen(":0", background=True) as listener, \
            sync.connect(listener.url, wait=True) as ep:
        with pytest.raises(tensormsg.Unavailable,
                           match=r"nobody serves here \(.* attempts\)") as info:
            ep.call("none", timeout=.3)
        assert info.value.may_have_run is False
        with sync.connect(listener.url) as other, \
                pytest.raises(tensormsg.Unavailable, match="serves here .no h"):
            other.call("none", timeout=WAIT)
