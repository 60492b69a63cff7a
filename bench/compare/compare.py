#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures all ways to move the maps of bench/workloads/ in turns, on this
machine, and writes what it saw as a page of Markdown, and every figure of it as
JSON. `make compare` calls it; bench/compare/README.md tells what is compared.
"""

import argparse
import datetime
import json
import os
import pathlib
import signal
import sys
import tempfile
import time

import encrypted
import quota
import shared
from table import Column, Table, figures
from turns import Turn, contest, run, told

HERE = pathlib.Path(__file__).resolve().parent
OURS = "tensormsg"
PYTHON = {  # as `python -m tensormsg.bench` knows them: as the table does
    "blocking": "tensormsg, Python",
    "asyncio": "tensormsg, asyncio",
    "pickle": "multiprocessing, Python",
    "ZeroMQ": "ZeroMQ + pickle 5, Python",
    "UCXX": "UCXX, Python",
}
# Those with another UCX than ours, and those in Python: what they are compared
# with.
BESIDE = {"raw ucp_am, UCXX's UCX": "tensormsg, UCXX's UCX",
          "UCXX C++": "tensormsg, UCXX's UCX"} | {
    PYTHON[way]: PYTHON["blocking"] for way in ("pickle", "ZeroMQ", "UCXX")}
CONTROLS = {OURS, PYTHON["blocking"]}  # measured twice in a turn
OVERS = ("shm", "tcp", encrypted.OVER)  # as tensormsg-compare knows them
COLUMNS = (Column("half a round trip, us", 1),
           Column("GB/s", 2, more_is_better=True))
QUOTA = "quota"  # the last of the works where processors are shared
WORKS = [*shared.WORKS, QUOTA]


def in_c(names, program, way, workload, over, seconds, *setting):
    said = json.loads(run([program, way, workload, over, str(seconds),
                           *setting]))
    return tuple(said[name] for name in names)


def in_python(names, python, way, workload, seconds, *setting):
    """The figures of these names; None where there are none in Python."""
    with tempfile.NamedTemporaryFile(suffix=".json") as rows:
        run([python, "-m", "tensormsg.bench", "--workload", workload,
             "--ways", way, "--seconds", str(seconds), "--json", rows.name,
             *setting])
        found = json.load(rows)["rows"]
    return tuple(name and found[0][name] for name in names) if found else None


def ways_over(args, over):
    """The ways in C that take part, each with its program."""
    return {way: program for program in args.programs
            for way in run([program, over]).splitlines()}


def apart(args, workload, table):
    """The turns of a workload between two cores."""
    name = pathlib.Path(workload).stem
    turns = [Turn(table, (name, over), way,
                  lambda way=way, over=over, program=program: in_c(
                      ("half_round_trip_us", "gb_per_s"), program, way,
                      workload, over, args.seconds,
                      *["sleep"] * args.sleep))
             for over in args.over
             for way, program in ways_over(args, over).items()]
    if args.python and "shm" in args.over:
        # No stream of maps, so no GB/s.
        turns += [Turn(table, (name, "shm"), PYTHON[way],
                       lambda way=way: in_python(
                           ("half_round_trip_us", None), args.python, way,
                           workload, args.seconds))
                  for way in PYTHON]
    return turns


def sharing(args, work, table):
    """The turns of a work where processors are shared."""
    names = "half_round_trip_us", "p99_us", "round_trips_per_s"
    turns = [Turn(table, (work, "shm"), way,
                  lambda way=way: in_c(names, args.program, way,
                                       shared.WORKLOAD, "shm",
                                       args.shared_seconds, *shared.in_c(work)))
             for way, program in ways_over(args, "shm").items()
             if program == args.program]
    if args.python and work in shared.PYTHON_WORKS:
        turns += [Turn(table, (work, "shm"), shared.PYTHON[way],
                       lambda way=way: in_python(
                           names, args.python, way, shared.WORKLOAD,
                           args.shared_seconds, *shared.in_python(work)))
                  for way in shared.PYTHON]
    return turns


def schedule(args, table, shared_table):
    """Lists of turns, which are taken together; and what is measured again at
    the end of each."""
    series = []
    if args.shared != "only":
        series += [(apart(args, workload, table), CONTROLS)
                   for workload in args.workloads]
    if args.shared != "no":
        series += [(sharing(args, work, shared_table),
                    CONTROLS | shared.CONTROLS) for work in args.works
                   if work != QUOTA]
    return only(args.way, series)


def only(ways, series):
    """Of these series the turns of these ways; None: all."""
    known = {turn.way for turns, _ in series for turn in turns}
    for way in ways or ():
        if way not in known:
            sys.exit(f"compare: '{way}' takes no part there; these do: "
                     f"{'; '.join(sorted(known))}")
    return [([turn for turn in turns if not ways or turn.way in ways], controls)
            for turns, controls in series]


def machine(programs, python):
    lines = figures.machine()
    lines += ["- " + run([program, "--version"]).strip()
              for program in programs]
    if python:
        lines.append("- " + run([python, "--version"]).strip())
    return lines


def intro(about):
    return [f"{about['rounds']} rounds, in turns forwards and backwards, of "
            f"{about['seconds']} s a figure; medians, and in brackets the "
            "least and the most of the rounds. Both sides were bound, to cores "
            f"{about['cores']}, except where processors are shared. "
            "*No difference*: ours differed by as much from itself, at both "
            f"ends of a turn. It took {about['minutes']:.0f} minutes. What is "
            "compared, and how: [README.md](../compare/README.md).", ""]


def markdown(table, shared_table, half, about):
    lines = [f"# {about['date']}: maps by all ways", "", *intro(about),
             *about["machine"], "", *table.markdown(),
             *encrypted.markdown(table)]
    if shared_table.seen:
        lines += [*shared.intro(about["shared_seconds"]),
                  *shared_table.markdown("###")]
    if half:
        lines += half.markdown()
    lines += [f"Not measured: {one}\n" for one in about["missing"]]
    return "\n".join(lines).rstrip() + "\n"


def some_of(words):
    """A type of arguments: some of these words, with commas between."""
    def read(text):
        for word in text.split(","):
            if word not in words:
                raise argparse.ArgumentTypeError(
                    f"{word}: none of {', '.join(words)}")
        return text.split(",")
    return read


def options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", help="build/tensormsg-compare")
    parser.add_argument("--also", metavar="PROGRAM", action="append",
                        default=[], help="with other ways")
    parser.add_argument("--python", help="of an environment with tensormsg")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3,
                        help="for each figure of a round")
    parser.add_argument("--over", type=some_of(OVERS), metavar="OVER,...",
                        default=OVERS, help=f"of {', '.join(OVERS)}, where "
                        "processors are not shared (all)")
    parser.add_argument("--way", action="append", metavar="WAY",
                        help="only this one, as the tables name it; "
                        "may be given again")
    parser.add_argument("--sleep", action="store_true", help="a side in C that "
                        "waits does not spin: each way by its blocking call")
    parser.add_argument("--shared", choices=("only", "no"),
                        help="whether to measure where processors are shared: "
                        "only that, or not (both)")
    parser.add_argument("--shared-seconds", type=float, default=0.5,
                        help="for each figure there")
    parser.add_argument("--works", type=some_of(WORKS), metavar="WORK,...",
                        default=WORKS, help="of those (all)")
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "../results",
                        help="folder of the pages: DATE.md and .json, or "
                        "DATE-shared with --shared only")
    parser.add_argument("workloads", nargs="*", default=sorted(
        str(path) for path in (HERE / "../workloads").glob("*.json")))
    return parser


def write(args, name, text, found):
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / f"{name}.md").write_text(text, encoding="utf-8")
    (args.out / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n",
                                           encoding="utf-8")
    print(text)


def main():
    args = options().parse_intermixed_args()
    args.programs = [args.program, *args.also]
    # What is measured ends in order, and so leaves no cgroup.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    table = Table(COLUMNS, OURS, BESIDE)
    shared_table = Table(shared.COLUMNS, OURS, shared.BESIDE)
    began = time.monotonic()
    missing = told(contest(args.rounds, schedule(args, table, shared_table)),
                   table, shared_table)
    wants_quota = args.shared != "no" and QUOTA in args.works
    half = quota.contend(args.python) if wants_quota and args.python else None
    if wants_quota and not args.python:
        missing.append(f"{QUOTA}: it needs --python")
    about = {"minutes": (time.monotonic() - began) / 60,
             "date": datetime.date.today().isoformat(), "rounds": args.rounds,
             "cores": ", ".join(map(str, sorted(os.sched_getaffinity(0))[:2])),
             "seconds": args.shared_seconds if args.shared == "only"
             else args.seconds, "shared_seconds": args.shared_seconds,
             "missing": [*missing, *(half.missing if half else ())],
             "machine": machine(args.programs, args.python)}
    write(args, about["date"] + ("-shared" if args.shared == "only" else ""),
          markdown(table, shared_table, half, about),
          {**about, **table.figures(), "shared": shared_table.figures(),
           "quota": half.table.figures() if half else {}})


if __name__ == "__main__":
    main()
