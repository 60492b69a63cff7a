# SPDX-License-Identifier: BSD-3-Clause
"""Of several peers that came in by one listener some end, here or there, while
others, or they themselves, are received from."""

import asyncio
import threading

import numpy as np
import pytest

import tensormsg

WAIT = 60


def run(main):
    asyncio.run(asyncio.wait_for(main(), WAIT))


async def let_in(server, count):
    """So many that connected, and what they are here, in the same order."""
    there, here = [], []
    for i in range(count):
        there.append(await tensormsg.connect(server.url))
        await there[i].send({"x": np.arange(3)}, hello=i)
        msg = await server.recv()
        assert msg.meta["hello"] == i
        here.append(msg.peer)
    return there, here


@pytest.fixture
def place(tmp_path):
    return f"unix://{tmp_path}/socket"


def test_only_those_are_woken_that_something_came_for(tmp_path, monkeypatch):
    """Each peer has a task of its own that receives from it."""
    peers, count = 40, 25
    looked = []

    async def take(peer):
        got = []
        async for message in peer:
            got.append(int(message["i"]))
        return got

    async def main():
        async with tensormsg.listen(f"unix://{tmp_path}/s") as server:
            eps = [await tensormsg.connect(server.url) for _ in range(peers)]
            while len(server.peers) < peers:
                await asyncio.sleep(.001)
            tasks = [asyncio.ensure_future(take(peer))
                     for peer in server.peers]
            anybody = asyncio.ensure_future(take(eps[0]))
            await asyncio.sleep(.1)
            look = server._hub._look
            monkeypatch.setattr(
                server._hub, "_look",
                lambda number, *more: looked.append(number) or look(
                    number, *more))
            for i in range(count):
                await eps[i % peers].send({"i": np.array(i)}, acked=True)
            assert len(looked) < 4 * count
            for ep in eps:
                await ep.close()
            got = await asyncio.gather(*tasks)
            assert sorted(sum(got, [])) == list(range(count))
            assert await anybody == []

    asyncio.run(asyncio.wait_for(main(), WAIT))


def test_what_one_sent_is_not_lost_by_looking_for_anothers(place):
    async def main():
        async with tensormsg.listen(place) as server:
            there, here = await let_in(server, 2)
            for i in range(3):
                await there[0].send({"x": np.full(3, i)})
            closing = asyncio.ensure_future(there[0].close())
            waiting = asyncio.ensure_future(here[1].recv())
            while not here[0].closed:
                server.peers  # takes note of those that have ended
                await asyncio.sleep(0.01)
            server.peers
            await there[1].send({"x": np.arange(3)}, i=7)
            assert (await waiting).meta["i"] == 7
            got = [msg["x"][0] async for msg in here[0]]
            assert got == [0, 1, 2]
            await closing
            await asyncio.gather(there[1].close(), here[1].close())

    run(main)


def test_each_is_received_from_by_a_task_of_its_own(place):
    """Which sees that its peer has closed, whatever the others do."""
    async def main():
        async with tensormsg.listen(place) as server:
            there, here = await let_in(server, 4)

            async def receive(peer):
                return [int(msg["x"][0]) async for msg in peer]

            async def send(peer, count):
                for i in range(count):
                    await peer.send({"x": np.full(3, i)})
                    server.peers
                await peer.close()

            receiving = [asyncio.ensure_future(receive(peer)) for peer in here]
            await asyncio.gather(*(send(peer, 5 * i)
                                   for i, peer in enumerate(there)))
            assert await asyncio.gather(*receiving) == [
                list(range(5 * i)) for i in range(4)]

    run(main)


@pytest.mark.parametrize("into", [False, True])
def test_closed_here_while_a_task_receives_from_it(place, into):
    async def main():
        async with tensormsg.listen(place) as server:
            there, here = await let_in(server, 2)
            buffers = {"x": np.empty(3, "i8")}
            waiting = [asyncio.ensure_future(
                here[0].recv_into(buffers) if into else here[0].recv())
                for _ in range(1 if into else 2)]
            for _ in range(3):
                await asyncio.sleep(0)
            here[0].abort()
            for one in waiting:
                with pytest.raises(tensormsg.Closed):
                    await one
            with pytest.raises(tensormsg.PeerLost):
                await there[0].recv()
            await there[1].send({"x": np.arange(3)})
            assert (await here[1].recv())["x"][2] == 2
            there[0].abort()
            await asyncio.gather(there[1].close(), here[1].close())

    run(main)


def test_closed_here_while_a_thread_receives_from_it(place):
    with tensormsg.listen(place, background=True) as server, \
            tensormsg.connect(place, background=True) as ep:
        ep.send({"x": np.arange(3)})
        peer = server.recv(WAIT).peer
        failed = []

        def receive():
            try:
                peer.recv(WAIT)
            except tensormsg.Closed as error:
                failed.append(error)

        threads = [threading.Thread(target=receive) for _ in range(3)]
        for thread in threads:
            thread.start()
        peer.abort()
        for thread in threads:
            thread.join(WAIT)
        assert len(failed) == 3
        with pytest.raises(tensormsg.Closed):
            peer.recv(WAIT)
        ep.abort()


