# SPDX-License-Identifier: BSD-3-Clause
"""restarts.py RESTARTS [CLIENTS [SEED]]: a server is killed at random moments, and
started anew, under clients that call, send, stream, fetch and subscribe. The
server writes what it ran to a file, line by line, the clients what they were
told. When all is over both are compared: nothing that was acknowledged is
lost, nothing ran twice, nothing ran that says it did not, and nobody was stuck
longer than its deadline. $TMSG_SOAK_STATE keeps where it is, in slices of 50
restarts: over TCP and unix:// by turns, with a listener that keeps sessions and
one that does not."""

import asyncio
import collections
import contextlib
import logging
import math
import mmap
import os
import pathlib
import random
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback

import numpy as np

import tensormsg
from kills import Blocking

TIMEOUT = 5  # of what a client does
LATE = 10  # seconds more, for a machine that is busy
SLICE = 50
PAUSE = .02  # between what a client does, in the mean
TAKING, STOP, CONNECTED = 0, 1, 64  # bytes that all processes share
RECONNECT = {"reconnect": math.inf, "backoff": (.005, .05)}
MAY_END = tensormsg.PeerLost, tensormsg.TimedOut
# Of a server that has begun to listen and not to serve.
EARLY = tensormsg.NotFound, tensormsg.Unavailable


# The server.

class Log:
    """Lines of a file, each of which stays although its writer is killed."""

    def __init__(self, path):
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND,
                           0o600)

    def write(self, *words):
        line = " ".join(map(str, words)) + "\n"
        assert os.write(self._fd, line.encode()) == len(line)


def offer_methods(server, log, life):
    def ran(request):
        log.write("call", request["client"], request["n"], life)
        time.sleep(random.random() * .004)  # it may be killed here, too
        return {"n": request["n"], "life": life}

    server.method("once")(ran)
    server.method("again", idempotent=True)(ran)

    @server.method("items", stream=True)
    def items(stream):
        for message in stream:
            log.write("item", message["client"], message["n"], life)
            yield {"n": message["n"]}


def take(listener, shared, log):
    """What has come. It is not killed between taking a message, which
    acknowledges it, and writing that down."""
    while True:
        shared[TAKING] = 1
        try:
            message = listener.recv(timeout=0)
            log.write("sent", message.meta["client"], message.meta["n"],
                      int(message["x"][0]))
        except tensormsg.TimedOut:
            return
        finally:
            shared[TAKING] = 0


def serve(places, kept, shared, log, life, ready):
    # Nothing moves until there is an offer, and nobody calls too early.
    with tensormsg.sync.listen(places[0], reconnect=kept) as listener, \
            listener.serve(threads=8) as server, \
            tensormsg.sync.publish(places[1], reconnect=kept, keep=1,
                                   background=True) as camera:
        offer_methods(server, log, life)
        offer = listener.offer({"life": np.full(5000, life)}, name="life")
        os.write(ready, b"!")
        n = 0
        while offer:
            n += 1
            camera.send({"life": np.full(1000, life)}, n=n)
            until = time.monotonic() + .01
            while time.monotonic() < until:
                take(listener, shared, log)
                time.sleep(.001)


# The clients.

