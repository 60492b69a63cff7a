# SPDX-License-Identifier: BSD-3-Clause
"""python -m tensormsg.bench: dicts of arrays to another process and back, by
this package, by its library in C, and by what one would use instead.

Prints a table of half round trips in microseconds (the median); writes rows
{way, tensors, bytes_each, half_round_trip_us, gb_per_s} as JSON, and a plot
where matplotlib is installed.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.util
import json
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Client, Connection, Listener
from typing import Any, Callable, Dict, List, Tuple

import numpy as np

import tensormsg
from tensormsg._lib import hot

Data = Dict[str, Any]
SECONDS = 0.6  # of measuring for a row
MOST = 3000  # round trips


def touch(message: Any) -> None:
    """Every array is looked at, as its user would."""
    for name in message:
        message[name]


def repeat(data: Data, round_trip: Callable[[Data], Any]) -> List[float]:
    times: List[float] = []
    end = time.perf_counter() + SECONDS
    while len(times) < 5 or (time.perf_counter() < end and len(times) < MOST):
        since = time.perf_counter()
        touch(round_trip(data))
        times.append(time.perf_counter() - since)
    return times


# Each way: what the other process does, and the round trips of this one.

def serve_blocking(place: str) -> None:
    for message in tensormsg.listen(place):
        message.peer.send({name: message[name] for name in message})


def blocking(place: str, data: Data) -> List[float]:
    with tensormsg.connect(place) as ep:
        def round_trip(sent: Data) -> Any:
            ep.send(sent)
            return ep.recv()

        return repeat(data, round_trip)


def serve_asyncio(place: str) -> None:
    async def serve() -> None:
        async for message in tensormsg.listen(place):
            await message.peer.send({name: message[name] for name in message})

    asyncio.run(serve())


def with_asyncio(place: str, data: Data) -> List[float]:
    async def run() -> List[float]:
        times: List[float] = []
        async with tensormsg.connect(place) as ep:
            end = time.perf_counter() + SECONDS
            while len(times) < 5 or (time.perf_counter() < end
                                     and len(times) < MOST):
                since = time.perf_counter()
                await ep.send(data)
                touch(await ep.recv())
                times.append(time.perf_counter() - since)
        return times

    return asyncio.run(run())


def serve_c(place: str) -> None:
    with tensormsg.listen(place) as server:
        hot.echo(server._hub.number)


def in_c(place: str, data: Data) -> List[float]:
    with tensormsg.connect(place) as ep:
        once = hot.ping(ep._hub.number, ep._number, data, 5)
        count = max(5, min(MOST, int(SECONDS / statistics.median(once))))
        times = hot.ping(ep._hub.number, ep._number, data, count)
        ep.abort()
        return times


def serve_pickle(place: str) -> None:
    with Listener(place[len("unix://"):], "AF_UNIX") as listener, \
            listener.accept() as peer:
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
    return pickle.loads(frames[0].buffer,
                        buffers=[frame.buffer for frame in frames[1:]])


def serve_zmq(place: str) -> None:
    socket = zmq_socket("PAIR")
    socket.bind(place.replace("unix://", "ipc://"))
    while True:
        got = unpack(socket.recv_multipart(copy=False))
        socket.send_multipart(pack(got), copy=False)


def with_zmq(place: str, data: Data) -> List[float]:
    socket = zmq_socket("PAIR")
    socket.connect(place.replace("unix://", "ipc://"))

    def round_trip(sent: Data) -> Any:
        socket.send_multipart(pack(sent), copy=False)
        return unpack(socket.recv_multipart(copy=False))

    try:
        return repeat(data, round_trip)
    finally:
        socket.close(0)


WAYS: Dict[str, Tuple[Callable[[str], None],
                      Callable[[str, Data], List[float]]]] = {
    "C": (serve_c, in_c),
    "blocking": (serve_blocking, blocking),
    "asyncio": (serve_asyncio, with_asyncio),
    "pickle": (serve_pickle, with_pickle),
    "ZeroMQ": (serve_zmq, with_zmq),
}


def measure(way: str, data: Data) -> float:
    """Seconds of half a round trip, the median."""
    with tempfile.TemporaryDirectory() as folder:
        place = f"unix://{folder}/socket"
        with subprocess.Popen([sys.executable, "-m", "tensormsg.bench",
                               "--serve", way, place],
                              stderr=subprocess.DEVNULL) as peer:
            try:
                while not os.path.exists(f"{folder}/socket"):
                    if peer.poll() is not None:
                        raise RuntimeError(f"{way}: the other process ended")
                    time.sleep(.01)
                return statistics.median(WAYS[way][1](place, data)) / 2
            finally:
                peer.kill()


def plot(rows: List[Dict[str, Any]], path: str) -> None:
    from matplotlib import pyplot  # type: ignore[import-not-found, unused-ignore]
    figure, axes = pyplot.subplots()
    for way in WAYS:
        mine = [row for row in rows if row["way"] == way]
        axes.plot([f"{row['tensors']} x {row['bytes_each']}" for row in mine],
                  [row["half_round_trip_us"] for row in mine], "o-", label=way)
    axes.set(yscale="log", ylabel="half a round trip, us",
             xlabel="tensors x bytes")
    axes.tick_params(axis="x", rotation=45)
    axes.legend()
    figure.savefig(path, bbox_inches="tight")


def numbers(text: str) -> List[Tuple[int, int]]:
    return [(int(count), int(size)) for count, size in
            (one.split("x") for one in text.split(","))]


def main() -> None:
    global SECONDS
    parser = argparse.ArgumentParser(prog="python -m tensormsg.bench",
                                     description=__doc__)
    parser.add_argument("--work", type=numbers, metavar="NxBYTES,...",
                        default="1x64,8x64,64x64,8x65536,8x2097152",
                        help="number of arrays and bytes of each")
    parser.add_argument("--ways", default=",".join(WAYS), help="which to take")
    parser.add_argument("--seconds", type=float, default=SECONDS,
                        help="to measure each for")
    parser.add_argument("--json", help="a file for the rows")
    parser.add_argument("--plot", help="a .png or .svg (needs matplotlib)")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        WAYS[args.serve[0]][0](args.serve[1])
        return
    SECONDS = args.seconds
    ways = [way for way in args.ways.split(",")
            if way != "ZeroMQ" or importlib.util.find_spec("zmq")]
    rows = []
    print(f"{'tensors x bytes':>16}" + "".join(f"{way:>12}" for way in ways)
          + "   us, half a round trip")
    for count, size in args.work:
        data = {f"tensor{i}": np.zeros(size, "u1") for i in range(count)}
        line = f"{f'{count} x {size}':>16}"
        for way in ways:
            seconds = measure(way, data)
            rows.append({"way": way, "tensors": count, "bytes_each": size,
                         "half_round_trip_us": seconds * 1e6,
                         "gb_per_s": count * size / seconds / 1e9})
            line += f"{seconds * 1e6:12.1f}"
        print(line, flush=True)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"info": tensormsg.info()["ucx"], "rows": rows}, file,
                      indent=1)
    if args.plot:
        plot(rows, args.plot)


if __name__ == "__main__":
    main()
