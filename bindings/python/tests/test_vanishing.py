# SPDX-License-Identifier: BSD-3-Clause
"""Arrays in memory that cannot be read to its end: all of an array arrives, or
its send fails and names it."""

import ctypes
import mmap
import threading

import numpy as np
import pytest

import tensormsg

WAIT = 30
PAGE = mmap.PAGESIZE
SIZES = (33_000, 65_600, 300_000, 520_000)


class Pages:
    """Memory from which the last pages are taken."""

    def __init__(self, size):
        self.map = mmap.mmap(-1, (size + PAGE - 1) // PAGE * PAGE)
        self.array = np.frombuffer(self.map, "u1", size)
        self.array[:] = 1

    def protect(self, how):
        view = ctypes.c_char.from_buffer(self.map)
        address = ctypes.addressof(view) + 2 * PAGE
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.mprotect(ctypes.c_void_p(address),
                             ctypes.c_size_t(len(self.map) - 2 * PAGE),
                             how) == 0

    def __enter__(self):
        self.protect(0)
        return self.array

    def __exit__(self, *_):
        self.protect(3)


@pytest.mark.parametrize("place", ["unix", "tcp"])
def test_an_array_that_ends_early_fails_its_send(mode, place, tmp_path):
    """Of which the first two pages can be read. At the receiver recv() passes
    it over, and describe() counts it."""
    url = f"unix://{tmp_path}/s" if place == "unix" else "tcp://127.0.0.1:0"

    async def scenario(endpoint):
        while "cma" not in str(described(endpoint)["transports"]):
            await endpoint.send({"hello": np.zeros(1)}, acked=True)
        for size in SIZES:
            for more in ({}, {"acked": True}):
                with Pages(size) as array:
                    with pytest.raises(tensormsg.IOFailed,
                                       match="tensor 'frame'.*cannot be read"):
                        await endpoint.send({"frame": array}, **more)
        await endpoint.send({"last": np.arange(100_000)}, acked=True)

    with tensormsg.listen(url, background=True) as listener:
        took, refused = [], []

        def take():
            while not took or "last" not in took[-1]:
                message = listener.recv(timeout=WAIT)
                took.append(dict(message))
            refused.append(message.peer.describe()["refused_messages"])

        taker = threading.Thread(target=take)
        taker.start()
        mode.run(listener.url, scenario)
        taker.join()
        assert not any("frame" in message for message in took)
        assert refused == [2 * len(SIZES)]
        assert (took[-1]["last"] == np.arange(100_000)).all()


def described(endpoint):
    return getattr(endpoint, "endpoint", endpoint).describe()
