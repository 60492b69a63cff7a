# SPDX-License-Identifier: BSD-3-Clause
"""In event loops: cancelled, idle, several, in threads, held back."""

import asyncio
import gc
import os
import random
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import tensormsg
from conftest import HERE, WAIT, becomes_idle, environment
from tensormsg import _link, _loop
from tensormsg._lib import hot, lib


def loops():
    yield "asyncio", asyncio.run
    try:
        import uvloop
        yield "uvloop", uvloop.run
    except ImportError:
        pass


run_in = pytest.mark.parametrize(
    "run", [run for _, run in loops()], ids=[name for name, _ in loops()])


@run_in
def test_a_cancelled_close_is_cancelled(run):
    """However near it was to its end."""
    async def main():
        async with tensormsg.listen(":0") as server:
            for steps in [*range(1, 8), 12, 20, 50]:
                ep = await tensormsg.connect(server.url)
                task = asyncio.ensure_future(ep.close())
                for _ in range(steps):
                    await asyncio.sleep(0)
                cancelled = task.cancel()
                await asyncio.wait({task})
                assert task.cancelled() == cancelled and ep.closed

    run(asyncio.wait_for(main(), WAIT))


@run_in
def test_a_cancelled_receive_takes_no_message(run):
    rng = random.Random(1)
    count = 300

    async def main():
        async with tensormsg.listen(":0") as server:
            ep = await tensormsg.connect(server.url)

            async def send():
                for i in range(count):
                    await ep.send({"i": np.array(i)})
                    await asyncio.sleep(rng.random() * .001)

            sending = asyncio.ensure_future(send())
            got, cancelled = [], 0
            while len(got) < count:
                try:
                    msg = await asyncio.wait_for(server.recv(),
                                                 rng.random() * .002)
                    got.append(int(msg["i"]))
                except asyncio.TimeoutError:
                    cancelled += 1
            assert got == list(range(count)) and cancelled > 10
            await sending
            await ep.close()

    run(main())


@run_in
def test_a_cancelled_send_harms_no_other(run):
    """It arrives whole or not at all, and all the others in their order."""
    count = 100

    async def main():
        async with tensormsg.listen(":0", queue_depth=2) as server:
            ep = await tensormsg.connect(server.url)
            tasks = [asyncio.ensure_future(
                ep.send({"x": np.full(1 << 15, i)}, frame=i))
                for i in range(count)]
            await asyncio.sleep(0)
            for i, task in enumerate(tasks):
                if i % 3 == 1:
                    task.cancel()
            await asyncio.sleep(0)  # they are told
            got = []
            while not got or got[-1] != count - 1:
                msg = await asyncio.wait_for(server.recv(), WAIT)
                got.append(msg.meta["frame"])
                assert (msg["x"] == got[-1]).all()
            assert got == sorted(set(got))
            assert set(range(0, count, 3)) <= set(got)
            assert len(got) < count
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            assert [i for i in range(count) if outcomes[i] is not None] == \
                list(range(1, count, 3))
            await ep.close()

    run(main())


@run_in
def test_a_send_may_have_a_timeout(run):
    """It is no metadata, and the connection goes on."""
    async def main():
        large = {"x": np.zeros(1 << 24, "u1")}
        async with tensormsg.listen(":0", queue_depth=1) as listener, \
                tensormsg.connect(listener.url) as ep:
            with pytest.raises(tensormsg.TimedOut, match="the send took more"):
                for _ in range(3):  # nobody receives
                    await ep.send(large, acked=True, timeout=.2)
            task = asyncio.ensure_future(
                ep.send({"y": np.ones(2)}, timeout=WAIT, frame=3))
            msg = await listener.recv()
            while "y" not in msg:
                msg = await listener.recv()
            assert msg.meta == {"frame": 3}
            await task

    run(main())


@run_in
@pytest.mark.parametrize("count", [200, 600])
def test_many_that_wait_take_no_turn_each(run, monkeypatch, count):
    """Both ends in one loop: the peer has to get its turn."""
    rounds = 0

    class Counted:
        def __getattr__(self, name):
            return getattr(hot, name)

        def progress(self, *args):
            nonlocal rounds
            rounds += 1
            return hot.progress(*args)

    async def main():
        async with tensormsg.listen(":0", queue_depth=4 * count) as listener, \
                tensormsg.connect(listener.url) as ep:
            await ep.send({})
            monkeypatch.setattr(_loop, "hot", Counted())
            sends = [ep.send({}, frame=i) for i in range(count)]
            await asyncio.wait_for(asyncio.gather(*sends), WAIT)
            for i in range(-1, count):
                assert (await listener.recv()).meta.get("frame", -1) == i

    run(main())
    assert 0 < rounds < 20 * count, rounds


