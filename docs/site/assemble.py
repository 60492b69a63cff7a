# SPDX-License-Identifier: BSD-3-Clause
"""assemble.py SOURCE [OUT]: lays out what Sphinx reads in OUT; without OUT it
looks only whether it could.

The documents are the repository's own, at the places that they have there, so
that links between them hold in both. Links to what is no document are turned to
the page that shows it: a header's, an example's, the man page's. README.md is
the first page, and has the table of contents behind it.
"""

import ast
import functools
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import pictures
import rooms

SOURCE = pathlib.Path(sys.argv[1]).resolve()
OUT = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None
LANGUAGES = {".c": "c", ".cpp": "cpp", ".go": "go", ".h": "c", ".hpp": "cpp",
             ".py": "python", ".yaml": "yaml"}
KUBERNETES = "examples/kubernetes/README.md"
# The search leaves these out: sources and records would hide the documents.
UNSEARCHED = re.compile(r"CHANGELOG|bench/|license|"
                        r"examples/(?!index|.*README)|bindings/go/examples/")


def listed():
    """What docs/README.md lists: the pages of each section, in its order."""
    text = (SOURCE / "docs/README.md").read_text(encoding="utf-8")
    found = {}
    for part in text.split("\n## ")[1:]:
        title, _, rest = part.partition("\n")
        if pages := re.findall(r"^- \[.*?\]\(([\w/-]+\.md)\)", rest,
                               re.MULTILINE):
            found[title] = [f"docs/{page}" for page in pages]
    there = {path.relative_to(SOURCE).as_posix()
             for path in (SOURCE / "docs").rglob("*.md")
             if "history" not in path.parts}
    if unlike := {"docs/README.md", *sum(found.values(), [])} ^ there:
        sys.exit("assemble.py: not both in docs/ and in the list of "
                 f"docs/README.md: {sorted(unlike)}")
    return found


def examples():
    for path in sorted([*(SOURCE / "examples").rglob("*"),
                        *(SOURCE / "bindings/go/examples").glob("*/main.go")]):
        if path.suffix in LANGUAGES:
            yield path.relative_to(SOURCE).as_posix()


SECTIONS = listed()
RESULTS = sorted((path.relative_to(SOURCE).as_posix() for path in
                  (SOURCE / "bench/results").glob("*.md")), reverse=True)
PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md",
         "docs/README.md", *sum(SECTIONS.values(), []),
         KUBERNETES,
         "bench/compare/README.md", "bench/counts/README.md", *RESULTS]
SHOWN = {name: f"{name}.md" for name in examples()}
SHOWN.update({
    f"include/tensormsg/{path.name}": f"c/{path.stem}.md"
    for path in (SOURCE / "include/tensormsg").glob("*.h")})
SHOWN.update({"docs/man/tensormsg.1": "command.md", "README.md": "index.md",
              "examples/python": "examples/index.md", "LICENSE": "license.md"})


def turned(page):
    """The links of one page, as the site has them."""
    def turn(match):
        place, hash_, anchor = match[1].partition("#")
        if not place or "://" in place:
            return match[0]
        here = (SOURCE / page).parent / place
        name = here.resolve().relative_to(SOURCE).as_posix()
        if here.suffix == ".svg":
            write(name, here.read_text(encoding="utf-8"))
            return match[0]
        if name in SHOWN:
            return "](" + "../" * page.count("/") + \
                f"{SHOWN[name]}{hash_}{anchor})"
        if name not in PAGES:
            sys.exit(f"assemble.py: {page}: the site has no page for {name}")
        return match[0]
    return turn


def write(name, text):
    if OUT is None:
        return
    path = OUT / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if UNSEARCHED.match(name) and path.suffix == ".md":
        text = f"---\nnosearch: true\n---\n\n{text}"
    path.write_text(text, encoding="utf-8")


def toctree(caption, entries):
    lines = "\n".join(entries)
    return (f"\n```{{toctree}}\n:caption: {caption}\n:hidden:\n\n{lines}\n"
            "```\n")


def contents():
    """The table of contents, which is the first page's."""
    more = {
        "Start": ["docs/README", "examples/index"],
        "How to": [KUBERNETES[:-3]],
        "Reference": ["C reference <c/index>", "Python reference <python>", "command"],
        "The project": [
            "bench/compare/README", *(page[:-3] for page in RESULTS),
            "bench/counts/README", "CHANGELOG", "CONTRIBUTING", "license"]}
    return "".join(
        toctree(title, [page[:-3] for page in pages] + more.get(title, []))
        for title, pages in SECTIONS.items())


def opening(header):
    """The comment at the top of a header: its title, then its story as lines
    of Markdown, with the code of it."""
    first = re.search(r"^/\* tensormsg/\w+\.h - (.*?)\*/", header,
                      re.MULTILINE | re.DOTALL)[1]
    title, _, story = re.sub(r"^ \* ?", "", first, flags=re.MULTILINE
                             ).partition("\n\n")
    story = re.sub(r"(?:^    .+\n)+", lambda code:
                   f"```c\n{re.sub(r'^    ', '', code[0], flags=re.MULTILINE)}"
                   "```\n", story, flags=re.MULTILINE)
    return " ".join(title.split()), story.strip()


