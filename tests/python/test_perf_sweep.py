# SPDX-License-Identifier: BSD-3-Clause
# ctest: twice in soak
"""`tensormsg perf`: what is measured, how it is told, and who is told where it
cannot be."""

import contextlib
import csv
import ctypes
import io
import itertools
import json
import os
import pathlib
import signal
import subprocess
import time

import pytest

from cli import (BOUND, DONE, FAILED, SOURCE, TOOL, USAGE, one_line, receiver,
                 run)

LONG = 4 * BOUND  # on a machine that is busy with other things
FAST = ["--warmup", .001, "--seconds", .005, "--repeat", 2]
TIMES = ["p50_us", "p90_us", "p99_us", "p999_us", "max_us"]
RATES = ["messages_per_s", "gb_per_s"]
PHASES = ["prepare_us", "post_us", "transfer_us"]
COLUMNS = ["measure", "transport", "transports", "memory", "map", "tensors",
           "bytes", "in_flight", "repetitions", "messages", *TIMES, "mean_us",
           *RATES, "spread_percent", *PHASES, "verified", "by_bulk"]
FAKES = pathlib.Path(os.environ["LIBTENSORMSG"]).parent / "tests/fakes"


def perf(*words, **options):
    return run("perf", *words, timeout=LONG, **options)


def measured(*words, **options):
    done = perf("--json", *FAST, *words, **options)
    assert (done.returncode, done.stderr) == (DONE, "")
    return json.loads(done.stdout)


def damaged():
    """The environment of a command that gets other bytes than were sent."""
    asan = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
    return os.environ | {"LD_PRELOAD": os.environ["TMSG_DAMAGE"],
                         "ASAN_OPTIONS": asan}


# --- what is measured ---

def test_each_with_each_other():
    rows = measured("-m", "latency,bandwidth,calls", "--bytes", "64,4K",
                    "--tensors", "1,3", "--in-flight", "1:4:4")
    assert len(rows) == 2 * 2 * 2 * (1 + 2 + 2)
    assert [row["transport"] for row in rows] == ["shm"] * 20 + ["tcp"] * 20
    got = {(row["transport"], row["measure"], row["tensors"], row["bytes"],
            row["in_flight"]) for row in rows}
    maps = [(1, 64), (1, 4096), (3, 192), (3, 3 * 4096)]
    want = set()
    for transport, (tensors, size) in itertools.product(("shm", "tcp"), maps):
        want.add((transport, "latency", tensors, size, 1))
        want |= {(transport, measure, tensors, size, number)
                 for measure in ("bandwidth", "calls") for number in (1, 4)}
    assert got == want


def test_columns_are_what_they_say():
    for row in measured("-m", "latency,bandwidth,calls", "-b", "1K",
                        "--over", "shm"):
        assert list(row) == COLUMNS
        assert row["map"] == "8x1KiB" and row["memory"] == "host"
        assert row["repetitions"] == 2 and row["verified"] is False
        assert row["by_bulk"] is False
        times = [row[name] for name in TIMES]
        assert times == sorted(times) and times[0] > 0
        assert times[0] / 10 < row["mean_us"] <= row["max_us"]
        assert row["spread_percent"] >= 0
        assert all(row[name] is None for name in PHASES)
        if row["measure"] == "latency":
            assert all(row[name] is None for name in RATES)
        else:
            assert row["gb_per_s"] == pytest.approx(
                row["messages_per_s"] * row["bytes"] / 1e9)


@pytest.mark.once
def test_csv_says_what_json_does():
    words = ["--over", "tcp", "--bytes", "64:256", "--phases", *FAST]
    done = perf("--csv", *words)
    assert (done.returncode, done.stderr) == (DONE, "")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert list(rows[0]) == COLUMNS
    assert [row["bytes"] for row in rows] == \
        [str(8 * size) for size in (64, 64, 128, 128, 256, 256)]
    for row in rows:
        assert row["transports"] and row["verified"] == "false"
        for name in TIMES + PHASES:
            assert float(row[name]) > 0
        assert (row["messages_per_s"] == "") == (row["measure"] == "latency")


@pytest.mark.once
def test_what_went_by_the_bulk_stream():
    words = ["--over", "tcp", "-T", 1, "-b", "1K:256K:256", *FAST]
    for row in measured("-m", "latency,bandwidth,calls", *words):
        assert row["by_bulk"] is (row["bytes"] == 256 << 10)
    assert " and its bulk stream (" in perf(*words).stdout


@pytest.mark.once
def test_a_number_of_messages():
    done = perf("--json", "-m", "latency,bandwidth,calls", "-b", 64, "--over",
                "tcp", "--messages", 37, "--repeat", 3)
    for row in json.loads(done.stdout):
        assert row["messages"] == 3 * 37


