#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures loans (docs/reference/loans.md) beside other ways to give a large
array to
another process of one machine: iceoryx2, multiprocessing.shared_memory, ZeroMQ.

Each row is there and back: the owner hands an array over, the reader looks at it
as the row says, gives it back, and answers with 8 bytes. Both spin or block as
their library does by default. A round is two new processes a way, pinned to a
core each; the ways take turns, forwards in one round and backwards in the next.

  first     the first array that is handed over, of new memory, written in full
  repeated  the same again, neither written nor read
  pages     one byte of every page is written by the owner, read by the reader
  copy      the bytes are an ordinary array of the owner's, copied on the way
  memcpy    no processes: the copy of these bytes by numpy, for the row above

From 1 GiB on there is less of everything: one block in place of three, and fewer
times. A way is left out whose package is not there. 4 GiB takes 12 GB of memory.
"""

import argparse
import importlib.util
import json
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import statistics
import tempfile
import time
from multiprocessing import shared_memory

import numpy as np

PAGE = 4096
FIRST, REPEATED, PAGES, COPY = "first", "repeated", "pages", "copy"
KINDS = (FIRST, REPEATED, PAGES, COPY)
LARGE = 1 << 30


def touch(array):
    array[::PAGE] = 1


def look(array):
    return int(array[::PAGE].sum())


class Loan:
    """tensormsg: memory that is lent, three blocks in turn."""

    lend = True
    like = None

    def __init__(self, folder, size):
        self.url = f"unix://{folder}/loan.sock"
        self.size = size

    def owner(self):
        from tensormsg import sync
        self.listener = sync.listen(self.url)
        return self

    def meet(self):
        self.peer = self.listener.recv(timeout=60).peer
        if self.lend:
            import tensormsg
            self.blocks = [tensormsg.empty(self.size, np.uint8)
                           for _ in range(1 if self.size >= LARGE else 3)]
        else:
            self.blocks = [np.empty(self.size, np.uint8)]

    def there_and_back(self, source):
        array = self.blocks[0] if source is None else source
        self.peer.send({"array": array}, lend=self.lend)
        self.peer.recv(timeout=60)

    def memory(self):
        import tensormsg
        self.blocks.append(self.blocks.pop(0))
        while not self.blocks[0].flags.writeable:  # it is on its way back
            try:
                self.peer.recv(timeout=0)
            except tensormsg.TimedOut:
                pass
        return self.blocks[0]

    def copies(self):
        if self.size >= LARGE:
            self.blocks.clear()

    def reader(self):
        from tensormsg import sync
        self.peer = sync.connect(self.url, loan=self.lend, timeout=60,
                                 like=self.like)
        self.answer = {"done": np.zeros(8, np.uint8)}
        self.peer.send(self.answer)
        return self

    def take(self):
        self.message = self.peer.recv(timeout=120)
        return self.message["array"]

    def give_back(self):
        del self.message
        self.peer.send(self.answer)


class Copied(Loan):
    """tensormsg without loans."""

    lend = False


class Torch(Loan):
    """tensormsg, to a reader that gets torch's tensors: copy-on-write views."""

    like = "torch"


