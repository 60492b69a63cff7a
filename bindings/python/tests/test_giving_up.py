# SPDX-License-Identifier: BSD-3-Clause
"""Peers that compute, and so neither answer nor hang up, cost who gives them up
no time: not at a program's end, nor an event loop, nor Ctrl-C. And many
connections at once leave a loop its turns."""

import asyncio
import contextlib
import subprocess
import sys
import time

import pytest

import tensormsg
from conftest import WAIT, environment

COUNT = 16
SERVER = """
import sys, tensormsg, time
listener = tensormsg.sync.listen(":0")
print(listener.url, flush=True)
for i in range(int(sys.argv[1])):
    listener.recv(60)
print("computes", flush=True)
time.sleep(100)
"""


@contextlib.contextmanager
def computing(count):
    """A process that has a message of each of so many peers, and computes."""
    with subprocess.Popen([sys.executable, "-c", SERVER, str(count)],
                          env=environment(), stdout=subprocess.PIPE,
                          text=True) as process:
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def test_a_program_ends_at_once_and_says_so_once():
    with computing(COUNT) as (server, url), subprocess.Popen(
            [sys.executable, "-c", f"""
import sys, tensormsg
ends = [tensormsg.sync.connect(sys.argv[1]) for i in range({COUNT})]
for ep in ends:
    ep.send({{"x": 1}})
sys.stdin.readline()
for ep in ends:
    ep.send({{"x": 2}})
print("end", flush=True)
""", url], env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True) as program:
        assert server.stdout.readline() == "computes\n"
        program.stdin.write("\n")
        program.stdin.flush()
        assert program.stdout.readline() == "end\n"
        since = time.monotonic()
        lines = program.communicate(timeout=WAIT)[1].splitlines()
        # 2 s where the machine is idle; one after another it was 6.
        assert time.monotonic() - since < 4
        assert program.returncode == 0
        told = [line for line in lines if "ended before" in line]
        assert len(told) == 1 and f"{COUNT} to {url}" in told[0]


async def watch(stalls, clock):
    """How long others had the loop."""
    while True:
        since = clock()
        await asyncio.sleep(.001)
        stalls.append(clock() - since)


@pytest.mark.parametrize("how", ["abort", "close"])
def test_a_loop_goes_on(how):
    async def give_up(url, server):
        stalls = []
        ends = [await tensormsg.connect(url) for i in range(COUNT)]
        for ep in ends:
            await ep.send({"x": 1})
        await asyncio.to_thread(server.stdout.readline)
        watcher = asyncio.ensure_future(watch(stalls, time.monotonic))
        await asyncio.sleep(.01)
        if how == "abort":
            for ep in ends:
                ep.abort()
        else:
            for end in await asyncio.gather(
                    *(ep.close(timeout=.05) for ep in ends),
                    return_exceptions=True):
                assert isinstance(end, tensormsg.TimedOut)
        await asyncio.sleep(.01)
        watcher.cancel()
        return max(stalls)

    with computing(COUNT) as (server, url):
        assert asyncio.run(give_up(url, server)) < COUNT * .25 / 4


def test_many_connections_at_once_leave_a_loop_its_turns():
    async def connect(url):
        return await tensormsg.connect(url)

    async def connect_all(url):
        stalls = []
        (await connect(url)).abort()  # what is loaded then is there
        watcher = asyncio.ensure_future(watch(stalls, time.thread_time))
        await asyncio.sleep(.01)
        since = time.thread_time()
        ends = await asyncio.gather(*(connect(url) for i in range(32)))
        whole = time.thread_time() - since
        connecting = max(stalls)
        stalls.clear()
        await asyncio.gather(*(ep.close() for ep in ends))
        await asyncio.sleep(.01)
        watcher.cancel()
        return whole, connecting, max(stalls)

    with tensormsg.listen(":0", background=True) as listener:
        whole, connecting, closing = asyncio.run(connect_all(listener.url))
    # Two or three connections, of 32.
    assert connecting < whole / 4
    assert closing < whole / 4


def test_control_c_ends_a_close_at_once():
    program = """
import signal, sys, tensormsg, time
def interrupt(number, frame):
    raise KeyboardInterrupt
late = []
signal.signal(signal.SIGALRM, interrupt)
ends = [tensormsg.sync.connect(sys.argv[1]) for i in range(3)]
for ep in ends:
    ep.send({"x": 1})
sys.stdin.readline()
for ep in ends:
    begun = time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, .15)
    try:
        ep.close(timeout=None)
    except KeyboardInterrupt:
        late.append(time.monotonic() - begun - .15)
print(*late, flush=True)
"""
    with computing(3) as (server, url), subprocess.Popen(
            [sys.executable, "-c", program, url], env=environment(),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True) as process:
        assert server.stdout.readline() == "computes\n"
        late = process.communicate("\n", timeout=WAIT)[0].split()
        assert len(late) == 3 and float(min(late, key=float)) < .1
