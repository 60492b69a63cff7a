# SPDX-License-Identifier: BSD-3-Clause
"""Dicts of arrays to another process and back, by this package, by its library
in C, and by what one would use instead, where it is installed. Prints a table of
half round trips in microseconds (the median), and what Python costs over C, and
by how much it is faster than others.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.util
import json
import os
import pickle
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from multiprocessing.connection import Client, Connection, Listener
from typing import Any, Awaitable, Callable, Dict, List, NamedTuple, Tuple

import numpy as np

import tensormsg
from tensormsg._lib import hot

Data = Dict[str, Any]
SECONDS = 0.6  # of measuring for a row
MOST = 3000  # round trips
SLICE = 0.1  # seconds of those that C makes at once
FIRST = 3  # that do not count: memory is fetched, and what repeats made known
READY = "listening"  # a line of the other process, amid UCX's


def touch(message: Any) -> None:
    """Every array is looked at, as its user would."""
    for name in message:
        message[name]


def repeat(data: Data, round_trip: Callable[[Data], Any]) -> List[float]:
    times: List[float] = []
    for _ in range(FIRST):
        touch(round_trip(data))
    end = time.perf_counter() + SECONDS
    while len(times) < 5 or (time.perf_counter() < end and len(times) < MOST):
        since = time.perf_counter()
        touch(round_trip(data))
        times.append(time.perf_counter() - since)
    return times


async def arepeat(data: Data, round_trip: Callable[[Data], Awaitable[Any]]
                  ) -> List[float]:
    times: List[float] = []
    for _ in range(FIRST):
        touch(await round_trip(data))
    end = time.perf_counter() + SECONDS
    while len(times) < 5 or (time.perf_counter() < end and len(times) < MOST):
        since = time.perf_counter()
        touch(await round_trip(data))
        times.append(time.perf_counter() - since)
    return times


# Each way: what the other process does, and the round trips of this one.

CORES = sorted(os.sched_getaffinity(0))  # that there are for both
core = CORES[0]  # this process's


def bind() -> None:
    """Leaves the threads that there are already where they are."""
    os.sched_setaffinity(0, {core})


def say_ready() -> None:
    print(READY, flush=True)


def serve_blocking(place: str) -> None:
    with tensormsg.listen(place) as listener:
        say_ready()
        for message in listener:
            message.peer.send({name: message[name] for name in message})


def blocking(place: str, data: Data) -> List[float]:
    with tensormsg.connect(place) as ep:
        def round_trip(sent: Data) -> Any:
            ep.send(sent)
            return ep.recv()

        return repeat(data, round_trip)


def serve_asyncio(place: str) -> None:
    async def serve() -> None:
        async with tensormsg.listen(place) as listener:
            say_ready()
            async for message in listener:
                await message.peer.send(
                    {name: message[name] for name in message})

    asyncio.run(serve())


def with_asyncio(place: str, data: Data) -> List[float]:
    async def run() -> List[float]:
        async with tensormsg.connect(place) as ep:
            async def round_trip(sent: Data) -> Any:
                await ep.send(sent)
                return await ep.recv()

            return await arepeat(data, round_trip)

    return asyncio.run(run())


def serve_c(place: str) -> None:
    with tensormsg.listen(place) as server:
        say_ready()
        hot.echo(server._hub.number)


def in_c(place: str, data: Data) -> List[float]:
    with tensormsg.connect(place) as ep:
        hot.ping(ep._hub.number, ep._number, data, FIRST)
        once = hot.ping(ep._hub.number, ep._number, data, 5)
        count = max(5, min(MOST, int(SECONDS / statistics.median(once))))
        each = max(1, int(SLICE / statistics.median(once)))
        times: List[float] = []
        while len(times) < count:  # between which Ctrl-C is heard
            times += hot.ping(ep._hub.number, ep._number, data,
                              min(each, count - len(times)))
        ep.abort()
        return times


def serve_pickle(place: str) -> None:
    with Listener(place[len("unix://"):], "AF_UNIX") as listener:
        say_ready()
        with listener.accept() as peer:
            while True:
                peer.send(peer.recv())


def with_pickle(place: str, data: Data) -> List[float]:
    peer: Connection = Client(place[len("unix://"):], "AF_UNIX")
    with peer:
        def round_trip(sent: Data) -> Any:
            peer.send(sent)
            return peer.recv()

        return repeat(data, round_trip)


def zmq_socket(kind: str) -> Any:
    zmq: Any = importlib.import_module("zmq")  # which need not be there
    return zmq.Context.instance().socket(getattr(zmq, kind))


def pack(data: Data) -> List[Any]:
    buffers: List[pickle.PickleBuffer] = []
    head = pickle.dumps(data, 5, buffer_callback=buffers.append)
    return [head, *buffers]


def unpack(frames: List[Any]) -> Any:
    return pickle.loads(frames[0], buffers=frames[1:])


def serve_zmq(place: str) -> None:
    pair = zmq_socket("DEALER")
    pair.bind(place.replace("unix://", "ipc://"))
    bind()
    say_ready()
    while True:
        got = unpack([frame.buffer for frame
                      in pair.recv_multipart(copy=False)])
        pair.send_multipart(pack(got), copy=False)


def with_zmq(place: str, data: Data) -> List[float]:
    pair = zmq_socket("DEALER")
    pair.connect(place.replace("unix://", "ipc://"))
    bind()

    def round_trip(sent: Data) -> Any:
        pair.send_multipart(pack(sent), copy=False)
        return unpack([frame.buffer for frame
                       in pair.recv_multipart(copy=False)])

    try:
        return repeat(data, round_trip)
    finally:
        pair.close(0)


# UCXX's package; its address is left in the place of the socket.

def path_of(place: str) -> str:
    return place[len("unix://"):]


def buffers_of(data: Data) -> List[Any]:
    return [np.frombuffer(buffer, "u1") for buffer in pack(data)]


def serve_ucxx(place: str) -> None:
    ucxx: Any = importlib.import_module("ucxx")

    async def serve() -> None:
        async def echo(ep: Any) -> None:
            while True:
                got = unpack(await ep.recv_multi())
                await ep.send_multi(buffers_of(got))

        listener = ucxx.create_listener(echo)
        with open(path_of(place), "w", encoding="utf-8") as file:
            file.write(str(listener.port))
        say_ready()
        await asyncio.Event().wait()

    asyncio.run(serve())


def port_at(place: str) -> int:
    with open(path_of(place), encoding="utf-8") as file:
        return int(file.read())


def with_ucxx(place: str, data: Data) -> List[float]:
    ucxx: Any = importlib.import_module("ucxx")

    async def run() -> List[float]:
        ep = await ucxx.create_endpoint("127.0.0.1", port_at(place))

        async def round_trip(sent: Data) -> Any:
            await ep.send_multi(buffers_of(sent))
            return unpack(await ep.recv_multi())

        return await arepeat(data, round_trip)

    return asyncio.run(run())


# TensorDicts: by this package's pipe, and by tensordict's own over UCXX, whose
# best it is that the one that is sent was consolidated before.

def tensordict_of(data: Data) -> Any:
    torch: Any = importlib.import_module("torch")
    tensordict: Any = importlib.import_module("tensordict")
    return tensordict.TensorDict({name: torch.from_numpy(array)
                                  for name, array in data.items()}, [])


async def exchange(pipe: Any, td: Any) -> List[float]:
    async def round_trip(_: Data) -> Any:
        await pipe.asend(td)
        return dict((await pipe.arecv()).items())

    return await arepeat({}, round_trip)


async def give_back(pipe: Any) -> None:
    while True:
        await pipe.asend(await pipe.arecv())


def serve_pipe(place: str) -> None:
    pipes: Any = importlib.import_module("tensormsg.tensordict")

    async def serve() -> None:
        async with pipes.Server(place) as server:
            say_ready()
            async for pipe in server:
                await give_back(pipe)

    asyncio.run(serve())


def with_pipe(place: str, data: Data) -> List[float]:
    pipes: Any = importlib.import_module("tensormsg.tensordict")

    async def run() -> List[float]:
        async with await pipes.Pipe.connect(place) as pipe:
            times = await exchange(pipe, tensordict_of(data))
            pipe.abort()
        return times

    return asyncio.run(run())


def serve_theirs(place: str) -> None:
    theirs: Any = importlib.import_module("tensordict._ucxx")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]

    async def serve() -> None:
        listening = asyncio.ensure_future(theirs.TensorDictPipe.listen(port))
        await asyncio.sleep(0)
        with open(path_of(place), "w", encoding="utf-8") as file:
            file.write(str(port))
        say_ready()
        await give_back(await listening)

    asyncio.run(serve())


def with_theirs(place: str, data: Data) -> List[float]:
    theirs: Any = importlib.import_module("tensordict._ucxx")

    async def run() -> List[float]:
        pipe = await theirs.TensorDictPipe.connect("127.0.0.1", port_at(place))
        return await exchange(pipe, tensordict_of(data).consolidate())

    return asyncio.run(run())


WAYS: Dict[str, Tuple[Callable[[str], None],
                      Callable[[str, Data], List[float]]]] = {
    "C": (serve_c, in_c),
    "blocking": (serve_blocking, blocking),
    "asyncio": (serve_asyncio, with_asyncio),
    "pickle": (serve_pickle, with_pickle),
    "ZeroMQ": (serve_zmq, with_zmq),
    "UCXX": (serve_ucxx, with_ucxx),
    "Pipe": (serve_pipe, with_pipe),
    "TensorDictPipe": (serve_theirs, with_theirs),
}
ABOUT = {
    "C": "the library, driven by C, with a map that is made once",
    "blocking": "this package: connect(), send(), recv()",
    "asyncio": "the same with asyncio",
    "pickle": "multiprocessing's Connection, on a Unix socket",
    "ZeroMQ": "pyzmq, with pickle 5 and buffers out of band",
    "UCXX": "ucxx: send_multi(), on loopback, with pickle 5",
    "Pipe": "tensormsg.tensordict.Pipe, of TensorDicts",
    "TensorDictPipe": "tensordict's own over UCXX, consolidated before",
}
NEEDS = {  # modules, and the packages that have them
    "ZeroMQ": {"zmq": "pyzmq"}, "UCXX": {"ucxx": "ucxx-cu13"},
    "Pipe": {"tensordict": "tensordict"},
    "TensorDictPipe": {"tensordict": "tensordict", "ucxx": "ucxx-cu13"}}
OURS = "C", "blocking", "asyncio", "Pipe"
THREADED = {"ZeroMQ"}  # by threads of its own, which may use every core

# These want a newer UCX than the distribution's, and so processes of their own,
# which have that before anything else.
APART = "UCXX", "TensorDictPipe"
BEFORE = """
import importlib.util, os
os.environ.setdefault("UCXPY_PROGRESS_MODE", "polling")
if importlib.util.find_spec("libucx"):
    import libucx
    libucx.load_library()
