# SPDX-License-Identifier: BSD-3-Clause
"""Figures of several ways, by round, and their page of Markdown."""

import pathlib
import statistics
import sys
from typing import NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import figures  # noqa: E402


class Column(NamedTuple):
    """A figure of each way."""
    name: str
    digits: int
    more_is_better: bool = False
    is_compared: bool = True  # with ours


class Row(NamedTuple):
    """A way at a place: for each column the median, the ratios to ours within a
    round, and by how much ours differs from itself."""
    way: str
    middles: list
    ratios: list
    spreads: list


def figure(value, digits):
    return "" if value is None else f"{value:,.{digits}f}"


def faster(ratios, spread):
    """The median, the least and the most; or that it tells nothing."""
    if not ratios:
        return ""
    middle = statistics.median(ratios)
    same = ", no difference" if 1 / spread <= middle <= spread else ""
    return f"{middle:.2f} ({ratios[0]:.2f}..{ratios[-1]:.2f}){same}"


class Table:
    """The figures of every way at every place, which is a tuple of words, by
    round. `beside`: the way that a way is compared with, where not with `ours`.
    """

    def __init__(self, columns, ours, beside):
        self.columns = columns
        self.ours = ours
        self.beside = beside
        self.seen = {}  # place -> way -> [(figure of each column), ...]
        self.again = {}  # the controls', likewise

    def note(self, place, way, figures, again):
        seen = self.again if again else self.seen
        seen.setdefault(place, {}).setdefault(way, []).append(figures)

    def figures(self):
        """All that was seen, for a file."""
        def named(seen):
            return {", ".join(place): ways for place, ways in seen.items()}
        return {"figures": [column.name for column in self.columns],
                "ways": named(self.seen), "controls": named(self.again)}

    def spread(self, place, way, index):
        """By how much a way differs from itself within a round, in three of
        four at most."""
        pairs = zip(self.seen[place].get(way, []),
                    self.again.get(place, {}).get(way, []))
        return figures.spread([(one[index], other[index])
                               for one, other in pairs
                               if one[index] and other[index]])

    def ratios(self, ours, theirs, index):
        found = [them[index] / us[index] for us, them in zip(ours, theirs)
                 if them[index] and us[index]]
        return sorted(1 / one if self.columns[index].more_is_better else one
                      for one in found)

    def row(self, place, way):
        ways = self.seen[place]
        beside = self.beside.get(way)
        beside = beside if beside in ways else self.ours
        control = beside if beside in self.again.get(place, {}) else self.ours
        every = range(len(self.columns))

        def middle(index):
            values = [one[index] for one in ways[way] if one[index] is not None]
            return statistics.median(values) if values else None

        return Row(way, [middle(i) for i in every],
                   [self.ratios(ways.get(beside, []), ways[way], i)
                    for i in every],
                   [self.spread(place, control, i) for i in every])

    def rows(self, place):
        """By the first column, the best first."""
        return sorted((self.row(place, way) for way in self.seen[place]),
                      key=lambda row: row.middles[0],
                      reverse=self.columns[0].more_is_better)

    def cells(self, row):
        cells = [row.way]
        for column, middle, ratios, spread in zip(
                self.columns, row.middles, row.ratios, row.spreads):
            cells.append(figure(middle, column.digits))
            if column.is_compared:
                cells.append("" if row.way == self.ours
                             else faster(ratios, spread))
        return cells

    def heads(self):
        heads = ["way"]
        for column in self.columns:
            heads += [column.name, "ours is faster by"][:1 + column.is_compared]
        return heads

    def markdown(self, level="##"):
        """Lines: a heading and a table for each place."""
        heads, lines = self.heads(), []
        for place in self.seen:
            lines += [f"{level} {', '.join(place)}", "",
                      "| " + " | ".join(heads) + " |",
                      "|---|" + "---:|" * (len(heads) - 1)]
            lines += ["| " + " | ".join(self.cells(row)) + " |"
                      for row in self.rows(place)]
            lines.append("")
        return lines
