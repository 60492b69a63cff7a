# SPDX-License-Identifier: BSD-3-Clause
"""growth.py MARKS FOLDER: what the package's functions cost that walk what a peer
sent, for inputs of a size, of 4 and of 16 times that. tests/counts/growth.py
runs this under callgrind and compares the instructions; MARKS is the library of
tests/counts/marks.c."""

import ctypes
import gc
import json
import sys

import numpy as np

import tensormsg
from tensormsg import _data, _mcap, _observed, _serve
from tensormsg._lib import hot

marks = ctypes.CDLL(sys.argv[1])


class Reply:
    """What a peer says of its methods."""

    def __init__(self, count):
        self.meta = {f"method/{i:06}": json.dumps({"description": "x" * 20})
                     for i in range(count)}


def long_key(count):
    """A long key with many short ones below it, all of them None."""
    return json.dumps({"k" * 20 * count: {f"{i:x}": None for i in range(count)}})


def tree_of(count):
    form = {"a": {f"{i:06}": 0 for i in range(count)},
            "b": ["l"] + [["t", 0] for i in range(count)]}
    leaves = {f"a/{i:06}": i for i in range(count)}
    leaves.update({f"b/{i}/0": i for i in range(count)})
    return json.dumps(form), leaves


def twice(count):
    """A long name by two ways: the second of them is refused."""
    name = "k" * 20 * count
    form = {name: {"a": {f"{i}": 0 for i in range(count)}}, f"{name}/a": {"0": 0}}
    leaves = {f"{name}/a/{i}": 1 for i in range(3)}
    return json.dumps(form), leaves


def refused(form, leaves):
    try:
        _data.unflatten(form, leaves)
    except ValueError:
        return
    raise AssertionError("that was no lie")


def messages():
    """What makes messages of so many tensors and keys, which have come before
    anything is counted: threads of a connection would be, too."""
    with tensormsg.listen(":0", background=True) as server, \
            tensormsg.connect(server.url) as endpoint:
        come = {}
        for count in (32, 128, 512):
            for _ in range(14 if count == 32 else 7):
                endpoint.send(
                    {"tree": [np.ones(1, np.int8) for _ in range(count)]},
                    meta={f"key{i:06}": i for i in range(count)})
                come.setdefault(count, []).append(server.recv(timeout=60))
    return lambda count: (come[count].pop(),)


def metrics_of(count):
    """Of many methods, and a line without an end."""
    return "".join(
        f'tensormsg_calls_total{{side="server",method="{i:06}",status="ok"}} 1\n'
        for i in range(count)) + "a" * 100 * count


# Name, base, what makes the arguments, what is measured.
CASES = [
    ("a long key", 64, lambda n: (long_key(n), {}), _data.unflatten),
    ("a tree", 16, tree_of, _data.unflatten),
    ("int keys", 64, lambda n: (json.dumps(["d", *[[i, None] for i in range(
        n)]]), {}), _data.unflatten),
    ("a list of numbers", 1024, lambda n: ('{"n":["L"]}', {"n": np.ones(n)}),
     _data.unflatten),
    ("a name twice", 64, twice, refused),
    ("methods", 16, lambda n: (Reply(n),), _serve.methods_of),
    ("metrics", 64, lambda n: (metrics_of(n),), _observed.calls_of),
    ("a recorded map", 16, lambda n: (_mcap.map_message(
        {f"{i:06}": np.ones(1) for i in range(n)},
        {f"{i:06}": i for i in range(n)}, {}), None), _mcap.read_message),
    ("shown", 256, lambda n: ("\u202e" * n,), hot.shown),
]
OF_MESSAGES = [
    ("dict(message)", dict),
    ("message.tree()", lambda got: got.tree()),
    ("message.meta", lambda got: got.meta),
    ("repr(message)", repr),
    ("message[name]", lambda got: [got[name] for name in got]),
    ("name in message", lambda got: [name in got for name in got]),
    ("message.dtype()", lambda got: [got.dtype(name) for name in got._arrays]),
]


def main():
    message = messages()
    gc.disable()
    for name, base, prepare, run in CASES + [
            (name, 32, message, run) for name, run in OF_MESSAGES]:
        run(*prepare(base))  # what is made once
        for times in (1, 4, 16):
            arguments = prepare(base * times)
            marks.growth_begin()
            run(*arguments)
            marks.growth_end(f"{name};{times}".encode())


if __name__ == "__main__":
    main()
