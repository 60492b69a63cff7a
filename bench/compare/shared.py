# SPDX-License-Identifier: BSD-3-Clause
"""Works for which there are fewer processors than processes: small maps between
pairs of processes that sleep while they wait."""

import pathlib
from typing import NamedTuple

from table import Column

WORKLOAD = str(pathlib.Path(__file__).resolve().parent /
               "../workloads/joint-states.json")


class Work(NamedTuple):
    """The arguments of tensormsg-compare."""
    pairs: int = 1
    computing: int = 0
    place: str = "one"
    between: str = "nothing"


WORKS = {"one_core": Work(), "one_core_busy": Work(computing=1)}
WORKS |= {f"oversubscribed_{pairs}{busy}": Work(pairs, int(busy != ""), "any")
          for pairs in (2, 4) for busy in ("", "_busy")}
WORKS |= {f"one_core_{between}": Work(between=between)
          for between in ("nice", "session", "cgroup", "fifo")}

COLUMNS = (Column("half a round trip, us", 1, is_compared=False),
           Column("p99, us", 1),
           Column("round trips/s", 0, more_is_better=True))

# Of `python -m tensormsg.bench`: its name there, and in the tables.
PYTHON_WORKS = ("one_core", "oversubscribed_2")
PYTHON = {
    "blocking": "tensormsg, Python",
    "asyncio": "tensormsg, asyncio",
    "pickle": "multiprocessing, Python",
    "asyncio-pickle": "asyncio streams + pickle 5, Python",
    "ZeroMQ": "ZeroMQ + pickle 5, Python",
}
BESIDE = {PYTHON["pickle"]: PYTHON["blocking"],
          PYTHON["ZeroMQ"]: PYTHON["blocking"],
          PYTHON["asyncio-pickle"]: PYTHON["asyncio"]}
CONTROLS = {PYTHON["blocking"], PYTHON["asyncio"]}  # beside ours in C


def in_c(work):
    """What follows WAY WORKLOAD TRANSPORT SECONDS."""
    return [str(one) for one in WORKS[work]]


def in_python(work):
    """Options of `python -m tensormsg.bench`."""
    pairs, computing, place, _ = WORKS[work]
    return ["--cores", place, "--pairs", str(pairs),
            "--computing", str(computing)]


def intro(seconds):
    return ["## Where processors are shared", "",
            f"8 tensors of 64 bytes, over shared memory, {seconds} s a figure. "
            "`one_core`: all processes are on one core. `oversubscribed_N`: N "
            "pairs of processes, bound to no core. `_busy`: one more process "
            "only computes. `_nice`, `_session`, `_cgroup`, `_fifo`: the two "
            "processes of a pair differ in niceness, session, cgroup of the "
            "cpu controller, or scheduling policy (one has SCHED_FIFO). Half a "
            "round trip is the median, p99 the 99th percentile of half round "
            "trips, both of the slowest pair; round trips/s are those of all "
            "pairs.", ""]
