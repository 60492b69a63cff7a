# SPDX-License-Identifier: BSD-3-Clause
"""The figures and workloads of figures.json by the benches in Python, those of
the package and those of bench/; test_figures.c has the engine in C do the same."""

import json
import pathlib
import sys

from tensormsg import bench

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "bench"))
import figures  # noqa: E402

examples = json.loads((SOURCE / "tests/tools/figures.json").read_text())
for example in examples["figures"]:
    values = example["values"]
    of = bench.figures_of(values)
    assert (of.median, of.p99) == (example["median"], example["p99"]), example
    for quantile in bench.quantile, figures.quantile:
        assert quantile(values, .75) == example["p75"], example
        assert quantile(values, .99) == example["p99"], example
for example in examples["workloads"]:
    data = bench.read_workload(SOURCE / f"bench/workloads/{example['name']}.json")
    of = len(data), sum(array.nbytes for array in data.values())
    assert of == (example["tensors"], example["bytes"]), example
