# SPDX-License-Identifier: BSD-3-Clause
"""bench/counts/counts.py refuses what costs more than is on record, by name."""

import json
import os
import shutil
import subprocess
import sys

import pytest

SOURCE = os.environ["TMSG_SOURCE_DIR"]
FOLDER = os.path.join(SOURCE, "bench", "counts")
CEILINGS = os.path.join(FOLDER, "ceilings.json")
PROGRAM = os.environ["TMSG_COUNTS"]

sys.path.insert(0, FOLDER)
import counts  # noqa: E402

ROW = {"sender_instructions": 1000.0, "receiver_instructions": 2000.0}
ONE = {"a": {"steady": ROW}}


def rows(**other):
    return {("a", "steady"): {**ROW, **other}}


def test_the_same_is_nothing_to_say():
    assert counts.compare("instructions", rows(), ONE) == ([], [])


def test_five_percent_more_instructions_are_let_through_and_six_are_not():
    more = rows(sender_instructions=1049.9)
    assert counts.compare("instructions", more, ONE) == ([], [])
    failed, lower = counts.compare(
        "instructions", rows(sender_instructions=1060.0), ONE)
    assert failed == ["a, steady: 1,060 instructions of the sending side a "
                      "message (+6.0 %): the ceiling is 1,000"]
    assert lower == []


def test_fewer_are_said_and_fail_nothing():
    failed, lower = counts.compare(
        "instructions", rows(receiver_instructions=1800.0), ONE)
    assert failed == []
    assert lower == ["a, steady: 1,800 instructions of the receiving side a "
                     "message: the ceiling of 2,000 may be lowered"]


@pytest.mark.parametrize("metric, part", [
    ("allocations", "memory"), ("copies", "memory"),
    ("copies_in_ucx", "memory"), ("system_calls", "system_calls")])
@pytest.mark.parametrize("ceiling, value", [
    (0.0, 1 / 64), (1.0, 1.03), (6.0, 7.0)])
def test_of_all_else_anything_more_is_too_much(metric, part, ceiling, value):
    ceilings = {"a": {"steady": {metric: ceiling}}}
    same, more = ({("a", "steady"): {metric: each}}
                  for each in (ceiling, value))
    assert counts.compare(part, same, ceilings) == ([], [])
    failed, _ = counts.compare(part, more, ceilings)
    assert len(failed) == 1 and f"ceiling is {counts.nice(ceiling)}" in failed[0]


def test_what_is_not_on_record_fails_as_does_what_is_not_counted():
    other = {("b", "steady"): ROW}
    failed, _ = counts.compare("instructions", other, ONE)
    assert len(failed) == 4
    assert "b, steady: 1,000 instructions of the sending side a message: no " \
        "ceiling is on record" in failed
    assert "a, steady: instructions of the sending side a message were not " \
        "counted" in failed


def test_what_is_written_is_read(tmp_path):
    path = str(tmp_path / "ceilings.json")
    shutil.copy(CEILINGS, path)
    with open(path, encoding="utf-8") as file:
        known = json.load(file)
    counts.write(known, path)
    with open(path, encoding="utf-8") as file:
        assert json.load(file) == known
    with open(CEILINGS, encoding="utf-8") as file, \
            open(path, encoding="utf-8") as again:
        assert file.read() == again.read()


def test_a_dump_of_callgrind_is_read_without_what_calls_cost(tmp_path):
    dump = tmp_path / "out.1"
    dump.write_text("desc: Trigger: Client Request: a;steady;sender;2\n"
                    "ob=(1) /usr/lib/libtensormsg.so.0.1.0\n"
                    "fn=(1) f\n10 7\n+2 3\n"
                    "cob=(2) /usr/lib/libucp.so.0\ncfn=(2) g\n"
                    "calls=2 0\n12 5000\n* 4\n"
                    "ob=(2)\nfn=(2)\n0 5000\n"
                    "ob=(1)\nfn=(3) h\n-3 1\n", encoding="utf-8")
    label, totals = counts.read_callgrind(str(dump))
    assert label == "a;steady;sender;2"
    assert totals == {"libtensormsg.so.0.1.0": 15, "libucp.so.0": 5000}


def instructions_of(shape):
    """Of both sides, in the library, for one message."""
    rows, _ = counts.count_instructions(PROGRAM, shape)
    return sum(rows[shape, "steady"].values())


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="no valgrind")
def test_a_fetch_costs_little_more_than_a_call():
    """Whose handler answers with the same map."""
    assert instructions_of("fetch_8x64B") <= \
        1.2 * instructions_of("unary_8x64B")


def test_system_calls_are_those_between_the_marks():
    lines = ['mmap(NULL, 4096) = 0x1',
             'write(-1, "a;steady;sender;2", 17) = -1 EBADF (Bad file)',
             'clock_gettime(CLOCK_MONOTONIC, {}) = 0',
             'poll([{fd=3}], 1, 0) = 0',
             'write(1, "end", 3) = 3',
             'write(-1, "end", 3) = -1 EBADF (Bad file)',
             'poll([{fd=3}], 1, 0) = 0']
    assert list(counts.read_strace(lines)) == [
        ("a;steady;sender;2", "poll"), ("a;steady;sender;2", "write")]


@pytest.mark.parametrize("metric", ["allocations", "copies"])
def test_the_command_fails_with_the_figure_and_the_ceiling(tmp_path, metric):
    path = tmp_path / "ceilings.json"
    with open(CEILINGS, encoding="utf-8") as file:
        known = json.load(file)
    for shapes in known["ceilings"].values():
        shapes["8x64B"]["first"][metric] /= 2
    path.write_text(json.dumps(known), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, os.path.join(FOLDER, "counts.py"), PROGRAM,
         "--part", "memory", "--ceilings", str(path)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 1, done.stdout
    failed = [line for line in done.stdout.splitlines() if "FAILED" in line]
    assert len(failed) == 1, done.stdout
    assert "8x64B, first" in failed[0] and "(+100.0 %)" in failed[0]