class Client:
    """What one does and is told, whether it blocks or not."""

    def __init__(self, number, seed, shared):
        self.number = number
        self.blocks = number % 2 == 1
        self.shared = shared
        self.rng = random.Random(seed * 1000 + number)
        self.told = []
        self.counts = collections.Counter()
        self.slowest = 0.
        self.last = 0  # life of a server that it has seen a message of
        self.events = {}

    async def nap(self, mean=PAUSE):
        seconds = self.rng.random() * 2 * mean
        if self.blocks:
            time.sleep(seconds)
        else:
            await asyncio.sleep(seconds)

    def goes_on(self):
        return not self.shared[STOP]

    async def timed(self, awaitable):
        """What it gives: an error only of a kind that may be, and in time."""
        begun = time.monotonic()
        try:
            return await awaitable, None
        except MAY_END as error:
            return None, error
        except EARLY as error:
            self.counts["too early"] += 1
            return None, error
        finally:
            took = time.monotonic() - begun
            self.slowest = max(self.slowest, took)
            assert took < TIMEOUT + LATE, f"stuck for {took:.1f} s"

    def tell(self, kind, n, error):
        """"yes", or "no", or "maybe", as far as it was told."""
        word = "yes" if error is None else "maybe"
        if error is not None and error.may_have_run is False:
            word = "no"
        self.note(kind, n, word)
        self.counts[f"{kind} {word}"] += 1

    def note(self, *what):
        self.told.append(what)

    async def calls(self, ep, method, first, attempts):
        n = first
        while self.goes_on():
            n += 10
            reply, error = await self.timed(ep.call(
                method, {"client": self.number, "n": n,
                         "x": np.zeros(self.rng.choice((10, 3000, 100000)))},
                timeout=TIMEOUT, attempts=attempts))
            assert error is not None or reply["n"] == n
            self.tell(method, n, error)
            await self.nap()

    async def sends(self, ep):
        n = 0
        while self.goes_on():
            n += 1
            acked = self.rng.random() < .7
            data = {"x": np.full(self.rng.choice((10, 3000, 200000)), n % 251)}
            _, error = await self.timed(ep.send(
                data, client=self.number, n=n, acked=acked, timeout=TIMEOUT))
            self.tell("acked" if acked else "sent", n, error)
            await self.nap()

    async def streams(self, ep):
        n = 0
        while self.goes_on():
            _, error = await self.timed(self.one_stream(ep, n))
            self.counts["streams that ended by name" if error else
                        "streams"] += 1
            n += 100
            await self.nap(PAUSE / 4)

    async def one_stream(self, ep, n):
        """Numbers from n + 1 on."""
        count = self.rng.randrange(2, 30)
        async with ep.stream("items", timeout=TIMEOUT) as stream:
            for i in range(1, count + 1):
                await stream.send({"client": self.number, "n": n + i})
                assert (await stream.recv())["n"] == n + i
                self.note("item", n + i, "yes")
                await self.nap(PAUSE / 4)
            await stream.done_writing()
            assert await stream.recv() is None

    async def fetches(self, ep):
        last = 0
        while self.goes_on():
            reply, error = await self.timed(ep.fetch(
                name="life", wait=TIMEOUT, timeout=TIMEOUT))
            self.counts["fetches that ended by name" if error else
                        "fetches"] += 1
            if error is None:
                life = reply["life"]
                assert (life == life[0]).all() and life[0] >= last
                last = life[0]
            await self.nap()

    async def subscribes(self, ep):
        at = 0, 0
        while self.goes_on():
            try:
                message = await (ep.recv(.2) if self.blocks else
                                 asyncio.wait_for(ep.recv(), .2))
            except (tensormsg.TimedOut, asyncio.TimeoutError):
                continue
            life = message["life"]
            assert (life == life[0]).all()
            assert (life[0], message.meta["n"]) > at
            at = int(life[0]), message.meta["n"]
            self.last = at[0]
            self.counts["published"] += 1

    def on_session(self, name):
        events = self.events[name] = []
        return lambda event: events.append(event.kind)

    def options(self, name, place):
        return (place,), {"background": self.blocks and self.number % 4 == 1,
                          "on_session": self.on_session(name), **RECONNECT}

    def doings(self, ep, camera):
        return (self.calls(ep, "once", 1, 1), self.calls(ep, "once", 2, 3),
                self.calls(ep, "again", 3, 5), self.calls(ep, "again", 4, 1),
                self.sends(ep), self.streams(ep), self.fetches(ep),
                self.subscribes(camera))

    def check_endpoint(self, name, ep):
        assert ep.connected, ep.status
        kinds = self.events[name]
        assert kinds[::2] == len(kinds[::2]) * ["away"], kinds
        assert not {"away"} & set(kinds[1::2]), kinds
        new = kinds.count("new")
        assert ep.describe()["sessions"] == 1 + new
        self.counts[f"new sessions of {name}"] += new

    async def play_async(self, places):
        (one, its), (two, other) = map(self.options, ("ep", "camera"), places)
        async with tensormsg.connect(*one, **its) as ep, \
                tensormsg.connect(*two, **other) as camera:
            self.shared[CONNECTED + self.number] = 1
            await asyncio.gather(*self.doings(ep, camera))
            await ep.ready(TIMEOUT)
            await camera.ready(TIMEOUT)
            await asyncio.sleep(.1)
            self.check_endpoint("ep", ep)
            self.check_endpoint("camera", camera)
            camera.abort()  # what is not taken yet is of no interest

    def play_blocking(self, places):
        failed = []

        def run(coroutine):
            try:
                coroutine.send(None)
                raise AssertionError("it waits for an event loop")
            except StopIteration:
                pass
            except BaseException:
                failed.append(traceback.format_exc())
                self.shared[STOP] = 1

        (one, its), (two, other) = map(self.options, ("ep", "camera"), places)
        with tensormsg.sync.connect(*one, **its) as ep, \
                tensormsg.sync.connect(*two, **other) as camera:
            self.shared[CONNECTED + self.number] = 1
            threads = [threading.Thread(target=run, args=(doing,))
                       for doing in self.doings(Blocking(ep),
                                                Blocking(camera))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert not failed, "\n".join(failed)
            ep.ready(TIMEOUT)
            camera.ready(TIMEOUT)
            time.sleep(.1)
            self.check_endpoint("ep", ep)
            self.check_endpoint("camera", camera)
            camera.abort()  # what is not taken yet is of no interest

    def play(self, places, path):
        if self.blocks:
            self.play_blocking(places)
        else:
            asyncio.run(self.play_async(places))
        with open(path, "w") as file:
            file.write(f"{self.last} {self.slowest}\n")
            file.write(f"{dict(self.counts)!r}\n")
            for line in self.told:
                print(*line, file=file)


# What both have written.

class Ledger:
    """What the server ran, by client and number."""

    def __init__(self, path):
        self.runs = collections.Counter()
        self.last = collections.Counter()
        for line in path.read_text().splitlines():
            kind, client, n, _ = line.split()
            self.runs[kind, int(client), int(n)] += 1
            if kind == "sent":
                assert int(n) > self.last[client], f"{line}: out of order"
                self.last[client] = int(n)

    def compare(self, client, kind, n, word):
        """Whether it ran as often as its client was told that it did."""
        ran = {"once": "call", "again": "call", "acked": "sent"}.get(kind, kind)
        runs = self.runs[ran, client, n]
        bounds = {"yes": (1, 1), "no": (0, 0), "maybe": (0, 1)}[word]
        if kind == "sent":  # nobody was told whether it came
            bounds = 0, 1
        elif kind == "again" and word != "no":  # and may run twice
            bounds = bounds[0], math.inf
        assert bounds[0] <= runs <= bounds[1], \
            f"client {client}: {kind} {n} ran {runs} times, told: {word}"


def compare(folder, clients, lives):
    ledger = Ledger(folder / "server")
    totals, slowest = collections.Counter(), 0.
    for client in range(clients):
        first, counts, *told = (folder / f"client{client}"
                                ).read_text().splitlines()
        last, took = first.split()
        assert int(last) == lives, \
            f"client {client} heard of life {last} of {lives} last"
        slowest = max(slowest, float(took))
        totals.update(eval(counts))
        for line in told:
            kind, n, word = line.split()
            ledger.compare(client, kind, int(n), word)
    for (kind, client, n), runs in ledger.runs.items():
        assert kind == "call" or runs == 1, f"{kind} {client} {n}: {runs} times"
        totals["calls that ran again"] += runs > 1
    return totals, slowest


# All of them.

def fork(work, *args):
    """A process that does that."""
    pid = os.fork()
    if pid == 0:
        try:
            work(*args)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return pid


def kill(pid, shared, rng):
    """At a random moment, but not while it writes down what it took."""
    while True:
        os.kill(pid, signal.SIGSTOP)
        assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1]), "it ended"
        if not shared[TAKING]:
            break
        os.kill(pid, signal.SIGCONT)
        time.sleep(rng.random() * .001)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def look(pids):
    """None of them has ended."""
    for pid in pids:
        assert os.waitpid(pid, os.WNOHANG)[0] == 0, f"process {pid} has ended"


