# SPDX-License-Identifier: BSD-3-Clause
"""`tensormsg perf`: the table, and thresholds that the library then reads."""

import json
import os
import pathlib
import re
import signal
import stat
import subprocess
import time

import pytest

from cli import BOUND, DONE, FAILED, TOOL, USAGE, one_line, receiver, run

MAPS = ["8x64B", "8x1KiB", "8x16KiB", "8x256KiB", "8x2MiB", "64x256KiB",
        "1000x1KiB"]
THRESHOLDS = {"gather_bytes", "gather_mean_bytes", "gather_most_bytes",
              "fragment_bytes", "lone_chunk_bytes", "eager_bytes", "rndv_bytes",
              "eager_list_bytes", "rndv_list_bytes"}
LONG = 4 * BOUND  # on a machine that is busy with other things


def perf(*words, **options):
    return run("perf", *words, timeout=LONG, **options)


def in_force(**variables):
    """The thresholds of a process with these variables."""
    told = run("info", "--json", env=os.environ | variables)
    assert told.returncode == DONE, told.stderr
    return json.loads(told.stdout)["thresholds"]


def taken(report):
    """The thresholds of a report, by transport: in force, measured, taken."""
    found = {}
    for line in report.splitlines():
        if head := re.match(r"(shm|tcp|other): .+ \(.+\)$", line):
            values = found.setdefault(head[1], {})
        elif row := re.match(r"  (\w+_bytes) +(\S+) +(\S+) +(\S+)  \S", line):
            values[row[1]] = row.groups()[1:]
    return found


def must_match(config, report):
    """Whether the file says what the report does."""
    for transport, rows in taken(report).items():
        assert set(rows) == THRESHOLDS | (
            {"eager_single_bytes"} if transport == "shm" else set())
        for name, (_, _, value) in rows.items():
            said = config["thresholds"][transport].get(name)
            assert value == ("never" if said is None else str(said)), name


# --- the table ---

def test_both_transports_are_measured():
    done = perf("--quick")
    assert (done.returncode, done.stderr) == (DONE, "")
    for transport in "shm", "tcp":
        assert re.search(rf"^{transport}: .+ \(.+\)$", done.stdout, re.M)
    rows = re.findall(r"^  (\d+x\S+)((?: +[\d.]+){7})$", done.stdout, re.M)
    assert [row[0] for row in rows] == MAPS * 2
    for _, figures in rows:
        *times, messages, gigabytes = map(float, figures.split())
        assert times == sorted(times) and times[0] > 0
        assert messages > 0 and gigabytes >= 0


@pytest.mark.parametrize("scheme", ["tcp", "unix"])
def test_between_two_commands(tmp_path, scheme):
    url = f"unix://{tmp_path}/socket" if scheme == "unix" else \
        "tcp://127.0.0.1:0"
    there = subprocess.Popen([TOOL, "perf", "--listen", url, "--count", "1"],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             text=True)
    try:
        done = perf("--quick", "--json", there.stdout.readline().strip())
        assert (done.returncode, done.stderr) == (DONE, "")
        rows = json.loads(done.stdout)
        assert [row["map"] for row in rows[::2]] == MAPS
        assert {row["transport"] for row in rows} == {"shm"}
        assert there.communicate(timeout=BOUND) == ("", "")
        assert there.returncode == DONE
    finally:
        there.kill()
        there.wait()


def test_a_listener_ends_by_a_signal():
    there = subprocess.Popen([TOOL, "perf", "--listen", "tcp://127.0.0.1:0"],
                             stdout=subprocess.PIPE, text=True)
    assert there.stdout.readline().startswith("tcp://127.0.0.1:")
    there.send_signal(signal.SIGTERM)
    there.communicate(timeout=BOUND)
    assert there.returncode == DONE


