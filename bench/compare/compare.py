#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures all ways to move the maps of bench/workloads/ in turns, on this
machine, and writes what it saw as a page of Markdown and one of HTML with a
plot. `make compare` calls it; bench/compare/README.md tells what is compared.
"""

import argparse
import datetime
import html
import importlib.util
import io
import json
import math
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

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

    def note(self, place, way, figures):
        self.seen.setdefault(place, {}).setdefault(way, []).append(figures)

    def rows(self, place):
        """way, us, how often ours is as fast, GB/s, the same; by us."""
        ways = self.seen[place]
        return sorted((self.row(ways.get(BESIDE.get(way)) or ways[OURS], way,
                                ways[way]) for way in ways),
                      key=lambda row: row[1])

    @staticmethod
    def row(ours, way, theirs):
        def middle(index):
            values = [one[index] for one in theirs if one[index] is not None]
            return statistics.median(values) if values else None

        def ratios(index, upside_down):
            found = [them[index] / us[index] for us, them in zip(ours, theirs)
                     if them[index] is not None]
            return sorted(1 / one if upside_down else one for one in found)

        return (way, middle(0), ratios(0, False), middle(1), ratios(1, True))


def spread(ratios):
    if not ratios:
        return ""
    return (f"{statistics.median(ratios):.2f} "
            f"({ratios[0]:.2f}..{ratios[-1]:.2f})")


def figure(value, digits):
    return "" if value is None else f"{value:,.{digits}f}"


HEADS = ("way", "half a round trip, us", "ours is faster by", "GB/s",
         "ours is faster by")


def cells(row):
    way, took, faster, rate, more = row
    return (way, figure(took, 1), "" if way == OURS else spread(faster),
            figure(rate, 2), "" if way == OURS else spread(more))


def machine(programs, python):
    lines = [f"- {platform.platform()}, {os.cpu_count()} cores"]
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        names = {line.split(":", 1)[1].strip() for line in info
                 if line.startswith("model name")}
    lines += [f"- {name}" for name in sorted(names)]
    lines += ["- " + run([program, "--version"]).strip()
              for program in programs]
    if python:
        lines.append("- " + run([python, "--version"]).strip())
    return lines


def markdown(table, about):
    lines = [f"# {about['date']}: maps by all ways", "",
             f"{about['rounds']} rounds, in turns, of {about['seconds']} s a "
             "figure; medians, and in brackets the least and the most of the "
             f"rounds. It took {about['minutes']:.0f} minutes. What is compared, "
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


def bars(axis, ways, index):
    """The medians of ways, the last above; and the least and the most."""
    values = [sorted(one[index] for one in rounds if one[index] is not None)
              or [math.nan] for _, rounds in ways]
    middle = [statistics.median(value) for value in values]
    axis.barh([way for way, _ in ways], middle,
              color=["tab:orange" if way.startswith(OURS) else "tab:blue"
                     for way, _ in ways],
              xerr=[[one - value[0] for one, value in zip(middle, values)],
                    [value[-1] - one for one, value in zip(middle, values)]],
              ecolor="dimgray", capsize=2)


def plot(table):
    """Bars of all places as SVG, or None."""
    if importlib.util.find_spec("matplotlib") is None:
        return None
    import matplotlib
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "tensormsg"
    from matplotlib import pyplot
    places = list(table.seen)
    figure_, axes = pyplot.subplots(len(places), 2, squeeze=False,
                                    figsize=(13, 3.2 * len(places)))
    for place, (took, rate) in zip(places, axes):
        ways = [(row[0], table.seen[place][row[0]])
                for row in table.rows(place)[::-1]]
        bars(took, ways, 0)
        bars(rate, ways, 1)
        took.set(xscale="log", title=f"{place[0]}, {place[1]}",
                 xlabel="half a round trip, us")
        rate.set(xlabel="GB/s", yticklabels=[])
    figure_.tight_layout()
    out = io.StringIO()
    figure_.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()[out.getvalue().index("<svg"):]


def page(table, about):
    def escaped(row, tag):
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>"
                                for cell in row) + "</tr>"

    parts = ["<!doctype html><meta charset=utf-8>",
             f"<title>Maps by all ways, {about['date']}</title>",
             "<style>body{font:15px sans-serif;max-width:60em;margin:2em auto}"
             "td,th{padding:2px 12px;text-align:right}"
             "td:first-child,th:first-child{text-align:left}</style>",
             f"<h1>Maps by all ways, {about['date']}</h1><ul>",
             *(f"<li>{html.escape(line[2:])}" for line in about["machine"]),
             "</ul>"]
    drawn = plot(table)
    for place in table.seen:
        parts += [f"<h2>{html.escape(', '.join(place))}</h2><table>",
                  escaped(HEADS, "th"),
                  *(escaped(cells(row), "td") for row in table.rows(place)),
                  "</table>"]
    if drawn:
        parts.append(drawn)
    return "\n".join(parts) + "\n"


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
            for place, way, measure in turns:
                print(f"\r{number + 1} of {args.rounds}: {', '.join(place)}: "
                      f"{way:40}", end="", file=sys.stderr, flush=True)
                try:
                    figures = measure()
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    figures = None
                    missing[(place, way)] = str(error).splitlines()[-1]
                if figures:
                    table.note(place, way, figures)
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
             "seconds": args.seconds, "missing": missing,
             "machine": machine(args.programs, args.python)}
    args.out.mkdir(parents=True, exist_ok=True)
    text = markdown(table, about)
    (args.out / f"{about['date']}.md").write_text(text, encoding="utf-8")
    (args.out / f"{about['date']}.html").write_text(page(table, about),
                                                    encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
