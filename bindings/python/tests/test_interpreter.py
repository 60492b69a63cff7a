# SPDX-License-Identifier: BSD-3-Clause
"""The interpreter's lock: other threads run while a call waits, whichever it is,
and callbacks have it."""

import contextlib
import ctypes
import signal
import socket
import threading
import time

import numpy as np
import pytest

import tensormsg
from conftest import WAIT, echo
from tensormsg import sync
from test_package import public_of
from test_reconnect import Cable

WAITS = .3  # seconds
BIG = np.zeros(1 << 23)


@pytest.fixture(scope="module")
def peer():
    with echo("sync") as url_and_process:
        yield url_and_process


class Stage:
    """A peer that is stopped, and a server whose handler does not return."""

    def __init__(self, opened, peer):
        self.opened = opened
        url, self.process = peer
        self.ep = sync.connect(url, context=tensormsg.Context(peer_timeout=0))
        opened.callback(self.ep.abort)
        self.ep.send({"x": np.ones(1)})
        self.ep.recv(WAIT)
        self.mute = opened.enter_context(
            socket.create_server(("127.0.0.1", 0)))

    def stream(self):
        return self.ep.stream("method", timeout=WAITS)

    def stop(self):
        self.opened.callback(self.process.send_signal, signal.SIGCONT)
        self.process.send_signal(signal.SIGSTOP)

    def later(self, end):
        """What ends a wait that has no timeout."""
        timer = threading.Timer(WAITS, end)
        timer.start()
        self.opened.callback(timer.join)

    def busy(self):
        """A listener and its server, whose handler does not return."""
        listener = sync.listen(":0", background=True)
        self.opened.callback(listener.abort)
        server = listener.serve()
        called, go = threading.Event(), threading.Event()
        self.opened.callback(go.set)

        @server.method("slow")
        def slow(request):
            called.set()
            go.wait()

        caller = sync.connect(listener.url, background=True)
        self.opened.callback(caller.abort)
        thread = threading.Thread(target=call_it, args=[caller])
        thread.start()
        self.opened.callback(thread.join)
        self.opened.callback(go.set)
        assert called.wait(WAIT)
        return listener, server, go


def call_it(caller):
    with contextlib.suppress(tensormsg.Error):
        caller.call("slow")


def fill(stage):
    stream = stage.stream()
    while True:
        stream.send({"x": BIG}, timeout=WAITS)


def waits_in_block(stage):
    with stage.stream() as stream:
        stage.later(stream.cancel)


def iterates(stage):
    listener = sync.listen(":0")
    stage.later(listener.abort)
    assert list(listener) == []


def runs(stage):
    listener = sync.listen(":0")
    server = listener.serve()
    stage.later(server.close)
    server.run()


def away(stage):
    listener = stage.opened.enter_context(
        sync.listen(":0", background=True, reconnect=True))
    cable = stage.opened.enter_context(Cable(listener.url))
    ep = sync.connect(cable.url, reconnect=True)
    stage.opened.callback(ep.abort)
    cable.cut(True)
    while ep.connected:
        with contextlib.suppress(tensormsg.TimedOut):
            ep.recv(.01)
    ep.ready(WAITS)


def publishes(stage, call):
    """To one who does not take it."""
    publisher = sync.publish(":0")
    stage.opened.callback(publisher.abort)
    subscriber = sync.connect(publisher.url)
    stage.opened.callback(subscriber.abort)
    publisher.wait_for(1, WAIT)
    publisher.send({"x": BIG})
    stage.later(subscriber.abort)
    call(publisher)


def closes(stage, which, leaves=False):
    *both, go = stage.busy()
    stage.later(go.set)
    if leaves:
        both[which].__exit__(None, None, None)
    else:
        both[which].close(WAITS)