def test_what_is_not_entered_says_how():
    with pytest.raises(AttributeError, match="'send' yet: enter it by"):
        tensormsg.connect(":1").send({})
    assert not hasattr(tensormsg.connect(":1"), "recv")


@run_in
def test_an_idle_program_uses_no_processor(run):
    async def main():
        async with tensormsg.listen(":0") as server:
            ep = await tensormsg.connect(server.url)
            waiting = [asyncio.ensure_future(server.recv()),
                       asyncio.ensure_future(ep.recv())]
            idle = await becomes_idle(2, .04)
            assert not any(task.done() for task in waiting)
            await ep.send({"x": np.zeros(1)})
            await asyncio.wait_for(waiting[0], WAIT)
            waiting[1].cancel()
            await asyncio.gather(waiting[1], return_exceptions=True)
            await ep.close()
            return idle

    assert run(main())


@run_in
def test_open_streams_that_wait_use_no_processor(run):
    """On either side: for a message, for room, and for the end."""
    async def main():
        over = asyncio.Event()
        async with tensormsg.listen(":0") as listener:
            server = listener.serve()

            @server.method("reads", stream=True)
            async def reads(stream):
                async for _ in stream:
                    pass

            @server.method("keeps", stream=True)
            async def keeps(stream):
                await over.wait()
                async for _ in stream:
                    pass

            @server.method("waits")
            async def waits(stream):
                await over.wait()
                yield {"x": np.ones(1)}

            async def fill(stream):
                while not over.is_set():
                    await stream.send({"x": np.zeros(1 << 14)})
                await stream.done_writing()

            async with tensormsg.connect(listener.url) as ep:
                read, kept, waited = streams = [
                    ep.stream(name, queue=2)
                    for name in ("reads", "keeps", "waits")]
                await read.send({"x": np.ones(1)})
                waiting = [asyncio.ensure_future(one) for one in (
                    read.recv(), fill(kept), waited.recv(), kept.wait())]
                idle = await becomes_idle(2, .04)
                assert [task for task in waiting if task.done()] == []
                over.set()
                await read.done_writing()
                for task in waiting:
                    await asyncio.wait_for(task, WAIT)
                for stream in streams:
                    stream.cancel()
                return idle

    assert run(main())


def test_threads_of_the_library_that_wait_use_no_processor():
    """Of both ends (background=True), and those that wait on them."""
    def ends(wait):
        try:
            wait()
        except tensormsg.Error:
            pass

    with tensormsg.sync.listen(":0", background=True) as listener, \
            listener.serve(threads=2) as server, \
            tensormsg.sync.publish(":0") as publisher, \
            tensormsg.sync.connect(publisher.url,
                                   background=True) as subscriber, \
            tensormsg.sync.connect(listener.url, background=True) as ep:
        @server.method("reads", stream=True)
        def reads(stream):
            for _ in stream:
                pass

        ep.send({"x": np.ones(1)}, acked=False)
        assert listener.recv(WAIT)["x"].all()
        stream = ep.stream("reads")
        stream.send({"x": np.ones(1)})
        waiting = [threading.Thread(target=ends, args=[wait]) for wait in (
            listener.recv, ep.recv, stream.recv, subscriber.recv)]
        for thread in waiting:
            thread.start()
        idle = asyncio.run(becomes_idle(1.5, .05))
        assert all(thread.is_alive() for thread in waiting)
        stream.cancel()
        for one in subscriber, ep, listener:
            one.abort()
        for thread in waiting:
            thread.join(WAIT)
            assert not thread.is_alive()
    assert idle


@run_in
def test_a_receiver_that_lags_holds_the_sender_back(run):
    async def main():
        async with tensormsg.listen(":0", queue_depth=4) as server:
            ep = await tensormsg.connect(server.url)
            sent = 0

            async def send():
                nonlocal sent
                for sent in range(1, 101):
                    await ep.send({"x": np.zeros(1 << 20, "u1")}, frame=sent)

            sending = asyncio.ensure_future(send())
            await asyncio.sleep(.5)
            assert 1 <= sent < 30
            for frame in range(1, 101):
                msg = await asyncio.wait_for(server.recv(), WAIT)
                assert msg.meta["frame"] == frame
            await sending
            await ep.close()

    run(main())


