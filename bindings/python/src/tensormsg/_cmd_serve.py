# SPDX-License-Identifier: BSD-3-Clause
"""Answers calls, to try a client. The first line on standard output is the URL to
call. SIGINT or SIGTERM ends it with 0 when the calls under way are answered, with
8 where some were cut after --grace.
"""

from __future__ import annotations

import argparse
import time

from ._cmd import Usage, add_listening, listen, seconds
from ._serve import Request
from ._told import Reply

AT_ONCE = 64  # of calls that wait for --delay


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_listening(parser)
    parser.add_argument("--echo", action="store_true",
                        help="answer the method 'echo' with the map that it was "
                        "called with")
    parser.add_argument("--delay", metavar="S", type=seconds, default=0.,
                        help="answer S seconds after the call, up to "
                        f"{AT_ONCE} calls at once")
    parser.add_argument("--grace", metavar="S", type=seconds, default=10.,
                        help="let calls go on for S seconds after the signal; "
                        "default 10")


def run(args: argparse.Namespace) -> int:
    if not args.echo:
        raise Usage("nothing to serve: give --echo")

    def echo(request: Request) -> Reply:
        """Answers with the map that it was called with."""
        time.sleep(args.delay)
        return Reply(request.tree(), meta=request.meta)

    with listen(args) as listener:
        server = listener.serve(threads=AT_ONCE if args.delay else 4)
        server.method("echo")(echo)
        print(listener.url, flush=True)
        return server.run(grace=args.grace)
