# SPDX-License-Identifier: BSD-3-Clause
"""Measures what dicts of arrays cost to another process and back, in C, without
and with asyncio, beside what one would use instead (python -m tensormsg.bench,
whose --help says which ways there are), and prints a table; --plot draws it.

With FILE: draws what was measured before, by this (--json) or by the command
`tensormsg perf` (--json or --csv), which also measures TCP and other machines.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from typing import Any, List, Tuple

from . import _plot, bench
from ._cmd import DONE, FAILED, BadInput, Usage, number


def numbers(text: str) -> List[int]:
    """7,1K,64:4M,64:4M:4: A:B is A, twice that, and so on, and at last B."""
    made = []
    for item in text.split(","):
        first, *more = map(number, item.split(":"))
        last, by = (*more, 2)[:2] if more else (first, 2)
        if len(more) > 2 or last < first or by < 2:
            raise argparse.ArgumentTypeError(f"'{item}' is not A:B or A:B:F")
        while first < last:
            made.append(first)
            first *= by
        made.append(last)
    return made


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-b", "--bytes", type=numbers, metavar="LIST",
                        help="bytes of each array, as 64,1K or 64:4M:4")
    parser.add_argument("-T", "--tensors", type=numbers, metavar="LIST",
                        help="arrays of each dict; default 8")
    bench.add_arguments(parser)
    parser.add_argument("--json", action="store_true",
                        help="print rows as JSON, and the table to standard "
                        "error")
    parser.add_argument("--plot", metavar="FILE",
                        help="draw it: .svg, .png or .pdf (needs matplotlib)")
    parser.add_argument("-f", "--force", action="store_true",
                        help="replace the file of --plot")
    parser.add_argument("files", metavar="FILE", nargs="*")


def check(args: argparse.Namespace) -> None:
    if args.files and not args.plot:
        raise Usage("a FILE of rows is drawn: give --plot")
    if args.plot and not args.force and os.path.lexists(args.plot):
        raise BadInput(f"{args.plot}: the file exists (--force replaces it)")
    why = _plot.fault(args.plot) if args.plot else None
    why = why or bench.fault(args)
    if why is not None:
        raise Usage(why)


def rows_of(path: str) -> List[_plot.Row]:
    try:
        return _plot.read(path)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise BadInput(f"{path}: {why}") from None


def measured(args: argparse.Namespace) -> Tuple[bool, List[Any]]:
    """Whether all of it could be measured, and the rows."""
    if args.bytes or args.tensors:
        args.work = [(count, size) for size in args.bytes or [1 << 10]
                     for count in args.tensors or [8]]
    bench.prepare(args)
    where = contextlib.redirect_stdout(sys.stderr) if args.json else \
        contextlib.nullcontext()
    with where:
        table = bench.measure_all(args)
    if args.json:
        print(json.dumps(table.rows, indent=1))
    return not table.failed, table.rows


def run(args: argparse.Namespace) -> int:
    check(args)
    if args.files:
        good, rows = True, sum(map(rows_of, args.files), [])
    else:
        good, rows = measured(args)
    if args.plot and rows:
        try:
            _plot.draw(rows, args.plot)
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"a row lacks a column to draw: {error}") from None
    return DONE if good else FAILED