@pytest.mark.once
def test_phases_are_parts_of_the_whole():
    # Medians, each for itself: on a machine with other work they may be those
    # of different messages. One round of five where they fit is enough.
    for _ in range(5):
        rows = measured("-m", "bandwidth,calls", "-b", 64, "--in-flight", 1,
                        "--over", "tcp", "--phases")
        for row in rows:
            assert all(0 < row[name] <= row["max_us"] for name in PHASES)
        if all(row["p50_us"] / 2 < sum(row[name] for name in PHASES)
               < row["p50_us"] * 2 for row in rows):
            return
    pytest.fail(f"the phases are not parts of the whole: {rows}")


def test_both_sides_may_sleep():
    assert len(measured("--sleep", "-b", "64")) == 4


@pytest.mark.once
@pytest.mark.parametrize("name, tensors, size", [
    ("robot-observation", 6, 3 * 14 * 4 + 3 * 480 * 640 * 3),
    ("tiny-10000", 10000, 160000)])
def test_a_workload(name, tensors, size):
    path = SOURCE / f"bench/workloads/{name}.json"
    rows = measured("--workload", path, "--over", "shm", "--verify")
    assert [row["measure"] for row in rows] == ["latency", "bandwidth"]
    for row in rows:
        assert (row["map"], row["tensors"], row["bytes"]) == \
            (name, tensors, size)


