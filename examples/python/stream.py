# SPDX-License-Identifier: BSD-3-Clause
"""Frames from two cameras to one receiver, all in one event loop."""

import asyncio

import numpy as np

import tensormsg

FRAMES = 20


async def camera(url: str, name: str) -> None:
    async with tensormsg.connect(url) as ep:
        for frame in range(FRAMES):
            await ep.send({"image": np.full((120, 160), frame, "u2"),
                           "camera": name}, frame=frame)


async def main() -> None:
    seen = {"left": 0, "right": 0}
    async with tensormsg.listen(":0") as server:
        cameras = [asyncio.ensure_future(camera(server.url, name))
                   for name in seen]
        async for msg in server:
            assert (msg["image"] == msg.meta["frame"]).all()
            seen[msg["camera"]] += 1
            if sum(seen.values()) == 2 * FRAMES:
                break
        await asyncio.gather(*cameras)
    print("frames seen:", seen)


if __name__ == "__main__":
    asyncio.run(main())
