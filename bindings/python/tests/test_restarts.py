# SPDX-License-Identifier: BSD-3-Clause
"""A few of the restarts of the soak."""

import re
import subprocess
import sys

from conftest import HERE, WAIT, environment


def test_what_was_told_is_what_was_done():
    """In processes that have used nothing before they fork."""
    ran = subprocess.run([sys.executable, "-B", HERE / "restarts.py", "10", "3"],
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         text=True, timeout=2 * WAIT, env=environment())
    assert ran.returncode == 0, ran.stdout
    totals = dict(re.findall(r"'([^']+)': (\d+)", ran.stdout.splitlines()[-1]))
    for name in ("once yes", "again yes", "acked yes", "streams", "fetches",
                 "published", "new sessions of ep", "new sessions of camera"):
        assert int(totals[name]) > 0, totals
