# SPDX-License-Identifier: BSD-3-Clause
"""Weights of 500 MB for four inference workers, by the recipe of
docs/understand/engines.md: each fetches a quarter of each layer into its
parameters, one all
of them, and all read the whole as a loan. One joins late, and the trainer is
started again.

    weights.py TORCH

TORCH is a folder with torch. Ends with 77 where there is none.
"""

import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
EXAMPLE = HERE / "../../../examples/python/torch/weights.py"
LAYERS, ROWS, COLUMNS = 10, 3200, 3906  # 50 MB each, in float32
READERS = 4
WAIT = 300


def load():
    import torch
    spec = importlib.util.spec_from_file_location("recipe", EXAMPLE)
    recipe = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(recipe)
    torch.set_num_threads(1)
    return torch, recipe


def train(url, first):
    """Says a line when a version is there, and makes the next for each that it
    is told."""
    torch, recipe = load()
    import tensormsg
    trainer = recipe.Trainer(url)
    layers = tensormsg.empty({str(i): ((ROWS, COLUMNS), "f4")
                              for i in range(LAYERS)}, like="torch")
    for version in range(first, first + 2):
        changed = layers if version == first else {"3": layers["3"]}
        state = {}
        for i, tensor in changed.items():
            tensor = tensor if version == first else tensor.clone()
            tensor.fill_(version)
            state[i] = {f"{i}.weight": tensor}
        # The recipe copies; here that would be 500 MB more.
        trainer.publish(version, {i: {name: NoCopy(tensor)
                                      for name, tensor in group.items()}
                                  for i, group in state.items()})
        print("ready", flush=True)
        sys.stdin.readline()


class NoCopy:
    def __init__(self, tensor):
        self.tensor = tensor

    def detach(self):
        return self

    def clone(self):
        return self.tensor


def read(url, number):
    """Says what it has when it is told to look."""
    torch, recipe = load()
    quarter = ROWS // READERS
    whole = number == 0
    model = torch.nn.ModuleList(
        torch.nn.Linear(COLUMNS, ROWS if whole else quarter, bias=False)
        for _ in range(LAYERS))
    import numpy as np
    slices = {} if whole else {
        f"{i}.weight": np.s_[number * quarter:(number + 1) * quarter]
        for i in range(LAYERS)}
    worker = recipe.Worker(url, model, slices)
    for line in sys.stdin:
        begun = time.monotonic()
        wanted = int(line)
        while worker.newest[1] != wanted:
            worker.update(wait=5)
        took = time.monotonic() - begun
        for i, layer in enumerate(model):
            value = layer.weight.unique().tolist()
            assert len(value) == 1, (i, value)
            assert value[0] == (wanted if i == 3 else wanted - wanted % 2), \
                (i, value, wanted)
        lent = worker.ep.fetch(worker.keys["3"], loan=True)
        assert (lent["3.weight"] == wanted).all()
        del lent
        print(f"{took:.2f}", flush=True)


def start(*args):
    return subprocess.Popen(
        [sys.executable, "-B", __file__, *map(str, args)], text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def tell(program, line=""):
    program.stdin.write(f"{line}\n")
    program.stdin.flush()


def heard(program):
    line = program.stdout.readline().strip()
    assert line, "a program has ended"
    return line


def main():
    sys.path[:0] = sys.argv[1:2]
    os.environ["PYTHONPATH"] = sys.argv[1]
    if importlib.util.find_spec("torch") is None:
        print("SKIPPED: no torch: scripts/setup.sh torch")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        url = f"unix://{folder}/trainer"
        trainer = start("--train", url, 2)
        readers = [start("--read", url, i) for i in range(READERS - 1)]
        try:
            heard(trainer)
            versions = {}
            for version in 2, 3, 4, 5:
                if version == 3:
                    tell(trainer)
                    readers.append(start("--read", url, READERS - 1))  # late
                    heard(trainer)
                if version == 4:
                    trainer.kill()
                    trainer.wait()
                    trainer = start("--train", url, 4)
                    heard(trainer)
                if version == 5:
                    tell(trainer)
                    heard(trainer)
                for reader in readers:
                    tell(reader, version)
                versions[version] = [heard(reader) for reader in readers]
                print(f"version {version}: seconds {versions[version]}",
                      flush=True)
        finally:
            for program in (trainer, *readers):
                program.kill()
                program.wait()
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "--train":
        train(sys.argv[2], int(sys.argv[3]))
    elif sys.argv[1] == "--read":
        read(sys.argv[2], int(sys.argv[3]))
    else:
        sys.exit(main())
