# SPDX-License-Identifier: BSD-3-Clause
"""look.py HTML OUT: looks at the site as a person does, in Chromium.

Each page is opened at the width of a desk and of a phone, light and dark. A page
that is wider than its window is a fault and names what sticks out of it; so are
errors on the console, text without contrast to what is behind it, and words that
the search finds no page for. Pictures of some pages are left in OUT.
"""

import functools
import http.server
import pathlib
import shutil
import sys
import threading

from playwright.sync_api import sync_playwright

from check import SOUGHT

SITE, OUT = (pathlib.Path(name).resolve() for name in sys.argv[1:3])
WIDTHS = {"desk": 1280, "phone": 390}
SHOWN = ("index", "docs/README", "docs/performance", "docs/start/first-message",
         "docs/understand/choosing", "docs/understand/paths", "c/endpoint",
         "python")

# What is wider than the window and has no scrollbar of its own around it.
STICKS_OUT = """() => {
    const wide = document.documentElement.clientWidth;
    const boxed = one => {
        for (; one; one = one.parentElement) {
            const style = getComputedStyle(one);
            if (style.overflowX != 'visible' || style.position == 'fixed')
                return true;
        }
        return false;
    };
    return [...document.querySelectorAll('.content *')].filter(one =>
        one.getBoundingClientRect().right > wide + 1 && !boxed(one.parentElement)
    ).slice(0, 3).map(one => one.outerHTML.slice(0, 90));
}"""

# Texts, in some hundred places of a page, that are hard to tell from what is
# behind them: a ratio of less than 3 by WCAG's formula.
PALE = """() => {
    const numbers = color => color.match(/[\\d.]+/g).map(Number);
    const light = color => {
        const [r, g, b] = numbers(color).slice(0, 3).map(one => {
            one /= 255;
            return one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = one => {
        for (; one; one = one.parentElement) {
            const color = numbers(getComputedStyle(one).backgroundColor);
            if (color.length < 4 || color[3] == 1)
                return `rgb(${color.slice(0, 3)})`;
        }
        return 'rgb(255, 255, 255)';
    };
    const pale = new Set();
    const texts = [...document.querySelectorAll('.content *')].filter(one =>
        [...one.childNodes].some(node => node.nodeType == 3 && node.data.trim())
        && one.getClientRects().length);
    for (const one of texts.slice(0, 400)) {
        const [a, b] = [getComputedStyle(one).color, behind(one)].map(light);
        if ((Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 3)
            pale.add(one.outerHTML.slice(0, 90));
    }
    return [...pale].slice(0, 3);
}"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


def look(tab, where, name, faults):
    """At one page in each of the four ways."""
    said = []

    def hear(line):
        if line.type == "error":
            said.append(f"the console says {line.text}")

    tab.on("console", hear)
    tab.goto(f"{where}/{name}.html")
    for width, pixels in WIDTHS.items():
        tab.set_viewport_size({"width": pixels, "height": 900})
        said += [f"on a {width}, sticks out: {one}"
                 for one in tab.evaluate(STICKS_OUT)]
        for scheme in "light", "dark":
            tab.emulate_media(color_scheme=scheme)
            if width == "desk":
                said += [f"{scheme}, is pale: {one}"
                         for one in tab.evaluate(PALE)]
            if name in SHOWN:
                tab.screenshot(path=OUT / f"{name.replace('/', '-')}-{width}-"
                               f"{scheme}.png")
    tab.remove_listener("console", hear)
    faults += [f"{name}: {one}" for one in said]


def search(tab, where, faults):
    """As a reader does."""
    for word in SOUGHT:
        tab.goto(f"{where}/search.html?q={word}")
        tab.wait_for_function("() => document.querySelector("
                              "'.search-summary, #search-results p')"
                              "?.textContent.match(/[Ff]ound|did not match/)")
        if not tab.locator("#search-results li a").count():
            faults.append(f"the search finds nothing for {word!r}")


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=SITE))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    where = f"http://127.0.0.1:{server.server_port}"
    faults = []
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"),
                                       args=["--no-sandbox"])
        tab = browser.new_page()
        for path in sorted(SITE.rglob("*.html")):
            name = path.relative_to(SITE).with_suffix("").as_posix()
            if not name.startswith("_static"):
                look(tab, where, name, faults)
        search(tab, where, faults)
    print("\n".join(faults) or f"all is well; pictures are in {OUT}")
    sys.exit(bool(faults))


main()