@run_in
def test_other_tasks_run_meanwhile(run):
    """Neither many messages nor a poller starve the loop."""
    async def main():
        async with tensormsg.listen(":0") as server:
            ep = await tensormsg.connect(server.url)
            late = []

            async def tick():
                while True:
                    since = time.perf_counter()
                    await asyncio.sleep(0)
                    late.append(time.perf_counter() - since)

            ticking = asyncio.ensure_future(tick())
            began = time.process_time()
            for _ in range(50):
                for _ in range(20):
                    await ep.send({"x": np.zeros(10)})
                for _ in range(20):
                    await server.recv()
            ticking.cancel()
            assert len(late) > (time.process_time() - began) * 100
            await ep.close()

    run(main())


class Hot:
    """The extension, where something else happens just before the descriptor is
    armed."""

    def __init__(self):
        self.first = []

    def __getattr__(self, name):
        return getattr(hot, name)

    def arm(self, number):
        if self.first:
            self.first.pop()()
        return hot.arm(number)


@run_in
@pytest.mark.parametrize("what", ["recv", "recv_into", "send"])
def test_what_another_thread_ends_before_the_loop_sleeps(run, what,
                                                         monkeypatch):
    """The descriptor does not tell of it."""
    hook = Hot()
    monkeypatch.setattr("tensormsg._loop.hot", hook)
    quiet = tensormsg.Context(heartbeat_thread=False, peer_timeout=0)

    async def main(listener):
        async with tensormsg.connect(listener.url, background=True,
                                     context=quiet) as ep:
            while not listener.peers:
                await asyncio.sleep(.001)
            peer, = listener.peers
            before = lib.tmsg_worker_arrivals(ep._hub.worker)

            def end():
                if what == "send":
                    listener.recv(WAIT)
                    while not hot.ended(ep._hub.pending[0]):
                        time.sleep(.001)
                else:
                    peer.send({"x": np.ones(3)}, timeout=WAIT)
                    while lib.tmsg_worker_arrivals(ep._hub.worker) == before:
                        time.sleep(.001)
                while lib.tmsg_worker_arm(ep._hub.worker) != 0:
                    time.sleep(.001)  # until that is done with

            waiting = asyncio.ensure_future(
                ep.send({"x": np.ones(3)}, acked=True) if what == "send" else
                ep.recv() if what == "recv" else
                ep.recv_into({"x": np.zeros(3)}))
            await asyncio.sleep(.1)
            assert not waiting.done()
            hook.first.append(end)
            ep._hub.kick()
            for _ in range(20):  # and not when something else happens
                await asyncio.sleep(0)
            assert waiting.done() and not hook.first
            await waiting

    with tensormsg.sync.listen(":0", background=True,
                               context=quiet) as listener:
        run(main(listener))


def test_loops_in_threads_talk_to_each_other():
    served = threading.Event()
    place, results = [], []

    async def serve():
        async with tensormsg.listen(":0") as server:
            place.append(server.url)
            served.set()
            for _ in range(40):
                msg = await server.recv()
                await msg.peer.send({"y": msg["x"] + 1})
            await asyncio.sleep(.3)

    async def client(number):
        async with tensormsg.connect(place[0]) as ep:
            for i in range(10):
                await ep.send({"x": np.array([number, i])})
                results.append((await ep.recv())["y"].tolist())

    threads = [threading.Thread(target=asyncio.run, args=(serve(),))]
    threads[0].start()
    assert served.wait(WAIT)
    threads += [threading.Thread(target=asyncio.run, args=(client(n),))
                for n in range(4)]
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join(40)
    assert sorted(results) == [[n + 1, i + 1] for n in range(4)
                               for i in range(10)]


def test_one_connection_in_one_loop_after_the_other(echo_unix):
    async def use(ep):
        await ep.send({"x": np.arange(5)})
        return (await asyncio.wait_for(ep.recv(), WAIT))["x"].sum()

    async def begin():
        return await tensormsg.connect(echo_unix)

    ep = asyncio.run(begin())
    assert [asyncio.run(use(ep)) for _ in range(3)] == [10, 10, 10]
    asyncio.run(ep.close())


