# SPDX-License-Identifier: BSD-3-Clause
"""Bells: rung by ctypes, as a kernel does, and by streams of the simulated
driver."""

import asyncio
import ctypes
import os
import subprocess
import sys
import time

import numpy as np
import pytest

import tensormsg
from tensormsg import sync

BOUND = 30.0


class Line:
    """What a kernel does with the line of a bell."""

    def __init__(self, address):
        self.words = (ctypes.c_uint64 * 16).from_address(address)

    def post(self, n):
        self.words[0] = n

    def done(self, n):
        return self.words[8] >= n

    def wait(self, n):
        end = time.monotonic() + BOUND
        while not self.done(n):
            assert time.monotonic() < end
            time.sleep(0.0005)


def sends_and_receives(ep, peer, x, y):
    sends, receives = Line(ep.line), Line(peer.line)
    for n in range(1, 20):
        x[:] = n
        sends.post(n)
        receives.wait(n)
        assert (y == n).all()
        receives.post(n)
        sends.wait(n)


def test_blocking():
    x, y = np.zeros(100), np.zeros(100)
    with sync.listen(":0", background=True) as listener, \
            sync.connect(listener.url) as ep:
        ep.ready(BOUND)
        bell = ep.bell({"x": x})
        while not listener.peers:
            time.sleep(0.001)
        into = listener.peers[0].bell_into({"x": y})
        bell.warm(BOUND)
        into.warm(BOUND)
        sends_and_receives(bell, into, x, y)
        assert bell.failed is None
        into.close()
        bell.close()
        bell.close()
        with pytest.raises(tensormsg.Closed):
            bell.ring(1)


def test_asyncio():
    x, y = np.zeros(100), np.zeros(100)

    async def main():
        async with tensormsg.listen(":0", background=True) as listener, \
                tensormsg.connect(listener.url, background=True) as ep:
            await ep.ready(BOUND)
            bell = ep.bell({"x": x}, acked=True)
            while not listener.peers:
                await asyncio.sleep(0.001)
            into = listener.peers[0].bell_into({"x": y})
            await asyncio.gather(bell.warm(BOUND), into.warm(BOUND))
            await asyncio.to_thread(sends_and_receives, bell, into, x, y)
            into.close()
            bell.close()

    asyncio.run(main())


def test_a_thread_of_the_library_rings_while_the_loop_stands_still():
    x = np.arange(5.0)

    async def main():
        async with tensormsg.listen(":0") as listener, \
                tensormsg.connect(listener.url) as ep:
            await ep.ready(BOUND)
            bell = ep.bell({"x": x}, meta={"frame": 7})
            line = Line(bell.line)
            line.post(1)
            line.wait(1)
            message = await listener.recv(BOUND)
            assert message.meta["frame"] == 7 and (message["x"] == x).all()

    asyncio.run(main())


def test_it_keeps_its_arrays_and_tells_why_it_fails():
    with sync.listen(":0", background=True) as listener:
        with pytest.raises(tensormsg.PeerLost), \
                sync.connect(listener.url) as ep:
            ep.ready(BOUND)
            bell = ep.bell({"x": np.arange(1000)})
            line = Line(bell.line)
            line.post(1)
            message = listener.recv(BOUND)
            assert (message["x"] == np.arange(1000)).all()
            listener.peers[0].abort()
            end = time.monotonic() + BOUND
            n = 2
            while bell.failed is None:
                assert time.monotonic() < end
                line.post(n)
                line.wait(n)
                n += 1
            assert isinstance(bell.failed, tensormsg.PeerLost)
            line.wait(1 << 63)  # nothing waits any more
        assert bell.failed is not None


def test_wrong_use_says_what_is_wrong():
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    with sync.listen(":0", background=True) as listener, \
            sync.connect(listener.url, background=True) as ep:
        ep.ready(BOUND)
        with pytest.raises(ValueError, match="an array"):
            ep.bell({})
        with pytest.raises(ValueError, match="'y'"):
            ep.bell_into({"y": frozen})
        bell = ep.bell({"x": np.zeros(3)})
        with pytest.raises(TypeError, match="stream="):
            bell.ring("none")
        with pytest.raises(TypeError, match="Neither torch nor cupy"):
            bell.ring()
        with pytest.raises(tensormsg.Unsupported):
            bell.ring(1)
        with pytest.raises(tensormsg.InvalidParam, match="stream"):
            bell.line
        with pytest.raises(TypeError, match="pickled"):
            bell.__reduce_ex__(4)
        with pytest.raises(tensormsg.TimedOut):
            ep.bell_into({"y": np.zeros(3)}).warm(0.05)


STREAM = """
import ctypes, sys
import numpy as np
import tensormsg
from tensormsg import sync

cuda, pointer = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p
context, stream = pointer(), pointer()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxPushCurrent_v2(context) == 0
assert cuda.cuStreamCreate(ctypes.byref(stream), 1) == 0

class Stream:
    cuda_stream = stream.value

x = np.arange(100)
with sync.listen(":0", background=True) as listener, \\
        sync.connect(listener.url, background=True) as ep:
    ep.ready(30)
    bell = ep.bell({"x": x})
    for n in range(5):
        x[:] = n
        bell.ring(Stream())
        bell.wait(stream.value)
        assert cuda.cuStreamSynchronize(stream) == 0
        assert (listener.recv(30)["x"] == n).all()
    bell.close()
print("rung")
"""


@pytest.mark.skipif(not os.environ.get("TMSG_FAKES"),
                    reason="no driver that passes for CUDA's was built here")
def test_a_stream_rings_it():
    folder = os.path.join(os.environ["TMSG_FAKES"], "../gpu/sim")
    done = subprocess.run(
        [sys.executable, "-c", STREAM], capture_output=True, text=True,
        timeout=60, env={**os.environ, "LD_LIBRARY_PATH": folder})
    assert done.stdout == "rung\n", done.stderr
