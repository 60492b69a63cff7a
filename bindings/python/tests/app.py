# SPDX-License-Identifier: BSD-3-Clause
"""app.py SECONDS [SLICE [SEED]]: a small web application, as one of FastAPI's is:
a life span that opens what the routes use, a task for each request, which is
cancelled when its client hangs up, and work that goes on behind an answer. Its
routes call, stream, fetch and subscribe; what answers them is in the same event
loop. It runs with asyncio's own loop, and as long with uvloop, in asyncio's debug
mode, and is begun and ended once in a slice (20 s). Then no task may be left, and
nobody may have warned of anything. $TMSG_SOAK_STATE keeps how many slices there
were."""

import asyncio
import collections
import contextlib
import gc
import json
import logging
import math
import os
import pathlib
import random
import statistics
import sys
import tempfile
import threading
import time
import warnings

import numpy as np
import uvloop

import tensormsg
from service import MORE_FDS, MORE_KB, MORE_THREADS, used_kb

WAIT = 30  # seconds for what should be soon
CLIENTS = 8
IMPATIENT = .4  # part of the clients that hang up
WARM = 2  # slices of each loop before what is measured counts
SLOW_S = 5.  # that a callback may hold up the loop, on a machine with other work
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


# What the routes use.

def give_methods(server):
    @server.method("infer")
    async def infer(request):
        await asyncio.sleep(request["s"])
        return tensormsg.Reply({"y": 2 * request["x"]}, frame=request["n"])

    @server.method("plain")
    def plain(request):
        return {"y": request["x"].sum()}

    @server.method("fail")
    async def fail(request):
        raise tensormsg.CallError("no such picture", code=404,
                                  details={"n": request["n"]})

    @server.method("count")
    async def count(stream):
        for i in range(stream.request["n"]):
            yield {"i": i, "x": np.full(1000, i)}

    @server.method("twice")
    async def twice(stream):
        async for message in stream:
            yield {"y": 2 * message["x"]}


async def film(camera):
    frame, image = 0, np.empty((120, 160), "u1")
    while True:
        frame += 1
        image[:] = frame % 251
        await camera.send({"image": image}, frame=frame)
        await asyncio.sleep(.01)


async def take(listener, seen):
    async for message in listener:
        seen["received"] += int(message["n"])


async def follow(listener, seen):
    async for event in listener.presence():
        seen["came" if event.joined else "went"] += 1


@contextlib.asynccontextmanager
async def goes_on(coroutine):
    """A task for as long as the block."""
    task = asyncio.ensure_future(coroutine)
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


