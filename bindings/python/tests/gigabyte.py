# SPDX-License-Identifier: BSD-3-Clause
"""gigabyte.py: an array of 1 GiB to another process and back, by tcp and by
shared memory, blocking and in an event loop, to where the library puts it and
into a buffer: each element arrives."""

import asyncio
import subprocess
import sys
import tempfile
import time

import numpy as np

import tensormsg

COUNT = 1 << 28  # of 4 bytes
ROUNDS = "blocking", "blocking, into", "asyncio", "asyncio, into"


def serve(place):
    with tensormsg.listen(place) as listener:
        print(listener.url, flush=True)
        for message in listener:
            message.peer.send({"x": message["x"]})


def is_whole(x, n):
    assert x.shape == (COUNT,) and x.dtype == np.uint32
    for at in range(0, COUNT, 1 << 24):
        assert np.array_equal(x[at:at + (1 << 24)],
                              np.arange(at + n, at + n + (1 << 24), dtype="u4"))


async def exchange(url, way, x, buffer):
    buffer[:] = 0
    if "asyncio" in way:
        async with tensormsg.connect(url) as ep:
            await ep.send({"x": x})
            return (await (ep.recv_into({"x": buffer}) if "into" in way
                           else ep.recv()))["x"]
    with tensormsg.sync.connect(url) as ep:
        ep.send({"x": x})
        return (ep.recv_into({"x": buffer}) if "into" in way
                else ep.recv())["x"]


def main():
    x, buffer = np.arange(COUNT, dtype="u4"), np.zeros(COUNT, "u4")
    with tempfile.TemporaryDirectory() as folder:
        for place in ":0", f"unix://{folder}/socket":
            for way in ROUNDS:
                with subprocess.Popen(
                        [sys.executable, "-B", __file__, place], text=True,
                        stdout=subprocess.PIPE) as peer:
                    try:
                        url = peer.stdout.readline().strip()
                        since = time.monotonic()
                        got = asyncio.run(exchange(url, way, x, buffer))
                        took = time.monotonic() - since
                        is_whole(got, int(x[0]))
                        del got
                    finally:
                        peer.kill()
                print(f"{place}, {way}: there and back in {took:.1f} s",
                      flush=True)
                x += 1


if __name__ == "__main__":
    main() if len(sys.argv) == 1 else serve(sys.argv[1])
