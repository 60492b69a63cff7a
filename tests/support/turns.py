# SPDX-License-Identifier: BSD-3-Clause
"""For pytest: of a file that runs twice, each time with another UCX, one run has
its first test, its third and so on, the other the rest, and what is marked "once"
runs with the first. `make soak` has all with both. criterion/turns.c is the same
for tests in C."""

import os


def pytest_collection_modifyitems(items):
    if os.environ.get("TMSG_SANITIZE") or not os.environ.get("TMSG_UCX_1_22"):
        return
    half = "TMSG_OTHER_HALF" in os.environ
    turns = [item for item in items if not item.get_closest_marker("once")]
    rest = set(turns[not half::2])
    items[:] = [item for item in items if item not in rest]