def test_no_process_is_left_where_it_is_killed():
    here = subprocess.Popen([TOOL, "perf", "--over", "shm"],
                            stdout=subprocess.PIPE, text=True)
    here.stdout.readline()  # it is connected
    children = pathlib.Path(f"/proc/{here.pid}/task/{here.pid}/children")
    child, = children.read_text().split()
    here.kill()
    here.wait()
    here.stdout.close()
    end = time.monotonic() + BOUND

    def lives():
        try:
            return pathlib.Path(f"/proc/{child}/stat").read_text() \
                .rpartition(")")[2].split()[0] != "Z"
        except FileNotFoundError:
            return False
    while lives():
        assert time.monotonic() < end, "the other process lives on"
        time.sleep(.01)


# --- the file ---

@pytest.mark.once
def test_tuned_thresholds_are_what_the_library_reads(tmp_path):
    out = tmp_path / "tensormsg.json"
    mask = os.umask(0o027)
    done = perf("--tune", "--quick", "--out", out)
    os.umask(mask)
    assert (done.returncode, done.stderr) == (DONE, "")
    config = json.loads(out.read_text())
    assert set(config) == {"version", "thresholds"}
    assert config["version"] == 1
    assert set(config["thresholds"]) == {"shm", "tcp"}
    must_match(config, done.stdout)
    assert done.stdout.endswith(f" with TENSORMSG_CONFIG={out}\n")
    before, after = in_force(), in_force(TENSORMSG_CONFIG=str(out))
    for transport, values in after.items():
        assert values == before[transport] | \
            config["thresholds"].get(transport, {})
    assert [path.name for path in tmp_path.iterdir()] == [out.name]
    assert stat.S_IMODE(out.stat().st_mode) == 0o640


@pytest.mark.once
def test_what_is_not_clearly_better_stays_as_it_is_in_force():
    odd = {"gather_bytes": 65537, "fragment_bytes": 8000001, "rndv_bytes": 9999999}
    text = ",".join(f"shm.{name}={value}" for name, value in odd.items())
    done = perf("--tune", "--quick", "--over", "shm",
                env=os.environ | {"TENSORMSG_THRESHOLDS": text})
    assert done.returncode == DONE
    must_match(json.loads(done.stdout), done.stderr)
    for name, (before, measured, value) in taken(done.stderr)["shm"].items():
        assert value in (before, measured)
        if name in odd:
            assert before == str(odd[name])


@pytest.mark.once
def test_an_update_keeps_what_else_is_there(tmp_path):
    real = tmp_path / "real.json"
    link = tmp_path / "link.json"
    kept = {"version": 1, "peer_timeout_ms": 2000,
            "limits": {"held_bytes": 9007199254740991, "tensors": 4096},
            "ucx": {"TCP_TX_SEG_SIZE": "32k"},
            "thresholds": {"shm": {"fragment_bytes": 12345678901,
                                   "eager_bytes": "never"},
                           "tcp": {"eager_list_bytes": 7}}}
    real.write_text(json.dumps(kept))
    real.chmod(0o640)
    link.symlink_to(real)
    done = perf("--tune", "--quick", "--over", "tcp", "--out", link, "--update")
    assert (done.returncode, done.stderr) == (DONE, "")
    config = json.loads(real.read_text())
    assert taken(done.stdout)["tcp"]["eager_list_bytes"][0] == "7"
    must_match(config, done.stdout)
    del config["thresholds"]["tcp"], kept["thresholds"]["tcp"]
    assert config == kept
    assert link.is_symlink() and stat.S_IMODE(real.stat().st_mode) == 0o640
    assert in_force(TENSORMSG_CONFIG=str(link))["shm"]["fragment_bytes"] == \
        12345678901
    assert in_force(TENSORMSG_CONFIG=str(link))["shm"]["eager_bytes"] is None


@pytest.mark.once
def test_a_file_that_is_there_stays(tmp_path):
    out = tmp_path / "there.json"
    out.write_text("mine")
    done = perf("--tune", "--out", out)
    assert done.returncode == USAGE
    one_line(done.stderr, str(out), "exists", "--update", "--force")
    assert out.read_text() == "mine"


