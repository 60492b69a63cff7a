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
from .errors import Error, NotFound, TimedOut, Unsupported

DONE, FAILED, NO_METHOD, TIMED_OUT, UNAVAILABLE = 0, 1, 4, 6, 7
CLOSE_S = 1.0


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tensormsg.health", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--ready", action="store_true",
                      help="whether the server, or METHOD, is SERVING: the "
                      "default")
    what.add_argument("--live", action="store_true",
                      help="whether the library answers there, of any program "
                      "that listens")
    parser.add_argument("-t", "--timeout", type=float, default=10.,
                        metavar="S", help="seconds for all of it; default 10")
    parser.add_argument("--key", metavar="FILE",
                        help="prove a key of FILE, and refuse a peer that "
                        "proves none")
    parser.add_argument("url", metavar="URL")
    parser.add_argument("method", metavar="METHOD", nargs="?")
    return parser


def say(ep: sync.Endpoint, args: argparse.Namespace, left: float) -> int:
    """Asks, and prints the answer in a word: its exit code."""
    if args.live:  # the peer's library has answered when it connected
        print("LIVE")
        return DONE
    try:
        said = ep.health(args.method, left)
    except (NotFound, Unsupported) as error:
        print(f"tensormsg: {error}", file=sys.stderr)
        return NO_METHOD
    except TimedOut as error:
        print(f"tensormsg: {error}", file=sys.stderr)
        return TIMED_OUT
    print(said)
    return {"SERVING": DONE, "NOT_FOUND": NO_METHOD}.get(said, UNAVAILABLE)


def ask(args: argparse.Namespace) -> int:
    """Its exit code."""
    end = time.monotonic() + args.timeout
    try:
        ep = sync.connect(args.url, key=args.key, timeout=args.timeout)
        try:
            code = say(ep, args, max(end - time.monotonic(), .001))
            with contextlib.suppress(Error):
                ep.close(max(min(end - time.monotonic(), CLOSE_S), 0.))
            return code
        finally:
            ep.abort()
    except Error as error:
        print(f"tensormsg: {error}", file=sys.stderr)
        return FAILED


def main(words: Optional[List[str]] = None) -> int:
    parser = options()
    args = parser.parse_args(words)
    if args.live and args.method is not None:
        parser.error("--live takes a URL alone")
    if not args.timeout > 0:
        parser.error(f"--timeout {args.timeout}: seconds above 0")
    return ask(args)


if __name__ == "__main__":
    sys.exit(main())