def test_it_is_handed_from_loop_to_loop(echo_unix):
    """While the one before is about to look after it once more."""
    count, failed, over = 500, [], threading.Event()
    loops = [asyncio.new_event_loop() for _ in range(2)]
    threads = [threading.Thread(target=loop.run_forever) for loop in loops]
    for loop in loops:
        loop.set_debug(True)
        loop.set_exception_handler(lambda _, context: failed.append(context))

    async def use(ep, n):
        try:
            ep = ep or await tensormsg.connect(echo_unix)
            await ep.send({"n": np.array(n)})
            assert int((await ep.recv())["n"]) == n
            if n == count:
                await ep.close()
        except BaseException as error:
            failed.append(error)
        if failed or n == count:
            over.set()
        else:
            asyncio.run_coroutine_threadsafe(use(ep, n + 1), loops[n % 2])

    for thread in threads:
        thread.start()
    asyncio.run_coroutine_threadsafe(use(None, 1), loops[0])
    in_time = over.wait(WAIT)
    for loop, thread in zip(loops, threads):
        loop.call_soon_threadsafe(loop.stop)
        thread.join(WAIT)
        loop.close()
    assert in_time and not failed


@pytest.mark.parametrize("place", ["dup", "add_reader"])
@pytest.mark.parametrize("last", [1, 2])
def test_what_a_loop_cannot_take_is_not_left_open(monkeypatch, place, last):
    """It has no descriptor to give, or is no loop for them."""
    async def main():
        count = 0

        def fails(*args):
            nonlocal count
            count += 1
            if count == last:
                raise OSError(24, "too many")
            return real(*args)

        def descriptors():
            return len(os.listdir("/proc/self/fd"))

        async with tensormsg.listen(":0", background=True) as server:
            hub = _loop.LoopHub(None, None, None, False)
            number = hub.connect(server.url, _link.Dialling())
            before = descriptors()
            owner = os if place == "dup" else asyncio.get_running_loop()
            with monkeypatch.context() as patch:
                real = getattr(owner, place)
                patch.setattr(owner, place, fails)
                with pytest.raises(OSError, match="too many"):
                    hub.bind()
            assert descriptors() == before
            await hub.finish(hub.operation(lib.tmsg_endpoint_ready, number),
                             number)
            hub.destroy()

    asyncio.run(asyncio.wait_for(main(), WAIT))


def test_a_loop_that_waits_is_not_robbed():
    async def main():
        async with tensormsg.listen(":0") as server:
            waiting = asyncio.ensure_future(server.recv())
            await asyncio.sleep(.1)
            seen = []

            def other():
                try:
                    asyncio.run(server.recv())
                except RuntimeError as error:
                    seen.append(str(error))

            thread = threading.Thread(target=other)
            thread.start()
            while thread.is_alive():
                await asyncio.sleep(.01)
            assert seen and "another event loop" in seen[0]
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    asyncio.run(main())


def test_blocking_calls_work_under_a_running_loop(echo_unix):
    async def main():
        with tensormsg.connect(echo_unix) as ep:
            ep.send({"x": np.arange(3)})
            return ep.recv(WAIT)["x"].sum()

    assert asyncio.run(main()) == 3


WAITS_FOR_ITSELF = {
    "recv": lambda ep: ep.recv(WAIT),
    "acked": lambda ep: ep.send({}, acked=True, timeout=WAIT),
    "call": lambda ep: ep.call("method", timeout=WAIT),
    "stream_recv": lambda ep: ep.stream("method", timeout=WAIT).recv(),
    "stream_wait": lambda ep: ep.stream("method", timeout=WAIT).wait(),
    "close": lambda ep: ep.close(WAIT),
}


@pytest.mark.parametrize("call, background", [
    *((call, False) for call in WAITS_FOR_ITSELF), ("call", True),
    ("stream_recv", True), ("stream_wait", True)])
def test_a_call_that_its_own_loop_would_answer_says_so(call, background):
    """It would wait for ever."""
    async def main():
        async with tensormsg.listen(":0", background=background) as listener:
            server = listener.serve()

            @server.method("method", stream="stream" in call)
            async def method(request):
                await asyncio.sleep(WAIT)

            ep = await asyncio.to_thread(tensormsg.sync.connect, listener.url)
            since = time.monotonic()
            with pytest.raises(tensormsg.WouldBlock,
                               match="await the call.*asyncio.to_thread"):
                WAITS_FOR_ITSELF[call](ep)
            assert time.monotonic() - since < WAIT / 3
            ep.abort()

    asyncio.run(main())


@pytest.mark.parametrize("place", [":0", "unix"])
def test_to_connect_to_its_own_loop_says_so(place, tmp_path):
    async def main():
        async with tensormsg.listen(
                f"unix://{tmp_path}/s" if place == "unix" else place) as server:
            url = server.url.replace("127.0.0.1", "localhost")
            with pytest.raises(tensormsg.WouldBlock, match="cannot run while"):
                with tensormsg.connect(url, timeout=WAIT):
                    pass
            with pytest.raises(tensormsg.TimedOut):  # no time to find out
                tensormsg.sync.connect(url, timeout=.1)

    asyncio.run(main())


