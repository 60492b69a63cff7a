# SPDX-License-Identifier: BSD-3-Clause
"""Rows of `make bench` of the Go package: what a map costs in Go over C. Each
round is, for prepared maps and for maps that are built each time, two new
processes of bench/go, each bound to a core, in which Go and C take turns: the
garbage of the second would be collected while the first is measured. The rows
are added to the file of the others."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
from typing import NamedTuple


class Metric(NamedTuple):
    """One figure over another of the same round; without a base, itself."""
    work: str
    name: str
    way: str
    base: str
    limit: float
    unit: str = "x"

    def of(self, round_):
        said = round_[self.way.split("_")[0]]
        return said[self.way] / said[self.base] if self.base else said[self.way]


METRICS = [
    Metric("go_8x64B", "over_C", "prepared_us", "C_into_us", 1.35),
    Metric("go_8x64B", "allocations", "prepared_allocations", "", 0, "count"),
    Metric("go_map_8x64B", "over_C", "map_us", "C_into_us", 4),
    Metric("go_16MiB", "over_C", "map_gb_s", "C_gb_s", .98),
]


def cores():
    mine = sorted(os.sched_getaffinity(0))
    return mine[0], mine[1 % len(mine)]


def measure(program, way, blocks, turns):
    """What the side that asks said."""
    with tempfile.TemporaryDirectory() as folder:
        asks, answers = (subprocess.Popen(
            ["taskset", "-c", str(core), program, side, folder, way,
             str(blocks), str(turns)], stdout=subprocess.PIPE)
            for core, side in zip(cores(), ("ask", "answer")))
        try:
            said, _ = asks.communicate(timeout=120)
            answers.wait(timeout=30)
        finally:
            asks.kill()
            answers.kill()
        if asks.returncode or answers.returncode:
            raise SystemExit("go_rows.py: a side failed")
        return json.loads(said)


def rows_of(program, rounds, blocks, turns):
    said = [{way: measure(program, way, blocks, turns if way == "map" else 0)
             for way in ("prepared", "map")} for _ in range(rounds)]
    place = ",".join(map(str, cores()))
    for metric in METRICS:
        values = [metric.of(round_) for round_ in said]
        ours = statistics.median(values)
        ratio = ours / metric.limit if metric.limit else None
        print(f"{metric.work:16} {'shm':4} {place:5} {metric.name:19} "
              f"{ours:8.2f} {metric.limit:8} "
              f"{'-' if ratio is None else format(ratio, '.2f'):>6} {'-':>6} "
              f"{'':13} {metric.unit:5} {rounds:4}  {min(values):.2f}.."
              f"{max(values):.2f}  asked for", flush=True)
        yield {"work": metric.work, "transport": "shm", "metric": metric.name,
               "unit": metric.unit, "ours": ours, "limit": metric.limit,
               "ratio": ratio, "spread": None, "cores": place, "runs": rounds}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=pathlib.Path, help="of bench/go")
    parser.add_argument("json", type=pathlib.Path, metavar="FILE", nargs="?",
                        help="of the other rows")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true",
                        help="one short round, to see that it works")
    options = parser.parse_args()
    found = list(rows_of(options.program.resolve(), 1, 2, 1) if options.quick
                 else rows_of(options.program.resolve(), options.rounds, 401,
                              21))
    if options.json:
        rows = json.loads(options.json.read_text()) + found
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
