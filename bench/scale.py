#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures how a message's cost goes with the number of tensors, bytes,
endpoints and processes, fits straight lines, and writes a page of Markdown, and
the figures as JSON, of which bench/plot.py makes plots. `make scale` calls it.

A line is fitted to each way's points, the least of the rounds, by least squares
of the relative error; two lines, with a knee between them, where that halves
the error.
"""

import argparse
import datetime
import json
import pathlib
import subprocess
import sys

import numpy

from figures import machine

HERE = pathlib.Path(__file__).resolve().parent
LIMIT_S = 570

# Of each series: what is counted, one of it, what was measured.
SERIES = {
    "tensors": ("tensors of 64 bytes in a map", "tensor",
                "half a round trip"),
    "bytes": ("bytes of one tensor", "byte",
              "half a round trip; from 64 MiB on one way and an answer"),
    "endpoints": ("endpoints on one worker, of one peer", "endpoint",
                  "a message of 8 x 64 B, over all of them in turn"),
    "memory": ("endpoints on one worker, of one peer", "endpoint",
               "heap that the dearer side holds, UCX's own aside"),
    "processes": ("processes that send to one", "process",
                  "a message of 8 x 64 B, of all of them together"),
}


class Points:
    """What each round had: {series: {way: {x: [y, ...]}}}; and in words, what
    could not be measured."""

    def __init__(self):
        self.rounds = {}
        self.missing = []

    def note(self, series, way, x, ys):
        self.rounds.setdefault(series, {}).setdefault(way, {}) \
            .setdefault(int(x), []).extend(ys)

    def measure(self, program, series, quick):
        """One round."""
        done = subprocess.run(
            [program, f"--scale={series}"] + ["--quick"] * quick, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT_S)
        sys.stderr.write(done.stderr)
        done.check_returncode()
        for line in done.stdout.splitlines():
            one = json.loads(line)
            self.note(one["series"], one["way"], one["x"], [one["y"]])
        self.missing += [line for line in done.stderr.splitlines()
                         if line not in self.missing]

    def join(self, earlier):
        """What write() has left."""
        kept = json.loads(earlier.read_text("utf-8"))
        for series, ways in kept["rounds"].items():
            for way, ys in ways.items():
                for x, values in ys.items():
                    self.note(series, way, x, values)
        self.missing += [line for line in kept["missing"]
                         if line not in self.missing]

    def write(self, path):
        path.write_text(json.dumps({"rounds": self.rounds,
                                    "missing": self.missing,
                                    "machine": machine()}),
                        encoding="utf-8")

    def least(self, series):
        return {way: {x: min(values) for x, values in sorted(ys.items())}
                for way, ys in self.rounds[series].items()}

    def count(self):
        """Of the rounds: the fewest and the most that any point has."""
        counts = {len(values) for ways in self.rounds.values()
                  for ys in ways.values() for values in ys.values()}
        return f"{min(counts)}" if len(counts) == 1 else \
            f"{min(counts)} to {max(counts)}"


class Line:
    """y = at_first + each * x, and how far the points are from it."""

    def __init__(self, xs, ys):
        x, y = numpy.array(xs, float), numpy.array(ys, float)
        of = numpy.stack([1 / y, x / y], 1)
        (self.at_first, self.each), *_ = numpy.linalg.lstsq(
            of, numpy.ones(len(x)), rcond=None)
        self.error = float(numpy.sum((self(x) / y - 1) ** 2))
        self.range = xs[0], xs[-1]

    def __call__(self, x):
        return self.at_first + self.each * x


def fit(ys):
    """One line through the points, or two."""
    xs = sorted(ys)
    values = [ys[x] for x in xs]
    one = Line(xs, values)
    if len(xs) < 6:
        return [one]
    two = min(([Line(xs[:i], values[:i]), Line(xs[i:], values[i:])]
               for i in range(3, len(xs) - 2)),
              key=lambda lines: lines[0].error + lines[1].error)
    return two if sum(line.error for line in two) < one.error / 2 else [one]


def amount(value, unit):
    if unit == "bytes":
        return f"{value:,.0f} B"
    for scale, name in ((1, "s"), (1e3, "ms"), (1e6, "us"), (1e9, "ns")):
        if abs(value) * scale >= 1 or name == "ns":
            break
    digits = 3 if abs(value) * scale < 1 else 2 if abs(value) * scale < 10 \
        else 1 if abs(value) * scale < 100 else 0
    return f"{value * scale:,.{digits}f} {name}"


def unit_of(series):
    return "bytes" if series == "memory" else "s"


def describe(line, series):
    unit = unit_of(series)
    return (f"{line.range[0]:,} to {line.range[1]:,}",
            amount(line.at_first, unit), amount(line.each, unit))


HEADS = ("way", "from, to", "at first", "each more")
SPREAD = "Least of {} rounds, and the most; a figure of a round is a median."


def fits(series, ways):
    return [(way, *describe(line, series))
            for way, ys in ways.items() for line in fit(ys)]


def spread(values, unit):
    """The least and, of several, the most."""
    if not values:
        return ""
    least = amount(min(values), unit)
    return least if len(values) == 1 else \
        f"{least} .. {amount(max(values), unit)}"


def figures(series, ways):
    xs = sorted({x for ys in ways.values() for x in ys})
    return [(f"{x:,}", *(spread(ys.get(x), unit_of(series))
                         for ys in ways.values())) for x in xs]


def table(heads, rows):
    return ["| " + " | ".join(heads) + " |",
            "|---|" + "---:|" * (len(heads) - 1),
            *("| " + " | ".join(row) + " |" for row in rows), ""]


def counts(one):
    return one + ("es" if one == "process" else "s")


def markdown(points, about):
    lines = [f"# {about['date']}: how costs go with numbers", "",
             SPREAD.format(points.count()), "", *about["machine"], ""]
    for series, ways in points.rounds.items():
        counted, one, what = SERIES[series]
        lines += [f"## {counted}", "", f"{what}. A line fitted: so much, and "
                  f"for each {one} so much more.", "",
                  *table(HEADS, fits(series, points.least(series))),
                  *table((counts(one), *ways), figures(series, ways))]
    lines += [f"- not measured: {line}" for line in points.missing]
    return "\n".join(lines).rstrip() + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="build/tensormsg-bench")
    parser.add_argument("--series", default="all",
                        help="tensors, bytes, endpoints, processes or all; "
                        "bytes:4096 is one point")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true",
                        help="that it works; the figures mean nothing")
    parser.add_argument("--points", type=pathlib.Path, action="append",
                        default=[], help="JSON of an earlier run, to be joined")
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "results",
                        help="folder of the pages")
    args = parser.parse_args()
    points = Points()
    for earlier in args.points:
        points.join(earlier)
    for _ in range(args.rounds):
        points.measure(args.program, args.series, args.quick)
    about = {"date": datetime.date.today().isoformat(), "machine": machine()}
    args.out.mkdir(parents=True, exist_ok=True)
    name = args.out / f"{about['date']}-scale"
    text = markdown(points, about)
    points.write(name.with_suffix(".json"))
    name.with_suffix(".md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    sys.exit(main())