@pytest.mark.parametrize("text, words", [
    ("{", ["not JSON", "line 1"]),
    ("{}", ["version"]),
    ('{"version": 1, "tresholds": {}}', ["tresholds", "not a setting"]),
    ('{"version": 1, "thresholds": {"tcp": {"part": 1}}}', ["tcp.part"]),
])
@pytest.mark.once
def test_a_file_that_the_library_refuses_is_not_updated(tmp_path, text, words):
    out = tmp_path / "bad.json"
    out.write_text(text)
    done = perf("--tune", "--out", out, "--update")
    assert done.returncode == USAGE
    one_line(done.stderr, str(out), *words)
    assert out.read_text() == text


# --- what is wrong ---

@pytest.mark.parametrize("words, says", [
    (["--over", "rdma"], "--over is shm or tcp"),
    (["--over", "shm", "tcp://127.0.0.1:1"], "does not go with a URL"),
    (["--listen", "tcp://127.0.0.1:0", "--tune"], "the other side of a measurement"),
    (["--listen", "blob://"], "tls://HOST:PORT or unix:///PATH"),
    (["--listen", "ucx://127.0.0.1:0"], "tls://HOST:PORT or unix:///PATH"),
    (["--listen", "tcp://0.0.0.0:0"], "--allow-unauthenticated"),
    (["--listen", "nonsense://"], "nonsense"),
    (["--count", "3"], "--count goes with --listen"),
    (["--allow-unauthenticated"], "goes with --listen"),
    (["--json", "--tune"], "do not go with --tune"),
    (["--out", "x.json"], "--out goes with --tune"),
    (["--tune", "--force"], "--force goes with --out"),
    (["--tune", "--update"], "--update goes with --out"),
    (["--tune", "--out", "x", "--update", "--force"], "exclude each other"),
    (["--tune", "--out", "/dev/full", "--force"], "not a regular file"),
    (["--tune", "--out", "/no/such/folder/x.json"], "No such file"),
    (["nonsense://x"], "nonsense"),
])
@pytest.mark.once
def test_bad_usage(words, says, tmp_path):
    done = perf(*words, cwd=tmp_path)
    assert done.returncode == USAGE
    one_line(done.stderr, says)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.once
@pytest.mark.parametrize("words", [["--count", "0"], ["--timeout", "x"],
                                   ["--bogus"], ["a:1", "b:2"]])
def test_usage_that_argp_finds(words):
    assert perf(*words).returncode == USAGE


@pytest.mark.once
def test_a_wrong_variable_is_named():
    done = perf("--quick", env=os.environ | {"TENSORMSG_THRESHOLDS": "x=1"})
    assert done.returncode == USAGE
    one_line(done.stderr, "TENSORMSG_THRESHOLDS", "x=1")


def test_nobody_listens():
    done = perf("tcp://127.0.0.1:1")
    assert done.returncode == FAILED
    one_line(done.stderr, "127.0.0.1:1")


def test_whoever_listens_is_no_perf(tmp_path):
    with receiver() as there:
        done = perf("--timeout", 4, there.url)
        assert done.returncode == FAILED
        one_line(done.stderr, there.url, "not a 'tensormsg perf --listen'")


def test_shared_memory_that_is_not_to_be_had():
    done = perf("--quick", "--over", "shm", env=os.environ | {"UCX_TLS": "tcp"})
    assert done.returncode == FAILED
    one_line(done.stderr, "--over shm", "UCX_TLS=tcp")


@pytest.mark.once
def test_the_file_is_not_written_where_measuring_fails(tmp_path):
    out = tmp_path / "x.json"
    done = perf("--tune", "--out", out, "tcp://127.0.0.1:1")
    assert done.returncode == FAILED
    assert list(tmp_path.iterdir()) == []


@pytest.mark.once
def test_a_file_is_replaced_by_force_and_a_lost_report_is_a_failure(tmp_path):
    out = tmp_path / "there.json"
    out.write_text("mine")
    with open("/dev/full", "w") as full:
        done = subprocess.run([TOOL, "perf", "--tune", "--quick", "--over",
                               "shm", "--out", out, "--force"], stdout=full,
                              stderr=subprocess.PIPE, text=True, timeout=LONG)
    assert done.returncode == FAILED
    one_line(done.stderr, "standard output")
    assert set(json.loads(out.read_text())) == {"version", "thresholds"}
