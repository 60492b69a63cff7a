#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Counts what a message costs, and compares with the ceilings on record.

None of these figures depends on the clock: instructions of the library
(callgrind), heap allocations, bytes that are copied, system calls (strace), and
of two processes on one core context switches and polls in vain. What goes up by more than is allowed fails, and is named; what has
gone down is said, so that the ceiling is lowered. README.md has the details.
"""

import argparse
import collections
import glob
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
WORKLOADS = os.path.join(HERE, "..", "workloads")
LIBRARY = "libtensormsg.so"

PARTS = {
    "instructions": ("sender_instructions", "receiver_instructions"),
    "memory": ("allocations", "copies", "copies_in_ucx"),
    "system_calls": ("system_calls",),
    "sharing": ("switches", "polls_in_vain"),
    "devices": ("launches", "ucx_messages"),
}

# By how much, as a share of it and beyond that, a figure may rise above its
# ceiling, or lie below before that is said. Instructions differ a little with
# any change, copies by a few bytes of headers, and whoever else wants the core
# that two processes share adds switches; all else is whole numbers.
ALLOWED = {
    "sender_instructions": (0.05, 0),
    "receiver_instructions": (0.05, 0),
    "allocations": (0, 1e-4),
    "copies": (0, 0.01),
    "copies_in_ucx": (0.01, 0.01),
    "system_calls": (0, 1e-4),
    "switches": (0.5, 0),
    "polls_in_vain": (0.5, 0),
    "launches": (0, 1e-4),
    "ucx_messages": (0.05, 0.5),
}
UNITS = {
    "sender_instructions": "instructions of the sending side a message",
    "receiver_instructions": "instructions of the receiving side a message",
    "allocations": "heap allocations a message, not by UCX",
    "copies": "copies of each byte, not by UCX",
    "copies_in_ucx": "copies of each byte by UCX",
    "system_calls": "system calls a message",
    "switches": "context switches a message",
    "polls_in_vain": "polls of UCX in vain a message",
    "launches": "copies, or batches of them, that a device was given a message",
    "ucx_messages": "active messages of UCX, both ways, a message",
}

# What strace sees only because it is there, or where there is no vDSO.
NO_CALLS = {"clock_gettime", "restart_syscall"}


class Missing(Exception):
    """Why this part cannot be counted here."""


def environment():
    """Without what would change the library's or UCX's ways."""
    dropped = re.compile("UCX_|TENSORMSG_|MALLOC_|GLIBC_TUNABLES$|LD_PRELOAD$")
    kept = {"UCX_MODULE_DIR", "UCX_MEM_BISTRO_GRACE_DURATION"}
    env = {name: value for name, value in os.environ.items()
           if name in kept or not dropped.match(name)}
    # Else some processors copy in place, where nobody can count it.
    env["UCX_BUILTIN_MEMCPY_MIN"] = "inf"
    env["UCX_BUILTIN_MEMCPY_MAX"] = "0"
    env["UCX_LOG_LEVEL"] = "error"
    env["LC_ALL"] = "C"
    return env


def run(*command):
    done = subprocess.run(command, env=environment(), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=280)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n"
                         f"{done.stderr[-3000:]}")
    return done.stdout


def read_label(label):
    """A count's shape, phase, side and number of messages."""
    shape, phase, side, messages = label.split(";")
    return shape, phase, side, int(messages)


def read_head(program):
    """What the program says of itself: with what UCX, how it was built."""
    return dict(line.split(": ", 1) for line in run(program).splitlines())


def count_memory(program):
    rows = collections.defaultdict(dict)
    for line in run(program, WORKLOADS).splitlines():
        *label, size, ours, _, copied, in_ucx = line.split(";")
        shape, phase, _, messages = read_label(";".join(label))
        size = int(size) * messages
        rows[shape, phase] = {"allocations": int(ours) / messages,
                              "copies": int(copied) / size}
        if phase == "steady":
            rows[shape, phase]["copies_in_ucx"] = int(in_ucx) / size
    # The first message over tcp is also that of UCX's own connection.
    del rows["8x64B, tcp", "first"]
    return rows, {}


def read_strace(lines):
    """Names of system calls between the program's marks."""
    label = None
    for line in lines:
        mark = re.match(r'write\(-1, "([^"]*)"', line)
        if mark:
            label = None if mark[1] == "end" else mark[1]
        elif label is not None:
            called = re.match(r"(\w+)\(", line)
            if called and called[1] not in NO_CALLS:
                yield label, called[1]


