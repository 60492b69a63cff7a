# SPDX-License-Identifier: BSD-3-Clause
"""Says how a server is, for probes, where there is the package alone: the same
as the command `tensormsg health`, with the same exit codes.

0: it is ready, or alive. 7: it is NOT_SERVING, STALLED or DRAINING. 4: nobody
serves there, or has METHOD. 6: it does not answer within the time limit. 1: it
cannot be reached.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from typing import List, Optional

from . import sync
from ._cmd import DONE, NO_METHOD, TIMED_OUT, UNAVAILABLE, Usage, \
    add_connecting, complain, dial, execute
from .errors import Error, NotFound, TimedOut, Unsupported

GOODBYE_S = 1.0  # of a probe


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--ready", action="store_true",
                      help="whether the server, or METHOD, is SERVING: the "
                      "default")
    what.add_argument("--live", action="store_true",
                      help="whether the library answers there, of any program "
                      "that listens")
    add_connecting(parser)
    parser.add_argument("url", metavar="URL")
    parser.add_argument("method", metavar="METHOD", nargs="?")


def say(ep: sync.Endpoint, args: argparse.Namespace, left: float) -> int:
    """Asks, and prints the answer in a word: its exit code."""
    if args.live:  # the peer's library has answered when it connected
        print("LIVE")
        return DONE
    try:
        said = ep.health(args.method, left)
    except (NotFound, Unsupported) as error:
        complain(error)
        return NO_METHOD
    except TimedOut as error:
        complain(error)
        return TIMED_OUT
    print(said)
    return {"SERVING": DONE, "NOT_FOUND": NO_METHOD}.get(said, UNAVAILABLE)


def run(args: argparse.Namespace) -> int:
    if args.live and args.method is not None:
        raise Usage("--live takes a URL alone")
    end = time.monotonic() + args.timeout
    ep = dial(args)
    try:
        code = say(ep, args, max(end - time.monotonic(), .001))
        with contextlib.suppress(Error):
            ep.close(max(min(end - time.monotonic(), GOODBYE_S), 0.))
        return code
    finally:
        ep.abort()


def main(words: Optional[List[str]] = None) -> int:
    return execute("python -m tensormsg.health", sys.modules[__name__], words)


if __name__ == "__main__":
    sys.exit(main())
