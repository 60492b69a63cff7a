# SPDX-License-Identifier: BSD-3-Clause
"""service.py SECONDS [INTERVAL [SEED]]: two servers, one of which is killed and
started anew once in an interval (60 s), with clients that call, send, stream
and fetch, and viewers of what both publish, one of them slow. A further client
is killed as often, and any of them is stopped now and then, for less and for
more than the time after which a peer is lost. What lives on is measured at the
end of each interval: its memory, its descriptors, its threads, and how long its
calls took, which must stay what they were. $TMSG_SOAK_STATE keeps how many
intervals there were."""

import asyncio
import collections
import contextlib
import ctypes
import gc
import json
import logging
import math
import mmap
import os
import pathlib
import random
import signal
import statistics
import sys
import tempfile
import threading
import time

import numpy as np

import tensormsg
from restarts import LATE, RECONNECT, STOP, TIMEOUT, Client, fork, free_port, \
    look
from restarts import kill as kill_between

ROUND = 8  # where the number of the interval is, of what all share
OVER = 2  # where servers see that all others have ended
PEER_TIMEOUT = 1.  # seconds of silence
KEPT = 3  # seconds that servers keep the session of a client that is gone
FRAMES = 60  # a second
FRAME = (100, 1024)
SLOW = .05  # seconds for a frame
WARM = 2  # intervals before what is measured counts

# What may be more at the end of any interval than when it was warm.
MORE_KB = 12 << 10  # that malloc() and Python have given out
MORE_RSS_KB = 64 << 10
# A UCX worker whose peer was lost takes no new connections, and is closed when
# those that it has are over: as many are there at most as connections that last.
UCX_FDS = 8  # of a UCX worker
MORE_FDS = 8 * UCX_FDS
MORE_THREADS = 2
SLOWER, SLOWER_MS = 4, 5


def context():
    return tensormsg.Context(peer_timeout=PEER_TIMEOUT)


def round_of(shared):
    return int.from_bytes(shared[ROUND:ROUND + 4], "little")


class Malloc(ctypes.Structure):
    """What mallinfo2() of glibc tells, of all threads."""
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks",
        "uordblks", "fordblks", "keepcost")]


def used_kb():
    """What is allocated, and what malloc() keeps for later, scattered over its
    arenas: that is given back to the system then."""
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = Malloc
    gc.collect()
    now = libc.mallinfo2()
    libc.malloc_trim(0)
    return ((now.uordblks + now.hblkhd + 64 * sys.getallocatedblocks()) >> 10,
            now.fordblks >> 10)


class Sampler:
    """Of a process that lives: at the end of each interval it tells how much it
    has."""

    def __init__(self, name, shared, out):
        self.name = name
        self.shared = shared
        self.out = out
        self.took = []
        self.counts = collections.Counter()
        self.at = round_of(shared)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            time.sleep(.02)
            if round_of(self.shared) != self.at:
                self.at = round_of(self.shared)
                self._tell()

    def _tell(self):
        took, self.took = sorted(self.took), []
        used, kept = used_kb()
        counts = dict(self.counts)
        self.counts.clear()
        status = dict(line.split(":", 1) for line in pathlib.Path(
            "/proc/self/status").read_text().splitlines())
        sample = {
            "name": self.name, "round": self.at,
            "kb": used, "kept_kb": kept, "rss_kb": int(status["RssAnon"].split()[0]),
            "fds": len(os.listdir("/proc/self/fd")),
            "threads": int(status["Threads"]),
            "ms": [round(1000 * took[int(part * (len(took) - 1))], 2)
                   for part in (.5, .99, 1)] if took else [],
            "counts": counts}
        line = json.dumps(sample) + "\n"
        assert os.write(self.out, line.encode()) == len(line)


# The servers.

