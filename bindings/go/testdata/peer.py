# SPDX-License-Identifier: BSD-3-Clause
"""A peer of stream_test.go: opens a stream and subscribes, then serves and
publishes at URLs in a folder until its input ends."""

import asyncio
import sys

import numpy as np
import tensormsg


async def main(streams, frames, folder):
    async with tensormsg.connect(streams) as ep:
        async with ep.stream("sums") as stream:
            for x in 1, 2, 3.5:
                await stream.send({"x": np.array(x, "f4")})
                print((await stream.recv())["x"])
            await stream.done_writing()
            print(await stream.recv())
        async with ep.stream("fail") as stream:
            try:
                async for _ in stream:
                    pass
            except tensormsg.ApplicationFailed as error:
                print(error.code, "resnet" in str(error))
    async with tensormsg.connect(frames) as ep:
        async for msg in ep:
            print(msg.meta["frame"], msg["x"].tolist())
    async with tensormsg.listen(f"unix://{folder}/s") as listener:
        server = listener.serve()

        @server.method("twice")
        async def twice(stream):
            async for msg in stream:
                if msg["x"].size == 0:
                    raise tensormsg.CallError("nothing to double", code=9,
                                              details={"at": np.array([4, 2])})
                yield {"y": 2 * msg["x"]}

        async with tensormsg.publish(f"unix://{folder}/f") as camera:
            print("ready", flush=True)
            await camera.wait_for(1)
            for frame in range(3):
                await camera.send({"x": np.arange(frame)}, number=frame)
            await asyncio.to_thread(sys.stdin.read)


asyncio.run(main(*sys.argv[1:]))
