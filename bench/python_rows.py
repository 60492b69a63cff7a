# SPDX-License-Identifier: BSD-3-Clause
"""Rows of `make bench` of `python -m tensormsg.bench`: what a dict of arrays
costs in Python over C, and beside pickle where processes share processors. Each
round is new processes; the ways take turns, forwards in one round and backwards
in the next. The rows are added to the file of the others."""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
from typing import NamedTuple


class Metric(NamedTuple):
    """One way beside another: microseconds more, or times as many."""
    name: str
    way: str
    base: str
    limit: float
    unit: str = "x"

    def of(self, times):
        if self.unit == "us":
            return times[self.way] - times[self.base]
        return times[self.way] / times[self.base]


WORKS = {  # by name: options of the bench, and what is measured
    "python_8x64B": ([], [
        Metric("overhead_us", "blocking", "C", 8, "us"),
        Metric("overhead_asyncio_us", "asyncio", "C", 15, "us")]),
    "one_core_python_8x64B": (["--cores", "one"], [
        Metric("over_pickle", "blocking", "pickle", .25),
        Metric("asyncio_over_pickle", "asyncio", "asyncio-pickle", .5)]),
    "oversubscribed_2_python_8x64B": (["--cores", "any", "--pairs", "2"], [
        Metric("over_pickle", "blocking", "pickle", .33),
        Metric("asyncio_over_pickle", "asyncio", "asyncio-pickle", .33)]),
    "background_python_8x64B": ([], [
        Metric("over_wakes", "background", "wakes", 1.5)]),
}


def measure(folder, seconds, options, ways):
    """Half a round trip in us, by way; and the cores."""
    out = pathlib.Path(folder, "rows.json")
    subprocess.run([sys.executable, "-m", "tensormsg.bench", "--work", "8x64",
                    "--ways", ",".join(ways), "--seconds", str(seconds),
                    "--json", out, *options], check=True,
                   stdout=subprocess.DEVNULL)
    rows = json.loads(out.read_text())["rows"]
    return ({row["way"]: row["half_round_trip_us"] for row in rows},
            ",".join(map(str, rows[0]["cores"])))


def rows_of(work, folder, rounds, seconds):
    options, metrics = WORKS[work]
    ways = list(dict.fromkeys(way for metric in metrics
                              for way in (metric.base, metric.way)))
    measured = [measure(folder, seconds, options, ways[::-1] if i % 2 else ways)
                for i in range(rounds)]
    for metric in metrics:
        values = [metric.of(times) for times, _ in measured]
        ours, cores = statistics.median(values), measured[0][1]
        print(f"{work:16} {'shm':4} {cores:5} {metric.name:19} {ours:8.2f} "
              f"{metric.limit:8} {ours / metric.limit:6.2f} {'-':>6} {'':13} "
              f"{metric.unit:5} {rounds:4}  {min(values):.2f}.."
              f"{max(values):.2f}  asked for, over {metric.base}", flush=True)
        yield {"work": work, "transport": "shm", "metric": metric.name,
               "unit": metric.unit, "ours": ours, "limit": metric.limit,
               "ratio": ours / metric.limit, "spread": None, "cores": cores,
               "runs": rounds}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("json", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.6)
    parser.add_argument("--only", choices=WORKS, action="append",
                        help="a work to measure (all)")
    options = parser.parse_args()
    rows = json.loads(options.json.read_text())
    with tempfile.TemporaryDirectory() as folder:
        for work in options.only or WORKS:
            rows += rows_of(work, folder, options.rounds, options.seconds)
    options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
