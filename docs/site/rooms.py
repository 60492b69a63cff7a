# SPDX-License-Identifier: BSD-3-Clause
"""Draws the rooms of src/am, the lowest at the bottom, and the tables by which a
room calls one above it, as arrows at the right."""

import html
import re

ROW, NAME, WIDTH, TURN = 30, 90, 900, 26  # pixels; of an arrow, beside the last


def read(text):
    """(name, job) of each room, lowest first; (symbol, room) of each table."""
    rooms = re.findall(r"^(\w+): (.+)$", text, re.MULTILINE)
    tables = re.findall(r"^table (\w+): (\w+)/", text, re.MULTILINE)
    return rooms, tables


def filler_of(folder, symbol):
    """The room that fills a table, or the folder of src beside src/am."""
    return next(path.parent.name for path in sorted(folder.parent.rglob("*.c"))
                if re.search(rf"^const \w+ (\*const )?{symbol}(\[\w+\])? = ",
                             path.read_text(), re.MULTILINE))


def draw(rooms, tables, folder):
    height = ROW * (len(rooms) + 1)
    middle = {name: height - ROW * (i + 1) + ROW // 2 - 4
              for i, (name, _) in enumerate(rooms)}
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" '
           f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
           'font-size="14" '
           'fill="currentColor">',
           '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="7" '
           'refY="4" orient="auto"><path d="M0,0 L8,4 L0,8" fill="none" '
           'stroke="currentColor"/></marker></defs>']
    for name, job in rooms:
        y = middle[name]
        out.append(f'<rect x="1" y="{y - ROW // 2 + 2}" width="560" '
                   f'height="{ROW - 4}" fill="none" stroke="currentColor"/>'
                   f'<text x="10" y="{y + 5}" font-weight="bold">{name}</text>'
                   f'<text x="{NAME + 10}" y="{y + 5}">{html.escape(job)}</text>')
    for i, (symbol, room) in enumerate(tables):
        before = [of for _, of in tables[:i]].count(room)  # in the same room
        x, low, high = 580 + TURN * i, middle[room] + 14 * before - 6, \
            middle.get(filler_of(folder, symbol), 8)  # from above all rooms
        out.append(f'<path d="M561,{low} H{x} V{high + 6 * (i - 2)} H563" '
                   'fill="none" stroke="currentColor" stroke-dasharray="4 3" '
                   'marker-end="url(#tip)"/>'
                   f'<text x="{585 + TURN * len(tables)}" y="{low + 5}">'
                   f'{symbol}</text>')
    return "\n".join(out) + "\n</svg>\n"


def picture(source):
    """An SVG of the file src/am/ROOMS."""
    rooms, tables = read(source.read_text(encoding="utf-8"))
    return draw(rooms, tables, source.parent)