def serve(name, places, shared, out, ready):
    sampler = Sampler(name, shared, out)
    # Nothing moves until there is an offer, and nobody calls too early.
    with tensormsg.sync.listen(places[0], reconnect=KEPT,
                               context=context()) as listener, \
            listener.serve(threads=12) as server, \
            tensormsg.sync.publish(places[1], reconnect=KEPT, keep=1,
                                   background=True, context=context()
                                   ) as camera:
        def ran(request):
            return {"n": request["n"]}

        server.method("once")(ran)
        server.method("again", idempotent=True)(ran)

        @server.method("items", stream=True)
        def items(stream):
            for message in stream:
                yield {"n": message["n"]}

        def receive():
            for message in listener:
                sampler.counts["received"] += 1
                del message

        frame = np.zeros(FRAME, "u1")
        version = 0
        while not shared[OVER]:
            version += 1
            offer = listener.offer({"life": np.full(5000, version)},
                                   name="life", version=version)
            if version == 1:
                threading.Thread(target=receive, daemon=True).start()
                os.write(ready, b"!")
                os.close(ready)
            until = time.monotonic() + 1
            while time.monotonic() < until:
                frame[:] = version % 251
                camera.send({"frame": frame}, at=time.time())
                sampler.counts["frames"] += 1
                time.sleep(1 / FRAMES)
        del offer


# Who lives with them.

class Living(Client):
    """A client of both servers, which remembers nothing of what it was told."""

    def __init__(self, number, seed, shared, sampler=None):
        super().__init__(number, seed, shared)
        self.sampler = sampler
        self.counts = sampler.counts if sampler else self.counts

    def note(self, *what):
        pass

    def tell(self, kind, n, error):
        self.sampler.counts[f"{kind} {'failed' if error else 'well'}"] += 1

    async def timed(self, awaitable):
        begun = time.monotonic()
        try:
            result = await super().timed(awaitable)
        except tensormsg.Canceled as error:  # an offer that was withdrawn
            result = None, error
        if result[0] is not None:
            self.sampler.took.append(time.monotonic() - begun)
        self.slowest = 0.
        return result

    async def fetches(self, ep):
        while self.goes_on():
            reply, error = await self.timed(ep.fetch(
                name="life", wait=TIMEOUT, timeout=TIMEOUT))
            self.tell("fetch", 0, error)
            assert error or (reply["life"] == reply["life"][0]).all()
            del reply
            await self.nap()

    def doings(self, ep, other):
        for one in ep, other:
            yield self.calls(one, "once", 1, 1)
            yield self.calls(one, "again", 3, 5)
            yield self.sends(one)
            yield self.streams(one)
            yield self.fetches(one)

    def check_endpoint(self, name, ep):
        assert ep.connected, ep.status

    def on_session(self, name):
        def told(event):
            self.sampler.counts[event.kind] += 1
        return told

    def options(self, name, place):
        place, options = super().options(name, place)
        return place, {"context": context(), **options}


def live(number, seed, shared, out, places):
    name = f"client {number}"
    client = Living(number, seed, shared, Sampler(name, shared, out))
    if client.blocks:
        client.play_blocking(places)
    else:
        asyncio.run(client.play_async(places))


def view(name, shared, out, places, takes):
    """Looks at all that both publish, so long at each."""
    sampler = Sampler(name, shared, out)

    async def look_at(camera):
        while not shared[STOP]:
            try:
                message = await asyncio.wait_for(camera.recv(), .2)
            except asyncio.TimeoutError:
                continue
            frame = message["frame"]
            assert frame[0, 0] == frame[-1, -1]
            sampler.counts["seen"] += 1
            del frame, message
            await asyncio.sleep(takes)

    async def main():
        async with contextlib.AsyncExitStack() as opened:
            cameras = [await opened.enter_async_context(tensormsg.connect(
                place, context=context(), newest=takes > 0, **RECONNECT))
                for place in places]
            await asyncio.gather(*map(look_at, cameras))
            for camera in cameras:
                camera.abort()  # what is not taken yet is of no interest

    asyncio.run(main())


