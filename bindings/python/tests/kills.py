# SPDX-License-Identifier: BSD-3-Clause
"""kills.py COUNT [SEED]: kills a peer at a random moment, COUNT of them: one that
answers here, or one that asks. What was under way with it, messages both ways,
into buffers, calls and streams, ends with an error of the package, and what
came before is whole; the next one is answered as ever."""

import asyncio
import collections
import contextlib
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

import tensormsg

WAIT = 60  # seconds, before something is called a failure
SIZES = 1, 3000, 70000, 1 << 20
FIXED = 30000
SLICE = 100


def whole(message, n):
    assert (message["x"] == n % 251).all() and message.meta["n"] == n


def filled(n, size):
    return {"x": np.full(size, n % 251, "u1")}


# Who answers.

async def answer(listener):
    async def once(message):
        with contextlib.suppress(tensormsg.Error):
            await message.peer.send(message.tree(), meta=message.meta)

    async with listener.serve() as server:
        @server.method("same")
        async def same(request):
            return {"x": request["x"].copy()}

        @server.method("back")
        async def back(stream):
            async for message in stream:
                yield {"x": message["x"].copy()}

        async for message in listener:
            await once(message)


# Who asks: each of these goes on until it fails.

async def messages(ep, rng, into):
    n, x = 0, np.zeros(FIXED, "u1")
    while True:
        n += 1
        await ep.send(filled(n, FIXED if into else rng.choice(SIZES)), n=n,
                      acked=rng.random() < .2)
        whole(await (ep.recv_into({"x": x}) if into else ep.recv()), n)


async def calls(ep, rng):
    n = 0
    while True:
        n += 1
        reply = await ep.call("same", filled(n, rng.choice(SIZES)))
        assert (reply["x"] == n % 251).all()


async def streams(ep, rng):
    while True:
        async with ep.stream("back") as stream:
            for n in range(rng.choice((1, 5, 50))):
                await stream.send(filled(n, rng.choice(SIZES)))
                assert ((await stream.recv())["x"] == n % 251).all()


def check(went):
    """Each has ended with an error of the package."""
    for error in went:
        if not isinstance(error, tensormsg.Error):
            raise error
    return collections.Counter(type(error).__name__ for error in went)


async def ask(url, rng):
    async with tensormsg.connect(url) as ep, \
            tensormsg.connect(url) as other:
        return check(await asyncio.gather(
            messages(ep, rng, rng.random() < .5), calls(other, rng),
            calls(other, rng), streams(other, rng), return_exceptions=True))


class Blocking:
    """An endpoint or a stream that blocks, under the names of the other kind:
    what is written for that runs in a thread then."""

    def __init__(self, of):
        self.of = of

    async def __aenter__(self):
        return Blocking(self.of.__enter__())

    async def __aexit__(self, *error):
        self.of.__exit__(*error)

    def stream(self, *args, **more):
        return Blocking(self.of.stream(*args, **more))

    def __getattr__(self, name):
        async def call(*args, **more):
            return getattr(self.of, name)(*args, **more)
        return call


def ask_blocking(url, rng):
    """The same in threads."""
    went = []

    def run(coroutine):
        try:
            coroutine.send(None)  # it never waits
        except BaseException as error:
            went.append(error)

    with tensormsg.sync.connect(url) as ep, \
            tensormsg.sync.connect(url) as other:
        threads = [threading.Thread(target=run, args=(coroutine,))
                   for coroutine in (
                       messages(Blocking(ep), rng, rng.random() < .5),
                       calls(Blocking(other), rng), streams(Blocking(other),
                                                            rng))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT)
            assert not thread.is_alive(), "it hangs"
        return check(went)


# Processes to be killed.

def serve_forks():
    """Forks one for each line, which is soon done where nothing was used yet."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that none is left
    for line in sys.stdin:
        if os.fork() == 0:
            with contextlib.suppress(tensormsg.Error):
                asyncio.run(be_victim(*line.split()))
            os._exit(0)


async def be_victim(role, place):
    if role == "ask":
        print(os.getpid(), place, flush=True)
        await ask(place, random.Random())
    async with tensormsg.listen(place) as listener:
        print(os.getpid(), listener.url, flush=True)
        await answer(listener)


def kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


class Victims:
    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-B", __file__, "victims"], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "UCX_LOG_LEVEL": "fatal"})

    def make(self, role, place, delay):
        """Where it listens; it is killed after so many seconds."""
        self.process.stdin.write(f"{role} {place}\n")
        self.process.stdin.flush()
        pid, url = self.process.stdout.readline().split()
        threading.Timer(delay, kill, (int(pid),)).start()
        return url

    def close(self):
        self.process.communicate()


async def outlive(victims, place, delay):
    """One that asks here is killed: its connections end, and others go on."""
    async with tensormsg.listen(place) as listener:
        answering = asyncio.ensure_future(answer(listener))
        victims.make("ask", listener.url, delay)
        end = time.monotonic() + WAIT
        await asyncio.sleep(delay)
        while any(not peer.closed for peer in listener.peers):
            assert time.monotonic() < end and not answering.done()
            await asyncio.sleep(.001)
        async with tensormsg.connect(listener.url) as ep:
            reply = await ep.call("same", filled(7, 100))
            assert (reply["x"] == 7).all()
        answering.cancel()
        await asyncio.wait({answering})


def one(victims, rng, folder):
    """Which way, and what was raised."""
    way = rng.choice(("asyncio", "blocking", "outlive"))
    delay = rng.random() * rng.choice((.02, .2))
    place = rng.choice((":0", f"unix://{folder}/{rng.random()}"))
    try:
        if way == "outlive":
            asyncio.run(asyncio.wait_for(outlive(victims, place, delay), WAIT))
            return way, {}
        url = victims.make("answer", place, delay)
        return way, (ask_blocking(url, rng) if way == "blocking" else
                     asyncio.run(asyncio.wait_for(ask(url, rng), WAIT)))
    except tensormsg.Error as error:  # while it connects, or closes
        assert way != "outlive", error
        return way, {type(error).__name__: 1}


def play(count, seed):
    """How often it went each way, and what was raised."""
    ways, errors = {}, collections.Counter()
    victims = Victims()
    try:
        with tempfile.TemporaryDirectory() as folder:
            for number in range(count):
                # Its own: how much one draws depends on when it is killed.
                rng = random.Random(seed * 1000003 + number)
                way, raised = one(victims, rng, folder)
                ways[way] = ways.get(way, 0) + 1
                errors.update(raised)
    finally:
        victims.close()
    print(f"seed {seed}: {ways}, raised {dict(errors)}", flush=True)
    return ways, errors


def main(count, seed=20261122):
    """In slices, each with a seed of its own, which repeats its choices."""
    place = pathlib.Path(os.environ.get("TMSG_SOAK_STATE", "."),
                         "python_kills.place")
    done = int(place.read_text()) if place.exists() else 0
    print(f"seed {seed}, from {done} of {count}", flush=True)
    for at in range(done, count, SLICE):
        play(min(count - at, SLICE), seed + at // SLICE)
        place.write_text(f"{at + SLICE}\n")
    place.write_text("0\n")


if __name__ == "__main__":
    if sys.argv[1] == "victims":
        serve_forks()
    else:
        main(*map(int, sys.argv[1:]))
