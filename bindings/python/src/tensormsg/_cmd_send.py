# SPDX-License-Identifier: BSD-3-Clause
"""Sends files, one after the other, to `python -m tensormsg recv` or the command
`tensormsg recv`, which write them as files again (docs/wire/transfer.md). A
file that
the receiver refuses does not hold up the next, and one that changes while it is
sent is not kept.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any, Dict, Tuple

from . import sync
from ._cmd import DONE, FAILED, add_connecting, complain, with_peer
from ._cmd_data import Watched, event, in_units, lines, size_of
from ._lib import hot
from .errors import Closed, Error, PeerLost, Status, TimedOut, error_of

RATE = 32 << 20  # bytes for which --timeout grows by a second


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connecting(parser)
    parser.add_argument("--verify", action="store_true",
                        help="send a checksum of each array, which the receiver "
                        "compares")
    parser.add_argument("-v", "--verbose", action="store_true",
                        help="print time, rate and each array")
    parser.add_argument("--json", action="store_true",
                        help="print one JSON object a line and file")
    parser.add_argument("url", metavar="URL")
    parser.add_argument("files", metavar="FILE", nargs="+")


class Refused(Exception):
    """The receiver does not take, or keep, this file."""


def answer(ep: sync.Endpoint, number: int, limit: float, alive_s: float,
           states: Tuple[str, ...]) -> Dict[str, Any]:
    """What it says of file `number`, within `limit` seconds; each time it says
    that it is alive, `alive_s` more (0: that gives it none)."""
    end = time.monotonic() + limit
    while True:
        try:
            said = ep.recv(max(0., end - time.monotonic())).meta
        except TimedOut:
            raise error_of(Status.TIMED_OUT,
                           "the receiver says nothing") from None
        if said.get("transfer.reply") != number:
            continue
        state = said.get("transfer.state")
        if state == "failed":
            raise Refused(str(said.get("transfer.error")))
        if state in states:
            return said
        if state == "alive" and alive_s:
            end = time.monotonic() + alive_s


def send(ep: sync.Endpoint, number: int, it: Watched,
         args: argparse.Namespace) -> Dict[str, Any]:
    """What is told of a file that was sent."""
    file, size = it.file, size_of(it.file)
    limit = args.timeout + size / RATE
    began = time.monotonic()
    ep.send({}, meta={"transfer.offer": number, "transfer.bytes": size,
                      "transfer.checked": True,
                      "file_name": os.path.basename(it.path),
                      "file_format": file.meta["file_format"]})
    go = answer(ep, number, args.timeout, 0., ("go",))
    ep.send(file.tree(), meta=file.meta, acked=True, verify=args.verify,
            timeout=limit)
    moved = time.monotonic() - began
    changed = it.changed()
    if go.get("transfer.checked"):
        verdict = {"transfer.verdict": number, "transfer.state": "same"}
        if changed is not None:
            verdict.update({"transfer.state": "changed",
                            "transfer.error": changed})
        ep.send({}, meta=verdict)
    done = answer(ep, number, limit, args.timeout, ("done",))
    if changed is not None:  # an older receiver may have kept it
        raise Refused(changed)
    return {"kept_as": done.get("transfer.file"), "seconds_moved": moved,
            "seconds_kept": time.monotonic() - began}


def tell(it: Watched, about: Dict[str, Any], args: argparse.Namespace) -> None:
    if args.json:
        print(event("sent", it.file, file=it.path, **about), flush=True)
    elif args.verbose:
        size, took = size_of(it.file), about["seconds_moved"]
        print(hot.shown(f"{it.path}: {in_units(size)}, moved in {took:.4f} s "
                        f"({size / took / 1e9:.3g} GB/s)"),
              *map(hot.shown, lines(it.file)), sep="\n", flush=True)


def send_all(ep: sync.Endpoint, files: Any, args: argparse.Namespace) -> int:
    code = DONE
    for number, it in enumerate(files, 1):
        try:
            tell(it, send(ep, number, it, args), args)
        except (Error, Refused) as error:
            complain(f"{it.path}: {error}")
            if args.json:
                print(event("failed", file=it.path, error=str(error)))
            code = FAILED
            if isinstance(error, (Closed, PeerLost, TimedOut)):
                break
    return code


def run(args: argparse.Namespace) -> int:
    files = [Watched(path) for path in args.files]
    return with_peer(args, lambda ep: send_all(ep, files, args))
