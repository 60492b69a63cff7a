# SPDX-License-Identifier: BSD-3-Clause
"""A buffer is received into by one at a time: no bytes of another receive are
in it after one that succeeded, also if the other one was given up."""

import array
import asyncio
import contextlib
import signal
import threading
import time

import numpy as np
import pytest

import tensormsg
from conftest import WAIT, environment, python
from tensormsg import sync

GOES_ON = "buffer 'x': another receive into it goes on"
LIES = "buffer 'x': a message there was not taken yet"
WRITTEN = "buffer 'x': an earlier receive may still write to it"
LARGE = 1 << 25  # bytes, more than a network's queues take

# Offers that; is stopped and continued by a test.
OWNER = """
import sys
import numpy as np
from tensormsg import sync

with sync.listen(sys.argv[1], background=True) as listener:
    offer = listener.offer({"x": np.full(int(sys.argv[2]), 1, "u1")}, name="x")
    print(listener.url, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def sides():
    with sync.listen("tcp://127.0.0.1:0", background=True) as listener, \
            sync.connect(listener.url, background=True) as ep:
        yield listener, ep


def until(holds):
    deadline = time.monotonic() + WAIT
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def fails(kind, words, call, *args, **more):
    with pytest.raises(kind, match=words):
        call(*args, **more)


def test_two_receives_at_once_have_no_byte_in_common(sides):
    listener, ep = sides
    offer = listener.offer({"x": np.full(8, 1, "u1")})
    memory = bytearray(32)
    x = np.frombuffer(memory, "u1")
    first = ep.start_fetch(name="never", wait=None, into={"x": x[8:16]})
    for other in (x[8:16], x[15:23], x[1:9], memoryview(memory)[8:16],
                  np.frombuffer(memory, "u1", 8, 8)):
        fails(tensormsg.Busy, GOES_ON, ep.fetch, offer.key, into={"x": other})
        fails(tensormsg.Busy, GOES_ON, ep.start_fetch, offer.key,
              into={"a": np.zeros(8, "u1"), "x": other})
        fails(tensormsg.Busy, GOES_ON, ep.call, "twice", into={"x": other})
        fails(tensormsg.Busy, GOES_ON, ep.start_call, "twice",
              into={"x": other})
        fails(tensormsg.Busy, GOES_ON, ep.recv_into, {"x": other},
              timeout=WAIT)
    with pytest.raises(tensormsg.Busy) as error:
        ep.call("twice", into={"x": x})
    assert error.value.may_have_run is False
    for other in x[:8], x[16:24]:  # beside it; and so what failed has no part
        ep.fetch(offer.key, into={"x": other}, timeout=WAIT)
    assert list(x[:24]) == [1] * 8 + [0] * 8 + [1] * 8
    # It is free once the first one is over, also if its error is kept.
    first.cancel()
    ep.fetch(offer.key, into={"x": x[8:16]}, timeout=WAIT)
    fails(tensormsg.Canceled, "canceled", first.wait)
    for _ in range(3):
        try:
            ep.fetch(name="never", into={"x": x[8:16]})
        except tensormsg.NotFound as error:
            kept = error
            ep.fetch(offer.key, into={"x": x[8:16]}, timeout=WAIT)
    assert kept.__traceback__ is not None and x[:24].all()


def test_a_message_that_nobody_has_taken_is_not_written_over(sides):
    listener, ep = sides
    offers = [listener.offer({"x": np.full(8, i)}) for i in range(3)]
    x = np.zeros(8, int)
    first = ep.start_fetch(offers[1].key, into={"x": x})
    until(lambda: first.done)
    fails(tensormsg.Busy, LIES, ep.fetch, offers[2].key, into={"x": x})
    message = first.wait()
    assert (x == 1).all()
    kept = [message]  # is no reason to refuse the next one
    for offer in offers * 2:
        kept.append(ep.fetch(offer.key, into={"x": x}, timeout=WAIT))
    assert first.wait() is message
    # Nobody can take this one any more.
    first = ep.start_fetch(offers[1].key, into={"x": x})
    until(lambda: first.done)
    del first
    ep.fetch(offers[2].key, into={"x": x}, timeout=WAIT)
    assert (x == 2).all()


def test_a_receive_with_buffers_has_them_while_it_waits(sides):
    listener, ep = sides
    offer = listener.offer({"x": np.ones(8)})
    x = np.zeros(8)
    waits = threading.Thread(target=lambda: ep.recv_into({"x": x}, WAIT))
    waits.start()

    def is_busy():
        try:
            ep.fetch(offer.key, into={"x": x}, timeout=WAIT)
        except tensormsg.Busy as error:
            return GOES_ON in str(error)
        return False

    until(is_busy)
    listener.peers[0].send({"x": np.full(8, 3.)}, timeout=WAIT)
    waits.join(WAIT)
    assert (x == 3).all()
    fails(tensormsg.TimedOut, "no message", ep.recv_into, {"x": x}, timeout=0.01)
    ep.fetch(offer.key, into={"x": x}, timeout=WAIT)
    assert (x == 1).all()
    # With a dtype that does not fit the message stays.
    listener.peers[0].send({"x": np.zeros(8, "i1")}, timeout=WAIT)
    fails(tensormsg.InvalidParam, "'x'", ep.recv_into, {"x": x}, timeout=WAIT)
    ep.fetch(offer.key, into={"x": x}, timeout=WAIT)


def test_10000_buffers_at_once(sides):
    listener, ep = sides
    offer = listener.offer({"x": np.ones(2)})
    all_of_it = np.zeros((10, 1000, 2))
    calls = [ep.start_fetch(name="never", wait=None,
                            into={str(i): row for i, row in enumerate(rows)})
             for rows in all_of_it]
    fails(tensormsg.Busy, GOES_ON, ep.fetch, offer.key,
          into={"x": all_of_it[5, 500]})
    for call in calls:
        call.cancel()
    ep.fetch(offer.key, into={"x": all_of_it[5, 500]}, timeout=WAIT)
    assert all_of_it.sum() == 2


@contextlib.contextmanager
def stopped_in_the_middle(x):
    """An endpoint with a fetch into x of which a part is there, and whose owner
    is stopped."""
    with python("-c", OWNER, "tcp://127.0.0.1:0", LARGE, stdin=-1,
                env={**environment(), "UCX_TLS": "tcp"}) as owner:
        url = owner.stdout.readline().strip()
        with sync.connect(url, background=True) as ep:
            for _ in range(50):
                x[:] = 0
                fetch = ep.start_fetch(name="x", into={"x": x})
                until(lambda: fetch.done or x.any())
                owner.send_signal(signal.SIGSTOP)
                time.sleep(0.05)  # for what is on the way
                fetch.cancel()
                try:
                    fetch.wait(WAIT)
                except tensormsg.Canceled:
                    break
                owner.send_signal(signal.SIGCONT)
            yield ep, owner
            ep.abort()


@pytest.mark.parametrize("face", ["asyncio", "sync"])
def test_a_retry_waits_for_late_bytes(face):
    """Of a fetch that was given up: into the same memory, by another exporter
    and another connection."""
    memory = array.array("B", bytes(LARGE))
    x = np.frombuffer(memory, "u1")
    small = np.full(1000, 2, "u1")

    async def soon(url, key):
        async with tensormsg.connect(url) as ep:
            with pytest.raises(tensormsg.TimedOut, match=WRITTEN) as error:
                await ep.fetch(key, into={"x": x[:1000]}, timeout=0.1)
            assert error.value.may_have_run is False
            task = asyncio.ensure_future(
                ep.fetch(key, into={"x": x[:1000]}, timeout=WAIT))
            await asyncio.sleep(0.05)
            assert not task.done()
            owner.send_signal(signal.SIGCONT)
            await task

    def blocking(url, key):
        with sync.connect(url) as ep:
            fails(tensormsg.TimedOut, WRITTEN, ep.fetch, key,
                  into={"x": x[:1000]}, timeout=0.1)
            fails(tensormsg.Busy, WRITTEN, ep.start_fetch, key,
                  into={"x": x[:1000]})
            fails(tensormsg.TimedOut, "no message", ep.recv_into, {"x": x[:1000]},
                  timeout=0.1)
            threading.Timer(0.05, owner.send_signal, [signal.SIGCONT]).start()
            ep.fetch(key, into={"x": x[:1000]}, timeout=WAIT)

    with sync.listen("tcp://127.0.0.1:0", background=True) as listener, \
            stopped_in_the_middle(x) as (first, owner):
        offer = listener.offer({"x": small})
        if face == "asyncio":
            asyncio.run(soon(listener.url, offer.key))
        else:
            blocking(listener.url, offer.key)
        assert (x[:1000] == 2).all()
        first.offers(WAIT)
        assert (x[:1000] == 2).all()


def test_an_owner_that_stays_away_ends_with_its_connection():
    x = np.zeros(LARGE, "u1")
    with sync.listen("tcp://127.0.0.1:0", background=True) as listener, \
            stopped_in_the_middle(x) as (first, owner), \
            sync.connect(listener.url) as ep:
        offer = listener.offer({"x": np.full(LARGE, 2, "u1")})
        threading.Timer(0.05, owner.kill).start()
        ep.fetch(offer.key, into={"x": x})  # without a timeout
        assert (x == 2).all()