def write_c():
    """A page for each header: its first line is the title, then comes its
    story, and Doxygen's XML is the rest."""
    titles = {}
    for path in sorted((SOURCE / "include/tensormsg").glob("*.h")):
        title, story = opening(path.read_text(encoding="utf-8"))
        titles[path.stem] = title[0].upper() + title[1:]
        write(f"c/{path.stem}.md",
              f"# tensormsg/{path.name}\n\n{titles[path.stem]}\n\n{story}\n\n"
              f"```{{doxygenfile}} {path.name}\n:project: tensormsg\n```\n")
    rows = "\n".join(f"| [`tensormsg/{stem}.h`]({stem}.md) | {title} |"
                     for stem, title in titles.items())
    entries = "\n".join(titles)
    write("c/index.md",
          "# The C interface\n\nWhat each function promises stands in its "
          "header; these pages are made from them. `tensormsg/tensormsg.h` "
          "includes them all. How they go together is "
          "in [ownership](../docs/understand/ownership.md).\n\n"
          f"| | |\n|---|---|\n{rows}\n\n"
          f"```{{toctree}}\n:hidden:\n\n{entries}\n```\n")


def write_examples():
    names = list(examples())
    for name in names:
        language = LANGUAGES[pathlib.Path(name).suffix]
        code = (SOURCE / name).read_text(encoding="utf-8")
        write(f"{name}.md", f"# {name}\n\n```{language}\n{code}```\n")
    entries = "\n".join(f"/{name}" for name in names)
    write("examples/index.md", "# Examples\n\n`make` builds those in C as "
          "`build/examples/NAME`; the tests run all of them.\n\n"
          f"```{{toctree}}\n\n{entries}\n```\n")


def write_command():
    if OUT is None:
        return
    shown = subprocess.run(
        ["groff", "-man", "-Tutf8", "-P-cbou", "-rLL=78n", "-rHY=0",
         str(SOURCE / "docs/man/tensormsg.1")],
        check=True, capture_output=True, text=True, encoding="utf-8").stdout
    write("command.md", f"# The command\n\n```text\n{shown.strip()}\n```\n")


def python_page():
    """What the package has beyond the names of python.rst comes at "further"
    there."""
    package = SOURCE / "bindings/python/src/tensormsg"
    text = (SOURCE / "docs/site/python.rst").read_text(encoding="utf-8")
    names = ast.literal_eval(re.search(
        r"^__all__ = (\[.*?\])", (package / "__init__.py").read_text(),
        re.MULTILINE | re.DOTALL)[1])
    errors = re.findall(r"^class (\w+)", (package / "errors.py").read_text(),
                        re.MULTILINE)
    further = [name for name in names if name not in [*errors, "sync"] and
               not re.search(rf"tensormsg\.{name}$", text, re.MULTILINE)]
    return text.replace(".. further\n", "".join(
        f".. autoclass:: tensormsg.{name}\n   :members:\n"
        "   :inherited-members:\n" for name in further))


@functools.cache
def plotted(source):
    """What bench/plot.py draws of figures, by name."""
    with tempfile.TemporaryDirectory() as folder:
        drawn = subprocess.run(
            [sys.executable, str(SOURCE / "bench/plot.py"), str(source),
             f"{folder}/plot"],
            check=True, stdout=subprocess.PIPE, text=True, encoding="utf-8")
        return {path.stem.removeprefix("plot-"): path.read_text("utf-8")
                for path in map(pathlib.Path, drawn.stdout.splitlines())}


def figures(page):
    """The pictures of the JSON beside a page of bench/results."""
    path = (SOURCE / page).with_suffix(".json")
    if page not in RESULTS or not path.exists():
        return ""
    return "".join(pictures.inline(svg, name, name)
                   for name, svg in plotted(path).items())


PLOTS = {name: lambda name=name: plotted(SOURCE / "bench/results")[name]
         for name in ("latency", "bandwidth", "peers", "cores")}
DRAWN = {"rooms": lambda: rooms.picture(SOURCE / "src/am/ROOMS"), **PLOTS}


def check_pictures(texts):
    """Pages name the pictures that there are, each of them."""
    named = {name for text in texts for name, _ in pictures.MARK.findall(text)}
    there = {path.stem for path in pictures.SOURCES.glob("*.dot")} | {*DRAWN}
    if named != there:
        sys.exit("assemble.py: not both named by a page and there to be drawn: "
                 f"{sorted(named ^ there)}")


def main():
    if OUT is not None:
        shutil.rmtree(OUT, ignore_errors=True)
    write_c()
    write_examples()
    write_command()
    write("license.md", "# License\n\n```text\n" +
          (SOURCE / "LICENSE").read_text(encoding="utf-8") + "```\n")
    texts = {page: (SOURCE / page).read_text(encoding="utf-8")
             for page in PAGES}
    check_pictures(texts.values())
    for page, text in texts.items():
        # Not of code, of which Go's has "](" as well.
        text = "```".join(
            part if i % 2 else re.sub(r"\]\(([^)\s]+)\)", turned(page), part)
            for i, part in enumerate(text.split("```")))
        if page == "README.md":
            text += contents()
        if OUT is not None:
            text = pictures.drawn(text, DRAWN) + figures(page)
        write(SHOWN.get(page, page), text)
    write("python.rst", python_page())


main()