def play(folder, scheme, kept, restarts, clients, seed):
    folder = pathlib.Path(folder)
    rng = random.Random(seed)
    shared = mmap.mmap(-1, 4096)
    places = [f"127.0.0.1:{free_port()}" if scheme == "tcp" else
              f"unix://{folder}/{name}" for name in ("ep", "camera")]
    log = Log(folder / "server")
    life, running, doomed = 0, [], None

    def start():
        nonlocal life, doomed
        life += 1
        there, ready = os.pipe()
        doomed = fork(serve, places, kept, shared, log, life, ready)
        os.close(ready)
        assert os.read(there, 1) == b"!", "the server did not start"
        os.close(there)

    try:
        start()
        for client in range(clients):
            running.append(fork(Client(client, seed, shared).play, places,
                                folder / f"client{client}"))
        begun = time.monotonic()
        while not all(shared[CONNECTED:CONNECTED + clients]):
            look(running)
            assert time.monotonic() < begun + TIMEOUT + LATE
            time.sleep(.01)
        for _ in range(restarts):
            time.sleep(rng.random() * .3)
            look(running)
            kill(doomed, shared, rng)
            doomed = None
            time.sleep(max(0, rng.random() * .2 - .1))
            start()
        time.sleep(.5)
        look(running)
        shared[STOP] = 1
        begun = time.monotonic()
        while running:
            pid, status = os.waitpid(running.pop(0), 0)
            assert status == 0, f"a client has failed: {status}"
            assert time.monotonic() < begun + TIMEOUT + LATE
    finally:
        for pid in [*running, *([] if doomed is None else [doomed])]:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
    return compare(folder, clients, life)


