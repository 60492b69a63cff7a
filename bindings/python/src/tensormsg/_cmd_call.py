# SPDX-License-Identifier: BSD-3-Clause
"""Calls a method of a server, and prints its reply.

The map is made of .npy files, arrays of .npz and .safetensors files, and values
such as x=[1,2,3]:float32 or t=0.5. Ends with 0 when there is a reply, 3 where the
method says that it failed, 4 where there is none of that name, 5 where it takes
another map, 6 at the time limit, 7 where the server is full, or is being shut
down.
"""

from __future__ import annotations

import argparse
import os
from typing import Any, Dict, Iterator

from . import sync
from ._cmd import DONE, FAILED, BadInput, Usage, add_connecting, \
    code_of, complain, with_peer
from ._cmd_data import arrays_of, check_text, data_of, event, lines, meta_of, name_fault, \
    summary
from ._files import save
from ._lib import hot
from .errors import AlreadyExists, Error
from .health import say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connecting(parser)
    parser.add_argument("--list", action="store_true",
                        help="list the methods with their parameters and "
                             "results")
    parser.add_argument("--health", action="store_true",
                        help="say how the server, or METHOD, is")
    parser.add_argument("--meta", metavar="KEY=VALUE", action="append",
                        default=[], help="metadata: true, false, an integer, a "
                        "number, else text; \"7\" in quotes is text")
    parser.add_argument("-o", "--out", metavar="DIR",
                        help="write each array of the reply as DIR/NAME.npy, or, "
                        "where DIR ends in .npz or .safetensors, all into that "
                        "file; metadata are kept in the last alone")
    parser.add_argument("-f", "--force", action="store_true",
                        help="replace existing files")
    parser.add_argument("--json", action="store_true",
                        help="one object of JSON")
    parser.add_argument("url", metavar="URL")
    parser.add_argument("method", metavar="METHOD", nargs="?")
    parser.add_argument("words", metavar="NAME=FILE|NAME=VALUE|FILE", nargs="*")


def check(args: argparse.Namespace) -> None:
    if args.list and args.health:
        raise Usage("--list and --health exclude each other")
    if args.list and args.method is not None:
        raise Usage("--list takes a URL alone")
    if args.health and args.words:
        raise Usage("--health takes a URL and a METHOD")
    if args.method is None and not args.list and not args.health:
        raise Usage("the METHOD to call is missing")
    if args.out is not None and not is_file(args.out):
        try:
            os.makedirs(args.out, exist_ok=True)
        except OSError as error:
            raise BadInput(f"{args.out}: {error.strerror}") from None


def is_file(out: str) -> bool:
    """Whether --out names one for all arrays."""
    return out.endswith((".npz", ".safetensors"))


def keep(reply: sync.Message, args: argparse.Namespace) -> bool:
    """Whether all of it could be written."""
    arrays = arrays_of(reply)
    if args.out.endswith(".safetensors"):
        return write(args.out, reply.tree(), args, reply.meta)
    if is_file(args.out):
        return write(args.out, arrays, args)
    kept = True
    for name, array in arrays.items():
        fault = name_fault(name)
        if fault is not None:
            complain(f"the tensor '{name}' is not kept: {fault}; --out "
                     "FILE.safetensors takes any name")
        kept = fault is None and write(os.path.join(args.out, name + ".npy"),
                                       {name: array}, args) and kept
    return kept


def write(path: str, data: Any, args: argparse.Namespace,
          meta: Any = None) -> bool:
    try:
        save(path, data, meta=meta, overwrite=args.force)
        return True
    except (Error, ValueError) as error:
        more = " (--force replaces)" if isinstance(error, AlreadyExists) else ""
        complain(f"{error}{more}")
        return False


def described(methods: Dict[str, Dict[str, Any]]) -> Iterator[str]:
    for name, about in methods.items():
        marks = "".join(f" [{mark}]" for key, mark in (
            ("stream", "stream"), ("idempotent", "idempotent"),
            ("principal", "needs a principal")) if about.get(key))
        yield f"{name}{marks} {about.get('signature') or ''}".rstrip()
        if about.get("description"):
            yield f"  {about['description']}"
        if about.get("health", "SERVING") != "SERVING":
            yield f"  is {about['health']}"


def fail(error: Error, args: argparse.Namespace) -> int:
    if args.json:
        print(event("failed", error.details, error=error.reason,
                    status=getattr(error.status, "name", error.status),
                    code=error.code, may_have_run=error.may_have_run))
    complain(error)
    if error.code:
        complain(f"the method's own code for that is {error.code}")
    return code_of(error)


def ask(ep: sync.Endpoint, args: argparse.Namespace, data: Any,
        files: Any) -> int:
    if args.health:
        return say(ep, args, args.timeout)
    try:
        if args.list:
            methods = ep.methods(timeout=args.timeout)
            print(event("methods", methods=methods) if args.json else
                  "\n".join(map(hot.shown, described(methods))))
            return DONE
        reply = ep.call(args.method, data, meta=meta_of(args.meta),
                        timeout=args.timeout)
    except Error as error:
        return fail(error, args)
    for file in files:
        if file.changed() is not None:
            complain(f"{file.changed()}; no reply is kept")
            return FAILED
    if args.json:
        print(event("reply", reply))
    else:
        print(f"reply: {summary(reply)}", *map(hot.shown, lines(reply)),
              sep="\n")
    return DONE if args.out is None or keep(reply, args) else FAILED


def run(args: argparse.Namespace) -> int:
    args.live = False  # of say()
    check(args)
    check_text(args.method or "")
    meta_of(args.meta)
    data, files = data_of(args.words)
    return with_peer(args, lambda ep: ask(ep, args, data, files))
