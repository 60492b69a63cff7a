# SPDX-License-Identifier: BSD-3-Clause
"""weights: a trainer offers each version of its weights, and readers fetch the
newest when they like. Here all of them are threads of one process."""

import threading
from typing import List

import numpy as np
import tensormsg
from tensormsg import sync

VERSIONS, READERS = 5, 3


def train(listener: sync.Listener, readers_done: threading.Event) -> None:
    """Each version has arrays of its own; the one before is given back when
    nobody reads it any more."""
    before = None
    for version in range(1, VERSIONS + 1):
        weights = {"w": np.full((100, 50), version, "f4"), "b": np.zeros(50)}
        offer = listener.offer(weights, name="weights", version=version)
        if before is not None:
            before.withdraw(timeout=5)  # those who read it may go on so long
        before = offer
    readers_done.wait()


def read(url: str, seen: List[int]) -> None:
    """Fetches until it has the last version. It waits for a newer one than it
    has: nothing is fetched twice."""
    with sync.connect(url) as ep:
        mine = np.empty((100, 50), "f4")  # received into, each time
        version = 0
        while version < VERSIONS:
            try:
                got = ep.fetch(name="weights", at_least=version + 1, wait=10,
                               into={"w": mine})
            except tensormsg.Canceled:
                continue  # withdrawn meanwhile: there is a newer one
            version = got.meta["tensormsg.offer.version"]
            assert (mine == version).all()
        seen.append(version)


def main() -> None:
    seen: List[int] = []
    done = threading.Event()
    with sync.listen("127.0.0.1:0") as listener:
        readers = [threading.Thread(target=read, args=(listener.url, seen))
                   for _ in range(READERS)]
        trainer = threading.Thread(target=train, args=(listener, done))
        for thread in [*readers, trainer]:
            thread.start()
        for reader in readers:
            reader.join()
        done.set()
        trainer.join()
    print(f"{len(seen)} readers have version {seen[0]}")


if __name__ == "__main__":
    main()
