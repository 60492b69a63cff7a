# SPDX-License-Identifier: BSD-3-Clause
"""A client that lives through restarts of its server, which is killed and started
anew meanwhile, as another process."""

import asyncio
import os
import subprocess
import sys

import tensormsg

CALLS = 6


async def serve(place):
    async with tensormsg.listen(place) as listener:
        server = listener.serve()

        @server.method("square", idempotent=True)
        def square(request):
            return {"y": request["x"] ** 2, "pid": os.getpid()}

        print(listener.url, flush=True)
        await server.run()


def start(place):
    """A server in a process of its own, and where it listens."""
    process = subprocess.Popen([sys.executable, __file__, place],
                               stdout=subprocess.PIPE, text=True)
    return process, process.stdout.readline().strip()


def restart(process, url):
    process.kill()
    process.communicate()
    return start(url)[0]


async def main():
    process, url = start(":0")
    pids = set()
    try:
        async with tensormsg.connect(
                url, reconnect=60, backoff=(.01, 1),
                on_session=lambda event: print(event.kind)) as ep:
            for x in range(CALLS):
                # What the old server may have run is run again.
                reply = await ep.call("square", {"x": x}, timeout=10,
                                      attempts=5, idempotent=True)
                assert reply["y"] == x ** 2
                pids.add(int(reply["pid"]))
                if x in (1, 3):
                    process = restart(process, url)
    finally:
        process.kill()
        process.communicate()
    print(f"{CALLS} calls, {len(pids)} servers")


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]) if sys.argv[1:] else main())
