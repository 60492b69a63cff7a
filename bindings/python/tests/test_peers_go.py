# SPDX-License-Identifier: BSD-3-Clause
"""Peers come and go while others stay: who has gone is not kept, and what they
sent arrives."""

import asyncio
import threading
import time

import numpy as np
import pytest

import tensormsg
from conftest import WAIT

GUESTS = 8
STEADY = 200
X = {"x": np.arange(3)}


@pytest.fixture
def place(tmp_path):
    return f"unix://{tmp_path}/socket"


def visit(url, messages=3):
    """Guests, one after the other, who say something and go at once."""
    for guest in range(GUESTS):
        with tensormsg.sync.connect(url) as ep:
            for i in range(messages):
                ep.send(X, timeout=WAIT, guest=guest, i=i)


def count_buried(hub):
    """The endpoints that it destroys from now on."""
    buried, destroy = [], hub.destroy_endpoint

    def note(number, *peer):
        buried.append(number)
        destroy(number, *peer)

    hub.destroy_endpoint = note
    return buried


def becomes(holds):
    end = time.monotonic() + WAIT
    while not holds() and time.monotonic() < end:
        time.sleep(.001)
    return holds()


@pytest.mark.parametrize("way", ["blocking", "asyncio"])
def test_no_receive_has_to_come_up_empty_before_they_go(place, way):
    """Messages of one that stays wait before those of the guests, and behind."""
    listening = tensormsg.listen(place, background=True, queue_depth=2 * STEADY)
    got = []

    def look(message, listener):
        got.append((message.meta["guest"], message.meta["i"], message.peer))
        if len(got) == 2 * STEADY:
            time.sleep(.1)  # those that had messages are looked at again

    async def receive():
        async with listening as listener:
            while len(got) < 2 * STEADY + 3 * GUESTS:
                look(await listener.recv(), listener)
            assert len(listener._hub.endpoints) == 1
            listener.abort()

    with tensormsg.sync.connect(listening.url) as ep:
        for half in range(2):
            for i in range(STEADY):
                ep.send(X, timeout=WAIT, guest=-1, i=i)
            if half == 0:
                visit(listening.url)
        if way == "asyncio":
            asyncio.run(receive())
        else:
            with listening as listener:
                while len(got) < 2 * STEADY + 3 * GUESTS:
                    look(listener.recv(WAIT), listener)
                assert len(listener._hub.endpoints) == 1
                listener.abort()
        ep.abort()
    assert [i for guest, i, _ in got if guest < 0] == 2 * [*range(STEADY)]
    for guest in range(GUESTS):
        assert [i for who, i, _ in got if who == guest] == [0, 1, 2]
    assert len({peer for _, _, peer in got}) == GUESTS + 1


@pytest.mark.parametrize("background", [False, True])
def test_those_who_say_nothing_do_not_stay(place, background):
    """While a task waits for a message that does not come."""
    async def main():
        async with tensormsg.listen(place, background=background) as listener:
            buried = count_buried(listener._hub)
            waiting = asyncio.ensure_future(listener.recv())
            await asyncio.get_running_loop().run_in_executor(
                None, visit, listener.url, 0)
            for _ in range(WAIT * 100):
                if len(buried) == GUESTS:
                    break
                await asyncio.sleep(.01)
            assert len(buried) == GUESTS
            waiting.cancel()

    asyncio.run(main())


def test_they_go_while_others_call(place):
    """A blocking server, whose thread always has something to do."""
    with tensormsg.listen(place, background=True) as listener:
        server = listener.serve()
        server.method("echo")(lambda request: request)
        buried = count_buried(listener._hub)
        over = threading.Event()

        def call():
            with tensormsg.sync.connect(listener.url, background=True) as ep:
                while not over.is_set():
                    ep.call("echo", X, timeout=WAIT)

        caller = threading.Thread(target=call)
        caller.start()
        visit(listener.url, 0)
        gone = becomes(lambda: len(buried) >= GUESTS)
        over.set()
        caller.join()
        assert gone
        server.close()


def test_they_go_from_a_publisher_that_has_received_once(place):
    with tensormsg.publish(place) as publisher:
        with pytest.raises(tensormsg.TimedOut):
            publisher.listener.recv(0)
        buried = count_buried(publisher.listener._hub)
        visit(publisher.url, 0)

        def gone():
            publisher.send(X)
            return len(buried) == GUESTS

        assert becomes(gone)


def test_each_received_from_by_itself_goes_with_its_end(place):
    """And nobody receives from all."""
    async def main():
        async with tensormsg.listen(place) as listener:
            buried = count_buried(listener._hub)
            ep = await tensormsg.connect(place)
            await ep.send(X)
            while not listener.peers:
                await asyncio.sleep(.001)
            peer, = listener.peers
            await asyncio.gather(ep.close(), *(take(peer) for _ in range(2)))
            for _ in range(WAIT * 100):
                if buried:
                    break
                await asyncio.sleep(.01)
            assert len(buried) == 1 and not listener._hub.endpoints

    async def take(peer):
        return [message async for message in peer]

    asyncio.run(main())


def test_how_it_ended_is_known_of_one_that_is_not_kept(place):
    with tensormsg.listen(place, background=True) as listener:
        peers = []
        for i in range(2):
            ep = tensormsg.sync.connect(listener.url)
            ep.send(X, timeout=WAIT)
            peers.append(listener.recv(WAIT).peer)
            if i == 0:
                name = peers[0].peer
                ep.abort()
            else:
                ep.close()
        assert becomes(lambda: not listener.peers)
        assert [peer.peer for peer in peers] == [name, name]
        for _ in range(2):
            with pytest.raises(tensormsg.PeerLost) as caught:
                peers[0].recv(WAIT)
            assert caught.value.peer == name
            with pytest.raises(tensormsg.PeerLost):
                peers[0].send(X)
            with pytest.raises(tensormsg.Closed):
                peers[1].recv(WAIT)


def test_a_message_names_who_was_destroyed_meanwhile(place):
    """By another thread, between its being pulled and looked at."""
    with tensormsg.listen(place, background=True) as listener:
        with tensormsg.sync.connect(listener.url) as ep:
            ep.send(X, timeout=WAIT)
        hub = listener._hub
        pull = hub.pull

        def meanwhile(*args):
            parts = pull(*args)
            assert becomes(lambda: not listener.peers)
            return parts

        hub.pull = meanwhile
        peer = listener.recv(WAIT).peer
        assert peer.closed and "pid" in peer.peer
        with pytest.raises(tensormsg.Closed):
            peer.send(X)


def test_whichever_thread_receives_it_may_answer(place):
    """Nothing moves but what those who wait do, each of whom may find a message
    of a peer that another is just about to tell of."""
    listener = tensormsg.sync.listen(place)
    unanswered = []

    def answer():
        try:
            for message in listener:
                message.peer.send(X, timeout=WAIT)
        except tensormsg.Error as error:
            unanswered.append(error)

    threads = [threading.Thread(target=answer) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(40):
            with tensormsg.sync.connect(place) as ep:
                for i in range(3):
                    ep.send(X, timeout=WAIT)
                for i in range(3):
                    assert not unanswered
                    ep.recv(WAIT)
    finally:
        listener.abort()
        for thread in threads:
            thread.join()
