#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Calls to a server that may use half a core: one process serves in a cgroup
with a quota of the cpu controller (version 1), four others call it in lock step
with a dict of 8 arrays of 64 bytes and get it back. Then the same with all five
processes in that group. compare.py measures it after its tables.
"""

import argparse
import asyncio
import contextlib
import functools
import json
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, List, NamedTuple

from table import Column, Table, figures
from turns import ABSENT, Turn, contest, reason, told

CGROUPS = pathlib.Path("/sys/fs/cgroup/cpu")
PERIOD_US = 100000
QUOTA_US = 50000
CLIENTS = 4
ARRAYS = 8
FIRST = 50  # calls that do not count
SETTLE_S = 0.3  # after these, and until the quota of a period is a new one
LIMIT_S = 60  # for a line of another process
ROUNDS = 3
SECONDS = 2.0
READY = "ready\n"
COLUMNS = (Column("requests/s", 0, more_is_better=True),
           Column("p99, ms", 2),
           Column("of the server's processor a request, us", 1,
                  is_compared=False))
SERVER, ALL = ("the server in the group",), ("server and clients in the group",)
PLACES = SERVER, ALL


# Each way: what the server does, and what a client calls with a dict.

def say_ready():
    print(READY, end="", flush=True)


def serve_blocking(place):
    import tensormsg
    with tensormsg.listen(place) as listener, listener.serve() as server:
        @server.method("echo")
        def echo(request):
            return {name: request[name] for name in request}

        say_ready()
        server.run()


def serve_asyncio(place):
    import tensormsg

    async def serve():
        async with tensormsg.listen(place) as listener:
            server = listener.serve()

            @server.method("echo")
            async def echo(request):
                return {name: request[name] for name in request}

            say_ready()
            await asyncio.Event().wait()

    asyncio.run(serve())


def call_ours(place):
    import tensormsg
    ep = tensormsg.sync.connect(place)

    def call(data):
        reply = ep.call("echo", data)
        return {name: reply[name] for name in reply}

    return call


def dump(data, _=None):
    return pickle.dumps(data, 5)


def grpc_handler(function):
    import grpc
    return grpc.method_handlers_generic_handler(
        "bench.Echo", {"Echo": grpc.unary_unary_rpc_method_handler(
            function, pickle.loads, dump)})


def serve_grpc(place):
    import grpc
    server = grpc.server(ThreadPoolExecutor(CLIENTS), handlers=[
        grpc_handler(lambda data, _: data)])
    server.add_insecure_port(place.replace("unix://", "unix:"))
    server.start()
    say_ready()
    server.wait_for_termination()


def serve_grpc_asyncio(place):
    import grpc

    async def echo(data, _):
        return data

    async def serve():
        server = grpc.aio.server(handlers=[grpc_handler(echo)])
        server.add_insecure_port(place.replace("unix://", "unix:"))
        await server.start()
        say_ready()
        await server.wait_for_termination()

    asyncio.run(serve())


def call_grpc(place):
    import grpc
    channel = grpc.insecure_channel(place.replace("unix://", "unix:"))
    call = channel.unary_unary("/bench.Echo/Echo", dump, pickle.loads)
    return lambda data: call(data, wait_for_ready=True)


def zmq_socket(kind):
    import zmq
    return zmq.Context.instance().socket(getattr(zmq, kind))


def serve_zmq(place):
    router = zmq_socket("ROUTER")
    router.bind(place.replace("unix://", "ipc://"))
    say_ready()
    while True:
        client, body = router.recv_multipart()
        router.send_multipart([client, dump(pickle.loads(body))])


def call_zmq(place):
    dealer = zmq_socket("DEALER")
    dealer.connect(place.replace("unix://", "ipc://"))

    def call(data):
        dealer.send(dump(data))
        return pickle.loads(dealer.recv())

    return call


class Way(NamedTuple):
    serve: Callable[[str], None]
    connect: Callable[[str], Callable[[Any], Any]]
    module: str  # that it needs


WAYS = {
    "tensormsg, Python": Way(serve_blocking, call_ours, "tensormsg"),
    "tensormsg, asyncio": Way(serve_asyncio, call_ours, "tensormsg"),
    "gRPC + pickle 5, Python": Way(serve_grpc, call_grpc, "grpc"),
    "gRPC + pickle 5, asyncio": Way(serve_grpc_asyncio, call_grpc, "grpc"),
    "ZeroMQ + pickle 5, Python": Way(serve_zmq, call_zmq, "zmq"),
}
OURS = "tensormsg, Python"
BESIDE = {"gRPC + pickle 5, asyncio": "tensormsg, asyncio"}
CONTROLS = {"tensormsg, Python", "tensormsg, asyncio"}
# The ways of each place that show whether it works.
QUICK = {SERVER: [OURS, "gRPC + pickle 5, Python",
                  "ZeroMQ + pickle 5, Python"],
         ALL: [OURS]}


# What runs in the other processes.

def listen_to_parent(heard):
    """Ends this process when nobody holds the other end of its input."""
    def wait():
        for line in sys.stdin:
            heard.append(float(line))
            if len(heard) == 2:
                begin.set()
        os._exit(0)

    begin = threading.Event()
    threading.Thread(target=wait, daemon=True).start()
    return begin


def ask(way, place):
    """Calls from one time until another, which come by a line each. Prints how
    long each call took, and all of them."""
    import numpy
    period, took = [], []
    begin = listen_to_parent(period)
    data = {f"tensor{i}": numpy.arange(8.) + i for i in range(ARRAYS)}
    call = WAYS[way].connect(place)
    for _ in range(FIRST):
        reply = call(data)
    if list(reply) != list(data) or any(
            not numpy.array_equal(reply[name], data[name]) for name in data):
        sys.exit("what came back is not what was sent")
    say_ready()
    begin.wait()
    time.sleep(max(0, period[0] - time.monotonic()))
    since = now = time.monotonic()
    while now < period[1]:
        call(data)
        before, now = now, time.monotonic()
        took.append(now - before)
    print(json.dumps({"took": took, "of": now - since}), flush=True)
    os._exit(0)  # in whatever state others' threads are


def serve(way, place):
    listen_to_parent([])
    WAYS[way].serve(place)


# What measures.

class Unavailable(RuntimeError):
    pass


class Group:
    """A cgroup (version 1) with a quota, which is removed at the end of its
    block, when its processes have ended."""

    def __init__(self, parent=CGROUPS):
        self.path = parent / f"tensormsg-quota-{os.getpid()}"

    def __enter__(self):
        try:
            self.path.mkdir()
        except OSError as error:
            raise Unavailable("no cgroup (version 1) can be made: "
                              f"{error.filename}: {error.strerror}") from None
        try:
            for name, value in (("period", PERIOD_US), ("quota", QUOTA_US)):
                with open(self.path / f"cpu.cfs_{name}_us", "r+",
                          encoding="ascii") as file:
                    file.write(str(value))
        except OSError as error:
            self.remove()
            raise Unavailable("no quota can be set: "
                              f"{error.filename}: {error.strerror}") from None
        return self

    def add(self, pid):
        (self.path / "cgroup.procs").write_text(str(pid), encoding="ascii")

    def remove(self):
        for _ in range(100):
            with contextlib.suppress(OSError):
                self.path.rmdir()
                return
            time.sleep(0.05)  # until the kernel is done with its processes
        raise RuntimeError(f"{self.path} cannot be removed")

    def __exit__(self, *_):
        self.remove()


class Process:
    """Another of these, which ends with the stack."""

    def __init__(self, stack, python, task, way, place):
        self.words = stack.enter_context(tempfile.TemporaryFile("w+"))
        self.child = stack.enter_context(subprocess.Popen(
            [python, __file__, task, way, place], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.words))
        stack.callback(self.child.kill)
        # A process that hangs is killed, which ends the wait for its line.
        timer = threading.Timer(LIMIT_S, self.child.kill)
        timer.start()
        stack.callback(timer.cancel)

    def line(self):
        said = self.child.stdout.readline()
        if not said:
            self.child.wait()
            self.words.seek(0)
            raise RuntimeError(reason(self.words.read()) or "a process ended")
        return said

    def wait(self):
        """Until it is ready."""
        while self.line() != READY:  # UCX's words come by there, too
            pass

    def result(self):
        while not (said := self.line()).startswith("{"):
            pass
        return json.loads(said)

    def tell(self, *numbers):
        self.child.stdin.write("".join(f"{number}\n" for number in numbers))
        self.child.stdin.flush()

    def processor_s(self):
        """That it used so far."""
        stat = pathlib.Path(f"/proc/{self.child.pid}/stat").read_text("ascii")
        fields = stat.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def sleep_until(when):
    time.sleep(max(0, when - time.monotonic()))


def measure(python, way, all_inside, seconds):
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        group = stack.enter_context(Group())
        place = f"unix://{folder}/socket"
        server = Process(stack, python, "--serve", way, place)
        server.wait()
        group.add(server.child.pid)
        clients = [Process(stack, python, "--ask", way, place)
                   for _ in range(CLIENTS)]
        for client in clients:
            client.wait()
            if all_inside:
                group.add(client.child.pid)
        begin = time.monotonic() + SETTLE_S
        end = begin + seconds
        for client in clients:
            client.tell(begin, end)
        sleep_until(begin)
        used = server.processor_s()
        sleep_until(end)
        used = server.processor_s() - used
        return summarize([client.result() for client in clients], used)


def summarize(said, used):
    took = [one for client in said for one in client["took"]]
    return (sum(len(client["took"]) / client["of"] for client in said),
            figures.quantile(took, .99) * 1e3, used / len(took) * 1e6)


def installed(python, module):
    return subprocess.run([python, "-c", f"import {module}"],
                          stderr=subprocess.DEVNULL).returncode == 0


class Outcome(NamedTuple):
    table: Table
    missing: List[str]  # a line each
    has_failed: bool  # to measure a way that is installed
    seconds: float
    rounds: int

    def markdown(self):
        lines = ["## A quota of half a core", "",
                 "One Python process serves in a cgroup that may use "
                 f"{QUOTA_US // 1000} of {PERIOD_US // 1000} ms; {CLIENTS} "
                 f"call it in lock step with {ARRAYS} arrays of 64 bytes, and get "
                 "them back. Nothing is bound to a core. Requests of all "
                 "clients, and the 99th percentile of these. "
                 f"Rounds: {self.rounds}, of {self.seconds} s a figure.", ""]
        return [*(lines if self.table.seen else ()),
                *self.table.markdown("###")]


def turns(python, table, place, ways, seconds):
    there = {module: installed(python, module)
             for module in {WAYS[way].module for way in ways}}
    return [Turn(table, place, way, functools.partial(
        measure, python, way, place == ALL, seconds)
        if there[WAYS[way].module] else lambda: None) for way in ways]


def contend(python, rounds=ROUNDS, seconds=SECONDS, is_quick=False):
    """Every way by turns, and what was not measured."""
    table = Table(COLUMNS, OURS, BESIDE)
    ways = QUICK if is_quick else dict.fromkeys(PLACES, WAYS)
    controls = () if is_quick else CONTROLS
    try:
        with Group():
            pass
    except Unavailable as error:
        return Outcome(table, [f"a quota of half a core: {error}"], False,
                       seconds, rounds)
    series = [(turns(python, table, place, ways[place], seconds), controls)
              for place in PLACES]
    missing = contest(rounds, series)
    return Outcome(table, told(missing, table),
                   any(why != ABSENT for why in missing.values()), seconds,
                   rounds)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable,
                        help="of an environment with tensormsg, grpcio and "
                        "pyzmq (this one)")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS,
                        help="for each figure of a round")
    parser.add_argument("--quick", action="store_true",
                        help="only whether it works: one short round")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE",
                        help="to write every figure to")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--ask", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(*args.serve)
        return
    if args.ask:
        ask(*args.ask)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    outcome = contend(args.python, 1, 0.2, True) if args.quick else \
        contend(args.python, args.rounds, args.seconds)
    print("\n".join([*outcome.markdown(), *(
        f"Not measured: {one}" for one in outcome.missing)]))
    if args.json:
        args.json.write_text(json.dumps(outcome.table.figures(), indent=1) +
                             "\n", encoding="utf-8")
    if outcome.has_failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