@pytest.mark.once
def test_maps_of_a_workload_take_turns(tmp_path):
    path = tmp_path / "two.json"
    path.write_text(json.dumps({"name": 'two, "quoted"', "maps": [
        {"meta": {"n": 1, "x": 1.5, "s": "text"},
         "tensors": [{"name": "a", "dtype": "float32", "shape": [4]}]},
        {"tensors": [{"name": "b/{}", "dtype": "uint8", "shape": [100],
                      "times": 3}, {"name": "c", "dtype": "bfloat16",
                                    "shape": []}]}]}))
    done = perf("--csv", "-w", path, "--over", "tcp", "--verify", "-m",
                "latency,bandwidth,calls", "--phases", "--messages", 10)
    assert (done.returncode, done.stderr) == (DONE, "")
    for row in csv.DictReader(io.StringIO(done.stdout)):
        assert row["map"] == 'two, "quoted"' and row["messages"] == "30"
        assert (row["tensors"], row["bytes"]) == ("2", str((16 + 302) // 2))


# --- contents ---

@pytest.mark.parametrize("measure", ["latency", "bandwidth", "calls"])
def test_damage_is_found(measure):
    with receiver("--listen", "tcp://127.0.0.1:0", command="perf",
                  env=damaged()) as there:
        words = [there.url, "-b", "1K", "-m", measure, *FAST]
        assert perf(*words).returncode == DONE  # nobody looked
        done = perf("--verify", *words)
        assert done.returncode == FAILED
        one_line(done.stderr, "--verify", there.url, "tensor 'tensor0'",
                 "byte 13 of 1024")


def test_what_is_whole_is_verified():
    for row in measured("-m", "latency,bandwidth,calls", "--verify",
                        "--bytes", "1,7,100K", "--tensors", "1,5",
                        "--over", "shm,tcp"):
        assert row["verified"] is True


# --- memory ---

@pytest.mark.once
def test_there_is_no_device():
    done = perf("--memory", "cuda", "--quick", "-b", 64)
    assert (done.returncode, done.stdout) == (FAILED, "")
    one_line(done.stderr, "--memory cuda:", "CUDA")


@pytest.mark.once
def test_memory_of_a_device():
    paths = [str(FAKES / "new"), os.environ.get("LD_LIBRARY_PATH", "")]
    rows = measured("--memory", "host,cuda", "--verify", "-b", "64K", "--over",
                    "tcp", "-m", "latency,bandwidth,calls",
                    env=os.environ | {"LD_LIBRARY_PATH": ":".join(paths)})
    assert [row["memory"] for row in rows] == ["host"] * 3 + ["cuda"] * 3


# --- the end ---

def end_with_the_test():
    """Whoever ends that, and however: a sweep would go on for hours."""
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@contextlib.contextmanager
def started(*words):
    """A sweep, which does not outlive its test."""
    here = subprocess.Popen([TOOL, "perf", *map(str, words)], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            start_new_session=True,
                            preexec_fn=end_with_the_test)
    try:
        yield here
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(here.pid, signal.SIGKILL)
        here.communicate()


@pytest.mark.parametrize("way", [signal.SIGKILL, signal.SIGSTOP])
def test_the_other_side_dies(way):
    with receiver("--listen", "tcp://127.0.0.1:0", command="perf") as there, \
            started("--csv", "-m", "latency,bandwidth", "-b", "64",
                    "--tensors", "1:64", "--seconds", .3, there.url) as here:
        names, first = here.stdout.readline(), here.stdout.readline()
        there.process.send_signal(way)
        rest, errors = here.communicate(timeout=BOUND)
    assert here.returncode == FAILED
    assert names.startswith("measure,") and first.startswith("latency,shm,")
    one_line(errors, there.url)


def cpu_seconds(pid):
    stat = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    return sum(map(int, stat.split()[11:13])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("how", ["--csv", "--json", None])
def test_a_signal_shows_what_there_is(how):
    with started(*[how] * bool(how), "-b", "64:64K", "--seconds", 60,
                 "--warmup", .01) as here:
        child = None
        while child is None:
            children = pathlib.Path(
                f"/proc/{here.pid}/task/{here.pid}/children")
            child = children.read_text().split() or None
        deadline = time.monotonic() + 2 * BOUND
        while cpu_seconds(child[0]) < 1:  # that is beyond what opening takes
            assert time.monotonic() < deadline and here.poll() is None
            time.sleep(.05)
        os.killpg(here.pid, signal.SIGINT)  # as a terminal does
        out, errors = here.communicate(timeout=BOUND)
    assert here.returncode == FAILED
    one_line(errors, "a signal came")
    if how == "--csv":
        row, = csv.DictReader(io.StringIO(out))
    elif how == "--json":
        row, = json.loads(out)
    else:
        assert "8x64B" in out
        return
    assert row["measure"] == "latency" and int(row["messages"]) > 0


def test_another_version_is_named():
    there = subprocess.Popen([os.environ["TMSG_OTHER_PERF"]], text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with there:
        url = there.stdout.readline().strip()
        done = perf("--quick", url)
        there.stdin.close()
        there.wait(timeout=BOUND)
    version = run("--version").stdout.split()[1]
    assert done.returncode == FAILED
    one_line(done.stderr, url, "9.8.7", version)


# --- what is wrong ---

@pytest.mark.once
@pytest.mark.parametrize("words", [
    ["--bytes", text] for text in ("", "0", "a", "1,,2", "-3", "4K:1K", "1:2:1",
                                   "64:", "64KB", "99999G", "1:2:3:4", "64,")]
    + [["--tensors", "2M"], ["--in-flight", "0"], ["--in-flight", "5000"],
       ["--measure", "speed"], ["--measure", ""], ["--memory", ","],
       ["--memory", "gpu"], ["--memory", "cuda:x"],
       ["--repeat", "101"], ["--seconds", "0"], ["--messages", "0"]])
def test_usage_that_is_explained(words):
    done = perf(*words)
    assert done.returncode == USAGE and done.stdout == ""
    assert done.stderr.startswith("tensormsg perf: '")
    assert words[1].split(",")[0] in done.stderr


@pytest.mark.once
@pytest.mark.parametrize("words, says", [
    (["--json", "--csv"], "exclude each other"),
    (["--messages", "5", "--seconds", "1"], "exclude each other"),
    (["--workload", "x", "--bytes", "1"], "goes without --bytes"),
    (["--tune", "--bytes", "1"], "--tune takes no other options"),
    (["--tune", "--csv"], "do not go with --tune"),
    (["--listen", "tcp://127.0.0.1:0", "--verify"], "the other side of a measurement"),
    (["--over", "tcp,rdma"], "--over is shm or tcp"),
    (["--workload", "no/such.json"], "no/such.json: No such file"),
])
def test_bad_usage(words, says, tmp_path):
    done = perf(*words, cwd=tmp_path)
    assert done.returncode == USAGE
    one_line(done.stderr, says)


@pytest.mark.once
@pytest.mark.parametrize("text, says", [
    ("{", "not JSON"), ('{"name": "x", "maps": []}', 'no "maps"'),
    ('{"name": "x", "maps": [{}]}', 'map 0: "tensors" is not a list'),
    ('{"name": "x", "maps": [{"tensors": []}, {"tensors": [{"name": "a"}]}]}',
     'map 1: a: "dtype" is not known'),
    ('{"name": "x", "maps": [{"tensors": [{"name": "a", "dtype": "int8", '
     '"shape": [1.5]}]}]}', "an extent is not a whole number"),
    ('{"name": "x", "maps": [{"tensors": [{"name": "a", "dtype": "int8", '
     '"shape": [1], "times": 0}]}]}', '"times" is not a whole number'),
    ('{"name": "x", "maps": [{"tensors": [], "meta": {"k": []}}]}',
     "k: neither a number nor text"),
    ('{"name": "x",\n"maps": [{"tensors": [], "meta": {"k\\u0000": 1}}]}',
     "line 2: it holds a NUL"),
    ('{"name": "x", "maps": [{"tensors": []}]}\0{', "line 1: it holds a NUL"),
])
def test_a_workload_that_is_none(text, says, tmp_path):
    path = tmp_path / "w.json"
    path.write_text(text)
    done = perf("--workload", path)
    assert done.returncode == USAGE
    one_line(done.stderr, str(path), says)
