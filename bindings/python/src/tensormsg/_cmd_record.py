# SPDX-License-Identifier: BSD-3-Clause
"""Records what publishers send as an MCAP file, until they close, or a signal
comes. Each URL is a topic of the file: left=URL right=URL. Needs the packages of
`pip install 'tensormsg[mcap]'`.
"""

from __future__ import annotations

import argparse
import asyncio
import concurrent.futures
import contextlib
from typing import Any, Dict, List, Optional, Set, Union

from . import _open
from ._aio import Endpoint, Listener
from ._cmd import CLOSE_S, DONE, FAILED, Usage, add_connecting, complain, \
    proof, seconds
from ._mcap import check
from ._message import BaseMessage
from ._topics import COMPRESSIONS, TOPIC, Named, check_names, named, \
    until_signal
from .errors import Closed, Error
from .recording import FLUSH_S, Writer, refuse_existing

COUNTERS = "sequence", "frame"  # metadata that says how many there were


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connecting(parser)
    parser.add_argument("--reconnect", type=seconds, metavar="S",
                        help="wait as long for a publisher that has gone away")
    parser.add_argument("--listen", action="store_true",
                        help="listen at each URL, for cameras that connect")
    parser.add_argument("--allow-unauthenticated", action="store_true",
                        help="listen without a key where other machines reach "
                        "the address")
    parser.add_argument("-n", "--count", type=int, metavar="N",
                        help="end after N maps")
    parser.add_argument("--duration", type=seconds, metavar="S",
                        help="end after S seconds")
    parser.add_argument("--topic-from", metavar="KEY",
                        help="metadata that names the topic of a map, below "
                        "that of its URL")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--image", action="append", metavar="NAME[=ENCODING]",
                       help="a tensor to show in Foxglove, as rgb8, bgr8, "
                       "mono16, 32FC1, ...; may be repeated. By default those "
                       "that look like images")
    shown.add_argument("--no-images", action="store_true",
                       help="write no images for Foxglove")
    parser.add_argument("--compression", choices=COMPRESSIONS, default="none",
                        help="default none")
    parser.add_argument("-f", "--force", action="store_true",
                        help="write over FILE")
    parser.add_argument("source", metavar="[NAME=]URL", nargs="+", type=named)
    parser.add_argument("file", metavar="FILE")


