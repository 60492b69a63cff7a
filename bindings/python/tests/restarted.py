# SPDX-License-Identifier: BSD-3-Clause
"""restarted.py: a program that forks servers at a place, which are killed and
started anew there: each is another process, as where a program was restarted.

For each line of its input, "start PLACE RECONNECT PUBLISH" or "kill", it prints
what it did. PLACE is where it listens, RECONNECT the seconds for which sessions
are kept, or 0, and PUBLISH a number of messages per second, or 0."""

import os
import signal
import subprocess
import sys
import time

import numpy as np

import tensormsg

HANDLERS = 4


def serve(place, reconnect):
    """Answers until it is killed."""
    pid = os.getpid()
    # Nothing moves until there is an offer, and nobody calls too early.
    with tensormsg.sync.listen(place,
                               reconnect=reconnect or None) as listener, \
            listener.serve(threads=HANDLERS) as server:
        taken, inside = [], []

        @server.method("add")
        def add(request):
            return {"y": request["x"] + 1, "pid": pid}

        @server.method("hold")
        def hold(request):
            """The server is killed meanwhile, the first time."""
            inside.append(None)
            if request["pid"] == pid:
                time.sleep(100)
            return {"pid": pid}

        @server.method("held", idempotent=True)
        def held(request):
            return hold(request)

        @server.method("taken")
        def tell(request):
            return {"n": np.array(taken, int), "inside": len(inside)}

        @server.method("count", stream=True)
        def count(stream):
            for message in stream:
                yield {"n": message["n"], "pid": pid}

        offer = listener.offer({"pid": np.full(1000, pid)}, name="weights")
        print(pid, listener.url, flush=True)
        for message in listener:
            taken.append(message.meta["n"])
            if message.meta.get("answer"):
                message.peer.send({"pid": pid})
        del offer


def publish(place, reconnect, rate):
    with tensormsg.sync.publish(place, reconnect=reconnect or None,
                                background=True) as camera:
        print(os.getpid(), camera.url, flush=True)
        n = 0
        while True:
            n += 1
            camera.send({"pid": os.getpid()}, n=n)
            time.sleep(1 / rate)


def main():
    pid = None
    for line in sys.stdin:
        if line.startswith("kill"):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            print("killed", flush=True)
            continue
        _, place, reconnect, rate = line.split()
        pid = os.fork()
        if pid == 0:
            try:
                if float(rate) > 0:
                    publish(place, float(reconnect), float(rate))
                else:
                    serve(place, float(reconnect))
            finally:
                os._exit(1)


class Restarted:
    """A server at one place; `start()` and `kill()` it in turn."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-B", __file__], text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, env={**os.environ,
                                         "UCX_LOG_LEVEL": "fatal"})
        self.pid = None

    def _ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().split()

    def start(self, place, reconnect=0, rate=0):
        """Where it listens."""
        pid, url = self._ask(f"start {place} {reconnect} {rate}")
        self.pid = int(pid)
        return url

    def kill(self):
        if self.pid is not None:
            self._ask("kill")
            self.pid = None

    def close(self):
        self.kill()
        self.process.communicate()


if __name__ == "__main__":
    main()
