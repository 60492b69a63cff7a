# SPDX-License-Identifier: BSD-3-Clause
"""The ways that `python -m tensormsg.bench` measures: for each, what the serving
process does, and the round trips of the asking one."""

from __future__ import annotations

import asyncio
import importlib
import os
import pickle
import socket
import statistics
import time
from multiprocessing.connection import Client, Connection, Listener
from typing import Any, Awaitable, Callable, Dict, List, Tuple

import numpy as np

import tensormsg

from ._lib import hot

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
