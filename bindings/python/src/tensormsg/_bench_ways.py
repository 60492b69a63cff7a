# SPDX-License-Identifier: BSD-3-Clause
"""The ways that `python -m tensormsg.bench` measures: for each, what the serving
process does, and the round trips of the asking one."""

from __future__ import annotations

import asyncio
import importlib
import os
import pickle
import queue
import socket
import statistics
import sys
import threading
import time
from multiprocessing.connection import Client, Connection, Listener
from typing import (Any, Awaitable, Callable, Dict, Iterator, List, Optional,
                    Tuple)

import numpy as np

import tensormsg

from ._lib import hot

Data = Dict[str, Any]
SECONDS = 0.6  # of measuring for a row
MOST = 1_000_000  # round trips, which a list of numbers holds
LEAST = 5
SLICE = 0.1  # seconds of those that C makes at once
FIRST = 3  # that do not count: memory is fetched, and what repeats made known
READY = "listening"  # a line of the other process, amid UCX's


def touch(message: Any) -> None:
    """Every array is looked at, as its user would."""
    for name in message:
        message[name]


ends: "queue.SimpleQueue[float]" = queue.SimpleQueue()


def listen_to_parent() -> None:
    """A line of its input is the time until which to measure; the process ends
    when nobody holds the other end of its input."""
    def wait() -> None:
        while said := os.read(0, 100):  # sys.stdin would be locked at exit
            ends.put(float(said))
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


def say_ready() -> None:
    print(READY, flush=True)


def begin() -> float:
    """Waits until all pairs are ready. Gives the time until which to measure."""
    say_ready()
    return ends.get()


def goes_on(times: List[float], end: float) -> bool:
    return len(times) < LEAST or (time.monotonic() < end and len(times) < MOST)


def rounds(times: List[float]) -> Iterator[None]:
    """Each iteration is a round trip, whose time is appended but for the first
    ones."""
    for _ in range(FIRST):
        yield
    end = begin()
    while goes_on(times, end):
        since = time.perf_counter()
        yield
        times.append(time.perf_counter() - since)


def repeat(data: Data, round_trip: Callable[[Data], Any]) -> List[float]:
    times: List[float] = []
    for _ in rounds(times):
        touch(round_trip(data))
    return times


async def arepeat(data: Data, round_trip: Callable[[Data], Awaitable[Any]]
                  ) -> List[float]:
    times: List[float] = []
    for _ in rounds(times):
        touch(await round_trip(data))
    return times


CORES = sorted(os.sched_getaffinity(0))  # that there are for all processes
core: Optional[int] = None  # this process's; None: any


def bind() -> None:
    """Leaves the threads that there are already where they are."""
    if core is not None:
        os.sched_setaffinity(0, {core})


def compute() -> None:
    say_ready()
    while True:
        pass


# Each way: what the serving process does, and the round trips of the asking one.

def path_of(place: str) -> str:
    return place[len("unix://"):]


def serve_blocking(place: str, background: bool = False) -> None:
    with tensormsg.listen(place, background=background) as listener:
        say_ready()
        for message in listener:
            message.peer.send({name: message[name] for name in message})


def blocking(place: str, data: Data, background: bool = False) -> List[float]:
    with tensormsg.connect(place, background=background) as ep:
        def round_trip(sent: Data) -> Any:
            ep.send(sent)
            return ep.recv()

        return repeat(data, round_trip)


def serve_background(place: str) -> None:
    serve_blocking(place, True)


def with_background(place: str, data: Data) -> List[float]:
    return blocking(place, data, True)


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
        times: List[float] = []
        end, each = begin(), LEAST
        while goes_on(times, end):
            once = hot.ping(ep._hub.number, ep._number, data, each)
            times += once
            # Between the slices Ctrl-C is heard.
            each = max(1, int(min(SLICE, end - time.monotonic()) /
                              statistics.fmean(once)))
        ep.abort()
        return times


def serve_pickle(place: str) -> None:
    with Listener(path_of(place), "AF_UNIX") as listener:
        say_ready()
        with listener.accept() as peer:
            while True:
                peer.send(peer.recv())


def with_pickle(place: str, data: Data) -> List[float]:
    peer: Connection = Client(path_of(place), "AF_UNIX")
    with peer:
        def round_trip(sent: Data) -> Any:
            peer.send(sent)
            return peer.recv()

        return repeat(data, round_trip)


def serve_asyncio_pickle(place: str) -> None:
    async def echo(reader: asyncio.StreamReader,
                   writer: asyncio.StreamWriter) -> None:
        while True:
            await write(writer, await read(reader))

    async def serve() -> None:
        async with await asyncio.start_unix_server(echo, path_of(place)):
            say_ready()
            await asyncio.Event().wait()

    asyncio.run(serve())


