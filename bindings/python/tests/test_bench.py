# SPDX-License-Identifier: BSD-3-Clause
"""The comparison runs; its figures mean nothing here. What others have is in the
soak (peers.py)."""

import json
import os
import subprocess
import sys

import pytest


def bench(*args, **environment):
    return subprocess.run(
        [sys.executable, "-m", "tensormsg.bench", *map(str, args)], text=True,
        timeout=55, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, **environment})


def test_the_comparison_runs(tmp_path):
    """And is drawn, each way by a line with its name."""
    pytest.importorskip("matplotlib")
    path, plot = tmp_path / "rows.json", tmp_path / "plot.svg"
    ran = bench("--work", "2x64,1x4096", "--seconds", ".05", "--ways",
                "C,blocking,asyncio,pickle,ZeroMQ", "--json", path, "--plot",
                plot, SOURCE_DATE_EPOCH="0", MPLCONFIGDIR=str(tmp_path))
    assert ran.returncode == 0, ran.stderr
    rows = json.loads(path.read_text())["rows"]
    ways = {row["way"] for row in rows}
    assert ways == {"C", "blocking", "asyncio", "pickle", "ZeroMQ"}
    assert len(rows) == 2 * len(ways)
    assert all(row["half_round_trip_us"] > 0 for row in rows)
    assert "2 x 64" in ran.stdout and "us over C" in ran.stdout
    drawn = plot.read_text()
    assert "<svg" in drawn
    for text in [*ways, "2 x 64", "1 x 4096", "half a round trip, us"]:
        assert f"<!-- {text} -->" in drawn
    assert "<!-- UCXX -->" not in drawn


@pytest.mark.parametrize("args, words", [
    (["--plot", "rows.pdf"], "rows.pdf: neither .png nor .svg"),
    (["--plot", "/nowhere/plot.png"], "/nowhere/plot.png: no folder"),
    (["--json", "/nowhere/rows.json"], "/nowhere/rows.json: no folder"),
    (["--work", "8"], "--work: 8: not NxBYTES"),
    (["--work", "0x8"], "--work: 0x8: not NxBYTES"),
    (["--ways", "C,D"], "--ways: D: none of C, blocking,"),
    (["--seconds", "-1"], "--seconds"),
])
def test_what_is_mistaken_is_said_before_anything_is_measured(args, words):
    ran = bench(*args)
    assert ran.returncode == 2 and ran.stdout == ""
    assert words in ran.stderr and "Traceback" not in ran.stderr


def test_without_matplotlib_it_says_what_to_install(tmp_path):
    (tmp_path / "matplotlib.py").write_text("raise ImportError")
    program = "import importlib.util, sys; find = importlib.util.find_spec; " \
        "importlib.util.find_spec = lambda name, *args: None " \
        "if name == 'matplotlib' else find(name, *args); " \
        "sys.argv = ['bench', '--plot', 'plot.png']; " \
        "from tensormsg.bench import main; main()"
    ran = subprocess.run([sys.executable, "-c", program], text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert ran.returncode == 2 and ran.stdout == ""
    assert "--plot needs matplotlib: pip install matplotlib" in ran.stderr