@pytest.mark.parametrize("spelled", [
    "", "127.0.0.1", "127.1", "0", "0.0.0.0", "localhost", "LOCALHOST",
    "[::ffff:127.0.0.1]"])
def test_an_address_may_be_spelled_otherwise(spelled):
    async def main():
        async with tensormsg.listen(":0") as server:
            port = server.url.rpartition(":")[2]
            with pytest.raises(tensormsg.WouldBlock, match="cannot run while"):
                tensormsg.sync.connect(f"{spelled}:{port}", timeout=WAIT)

    asyncio.run(main())


def test_another_at_another_address_is_not_its_own_loop():
    """With the same port, and slow to answer."""
    async def main():
        async with tensormsg.listen(":0") as server:
            port = int(server.url.rpartition(":")[2])
            with socket.create_server(("127.0.0.2", port)), \
                    pytest.raises(tensormsg.TimedOut):
                tensormsg.sync.connect(f"127.0.0.2:{port}", timeout=1)

    asyncio.run(main())


@pytest.mark.parametrize("to, at, same", [
    ("127.0.0.1", "127.0.0.1", True), ("127.0.0.2", "127.0.0.1", False),
    ("[::1]", "127.0.0.1", False), ("127.0.0.1", "[::1]", False),
    ("127.0.0.2", "0.0.0.0", True), ("[::1]", "0.0.0.0", False),
    ("192.0.2.1", "0.0.0.0", False), ("0.0.0.0", "0.0.0.0", True),
    ("0.0.0.0", "127.0.0.1", True), ("[::]", "[::1]", True),
    ("[::1]", "[::]", True), ("nowhere.invalid", "127.0.0.1", False)])
def test_who_connects_comes_to(to, at, same):
    reaches = tensormsg._own_loop._is_same
    assert reaches(f"tcp://{to}:4000", f"tcp://{at}:4000") == same
    assert not reaches(f"tcp://{to}:4000", f"tcp://{at}:4001")
    assert not reaches(f"ucx://{to}:4000", f"tcp://{at}:4000")


def test_what_a_thread_moves_may_be_waited_for_in_the_loop():
    """As in a notebook: the listener is made in the loop, and served by calls
    that block in a thread."""
    async def main():
        listening = tensormsg.listen(":0")

        def serve():
            time.sleep(.2)
            for message in listening:
                time.sleep(.8)
                message.peer.send(dict(message))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with tensormsg.connect(listening.url) as ep:
            for _ in range(2):
                ep.send({"x": np.ones(3)})
                assert ep.recv(WAIT)["x"].all()
        listening.__enter__().abort()
        thread.join(WAIT)

    asyncio.run(main())


def test_a_listener_that_nobody_holds_is_closed():
    async def main():
        url = None

        async def first(server):
            async for msg in server:
                return msg

        server = tensormsg.listen(":0")
        url = server.url
        task = asyncio.ensure_future(first(server))
        del server
        ep = await tensormsg.connect(url)
        await ep.send({"x": np.arange(3)})
        msg = await task
        assert msg["x"].sum() == 3
        await msg.peer.send({"y": np.ones(1)})
        assert (await ep.recv())["y"][0] == 1
        array = msg["x"]
        del msg, task
        gc.collect()
        await asyncio.sleep(.05)
        gc.collect()
        with pytest.raises(tensormsg.Error):
            await asyncio.wait_for(ep.recv(), WAIT)
        ep.abort()
        assert array.sum() == 3

    asyncio.run(main())


def test_many_tasks_wait_on_one_connection(echo_unix):
    async def main():
        async with tensormsg.connect(echo_unix) as ep:
            receiving = [asyncio.ensure_future(ep.recv()) for _ in range(50)]
            await asyncio.sleep(0)
            await asyncio.gather(*(ep.send({"n": np.array(n)})
                                   for n in range(50)))
            got = [int(msg["n"]) for msg in await asyncio.gather(*receiving)]
            assert sorted(got) == list(range(50))

    asyncio.run(main())


def test_an_application_leaves_no_task_and_warns_of_nothing():
    """In asyncio's debug mode, with both loops: a little of the soak."""
    pytest.importorskip("uvloop")
    ran = subprocess.run([sys.executable, "-B", HERE / "app.py", ".5", ".5"],
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         text=True, timeout=4 * WAIT, env=environment())
    assert ran.returncode == 0, ran.stdout
    assert "asyncio: " in ran.stdout and "uvloop: " in ran.stdout