# The public calls that may wait, and how each is had to.
WAITING = {
    "connect": lambda stage: sync.connect(
        f"127.0.0.1:{stage.mute.getsockname()[1]}", timeout=WAITS),
    "Endpoint.send": lambda stage: stage.ep.send(
        {"x": BIG}, acked=True, timeout=WAITS),
    "Endpoint.recv": lambda stage: stage.ep.recv(WAITS),
    "Endpoint.recv_into": lambda stage: stage.ep.recv_into(
        {"x": BIG}, timeout=WAITS),
    "Endpoint.call": lambda stage: stage.ep.call("method", timeout=WAITS),
    "Endpoint.methods": lambda stage: stage.ep.methods(WAITS),
    "Endpoint.health": lambda stage: stage.ep.health(timeout=WAITS),
    "Endpoint.close": lambda stage: stage.ep.close(WAITS),
    "Endpoint.__iter__": lambda stage: (
        stage.later(stage.ep.abort), list(stage.ep)),
    "Endpoint.__exit__": lambda stage: (
        stage.later(stage.ep.abort), stage.ep.__exit__(None, None, None)),
    "Endpoint.ready": away,
    "Publisher.wait_for": lambda stage: publishes(
        stage, lambda publisher: publisher.wait_for(2, WAITS)),
    "Publisher.flush": lambda stage: publishes(
        stage, lambda publisher: publisher.flush(WAITS)),
    "Publisher.close": lambda stage: publishes(
        stage, lambda publisher: publisher.close(WAITS)),
    "Publisher.__exit__": lambda stage: publishes(
        stage, lambda publisher: publisher.__exit__(None, None, None)),
    "Listener.recv": lambda stage: sync.listen(":0").recv(WAITS),
    "Listener.__iter__": iterates,
    "Listener.close": lambda stage: closes(stage, 0),
    "Listener.__exit__": lambda stage: closes(stage, 0, True),
    "Server.drain": lambda stage: stage.busy()[1].drain(WAITS),
    "Server.close": lambda stage: closes(stage, 1),
    "Server.__exit__": lambda stage: closes(stage, 1, True),
    "Server.run": runs,
    "Stream.send": fill,
    "Stream.recv": lambda stage: stage.stream().recv(WAITS),
    "Stream.__iter__": lambda stage: list(stage.stream()),
    "Stream.wait": lambda stage: stage.stream().wait(WAITS),
    "Stream.__exit__": waits_in_block,
}
# Those that never do. They begin something, or tell of what is here.
OTHERS = {
    "listen", "publish", "Publisher.abort", "Publisher.describe",
    "Publisher.listener", "Publisher.send", "Publisher.subscribers",
    "Publisher.url", "Publisher.__enter__", "Endpoint.abort", "Endpoint.bury",
    "Endpoint.closed", "Endpoint.connected", "Endpoint.principal",
    "Endpoint.describe", "Endpoint.peer", "Endpoint.serve", "Endpoint.stream",
    "Endpoint.__enter__", "Listener.abort", "Listener.peers", "Listener.serve",
    "Listener.url", "Listener.__enter__", "Server.method", "Server.__enter__",
    "Stream.cancel", "Stream.done_writing", "Stream.method", "Stream.over",
    "Stream.peer", "Stream.remaining", "Stream.__enter__"}


def test_each_call_is_known_to_wait_or_not():
    """A new one has its line in a table above."""
    special = {"__iter__", "__enter__", "__exit__"}
    kinds = sync.Endpoint, sync.Listener, sync.Publisher, sync.Server, \
        sync.Stream
    public = {f"{kind.__name__}.{name}" for kind in kinds
              for name in dir(kind) if name in special or name[0] != "_"}
    public |= {name.split(".")[-1] for name, thing in public_of(sync)
               if not isinstance(thing, type) and name.count(".") == 2}
    assert public == WAITING.keys() | OTHERS


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
        stage = Stage(opened, peer)
        thread = threading.Thread(target=tick)
        thread.start()
        opened.callback(thread.join)
        opened.callback(over.set)
        stage.stop()
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
