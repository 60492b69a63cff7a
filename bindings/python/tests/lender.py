# SPDX-License-Identifier: BSD-3-Clause
"""lender.py URL CONFIG SIZE: serves "give", whose reply is an array of SIZE
elements that all are the number asked for. The array is overwritten as soon as it
may be, and used again. Over unix:// with an empty CONFIG the peer reads it where
it lies."""

import sys
import threading

import numpy as np

import tensormsg
from tensormsg import sync


def main(url, config, size):
    free, made, lock = [], [], threading.Lock()

    def take():
        with lock:
            if not free:
                made.append(np.zeros(int(size), np.int64))
                free.append(made[-1])
            return free.pop()

    context = tensormsg.Context(ucx_config=config or None)
    with sync.listen(url, context=context, background=True) as listener, \
            listener.serve(threads=2) as server:
        @server.method("give")
        def give(request):
            x = take()
            x.fill(int(request.meta["number"]))

            def is_free():
                x.fill(-1)
                with lock:
                    free.append(x)
            return tensormsg.Reply({"x": x}, on_release=is_free)

        @server.method("count")
        def count(request):
            with lock:
                return {"made": len(made), "free": len(free)}

        print(listener.url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
