# SPDX-License-Identifier: BSD-3-Clause
"""header_filter.py FILE: a public header with its comments marked for Doxygen.

A comment belongs to what follows it, or, where code stands before it on its
line, to that. What Doxygen would take for a command is escaped, `code` is set
as such, and "Errors:" and "Thread:" begin a paragraph. The errors behind it, a
line each, are a list.
"""

import re
import sys

COMMENT = re.compile(r"^(?P<code>[^\n]*?)/\*(?P<text>.*?)\*/",
                     re.DOTALL | re.MULTILINE)
# " *   NAME - when", whose further lines are set in by two more.
ITEM = re.compile(r"^ +\*   ([A-Z_]+(?:, [A-Z_]+)*)"
                  r"(?: - (.*(?:\n +\*     \S.*)*))? *$", re.MULTILINE)

# " *  - text", likewise.
POINT = re.compile(r"^ +\*  - (.*(?:\n +\*    \S.*)*)$", re.MULTILINE)


def joined(text):
    return " ".join(re.sub(r"\n +\* ", " ", text).split())


def marked(text):
    """The inside of one comment, in Doxygen's words."""
    text = re.sub(r"([\\@#%&<>])", r"\\\1", text)
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", text)
    text = re.sub(r"(?<=[.:)])\s+(?:\*\s+)?(Errors|Threads?)(?=[^.]{0,40}:)",
                  r"\n *\n * <b>\1</b>", text)
    text = ITEM.sub(lambda item: f" * - <b>{item[1]}</b>" + (
        f": {joined(item[2])}" if item[2] else ""), text)
    text = POINT.sub(lambda point: f" * - {joined(point[1])}", text)
    text = re.sub(r"^( \* - .*\n)(?= \* [^-\s])", r"\1 *\n", text,
                  flags=re.MULTILINE)
    lines = text.split("\n")
    out = []
    block = False
    for line in lines:  # a table of blanks stays one
        inset = re.match(r" \*   +\S", line) is not None
        if inset != block and " *" == line[:2]:
            out.append(" * \\verbatim" if inset else "\\endverbatim")
            block = inset
        out.append(re.sub(r"\\([\\@#%&<>])", r"\1", line[4:]) if block
                   else line)
    return "\n".join(out) + (" \\endverbatim\n" if block else "")


def comment(match):
    code, text = match["code"], match["text"]
    if re.match(r" (SPDX-|tensormsg/\w+\.h - )", text):
        return code
    return f"{code}/**{'<' if code.strip() else ''}{marked(text)}*/"


with open(sys.argv[1], encoding="utf-8") as header:
    sys.stdout.write(COMMENT.sub(comment, header.read()))
