# SPDX-License-Identifier: BSD-3-Clause
"""vanishing.py ROUNDS: arrays whose memory is cut at a random byte and a random
moment while they are sent, as tests/soak/soak_vanishing.c does in C: a sender
may fail or die of it, and no byte arrives that was not sent. Half of the senders
are blocking, half use asyncio.

vanishing.py --send URL SEED FIRST END: one sender, which says each round that it
begins."""

import asyncio
import collections
import ctypes
import mmap
import os
import random
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

import tensormsg

PAGE = mmap.PAGESIZE
WAIT = 30
LOST = 2  # exit status: the next sender connects again


class Memory:
    """Of one round: anonymous, or of a file. cut() takes its end away."""

    def __init__(self, dice):
        self.size = 1 + dice.randrange(1 << dice.randrange(25))
        self.at = dice.randrange(self.size)
        self.after = dice.choice((0, dice.random() * .004))
        self.length = (self.size + PAGE - 1) // PAGE * PAGE
        self.file = os.memfd_create("vanishing") if dice.random() < .5 else -1
        if self.file >= 0:
            os.ftruncate(self.file, self.length)
        self.map = mmap.mmap(self.file, self.length)
        self.array = np.frombuffer(self.map, "u1", self.size)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))

    def cut(self):
        time.sleep(self.after)
        if self.file >= 0:
            os.ftruncate(self.file, self.at)
            return
        begin = (self.at + PAGE - 1) // PAGE * PAGE
        if begin < self.length:
            ctypes.CDLL(None).mprotect(ctypes.c_void_p(self.address + begin),
                                       ctypes.c_size_t(self.length - begin), 0)

    def close(self):
        ctypes.CDLL(None).mprotect(ctypes.c_void_p(self.address),
                                   ctypes.c_size_t(self.length), 3)
        if self.file >= 0:
            os.close(self.file)


def fill_of(number):
    return 1 + number % 250


def begin(seed, number):
    dice = random.Random(seed * 1_000_003 + number)
    memory = Memory(dice)
    memory.array[:] = fill_of(number)
    cutter = threading.Thread(target=memory.cut)
    cutter.start()
    os.write(1, b"%d\n" % number)
    return memory, cutter, dice.random() < .5


def end(memory, cutter):
    cutter.join()
    memory.close()


def send_blocking(url, seed, first, last):
    with tensormsg.connect(url, timeout=WAIT) as endpoint:
        for number in range(first, last):
            memory, cutter, acked = begin(seed, number)
            try:
                endpoint.send({"data": memory.array}, acked=acked,
                              meta={"fill": fill_of(number)})
            except tensormsg.IOFailed:
                pass
            end(memory, cutter)


async def send_in_loop(url, seed, first, last):
    async with tensormsg.connect(url, timeout=WAIT) as endpoint:
        for number in range(first, last):
            memory, cutter, acked = begin(seed, number)
            try:
                await endpoint.send({"data": memory.array}, acked=acked,
                                    meta={"fill": fill_of(number)})
            except tensormsg.IOFailed:
                pass
            end(memory, cutter)


def send(url, seed, first, last):
    try:
        if seed % 2:
            asyncio.run(send_in_loop(url, seed, first, last))
        else:
            send_blocking(url, seed, first, last)
    except tensormsg.PeerLost as error:
        print(error, file=sys.stderr)
        os._exit(LOST)
    os._exit(0)  # what was cut is not looked at again


def is_right(array, fill):
    """The kernel writes zeros behind the end of a file that is cut, up to the
    end of that page, which a read may see while those behind are there."""
    wrong = np.flatnonzero(array != fill)
    if not wrong.size:
        return True
    page_end = min((wrong[0] // PAGE + 1) * PAGE, array.size)
    return bool((array[wrong[0]:page_end] == 0).all()
                and (array[page_end:] == fill).all())


def run(url, seed, rounds, more):
    """Gives how many messages came and what became of the senders."""
    ends, counts = collections.Counter(), collections.Counter()
    stop = threading.Event()
    with tensormsg.listen(url, background=True) as listener:

        def receive():
            while not stop.is_set():
                try:
                    message = listener.recv(timeout=.5)
                except tensormsg.TimedOut:
                    continue
                except tensormsg.Error:
                    continue  # of a peer that died
                counts["messages"] += 1
                counts["wrong"] += not is_right(message["data"],
                                                message.meta["fill"])

        receiver = threading.Thread(target=receive)
        receiver.start()
        first = 0
        while first < rounds:
            sender = subprocess.run(
                [sys.executable, "-B", __file__, "--send", listener.url,
                 str(seed), str(first), str(rounds)],
                stdout=subprocess.PIPE, env={**os.environ, **more})
            said = [line for line in sender.stdout.split(b"\n")
                    if line.isdigit()]  # others are UCX's
            ends[sender.returncode] += 1
            assert said or sender.returncode == LOST, sender
            first = int(said[-1]) + 1 if said else first + 1
        time.sleep(1)
        stop.set()
        receiver.join()
    return counts, ends


def main(rounds):
    seed = int(os.environ.get("TMSG_SOAK_SEED", "20261128"))
    print("seed", seed, "UCX", tensormsg.info()["ucx"]["version"], flush=True)
    with tempfile.TemporaryDirectory() as folder:
        links = {"unix": (f"unix://{folder}/s", {}),
                 "shm": ("tcp://127.0.0.1:0", {}),
                 "tcp": ("tcp://127.0.0.1:0", {"UCX_TLS": "tcp"})}
        for name, (url, more) in links.items():
            for way in range(2):
                counts, ends = run(url, seed + way, rounds // 6, more)
                print(name, "asyncio" if (seed + way) % 2 else "blocking",
                      rounds // 6, "rounds,", dict(counts), "ends",
                      dict(ends), flush=True)
                assert counts["messages"] and not counts["wrong"]
                lost = set() if name == "tcp" else {LOST}
                assert set(ends) <= {0, -7, -11} | lost, ends


if __name__ == "__main__":
    if sys.argv[1] == "--send":
        send(sys.argv[2], *map(int, sys.argv[3:6]))
    else:
        main(int(sys.argv[1]))
