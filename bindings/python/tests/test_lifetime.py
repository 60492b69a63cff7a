# SPDX-License-Identifier: BSD-3-Clause
"""Who keeps what alive, in whichever order it goes."""

import asyncio
import contextlib
import gc
import itertools
import os
import resource
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest

import tensormsg
from conftest import WAIT, environment


def pair(**more):
    server = tensormsg.listen(":0", background=True, **more).__enter__()
    return server, tensormsg.sync.connect(server.url)


def test_an_array_outlives_message_and_connection():
    server, ep = pair()
    kept = []
    for size in (10, 10000, 1 << 20):
        ep.send({"x": np.arange(size), "y": np.ones(size)})
        kept.append(server.recv(10)["x"][::2])
    ep.close()
    server.close()
    del ep, server
    gc.collect()
    for array, size in zip(kept, (10, 10000, 1 << 20)):
        assert np.array_equal(array, np.arange(0, size, 2))
        array += 1


def test_nothing_is_copied_on_the_way_to_numpy():
    server, ep = pair()
    ep.send({"x": np.arange(1000), "y": np.arange(1000)})
    msg = server.recv(10)
    assert msg["x"] is msg["x"] and not msg["x"].flags.owndata
    x, view = msg["x"], np.from_dlpack(msg.dlpack("x"))
    assert np.shares_memory(x, view) and np.shares_memory(x, msg.raw("x"))
    del msg, x
    assert view[999] == 999
    ep.close()


def test_the_arrays_of_a_send_live_until_it_has_ended():
    async def main():
        async with tensormsg.listen(":0", queue_depth=1) as server:
            ep = await tensormsg.connect(server.url)
            sent = [np.full(1 << 20, i, "u1") for i in range(8)]
            refs = [weakref.ref(array) for array in sent]
            tasks = [asyncio.ensure_future(ep.send({"x": array}))
                     for array in sent]
            await asyncio.sleep(.05)
            assert not tasks[-1].done()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            del sent, tasks, task  # its traceback holds the array
            gc.collect()
            last = asyncio.ensure_future(ep.send({"last": np.zeros(1)}))
            msg = {}
            while "last" not in msg:  # those that were not given up
                msg = await asyncio.wait_for(server.recv(), 20)
                assert "last" in msg or (msg["x"] == msg["x"][0]).all()
            await last
            for _ in range(3000):
                if all(ref() is None for ref in refs):
                    break
                await asyncio.sleep(.01)
            assert [ref() is None for ref in refs] == [True] * 8
            await ep.close()

    asyncio.run(main())


def test_a_dict_may_change_while_it_is_sent():
    async def main():
        async with tensormsg.listen(":0") as server:
            ep = await tensormsg.connect(server.url)
            data = {"x": np.arange(1 << 20)}
            task = asyncio.ensure_future(ep.send(data))
            await asyncio.sleep(0)
            data.clear()
            gc.collect()
            msg = await asyncio.wait_for(server.recv(), 20)
            assert msg["x"][-1] == (1 << 20) - 1
            await task
            await ep.close()

    asyncio.run(main())


SIZE = 1 << 16  # bytes, which the next array of that size may get
SENDS = 20


@contextlib.contextmanager
def replaced_by_the_collector(data, turn):
    """Its array "x" is another one after each look for garbage, and the memory
    of the one before has something else in it. The turns look elsewhere."""
    others = []

    def replace(phase, _info):
        if phase == "start":
            data["x"] = np.full(SIZE, 7, "u1")
            others.append(np.full(SIZE, 255, "u1"))
            del others[:-50]

    before = gc.get_threshold()
    gc.collect()
    gc.callbacks.append(replace)
    gc.set_threshold(1 + turn % 10)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(replace)


def by_send(data):
    server, ep = pair()
    for turn in range(SENDS):
        with replaced_by_the_collector(data, turn):
            ep.send(data)
        yield server.recv(WAIT)
    ep.close()


def by_publish(data):
    with tensormsg.publish(":0", queue=SENDS) as publisher, \
            tensormsg.connect(publisher.url) as ep:
        publisher.wait_for(1, WAIT)
        for turn in range(SENDS):
            with replaced_by_the_collector(data, turn):
                publisher.send(data)
            yield ep.recv(WAIT)


