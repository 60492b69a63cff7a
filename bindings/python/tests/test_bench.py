# SPDX-License-Identifier: BSD-3-Clause
"""The comparison runs; its figures mean nothing here. What others have is in the
soak (peers.py)."""

import json
import subprocess
import sys


def test_the_comparison_runs(tmp_path):
    rows = tmp_path / "rows.json"
    ran = subprocess.run(
        [sys.executable, "-m", "tensormsg.bench", "--work", "2x64",
         "--seconds", ".05", "--ways", "C,blocking,asyncio,pickle,ZeroMQ",
         "--json", rows], text=True, timeout=55,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert ran.returncode == 0, ran.stderr
    rows = json.loads(rows.read_text())["rows"]
    ways = {row["way"] for row in rows}
    assert {"C", "blocking", "asyncio", "pickle"} <= ways
    assert len(rows) == len(ways)
    assert all(row["half_round_trip_us"] > 0 for row in rows)
    assert "2 x 64" in ran.stdout and "us over C" in ran.stdout
