#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Draws figures as OUT-NAME.svg each, and says which these are. `make docs` calls
it.

plot.py FIGURES OUT     all that compare.py or scale.py has left as JSON
plot.py FOLDER OUT      the pictures of docs/performance.md, of the newest JSON
                        in that folder
"""

import json
import math
import pathlib
import statistics
import sys

import matplotlib
import numpy

matplotlib.use("Agg")
matplotlib.rcParams.update({
    "svg.hashsalt": "tensormsg", "svg.fonttype": "none", "font.size": 11,
    "savefig.transparent": True, "legend.frameon": False,
    "figure.constrained_layout.use": True})
from matplotlib import pyplot  # noqa: E402

import scale  # noqa: E402


def save(figure, out, name):
    path = pathlib.Path(f"{out}-{name.replace(', ', '-')}.svg")
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


# --- docs/performance.md ---

MAPS = {"joint-states": "8 tensors of 64 bytes",
        "robot-observation": "robot observation: 6 tensors, 2.6 MiB",
        "kv-cache-block": "KV cache: 64 tensors, 8 MiB",
        "resnet50-state-dict": "ResNet-50: 320 tensors, 98 MiB"}
PEERS = ("tensormsg", "raw ucp_am", "UCXX C++", "socket", "ZeroMQ", "nng",
         "gRPC C++", "tensormsg, Python", "UCXX, Python",
         "ZeroMQ + pickle 5, Python", "multiprocessing, Python")
WORKS = {"one_core": "1 pair,\n1 core", "oversubscribed_2": "2 pairs,\n2 cores",
         "oversubscribed_4": "4 pairs,\n2 cores",
         "one_core_busy": "1 pair,\n1 core, busy",
         "oversubscribed_4_busy": "4 pairs,\n2 cores, busy"}
IN_C = ("tensormsg", "raw ucp_am", "socket", "ZeroMQ", "gRPC C++", "nng")


def colour(way):
    return "tab:orange" if way.startswith("tensormsg") else \
        "tab:gray" if way.startswith("raw ") else "tab:blue"


def newest(folder, has):
    """The newest figures that have something of a kind, and where from."""
    for path in sorted(folder.glob("*.json"), reverse=True):
        found = json.loads(path.read_text("utf-8"))
        if has(found):
            system, *processor = found.get("machine", ["", ""])[:2]
            return found, ", ".join(
                [path.stem[:10], *(one.removeprefix("- ") for one in processor),
                 system.rpartition(", ")[2]]).rstrip(", ")
    sys.exit(f"plot.py: {folder} has no such figures")


def name_source(figure, words):
    figure.supxlabel(f"measured {words}", fontsize=8, x=0.99, ha="right")


def draw_lines(folder, out, name, series, labels, y_of):
    """A line for each way: the medians of the rounds, from the least to the
    most."""
    found, words = newest(folder, lambda one: "ways" not in one and
                          series in one["rounds"])
    figure, axis = pyplot.subplots(figsize=(8, 4.2))
    for way, points in found["rounds"][series].items():
        xs = sorted(int(x) for x in points if int(x) > 0)
        ys = [sorted(y_of(x, y) for y in points[str(x)]) for x in xs]
        line, = axis.plot(xs, [statistics.median(y) for y in ys], marker="o",
                          markersize=3, label=way)
        axis.fill_between(xs, [y[0] for y in ys], [y[-1] for y in ys],
                          color=line.get_color(), alpha=0.25, linewidth=0)
    axis.set(xscale="log", yscale="log", xlabel=labels[0], ylabel=labels[1])
    axis.grid(alpha=0.3)
    axis.legend()
    name_source(figure, words)
    save(figure, out, name)


def draw_peers(folder, out):
    """Half a round trip of all ways with some maps, in us."""
    found, words = newest(folder, lambda one: one.get("ways"))
    ways = found["ways"]
    names = [name for name in MAPS if f"{name}, shm" in ways]
    figure, axes = pyplot.subplots(len(names), 2, squeeze=False,
                                   figsize=(9.5, 2.75 * len(names)))
    for name, row in zip(names, axes):
        for over, axis in zip(("shm", "tcp"), row):
            place = ways[f"{name}, {over}"]
            shown = [way for way in reversed(PEERS) if way in place]
            middle = [statistics.median(one[0] for one in place[way])
                      for way in shown]
            drawn = axis.barh(shown, middle, color=[*map(colour, shown)])
            axis.bar_label(drawn, [f"{one:,.{int(one < 100)}f}"
                                   for one in middle], padding=3, fontsize=9)
            axis.set(xscale="log", xlim=(min(middle) / 3, max(middle) * 4))
            axis.xaxis.set_minor_formatter("")
            axis.set_title(f"{MAPS[name]}, {over}", fontsize=10)
    name_source(figure, words)
    save(figure, out, "peers")


def draw_cores(folder, out):
    """Round trips and 99th percentiles of pairs that share processors."""
    found, words = newest(folder, lambda one: one.get("shared", {}).get("ways"))
    figure, axes = pyplot.subplots(2, 1, figsize=(9, 7), sharex=True)
    width = 0.8 / len(IN_C)
    for index, way in enumerate(IN_C):
        rounds = [found["shared"]["ways"].get(f"{work}, shm", {}).get(way, [])
                  for work in WORKS]
        xs = numpy.arange(len(WORKS)) + width * (index - len(IN_C) / 2 + 0.5)
        for axis, column, scale in zip(axes, (2, 1), (1e-3, 1)):
            axis.bar(xs, [statistics.median(one[column] for one in some) * scale
                          if some else math.nan for some in rounds], width,
                     label=way)
    axes[0].set(ylabel="thousand round trips/s, all pairs")
    axes[1].set(ylabel="99th percentile of half\na round trip, us",
                yscale="log", xticks=range(len(WORKS)),
                xticklabels=WORKS.values())
    for axis in axes:
        axis.grid(axis="y", alpha=0.3)
    axes[0].legend(ncols=2)
    name_source(figure, words)
    save(figure, out, "cores")


def draw_page(folder, out):
    draw_lines(folder, out, "latency", "tensors",
               ("tensors of 64 bytes in a map", "half a round trip, us"),
               lambda _, y: y * 1e6)
    draw_lines(folder, out, "bandwidth", "bytes",
               ("bytes of one tensor", "GB/s, one message at a time"),
               lambda x, y: x / y / 1e9)
    draw_peers(folder, out)
    draw_cores(folder, out)


def main():
    path, out = pathlib.Path(sys.argv[1]), sys.argv[2]
    if path.is_dir():
        draw_page(path, out)
        return
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
