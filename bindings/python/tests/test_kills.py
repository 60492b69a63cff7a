# SPDX-License-Identifier: BSD-3-Clause
"""A few of the kills of the soak."""

from kills import play


def test_whoever_is_killed_is_an_error_and_no_hang():
    ways, errors = play(15, 52)
    assert len(ways) == 3 and errors["PeerLost"] > 0
