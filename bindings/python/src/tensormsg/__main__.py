# SPDX-License-Identifier: BSD-3-Clause
"""python -m tensormsg: what the command `tensormsg` does, and more, where there
is the package alone. Each command is a module with add_arguments(parser) and
run(args), which returns the exit code.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import List, Optional

from . import __version__
from ._cmd import execute

COMMANDS = {  # its module, and what it does in a line
    "call": ("_cmd_call", "calls a method of a server, and prints the reply"),
    "health": ("health", "checks whether a server is ready, for probes"),
    "info": ("_cmd_info", "shows versions, UCX and the machine, or a peer at "
                          "a URL"),
    "top": ("_cmd_top", "shows rates, queues and latencies of a process at a "
                        "URL"),
    "perf": ("_cmd_perf", "measures sending a dict of arrays, and draws "
                          "plots"),
    "record": ("_cmd_record", "records publishers as an MCAP file"),
    "replay": ("_cmd_replay", "publishes a recording, at any speed"),
    "cut": ("_cmd_cut", "copies a part of a recording, or repairs a broken "
                        "one"),
    "recv": ("_cmd_recv", "takes the files that are sent to it"),
    "send": ("_cmd_send", "sends files to a receiver"),
    "serve": ("_cmd_serve", "answers calls, to try a client"),
}


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tensormsg", usage="%(prog)s COMMAND ...",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Dicts of arrays between processes, from a shell.",
        epilog="commands:\n" + "\n".join(
            f"  {name:<8} {about}" for name, (_, about) in COMMANDS.items()) +
        "\n\npython -m tensormsg COMMAND --help lists its options")
    parser.add_argument("--version", action="version",
                        version=f"tensormsg {__version__}")
    parser.add_argument("command", metavar="COMMAND", choices=COMMANDS,
                        help=argparse.SUPPRESS)
    parser.add_argument("words", nargs=argparse.REMAINDER,
                        help=argparse.SUPPRESS)
    return parser


def main(words: Optional[List[str]] = None) -> int:
    args = options().parse_args(words)
    module = importlib.import_module(f"tensormsg.{COMMANDS[args.command][0]}")
    return execute(f"python -m tensormsg {args.command}", module, args.words)


if __name__ == "__main__":
    sys.exit(main())