def count_system_calls(program):
    if shutil.which("strace") is None:
        raise Missing("there is no strace: scripts/setup.sh test installs it")
    allowed = subprocess.run(["strace", "-o", os.devnull, "true"],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             text=True)
    if allowed.returncode != 0:
        raise Missing("strace may not trace here: " +
                      allowed.stdout.strip().replace("\n", "; "))
    by_name = collections.defaultdict(collections.Counter)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "calls")
        out = run("strace", "-s", "200", "-o", path, program, WORKLOADS)
        with open(path, encoding="utf-8", errors="replace") as file:
            for label, name in read_strace(file):
                by_name[label][name] += 1
    rows = {}
    told = {}
    for line in out.splitlines():
        label = ";".join(line.split(";")[:4])
        shape, phase, _, messages = read_label(label)
        if phase == "first":
            continue # UCX reads about the machine's network cards then
        calls = by_name[label]
        rows[shape, phase] = {"system_calls": sum(calls.values()) / messages}
        told[shape, phase] = {name: count / messages
                              for name, count in calls.most_common()}
    return rows, told


def count_sharing(program):
    rows = {}
    for line in run(program + "-shared").splitlines():
        *label, switches, vain = line.split(";")
        shape, phase, _, messages = read_label(";".join(label))
        rows[shape, phase] = {"switches": int(switches) / messages,
                              "polls_in_vain": int(vain) / messages}
    return rows, {}


def count_devices(program):
    simulated = os.path.join(os.path.dirname(os.path.abspath(program)),
                             "tests", "gpu", "sim")
    if not os.path.exists(program + "-devices"):
        raise Missing("there is no simulated driver of CUDA in this build")
    before = os.environ.get("LD_LIBRARY_PATH")
    os.environ["LD_LIBRARY_PATH"] = ":".join(filter(None, (simulated, before)))
    rows = {}
    for line in run(program + "-devices").splitlines():
        *label, launches, messages = line.split(";")
        shape, phase, _, count = read_label(";".join(label))
        rows[shape, phase] = {"launches": int(launches) / count,
                              "ucx_messages": int(messages) / count}
    return rows, {}


def read_callgrind(path):
    """The label of a dump, and what each object file executed itself."""
    names = {}
    label = current = None
    of_call = False
    totals = collections.Counter()
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            found = re.match(r"(c?)ob=\((\d+)\)(?: (.*))?", line)
            if line.startswith("desc: Trigger: Client Request: "):
                label = line.split("Client Request: ")[1].strip()
            elif found:
                if found[3]:
                    names[found[2]] = os.path.basename(found[3])
                if not found[1]:
                    current = names[found[2]]
            elif line.startswith("calls="):
                of_call = True # the next line is the callee's
            elif line[0] in "0123456789+-*":
                if not of_call:
                    totals[current] += int(line.split()[1])
                of_call = False
    return label, totals


def count_instructions(program, *shape):
    if shutil.which("valgrind") is None:
        raise Missing("there is no valgrind: scripts/setup.sh test installs it")
    rows = collections.defaultdict(dict)
    told = collections.defaultdict(dict)
    with tempfile.TemporaryDirectory() as folder:
        run("valgrind", "-q", "--tool=callgrind", "--instr-atstart=no",
            "--collect-atstart=no", f"--callgrind-out-file={folder}/out",
            program, WORKLOADS, *shape)
        for path in sorted(glob.glob(folder + "/out.*"), key=os.path.getmtime):
            label, totals = read_callgrind(path)
            if label is None:
                continue
            shape, phase, side, messages = read_label(label)
            if (shape, phase) == ("8x64B, tcp", "first"):
                continue
            ours = sum(count for name, count in totals.items()
                       if name.startswith(LIBRARY))
            rows[shape, phase][side + "_instructions"] = ours / messages
            told[shape, phase].update(
                {f"{side}, {name}": count / messages
                 for name, count in totals.most_common()
                 if not name.startswith(LIBRARY) and "counts" not in name})
    return rows, told


COUNTERS = {"instructions": count_instructions, "memory": count_memory,
            "system_calls": count_system_calls, "sharing": count_sharing,
            "devices": count_devices}


def nice(value):
    return f"{value:,.4f}".rstrip("0").rstrip(".")


def compare(part, rows, ceilings):
    """Lines that say what failed, and what may be lowered."""
    failed, lower = [], []
    for (shape, phase), row in rows.items():
        for metric, value in row.items():
            what = f"{shape}, {phase}: {nice(value)} {UNITS[metric]}"
            share, beyond = ALLOWED[metric]
            ceiling = ceilings.get(shape, {}).get(phase, {}).get(metric)
            if ceiling is None:
                failed.append(f"{what}: no ceiling is on record")
            elif value > ceiling * (1 + share) + beyond:
                more = (f" (+{100 * (value / ceiling - 1):.1f} %)"
                        if ceiling > 0 else "")
                failed.append(f"{what}{more}: the ceiling is {nice(ceiling)}")
            elif value < ceiling * (1 - share) - beyond:
                lower.append(f"{what}: the ceiling of {nice(ceiling)} may be "
                             "lowered")
    for shape, phases in ceilings.items():
        for phase, row in phases.items():
            for metric in PARTS[part]:
                if metric in row and metric not in rows.get((shape, phase), {}):
                    failed.append(f"{shape}, {phase}: {UNITS[metric]} were not "
                                  "counted")
    return failed, lower


