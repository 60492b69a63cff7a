# SPDX-License-Identifier: BSD-3-Clause
"""Prints versions, which UCX this is, and what it finds on this machine. With a
URL: connects to it, and prints which transports carry maps there and why, and
the names that the peer offers.
"""

from __future__ import annotations

import argparse
import json
from typing import Any, Iterator

import tensormsg

from ._cmd import DONE, add_connecting, dial
from ._lib import hot


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connecting(parser)
    parser.add_argument("--json", action="store_true",
                        help="as one JSON object")
    parser.add_argument("url", metavar="URL", nargs="?")


def lines(value: Any, indent: str = "") -> Iterator[str]:
    """A description, as text."""
    for key, item in value.items() if isinstance(value, dict) else \
            (("-", item) for item in value):
        if isinstance(item, (dict, list)) and item:
            yield f"{indent}{key}"
            yield from lines(item, indent + "  ")
        else:
            yield f"{indent}{key:<18} " + (
                item if isinstance(item, str) else json.dumps(item))


def described(args: argparse.Namespace) -> Any:
    if args.url is None:
        return tensormsg.info()
    with dial(args) as ep:
        return {"here": tensormsg.info(), "connection": ep.describe(),
                "offers": ep.offers(timeout=args.timeout)}


def run(args: argparse.Namespace) -> int:
    about = described(args)
    print(json.dumps(about, indent=1, default=str) if args.json else
          "\n".join(map(hot.shown, lines(about))))
    return DONE
