# SPDX-License-Identifier: BSD-3-Clause
"""The interpreter's lock: other threads run while a call waits, whichever it is,
and callbacks have it."""

import contextlib
import ctypes
import inspect
import sys
import threading
import time

import numpy as np
import pytest

import tensormsg
from conftest import WAIT, echo
from tensormsg import sync
from test_package import public_of
from waiting import OTHERS, WAITING, Stage

WAITS = .3  # seconds
SPECIAL = {"__iter__", "__enter__", "__exit__"}


@pytest.fixture(scope="module")
def peer():
    with echo("sync") as url_and_process:
        yield url_and_process


def members(kind):
    return {f"{kind.__name__}.{name}" for name in dir(kind)
            if name in SPECIAL or name[0] != "_"}


def test_each_call_is_known_to_wait_or_not():
    """A new one has its line in a table of waiting.py."""
    kinds = sync.Bell, sync.Call, sync.Endpoint, sync.Listener, sync.Offer, \
        sync.Publisher, sync.Server, sync.Stream, tensormsg.Connecting, tensormsg.Listening, \
        tensormsg.Publishing, tensormsg.Context, tensormsg.Keyring, tensormsg.TLS
    public = set().union(*map(members, kinds))
    public |= {name.split(".")[-1] for name, thing in public_of(sync)
               if not isinstance(thing, type) and name.count(".") == 2}
    assert public == WAITING.keys() | OTHERS


def test_no_kind_of_thing_is_left_out():
    """What is public and in no table: what is awaited, what handlers are given,
    errors, and functions that begin something, compute, or wait for a disk."""
    left = {name for name in tensormsg.__all__
            if not inspect.isclass(getattr(tensormsg, name)) or not issubclass(
                getattr(tensormsg, name), BaseException)}
    assert left - {one.split(".")[0] for one in WAITING.keys() | OTHERS} == {
        "CallMetrics", "DLPack", "File", "Health", "InterceptedCall", "Interceptor", "Latency", "Message", "PeerEvent", "RawTensor", "Reply", "Request",
        "ServerStream", "SessionEvent", "Status", "empty", "generate_key", "info", "is_lent",
        "load", "open", "save", "save_key", "set_allocator", "sync"}
    assert {name.partition(".")[2] for name in members(sync.ServerStream)} - {
        "__iter__", "recv", "send"} == {
            name.partition(".")[2] for name in OTHERS
            if name.startswith("Stream.") and "__" not in name} | {
                "principal", "request"}


def test_with_asyncio_what_may_wait_is_awaited():
    kinds = tensormsg.Bell, tensormsg.Call, tensormsg.Endpoint, tensormsg.Listener, \
        tensormsg.Offer, tensormsg.Publisher, tensormsg.Server, \
        tensormsg.Stream
    plain = {name for kind in kinds for name in members(kind)
             if not any(is_async(getattr(kind, name.partition(".")[2]))
                        for is_async in (inspect.iscoroutinefunction,
                                         inspect.isasyncgenfunction))}
    assert plain <= OTHERS, plain - OTHERS


@pytest.mark.parametrize("call", WAITING)
def test_other_threads_run_while_it_waits(call, peer):
    """A thousand times a second, where the machine lets them; where the lock was
    kept for a slice of a wait it would be ten times."""
    ticks = 0
    over = threading.Event()

    def tick():
        nonlocal ticks
        while not over.wait(.001):
            ticks += 1

    with contextlib.ExitStack() as opened:
        url, process = peer
        stage = Stage(opened, url, process.pid, WAITS)
        thread = threading.Thread(target=tick)
        thread.start()
        opened.callback(thread.join)
        opened.callback(over.set)
        since, before = time.monotonic(), ticks
        with contextlib.suppress(tensormsg.Error):
            WAITING[call](stage)
        took, ticks_then = time.monotonic() - since, ticks - before
        assert took > .8 * WAITS
        assert ticks_then > 50 * took


def test_callbacks_have_the_lock():
    """An allocator, in a thread of the library's; what frees an array, in one that
    had let go of it."""
    has = ctypes.pythonapi.PyGILState_Check
    seen = []

    class Freed:
        def __init__(self, data):
            self.data = data
            self.__array_interface__ = np.frombuffer(
                data, "u1").__array_interface__

        def __del__(self):
            seen.append(("freed", has()))

    def take(nbytes):
        seen.append(("taken", has(), threading.current_thread() is
                     threading.main_thread()))
        return Freed(bytearray(nbytes))

    with sync.listen(":0", background=True,
                     allocators={"host": take}) as server, \
            sync.connect(server.url) as ep:
        for _ in range(5):
            ep.send({"x": np.ones(1 << 16)})
        for _ in range(5):
            assert server.recv(WAIT)["x"].all()
    assert seen.count(("taken", 1, False)) == 5
    assert seen.count(("freed", 1)) >= 4


class Beside(threading.Thread):
    """Runs beside the thread that made it: `most` is how much of its `all`, in
    seconds of a processor, that one computed at once, while this one waited."""

    def __init__(self):
        super().__init__()
        self.clock = time.pthread_getcpuclockid(threading.get_ident())
        self.over = threading.Event()
        self.most = 0.

    def now(self):
        return time.clock_gettime(self.clock)

    def run(self):
        last = self.now()
        while not self.over.wait(.0001):
            now = self.now()
            self.most, last = max(self.most, now - last), now

    def __enter__(self):
        self.start()
        self.begun = self.now()
        return self

    def __exit__(self, *error):
        self.all = self.now() - self.begun
        self.over.set()
        self.join()


@pytest.fixture
def short_turns():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(.0005)
    yield
    sys.setswitchinterval(interval)


def test_others_run_while_a_large_dict_is_packed_and_unpacked(short_turns):
    """Once in some tries: another program may take the processor."""
    data = dict.fromkeys(map(str, range(50_000)), np.ones(1, "u1"))
    shares = {"send": [], "recv": []}
    with tensormsg.listen(":0", background=True) as listener, \
            tensormsg.connect(listener.url, background=True) as ep:
        for _ in range(8):
            for name, do in ("send", lambda: ep.send(data)), \
                    ("recv", lambda: listener.recv(WAIT)):
                with Beside() as beside:
                    do()
                shares[name].append(beside.most / beside.all)
            if all(min(some) < .5 for some in shares.values()):
                return
    raise AssertionError(shares)


def test_a_dict_that_changes_while_it_is_packed_is_sent_as_it_was(short_turns):
    data = {str(i): np.full(2, i, "u4") for i in range(4000)}
    over = threading.Event()

    def change():
        while not over.is_set():
            for name in list(data)[::100]:
                data[name] = np.full(2, int(name), "u4")
                data[name + "new"] = data[name]
                del data[name + "new"]

    with tensormsg.listen(":0", background=True) as listener, \
            tensormsg.connect(listener.url, background=True) as ep:
        thread = threading.Thread(target=change)
        thread.start()
        try:
            for _ in range(3):
                ep.send(data)
                got = listener.recv(WAIT)
                assert len(got) >= 4000
                assert all(got[name][1] == int(name.rstrip("new"))
                           for name in got)
        finally:
            over.set()
            thread.join()
