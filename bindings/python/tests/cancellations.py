# SPDX-License-Identifier: BSD-3-Clause
"""cancellations.py COUNT [SEED]: gives up random waits, COUNT of them: sends,
receives, receives into buffers, calls, and both on streams, on two connections
in one event loop. What was sent arrives once, in order and whole; what was
given up as a send at most once; a receive that was given up took none; a reply
is that of its call."""

import asyncio
import collections
import os
import pathlib
import random
import sys

import numpy as np

import tensormsg

GIVEN_UP = object()
SIZES = 1, 300, 9000, 70000
FIXED = 30000
SLICE = 10000
WAIT = 60  # seconds, before something is called a failure


class Run:
    def __init__(self, count, seed):
        self.random = random.Random(seed)
        self.count = count
        self.given_up = {}
        self.done = {}

    @property
    def over(self):
        return sum(self.given_up.values()) >= self.count

    async def maybe(self, what, coroutine):
        """What it returns, or GIVEN_UP; half of them are cancelled, sooner or
        later."""
        task = asyncio.ensure_future(coroutine)
        if self.random.random() < .6:
            for _ in range(self.random.choice((0, 0, 1, 2, 3, 5, 9))):
                await asyncio.sleep(0)
            if self.random.random() < .1:
                await asyncio.sleep(self.random.random() * .001)
            task.cancel()
        try:
            result = await asyncio.wait_for(task, WAIT)
        except asyncio.CancelledError:
            self.given_up[what] = self.given_up.get(what, 0) + 1
            return GIVEN_UP
        self.done[what] = self.done.get(what, 0) + 1
        return result


class Direction:
    """Numbered messages one way: who sends and who receives."""

    def __init__(self, run, name, fixed=False):
        self.run = run
        self.name = name
        self.fixed = fixed
        self.sent, self.lost, self.got = [], set(), []

    async def write(self, send):
        n = 0
        while not self.run.over:
            size = FIXED if self.fixed else self.run.random.choice(SIZES)
            data = {"n": np.array([n, size]), "x": np.full(size, n % 251, "u1")}
            outcome = await self.run.maybe(self.name + " send", send(data))
            if outcome is GIVEN_UP:
                self.lost.add(n)
            else:
                self.sent.append(n)
            n += 1
        await send({"n": np.array([-1, 1]), "x": np.zeros(
            FIXED if self.fixed else 1, "u1")})

    async def read(self, receive):
        while True:
            message = await self.run.maybe(self.name + " receive", receive())
            if message is GIVEN_UP:
                continue
            n, size = (int(each) for each in message["n"])
            if n < 0:
                return
            assert message["x"].shape == (size,), (self.name, n)
            assert (message["x"] == n % 251).all(), (self.name, n)
            self.got.append(n)

    def check(self):
        assert self.got == sorted(set(self.got)), f"{self.name}: order"
        missing = set(self.sent) - set(self.got)
        assert not missing, f"{self.name}: {sorted(missing)[:9]} never came"
        assert set(self.got) <= set(self.sent) | self.lost, self.name


def offer(server):
    @server.method("same")
    async def same(request):
        if request["x"][0] % 3 == 0:
            await asyncio.sleep(.0005)
        return {"x": request["x"].copy()}

    @server.method("back")
    async def back(stream):
        async for message in stream:
            yield {"n": message["n"].copy(), "x": message["x"].copy()}


async def call(run, ep):
    n = 0
    while not run.over:
        n += 1
        x = np.full(run.random.choice(SIZES[:3]), n)
        reply = await run.maybe("call", ep.call("same", {"x": x}))
        assert reply is GIVEN_UP or np.array_equal(reply["x"], x)


async def play(count, seed):
    run = Run(count, seed)
    there, back = Direction(run, "there"), Direction(run, "back", fixed=True)
    through = Direction(run, "stream")
    async with tensormsg.listen(":0") as listener:
        server = listener.serve()
        offer(server)
        async with tensormsg.connect(listener.url) as ep, \
                tensormsg.connect(listener.url) as other:
            await ep.send({"hello": np.zeros(1)})
            peer = (await listener.recv()).peer
            n, x = np.zeros(2, "i8"), np.zeros(FIXED, "u1")

            def receive():
                way = run.random.randrange(3)
                return ep.recv() if way == 0 else ep.recv_into(
                    {"n": n, "x": x} if way == 1 else {"x": x})

            async with other.stream("back", queue=8) as stream:
                async def write():
                    await through.write(stream.send)
                    await stream.done_writing()

                await asyncio.gather(
                    there.write(ep.send), there.read(listener.recv),
                    back.write(peer.send), back.read(receive),
                    write(), through.read(stream.recv),
                    *(call(run, other) for _ in range(4)))
    for direction in there, back, through:
        direction.check()
    print(f"seed {seed}: given up {run.given_up}, done {run.done}", flush=True)
    return run


def main(count, seed=20261122):
    """In slices, each with a seed of its own, which repeats it."""
    place = pathlib.Path(os.environ.get("TMSG_SOAK_STATE", "."),
                         "python_cancellations.place")
    done = int(place.read_text()) if place.exists() else 0
    print(f"seed {seed}, from {done} of {count}", flush=True)
    totals = collections.Counter()
    for at in range(done, count, SLICE):
        run = asyncio.run(play(min(count - at, SLICE), seed + at // SLICE))
        totals.update(run.given_up)
        place.write_text(f"{at + SLICE}\n")
    place.write_text("0\n")
    print(f"totals since {done}: given up {dict(totals)}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
