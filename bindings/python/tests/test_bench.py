# SPDX-License-Identifier: BSD-3-Clause
"""The comparison runs; its figures mean nothing here. What others have is in the
soak (peers.py)."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

import tensormsg.bench
from tensormsg import _bench_ways


def bench(*args, **environment):
    return subprocess.run(
        [sys.executable, "-m", "tensormsg.bench", *map(str, args)], text=True,
        timeout=200, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, **environment})


def refuses(capsys, monkeypatch, *args):
    """What is said of arguments that nothing is measured with, in this process."""
    monkeypatch.setattr(sys, "argv", ["bench", *map(str, args)])
    with pytest.raises(SystemExit) as ended:
        tensormsg.bench.main()
    said = capsys.readouterr()
    return ended.value.code, said.out, said.err


WAYS = ["C", "blocking", "asyncio", "background", "pickle", "asyncio-pickle",
        "wakes"]


def test_the_comparison_runs(tmp_path):
    """Of two maps, and is drawn, each way by a line with its name."""
    pytest.importorskip("matplotlib")
    path, plot = tmp_path / "rows.json", tmp_path / "plot.svg"
    ran = bench("--work", "2x64,1x4096", "--seconds", ".05", "--ways",
                "C,ZeroMQ", "--json", path, "--plot", plot,
                SOURCE_DATE_EPOCH="0", MPLCONFIGDIR=str(tmp_path))
    assert ran.returncode == 0, ran.stderr
    rows = json.loads(path.read_text())["rows"]
    assert [(row["way"], row["work"]) for row in rows] == \
        [(way, work) for work in ("2 x 64", "1 x 4096") for way in ("C", "ZeroMQ")]
    assert all(row["half_round_trip_us"] > 0 for row in rows)
    assert "2 x 64" in ran.stdout
    drawn = plot.read_text()
    assert "<svg" in drawn
    for text in ["C", "ZeroMQ", "2 x 64", "1 x 4096", "half a round trip, us"]:
        assert f"<!-- {text} -->" in drawn
    assert "<!-- UCXX -->" not in drawn


def test_a_way_that_was_measured_alone_is_compared_with_nothing():
    assert tensormsg.bench.compare({"blocking": 1.}) == []
    assert tensormsg.bench.compare({"blocking": 1., "pickle": 2.}) == \
        ["blocking: 2.0 times as fast as pickle"]


@pytest.mark.parametrize("options, said, pairs, computing, bound", [
    (["--cores", "one"], "; core {0}\n", 1, 0, "one"),
    (["--cores", "any", "--pairs", "2"],
     "; any core; 2 pairs at once, the slowest\n", 2, 0, "any"),
    (["--computing", "1"], "; cores {0} and {1}; 1 beside them only compute\n",
     1, 1, "apart"),
])
def test_processes_share_processors(options, said, pairs, computing, bound,
                                    tmp_path):
    path = tmp_path / "rows.json"
    ran = bench("--work", "2x64", "--seconds", ".05", "--ways", "C,asyncio",
                "--json", path, *options)
    assert ran.returncode == 0, ran.stderr
    cores = sorted(os.sched_getaffinity(0))
    first, second = cores[0], cores[1 % len(cores)]
    assert said.format(first, second) in ran.stdout
    assert "99 of 100 within" in ran.stdout and "round trips/s" in ran.stdout
    rows = json.loads(path.read_text())["rows"]
    assert [row["way"] for row in rows] == ["C", "asyncio"]
    for row in rows:
        assert row["pairs"] == pairs and row["computing"] == computing
        assert row["bound"] == bound
        assert row["cores"] == {"one": [first], "any": cores,
                                "apart": [first, second]}[bound]
        assert 0 < row["half_round_trip_us"] <= row["p99_us"]
        assert row["round_trips_per_s"] > 0


def test_without_eventfd_a_pipe_wakes(monkeypatch):
    monkeypatch.delattr(os, "eventfd", raising=False)
    hear, ring = _bench_ways.bell()
    assert hear != ring
    own = _bench_ways.start_relay(hear)
    os.write(ring, _bench_ways.ONE)
    assert os.read(own, 8) == _bench_ways.ONE


def test_the_slowest_pair_is_told(monkeypatch):
    """And how many round trips all of them make."""
    of_pairs = [tensormsg.bench.figures_of([2e-6] * 98 + [4e-6, 8e-6]),
                tensormsg.bench.figures_of([3e-6] * 100)]
    monkeypatch.setattr(tensormsg.bench, "measure", lambda *args: of_pairs)
    table = tensormsg.bench.Table(["blocking"],
                                  tensormsg.bench.Setting("apart", 2, 0))
    table.measure("1 x 1", tensormsg.bench.made(1, 1), [])
    row, = table.rows
    assert row["half_round_trip_us"] == pytest.approx(1.5)
    assert row["p99_us"] == pytest.approx(1.5)
    assert row["round_trips_per_s"] == pytest.approx(100 / 208e-6 + 1 / 3e-6)
    assert of_pairs[0].p99 == pytest.approx(4e-6)


@pytest.mark.parametrize("args, words", [
    (["--cores", "two"], "argument --cores: invalid choice: 'two'"),
    *((["--pairs", text], f"--pairs: {text}: a number from 1 to 100")
      for text in ("0", "-1", "101", "two", "1.5")),
    *((["--computing", text], f"--computing: {text}: a number from 0 to 100")
      for text in ("-1", "101", "all")),
    (["--plot", "rows.gif"], "rows.gif: none of .png, .svg, .pdf"),
    (["--plot", "/nowhere/plot.png"], "/nowhere/plot.png: no folder"),
    (["--json", "/nowhere/rows.json"], "/nowhere/rows.json: no folder"),
    (["--work", "8"], "--work: 8: not NxBYTES"),
    (["--work", "0x8"], "--work: 0x8: not NxBYTES"),
    (["--ways", "C,D"], "--ways: D: none of C, blocking,"),
    *((["--seconds", text], f"--seconds: {text}: seconds are above 0 and below")
      for text in ("-1", "0", "nan", "inf", "1h")),
    (["--workload", "/nowhere.json"], "--workload: /nowhere.json: No such file"),
    (["--workload", "."], "--workload: .: Is a directory"),
    *((["--workload", "FILE", text], "work.json: no workload, which is JSON")
      for text in ("", "[]", "{}", '{"maps": []}', '{"maps": [{"tensors": [7]}]}',
                   '{"maps": [{"tensors": [{"name": "x", "shape": "y"}]}]}',
                   '{"maps": [{"tensors": [{"name": "x", "shape": [-1],'
                   ' "dtype": "u1"}]}]}')),
])
def test_what_is_mistaken_is_said_before_anything_is_measured(
        args, words, tmp_path, capsys, monkeypatch):
    if args[1] == "FILE":
        path = tmp_path / "work.json"
        path.write_text(args[2])
        args = args[0], path
    code, out, errors = refuses(capsys, monkeypatch, *args)
    assert (code, out) == (2, "") and words in errors


def hidden(module, *args):
    """Where that is not installed."""
    program = "import importlib.util, sys; find = importlib.util.find_spec; " \
        "importlib.util.find_spec = lambda name, *args: None " \
        f"if name == '{module}' else find(name, *args); " \
        f"sys.argv = ['bench', *{args}]; " \
        "from tensormsg.bench import main; main()"
    return subprocess.run([sys.executable, "-c", program], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_without_matplotlib_it_says_what_to_install():
    ran = hidden("matplotlib", "--plot", "plot.png")
    assert ran.returncode == 2 and ran.stdout == ""
    assert "--plot needs matplotlib: pip install matplotlib" in ran.stderr


def test_its_help_tells_the_ways_and_what_is_usual():
    ran = bench("--help")
    assert ran.returncode == 0
    for way, about in tensormsg.bench.ABOUT.items():
        assert f"  {way:<15} {about}\n" in ran.stdout
    assert list(tensormsg.bench.ABOUT) == list(tensormsg.bench.WAYS)
    for words in "8x33554432)", "for (0.6)", "(all that are installed)", \
            "(needs pyzmq)":
        assert words in " ".join(ran.stdout.split()), words


def test_what_is_not_installed_is_told(tmp_path):
    """And all else is measured."""
    reason = "there is no module zmq: pip install pyzmq"
    path = tmp_path / "rows.json"
    ran = hidden("zmq", "--work", "2x64", "--seconds", ".05", "--json", str(path))
    assert ran.returncode == 0, ran.stderr
    assert f"ZeroMQ is left out: {reason}" in ran.stderr
    assert "ZeroMQ" not in ran.stdout and "us over C" in ran.stdout
    rows = json.loads(path.read_text())["rows"]
    assert {row["way"] for row in rows} >= set(WAYS)
    assert all(row["half_round_trip_us"] > 0 for row in rows)
    ran = hidden("zmq", "--work", "1x1", "--ways", "C,ZeroMQ")
    assert ran.returncode == 2 and ran.stdout == ""
    assert f"--ways ZeroMQ: {reason}" in ran.stderr


def test_a_way_that_fails_leaves_the_others(tmp_path):
    """With what its other process said last."""
    (tmp_path / "zmq.py").write_text("raise ImportError('this zmq is none')")
    ran = bench("--work", "1x8", "--seconds", ".01", "--ways", "ZeroMQ,C",
                PYTHONPATH=str(tmp_path))
    assert ran.returncode == 1 and "Traceback" not in ran.stderr
    assert "1 x 8, ZeroMQ: its other process ended: ImportError: this zmq is " \
        "none" in ran.stderr
    said = ran.stdout.splitlines()[1].split()
    assert said[:4] == ["1", "x", "8", "-"] and float(said[4]) > 0


@pytest.mark.parametrize("says", ["", "print('listening', flush=True); "])
def test_a_process_that_hangs_is_killed_and_named(monkeypatch, says):
    hangs = [sys.executable, "-c", says + "import time; time.sleep(60)"]
    monkeypatch.setattr(tensormsg.bench, "program", lambda *args: hangs)
    with pytest.raises(tensormsg.bench.Failed, match="did not end in 1 s"):
        tensormsg.bench.measure("C", [], tensormsg.bench.USUAL, 1.)


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return file.read().split()


def is_gone(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def affinities(pid):
    """Of all threads."""
    return {tuple(sorted(os.sched_getaffinity(int(thread))))
            for thread in os.listdir(f"/proc/{pid}/task")}


def places_of(children):
    """By what a process does, where its threads may run."""
    found = {}
    for pid in children:
        with open(f"/proc/{pid}/cmdline", encoding="utf-8") as file:
            for role in {"--ask", "--serve", "--compute"} & \
                    set(file.read().split("\0")):
                found[role] = affinities(pid)
    return found


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")
@pytest.mark.parametrize("cores", ["apart", "one", "any"])
def test_each_process_is_where_it_was_said(cores):
    every = tuple(sorted(os.sched_getaffinity(0)))
    asks, serves = {"apart": (every[:1], every[1:2]), "one": (every[:1],) * 2,
                    "any": (every, every)}[cores]
    expected = {"--ask": {asks}, "--serve": {serves}, "--compute": {asks}}
    found = None
    with subprocess.Popen(
            [sys.executable, "-m", "tensormsg.bench", "--work", "1x8", "--ways",
             "background", "--seconds", "30", "--computing", "1", "--cores",
             cores], stdout=subprocess.DEVNULL,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"}) as process:
        try:
            end = time.monotonic() + 30
            while found != expected and time.monotonic() < end:
                time.sleep(.05)
                found = places_of(children_of(process.pid))
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130
    assert found == expected


@pytest.mark.parametrize("way", ["C", "blocking", "asyncio", "pickle"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_it_leaves_no_process(way, number, tmp_path):
    errors = tmp_path / "errors"
    with open(errors, "wb") as file, subprocess.Popen(
            [sys.executable, "-m", "tensormsg.bench", "--work",
             "1x33554432", "--ways", way, "--seconds", "30"],
            stdout=subprocess.DEVNULL, stderr=file) as process:
        try:
            end = time.monotonic() + 30
            while not (children := children_of(process.pid)):
                assert time.monotonic() < end
                time.sleep(.01)
            time.sleep(.4)  # anywhere in it
            children = children_of(process.pid)
            process.send_signal(number)
            assert process.wait(30) == (130 if number == signal.SIGINT else
                                        -number)
        finally:
            process.kill()
    while not all(map(is_gone, children)):
        assert time.monotonic() < end
        time.sleep(.01)
    assert "Traceback" not in errors.read_text()