async def write(writer: asyncio.StreamWriter, data: Data) -> None:
    body = pickle.dumps(data, 5)
    writer.write(len(body).to_bytes(8, "little") + body)
    await writer.drain()


async def read(reader: asyncio.StreamReader) -> Any:
    size = int.from_bytes(await reader.readexactly(8), "little")
    return pickle.loads(await reader.readexactly(size))


def with_asyncio_pickle(place: str, data: Data) -> List[float]:
    async def run() -> List[float]:
        reader, writer = await asyncio.open_unix_connection(path_of(place))

        async def round_trip(sent: Data) -> Any:
            await write(writer, sent)
            return await read(reader)

        times = await arepeat(data, round_trip)
        writer.close()
        return times

    return asyncio.run(run())


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


# What `background` cannot be faster than: in each process a thread waits for the
# peer and wakes the one that calls.

ONE = (1).to_bytes(8, sys.byteorder)  # what an eventfd is read and written by


def bell() -> Tuple[int, int]:
    """To hear, and to ring."""
    eventfd: Any = getattr(os, "eventfd", None)  # of Python 3.10
    if eventfd is None:
        return os.pipe()
    fd: int = eventfd(0)
    return fd, fd


def relay(hear: int, ring: int) -> None:
    while os.read(hear, 8):
        os.write(ring, ONE)


def start_relay(hear: int) -> int:
    """In a thread. What it rings is heard by the descriptor that is returned."""
    own, ring = bell()
    threading.Thread(target=relay, args=(hear, ring), daemon=True).start()
    return own


def serve_wakes(place: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path_of(place))
        listener.listen()
        say_ready()
        peer, _ = listener.accept()
        with peer:
            _, (asked, reply), _, _ = socket.recv_fds(peer, 1, 2)
        relay(start_relay(asked), reply)


def with_wakes(place: str, data: Data) -> List[float]:
    (asked, ask), (replied, reply) = bell(), bell()
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(path_of(place))
        socket.send_fds(peer, [b"2"], [asked, reply])
    own = start_relay(replied)

    def round_trip(_: Data) -> Any:
        os.write(ask, ONE)
        os.read(own, 8)
        return ()

    return repeat(data, round_trip)


WAYS: Dict[str, Tuple[Callable[[str], None],
                      Callable[[str, Data], List[float]]]] = {
    "C": (serve_c, in_c),
    "blocking": (serve_blocking, blocking),
    "asyncio": (serve_asyncio, with_asyncio),
    "background": (serve_background, with_background),
    "pickle": (serve_pickle, with_pickle),
    "asyncio-pickle": (serve_asyncio_pickle, with_asyncio_pickle),
    "ZeroMQ": (serve_zmq, with_zmq),
    "UCXX": (serve_ucxx, with_ucxx),
    "Pipe": (serve_pipe, with_pipe),
    "TensorDictPipe": (serve_theirs, with_theirs),
    "wakes": (serve_wakes, with_wakes),
}
ABOUT = {
    "C": "the library, driven by C, with a map that is made once",
    "blocking": "this package: connect(), send(), recv()",
    "asyncio": "the same with asyncio",
    "background": "blocking, with background=True at both ends",
    "pickle": "multiprocessing's Connection, on a Unix socket",
    "asyncio-pickle": "asyncio's streams, on a Unix socket, with pickle 5",
    "ZeroMQ": "pyzmq, with pickle 5 and buffers out of band",
    "UCXX": "ucxx: send_multi(), on loopback, with pickle 5",
    "Pipe": "tensormsg.tensordict.Pipe, of TensorDicts",
    "TensorDictPipe": "tensordict's own over UCXX, consolidated before",
    "wakes": "floor of background: two wakes by eventfd a side, no data",
}
NEEDS = {  # modules, and the packages that have them
    "ZeroMQ": {"zmq": "pyzmq"}, "UCXX": {"ucxx": "ucxx-cu13"},
    "Pipe": {"tensordict": "tensordict"},
    "TensorDictPipe": {"tensordict": "tensordict", "ucxx": "ucxx-cu13"}}
OURS = "C", "blocking", "asyncio", "background", "Pipe"
FLOORS = "wakes",  # that carry nothing
THREADED = {"ZeroMQ"}  # by threads of its own, which may use every core

# These want a newer UCX than the distribution's, and so processes of their own,
# which have that before anything else.
APART = "UCXX", "TensorDictPipe"
