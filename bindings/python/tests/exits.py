# SPDX-License-Identifier: BSD-3-Clause
"""exits.py ROUNDS: programs that end with something alive, wherever that is kept:
each ends at once, and without a word. test_exit.py does a part of them."""

import itertools
import os
import subprocess
import sys
import time

BEGIN = """
import asyncio, atexit, gc, itertools, sys, threading, time, weakref
import numpy as np
START
import tensormsg

def until(condition):
    while not condition():
        time.sleep(.001)

def catch(call):
    try:
        call()
    except tensormsg.Error:
        pass

threads = []
big = np.zeros(1 << 22)
listener = tensormsg.sync.listen(":0", background=BACKGROUND)
server = listener.serve(threads=4)

@server.method("ever", stream=True)
def ever(stream):
    for i in itertools.count():
        stream.send({"i": np.full(5000, i)})

@server.method("never")
def never(request):
    entered.append(request)
    while not request.over:
        time.sleep(.001)
    entered.append(None)

entered = []
ep = tensormsg.sync.connect(listener.url, background=BACKGROUND)
"""
# What is alive.
ALIVE = {
    "message": """
kept = ep, ep.send({"x": big[:1000]}), listener.recv(20)
array = kept[2]["x"]""",
    "send": """
try:
    while True:
        ep.send({"x": big}, timeout=.05)
except tensormsg.TimedOut:
    kept = ep""",
    "into": """
peer = []
ep.send({"x": big})
peer = listener.recv(20).peer
ep.send({"x": big[:9]})
try:
    peer.recv_into({"x": np.ones(1 << 22)}, timeout=1)
except tensormsg.Error:
    pass
kept = peer, ep""",
    "call": """
threads = [threading.Thread(target=catch, args=[lambda: ep.call("never")],
                            daemon=True) for _ in range(2)]
[call.start() for call in threads]
until(lambda: len(entered) >= 2)
kept = threads, ep""",
    "stream": """
s = ep.stream("ever")
kept = s, s.recv(20)""",
    "loop": """
async def main():
    there = await tensormsg.connect(listener.url)
    s = there.stream("ever")
    await s.recv()
    tasks = [asyncio.ensure_future(one) for one in (
        there.recv(), s.recv(), there.call("never"),
        there.recv_into({"x": big}))]
    await asyncio.sleep(.05)
    for task in tasks:
        task._log_destroy_pending = False
    return there, s, tasks
loop = asyncio.new_event_loop()
kept = loop.run_until_complete(main())
atexit.register(loop.close)""",
    "threads": """
def each():
    mine = tensormsg.sync.connect(listener.url, background=BACKGROUND)
    s = mine.stream("ever")
    started.append((mine, s))
    yield lambda: mine.recv()
    yield lambda: mine.recv_into({"x": big})
    yield lambda: [None for _ in iter(lambda: s.recv(), 0)]
    yield lambda: s.wait()
    yield lambda: mine.call("never")
    yield lambda: mine.close(1000)
    yield lambda: [None for _ in listener]
started = []
threads = [threading.Thread(target=catch, args=[one], daemon=True)
           for one in each()]
[thread.start() for thread in threads]
time.sleep(.3)
kept = started""",
}
# Where it is kept, or who uses it last.
PLACES = {
    "globals": "",
    "module": "sys.modules['elsewhere'] = type(sys)('elsewhere')\n"
              "sys.modules['elsewhere'].kept = kept, ep, listener, server\n"
              "del kept, ep, listener, server",
    "cycle": "class Cycle: pass\n"
             "cycle = Cycle()\ncycle.me, cycle.kept = cycle, kept\n"
             "del cycle, kept, ep, listener, server",
    "atexit": """
@atexit.register
def last():
    other = tensormsg.sync.connect(listener.url)
    other.send({"x": np.arange(9)}, timeout=20)
    other.close(20)
    print("at exit")""",
    "finalizer": """
class Last:
    def __init__(self):
        self.kept = kept, ep, server
    def __del__(self):
        try:
            ep = self.kept[1]
            ep.send({"x": np.arange(9)}, timeout=.1)
            ep.close(.1)
        except Exception:
            pass
last = Last()
del kept, ep, server""",
    "thread": """
threading.Thread(target=lambda: time.sleep(.2)).start()""",
    "exit": "sys.exit(0)",
    # What was registered before the import runs last.
    "early": "",
}
EARLY = """
@atexit.register
def last():
    try:
        ep.send({"x": np.arange(9)}, timeout=20)
        raise AssertionError("it goes on")
    except tensormsg.Closed:
        pass
    try:
        tensormsg.info()
        raise AssertionError("it goes on")
    except tensormsg.Closed as error:
        assert "exiting" in error.reason
    for call in [ep.recv, ep.close, listener.recv, lambda: ep.call("never"),
                 lambda: ep.recv_into({"x": big}), lambda: server.drain(9),
                 lambda: ep.stream("ever"), lambda: list(listener.peers),
                 lambda: tensormsg.sync.connect(listener.url), ep.abort,
                 server.close, listener.close, tensormsg.Context]:
        catch(call)
    for thread in [*threads, *server._threads]:
        thread.join()
    print("at exit")
"""
EACH = list(itertools.product(ALIVE, PLACES, [True, False]))
A_PART = [(alive, place, (i + j) % 3 > 0)
          for i, alive in enumerate(ALIVE) for j, place in enumerate(PLACES)
          if (i - j) % 4 == 0]


def end(alive, place, background):
    """Seconds that it took."""
    program = (BEGIN + ALIVE[alive] + "\nprint('end', flush=True)\n" +
               PLACES[place]).replace("BACKGROUND", str(background)).replace(
                   "START", EARLY if place == "early" else "")
    since = time.monotonic()
    ran = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", program], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=50,
        env={**os.environ, "UCX_LOG_LEVEL": "fatal"})
    # How long a step took is the machine's: asyncio tells of 0.1 s.
    warned = "".join(line for line in ran.stderr.splitlines(True)
                     if not line.startswith("Executing <"))
    said = "end\n" + "at exit\n" * (place in ("atexit", "early"))
    assert (ran.returncode, warned, ran.stdout) == (0, "", said), \
        (alive, place, background, ran)
    return time.monotonic() - since


def main(rounds):
    longest = 0
    for _ in range(int(rounds)):
        longest = max(longest, *(end(*one) for one in EACH))
    print(f"{int(rounds) * len(EACH)} programs ended, the longest in "
          f"{longest:.1f} s")


if __name__ == "__main__":
    main(*sys.argv[1:])
