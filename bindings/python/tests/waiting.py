# SPDX-License-Identifier: BSD-3-Clause
"""The public calls that may wait, each brought to where it does: for tests of what
goes on meanwhile.

waiting.py URL PID: waits in each that is named on a line of the input, for the
peer at that URL, and says that it does; by Ctrl-C that ends, and it says so.
"""

import contextlib
import os
import signal
import socket
import sys
import threading
import time

import numpy as np

import tensormsg
from conftest import WAIT
from tensormsg import sync
from test_reconnect import Cable

BIG = np.zeros(1 << 23)


class Stage:
    """A peer that is stopped, and a server whose handler does not return. Each
    call waits for `seconds`; `begins` is called just before."""

    def __init__(self, opened, url, pid, seconds, begins=lambda: None):
        self.opened = opened
        self.pid = pid
        self.seconds = seconds
        self.begins = begins
        self.ep = sync.connect(url, context=tensormsg.Context(peer_timeout=0))
        opened.callback(self.ep.abort)
        self.ep.send({"x": np.ones(1)})
        self.ep.recv(WAIT)
        self.mute = opened.enter_context(
            socket.create_server(("127.0.0.1", 0)))
        opened.callback(os.kill, pid, signal.SIGCONT)
        os.kill(pid, signal.SIGSTOP)

    @property
    def waits(self):
        """The timeout of what comes next."""
        self.begins()
        return self.seconds

    def stream(self):
        return self.ep.stream("method", timeout=self.waits)

    def later(self, end):
        """What ends a wait that has no timeout, and comes next."""
        timer = threading.Timer(self.waits, end)
        timer.start()
        self.opened.callback(timer.join)
        self.opened.callback(timer.cancel)

    def busy(self):
        """A listener, what listen() gave for it, and its server, whose handler
        does not return."""
        listening = tensormsg.listen(":0", background=True)
        listener = listening.__enter__()
        self.opened.callback(listener.abort)
        server = listener.serve()
        called, go = threading.Event(), threading.Event()

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
        return listening, listener, server, go


def call_it(caller):
    with contextlib.suppress(tensormsg.Error):
        caller.call("slow")


def fill(stage):
    stream = stage.stream()
    while True:
        stream.send({"x": BIG}, timeout=stage.waits)


def waits_in_block(stage):
    with stage.stream() as stream:
        stage.later(stream.cancel)


def iterates(stage, listening, listener):
    stage.later(listener.abort)
    assert list(listening) == []


def follows(stage, listener):
    stage.later(listener.abort)
    list(listener.presence())


def iterates_at_once(stage):
    listening = tensormsg.listen(":0")
    iterates(stage, listening, listening._blocking())


def connects(stage, connect):
    port = stage.mute.getsockname()[1]
    return connect(f"127.0.0.1:{port}", timeout=stage.waits)


def leaves(stage, block):
    """The block of the connection to who is stopped."""
    stage.later(stage.ep.abort)
    block.__exit__(None, None, None)


def connecting(stage):
    made = tensormsg.connect(":1")
    made._endpoint = stage.ep
    return made


def runs(stage):
    listener = sync.listen(":0")
    server = listener.serve()
    stage.later(server.close)
    server.run()


def away(stage):
    listener = sync.listen(":0", background=True, reconnect=True)
    stage.opened.callback(listener.abort)
    cable = stage.opened.enter_context(Cable(listener.url))
    ep = sync.connect(cable.url, reconnect=True)
    stage.opened.callback(ep.abort)
    cable.cut(True)
    while ep.connected:
        with contextlib.suppress(tensormsg.TimedOut):
            ep.recv(.01)
    ep.ready(stage.waits)


def publishes(stage, call, leaves=False):
    """To one who does not take it."""
    publishing = tensormsg.publish(":0")
    publisher = publishing.__enter__()
    stage.opened.callback(publisher.abort)
    subscriber = sync.connect(publisher.url)
    stage.opened.callback(subscriber.abort)
    publisher.wait_for(1, WAIT)
    publisher.send({"x": BIG})
    stage.later(subscriber.abort)
    call(publishing if leaves else publisher)


def withdraws(stage):
    """What one who does not move is fetching."""
    listener = sync.listen(":0", background=True)
    stage.opened.callback(listener.abort)
    offer = listener.offer({"x": BIG})
    fetcher = sync.connect(listener.url)
    stage.opened.callback(fetcher.abort)
    fetch = fetcher._fetch(offer.key, None, 0, None, None, 0, None, False, 0)
    while offer.stats.under_way == 0:
        time.sleep(.001)
    offer.withdraw(stage.waits)
    del fetch


def closes(stage, which, leaves=False):
    *all_of_it, go = stage.busy()
    stage.later(go.set)
    if leaves:
        all_of_it[which].__exit__(None, None, None)
    else:
        all_of_it[which].close(stage.waits)


