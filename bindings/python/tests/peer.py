# SPDX-License-Identifier: BSD-3-Clause
"""peer.py MODE URL: a process that sends each message back to whom it came
from. Prints where it listens."""

import asyncio
import sys

import tensormsg


def echo(url):
    with tensormsg.listen(url) as server:
        print(server.url, flush=True)
        for msg in server:
            msg.peer.send(msg.tree(), meta=msg.meta)


async def aecho(url):
    async with tensormsg.listen(url) as server:
        print(server.url, flush=True)
        async for msg in server:
            await msg.peer.send(msg.tree(), meta=msg.meta)


if __name__ == "__main__":
    mode, place = sys.argv[1:]
    if mode == "sync":
        echo(place)
    elif mode == "asyncio":
        asyncio.run(aecho(place))
    else:
        import uvloop
        uvloop.run(aecho(place))
