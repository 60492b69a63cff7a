# SPDX-License-Identifier: BSD-3-Clause
"""make_faces.py FOLDER: writes the modules of the package's two faces, for
asyncio and blocking, from the templates beside this file.

A template is written for asyncio. The blocking face is the same text without
`async` and `await`, and with other names (RENAMED). A line of one face alone
ends in `# asyncio` or `# blocking`, in a docstring as well. A run of such lines
begins with the line `# asyncio:` or `# blocking:`, and ends with `# both:`."""

import pathlib
import re
import sys

# Of each module: its face, and the templates that it consists of.
FACE = ("head", "stream", "endpoint", "server", "publisher")
MODULES = {
    "_aio": ("asyncio", FACE),
    "_open": ("asyncio", ("open",)),
    "sync": ("blocking", (*FACE, "open")),
}
RENAMED = (
    (r"\basync (?=def|for|with)", ""),
    (r"\bawait ", ""),
    (r"\b__a(enter|exit|iter)__", r"__\1__"),
    (r"\bAsyncIterator\b", "Iterator"),
    (r"\bLoopHub\b", "Hub"),
    # The calls of a hub that wait.
    (r"\.finish\(", ".wait("),
    (r"\.take(_into)?\(", r".pull\1("),
    (r"\basyncio\.sleep\(", "time.sleep("),
)
RUN = re.compile(r" *# (asyncio|blocking|both):")
MARKED = re.compile(r"(.*?) *# (asyncio|blocking)")
HEAD = re.compile(r"^( *async def \w+\()(?:.*\n)*?.*:$", re.MULTILINE)


def chosen(template, face):
    """The lines of a template that a face has, without their marks."""
    run = "both"
    for line in template.splitlines():
        started, marked = RUN.fullmatch(line), MARKED.fullmatch(line)
        if started:
            run = started[1]
        elif run in ("both", face) and (not marked or marked[2] == face):
            yield marked[1] if marked else line


def renamed(text):
    for pattern, name in RENAMED:
        text = re.sub(pattern, name, text)
    return text


def blocking(text):
    def moved(head):
        """Parameters stay below the first one."""
        shorter = len(head[1]) - len(renamed(head[1]))
        return head[0].replace("\n" + " " * shorter, "\n")

    return renamed(HEAD.sub(moved, text))


def write(folder):
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    for module, (face, parts) in MODULES.items():
        lines = []
        for part in parts:
            path = pathlib.Path(__file__).with_name(f"{part}.py.in")
            lines += [*chosen(path.read_text(), face), "", ""]
        text = "\n".join(lines).rstrip("\n") + "\n"
        pathlib.Path(folder, f"{module}.py").write_text(
            blocking(text) if face == "blocking" else text)


if __name__ == "__main__":
    write(sys.argv[1])
