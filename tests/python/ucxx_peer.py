# SPDX-License-Identifier: BSD-3-Clause
"""A program on UCXX's Python interface: `dial PORT` sends arrays and expects
each back; `listen` prints its port and sends back what one peer sends."""

import asyncio
import sys

import numpy as np
import ucxx

COUNTS = 0, 1, 3000, 1 << 20  # of uint64: below and above rendezvous


async def dial(port):
    endpoint = await ucxx.create_endpoint("127.0.0.1", port)
    for count in COUNTS:
        sent = np.arange(count, dtype=np.uint64)
        await endpoint.am_send(sent)
        got = np.asarray(await endpoint.am_recv()).view(np.uint64)
        assert np.array_equal(got, sent), (count, got)
        print(count, flush=True)
    await endpoint.close()


async def listen():
    done = asyncio.Event()

    async def echo(endpoint):
        await endpoint.am_send(np.asarray(await endpoint.am_recv()))
        while endpoint.alive:  # the peer closes
            await asyncio.sleep(.01)
        done.set()

    listener = ucxx.create_listener(echo)
    print(listener.port, flush=True)
    await done.wait()


asyncio.run(asyncio.wait_for(
    dial(int(sys.argv[2])) if sys.argv[1] == "dial" else listen(), 60))