class Iceoryx:
    """iceoryx2, publish and subscribe, polled."""

    def __init__(self, folder, size):
        self.name = f"loans{os.path.basename(folder)}{size}"
        self.size = size

    def _port(self, name, size, publishes):
        import ctypes

        import iceoryx2 as iox
        iox.set_log_level_from_env_or(iox.LogLevel.Error)
        self.iox = iox
        node = iox.NodeBuilder.new().create(iox.ServiceType.Ipc)
        service = node.service_builder(iox.ServiceName.new(name)) \
            .publish_subscribe(iox.Slice[ctypes.c_uint8]).open_or_create()
        builder = service.publisher_builder().initial_max_slice_len(size) \
            if publishes else service.subscriber_builder()
        self.nodes = getattr(self, "nodes", []) + [node, service]
        return builder.create()

    @staticmethod
    def _view(sample):
        return np.frombuffer(sample.payload().as_memory_view(), np.uint8)

    @staticmethod
    def _next(port):
        while True:
            sample = port.receive()
            if sample is not None:
                return sample

    def owner(self):
        self.out = self._port(self.name, self.size, True)
        self.back = self._port(self.name + "back", 8, False)
        self.loaned = None
        return self

    def meet(self):
        self._next(self.back)  # the reader is there
        self.loaned = self.out.loan_slice_uninit(self.size)

    def memory(self):
        return self._view(self.loaned)

    def there_and_back(self, source):
        if source is not None:
            np.copyto(self._view(self.loaned), source)
        self.loaned.assume_init().send()
        self._next(self.back)
        self.loaned = self.out.loan_slice_uninit(self.size)

    def reader(self):
        self.into = self._port(self.name, self.size, False)
        self.out = self._port(self.name + "back", 8, True)
        time.sleep(.5)  # until both have found each other
        self._answer()
        return self

    def _answer(self):
        sample = self.out.loan_slice_uninit(8)
        self._view(sample)[:] = 0
        sample.assume_init().send()

    def take(self):
        self.sample = self._next(self.into)
        return self._view(self.sample)

    def give_back(self):
        del self.sample
        self._answer()


class SharedMemory:
    """multiprocessing.shared_memory, and a pipe that says so."""

    def __init__(self, folder, size):
        self.address = f"{folder}/pipe.sock"
        self.name = f"loans{os.path.basename(folder)}"
        self.size = size

    def owner(self):
        self.listener = multiprocessing.connection.Listener(
            self.address, family="AF_UNIX")
        return self

    def meet(self):
        self.block = shared_memory.SharedMemory(self.name, True, self.size)
        self.array = np.frombuffer(self.block.buf, np.uint8, self.size)
        self.pipe = self.listener.accept()

    def memory(self):
        return self.array

    def there_and_back(self, source):
        if source is not None:
            np.copyto(self.array, source)
        self.pipe.send_bytes(b"ready")
        self.pipe.recv_bytes()

    def end(self):
        self.block.unlink()

    def reader(self):
        self.pipe = multiprocessing.connection.Client(self.address)
        self.block = None
        return self

    def take(self):
        self.pipe.recv_bytes()
        if self.block is None:
            self.block = shared_memory.SharedMemory(self.name)
        return np.frombuffer(self.block.buf, np.uint8, self.size)

    def give_back(self):
        self.pipe.send_bytes(b"8 bytes.")


class ZeroMQ:
    """ZeroMQ by ipc://, without copies in Python."""

    def __init__(self, folder, size):
        self.url = f"ipc://{folder}/zmq.sock"
        self.size = size

    def owner(self):
        import zmq
        self.socket = zmq.Context().socket(zmq.PAIR)
        self.socket.bind(self.url)
        return self

    def meet(self):
        self.socket.recv()
        self.array = np.empty(self.size, np.uint8)

    def memory(self):
        return self.array

    def there_and_back(self, source):
        self.socket.send(self.array if source is None else source, copy=False)
        self.socket.recv()

    def reader(self):
        import zmq
        self.socket = zmq.Context().socket(zmq.PAIR)
        self.socket.connect(self.url)
        self.socket.send(b"here")
        return self

    def take(self):
        self.frame = self.socket.recv(copy=False)
        return np.frombuffer(self.frame.buffer, np.uint8)

    def give_back(self):
        del self.frame
        self.socket.send(b"8 bytes.")


WAYS = {"loan": Loan, "torch": Torch, "copied": Copied, "iceoryx2": Iceoryx,
        "shared_memory": SharedMemory, "zmq": ZeroMQ}
PACKAGES = {"torch": "torch", "iceoryx2": "iceoryx2", "zmq": "zmq"}


