# SPDX-License-Identifier: BSD-3-Clause
"""Listens, and takes the maps that come, from any number of senders: of `python -m
tensormsg send`, of the command `tensormsg send`, or of a program. The first line
on standard output is the URL to send to; then comes a line a map. A map lies in
memory until it is written. SIGINT or SIGTERM ends it.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import threading
import time
from typing import Any, Deque, Dict, Iterator, Optional

from . import sync
from ._cmd import CLOSE_S, DONE, FAILED, BadInput, add_listening, complain, \
    listen, seconds
from ._cmd_data import event, lines, name_fault, summary
from ._files import save
from ._lib import hot
from ._often import often
from ._signals import Caught
from .errors import Error, TimedOut

LOOK_S = .1
RATE = 64 << 10  # bytes for which --timeout grows by a second


def number(text: str) -> int:
    value = int(text) if text.isdigit() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of 1 or "
                                         "more")
    return value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_listening(parser)
    parser.add_argument("-o", "--out", metavar="DIR",
                        help="write each map into DIR, under the sender's file "
                        "name and in its format; a map of another program "
                        "becomes map-000001.safetensors and so on")
    parser.add_argument("-n", "--count", metavar="N", type=number,
                        help="end with 0 after N maps")
    parser.add_argument("-t", "--timeout", metavar="S", type=seconds, default=10.,
                        help="with --count: seconds to wait for a file that was "
                        "offered, and a second more for each 64 KiB of it; "
                        "default 10")
    parser.add_argument("-f", "--force", action="store_true",
                        help="replace existing files")
    parser.add_argument("-v", "--verbose", action="store_true",
                        help="list each array")
    parser.add_argument("--json", action="store_true",
                        help="print one JSON object a line and map")


class Offer:
    """A file that a sender has offered."""

    def __init__(self, meta: Dict[str, Any], until: float) -> None:
        self.number: int = meta["transfer.offer"]
        self.name = str(meta.get("file_name", ""))
        self.format = meta.get("file_format")
        self.checked = meta.get("transfer.checked") is True
        self.until = until
        self.map: Optional[sync.Message] = None  # which waits for the verdict


class Receiver:
    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.count = 0
        self.number = 0  # of the last that had no name
        self.offers: Dict[sync.Endpoint, Offer] = {}
        self.lost: Deque[sync.Endpoint] = collections.deque()
        self.give_up: Optional[float] = None  # when: a sender failed

    def say(self, peer: sync.Endpoint, offer: Offer, state: str,
            **more: Any) -> None:
        with contextlib.suppress(Error):  # it is gone, which is told elsewhere
            peer.send({}, meta={"transfer.reply": offer.number,
                                "transfer.state": state,
                                **{f"transfer.{key}": value
                                   for key, value in more.items()}}, timeout=1)

    def fail(self, peer: sync.Endpoint, offer: Offer, why: str) -> None:
        self.offers.pop(peer, None)
        self.say(peer, offer, "failed", error=why)
        self.complain(peer, offer.name, why)

    def complain(self, peer: sync.Endpoint, name: str, why: str) -> None:
        self.give_up = time.monotonic() + self.args.timeout
        if not often.may("maps failed, or were refused:"):
            return
        if self.args.json:
            print(event("failed", peer=peer.peer, path=name, error=why),
                  flush=True)
        complain(f"{peer.peer}: {name}: {why}")

    def take(self, msg: sync.Message) -> None:
        meta, peer = msg.meta, msg.peer
        offer = self.offers.get(peer)
        if not len(msg) and isinstance(meta.get("transfer.offer"), int):
            self.offered(peer, meta)
        elif not len(msg) and isinstance(meta.get("transfer.verdict"), int):
            if offer is not None and offer.map is not None and \
                    offer.number == meta["transfer.verdict"]:
                self.judged(peer, offer, meta)
        elif offer is None:
            self.keep(peer, None, msg)
        elif offer.map is not None:
            self.fail(peer, offer, "another map came before the verdict")
        elif offer.checked:
            offer.map = msg
        else:
            self.keep(peer, offer, msg)

    def offered(self, peer: sync.Endpoint, meta: Dict[str, Any]) -> None:
        size = meta.get("transfer.bytes")
        size = size if isinstance(size, int) and size > 0 else 0
        offer = Offer(meta, time.monotonic() + self.args.timeout + size / RATE)
        fault = name_fault(offer.name)
        if fault is None and offer.format not in ("safetensors", "npz", "npy"):
            fault = "no known format"
        if fault is None and self.args.out and not self.args.force and \
                os.path.lexists(os.path.join(self.args.out, offer.name)):
            fault = "the file is there already (--force replaces)"
        if fault is not None:
            self.fail(peer, offer, fault)
            return
        self.offers[peer] = offer
        self.say(peer, offer, "go", checked=offer.checked)

    def judged(self, peer: sync.Endpoint, offer: Offer,
               meta: Dict[str, Any]) -> None:
        assert offer.map is not None
        if meta.get("transfer.state") == "same":
            self.keep(peer, offer, offer.map)
        else:
            self.fail(peer, offer, str(meta.get("transfer.error")))

    @contextlib.contextmanager
    def alive(self, peer: sync.Endpoint, offer: Offer) -> Iterator[None]:
        """Says so each second while the block works on the file."""
        over = threading.Event()

        def run() -> None:
            while not over.wait(1):
                self.say(peer, offer, "alive")

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def unnamed(self) -> str:
        """A name for what has none, and that no file has."""
        while True:
            self.number += 1
            name = f"map-{self.number:06}.safetensors"
            if self.args.force or not os.path.lexists(
                    os.path.join(self.args.out or "", name)):
                return name

    def keep(self, peer: sync.Endpoint, offer: Optional[Offer],
             msg: sync.Message) -> None:
        name = offer.name if offer else self.unnamed()
        try:
            with self.alive(peer, offer) if offer else \
                    contextlib.nullcontext():
                if self.args.out:
                    save(os.path.join(self.args.out, name), msg.tree(),
                         meta=msg.meta, overwrite=self.args.force,
                         format=offer.format if offer else None)
        except (Error, ValueError, TypeError) as error:
            if offer is not None:
                self.fail(peer, offer, str(error))
            else:
                self.complain(peer, name, str(error))
            return
        self.count += 1
        self.give_up = None
        self.offers.pop(peer, None)
        if offer is not None:
            self.say(peer, offer, "done", file=name if self.args.out else "")
        self.tell(peer, name, msg)

    def tell(self, peer: sync.Endpoint, name: str, msg: sync.Message) -> None:
        if self.args.json:
            print(event("received", msg, number=self.count, peer=peer.peer,
                        path=name), flush=True)
            return
        print(hot.shown(f"map {self.count}: {name}, {summary(msg)}"),
              flush=True)
        if self.args.verbose or not self.args.out:
            print(*map(hot.shown, lines(msg)), sep="\n", flush=True)

    def look(self) -> bool:
        """Ends offers of senders that are gone or, with --count, late. Whether
        to go on."""
        while self.lost:
            peer = self.lost.popleft()
            offer = self.offers.pop(peer, None)
            if offer is not None:
                self.complain(peer, offer.name, "the sender has gone before the "
                              "file was whole")
        if self.args.count is None:
            return True
        now = time.monotonic()
        for peer, offer in list(self.offers.items()):
            if now > offer.until:
                self.fail(peer, offer, "the file did not come in time")
                peer.abort()
        return not (self.give_up and now > self.give_up and not self.offers)

    def run(self, listener: sync.Listener, caught: Caught) -> int:
        count = self.args.count
        while caught.number is None and self.count != count:
            if not self.look():
                return FAILED
            try:
                msg = [listener.recv(LOOK_S)]
            except TimedOut:
                continue
            self.take(msg.pop())  # nothing here keeps it
        for peer, offer in list(self.offers.items()):
            self.fail(peer, offer, "the receiver ends")
        return DONE if count is None or self.count == count else FAILED


def run(args: argparse.Namespace) -> int:
    if args.out is not None:
        try:
            os.makedirs(args.out, exist_ok=True)
        except OSError as error:
            raise BadInput(f"{args.out}: {error.strerror}") from None
    receiver = Receiver(args)
    with Caught() as caught:
        listener = listen(args, lambda peer, error: receiver.lost.append(peer))
        try:
            print(listener.url, flush=True)
            code = receiver.run(listener, caught)
            with contextlib.suppress(Error):
                listener.close(CLOSE_S)
            return code
        finally:
            listener.abort()
