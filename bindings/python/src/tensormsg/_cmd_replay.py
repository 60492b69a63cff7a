# SPDX-License-Identifier: BSD-3-Clause
"""Publishes a recording as it was recorded: the same maps, at the same distances
in time. Each URL has the topic of its name, left=URL right=URL; one URL without a
name has all, with the metadata `topic` where there are several. --list prints
what there is. Needs the packages of `pip install 'tensormsg[mcap]'`.
"""

from __future__ import annotations

import argparse
import asyncio
import concurrent.futures
import json
import math
import time
from typing import Any, Dict, Iterator, List, Optional, Union

from . import _open
from ._aio import Endpoint, Publisher
from ._cmd import CLOSE_S, DONE, FAILED, Usage, add_admitting, proof, seconds
from ._data import shortened
from ._lib import hot
from ._mcap import names
from ._topics import Named, add_part, check_names, named, part_of, \
    until_signal
from .errors import Error, Status, error_of
from .recording import Reader, Record

Target = Union[Endpoint, Publisher]


def speed(text: str) -> float:
    try:
        value = math.inf if text == "max" else float(text)
    except ValueError:
        value = 0
    if not value > 0:
        raise argparse.ArgumentTypeError(f"'{text}': a number above 0, or max")
    return value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_part(parser)
    parser.add_argument("--speed", type=speed, default=1., metavar="X",
                        help="so many times as fast; max: as fast as "
                        "subscribers take it")
    parser.add_argument("--loop", action="store_true",
                        help="begin again at the end, until a signal comes")
    parser.add_argument("--subscribers", type=int, default=1, metavar="N",
                        help="of each URL, to wait for before it begins; "
                        "default 1")
    parser.add_argument("--mode", choices=("all", "live", "default"),
                        default="all", help="slow subscribers, as of "
                                            "publish(); default all: they "
                                            "slow the replay")
    parser.add_argument("-t", "--timeout", type=seconds, default=10.,
                        metavar="S", help="seconds to connect within, and for "
                        "the last maps to be taken; default 10")
    add_admitting(parser, True)
    parser.add_argument("--dial", action="store_true",
                        help="connect to each URL and send there, as a camera "
                        "that dials its viewer")
    parser.add_argument("--wait", action="store_true",
                        help="with --dial: wait, as long as --timeout says, "
                        "until somebody listens there")
    parser.add_argument("--list", action="store_true",
                        help="print topics and times, and publish nothing")
    parser.add_argument("--json", action="store_true", help="of --list")
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("target", metavar="[NAME=]URL", nargs="*", type=named)


def contents(reader: Reader) -> Dict[str, Any]:
    return {"seconds": (reader.end_ns - reader.start_ns) / 1e9,
            "start_ns": reader.start_ns, "was_cut": reader.was_cut,
            "topics": {name: topic._asdict()
                       for name, topic in reader.topics.items()}}


def show(reader: Reader, as_json: bool) -> None:
    about = contents(reader)
    if as_json:
        print(json.dumps(about, indent=1))
        return
    print(f"{about['seconds']:.3f} s" +
          (", cut: its writer was killed" if reader.was_cut else ""))
    for name, topic in reader.topics.items():
        kind = "maps" if topic.encoding == "tensormsg" else \
            f"images of {topic.of_map}" if topic.of_map else topic.encoding
        count = "?" if topic.messages is None else topic.messages
        print(hot.shown(f"{name:<24} {count:>8} {kind}"))