class App:
    """Its routes are its methods `get_...`, each of which is given a number and
    gives what JSON can say."""

    def __init__(self, folder, rng):
        self.place = f"unix://{folder}/models"
        self.http = f"{folder}/http"
        self.rng = rng
        self.seen = collections.Counter()
        self.behind = set()  # tasks behind an answer
        self.requests = set()

    @contextlib.asynccontextmanager
    async def life_span(self):
        async with contextlib.AsyncExitStack() as opened:
            enter = opened.enter_async_context
            listener = await enter(tensormsg.listen(
                self.place, on_peer=self.on_peer, on_lost=self.on_lost))
            server = await enter(listener.serve(executor=True))
            give_methods(server)
            offer = listener.offer({"w": np.arange(10000.)}, name="weights")
            opened.push_async_callback(offer.withdraw)
            self.camera = await enter(tensormsg.publish(":0", mode="live"))
            await enter(goes_on(film(self.camera)))
            await enter(goes_on(take(listener, self.seen)))
            await enter(goes_on(follow(listener, self.seen)))
            self.ep = await enter(tensormsg.connect(
                self.place, reconnect=True, on_session=self.on_session))
            self.blocking = await asyncio.to_thread(
                tensormsg.sync.connect, self.place)
            opened.push_async_callback(asyncio.to_thread, self.blocking.close)
            front = await asyncio.start_unix_server(self.serve, self.http)
            try:
                yield
            finally:
                front.close()
                await asyncio.gather(*self.requests, *self.behind)

    async def on_peer(self, peer):
        self.seen["on_peer"] += 1

    def on_lost(self, peer, error):
        self.seen["on_lost"] += 1

    async def on_session(self, event):
        self.seen[event.kind] += 1

    # Its requests, one to a connection.

    async def serve(self, reader, writer):
        self.requests.add(asyncio.current_task())
        try:
            line = (await reader.readline()).decode()
            if not line.endswith("\n"):  # it has hung up already
                return
            path, number = line.split()
            work = asyncio.ensure_future(self.answer(path, int(number)))
            gone = asyncio.ensure_future(reader.read(1))
            await asyncio.wait({work, gone},
                               return_when=asyncio.FIRST_COMPLETED)
            gone.cancel()
            if not work.done():
                work.cancel()
                self.seen["hung up"] += 1
            with contextlib.suppress(asyncio.CancelledError):
                writer.write((await work + "\n").encode())
            with contextlib.suppress(ConnectionError):
                await writer.drain()
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            self.requests.discard(asyncio.current_task())

    async def answer(self, path, number):
        try:
            said = await getattr(self, f"get_{path}")(number)
        except tensormsg.Error as error:
            said = {"error": type(error).__name__, "code": error.code}
        self.seen[path] += 1
        return json.dumps(said)

    async def infer(self, number, seconds=0., **more):
        reply = await self.ep.call(
            "infer", {"x": np.full(1000, number), "n": number, "s": seconds},
            **{"timeout": WAIT, **more})
        assert reply.meta["frame"] == number
        return float(reply["y"][-1])

    async def get_infer(self, number):
        return await self.infer(number)

    async def get_plain(self, number):
        reply = await self.ep.call("plain", {"x": np.full(10, number)},
                                   timeout=WAIT)
        return float(reply["y"])

    async def get_thread(self, number):
        """As a route that is a plain function runs."""
        reply = await asyncio.to_thread(
            self.blocking.call, "plain", {"x": np.full(10, number)},
            timeout=WAIT)
        return float(reply["y"])

    async def get_many(self, number):
        return await asyncio.gather(*(self.infer(number + i) for i in range(4)))

    async def get_late(self, number):
        return await self.infer(number, 10., timeout=.02)

    async def get_fail(self, number):
        return await self.ep.call("fail", {"n": number}, timeout=WAIT)

    async def get_nothing(self, number):
        return await self.ep.call("nothing", timeout=WAIT)

    async def get_started(self, number):
        call = self.ep.start_call("infer", {
            "x": np.full(10, number), "n": number, "s": 10.})
        call.cancel()
        return dict(await call)

    async def get_behind(self, number):
        """Work that goes on when this has answered."""
        task = asyncio.ensure_future(self.ep.send({"n": number}, acked=True))
        self.behind.add(task)
        task.add_done_callback(self.behind.discard)
        return number

    async def get_count(self, number):
        """Which is left before its end now and then."""
        got = []
        async with self.ep.stream("count", {"n": 10}) as stream:
            async for message in stream:
                got.append(int(message["i"]))
                if number % 3 == 0:
                    break
        return got

    async def get_twice(self, number):
        async with self.ep.stream("twice") as stream:
            await stream.send({"x": np.full(10, number)})
            answer = await stream.recv(WAIT)
            assert answer is not None
            return float(answer["y"][0])

    async def get_weights(self, number):
        got = await self.ep.fetch(name="weights", wait=WAIT,
                                  slices={"w": np.s_[number:number + 2]})
        return got["w"].tolist()

    async def get_events(self, number):
        frames = []
        async with tensormsg.connect(self.camera.url) as camera:
            async for message in camera:
                frames.append(message.meta["frame"])
                if len(frames) == 3:
                    return frames


ANSWERS = {
    "infer": lambda n: 2. * n, "plain": lambda n: 10. * n,
    "thread": lambda n: 10. * n,
    "many": lambda n: [2. * (n + i) for i in range(4)],
    "late": lambda n: {"error": "TimedOut", "code": 0},
    "fail": lambda n: {"error": "ApplicationFailed", "code": 404},
    "nothing": lambda n: {"error": "NotFound", "code": 0},
    "started": lambda n: {"error": "Canceled", "code": 0},
    "behind": lambda n: n,
    "count": lambda n: list(range(10 if n % 3 else 1)),
    "twice": lambda n: 2. * n, "weights": lambda n: [float(n), n + 1.],
    "events": None}  # frames that there are just then


