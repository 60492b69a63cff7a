# SPDX-License-Identifier: BSD-3-Clause
"""What the commands of `python -m tensormsg` have in common: their exit codes,
options of connections, and how they end. docs/reference/exit-codes.md has the
codes."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import stat
import sys
from types import ModuleType
from typing import Any, Callable, Dict, List, Optional, Tuple, Type

from . import sync
from ._lib import hot
from .errors import ApplicationFailed, Error, InvalidParam, NotFound, \
    ResourceExhausted, TimedOut, Unavailable, Unsupported
from .tls import TLS

DONE, FAILED, USAGE, APPLICATION, NO_METHOD, OTHER_MAP, TIMED_OUT, \
    UNAVAILABLE, CUT = range(9)
CLOSE_S = 3.0

_CODES: Tuple[Tuple[Tuple[Type[Error], ...], int], ...] = (
    ((ApplicationFailed,), APPLICATION), ((NotFound, Unsupported), NO_METHOD),
    ((InvalidParam,), OTHER_MAP), ((TimedOut,), TIMED_OUT),
    ((ResourceExhausted, Unavailable), UNAVAILABLE))

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class Usage(Exception):
    """Bad usage: nothing was done."""


class BadInput(Exception):
    """A bad word or input file: nothing was done."""


def complain(words: object) -> None:
    # An error says what a program may ask for.
    said = str(words).replace("wait=True waits", "--wait waits")
    print(f"tensormsg: {hot.shown(said)}", file=sys.stderr, flush=True)


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 0 < value <= 1e6:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a number of seconds above 0")
    return value


def number(text: str) -> int:
    """7, 1K, 4M, 1G"""
    found = re.fullmatch("([0-9]{1,15})([KMG]?)", text)
    if found is None or int(found[1]) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of 1 or "
                                         "more")
    return int(found[1]) * UNITS[found[2]]


def add_connecting(parser: argparse.ArgumentParser) -> None:
    """What the commands that connect take: see dial()."""
    parser.add_argument("-t", "--timeout", type=seconds, default=10.,
                        metavar="S", help="seconds to connect within, and to "
                        "wait for an answer; default 10")
    parser.add_argument("--wait", action="store_true",
                        help="wait, as long as --timeout says, until somebody "
                        "listens there")
    parser.add_argument("--key", metavar="FILE",
                        help="prove a key of FILE, and refuse a peer that "
                        "proves none")
    _add_tls(parser, True)


def _add_tls(parser: argparse.ArgumentParser, dials: bool) -> None:
    parser.add_argument("--tls-ca", metavar="FILE",
                        help="at tls://: refuse a peer whose certificate no "
                        "authority of FILE has signed")
    parser.add_argument("--tls-cert", metavar="FILE",
                        help="at tls://: show the certificate of FILE")
    parser.add_argument("--tls-key", metavar="FILE",
                        help="its private key")
    parser.add_argument("--tls-password", metavar="FILE",
                        help="the first line of FILE is the password of the "
                        "private key")
    parser.add_argument("--tls-crl", metavar="FILE",
                        help="refuse certificates that a list of FILE revokes")
    parser.add_argument("--tls-pin", metavar="PINS",
                        help="refuse a peer whose public key is not in PINS, "
                             "a list with commas of [NAME=]SHA-256 in "
                             "hexadecimal digits; with --tls-ca, or instead "
                             "of it")
    if dials:
        parser.add_argument("--tls-name", metavar="NAME",
                            help="the name that the listener's certificate "
                                 "must be for; default: the host of the URL")


def proof(args: argparse.Namespace) -> Dict[str, Any]:
    """How this side proves who it is, as arguments of connect() and listen()."""
    given: Dict[str, Any] = {
        what: getattr(args, f"tls_{what}", None)
        for what in ("ca", "cert", "key", "name", "crl", "pin", "password")}
    if not any(given.values()):
        return {"key": args.key}
    if not ((given["ca"] or given["pin"]) and given["cert"] and given["key"]):
        raise Usage("--tls-ca (or --tls-pin), --tls-cert and --tls-key go "
                    "together")
    if args.key is not None:
        raise Usage("--key and --tls-cert exclude each other: give one of "
                    "them")
    if given["password"]:
        given["password"] = _password(given["password"])
    return {"tls": TLS(**given)}


def _password(path: str) -> bytes:
    """The first line of a file that others cannot read."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY),
              "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise BadInput(f"password file {path}: it must be a regular file")
        if about.st_uid not in (0, os.geteuid()) or about.st_mode & 0o27:
            raise BadInput(f"password file {path}: others can read or change "
                           "it: it must belong to this user and have mode "
                           "600")
        line = file.readline(1024).rstrip(b"\r\n")
    if not 0 < len(line) < 1023:
        raise BadInput(f"password file {path}: its first line is not a "
                       "password")
    return line


def add_admitting(parser: argparse.ArgumentParser,
                  dials: bool = False) -> None:
    """Whom those let in who listen."""
    parser.add_argument("--key", metavar="FILE",
                        help="let in only peers that prove a key of FILE")
    parser.add_argument("--allow-unauthenticated", action="store_true",
                        help="listen without a key where other machines reach "
                        "the address")
    _add_tls(parser, dials)


def add_listening(parser: argparse.ArgumentParser) -> None:
    """What the commands that listen take: see listen()."""
    parser.add_argument("-l", "--listen", metavar="URL",
                        default="tcp://127.0.0.1:0",
                        help="where to listen; default %(default)s, which this "
                        "machine alone reaches")
    add_admitting(parser)


def dial(args: argparse.Namespace) -> sync.Endpoint:
    """Connects to args.url."""
    return sync.connect(args.url, timeout=args.timeout, wait=args.wait,
                        **proof(args))


def with_peer(args: argparse.Namespace,
              ask: Callable[[sync.Endpoint], int]) -> int:
    """Connects, asks, and says goodbye, unless the peer is mute."""
    ep = dial(args)
    try:
        code = ask(ep)
        if code != TIMED_OUT:
            with contextlib.suppress(Error):
                ep.close(CLOSE_S)
        return code
    finally:
        ep.abort()


def code_of(error: Error) -> int:
    """Of a call that failed."""
    return next((code for kinds, code in _CODES if isinstance(error, kinds)),
                FAILED)


def listen(args: argparse.Namespace,
           on_lost: Optional[Any] = None) -> sync.Listener:
    """Listens, in the background."""
    return sync.listen(args.listen, background=True,
                       allow_unauthenticated=args.allow_unauthenticated,
                       on_lost=on_lost, **proof(args))


def _end_by(number: signal.Signals) -> int:
    """As a signal ends a program that does not catch it."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return FAILED


def execute(prog: str, module: ModuleType, words: Optional[List[str]]) -> int:
    """Runs a command; returns its exit code. `module` has add_arguments(parser)
    and run(args), which may raise Usage and Error."""
    parser = argparse.ArgumentParser(
        prog=prog, description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    module.add_arguments(parser)
    args = parser.parse_intermixed_args(words)
    try:
        code: int = module.run(args)
        sys.stdout.flush()
        return code
    except Usage as error:
        parser.error(str(error))
    except BadInput as error:
        complain(error)
        return USAGE
    except KeyboardInterrupt:
        return _end_by(signal.SIGINT)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left to be
        return FAILED
    except (Error, OSError) as error:
        complain(error)
        return FAILED