class Replay:
    def __init__(self, args: argparse.Namespace, reader: Reader,
                 pool: concurrent.futures.Executor) -> None:
        self._args = args
        self._reader = reader
        self._pool = pool
        self._part = part_of(reader, args)
        self._of = targets(reader, args)
        self._opened: List[Target] = []
        self._targets: Dict[str, Target] = {}  # by topic
        if next(self._records(), None) is None:
            raise Usage(f"{args.file} has no maps to publish in that part")
        self._names = len(self._of) > 1 and None in (
            target.name for target in args.target)
        self.sent, self.late_s = 0, 0.

    def _records(self) -> Iterator[Record]:
        return self._reader.read(list(self._of), start_ns=self._part[0],
                                 end_ns=self._part[1])

    async def _send(self, record: Record) -> None:
        meta = record.meta
        if self._names:
            meta["topic"] = record.topic
        target = self._targets[record.topic]
        how: Dict[str, Any] = {"copy": False} \
            if isinstance(target, Publisher) else {}
        try:
            await target.send(record.tree(), meta=meta, **how)
        except Error:
            raise
        except (OverflowError, TypeError, ValueError) as error:
            raise error_of(
                Status.MALFORMED, f"{self._args.file}: the map of "
                f"'{shortened(record.topic)}' at {record.time_ns} ns cannot be "
                f"sent: {error}") from None
        self.sent += 1

    async def _once(self) -> None:
        """One is read ahead while one is waited for."""
        def read() -> Any:
            return asyncio.get_running_loop().run_in_executor(
                self._pool, next, records, None)
        records = self._records()
        ahead, began = read(), None
        while True:
            record: Optional[Record] = await ahead
            if record is None:
                return
            ahead = read()
            if began is None:
                began, first_ns = time.monotonic(), record.time_ns
            due = began + (record.time_ns - first_ns) / 1e9 / self._args.speed
            await asyncio.sleep(max(due - time.monotonic(), 0))
            if self._args.speed < math.inf:
                self.late_s = max(self.late_s, time.monotonic() - due)
            await self._send(record)

    async def _target(self, named: Named) -> Target:
        args = self._args
        mode = None if args.mode == "default" else args.mode
        if args.dial:
            return await _open.connect(named.url, mode=mode, timeout=args.timeout,
                                       wait=args.wait, **proof(args))
        publisher = await _open.publish(
            named.url, mode=mode,
            allow_unauthenticated=args.allow_unauthenticated, **proof(args))
        print(" ".join(filter(None, (named.name, publisher.url))), flush=True)
        return publisher

    async def _open(self) -> None:
        for named in self._args.target:
            target = await self._target(named)
            self._opened.append(target)
            self._targets.update({topic: target for topic, url in
                                  self._of.items() if url == named.url})
        for target in self._opened:
            if isinstance(target, Publisher):
                await target.wait_for(self._args.subscribers)

    async def run(self) -> bool:
        close_s = CLOSE_S  # after a signal
        try:
            await self._open()
            await self._once()
            while self._args.loop:
                await self._once()
            close_s = self._args.timeout
        finally:
            await asyncio.gather(*(target.close(close_s)
                                   for target in self._opened))
        return True


def targets(reader: Reader, args: argparse.Namespace) -> Dict[str, str]:
    """The URL of each topic that is published."""
    check_names(args.target)
    if not args.target:
        raise Usage("where to publish it is missing: URL, or NAME=URL")
    there = [topic for topic in reader.maps
             if args.topic is None or topic in args.topic]
    if not there:
        raise Usage(f"{args.file} has no tensor maps to publish; its topics: "
                    + names(list(reader.topics)))
    if args.target[0].name is None:
        return {topic: args.target[0].url for topic in there}
    for target in args.target:
        if target.name not in there:
            raise Usage(f"{target.name}: the recording has {names(there)}")
    return {target.name: target.url for target in args.target}


def run(args: argparse.Namespace) -> int:
    try:
        reader = Reader(args.file, memory_bytes=args.memory)
    except (OSError, ValueError) as error:
        raise Usage(str(error)) from None
    with reader, concurrent.futures.ThreadPoolExecutor(1) as pool:
        if args.list:
            show(reader, args.json)
            return DONE

        async def main() -> Any:
            replay = Replay(args, reader, pool)
            return replay, await until_signal(replay.run())
        replay, ended = asyncio.run(main())
    late = f", {replay.late_s:.3f} s late at most" \
        if replay.late_s >= .1 else ""
    print(f"{replay.sent} maps{late}")
    return DONE if ended or args.loop else FAILED