def read(way, folder, size, plan, core):
    """The reader's process. `plan`: a kind for each time."""
    os.sched_setaffinity(0, {core})
    side = WAYS[way](folder, size).reader()
    for kind in plan:
        array = side.take()
        assert len(array) == size
        if kind == PAGES:
            assert look(array) == -(-size // PAGE), "not what was written"
        elif kind == COPY:
            assert array[0] == 7 and array[-1] == 7, "not what was sent"
        del array
        side.give_back()
    time.sleep(.2)  # for the last answer
    os._exit(0)  # views may be left


def own(way, folder, size, plan, core, results):
    """The owner's process; sends back the times in ms."""
    os.sched_setaffinity(0, {core})
    side = WAYS[way](folder, size).owner()
    results.send("listens")
    source = None
    times = []
    side_met = False
    for kind in plan:
        if kind == COPY and source is None:
            if hasattr(side, "copies"):
                side.copies()
            source = np.full(size, 7, np.uint8)
        began = time.perf_counter()
        if not side_met:  # of the first, the memory is part of the time
            side.meet()
            side_met = True
            began = time.perf_counter()
        if kind == FIRST:
            side.memory()[:] = 1
        elif kind == PAGES:
            touch(side.memory())
        side.there_and_back(source if kind == COPY else None)
        times.append((time.perf_counter() - began) * 1e3)
    results.send(times)
    if hasattr(side, "end"):
        side.end()
    os._exit(0)


def measure(way, size, plan, cores):
    """Times of one round, by kind."""
    make = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        mine, theirs = make.Pipe(False)
        args = (way, folder, size, plan)
        owner = make.Process(target=own, args=(*args, cores[0], theirs))
        owner.start()
        assert mine.recv() == "listens"
        reader = make.Process(target=read, args=(*args, cores[1]))
        reader.start()
        theirs.close()
        try:
            times = mine.recv() if mine.poll(300) else None
        except EOFError:
            times = None
        for process in (owner, reader):
            process.join(5)
            process.kill()
            process.join()
    if times is None:
        raise SystemExit(f"{way} did not come to its end")
    by_kind = {}
    for kind, ms in zip(plan, times):
        by_kind.setdefault(kind, []).append(ms)
    return {kind: statistics.median(each) for kind, each in by_kind.items()}


def memcpy(size, times, core):
    """What numpy takes to copy that, into memory that is there."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    source, target = np.full(size, 7, np.uint8), np.zeros(size, np.uint8)
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        np.copyto(target, source)
        taken.append((time.perf_counter() - began) * 1e3)
    os.sched_setaffinity(0, before)
    return statistics.median(taken)


def bytes_of(text):
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


def rows_of(options, size):
    few = size >= LARGE
    repeated = 5 if few else 50 if size > 16 << 20 else 200
    plan = [FIRST] + [REPEATED] * repeated + \
        [PAGES] * (3 if few else 10) + [COPY] * (3 if few else 10)
    found = {}
    for i in range(options.rounds):
        for way in options.ways[::-1] if i % 2 else options.ways:
            for kind, ms in measure(way, size, plan, options.cores).items():
                found.setdefault((way, kind), []).append(ms)
        found.setdefault(("memcpy", COPY), []).append(
            memcpy(size, 3 if few else 10, options.cores[0]))
    for (way, kind), each in sorted(found.items(),
                                    key=lambda one: one[0][1]):
        yield {"bytes": size, "way": way, "kind": kind,
               "ms": statistics.median(each), "least_ms": min(each),
               "most_ms": max(each), "rounds": len(each)}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", default="1M,256M,4G",
                        help="sizes, as 1M,256M,4G")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cores", default="0,1", help="owner's and reader's")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    options = parser.parse_args()
    options.ways = [way for way in options.ways.split(",")
                    if importlib.util.find_spec(PACKAGES.get(way, "numpy"))]
    options.cores = [int(core) for core in options.cores.split(",")]
    rows = []
    for size in map(bytes_of, options.bytes.split(",")):
        for row in rows_of(options, size):
            rows.append(row)
            print(f"{row['bytes']:>11} {row['kind']:9} {row['way']:14} "
                  f"{row['ms']:10.3f} ms  {row['least_ms']:.3f}.."
                  f"{row['most_ms']:.3f}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
