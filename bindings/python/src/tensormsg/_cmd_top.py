# SPDX-License-Identifier: BSD-3-Clause
"""Shows what goes on at a URL: connections with their rates and queues, publishers
and their subscribers, calls with their latencies, and whether it is stalled. The
process there tells it by itself; its program needs nothing for it
(docs/reference/introspection.md).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import socket
import sys
import time
from typing import Any, Coroutine, Dict, Iterable, Iterator, List, Optional

from . import _open
from ._aio import Endpoint
from ._cmd import CLOSE_S, DONE, add_connecting, proof, seconds
from ._lib import hot
from ._observed import Sample, ask, compare
from .errors import Error, Malformed, Refused, Status, Unsupported, error_of

HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
SILENT_MS = 1000  # without an acknowledgement of what was sent


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connecting(parser)
    parser.add_argument("-i", "--interval", type=seconds, default=1.,
                        metavar="S", help="seconds between two looks, of which "
                        "rates and latencies are; default 1")
    parser.add_argument("--once", action="store_true",
                        help="print it once, after one interval")
    parser.add_argument("--json", action="store_true",
                        help="one JSON object a line for each look")
    parser.add_argument("url", metavar="URL", nargs="+")

# What comes of a process that tells something else.
_OTHERWISE = ArithmeticError, AttributeError, KeyError, RecursionError, \
    TypeError, ValueError


def malformed(url: str, error: Exception) -> Error:
    return error_of(Status.MALFORMED, f"{url}: its description is not "
                                      f"understood: {type(error).__name__}: "
                                      f"{error}")


class Watched:
    """A URL. Once it was reached it is dialled again when it is gone."""

    def __init__(self, url: str, args: argparse.Namespace) -> None:
        self.url = url
        self.looking: Optional["asyncio.Task[Dict[str, Any]]"] = None
        self.since_s = 0.  # when that began
        self._args = args
        self._ep: Optional[Endpoint] = None
        self._before: Optional[Sample] = None

    async def begin(self) -> None:
        """In live mode, in which we hold up no publisher by what it sends and
        we do not take."""
        args = self._args
        self._ep = await _open.connect(self.url, timeout=args.timeout,
                                       wait=args.wait, newest=True,
                                       **proof(args))
        try:
            self._before = await ask(self._ep, args.timeout)
        except _OTHERWISE as error:
            raise malformed(self.url, error) from None

    async def _look(self) -> Dict[str, Any]:
        try:
            if self._ep is None or self._before is None:
                await self.begin()
                await asyncio.sleep(self._args.interval)
            assert self._ep is not None and self._before is not None
            now = await ask(self._ep, self._args.timeout)
            before, self._before = self._before, now
            return compare(now, before)
        except Error:
            await self._leave()
            raise
        except _OTHERWISE as error:
            raise malformed(self.url, error) from None

    def look(self) -> "asyncio.Task[Dict[str, Any]]":
        """What became of it since the last time; raises Error. One look at a
        time: that which is not over goes on."""
        if self.looking is None:
            self.looking = asyncio.ensure_future(self._look())
            self.since_s = time.monotonic()
        return self.looking

    async def _leave(self) -> None:
        ep, self._ep, self._before = self._ep, None, None
        if ep is not None:
            with contextlib.suppress(Error):
                await ep.recv(0)  # what a publisher may have sent
            with contextlib.suppress(Error):
                await ep.close(CLOSE_S)
            ep.abort()

    async def end(self) -> None:
        if self.looking is not None:
            self.looking.cancel()
            await asyncio.wait([self.looking])
        await self._leave()


def amount(value: float) -> str:
    """12.3k"""
    for unit in ("", "k", "M", "G", "T"):
        if value < 999.5:
            return f"{value:.0f}" if not unit and value == int(value) else \
                f"{value:.1f}{unit}"
        value /= 1000
    return f"{value:.1f}P"


def span(value: Optional[float]) -> str:
    """Of seconds: 1.2ms"""
    if value is None:
        return "-"
    for unit, scale in (("us", 1e6), ("ms", 1e3)):
        if value * scale < 999.5:
            return f"{value * scale:.1f}{unit}"
    return f"{value:.2f}s"


def is_ours(peer: str) -> bool:
    """Whether that is the connection by which we look."""
    return f"(pid {os.getpid()} on {socket.gethostname()})" in peer


def _table(head: List[str], rows: List[List[str]]) -> Iterator[str]:
    """The first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(head, *rows)]
    for row in [head, *rows] if rows else []:
        yield f"  {row[0]:<{widths[0]}}  " + "  ".join(
            f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:]))


def _spread(of: Dict[str, Any]) -> str:
    return "-" if not of.get("count") else \
        f"{span(of['p50'] / 1e9)}/{span(of['p99'] / 1e9)}"


def _said(one: Dict[str, Any]) -> str:
    """What is wrong with a connection."""
    silent = one["unacknowledged_ms"]
    words = [] if one["state"] == "connected" else [one["state"]]
    if silent >= SILENT_MS:
        words.append(f"silent for {silent / 1000:.1f}s")
    for key in "dropped", "lost", "refused":
        rate = one["a_second"][f"{key}_messages"]
        if rate:
            words.append(f"{amount(rate)}/s {key}")
    return ", ".join(words)


