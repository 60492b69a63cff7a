# SPDX-License-Identifier: BSD-3-Clause
"""What the commands of recordings have in common."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
from typing import Any, Coroutine, List, NamedTuple, Optional, Tuple, TypeVar

from ._chunks import MEMORY_BYTES
from ._cmd import Usage, number
from ._mcap import names
from ._signals import Caught
from .recording import Reader

T = TypeVar("T")

TOPIC = "maps"  # of a URL without a name
COMPRESSIONS = "none", "lz4", "zstd"


class Named(NamedTuple):
    """NAME=URL, or URL."""
    name: Optional[str]
    url: str


def named(word: str) -> Named:
    match = re.fullmatch(r"([\w./-]+)=(.+)", word)
    return Named(None, word) if match is None else Named(match[1], match[2])


def check_names(given: List[Named]) -> None:
    """Each of several has its own."""
    of = [one.name for one in given]
    if len(of) > 1 and None in of:
        raise Usage("several URLs: give each a name, as left=URL right=URL")
    for name in of:
        if of.count(name) > 1:
            raise Usage(f"the name '{name}' occurs twice")


def moment(text: str) -> float:
    """Seconds, of "90", "1:30" or "1:02:03.5"."""
    if not re.fullmatch(r"(\d+:){0,2}\d+(\.\d+)?", text):
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a time in a recording: 90, 1:30 or 1:02:03.5")
    total = 0.
    for part in text.split(":"):
        total = 60 * total + float(part)
    return total


def add_part(parser: argparse.ArgumentParser) -> None:
    """Which part of a recording: see part_of()."""
    parser.add_argument("--from", dest="start", type=moment, metavar="TIME",
                        help="from there on: 90, 1:30 or 1:02:03.5 from the "
                        "beginning")
    parser.add_argument("--to", dest="end", type=moment, metavar="TIME",
                        help="up to there, likewise")
    parser.add_argument("--topic", action="append", metavar="NAME",
                        help="this topic alone; may be repeated")
    parser.add_argument("--memory", type=number, default=MEMORY_BYTES,
                        metavar="BYTES", help="that the recording may take, "
                        "which a small file may expand to: 4G; default 1G, or "
                        "the size of the file")


def part_of(reader: Reader, args: argparse.Namespace
            ) -> Tuple[Optional[int], Optional[int]]:
    """The times of the part; None: as far as it goes."""
    if args.start is not None and args.end is not None and \
            args.start >= args.end:
        raise Usage(f"--from {args.start:g} is not before --to {args.end:g}")
    first, last = reader.start_ns, reader.end_ns
    if args.start is not None and first + int(args.start * 1e9) > last:
        raise Usage(f"--from {args.start:g}: the recording ends after "
                    f"{(last - first) / 1e9:.3f} s")
    for topic in args.topic or ():
        if topic not in reader.topics:
            raise Usage(f"--topic {topic}: the recording has "
                        f"{names(list(reader.topics))}")
    start, end = (None if at is None else first + int(at * 1e9)
                  for at in (args.start, args.end))
    return start, end


async def until_signal(work: Coroutine[Any, Any, T]) -> Optional[T]:
    """What it returns; None where the first signal has ended it."""
    with Caught(asyncio.get_running_loop()) as caught:
        assert caught.came is not None
        working = asyncio.ensure_future(work)
        coming = asyncio.ensure_future(caught.came.wait())
        try:
            await asyncio.wait({working, coming},
                               return_when=asyncio.FIRST_COMPLETED)
        finally:
            coming.cancel()
            working.cancel()  # nothing, where it is done
        with contextlib.suppress(asyncio.CancelledError):
            return await working
        return None