def main(restarts, clients=8, seed=20261129):
    place = pathlib.Path(os.environ.get("TMSG_SOAK_STATE", "."),
                         "restarts.place")
    keeps = restarts > SLICE
    done = int(place.read_text()) if keeps and place.exists() else 0
    print(f"seed {seed}, {clients} clients, from {done} of {restarts} restarts",
          flush=True)
    totals, slowest = collections.Counter(), 0.
    for at in range(done, restarts, SLICE):
        number = at // SLICE
        scheme = ("tcp", "unix")[number % 2]
        kept = (60, None)[number // 2 % 2]
        with tempfile.TemporaryDirectory() as folder:
            some, took = play(folder, scheme, kept, min(restarts - at, SLICE),
                              clients, seed + number)
        totals += some
        slowest = max(slowest, took)
        print(f"{at + SLICE}: {scheme}, "
              f"{'sessions kept' if kept else 'no sessions kept'}: "
              f"{dict(some)}, the slowest took {took:.2f} s", flush=True)
        if keeps:
            place.write_text(f"{at + SLICE}\n")
    if keeps:
        place.write_text("0\n")
    print(f"totals: {dict(totals)}, the slowest took {slowest:.2f} s")


if __name__ == "__main__":
    os.environ.setdefault("UCX_LOG_LEVEL", "fatal")
    logging.getLogger("tensormsg").setLevel(logging.ERROR)
    main(*map(int, sys.argv[1:]))
