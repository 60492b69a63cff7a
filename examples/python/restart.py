# SPDX-License-Identifier: BSD-3-Clause
"""A client that lives through restarts of its server, which is killed and started
anew meanwhile, as another process."""

import asyncio
import os
import subprocess
import sys
from typing import Any, Dict, Set, Tuple

import tensormsg

CALLS = 6


async def serve(place: str) -> None:
    async with tensormsg.listen(place) as listener:
        server = listener.serve()

        @server.method("square", idempotent=True)
        def square(request: tensormsg.Request) -> Dict[str, Any]:
            return {"y": request["x"] ** 2, "pid": os.getpid()}

        print(listener.url, flush=True)
        await server.run()


def start(place: str) -> Tuple["subprocess.Popen[str]", str]:
    """A server in a process of its own, and where it listens."""
    process = subprocess.Popen([sys.executable, __file__, place],
                               stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def restart(process: "subprocess.Popen[str]", url: str
            ) -> "subprocess.Popen[str]":
    process.kill()
    process.communicate()
    return start(url)[0]


async def main() -> None:
    process, url = start(":0")
    pids: Set[int] = set()
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