# The public calls that may wait, and how each is had to.
WAITING = {
    "connect": lambda stage: connects(stage, sync.connect),
    "Connecting.__enter__": lambda stage: connects(
        stage, tensormsg.connect).__enter__(),
    "Connecting.__exit__": lambda stage: leaves(stage, connecting(stage)),
    "Endpoint.send": lambda stage: stage.ep.send(
        {"x": BIG}, acked=True, timeout=stage.waits),
    "Endpoint.recv": lambda stage: stage.ep.recv(stage.waits),
    "Endpoint.recv_into": lambda stage: stage.ep.recv_into(
        {"x": BIG}, timeout=stage.waits),
    "Endpoint.call": lambda stage: stage.ep.call("method", timeout=stage.waits),
    "Call.wait": lambda stage: stage.ep.start_call("method").wait(stage.waits),
    "Endpoint.fetch": lambda stage: stage.ep.fetch(
        name="x", timeout=stage.waits),
    "Endpoint.offers": lambda stage: stage.ep.offers(stage.waits),
    "Endpoint.methods": lambda stage: stage.ep.methods(stage.waits),
    "Endpoint.health": lambda stage: stage.ep.health(timeout=stage.waits),
    "Endpoint.close": lambda stage: stage.ep.close(stage.waits),
    "Endpoint.__iter__": lambda stage: (
        stage.later(stage.ep.abort), list(stage.ep)),
    "Endpoint.__exit__": lambda stage: leaves(stage, stage.ep),
    "Endpoint.ready": away,
    "Publisher.wait_for": lambda stage: publishes(
        stage, lambda publisher: publisher.wait_for(2, stage.waits)),
    "Publisher.flush": lambda stage: publishes(
        stage, lambda publisher: publisher.flush(stage.waits)),
    "Publisher.close": lambda stage: publishes(
        stage, lambda publisher: publisher.close(stage.waits)),
    "Publisher.__exit__": lambda stage: publishes(
        stage, lambda publisher: publisher.__exit__(None, None, None)),
    "Publishing.__exit__": lambda stage: publishes(
        stage, lambda publishing: publishing.__exit__(None, None, None), True),
    "Listener.recv": lambda stage: sync.listen(":0").recv(stage.waits),
    "Listener.__iter__": lambda stage: iterates(
        stage, *2 * [sync.listen(":0")]),
    "Listening.__iter__": iterates_at_once,
    "Listener.presence": lambda stage: follows(stage, sync.listen(":0")),
    "Publisher.presence": lambda stage: follows(stage, sync.publish(":0")),
    "Listener.close": lambda stage: closes(stage, 1),
    "Listener.__exit__": lambda stage: closes(stage, 1, True),
    "Listening.__exit__": lambda stage: closes(stage, 0, True),
    "Bell.warm": lambda stage: stage.ep.bell_into({"x": BIG}).warm(stage.waits),
    "Offer.withdraw": withdraws,
    "Server.drain": lambda stage: stage.busy()[2].drain(stage.waits),
    "Server.close": lambda stage: closes(stage, 2),
    "Server.__exit__": lambda stage: closes(stage, 2, True),
    "Server.run": runs,
    "Stream.send": fill,
    "Stream.recv": lambda stage: stage.stream().recv(stage.waits),
    "Stream.__iter__": lambda stage: list(stage.stream()),
    "Stream.wait": lambda stage: stage.stream().wait(stage.waits),
    "Stream.__exit__": waits_in_block,
}
# Those that never do. They begin something, or tell of what is here.
OTHERS = {
    "listen", "publish", "Publisher.abort", "Publisher.describe",
    "Publisher.listener", "Publisher.send", "Publisher.subscribers",
    "Publisher.url", "Publisher.__enter__", "Endpoint.abort",
    "Endpoint.closed", "Endpoint.connected", "Endpoint.principal",
    "Endpoint.describe", "Endpoint.intercept", "Endpoint.metrics", "Endpoint.metrics_text",
    "Bell.close", "Bell.failed", "Bell.line", "Bell.ring", "Bell.wait",
    "Endpoint.bell", "Endpoint.bell_into",
    "Endpoint.offer", "Endpoint.peer", "Endpoint.serve",
    "Endpoint.set_queue", "Endpoint.status", "Endpoint.stream", "Endpoint.start_call",
    "Endpoint.start_fetch",
    "Call.cancel", "Call.done", "Endpoint.__enter__", "Listener.abort",
    "Listener.describe", "Listener.offer", "Listener.peers", "Listener.serve",
    "Listener.url", "Listener.__enter__", "Server.intercept", "Server.method", "Server.metrics",
    "Server.metrics_text", "Server.ready",
    "Server.__enter__",
    "Stream.cancel", "Stream.done_writing", "Stream.method", "Stream.over",
    "Stream.peer", "Stream.remaining", "Stream.__enter__", "Listening.url",
    "Listening.recv", "Listening.__enter__", "Publishing.url", "Publishing.__enter__",
    "Offer.key", "Offer.released", "Offer.stats",
    "Context.describe", "Context.pointer", "Keyring.add", "Keyring.load",
    "Keyring.remove", "Keyring.replace", "TLS.reload"}


def main(url, pid):
    ticks, begun = 0, None

    def tick():
        nonlocal ticks
        while True:
            ticks += 1
            time.sleep(.001)

    def begins():
        nonlocal begun
        if begun is None:
            begun = ticks
            print("waits", flush=True)

    threading.Thread(target=tick, daemon=True).start()
    for line in sys.stdin:
        ticks, begun = 0, None
        with contextlib.ExitStack() as opened:
            stage = Stage(opened, url, int(pid), 100, begins)
            try:
                WAITING[line.strip()](stage)
            except KeyboardInterrupt:
                print("interrupted", ticks - begun, flush=True)
        print("over", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
