# SPDX-License-Identifier: BSD-3-Clause
"""Two processes and a dict of arrays: the receiver answers."""

import multiprocessing
from multiprocessing.connection import Connection

import numpy as np

import tensormsg


def receive(told: Connection) -> None:
    with tensormsg.listen(":0") as server:
        told.send(server.url)
        msg = server.recv()
        image = msg["image"]  # a view of the memory that it came into
        print(f"frame {msg.meta['frame']}: {image.shape} {image.dtype}")
        msg.peer.send({"mean": image.mean(axis=(0, 1))})


def main() -> None:
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    receiver = spawn.Process(target=receive, args=(there,), daemon=True)
    receiver.start()
    there.close()  # should the receiver fail, here.recv() says so
    with tensormsg.connect(here.recv()) as ep:
        image = np.random.default_rng(1).integers(0, 255, (480, 640, 3), "u1")
        ep.send({"image": image}, frame=1)
        print("mean colour:", ep.recv()["mean"].round(1))
    receiver.join()


if __name__ == "__main__":
    main()