async def ask(app, until):
    """A client, as long as that, which hangs up at once when it is cancelled."""
    while time.monotonic() < until:
        path = app.rng.choice(list(ANSWERS))
        number = app.rng.randrange(1000)
        reader, writer = await asyncio.open_unix_connection(app.http)
        try:
            writer.write(f"{path} {number}\n".encode())
            if app.rng.random() < IMPATIENT:
                await asyncio.sleep(app.rng.random() * .02)
                continue
            said = json.loads(await asyncio.wait_for(reader.readline(), WAIT))
            expected = ANSWERS[path] and ANSWERS[path](number)
            assert expected is None or said == expected, (path, number, said)
            app.seen["answered"] += 1
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def play(seconds, rng, complaints):
    """What it has seen. No task is left."""
    loop = asyncio.get_running_loop()
    loop.slow_callback_duration = complaints.slow_s
    loop.set_exception_handler(
        lambda loop, context: complaints.said.append(str(context)))
    with tempfile.TemporaryDirectory() as folder:
        app = App(folder, rng)
        async with app.life_span():
            until = time.monotonic() + seconds
            asking = [asyncio.ensure_future(ask(app, until))
                      for _ in range(CLIENTS)]
            await asyncio.wait(asking, timeout=seconds * rng.choice([.9, 2.]))
            for task in asking:  # in the midst of their requests
                task.cancel()
            for error in await asyncio.gather(*asking, return_exceptions=True):
                if error and not isinstance(error, asyncio.CancelledError):
                    raise error
    end = time.monotonic() + WAIT
    while left := asyncio.all_tasks() - {asyncio.current_task()}:
        assert time.monotonic() < end, f"tasks are left: {left}"
        await asyncio.sleep(.001)
    return app.seen


class Complaints(logging.Handler):
    """All that somebody warns of. The package's own warnings do not count: they
    tell of peers that hung up, as some clients do, and of what takes long."""

    def __init__(self, slow_s):
        super().__init__(logging.WARNING)
        self.slow_s = slow_s  # that a callback may hold up the loop
        self.said = []
        logging.getLogger().addHandler(self)
        warnings.simplefilter("always")
        warnings.showwarning = self.warned
        sys.unraisablehook = self.unraisable
        threading.excepthook = self.unraisable

    def emit(self, record):
        ours = record.name.startswith("tensormsg")
        if not ours or record.levelno > logging.WARNING:
            self.said.append(f"{record.name}: {record.getMessage()}")

    def warned(self, message, category, *where):
        self.said.append(f"{category.__name__}: {message}")

    def unraisable(self, args):
        self.said.append(repr(args))


def run(loop, seconds, rng, complaints):
    with asyncio.Runner(debug=True, loop_factory=LOOPS[loop]) as runner:
        seen = runner.run(play(seconds, rng, complaints))
    gc.collect()
    assert not complaints.said, "\n".join(complaints.said)
    return seen


def measure():
    used, _ = used_kb()
    return {"kb": used, "fds": len(os.listdir("/proc/self/fd")),
            "threads": threading.active_count()}


def must_be_flat(samples):
    """Of one loop: the later half, beside the one before."""
    half = len(samples) // 2
    for what, more in (("kb", MORE_KB), ("fds", MORE_FDS),
                       ("threads", MORE_THREADS)):
        before, after = (statistics.median(one[what] for one in part)
                         for part in (samples[:half], samples[half:]))
        assert after <= before + more, f"{what}: {after}, and {before} before"


def main(seconds, length=20, seed=20261129):
    place = pathlib.Path(os.environ.get("TMSG_SOAK_STATE", "."), "app.place")
    keeps = seconds > length
    done = int(place.read_text()) if keeps and place.exists() else 0
    count = len(LOOPS) * math.ceil(seconds / length)
    print(f"seed {seed}, from {done} of {count} slices of {length:g} s",
          flush=True)
    complaints = Complaints(SLOW_S if keeps else WAIT)
    samples = {loop: [] for loop in LOOPS}
    totals = collections.Counter()
    for at in range(done, count):
        loop = list(LOOPS)[at % len(LOOPS)]
        seen = run(loop, length, random.Random(seed + at), complaints)
        totals += seen
        sample = measure()
        print(f"{at + 1}: {loop}: {seen['answered']} answered, "
              f"{seen['hung up']} hung up, {sample}", flush=True)
        samples[loop].append(sample)
        if keeps:
            place.write_text(f"{at + 1}\n")
    for each in samples.values():
        if len(each) > 2 * WARM:
            must_be_flat(each[WARM:])
    if keeps:
        assert all(totals[path] for path in ANSWERS), totals
        place.write_text("0\n")
    print(f"totals: {dict(totals)}")


if __name__ == "__main__":
    os.environ.setdefault("UCX_LOG_LEVEL", "fatal")
    main(*map(float, sys.argv[1:3]), *map(int, sys.argv[3:]))
