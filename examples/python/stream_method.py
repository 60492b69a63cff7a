# SPDX-License-Identifier: BSD-3-Clause
"""A method that takes frames and gives what it finds in them, while both go
on, and ends by itself."""

import asyncio
from typing import Any, AsyncIterator, Dict

import numpy as np

import tensormsg

FRAMES = 20


def offer(server: tensormsg.Server) -> None:
    @server.method("track")
    async def track(stream: tensormsg.ServerStream
                    ) -> AsyncIterator[Dict[str, Any]]:
        """Where the brightest pixel is, of each frame that has one."""
        floor = stream.request["floor"]
        async for frame in stream:
            image = frame["image"]
            if image.max() > floor:
                at = divmod(int(image.argmax()), image.shape[1])
                yield {"at": np.array(at), "frame": frame.meta["frame"]}


async def film(stream: tensormsg.Stream) -> None:
    for frame in range(FRAMES):
        image = np.zeros((48, 64), "u1")
        image[frame, 2 * frame] = 10 * frame
        await stream.send({"image": image}, frame=frame)
    await stream.done_writing()


async def main() -> None:
    async with tensormsg.listen(":0") as listener:
        offer(listener.serve())
        async with tensormsg.connect(listener.url) as ep:
            async with ep.stream("track", {"floor": 99}, timeout=10) as stream:
                filming = asyncio.ensure_future(film(stream))
                async for found in stream:
                    print("frame", found["frame"], "at", found["at"])
                await filming


if __name__ == "__main__":
    asyncio.run(main())