def by_call(data):
    with tensormsg.listen(":0") as listener, listener.serve() as server:
        @server.method("echo")
        def echo(request):
            return request

        @server.method("give")
        def give(request):
            return data

        with tensormsg.connect(listener.url) as ep:
            for turn in range(SENDS):
                with replaced_by_the_collector(data, turn):
                    got = ep.call("echo", data, timeout=WAIT)
                yield got
                with replaced_by_the_collector(data, turn):
                    got = ep.call("give", timeout=WAIT)
                yield got


def by_stream(data):
    with tensormsg.listen(":0") as listener, listener.serve() as server:
        @server.method("echo", stream=True)
        def echo(stream):
            stream.send(stream.request)
            for msg in stream:
                stream.send(msg)

        with tensormsg.connect(listener.url) as ep:
            for turn in range(SENDS):
                with replaced_by_the_collector(data, turn):
                    stream = ep.stream("echo", data, timeout=WAIT)
                    stream.send(data)
                stream.done_writing()
                yield from stream


@pytest.mark.parametrize("way", [by_send, by_publish, by_call, by_stream])
def test_the_collector_may_change_a_dict_while_it_is_sent(way):
    values = [set(msg["x"].tolist())
              for msg in way({"x": np.full(SIZE, 7, "u1"),
                              **{str(i): np.zeros(1) for i in range(3)}})]
    assert len(values) >= SENDS and values == [{7}] * len(values)


def test_memory_does_not_grow():
    server, ep = pair()
    data = {f"n{i}": np.zeros(1000 * i) for i in range(5)}
    tree = {"a": [np.zeros(9), 1, {"b": "c"}]}

    def rounds(count):
        for i in range(count):
            ep.send(data, frame=i, note="text")
            server.recv(10)["n4"]
            ep.send(tree)
            server.recv(10).tree()
        gc.collect()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    rounds(300)
    before = sys.getallocatedblocks(), rounds(0)
    after_rss = rounds(1000)
    # One a round would be 1000; beside others up to 511 were seen.
    assert sys.getallocatedblocks() - before[0] < 800
    assert after_rss - before[1] < 20000  # KiB
    ep.close()


def test_connections_leave_nothing_behind():
    def descriptors():
        return len(os.listdir("/proc/self/fd"))

    server, first = pair()
    before = None
    for i in range(6):
        ep = tensormsg.sync.connect(server.url)
        ep.send({"x": np.zeros(3)})
        assert server.recv(10)["x"].size == 3
        ep.close()
        server.peers
        for _ in range(3000):
            with pytest.raises(tensormsg.TimedOut):
                server.recv(0)
            if len([p for p in server.peers if not p.closed]) == 1:
                break
            time.sleep(.01)
        gc.collect()
        before = before or descriptors()
    assert descriptors() <= before + 2
    first.close()


ENDS = ["ep.abort()", "server.abort()", "del ep", "del server", "del msg",
        "ep.close()"]


@pytest.mark.parametrize("order", list(itertools.permutations(ENDS, 3))[::9])
def test_free_in_any_order_at_exit(order):
    program = f"""
import numpy as np, tensormsg
server = tensormsg.listen(":0", background=True).__enter__()
ep = tensormsg.sync.connect(server.url)
ep.send({{"x": np.arange(10)}})
msg = server.recv(10)
x = msg["x"]
try:
    {"; ".join(order)}
except (tensormsg.Error, NameError) as error:
    pass
assert x.sum() == 45
"""
    ran = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", program], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=50,
        env=environment())
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("way", ["thread in recv", "loop left open",
                                 "pending send", "iterating thread"])
