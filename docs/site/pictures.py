# SPDX-License-Identifier: BSD-3-Clause
"""Pictures as parts of a page: SVG in the colour of the page's text, so that they
read well in light and in dark. A page names a picture by a comment:

    <!-- picture NAME: what it shows, in words -->

Its source is docs/site/pictures/NAME.dot, unless another program draws it.
"""

import html
import pathlib
import re
import subprocess

SOURCES = pathlib.Path(__file__).resolve().parent / "pictures"
MARK = re.compile(r"<!-- picture ([\w-]+): (.*?) -->", re.DOTALL)
# Of Graphviz: what it draws has these, unless its source says otherwise.
USUAL = ["-Gbgcolor=transparent", "-Gfontname=sans-serif", "-Gfontsize=12",
         "-Nfontname=sans-serif", "-Nfontsize=12", "-Nshape=box",
         "-Nstyle=rounded", "-Efontname=sans-serif", "-Efontsize=11",
         "-Earrowsize=0.7"]


def graphviz(name):
    return subprocess.run(
        ["dot", "-Tsvg", *USUAL, str(SOURCES / f"{name}.dot")], check=True,
        capture_output=True, text=True, encoding="utf-8").stdout


def inline(svg, name, words):
    """An SVG file as a part of a page; `words` are for readers who cannot see
    it."""
    svg = svg[svg.index("<svg"):]
    # A style would be the whole page's.
    svg = re.sub(r"<!--.*?-->\n?|<(title|metadata|style)\b.*?</\1>\n?", "", svg,
                 flags=re.DOTALL)
    svg = re.sub(r'\b(fill|stroke)(="|: )(black|#000000)\b', r"\1\2currentColor",
                 svg)
    # A page may have several pictures, but each id only once.
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    tag = re.match("<svg[^>]*>", svg)[0]
    width = float(re.search(r'\bwidth="([\d.]+)', tag)[1])
    plain = re.sub(r'\s(width|height)="[^"]*"', "", tag)
    svg = (f'{plain[:-1]} role="img" aria-label="{html.escape(words)}" '
           f'style="fill: currentColor; width: 100%; '
           f'max-width: {width * 4 / 3:.0f}px">{svg[len(tag):]}')
    svg = "\n".join(line for line in svg.splitlines() if line.strip())
    return f"\n```{{raw}} html\n<div class=\"picture\">\n{svg}\n</div>\n```\n"


def drawn(text, others):
    """A page with its pictures. `others` draws those of other programs, by
    name."""
    def draw(match):
        name, words = match[1], " ".join(match[2].split())
        return inline(others[name]() if name in others else graphviz(name),
                      name, words)
    return MARK.sub(draw, text)
