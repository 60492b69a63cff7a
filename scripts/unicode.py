#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes src/core/shown_ranges.h, the characters that are not shown as they are:
the categories C* (control, format, surrogate, private, unassigned), Zl and Zp,
and those that Unicode calls ignorable by default, which have no width or are
blank. The table is of the Unicode of PyPI's unicodedata2 where it is installed,
else of Python's own. A character that a later Unicode assigns is escaped until
this runs again."""

import pathlib
import sys

try:
    import unicodedata2 as unicodedata
except ImportError:
    import unicodedata

# DerivedCoreProperties.txt: Default_Ignorable_Code_Point, without C*.
IGNORABLE = {0x34f, 0x115f, 0x1160, 0x17b4, 0x17b5, 0x180b, 0x180c, 0x180d,
             0x180f, 0x3164, 0xffa0, *range(0xfe00, 0xfe10),
             *range(0xe0100, 0xe01f0)}

HEAD = """/* SPDX-License-Identifier: BSD-3-Clause */
/* core/shown_ranges.h - the characters that tmsg_shown_hides() names, as ranges
 * of code points. scripts/unicode.py wrote this from Unicode {version}. */
#ifndef TMSG_CORE_SHOWN_RANGES_H
#define TMSG_CORE_SHOWN_RANGES_H

#include <stdint.h>

/* clang-format off */
static const struct {{
    uint32_t first, last;
}} tmsg_shown_ranges[] = {{
"""


def hidden(code):
    category = unicodedata.category(chr(code))
    return category[0] == "C" or category in ("Zl", "Zp") or code in IGNORABLE


def ranges():
    first = None
    for code in range(0x110001):
        if code < 0x110000 and hidden(code):
            first = code if first is None else first
        elif first is not None:
            yield first, code - 1
            first = None


def main():
    path = pathlib.Path(__file__).parents[1] / "src/core/shown_ranges.h"
    text = HEAD.format(version=unicodedata.unidata_version)
    line = "   "
    for first, last in ranges():
        entry = f" {{0x{first:x}, 0x{last:x}}},"
        if len(line + entry) > 80:
            text += line + "\n"
            line = "   "
        line += entry
    path.write_text(f"{text}{line}\n}};\n/* clang-format on */\n\n#endif\n",
                    encoding="ascii")


if __name__ == "__main__":
    sys.exit(main())