def test_exit_with_things_under_way(way):
    program = f"""
import asyncio, threading, time, numpy as np, tensormsg
way = {way!r}
server = tensormsg.listen(":0", background="thread" not in way)
if way == "thread in recv":
    threading.Thread(target=server.__enter__().recv, daemon=True).start()
    time.sleep(.3)
elif way == "iterating thread":
    threading.Thread(target=lambda: list(server), daemon=True).start()
    ep = tensormsg.sync.connect(server.url)
    ep.send({{"x": np.zeros(3)}})
else:
    async def main():
        global ep
        ep = await tensormsg.connect(server.url)
        task = asyncio.ensure_future(ep.send({{"x": np.zeros(1 << 24)}}))
        await asyncio.sleep(.05)
        task.cancel()
    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    if way != "loop left open":
        loop.close()
print("end")
"""
    ran = subprocess.run([sys.executable, "-c", program], text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         timeout=50, env=environment())
    assert (ran.returncode, ran.stdout) == (0, "end\n"), ran.stderr
    assert ran.stderr == ""


def test_tasks_that_are_left_behind():
    """They leave their blocks when they are collected, with their connection;
    what was freed by then would not be as it was."""
    program = """
import asyncio, gc, tensormsg
server = tensormsg.listen(":0", background=True).__enter__()

async def receive(ep):
    async for message in ep:
        pass

async def use():
    async with tensormsg.connect(server.url) as ep:
        try:
            await receive(ep)
        finally:
            assert ep.peer and ep.closed in (True, False)

def leave():
    loop = asyncio.new_event_loop()
    tasks = [loop.create_task(use()) for _ in range(5)]
    for task in tasks:
        task._log_destroy_pending = False
    loop.run_until_complete(asyncio.sleep(.2))
    loop.close()

gc.disable()
for _ in range(3):
    leave()
    gc.collect()
print("end")
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, timeout=50,
        env={**environment(), "MALLOC_PERTURB_": "85"})
    assert (ran.returncode, ran.stdout) == (0, "end\n"), ran.stderr


def test_another_thread_may_end_a_wait():
    server = tensormsg.listen(":0").__enter__()
    seen = []

    def wait():
        try:
            server.recv()
        except tensormsg.Error as error:
            seen.append(type(error))

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(.2)
    server.abort()
    thread.join(10)
    assert seen == [tensormsg.Closed]


def test_threads_share_a_connection():
    server, ep = pair()
    count, each = 4, 50
    threads = [threading.Thread(target=lambda n=n: [
        ep.send({"n": np.array([n, i])}) for i in range(each)])
        for n in range(count)]
    got = []
    takers = [threading.Thread(target=lambda: [
        got.append(server.recv(20)["n"].tolist())
        for _ in range(count * each // 2)]) for _ in range(2)]
    for thread in threads + takers:
        thread.start()
    for thread in threads + takers:
        thread.join(30)
    assert sorted(got) == [[n, i] for n in range(count) for i in range(each)]
    ep.close()


def test_memory_that_is_used_up_says_so(caplog, silent_library):
    """To who receives, and to who sends; nothing is lost."""
    context = tensormsg.Context(limits={"held_bytes": 1 << 20})
    with tensormsg.sync.listen(":0", context=context,
                               background=True) as server, \
            tensormsg.sync.connect(server.url, background=True) as ep:
        kept = []
        for i in range(2):
            thread = threading.Thread(target=ep.send, args=[
                {"x": np.full(600 << 10, i, "u1")}])
            thread.start()
            if i == 0:
                kept.append(server.recv(WAIT)["x"])
                thread.join(WAIT)
                with pytest.raises(tensormsg.TimedOut) as nothing:
                    server.recv(.1)
        with pytest.raises(tensormsg.TimedOut) as starves:
            server.recv(1)
        assert "held_bytes" not in nothing.value.reason
        assert "limit held_bytes. Drop them" in starves.value.reason
        assert [record.getMessage()[:19] for record in caplog.records] == \
            ["nothing is received"]
        with pytest.raises(tensormsg.TimedOut, match="keeps so many.*held_bytes"):
            ep.send({"x": np.zeros(600 << 10, "u1")}, acked=True, timeout=.1)
        kept.clear()
        assert server.recv(WAIT)["x"].all()
        thread.join(WAIT)


def test_what_the_librarys_log_says_is_not_said_twice():
    ran = subprocess.run(
        [sys.executable, "-c", """if True:
            import numpy as np, tensormsg, threading
            context = tensormsg.Context(limits={"held_bytes": 1 << 20})
            server = tensormsg.sync.listen(":0", context=context,
                                           background=True)
            ep = tensormsg.sync.connect(server.url, background=True)
            x = {"x": np.zeros(600 << 10, "u1")}
            ep.send(x)
            kept = server.recv(60)
            thread = threading.Thread(target=ep.send, args=[x])
            thread.start()
            try:
                server.recv(1)
            except tensormsg.TimedOut:
                del kept
            server.recv(60)
            thread.join()"""],
        env={**environment(), "TENSORMSG_LOG": "warn"}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=WAIT)
    assert ran.returncode == 0, ran.stdout
    assert ran.stdout.count("memory: those that came") == 1, ran.stdout


def test_memory_that_is_used_up_says_so_with_asyncio(caplog,
                                                    silent_library):
    context = tensormsg.Context(limits={"held_bytes": 1 << 20})

    async def main():
        async with tensormsg.listen(":0", context=context) as server, \
                tensormsg.connect(server.url) as ep:
            sends = [asyncio.ensure_future(ep.send(
                {"x": np.full(600 << 10, i, "u1")})) for i in range(2)]
            kept = [(await server.recv())["x"]]
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(server.recv(), .3)
            assert [record.getMessage()[:19] for record in caplog.records] == \
                ["nothing is received"]
            kept.clear()
            assert (await server.recv())["x"].all()
            await asyncio.gather(*sends)

    asyncio.run(asyncio.wait_for(main(), WAIT))


def run_alone(program):
    """In a new process: what it says."""
    ran = subprocess.run([sys.executable, "-W", "error", "-c", program],
                         text=True, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, timeout=50,
                         env=environment())
    assert ran.returncode == 0, ran.stdout
    return ran.stdout


def test_connections_that_follow_another_leave_nothing_at_exit():
    assert run_alone("""
