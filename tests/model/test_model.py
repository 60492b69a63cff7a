# SPDX-License-Identifier: BSD-3-Clause
"""Short runs of fixed seeds; tests/soak/soak_model.py has the long ones."""

import os
import re
import warnings

import pytest

import model


def seeds(*given):
    """Two UCX have half of them each; where there is one, it has all."""
    if os.environ.get("TMSG_SANITIZE") or os.environ.get("TMSG_ALL_SEEDS") or \
            not os.environ.get("TMSG_UCX_1_22"):
        return given
    return given["TMSG_OTHER_HALF" not in os.environ::2]


UCX_ABORT = re.compile(r"tcp_(?:ep|cm)\.c:\d+ +Assertion .*? failed")


def play(seed, transport, steps, **options):
    """Plays a run; again, once, where UCX 1.13 has aborted an actor in its own
    TCP, as it may where connections break while others are made."""
    try:
        totals = model.Run(seed, transport, steps, **options).play()
    except model.Broken as broken:
        abort = UCX_ABORT.search(str(broken))
        if abort is None or transport != "tcp":
            raise
        warnings.warn(f"UCX has aborted an actor: {abort[0]}")
        totals = model.Run(seed, transport, steps, **options).play()
    print(dict(totals))
    return totals


NO_FAULT = {"destroy": 0, "kill": 0, "stop": 0, "cut": 0}


@pytest.mark.parametrize("transport", ["tcp", "shm", "unix", "tls"])
@pytest.mark.parametrize("seed", seeds(1, 2))
def test_all_is_delivered_where_nobody_breaks_anything(transport, seed):
    totals = play(seed, transport, 120, weights=NO_FAULT)
    assert totals["delivered"] > 30 and totals["acked"] > 10


@pytest.mark.parametrize("transport", ["tcp", "shm", "unix", "tls"])
@pytest.mark.parametrize("seed", seeds(11, 12, 13))
def test_faults_are_explained(transport, seed):
    totals = play(seed, transport, 150)
    assert totals["delivered"] > 30
    assert sum(count for name, count in totals.items()
               if name.startswith("ended by")) > 0


@pytest.mark.parametrize("transport", ["tcp", "shm", "unix", "tls"])
@pytest.mark.parametrize("seed", seeds(31, 32))
def test_sessions_come_back(transport, seed):
    totals = play(seed, transport, 150, weights={**NO_FAULT, "cut": 20})
    assert totals["cut, to come back"] > 5 and totals["acked"] > 20


@pytest.mark.parametrize("transport", ["tcp", "shm", "unix"])
def test_full_queues_drop_at_the_end_they_name(transport):
    """Which queue is full when is the machine's to say: until either was."""
    weights = {**NO_FAULT, "cancel": 0, "send": 150, "bound": 20}
    ends = {"dropped as the oldest", "dropped as the newest"}
    seen = set()
    for seed in range(44, 54):
        totals = play(seed, transport, 300, weights=weights)
        seen |= {end for end in ends if totals[end] > 0}
        if seen == ends:
            break
    assert seen == ends


@pytest.mark.parametrize("transport", ["tcp", "unix", "tls"])
def test_who_is_silent_is_given_up(transport):
    totals = play(21, transport, 25, timeout_ms=3000,
                  weights={"be_silent": 2, "kill": 0})
    assert totals["silent"] > 0
