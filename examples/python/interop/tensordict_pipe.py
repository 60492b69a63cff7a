# SPDX-License-Identifier: BSD-3-Clause
"""Rollouts of two collectors as TensorDicts to a learner, which answers each
with what its policy is now."""

import asyncio
import multiprocessing
from typing import Any

import torch
from tensordict import NonTensorData, TensorDict, UnbatchedTensor

from tensormsg.tensordict import TensorDictPipe, TensorDictServer

ROLLOUTS = 5
STEPS = 8


async def collect(url: str, name: str) -> None:
    async with await TensorDictPipe.connect(url) as pipe:
        policy: Any = None
        for i in range(ROLLOUTS):
            await pipe.asend(TensorDict(
                {"obs": torch.full((STEPS, 4), float(i)),
                 "next": {"reward": torch.ones(STEPS, 1)},
                 "scale": UnbatchedTensor(torch.tensor([0.5, 2.0])),
                 "collector": NonTensorData(name)}, batch_size=[STEPS]))
            policy = await pipe.arecv(policy)  # the first makes it, into it then
        assert (policy["weight"] == policy["version"]).all()


def collector(url: str, name: str) -> None:
    asyncio.run(collect(url, name))


async def main() -> None:
    seen = {"left": 0, "right": 0}
    server = TensorDictServer(0)  # a free port of the loopback
    version = 0

    async def learn(pipe: TensorDictPipe) -> None:
        nonlocal version
        async for rollout in pipe:
            assert rollout.batch_size == (STEPS,)
            assert rollout["next", "reward"].sum() == STEPS
            seen[rollout["collector"]] += 1
            version += 1
            await pipe.asend(TensorDict(version=torch.tensor(version),
                                        weight=torch.full((3, 4), version)))
        await pipe.aclose()
        if sum(seen.values()) == 2 * ROLLOUTS:
            server.close()

    spawn = multiprocessing.get_context("spawn")
    collectors = [spawn.Process(target=collector, args=(server.url, name))
                  for name in seen]
    for process in collectors:
        process.start()
    await server.serve(learn)
    for process in collectors:
        process.join()
        assert process.exitcode == 0
    print(f"all rollouts were received: {seen}")


if __name__ == "__main__":
    asyncio.run(main())