def lines(url: str, about: Dict[str, Any]) -> Iterator[str]:
    worker = about["worker"]
    yield f"{url}  pid {about['pid']}  tensormsg {about['version']}" + (
        f"  {about['health']}" if about["health"] else "")
    if about["why"]:
        yield f"  {about['health']}: {about['why']}"
    others = [one for one in about["endpoints"] if not is_ours(one["peer"])]
    yield f"  {len(others) + about['more_endpoints']} connections, " \
        f"{amount(worker['waiting_messages'])} messages to be sent, " \
        f"{amount(worker['ready_messages'])} to be taken, " \
        f"{amount(worker['held_bytes'])}B held; calls: " \
        f"{worker['running_calls']} run, {worker['waiting_calls']} wait, " \
        f"{worker['held_calls']} are kept, {worker['stalls']} stalls"
    yield from _table(
        ["connection", "out/s", "B/s", "in/s", "B/s", "to send", "to take",
         "send p50/p99", "ack p50/p99", ""],
        [[hot.shown(one["peer"]),
          *(amount(one["a_second"][key]) for key in
            ("sent_messages", "sent_bytes", "received_messages",
             "received_bytes")),
          str(one["waiting_messages"]), str(one["ready_messages"]),
          _spread(one["send_ns"]), _spread(one["ack_ns"]), _said(one)]
         for one in others])
    if about["more_endpoints"]:
        yield f"  and {about['more_endpoints']} more"
    for publisher in about["publishers"]:
        rates = publisher["a_second"]
        subscribers = [one for one in publisher["subscribers"]
                       if not is_ours(one["peer"])]
        more = publisher.get("more_subscribers", 0)  # 0 of an older library
        yield f"  publisher: {amount(rates['published'])} maps/s to " \
            f"{len(subscribers) + more} subscribers, " \
            f"{amount(rates['dropped'])}/s dropped; {publisher['blocked']} " \
            "times it waited for room"
        yield from _table(
            ["subscriber", "taken/s", "dropped/s", "wait", "on the way", "mode"],
            [[hot.shown(one["peer"]), amount(one["a_second"]["delivered"]),
              amount(one["a_second"]["dropped"] + one["a_second"]["failed"]),
              str(one["waiting"]), str(one["under_way"]), one["mode"]]
             for one in subscribers])
        if more:
            yield f"  and {more} more"
    if about["more_publishers"]:
        yield f"  and {about['more_publishers']} more publishers"
    yield from _table(
        ["method", "side", "calls/s", "failed/s", "p50", "p99", "calls"],
        [[hot.shown(one["method"]) or "(others)", one["side"],
          amount(one["a_second"]["ended"]), amount(one["a_second"]["failed"]),
          span(one["p50_s"]), span(one["p99_s"]), amount(one["ended"])]
         for one in about["calls"]
         if not one["method"].startswith("tensormsg.")])


def show(text: List[str], is_terminal: bool) -> None:
    if not is_terminal:
        print("\n".join([*text, ""]), flush=True)
        return
    size = shutil.get_terminal_size()
    shown = [line[:size.columns] + CLEAR_LINE
             for line in text[:size.lines - 1]]
    print(HOME + "\n".join(shown) + "\n" + CLEAR_BELOW, end="", flush=True)


def said(one: Watched, args: argparse.Namespace) -> List[str]:
    """What a look has brought, if it is over."""
    looked = one.looking
    if looked is None or not looked.done():
        return [] if args.json else [hot.shown(
            f"{one.url}  no answer for {time.monotonic() - one.since_s:.1f} s")]
    one.looking = None
    try:
        about = looked.result()
    except (Malformed, Refused, Unsupported):
        raise
    except Error as error:
        if args.once:
            raise
        return [json.dumps({"url": one.url, "error": str(error)})
                if args.json else hot.shown(f"{one.url}  {error}")]
    try:
        return [json.dumps({"url": one.url, **about})] if args.json else \
            [hot.shown(line) for line in lines(one.url, about)]
    except _OTHERWISE as error:
        raise malformed(one.url, error) from None


async def together(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """All side by side, until the first fails."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def watch(args: argparse.Namespace) -> None:
    """Each is asked on its own: one that does not answer holds up no other."""
    watched = [Watched(url, args) for url in args.url]
    is_terminal = sys.stdout.isatty() and not args.json and not args.once
    try:
        await together(one.begin() for one in watched)
        if is_terminal:
            print(HOME + CLEAR_BELOW, end="")
        left = args.interval
        while True:
            await asyncio.sleep(left)
            began = time.monotonic()
            await asyncio.wait([one.look() for one in watched],
                               timeout=None if args.once else args.interval)
            text = [line for one in watched for line in said(one, args)]
            if not args.json:
                show(text, is_terminal)
            elif text:
                print("\n".join(text), flush=True)
            if args.once:
                return
            left = max(began + args.interval - time.monotonic(), 0)
    finally:
        await asyncio.gather(*(one.end() for one in watched))


def run(args: argparse.Namespace) -> int:
    asyncio.run(watch(args))
    return DONE
