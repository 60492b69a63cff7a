# SPDX-License-Identifier: BSD-3-Clause
"""Copies a part of a recording into a new MCAP file. Without a part it is all of
it: a recording whose writer was killed is whole then. Needs the packages of
`pip install 'tensormsg[mcap]'`.
"""

from __future__ import annotations

import argparse

from ._cmd import DONE, Usage
from ._topics import COMPRESSIONS, add_part, part_of
from .recording import Reader, cut


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_part(parser)
    parser.add_argument("--compression", choices=COMPRESSIONS, default="none",
                        help="of the new file; default none")
    parser.add_argument("-f", "--force", action="store_true",
                        help="write over NEW")
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("new", metavar="NEW")


def run(args: argparse.Namespace) -> int:
    try:
        with Reader(args.file, memory_bytes=args.memory) as reader:
            start_ns, end_ns = part_of(reader, args)
        count = cut(args.file, args.new, topics=args.topic, start_ns=start_ns,
                    end_ns=end_ns, compression=args.compression,
                    overwrite=args.force, memory_bytes=args.memory)
    except (OSError, ValueError) as error:
        raise Usage(str(error)) from None
    print(f"{count} messages")
    return DONE
