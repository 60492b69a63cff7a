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
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import figures  # noqa: E402
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
LIMIT_S = 120  # a run that takes longer is none


def run(command):
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=LIMIT_S)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip() or f"exit {done.returncode}")
    return done.stdout


def in_c(program, way, workload, over, seconds):
    said = json.loads(run([program, way, workload, over, str(seconds)]))
    return said["half_round_trip_us"], said["gb_per_s"]


def in_python(python, way, workload, seconds):
    """Half a round trip; no stream of maps, so no GB/s."""
    with tempfile.NamedTemporaryFile(suffix=".json") as rows:
        run([python, "-m", "tensormsg.bench", "--workload", workload,
             "--ways", way, "--seconds", str(seconds), "--json", rows.name])
        found = json.load(rows)["rows"]
    return (found[0]["half_round_trip_us"], None) if found else None


class Table:
    """What every way reached with a workload over a transport, by round."""

    def __init__(self):
        self.seen = {}  # (workload, over) -> way -> [(us, GB/s), ...]
        self.again = {}  # the controls', likewise

    def note(self, place, way, figures, again):
        seen = self.again if again else self.seen
        seen.setdefault(place, {}).setdefault(way, []).append(figures)

    def figures(self, about):
        """All that was seen, for a file."""
        def named(seen):
            return {", ".join(place): ways for place, ways in seen.items()}
        return {**about, "figures": ["half a round trip, us", "GB/s"],
                "ways": named(self.seen), "controls": named(self.again)}

    def spread(self, place, way, index):
        """By how much a way differs from itself within a round, in three of
        four at most."""
        pairs = zip(self.seen[place][way],
                    self.again.get(place, {}).get(way, []))
        return figures.spread([(one[index], other[index])
                               for one, other in pairs
                               if one[index] and other[index]])

    def rows(self, place):
        """way, us, how often ours is as fast, GB/s, the same; by us."""
        return sorted((self.row(place, way) for way in self.seen[place]),
                      key=lambda row: row[1])

    def row(self, place, way):
        ways = self.seen[place]
        beside = BESIDE.get(way) if BESIDE.get(way) in ways else OURS
        ours, theirs = ways[beside], ways[way]
        control = beside if beside in self.again.get(place, {}) else OURS

        def middle(index):
            values = [one[index] for one in theirs if one[index] is not None]
            return statistics.median(values) if values else None

        def ratios(index, upside_down):
            found = [them[index] / us[index] for us, them in zip(ours, theirs)
                     if them[index] is not None]
            return sorted(1 / one if upside_down else one for one in found)

        return (way, middle(0), ratios(0, False), middle(1), ratios(1, True),
                self.spread(place, control, 0), self.spread(place, control, 1))


def faster(ratios, spread):
    """The median, the least and the most; or that it tells nothing."""
    if not ratios:
        return ""
    middle = statistics.median(ratios)
    same = ", no difference" if 1 / spread <= middle <= spread else ""
    return f"{middle:.2f} ({ratios[0]:.2f}..{ratios[-1]:.2f}){same}"


def figure(value, digits):
    return "" if value is None else f"{value:,.{digits}f}"


HEADS = ("way", "half a round trip, us", "ours is faster by", "GB/s",
         "ours is faster by")


def cells(row):
    way, took, sooner, rate, more, by_time, by_rate = row
    return (way, figure(took, 1), "" if way == OURS else faster(sooner, by_time),
            figure(rate, 2), "" if way == OURS else faster(more, by_rate))


def machine(programs, python):
    lines = figures.machine()
    lines += ["- " + run([program, "--version"]).strip()
              for program in programs]
    if python:
        lines.append("- " + run([python, "--version"]).strip())
    return lines


def markdown(table, about):
    lines = [f"# {about['date']}: maps by all ways", "",
             f"{about['rounds']} rounds, in turns forwards and backwards, of "
             f"{about['seconds']} s a figure; medians, and in brackets the least "
             "and the most of the rounds. Both sides were bound, to cores "
             f"{about['cores']}. *No difference*: ours differed by as much from "
             "itself, at both ends of a turn. "
             f"It took {about['minutes']:.0f} minutes. What is compared, "
             "and how: [README.md](../compare/README.md).", "",
             *about["machine"], ""]
    for place in table.seen:
        lines += [f"## {place[0]}, {place[1]}", "",
                  "| " + " | ".join(HEADS) + " |",
                  "|---|---:|---:|---:|---:|"]
        lines += ["| " + " | ".join(cells(row)) + " |"
                  for row in table.rows(place)]
        lines.append("")
    lines += [f"Not measured: {one}" for one in about["missing"]]
    return "\n".join(lines).rstrip() + "\n"


def contest(args, table):
    """Every way once a round, so that what else the machine does falls on
    all. Returns what was not measured, and why."""
    ways = {way: program for program in args.programs
            for way in run([program]).splitlines()}
    missing = {}
    for number in range(args.rounds):
        for workload in args.workloads:
            name = pathlib.Path(workload).stem
            turns = [((name, over), way,
                      lambda way=way, over=over: in_c(
                          ways[way], way, workload, over, args.seconds))
                     for over in ("shm", "tcp") for way in ways]
            if args.python:
                turns += [((name, "shm"), PYTHON[way],
                           lambda way=way: in_python(
                               args.python, way, workload, args.seconds))
                          for way in PYTHON]
            # Once more ours at the end, and every second round backwards.
            turns = [(*turn, False) for turn in turns] + [
                (*turn, True) for turn in turns if turn[1] in CONTROLS]
            if number % 2:
                turns.reverse()
            for place, way, measure, again in turns:
                print(f"\r{number + 1} of {args.rounds}: {', '.join(place)}: "
                      f"{way:40}", end="", file=sys.stderr, flush=True)
                try:
                    figures = measure()
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    figures = None
                    missing[(place, way)] = str(error).splitlines()[-1]
                if figures:
                    table.note(place, way, figures, again)
                else:
                    missing.setdefault((place, way), "not installed")
    print(file=sys.stderr)
    return [f"{way} ({', '.join(place)}): {why}"
            for (place, way), why in missing.items()]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", help="build/tensormsg-compare")
    parser.add_argument("--also", metavar="PROGRAM", action="append",
                        default=[], help="with other ways")
    parser.add_argument("--python", help="of an environment with tensormsg")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3,
                        help="for each figure of a round")
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "../results",
                        help="folder of the pages")
    parser.add_argument("workloads", nargs="*", default=sorted(
        str(path) for path in (HERE / "../workloads").glob("*.json")))
    args = parser.parse_intermixed_args()
    args.programs = [args.program, *args.also]
    table = Table()
    began = time.monotonic()
    missing = contest(args, table)
    about = {"minutes": (time.monotonic() - began) / 60,
             "date": datetime.date.today().isoformat(), "rounds": args.rounds,
             "cores": ", ".join(map(str, sorted(os.sched_getaffinity(0))[:2])),
             "seconds": args.seconds, "missing": missing,
             "machine": machine(args.programs, args.python)}
    args.out.mkdir(parents=True, exist_ok=True)
    text = markdown(table, about)
    (args.out / f"{about['date']}.md").write_text(text, encoding="utf-8")
    (args.out / f"{about['date']}.json").write_text(
        json.dumps(table.figures(about), indent=1) + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
