# SPDX-License-Identifier: BSD-3-Clause
"""A camera and its viewers, who need a key: one wants every frame, one the
newest whenever it has time, and one comes late."""

import asyncio
from typing import List, Literal, Optional

import numpy as np

import tensormsg

FRAMES = 50


async def view(url: str, key: bytes, name: str, takes: float = 0.,
               mode: Optional[Literal["live"]] = None) -> None:
    seen: List[int] = []
    async with tensormsg.connect(url, key=key, mode=mode,
                                 reconnect=True) as camera:
        async for msg in camera:  # until the camera closes
            assert (msg["image"] == msg.meta["frame"]).all()
            seen.append(msg.meta["frame"])
            await asyncio.sleep(takes)
    print(f"{name} saw {len(seen)} of {FRAMES} frames, from {seen[0]} to "
          f"{seen[-1]}")


async def main() -> None:
    key = tensormsg.generate_key()
    async with tensormsg.publish(":0", keep=3, key={"viewer": key},
                                 reconnect=30) as camera:
        viewers = [view(camera.url, key, "one that keeps up"),
                   view(camera.url, key, "a slow one", .05, mode="live")]
        tasks = [asyncio.ensure_future(viewer) for viewer in viewers]
        await camera.wait_for(2)
        image = np.empty((480, 640), "u1")
        for frame in range(1, FRAMES + 1):
            image[:] = frame
            await camera.send({"image": image}, frame=frame)
            await asyncio.sleep(.005)
        tasks.append(asyncio.ensure_future(
            view(camera.url, key, "one that came late")))
        await camera.wait_for(3)
        await camera.flush()  # all that there is has been taken
    await asyncio.gather(*tasks)


if __name__ == "__main__":
    asyncio.run(main())
