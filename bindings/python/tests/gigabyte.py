# SPDX-License-Identifier: BSD-3-Clause
"""gigabyte.py [FOLDER]: an array of 1 GiB to another process and back, by tcp and
by shared memory, blocking and in event loops, to where the library puts it and
into a buffer, and as a tensor of torch's where that is in FOLDER: each element
arrives."""

import asyncio
import importlib.util
import os
import subprocess
import sys
import tempfile
import time

import numpy as np

import tensormsg

COUNT = 1 << 28  # of 4 bytes
ROUNDS = [f"{way}{how}" for way in ("blocking", "asyncio", "uvloop")
          for how in ("", ", into", ", torch")]


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


def block(url, like, x, buffer):
    with tensormsg.connect(url, like=like) as ep:
        ep.send({"x": x})
        return (ep.recv() if buffer is None else
                ep.recv_into({"x": buffer}))["x"]


async def wait(url, like, x, buffer):
    async with tensormsg.connect(url, like=like) as ep:
        await ep.send({"x": x})
        return (await (ep.recv() if buffer is None else
                       ep.recv_into({"x": buffer})))["x"]


def exchange(url, way, x, buffer):
    buffer[:] = 0
    like = None
    if "torch" in way:
        import torch
        x, like = torch.from_numpy(x.view("i4")), "torch"
    args = url, like, x, buffer if "into" in way else None
    if "blocking" in way:  # in a thread without a loop
        got = block(*args)
    elif "uvloop" in way:
        import uvloop
        got = uvloop.run(wait(*args))
    else:
        got = asyncio.run(wait(*args))
    return got.numpy().view("u4") if like else got


def main(folder=""):
    sys.path.append(folder)
    rounds = [way for way in ROUNDS
              if "torch" not in way or importlib.util.find_spec("torch")]
    x, buffer = np.arange(COUNT, dtype="u4"), np.zeros(COUNT, "u4")
    with tempfile.TemporaryDirectory() as folder:
        for place, more in ((":0", {"UCX_TLS": "tcp,self"}),
                            (f"unix://{folder}/socket", {})):
            for way in rounds:
                with subprocess.Popen(
                        [sys.executable, "-B", __file__, "serve", place],
                        env={**os.environ, **more}, text=True,
                        stdout=subprocess.PIPE) as peer:
                    try:
                        url = peer.stdout.readline().strip()
                        since = time.monotonic()
                        got = exchange(url, way, x, buffer)
                        took = time.monotonic() - since
                        is_whole(got, int(x[0]))
                        del got
                    finally:
                        peer.kill()
                print(f"{place}, {way}: there and back in {took:.1f} s",
                      flush=True)
                x += 1


if __name__ == "__main__":
    serve(sys.argv[2]) if sys.argv[1:2] == ["serve"] else main(*sys.argv[1:])
