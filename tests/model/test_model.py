# SPDX-License-Identifier: BSD-3-Clause
"""Short runs of fixed seeds; tests/soak/soak_model.py has the long ones."""

import os

import pytest

import model


def seeds(*given):
    """Every other one where a second UCX runs this."""
    return given[::2] if "TMSG_OTHER_HALF" in os.environ else given


NO_FAULT = {"destroy": 0, "kill": 0, "stop": 0, "cut": 0}


@pytest.mark.parametrize("transport", ["tcp", "shm", "unix"])
@pytest.mark.parametrize("seed", seeds(1, 2))
def test_all_is_delivered_where_nobody_breaks_anything(transport, seed):
    totals = model.Run(seed, transport, 120, weights=NO_FAULT).play()
    print(dict(totals))
    assert totals["delivered"] > 30 and totals["acked"] > 10


@pytest.mark.parametrize("transport", ["tcp", "shm", "unix"])
@pytest.mark.parametrize("seed", seeds(11, 12, 13))
def test_faults_are_explained(transport, seed):
    totals = model.Run(seed, transport, 150).play()
    print(dict(totals))
    assert totals["delivered"] > 30
    assert sum(count for name, count in totals.items()
               if name.startswith("ended by")) > 0


@pytest.mark.parametrize("transport", ["tcp", "shm", "unix"])
@pytest.mark.parametrize("seed", seeds(31, 32))
def test_sessions_come_back(transport, seed):
    totals = model.Run(seed, transport, 150,
                       weights={**NO_FAULT, "cut": 20}).play()
    print(dict(totals))
    assert totals["cut, to come back"] > 5 and totals["acked"] > 20


@pytest.mark.parametrize("transport", ["tcp", "unix"])
def test_who_is_silent_is_given_up(transport):
    totals = model.Run(21, transport, 25, timeout_ms=3000,
                       weights={"be_silent": 2, "kill": 0}).play()
    print(dict(totals))
    assert totals["silent"] > 0
