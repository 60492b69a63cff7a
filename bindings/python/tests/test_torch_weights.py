# SPDX-License-Identifier: BSD-3-Clause
"""The recipe for weights, examples/python/torch/weights.py."""

import importlib.util
import pathlib
import threading

import pytest

torch = pytest.importorskip("torch")

from conftest import run_script  # noqa: E402

EXAMPLE = pathlib.Path(__file__).parent / \
    "../../../examples/python/torch/weights.py"
WAIT = 30


@pytest.fixture(scope="module")
def recipe():
    spec = importlib.util.spec_from_file_location("weights_recipe", EXAMPLE)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def state(value, groups=("0", "1")):
    sizes = {"0.weight": (8, 4), "0.bias": (8,), "1.weight": (2, 8),
             "1.bias": (2,)}
    return {group: {name: torch.full(size, float(value))
                    for name, size in sizes.items()
                    if name.startswith(group + ".")} for group in groups}


def values(worker):
    return {name: set(tensor.flatten().tolist())
            for name, tensor in worker.state.items()}


def test_the_program():
    assert run_script(EXAMPLE) == "3 workers and a late one have version 4\n"


def test_what_did_not_change_is_fetched_once(recipe):
    trainer = recipe.Trainer("127.0.0.1:0")
    worker = recipe.Worker(trainer.listener.url, recipe.model())
    assert not worker.update()
    trainer.publish(1, state(1))
    assert worker.update() and not worker.update()
    unchanged = trainer.groups["0"]
    trainer.publish(2, state(2, ["1"]))
    assert worker.update() and worker.newest[1] == 2
    assert unchanged.stats.under_way == 0 and unchanged.stats.bytes > 0
    before = unchanged.stats.bytes
    trainer.publish(3, state(3, ["1"]))
    assert worker.update()
    assert unchanged.stats.bytes == before
    assert values(worker) == {"0.weight": {1}, "0.bias": {1}, "1.weight": {3},
                              "1.bias": {3}}
    worker.close()
    trainer.listener.close()


def test_a_trainer_that_is_started_again_is_found(recipe, tmp_path):
    url = f"unix://{tmp_path}/trainer"
    trainer = recipe.Trainer(url)
    worker = recipe.Worker(url, recipe.model())
    trainer.publish(7, state(7))
    assert worker.update()
    epoch = worker.newest[0]
    trainer.listener.abort()
    again = []

    def start():
        again.append(recipe.Trainer(url))
        again[0].publish(1, state(1))  # counts from the beginning again

    starter = threading.Timer(0.2, start)
    starter.start()
    assert worker.update(wait=WAIT)
    starter.join()
    assert worker.newest[1] == 1 and worker.newest[0] > epoch
    assert values(worker)["0.weight"] == {1}
    worker.close()
    again[0].listener.close()
