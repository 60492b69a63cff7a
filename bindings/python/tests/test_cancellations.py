# SPDX-License-Identifier: BSD-3-Clause
"""A hundredth of what the soak gives up."""

import asyncio

import pytest

from cancellations import play


@pytest.mark.parametrize("seed", [1, 2])
def test_waits_that_are_given_up_lose_and_misdeliver_nothing(seed):
    run = asyncio.run(play(500, seed))
    assert len(run.given_up) == 7 and min(run.given_up.values()) > 0
