# SPDX-License-Identifier: BSD-3-Clause
"""check.py HTML: looks through the site that Sphinx has made there.

Each link within the site leads to a page and to a place on it, each picture is
there and has an alternative text, each table's rows have as many cells as its
head, no text shows the signs of a table that was not taken for one, and the
search finds what newcomers look for.
"""

import html.parser
import json
import pathlib
import re
import sys
import urllib.parse

import snowballstemmer

SITE = pathlib.Path(sys.argv[1]).resolve()
SOUGHT = ("timeout", "GPU", "Jupyter", "Holoscan", "encrypt")


class Page(html.parser.HTMLParser):
    """The links, the places and the faults of one page."""

    def __init__(self, path):
        super().__init__()
        self.links, self.places, self.faults = [], set(), []
        self._tables, self._rows, self._quiet = [], [], 0
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if "id" in attrs:
            self.places.add(attrs["id"])
        if tag == "a" and "href" in attrs:
            self.links.append(attrs["href"])
        elif tag == "img":
            self.links.append(attrs["src"])
            if not attrs.get("alt") and "sidebar-logo" not in attrs.get(
                    "class", ""):
                self.faults.append(f"{attrs['src']} has no alternative text")
        elif tag == "table":
            self._tables.append(set())
        elif tag == "tr":
            self._rows.append(0)
        elif tag in ("td", "th") and self._rows:
            self._rows[-1] += int(attrs.get("colspan") or 1)
        elif tag in ("pre", "script", "style", "code"):
            self._quiet += 1

    def handle_endtag(self, tag):
        if tag == "tr" and self._rows:
            self._tables[-1].add(self._rows.pop())
        elif tag == "table" and len(cells := self._tables.pop()) > 1:
            self.faults.append(f"a table has rows of {sorted(cells)} cells")
        elif tag in ("pre", "script", "style", "code"):
            self._quiet -= 1

    def handle_data(self, data):
        if not self._quiet and re.search(r"\|\s*---|^\s*\|.*\|\s*$", data,
                                         re.MULTILINE):
            self.faults.append(f"a broken table: {data.strip()[:60]!r}")


def leads_nowhere(path, link, pages):
    """What is wrong with a link of the page at `path`; "" if nothing is."""
    where = urllib.parse.urlsplit(link)
    if where.scheme or where.netloc or link in ("#", ""):
        return ""
    target = (path.parent / urllib.parse.unquote(where.path)).resolve() \
        if where.path else path
    if not target.is_file():
        return f"{link}: there is no such page"
    if where.fragment and target in pages and \
            urllib.parse.unquote(where.fragment) not in pages[target].places:
        return f"{link}: the page has no such place"
    return ""


def not_found():
    """The words of SOUGHT that the search finds on no page."""
    script = (SITE / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(script[script.index("(") + 1:script.rindex(")")])
    stem = snowballstemmer.stemmer("english").stemWord
    return [word for word in SOUGHT
            if stem(word.lower()) not in {**index["terms"],
                                          **index["titleterms"]}]


def main():
    pages = {path: Page(path) for path in sorted(SITE.rglob("*.html"))
             if "_static" not in path.parts}
    faults = [f"the search does not find {word!r}" for word in not_found()]
    for path, page in pages.items():
        wrong = page.faults + [
            fault for link in dict.fromkeys(page.links)
            if (fault := leads_nowhere(path, link, pages))]
        faults += [f"{path.relative_to(SITE)}: {fault}" for fault in wrong]
    print("\n".join(faults) or f"{len(pages)} pages are whole")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