def record(part, rows, head, path):
    """Puts what was counted in place of what the file has."""
    try:
        with open(path, encoding="utf-8") as file:
            known = json.load(file)
    except FileNotFoundError:
        known = {"ceilings": {}}
    if part == "instructions":
        if known.get("build") not in (None, head["build"]):
            known["ceilings"] = {} # of another compiler
        known["build"] = head["build"]
    shapes = known["ceilings"].setdefault("UCX " + head["ucx"], {})
    for phases in shapes.values():
        for row in phases.values():
            for metric in PARTS[part]:
                row.pop(metric, None)
    for (shape, phase), row in rows.items():
        shapes.setdefault(shape, {}).setdefault(phase, {}).update(
            {metric: math.ceil(value * 1e4) / 1e4
             for metric, value in row.items()})
    write(known, path)


def write(known, path):
    """A line for each row."""
    order = [metric for part in PARTS for metric in PARTS[part]]
    blocks = []
    for ucx, shapes in known["ceilings"].items():
        lines = []
        for shape, phases in shapes.items():
            for phase in ("first", "steady"):
                row = phases.get(phase, {})
                row = {metric: row[metric] for metric in order if metric in row}
                if row:
                    lines.append((shape, phase, json.dumps(row)))
        text = ",\n".join(
            f"   {json.dumps(shape)}: {{\n" + ",\n".join(
                f'    "{phase}": {row}' for name, phase, row in lines
                if name == shape) + "}" for shape in shapes)
        blocks.append(f"  {json.dumps(ucx)}: {{\n{text}}}")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'{{"build": {json.dumps(known["build"])},\n "ceilings": {{\n' +
                   ",\n".join(blocks) + "}}\n")


def tell(part, rows, told, ceilings):
    width = max(len(shape) for shape, _ in rows)
    for (shape, phase), row in rows.items():
        known = ceilings.get(shape, {}).get(phase, {})
        figures = ", ".join(
            f"{metric} {nice(value)} ({nice(known[metric])})"
            if metric in known else f"{metric} {nice(value)}"
            for metric, value in row.items())
        print(f"{shape:{width}}  {phase:6}  {figures}")
        others = ", ".join(f"{name} {nice(count)}" for name, count in
                           told.get((shape, phase), {}).items())
        if others:
            print(f"{'':{width}}          of these: {others}"
                  if part == "system_calls" else
                  f"{'':{width}}          beside: {others}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="build/tensormsg-counts")
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--ceilings", metavar="FILE",
                        default=os.path.join(HERE, "ceilings.json"))
    parser.add_argument("--update", action="store_true",
                        help="write what is counted into the file")
    arguments = parser.parse_args()

    head = read_head(arguments.program)
    print(f"UCX {head['ucx']}, {head['build']}")
    if head["cma"] != "yes":
        print("SKIPPED: no process_vm_readv() here, so that large maps go "
              "another way")
        return 77
    with open(arguments.ceilings, encoding="utf-8") as file:
        known = json.load(file)
    ceilings = known["ceilings"].get("UCX " + head["ucx"], {})
    failed = []
    skipped = []
    for part in arguments.part or PARTS:
        try:
            rows, told = COUNTERS[part](arguments.program)
        except Missing as missing:
            skipped.append(str(missing))
            continue
        if arguments.update:
            record(part, rows, head, arguments.ceilings)
            continue
        tell(part, rows, told, ceilings)
        if part == "instructions" and known["build"] != head["build"]:
            skipped.append(f"the ceilings are of {known['build']}, "
                           f"this is {head['build']}")
        elif not ceilings:
            skipped.append(f"no ceilings are on record for UCX {head['ucx']}")
        else:
            more, lower = compare(part, rows, ceilings)
            failed += more
            for line in lower:
                print(f"note: {line}")
            if lower:
                print("note: `make update-counts` writes what is counted now")
    for line in failed:
        print(f"FAILED: {line}")
    if failed:
        print("Where more is meant, `make update-counts` writes the new "
              "ceilings, and the commit says why.")
        return 1
    for line in skipped:
        print(f"SKIPPED: {line}")
    return 77 if skipped else 0


if __name__ == "__main__":
    sys.exit(main())