class Topic:
    """What came of one URL."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.maps = self.missing = self.refused = 0
        self._last: Dict[str, int] = {}

    def note(self, topic: str, meta: Dict[str, Any]) -> None:
        """Counts a map, and those that the numbers before it lack."""
        self.maps += 1
        for key in COUNTERS:
            number = meta.get(key)
            if type(number) is int:
                last = self._last.get(topic, number - 1)
                self.missing += max(number - last - 1, 0)
                self._last[topic] = number
                return

    def said(self) -> str:
        words = f"{self.name}: {self.maps} maps"
        if self.missing:
            words += f", {self.missing} were lost before they came here"
        if self.refused:
            words += f", {self.refused} could not be recorded"
        return words


class Recorder:
    def __init__(self, args: argparse.Namespace, kept: contextlib.ExitStack,
                 pool: concurrent.futures.Executor) -> None:
        self._args = args
        self._kept = kept
        self._writer: Optional[Writer] = None
        self._pool = pool
        self._left = args.count
        self._enough = asyncio.Event()
        self.topics = [Topic(source.name or TOPIC) for source in args.source]
        self.code = DONE

    def _begin(self) -> Writer:
        """The file is made when somebody was reached."""
        if self._writer is None:
            args = self._args
            self._writer = self._kept.enter_context(Writer(
                args.file, images=images_of(args), overwrite=args.force,
                compression=args.compression))
        return self._writer

    async def _write(self, topic: Topic, msg: BaseMessage) -> None:
        place, meta = topic.name, msg.meta
        key = self._args.topic_from
        if key is not None and isinstance(meta.get(key), str):
            place += "/" + meta[key]
        try:
            await asyncio.get_running_loop().run_in_executor(
                self._pool, self._begin().write, place, msg)
        except (TypeError, ValueError) as error:
            if not topic.refused:
                complain(f"{place}: not recorded: {error}")
            topic.refused += 1
            self.code = FAILED
            return
        topic.note(place, meta)
        if self._left is not None:
            self._left -= 1
            if not self._left:
                self._enough.set()

    async def _open(self, source: Named) -> Union[Endpoint, Listener]:
        args = self._args
        if not args.listen:
            return await _open.connect(
                source.url, timeout=args.timeout, wait=args.wait,
                reconnect=args.reconnect, **proof(args))
        listener = await _open.listen(
            source.url, reconnect=args.reconnect,
            allow_unauthenticated=args.allow_unauthenticated, **proof(args))
        print(" ".join(filter(None, (source.name, listener.url))), flush=True)
        return listener

    async def _receive(self, topic: Topic,
                       ep: Union[Endpoint, Listener]) -> None:
        async for msg in ep:
            if self._enough.is_set():
                return
            await self._write(topic, msg)
            del msg  # which may hold the publisher's memory

    async def _follow(self, topic: Topic, source: Named) -> None:
        try:
            ep = await self._open(source)
            try:
                self._begin()
                await self._receive(topic, ep)
            finally:
                with contextlib.suppress(Error):
                    await ep.close(CLOSE_S)
                ep.abort()
        except Closed:
            pass
        except Error as error:
            complain(f"{topic.name}: {error}")
            self.code = FAILED

    async def _flush(self) -> None:
        """What came is in the file soon, also when nothing comes any more."""
        while True:
            await asyncio.sleep(FLUSH_S)
            if self._writer is not None:
                await asyncio.get_running_loop().run_in_executor(
                    self._pool, self._writer.flush)

    async def run(self) -> int:
        following = [asyncio.ensure_future(self._follow(*each))
                     for each in zip(self.topics, self._args.source)]
        enough = asyncio.ensure_future(self._enough.wait())
        flushing = asyncio.ensure_future(self._flush())
        ending = asyncio.gather(*following)
        waits: Set[asyncio.Future[Any]] = {ending, enough, flushing}
        try:
            done, _ = await asyncio.wait(
                waits, timeout=self._args.duration,
                return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # raises what writing has met
        finally:
            for task in (*following, *waits):
                task.cancel()
            await asyncio.gather(*following, *waits, return_exceptions=True)
        return self.code

    def end(self) -> int:
        """Says what came of it; returns the exit code."""
        for topic in self.topics:
            print(topic.said())
        if self._writer is None and self.code == DONE:
            complain(f"no publisher was reached, and {self._args.file} not "
                     "written")
            return FAILED
        return self.code


def images_of(args: argparse.Namespace) -> Optional[Dict[str, Optional[str]]]:
    if args.no_images:
        return {}
    if args.image is None:
        return None
    split = [word.partition("=") for word in args.image]
    return {name: encoding or None for name, _, encoding in split}


def topics_of(sources: List[Named]) -> None:
    check_names(sources)
    given = [source.name for source in sources if source.name is not None]
    for name in given:
        for other in given:
            if name.startswith(other + "/"):
                raise Usage(f"the name '{name}' lies below '{other}', where the "
                            "images of that are")


def run(args: argparse.Namespace) -> int:
    topics_of(args.source)
    if args.count is not None and args.count < 1:
        raise Usage(f"--count {args.count}: 1 or more")
    try:
        check(images_of(args))
        if not args.force:
            refuse_existing(args.file)
    except (FileExistsError, ValueError) as error:
        raise Usage(str(error)) from None
    with contextlib.ExitStack() as kept, \
            concurrent.futures.ThreadPoolExecutor(1) as pool:
        async def main() -> Recorder:
            recorder = Recorder(args, kept, pool)
            await until_signal(recorder.run())
            return recorder
        recorder = asyncio.run(main())
    return recorder.end()