def test_nothing_is_asked_of_one_that_was_closed_here(place):
    """Its memory is gone, also for who began before."""
    async def main():
        async with tensormsg.listen(place) as server:
            there, here = await let_in(server, 1)
            hub, number = here[0]._hub, here[0]._number
            here[0].abort()
            assert hub.peer(number) == "a closed endpoint"
            for use in (lambda: hub.status(number),
                        lambda: hub.describe(number),
                        lambda: hub.operation(None, number),
                        lambda: hub.post(number, {}, None, 0, 0),
                        lambda: hub.call(number, "x", {}, None, 1, False, 1, 0),
                        lambda: hub.open_stream(number, "x", {}, None, 1, 1)):
                with pytest.raises(tensormsg.Closed):
                    use()
            there[0].abort()

    run(main)


@pytest.mark.parametrize("what", ["send", "acked", "close"])
@pytest.mark.parametrize("how", ["abort", "buried"])
def test_it_ends_while_a_task_sends_to_it_or_closes_it(place, what, how):
    big = {"x": np.zeros(1 << 24, "u1")}

    async def main():
        async with tensormsg.listen(place) as server:
            there, here = await let_in(server, 1)
            going = [asyncio.ensure_future(here[0].send(
                big, acked=what == "acked"))]
            if what == "close":
                await asyncio.sleep(0)
                going.append(asyncio.ensure_future(here[0].close()))
            for _ in range(3):
                await asyncio.sleep(0)
            if how == "abort":
                here[0].abort()
            else:
                there[0].abort()
                receiving = asyncio.ensure_future(server.recv())
                while here[0] in server.peers:
                    await asyncio.sleep(.01)
                receiving.cancel()
            for outcome in await asyncio.gather(*going,
                                                return_exceptions=True):
                assert outcome is None or \
                    isinstance(outcome, tensormsg.Error), outcome
            there[0].abort()

    run(main)


def test_an_address_is_used_again(place, monkeypatch):
    """By who comes in after one that has ended and was closed here, whose end
    was still to be dealt with."""
    happened, buried = [], []

    class Lib:
        def __getattr__(self, name):
            return getattr(tensormsg._lib.lib, name)

        def tmsgpy_hub_event(self, _, event):
            if not happened:
                return 0
            event.accepted, number = happened.pop(0)
            event.endpoint = tensormsg._lib.ffi.cast("void *", number)
            return 1

        def tmsg_endpoint_status(self, _):
            return 0

        def tmsg_endpoint_destroy(self, _):
            pass

    class Peer:
        def __init__(self, _, number):
            self.number = number

        def _over(self, _):
            buried.append(self)

    with tensormsg.listen(place) as server:
        hub = server._hub
        hub.kind = Peer
        monkeypatch.setattr("tensormsg._hub.lib", Lib())
        happened += [(1, 4711), (1, 4712), (0, 4711), (0, 4712)]
        hub.news()
        first = hub.endpoints.pop(4711)  # as its abort() does
        happened.append((1, 4711))
        hub.news()
        second = hub.endpoints[4711]
        hub.bury()
        assert second is not first and hub.endpoints == {4711: second}
        assert [peer.number for peer in buried] == [4712]
        hub.endpoints.clear()


def test_one_whose_loop_has_ended_is_closed(place):
    loop = asyncio.new_event_loop()

    async def main():
        server = await tensormsg.listen(place).__aenter__()
        there, here = await let_in(server, 1)
        receiving = asyncio.ensure_future(here[0].recv())
        await asyncio.sleep(.01)
        return server, there[0], here[0], receiving

    server, there, here, receiving = loop.run_until_complete(main())
    loop.close()
    here.abort()
    assert here.closed and not receiving.done()
    receiving._log_destroy_pending = False
    there.abort()
    server.abort()


def test_who_is_gone_is_not_waited_for(place, monkeypatch):
    with tensormsg.listen(place, background=True) as server:
        hub = server._hub
        monkeypatch.setattr("tensormsg._hub.time.sleep", None)
        assert hub.sender(4711, over=True) is None


def test_the_peer_of_a_first_message_is_known(tmp_path):
    """Also where a thread of the library's moves the messages."""
    for i in range(20):
        with tensormsg.listen(f"unix://{tmp_path}/{i}", background=True) \
                as server, tensormsg.connect(server.url, background=True) as ep:
            ep.send({"x": np.arange(3)})
            server.recv(WAIT).peer.send({"y": np.arange(3)})
            assert ep.recv(WAIT)["y"][2] == 2
