# SPDX-License-Identifier: BSD-3-Clause
"""weights: a trainer offers each version of its model, and inference workers
fetch what has changed, straight into their parameters. Here all of them are
threads of one process; docs/understand/engines.md says more."""

import threading
from typing import Any, Dict, List, Optional

import numpy as np
import tensormsg
import torch
from tensormsg import sync

VERSIONS = 4


class Trainer:
    """One offer for each group of tensors that changes together, and an index:
    the offer "weights", whose metadata have the key of each group."""

    def __init__(self, url: str) -> None:
        self.listener = sync.listen(url, background=True)
        self.groups: Dict[str, sync.Offer] = {}
        self.index: Optional[sync.Offer] = None

    def publish(self, version: int, changed: Dict[str, Dict[str, Any]]) -> None:
        """`changed`: the state_dict of each group that has changed. It is
        copied, as the next step writes to it."""
        replaced = []
        for group, state in changed.items():
            if group in self.groups:
                replaced.append(self.groups[group])
            self.groups[group] = self.listener.offer(
                {name: tensor.detach().clone()
                 for name, tensor in state.items()}, lend=True)
        index = self.listener.offer(
            {}, meta={group: offer.key for group, offer in self.groups.items()},
            name="weights", version=version)
        if self.index is not None:
            replaced.append(self.index)
        self.index = index
        for offer in replaced:  # who reads them now may go on so long
            try:
                offer.withdraw(timeout=5)
            except tensormsg.TimedOut:
                pass  # such a reader gets an error, and begins anew


class Worker:
    """Has the newest weights in its model, or a slice of them. `slices`: of
    some tensors, what this worker has."""

    def __init__(self, url: str, model: torch.nn.Module,
                 slices: Optional[Dict[str, Any]] = None) -> None:
        self.url = url
        self.state = dict(model.state_dict())  # the parameters' own memory
        self.slices = slices or {}
        self.newest = 0, 0  # epoch and version; any is newer
        self.keys: Dict[str, Any] = {}
        self.ep: Optional[sync.Endpoint] = None

    def update(self, wait: float = 0) -> bool:
        """Fetches what has changed; call it between two batches. Returns
        whether there was a newer version within `wait` seconds. After an error
        call it again before the model is used: it may have some tensors of a
        newer version."""
        while True:
            try:
                index = self.index(wait)
                if index is None:
                    return False
                for group, key in index.meta.items():
                    if not group.startswith("tensormsg."):
                        self.fetch(group, key)
                self.newest = (index.meta["tensormsg.offer.epoch"],
                               index.meta["tensormsg.offer.version"])
                return True
            except (tensormsg.Canceled, tensormsg.NotFound):
                pass  # replaced meanwhile: there is a newer index
            except tensormsg.PeerLost:
                self.ep = None  # the trainer is started anew

    def index(self, wait: float) -> Optional[sync.Message]:
        if self.ep is None or self.ep.closed:
            self.ep = sync.connect(self.url, wait=True, timeout=30)
        epoch, version = self.newest
        try:
            return self.ep.fetch(name="weights", wait=wait,
                                 at_least=(epoch, version + 1))
        except tensormsg.NotFound:
            return None

    def fetch(self, group: str, key: Any) -> None:
        if self.keys.get(group) == key:
            return
        assert self.ep is not None
        into = group_of(self.state, group)
        self.ep.fetch(key, into=into, timeout=60, slices={
            name: self.slices.get(name, ()) for name in into})
        self.keys[group] = key

    def close(self) -> None:
        if self.ep is not None:
            self.ep.close()


def model(rows: int = 8) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, rows), torch.nn.Linear(8, 2))


def group_of(state: Dict[str, Any], group: str) -> Dict[str, Any]:
    return {name: tensor for name, tensor in state.items()
            if name.startswith(group + ".")}


def work(worker: Worker, seen: List[int]) -> None:
    while worker.newest[1] < VERSIONS:
        if worker.update(wait=10):
            seen.append(worker.newest[1])
    worker.close()


def main() -> None:
    trained, whole = model(), model()
    halves = [model(4), model(4)]  # each has half the rows of layer 0
    trainer = Trainer("127.0.0.1:0")
    url = trainer.listener.url
    workers = [Worker(url, whole)] + [
        Worker(url, half, {name: np.s_[4 * i:4 * i + 4]
                           for name in ("0.weight", "0.bias")})
        for i, half in enumerate(halves)]
    seen: List[List[int]] = [[] for _ in workers]
    threads = [threading.Thread(target=work, args=each)
               for each in zip(workers, seen)]
    for thread in threads:
        thread.start()
    for version in range(1, VERSIONS + 1):
        groups = ("0", "1") if version == 1 else ("1",)  # layer 0 is frozen
        with torch.no_grad():
            for group in groups:
                for tensor in group_of(trained.state_dict(), group).values():
                    tensor.normal_()
        trainer.publish(version, {group: group_of(trained.state_dict(), group)
                                  for group in groups})
    for thread in threads:
        thread.join()
    late = Worker(url, model())  # joins when all is over
    late.update()
    late.close()
    x = torch.ones(1, 4)
    hidden = torch.cat([half[0](x) for half in halves], 1)
    assert torch.allclose(trained(x), whole(x))
    assert torch.allclose(trained(x), halves[0][1](hidden))
    print(f"{len(workers)} workers and a late one have version "
          f"{late.newest[1]}")
    trainer.listener.close()


if __name__ == "__main__":
    main()
