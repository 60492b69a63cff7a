# SPDX-License-Identifier: BSD-3-Clause
"""A server of methods and a client of them, in one event loop."""

import asyncio
from typing import Any, Dict

import numpy as np

import tensormsg


def offer(server: tensormsg.Server) -> None:
    @server.method("infer",
                   signature="(image: uint8[h,w,3]) -> (mean: float64[3])")
    async def infer(request: tensormsg.Request) -> Dict[str, Any]:
        """The mean colour of an image."""
        if not request["image"].any():
            raise tensormsg.CallError("it is black", code=3)
        await asyncio.sleep(.01)  # others are answered meanwhile
        return {"mean": request["image"].mean(axis=(0, 1))}


async def main() -> None:
    async with tensormsg.listen(":0") as listener:
        server = listener.serve()
        offer(server)
        async with tensormsg.connect(listener.url) as ep:
            print(await ep.methods())
            images = [np.full((4, 4, 3), level, "u1") for level in range(4)]
            replies = await asyncio.gather(
                *(ep.call("infer", {"image": image}, timeout=10)
                  for image in images), return_exceptions=True)
    for reply in replies:
        if isinstance(reply, tensormsg.ApplicationFailed):
            print("failed:", reply.reason, reply.code)
        elif isinstance(reply, BaseException):
            raise reply
        else:
            print(reply["mean"])


if __name__ == "__main__":
    asyncio.run(main())
