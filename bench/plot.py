#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""plot.py FIGURES OUT: draws the figures that compare.py or scale.py has left as
JSON, as OUT-NAME.svg each, and says which these are. `make docs` calls it."""

import json
import math
import pathlib
import statistics
import sys

import matplotlib
import numpy

matplotlib.use("Agg")
matplotlib.rcParams["svg.hashsalt"] = "tensormsg"
from matplotlib import pyplot  # noqa: E402

import scale  # noqa: E402


def save(figure, out, name):
    path = pathlib.Path(f"{out}-{name.replace(', ', '-')}.svg")
    figure.tight_layout()
    figure.savefig(path, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    print(path)


def bars(axis, ways, index):
    """The medians of ways, the last above; and the least and the most."""
    values = [sorted(one[index] for one in rounds if one[index] is not None)
              or [math.nan] for _, rounds in ways]
    middle = [statistics.median(value) for value in values]
    axis.barh([way for way, _ in ways], middle,
              color=["tab:orange" if way.startswith("tensormsg") else "tab:blue"
                     for way, _ in ways],
              xerr=[[one - value[0] for one, value in zip(middle, values)],
                    [value[-1] - one for one, value in zip(middle, values)]],
              ecolor="dimgray", capsize=2)


def draw_ways(figures, out):
    """Of compare.py: all ways of a map, the quickest above."""
    for place, ways in figures["ways"].items():
        figure, (took, rate) = pyplot.subplots(1, 2, figsize=(13, 3.2))
        slowest_first = sorted(
            ways.items(), reverse=True,
            key=lambda way: statistics.median(one[0] for one in way[1]))
        bars(took, slowest_first, 0)
        bars(rate, slowest_first, 1)
        took.set(xscale="log", title=place, xlabel=figures["figures"][0])
        rate.set(xlabel=figures["figures"][1], yticklabels=[])
        save(figure, out, place)


def draw_series(points, series, out):
    """Of scale.py: the least of the rounds, the lines, and up to the most."""
    counted, one, what = scale.SERIES[series]
    ways = points.least(series)
    figure, axis = pyplot.subplots(figsize=(9, 4))
    for way, ys in ways.items():
        lines = scale.fit(ys)
        slopes = ", then ".join(
            scale.amount(line.each, scale.unit_of(series)) for line in lines)
        most = [max(points.rounds[series][way][x]) for x in ys]
        above = [high - y for high, y in zip(most, ys.values())]
        drawn = axis.errorbar(list(ys), list(ys.values()), fmt="o",
                              yerr=([0] * len(ys), above), elinewidth=0.7,
                              label=f"{way}: {slopes} a {one}")[0]
        for line in lines:
            some = numpy.geomspace(max(line.range[0], 0.5),
                                   max(line.range[1], 1), 50)
            axis.plot(some, numpy.maximum(line(some), 1e-12),
                      color=drawn.get_color(), linewidth=1)
    axis.set(xscale="symlog" if series == "bytes" else "log", yscale="log",
             xlabel=counted,
             ylabel="bytes" if series == "memory" else "s", title=what)
    axis.grid(alpha=0.3)
    axis.legend()
    save(figure, out, series)


def main():
    path, out = pathlib.Path(sys.argv[1]), sys.argv[2]
    figures = json.loads(path.read_text("utf-8"))
    if "ways" in figures:
        draw_ways(figures, out)
        return
    points = scale.Points()
    points.join(path)
    for series in points.rounds:
        draw_series(points, series, out)


if __name__ == "__main__":
    main()
