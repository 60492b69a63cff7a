#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures how a message's cost goes with the number of tensors, bytes,
endpoints and processes, fits straight lines, and writes a page of Markdown and
one of HTML with plots. `make scale` calls it.

A line is fitted to each way's points by least squares of the relative error;
two lines, with a knee between them, where that halves the error.
"""

import argparse
import datetime
import html
import io
import json
import os
import pathlib
import platform
import subprocess
import sys

import matplotlib
import numpy

matplotlib.use("Agg")
matplotlib.rcParams["svg.hashsalt"] = "tensormsg"
from matplotlib import pyplot  # noqa: E402

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


def measure(program, series, rounds, quick):
    """Points as {series: {way: {x: least y}}}."""
    command = [program, f"--scale={series}"] + ["--quick"] * quick
    points = {}
    for _ in range(rounds):
        done = subprocess.run(command, text=True, stdout=subprocess.PIPE,
                              timeout=LIMIT_S, check=True)
        for line in done.stdout.splitlines():
            one = json.loads(line)
            ys = points.setdefault(one["series"], {}).setdefault(one["way"], {})
            ys[one["x"]] = min(one["y"], ys.get(one["x"], one["y"]))
    return points


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


def plot(series, ways):
    counted, _, what = SERIES[series]
    figure, axis = pyplot.subplots(figsize=(9, 4))
    for way, ys in ways.items():
        xs = sorted(ys)
        (drawn,) = axis.plot(xs, [ys[x] for x in xs], "o", label=way)
        for line in fit(ys):
            some = numpy.geomspace(max(line.range[0], 0.5),
                                   max(line.range[1], 1), 50)
            axis.plot(some, numpy.maximum(line(some), 1e-12),
                      color=drawn.get_color(), linewidth=1)
    axis.set(xscale="symlog" if series == "bytes" else "log", yscale="log",
             xlabel=counted,
             ylabel="bytes" if series == "memory" else "s", title=what)
    axis.grid(alpha=0.3)
    axis.legend()
    figure.tight_layout()
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    return out.getvalue()[out.getvalue().index("<svg"):]


def machine():
    lines = [f"- {platform.platform()}, {os.cpu_count()} cores"]
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        lines += sorted({"- " + line.split(":", 1)[1].strip() for line in info
                         if line.startswith("model name")})
    return lines


HEADS = ("way", "from, to", "at first", "each more")


def fits(series, ways):
    return [(way, *describe(line, series))
            for way, ys in ways.items() for line in fit(ys)]


def figures(series, ways):
    unit = unit_of(series)
    xs = sorted({x for ys in ways.values() for x in ys})
    return [(f"{x:,}", *(amount(ys[x], unit) if x in ys else ""
                         for ys in ways.values())) for x in xs]


def table(heads, rows):
    return ["| " + " | ".join(heads) + " |",
            "|---|" + "---:|" * (len(heads) - 1),
            *("| " + " | ".join(row) + " |" for row in rows), ""]


def counts(one):
    return one + ("es" if one == "process" else "s")


def markdown(points, about):
    lines = [f"# {about['date']}: how costs go with numbers", "",
             f"Least of {about['rounds']} rounds; a figure of a round is a median.",
             "", *about["machine"], ""]
    for series, ways in points.items():
        counted, one, what = SERIES[series]
        lines += [f"## {counted}", "", f"{what}. A line fitted: so much, and "
                  f"for each {one} so much more.", "",
                  *table(HEADS, fits(series, ways)),
                  *table((counts(one), *ways), figures(series, ways))]
    return "\n".join(lines).rstrip() + "\n"


def page(points, about):
    def rows(heads, body):
        def row(cells, tag):
            return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>"
                                    for cell in cells) + "</tr>"
        return ["<table>", row(heads, "th"), *(row(one, "td") for one in body),
                "</table>"]

    parts = ["<!doctype html><meta charset=utf-8>",
             f"<title>How costs go with numbers, {about['date']}</title>",
             "<style>body{font:15px sans-serif;max-width:60em;margin:2em auto}"
             "td,th{padding:2px 12px;text-align:right}"
             "td:first-child,th:first-child{text-align:left}</style>",
             f"<h1>How costs go with numbers, {about['date']}</h1><ul>",
             *(f"<li>{html.escape(line[2:])}" for line in about["machine"]),
             "</ul>"]
    for series, ways in points.items():
        counted, one, what = SERIES[series]
        parts += [f"<h2>{html.escape(counted)}</h2><p>{html.escape(what)}",
                  plot(series, ways), *rows(HEADS, fits(series, ways)),
                  "<p>", *rows((counts(one), *ways), figures(series, ways))]
    return "\n".join(parts) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="build/tensormsg-bench")
    parser.add_argument("--series", default="all",
                        help="tensors, bytes, endpoints, processes or all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true",
                        help="that it works; the figures mean nothing")
    parser.add_argument("--points", type=pathlib.Path, action="append",
                        default=[], help="JSON of an earlier run, to be joined")
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "results",
                        help="folder of the pages")
    args = parser.parse_args()
    points = {}
    for earlier in args.points:
        for series, ways in json.loads(earlier.read_text("utf-8")).items():
            points[series] = {way: {int(x): y for x, y in ys.items()}
                              for way, ys in ways.items()}
    if args.rounds > 0:
        points.update(measure(args.program, args.series, args.rounds,
                              args.quick))
    about = {"date": datetime.date.today().isoformat(), "rounds": args.rounds,
             "machine": machine()}
    args.out.mkdir(parents=True, exist_ok=True)
    name = args.out / f"{about['date']}-scale"
    text = markdown(points, about)
    name.with_suffix(".json").write_text(json.dumps(points), encoding="utf-8")
    name.with_suffix(".md").write_text(text, encoding="utf-8")
    name.with_suffix(".html").write_text(page(points, about), encoding="utf-8")
    print(text)


if __name__ == "__main__":
    sys.exit(main())