import ucxx
from tensormsg import bench
bench.main()
"""


def lacks(way: str) -> str:
    """Why a way cannot be taken, in words; "": it can."""
    return "; ".join(
        f"there is no module {module}: pip install {package}"
        for module, package in NEEDS.get(way, {}).items()
        if not importlib.util.find_spec(module))


def program(way: str, *args: str) -> List[str]:
    return [sys.executable, *(("-c", BEFORE) if way in APART else
                              ("-m", "tensormsg.bench")), *args]


class Failed(Exception):
    """A way that was taken and led nowhere: why."""


def last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def end_with_parent() -> None:
    """Of the other process: when nobody holds its input any more."""
    def wait() -> None:
        while os.read(0, 1):  # not sys.stdin, which would be locked at exit
            pass
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


def ask(way: str, place: str, data: Data, work: List[str]) -> float:
    """Seconds of a round trip, the median. `work`: the options that say so."""
    if way not in APART:
        try:
            if way not in THREADED:
                bind()
            return statistics.median(WAYS[way][1](place, data))
        finally:
            os.sched_setaffinity(0, CORES)
    ran = subprocess.run(
        program(way, "--ask", way, place, *work, "--seconds", str(SECONDS),
                "--core", str(core)),
        text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if ran.returncode != 0:
        raise Failed(f"its process ended: {last_line(ran.stderr)}")
    return float(ran.stdout.splitlines()[-1])


def measure(way: str, data: Data, work: List[str]) -> float:
    """Seconds of half a round trip. Raises Failed."""
    with tempfile.TemporaryDirectory() as folder, \
            open(f"{folder}/words", "w+", encoding="utf-8",
                 errors="replace") as words:
        place = f"unix://{folder}/socket"
        with subprocess.Popen(
                program(way, "--serve", way, place, "--core",
                        str(CORES[1 % len(CORES)])), text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=words) as peer:
            assert peer.stdout is not None
            try:
                if f"{READY}\n" not in peer.stdout:
                    words.seek(0)
                    raise Failed("its other process ended: " +
                                 last_line(words.read()))
                return ask(way, place, data, work) / 2
            except (OSError, EOFError, ImportError) as error:
                raise Failed(f"{type(error).__name__}: {error}") from error
            finally:
                peer.kill()


def made(count: int, size: int) -> Data:
    return {f"tensor{i}": np.zeros(size, "u1") for i in range(count)}


def compare(took: Dict[str, float]) -> List[str]:
    """What Python costs over C, and by how much it is faster than others."""
    lines = []
    for way in "blocking", "asyncio":
        mine, said = took.get(way), []
        if mine is None:
            continue
        if "C" in took:
            said.append(f"{(mine - took['C']) * 1e6:.1f} us over C, "
                        f"{took['C'] / mine:.2f} of its speed")
        said += [f"{other / mine:.1f} times as fast as {name}"
                 for name, other in took.items() if name not in OURS]
        lines.append(f"{way}: " + "; ".join(said))
    return lines


def plot(rows: List[Dict[str, Any]], path: str) -> None:
    # Not pyplot, which may look for a screen.
    Figure: Any = importlib.import_module("matplotlib.figure").Figure
    figure = Figure()
    axes = figure.subplots()
    for way in dict.fromkeys(row["way"] for row in rows):
        mine = [row for row in rows if row["way"] == way]
        axes.plot([row["work"] for row in mine],
                  [row["half_round_trip_us"] for row in mine], "o-", label=way)
    axes.set(yscale="log", ylabel="half a round trip, us",
             xlabel="tensors x bytes")
    axes.tick_params(axis="x", rotation=45)
    axes.legend()
    figure.savefig(path, bbox_inches="tight")


def read_workload(path: str) -> Data:
    """The first map of a file as bench/workloads/ of the library has them."""
    with open(path, encoding="utf-8") as file:
        entries = json.load(file)["maps"][0]["tensors"]
    return {entry["name"].replace("{}", str(i)):
            np.zeros(entry["shape"], entry["dtype"])
            for entry in entries for i in range(entry.get("times", 1))}


class Workload(NamedTuple):
    path: str
    data: Data


def workload(path: str) -> Workload:
    try:
        return Workload(path, read_workload(path))
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{path}: {error.strerror}") from None
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise argparse.ArgumentTypeError(
            f"{path}: no workload, which is JSON with maps[0].tensors, each "
            f"with name, dtype and shape: {type(error).__name__}: {error}"
        ) from None


def numbers(text: str) -> List[Tuple[int, int]]:
    if not re.fullmatch(r"([1-9]\d*x\d+)(,[1-9]\d*x\d+)*", text):
        raise argparse.ArgumentTypeError(f"{text}: not NxBYTES,...")
    return [(int(count), int(size)) for count, size in
            (one.split("x") for one in text.split(","))]


def names(text: str) -> List[str]:
    for name in text.split(","):
        if name not in WAYS:
            raise argparse.ArgumentTypeError(
                f"{name}: none of {', '.join(WAYS)}")
    return text.split(",")


def time_of(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 < value < 3600:
        raise argparse.ArgumentTypeError(
            f"{text}: seconds are above 0 and below 3600")
    return value


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tensormsg.bench", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="ways:\n" + "\n".join(
            f"  {way:<15} {about}" + (
                f"\n{'':<18}(needs {', '.join(NEEDS[way].values())})"
                if way in NEEDS else "")
            for way, about in ABOUT.items()))
    parser.add_argument("--work", type=numbers, metavar="NxBYTES,...",
                        default="1x64,8x64,64x64,8x65536,8x2097152,8x33554432",
                        help="numbers of arrays, and bytes of each (%(default)s)")
    parser.add_argument("--workload", type=workload, metavar="FILE",
                        help="the first map of a workload file, in place of "
                        "--work")
    parser.add_argument("--ways", type=names, metavar="WAY,...",
                        help="which to take (all that are installed)")
    parser.add_argument("--seconds", type=time_of, default=SECONDS,
                        help="to measure each for (%(default)s); five round "
                        "trips at least")
    parser.add_argument("--json", metavar="FILE", help="to write rows {way, work, "
                        "tensors, bytes_each, half_round_trip_us, gb_per_s, "
                        "cores}")
    parser.add_argument("--plot", metavar="FILE",
                        help="to draw, .png or .svg (needs matplotlib)")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--ask", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--core", type=int, help=argparse.SUPPRESS)
    return parser


def check(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """What is mistaken is said before anything is measured."""
    if args.plot and not importlib.util.find_spec("matplotlib"):
        parser.error("--plot needs matplotlib: pip install matplotlib")
    if args.plot and not args.plot.endswith((".png", ".svg")):
        parser.error(f"--plot {args.plot}: neither .png nor .svg")
    for path in args.json, args.plot:
        if path and not os.access(os.path.dirname(path) or ".", os.W_OK):
            parser.error(f"{path}: no folder that can be written to")
    for way in args.ways or ():
        if lacks(way):
            parser.error(f"--ways {way}: {lacks(way)}")


def help_measure(args: argparse.Namespace) -> None:
    """As the process that another of these has started."""
    global core
    core = args.core
    way, place = args.serve or args.ask
    if way not in THREADED:
        bind()
    if args.serve:
        end_with_parent()
        WAYS[way][0](place)
        return
    times = WAYS[way][1](place, args.workload.data if args.workload else
                         made(*args.work[0]))
    print(statistics.median(times), flush=True)
    os._exit(0)  # in whatever state others' threads are


class Table:
    """Of what was measured: printed line by line."""

    def __init__(self, ways: List[str]) -> None:
        self.ways = ways
        self.rows: List[Dict[str, Any]] = []
        self.comparisons: List[str] = []
        self.failed = False
        print(f"{'tensors x bytes':>16}" +
              "".join(f"{way:>15}" for way in ways) +
              "   us, half a round trip; cores "
              f"{CORES[0]} and {CORES[1 % len(CORES)]}", flush=True)

    def measure(self, label: str, data: Data, work: List[str]) -> None:
        total = sum(array.nbytes for array in data.values())
        took: Dict[str, float] = {}
        line = f"{label:>16}"
        for way in self.ways:
            try:
                took[way] = seconds = measure(way, data, work)
            except Failed as error:
                print(f"{label}, {way}: {error}", file=sys.stderr)
                self.failed = True
                line += f"{'-':>15}"
                continue
            self.rows.append({
                "way": way, "work": label, "tensors": len(data),
                "bytes_each": total / max(1, len(data)),
                "half_round_trip_us": seconds * 1e6,
                "gb_per_s": total / seconds / 1e9,
                "cores": [CORES[0], CORES[1 % len(CORES)]]})
            line += f"{seconds * 1e6:15.1f}"
        print(line, flush=True)
        self.comparisons += [f"{label}, {said}" for said in compare(took)]


def run(args: argparse.Namespace) -> bool:
    """Whether all of it could be measured."""
    for way in [] if args.ways else [way for way in WAYS if lacks(way)]:
        print(f"{way} is left out: {lacks(way)}", file=sys.stderr)
    table = Table(args.ways or [way for way in WAYS if not lacks(way)])
    if args.workload:
        path, data = args.workload
        table.measure(os.path.basename(path), data, ["--workload", path])
    for count, size in () if args.workload else args.work:
        table.measure(f"{count} x {size}", made(count, size),
                      ["--work", f"{count}x{size}"])
    print("\n".join(table.comparisons))
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"info": tensormsg.info()["ucx"], "rows": table.rows},
                      file, indent=1)
    if args.plot:
        plot(table.rows, args.plot)
    return not table.failed


def main() -> None:
    global SECONDS
    parser = options()
    args = parser.parse_args()
    check(parser, args)
    SECONDS = args.seconds
    try:
        if args.serve or args.ask:
            help_measure(args)
        elif not run(args):
            sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