import multiprocessing.util, tensormsg
for i in range(5):
    tensormsg.sync.listen(":0").close()
print(len(multiprocessing.util._finalizer_registry))
""") == "1\n"


def test_who_is_known_weakly_may_be_gone_through_while_others_come():
    class One:
        pass

    known = tensormsg._weakly.Weakly()
    held = [One() for _ in range(3)]
    for one in held:
        known.add(one)
    for one in known:  # as another thread would
        held.append(One())
        known.add(held[-1])
    assert len(list(known)) == 6
    known.discard(held.pop())
    del one, held[:2]
    assert list(known) == held
    assert len(known._references) == 3
    for many in tensormsg._linger._lives, tensormsg._own_loop._doors:
        assert isinstance(many, tensormsg._weakly.Weakly)


def test_hubs_that_are_dropped_while_the_thread_ends():
    done = []

    class Idle:
        sent = True

        def begin(self):
            return []

        def move(self):
            return False

    class Ending(list):
        def remove(self, thread):
            super().remove(thread)
            if len(done) < 20:  # a finalizer comes in
                dropped.add(Idle(), lambda: done.append(1))
                dropped.add(Idle(), lambda: done.append(1))

    def fail():
        raise ValueError("after")

    dropped = tensormsg._linger._Dropped()
    dropped._threads = Ending()
    dropped._new += [(Idle(), fail, time.monotonic() + 9)] * 2
    assert dropped.add(Idle(), lambda: done.append(1))
    end = time.monotonic() + 20
    while (dropped.busy() or len(done) < 21) and time.monotonic() < end:
        time.sleep(0.001)
    assert len(done) == 21 and not dropped.busy()
    dropped._new.append((Idle(), fail, 0.0))
    dropped._begin_new()
    assert dropped._begin_new() == []


def test_threads_that_meet_at_ml_dtypes():
    pytest.importorskip("ml_dtypes")
    assert run_alone("""
import sys, threading
from tensormsg import _data
sys.setswitchinterval(1e-6)
barrier, known = threading.Barrier(4), []

def meet():
    barrier.wait()
    known.append(_data.know_ml_dtypes())
    known.append(len(_data._known) == len(_data._ML_DTYPES))

threads = [threading.Thread(target=meet) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(known), all(known))
""") == "8 True\n"