def flit(places):
    """A client that is killed soon."""
    with tensormsg.sync.connect(places[0], context=context(),
                                **RECONNECT) as ep:
        with tensormsg.sync.connect(places[1], context=context(),
                                    **RECONNECT) as camera:
            n = 0
            with ep.stream("items") as stream:
                while True:
                    n += 1
                    ep.call("once", {"n": n}, timeout=4 * TIMEOUT)
                    ep.send({"x": np.zeros(10000)}, timeout=4 * TIMEOUT)
                    stream.send({"n": n})
                    assert stream.recv()["n"] == n
                    camera.recv(4 * TIMEOUT)


# All of them.

class Service:
    def __init__(self, folder, seed, interval):
        self.rng = random.Random(seed)
        self.seed = seed
        self.interval = interval
        self.shared = mmap.mmap(-1, 4096)
        self.there, self.out = os.pipe()
        os.set_blocking(self.there, False)
        self.rest = b""
        scheme = ("tcp", "unix")[seed % 2]
        # The restarted one over one way, the steady one over the other.
        tcp = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        unix = [f"unix://{folder}/{name}" for name in ("ep", "camera")]
        self.places, self.steady_places = (tcp, unix) if scheme == "tcp" else (
            unix, tcp)
        self.kinds = {}  # of processes, by name
        self.warm, self.samples = {}, []
        self.totals = collections.Counter()

    def start_server(self, name, places):
        ready, tells = os.pipe()
        self.kinds[name] = fork(serve, name, places, self.shared, self.out,
                                tells)
        os.close(tells)
        assert os.read(ready, 1) == b"!", "the server did not start"
        os.close(ready)

    def start_flitting(self):
        self.kinds["flitting"] = fork(flit, self.steady_places)

    def start(self):
        self.start_server("server", self.places)
        self.start_server("steady", self.steady_places)
        for number in 0, 1:
            self.kinds[f"client {number}"] = fork(
                live, number, self.seed, self.shared, self.out,
                [self.places[0], self.steady_places[0]])
        for name, takes in ("viewer", 0.), ("slow viewer", SLOW):
            self.kinds[name] = fork(
                view, name, self.shared, self.out,
                [self.places[1], self.steady_places[1]], takes)
        self.start_flitting()

    def kill(self, name):
        kill_between(self.kinds.pop(name), self.shared, self.rng)
        self.totals[f"{name} killed"] += 1

    def stop(self, name, seconds):
        os.kill(self.kinds[name], signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(self.kinds[name], signal.SIGCONT)
        self.totals["stops"] += 1

    def strike(self):
        """All of an interval but its end."""
        calm = min(3., .4 * self.interval)
        begun = time.monotonic()
        killed = begun + self.rng.random() * (self.interval - calm) / 2
        until = begun + self.interval - calm
        while time.monotonic() < until:
            look(self.kinds.values())
            if killed is not None and time.monotonic() > killed:
                self.kill("server")
                time.sleep(self.rng.random() * .2)
                self.start_server("server", self.places)
                self.kill("flitting")
                self.start_flitting()
                killed = None
            name = self.rng.choice(list(self.kinds))
            most = min(2 * PEER_TIMEOUT, self.interval / 8)
            self.stop(name, self.rng.random() * most)
            time.sleep(self.rng.random() * self.interval / 10)
        time.sleep(calm)

    def measure(self, number):
        self.shared[ROUND:ROUND + 4] = number.to_bytes(4, "little")
        wanted = set(self.kinds) - {"flitting"}
        deadline = time.monotonic() + LATE
        samples = {}
        while wanted - samples.keys():
            assert time.monotonic() < deadline, \
                f"{wanted - samples.keys()} tell nothing"
            look(self.kinds.values())
            with contextlib.suppress(BlockingIOError):
                self.rest += os.read(self.there, 65536)
            *lines, self.rest = self.rest.split(b"\n")
            for line in map(json.loads, lines):
                if line["round"] == number:
                    samples[line["name"]] = line
            time.sleep(.01)
        return samples

    def must_be_flat(self, samples, is_warm):
        """What is more than when it was warm, in words."""
        wrong = []
        for name, now in samples.items():
            self.totals.update({f"{name}: {what}": count for what, count
                                in now["counts"].items()})
            if name == "server":  # it is a new one
                continue
            warm = self.warm.setdefault(name, dict(now))
            if not is_warm:
                for what in "kb", "rss_kb", "fds", "threads":
                    warm[what] = max(warm[what], now[what])
                continue
            for what, most in (
                    ("kb", warm["kb"] + MORE_KB),
                    ("rss_kb", warm["rss_kb"] + MORE_RSS_KB),
                    ("fds", warm["fds"] + MORE_FDS),
                    ("threads", warm["threads"] + MORE_THREADS)):
                if now[what] > most:
                    wrong.append(f"{name}: {now[what]} {what}, and "
                                 f"{warm[what]} when it was warm")
            if not now["counts"]:
                wrong.append(f"{name} has done nothing")
        return wrong

    def must_be_as_before(self):
        """The median time of calls, and the median number of descriptors, of
        the later half of the intervals."""
        half = len(self.samples) // 2
        for name in self.samples[0]:
            was, now = (statistics.median(one[name]["fds"] for one in part)
                        for part in (self.samples[:half], self.samples[half:]))
            assert now <= was + UCX_FDS, f"{name}: {now} fds, after {was}"
        for name in self.samples[0]:
            before, after = ([one[name]["ms"][0] for one in part
                              if one[name]["ms"]]
                             for part in (self.samples[:half],
                                          self.samples[half:]))
            if before and after:
                was, now = map(statistics.median, (before, after))
                assert now <= SLOWER * was + SLOWER_MS, \
                    f"{name}: a call takes {now} ms, and took {was} ms"

    def finish(self):
        self.shared[STOP] = 1
        self.kill("flitting")
        begun = time.monotonic()
        while self.kinds:
            name = min(self.kinds, key=lambda name: name in ("server",
                                                             "steady"))
            self.shared[OVER] = name in ("server", "steady")
            _, status = os.waitpid(self.kinds.pop(name), 0)
            assert status == 0, f"{name} has failed: {status}"
            assert time.monotonic() < begun + TIMEOUT + LATE

    def end(self):
        for pid in self.kinds.values():
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def shown(samples):
    return "; ".join(
        f"{name} {one['kb'] / 1024:.1f} + {one['kept_kb'] / 1024:.1f} of "
        f"{one['rss_kb'] >> 10} MiB "
        f"{one['fds']} fds "
        f"{one['threads']} threads" + (
            " {} {} {} ms".format(*one["ms"]) if one["ms"] else "")
        for name, one in sorted(samples.items()))


def main(seconds, interval=60, seed=20261129):
    place = pathlib.Path(os.environ.get("TMSG_SOAK_STATE", "."),
                         "service.place")
    done = int(place.read_text()) if place.exists() else 0
    count = math.ceil(seconds / interval)
    print(f"seed {seed}, from {done} of {count} intervals of {interval} s",
          flush=True)
    with tempfile.TemporaryDirectory() as folder:
        service = Service(folder, seed + done, interval)
        try:
            service.start()
            for number in range(done, count):
                service.strike()
                samples = service.measure(number + 1)
                print(f"{number + 1}: {shown(samples)}", flush=True)
                is_warm = number - done >= WARM
                wrong = service.must_be_flat(samples, is_warm)
                assert not wrong, "\n".join(wrong)
                if is_warm:
                    service.samples.append(samples)
                place.write_text(f"{number + 1}\n")
            if len(service.samples) > 1:
                service.must_be_as_before()
            service.finish()
        finally:
            service.end()
    place.write_text("0\n")
    print(f"totals since {done}: {dict(service.totals)}")


if __name__ == "__main__":
    os.environ.setdefault("UCX_LOG_LEVEL", "fatal")
    logging.getLogger("tensormsg").setLevel(logging.ERROR)
    main(*map(int, sys.argv[1:]))
