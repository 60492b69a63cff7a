# SPDX-License-Identifier: BSD-3-Clause
"""Rows that were measured, as a picture: those of tensormsg.bench, and those of the
command `tensormsg perf` (docs/reference/perf.md)."""

from __future__ import annotations

import csv
import importlib
import importlib.util
import json
import os
from typing import Any, Callable, Dict, List, Optional

Row = Dict[str, Any]
ENDINGS = ".png", ".svg", ".pdf"
_PANELS = {  # of the command's measures: title, and what is drawn
    "latency": ("latency, us: p50, up to p99", "p50_us"),
    "bandwidth": ("bandwidth, GB/s", "gb_per_s"),
    "calls": ("calls a second", "messages_per_s")}
_AXES = {"bytes": "bytes of a message", "tensors": "tensors of a message",
         "in_flight": "under way at a time"}


def fault(path: str) -> Optional[str]:
    """Why nothing can be drawn there."""
    if not importlib.util.find_spec("matplotlib"):
        return "--plot needs matplotlib: pip install matplotlib"
    if not path.endswith(ENDINGS):
        return f"--plot {path}: none of {', '.join(ENDINGS)}"
    if not os.access(os.path.dirname(path) or ".", os.W_OK):
        return f"{path}: no folder that can be written to"
    return None


def _text(value: str) -> Any:
    """Of a CSV."""
    for kind in int, float:
        try:
            return kind(value)
        except ValueError:
            pass
    return value or None


def read(path: str) -> List[Row]:
    """The rows in a file: of `tensormsg perf` with --json or --csv, or of
    tensormsg.bench. Raises ValueError."""
    with open(path, encoding="utf-8", newline="") as file:
        if file.read(1) in "[{":
            file.seek(0)
            rows = json.load(file)
            rows = rows.get("rows") if isinstance(rows, dict) else rows
        else:
            file.seek(0)
            rows = [{key: _text(value) for key, value in row.items()}
                    for row in csv.DictReader(file)]
    if not rows or not isinstance(rows, list) or not all(
            isinstance(row, dict) and ("way" in row or
                                       row.get("measure") in _PANELS)
            for row in rows):
        raise ValueError("no rows of tensormsg perf --json or --csv, nor of "
                         "tensormsg.bench --json")
    return rows


def draw(rows: List[Row], path: str) -> None:
    # Not pyplot, which may look for a screen.
    Figure: Any = importlib.import_module("matplotlib.figure").Figure
    ours = [row for row in rows if "measure" in row]
    shown = [(title, value, [row for row in ours if row["measure"] == measure])
             for measure, (title, value) in _PANELS.items()]
    panels = [panel for panel in shown if panel[2]]
    ways = [row for row in rows if "way" in row]
    count = len(panels) + bool(ways)
    figure = Figure(figsize=(6.4 * count, 4.8))
    every = figure.subplots(1, count, squeeze=False)[0].tolist()
    axis = _axis(ours)
    for axes, (title, value, mine) in zip(every, panels):
        _draw_measure(axes, title, value, mine, axis, _namer(ours, axis))
    if ways:
        _draw_ways(every[-1], ways)
    figure.savefig(path, bbox_inches="tight")


def _differ(rows: List[Row], key: str) -> bool:
    return len({row.get(key) for row in rows}) > 1


def _in_flight_differs(rows: List[Row]) -> bool:
    """A latency always has one under way."""
    return any(_differ([row for row in rows if row["measure"] == measure],
                       "in_flight") for measure in _PANELS)


def _axis(rows: List[Row]) -> str:
    """What the rows are drawn over: what they differ in."""
    if _differ(rows, "bytes"):
        return "bytes"
    if _differ(rows, "tensors"):
        return "tensors"
    return "in_flight" if _in_flight_differs(rows) else "bytes"


def _namer(rows: List[Row], axis: str) -> Callable[[Row], str]:
    """What tells the rows of one line from those of others."""
    by_memory, by_tensors = _differ(rows, "memory"), _differ(rows, "tensors")
    in_flight = _in_flight_differs(rows)

    def name(row: Row) -> str:
        words = [str(row["transport"])]
        if by_memory:
            words.append(str(row["memory"]))
        if by_tensors and axis != "tensors":
            many = "" if row["tensors"] == 1 else "s"
            words.append(f"{row['tensors']} tensor{many}")
        if in_flight and axis != "in_flight" and row["measure"] != "latency":
            words.append(f"{row['in_flight']} in flight")
        return ", ".join(words)

    return name


def _draw_measure(axes: Any, title: str, value: str, rows: List[Row], axis: str,
                  name: Callable[[Row], str]) -> None:
    for line in dict.fromkeys(map(name, rows)):
        mine = sorted((row for row in rows if name(row) == line and row[value]),
                      key=lambda row: float(row[axis]))
        x, y = ([max(row[key], 1) if key == axis else row[key] for row in mine]
                for key in (axis, value))
        up = [max(row["p99_us"] - row[value], 0) if value == "p50_us" else 0
              for row in mine]
        axes.errorbar(x, y, ([0] * len(up), up), fmt="o-", capsize=2,
                      label=line.replace("$", r"\$"))
    axes.set(yscale="log", title=title, xlabel=_AXES[axis])
    axes.set_xscale("log", base=2)
    axes.legend()


def _draw_ways(axes: Any, rows: List[Row]) -> None:
    for way in dict.fromkeys(row["way"] for row in rows):
        mine = [row for row in rows if row["way"] == way]
        axes.plot([row["work"] for row in mine],
                  [row["half_round_trip_us"] for row in mine], "o-", label=way)
    axes.set(yscale="log", ylabel="half a round trip, us",
             xlabel="tensors x bytes")
    axes.tick_params(axis="x", rotation=45)
    axes.legend()
