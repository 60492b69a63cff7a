# SPDX-License-Identifier: BSD-3-Clause
"""Processes that are forked or spawned, also while their parent is connected, and
what goes from one to another by pickle."""

import asyncio
import copy
import multiprocessing
import pickle
import subprocess
import sys
import threading
from concurrent import futures

import numpy as np
import pytest

import tensormsg
from conftest import WAIT, environment
from tensormsg import sync

METHODS = ["spawn", "forkserver", "fork"]


def run(program, *args):
    """What a program printed."""
    ran = subprocess.run([sys.executable, "-c", program, *args], text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         timeout=50, env=environment())
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


# The parent and its children, some of them at a time, send to a server of the
# parent, and the children to listeners of their own.
FORKS = """
import asyncio, os, sys, threading, traceback, numpy as np, tensormsg
from tensormsg import sync
place, other = sys.argv[1:]

def refused(call):
    try:
        call()
    except tensormsg.Unsupported as error:
        return "that this one was forked from" in error.reason
    return False

def blocking():
    with sync.listen(other, background=True) as here, \\
            sync.connect(here.url) as ep:
        ep.send({"x": np.arange(5)})
        assert here.recv(30)["x"].sum() == 10
    with sync.connect(listener.url) as ep:
        assert ep.call("twice", {"x": np.arange(5)})["x"].sum() == 20

async def by_asyncio():
    async with tensormsg.listen(other) as here, \\
            tensormsg.connect(here.url) as ep:
        await ep.send({"x": np.arange(5)})
        assert (await here.recv(30))["x"].sum() == 10
    async with tensormsg.connect(listener.url) as ep:
        assert (await ep.call("twice", {"x": np.arange(5)}))["x"].sum() == 20

def traffic():
    while not over.is_set():
        right.append((ep.call("twice", {"x": large})["x"] == 2).all())

def child(number):
    global kept
    assert (kept["x"] == 1).all()
    assert all(map(refused, [
        lambda: ep.send({}), ep.recv, ep.describe, listener.recv,
        lambda: context.describe(), lambda: server.method("x")(print),
        lambda: sync.connect(listener.url, context=context)]))
    del kept
    if number % 2:
        asyncio.run(by_asyncio())
    else:
        blocking()
    assert tensormsg.info()["ucx"]["version"]

context = tensormsg.Context()
large, over, right = np.ones(300_000), threading.Event(), []
with sync.listen(place, background=True) as listener, \\
        listener.serve() as server, sync.connect(listener.url) as ep:
    @server.method("twice")
    def twice(request):
        return {"x": request["x"] * 2}
    ep.send({"x": np.ones(300_000)})
    kept = listener.recv(30)
    thread = threading.Thread(target=traffic)
    thread.start()
    for number in range(4):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                child(number)
                status = 7
            except BaseException:
                traceback.print_exc()
            os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    over.set()
    thread.join()
    assert right and all(right) and (kept["x"] == 1).all()
print("alive")
"""


@pytest.mark.parametrize("transport", ["tcp", "unix"])
def test_children_of_a_fork_connect_and_listen(transport, tmp_path):
    places = (":0", ":0") if transport == "tcp" else \
        (f"unix://{tmp_path}/parent", f"unix://{tmp_path}/child")
    assert run(FORKS, *places) == "alive\n"


# What ends and what is told at exit is the process's own.
ENDS = """
import os, sys, numpy as np, tensormsg
from tensormsg import sync
listener = sync.listen(":0", background=True)
ep = sync.connect(listener.url)
offer = listener.offer({"x": np.ones(3)})
ep.send({"x": np.arange(3)})
if os.fork() == 0:
    mine = sync.listen(":0", background=True)
    own = sync.connect(mine.url)
    own.send({"x": np.arange(4)})
    sys.exit(0)  # without a close(): what was sent goes
assert os.wait()[1] == 0
assert listener.recv(30)["x"].sum() == 3
ep.send({"x": np.arange(5)})
assert listener.recv(30)["x"].sum() == 10
offer.withdraw(30)
ep.close()
listener.close()
print("alive")
"""


def test_a_child_that_exits_ends_nothing_of_its_parent():
    assert run(ENDS) == "alive\n"


def test_a_child_that_has_closed_descriptors_is_told():
    assert "has closed descriptors of UCX" in run("""
import os, sys, tensormsg
from tensormsg import sync
with sync.listen(":0", background=True) as listener:
    if os.fork() == 0:
        os.closerange(3, 1000)
        try:
            sync.listen(":0")
        except tensormsg.Unsupported as error:
            print(error.reason, flush=True)
        os._exit(0)
    os.wait()
""")


def of_multiprocessing(url, i):
    with sync.connect(url) as ep:
        ep.send({"x": np.full(1000, i)})
        assert (ep.recv(WAIT)["x"] == 2 * i).all()
        return ep.call("half", {"x": np.full(10, i)}, timeout=WAIT, frame=i)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # of 3.12
@pytest.mark.parametrize("method", METHODS)
def test_processes_of_multiprocessing(method, tmp_path):
    """They are made while this one uses it, and return messages."""
    with sync.listen(f"unix://{tmp_path}/s", background=True) as listener, \
            listener.serve() as server:
        @server.method("half")
        def half(request):
            return tensormsg.Reply({"x": request["x"] / 2},
                                   frame=request.meta["frame"])

        here = threading.Thread(
            target=of_multiprocessing, args=(listener.url, 1))
        here.start()
        with futures.ProcessPoolExecutor(
                2, multiprocessing.get_context(method)) as others:
            replies = [others.submit(of_multiprocessing, listener.url, i)
                       for i in (2, 3)]
            for _ in range(3):
                message = listener.recv(WAIT)
                message.peer.send({"x": 2 * message["x"]})
            for i, reply in enumerate(replies, 2):
                message = reply.result(WAIT)
                assert message.meta == {"frame": i}
                assert (message["x"] == i / 2).all()
        here.join(WAIT)


def test_fork_before_the_first_connection():
    assert run("""
import os, sys, numpy as np, tensormsg
child = os.fork()
with tensormsg.listen(":0", background=True) as server, \\
        tensormsg.connect(server.url) as ep:
    ep.send({"x": np.arange(3)})
    assert server.recv(10)["x"].sum() == 3
if child:
    assert os.waitpid(child, 0)[1] == 0
    print("both")
""") == "both\n"


def test_metrics_of_a_parent_are_none_of_its_child():
    """And what the child serves itself is collected."""
    pytest.importorskip("prometheus_client")
    assert run("""
import os, tensormsg
from prometheus_client import CollectorRegistry, generate_latest
from tensormsg import sync
from tensormsg.prometheus import Collector
collector, registry = Collector(), CollectorRegistry()
registry.register(collector)

def served():
    listener = sync.listen(":0", background=True)
    server = listener.serve()
    collector.add(server)
    server.method("m")(lambda request: None)
    with sync.connect(listener.url) as ep:
        ep.call("m")
    return server

kept = served()
assert generate_latest(registry)
if not os.fork():
    assert not generate_latest(registry)
    also = served()
    assert b'method="m"' in generate_latest(registry)
    os._exit(0)
assert os.wait()[1] == 0
print("both")
""") == "both\n"


# Pickle

DATA = {"plain": np.arange(12, dtype="f4").reshape(3, 4), "none": np.ones((0, 3)),
        "one": np.array(2.5), "inner": {"a": np.arange(3), "n": 7, "s": "text"}}


def came(mode, data=DATA, **more):
    """A message of that face, whose connection is closed."""
    if mode == "asyncio":
        async def take():
            async with tensormsg.listen(":0") as listener, \
                    tensormsg.connect(listener.url, **more) as ep:
                await ep.send({})
                await (await listener.recv(WAIT)).peer.send(data, frame=7)
                return await ep.recv(WAIT)
        return asyncio.run(take())
    with sync.listen(":0", background=True) as listener, \
            sync.connect(listener.url, background=True, **more) as ep:
        ep.send({})
        listener.recv(WAIT).peer.send(data, frame=7)
        return ep.recv(WAIT)


def expect_same(message, again):
    assert type(again) is type(message) and list(again) == list(message)
    assert again.meta == message.meta and again.meta["frame"] == 7
    for name, value in message.items():
        assert type(again[name]) is type(value), name
        np.testing.assert_array_equal(again[name], value)
        if isinstance(value, np.ndarray):
            assert again.dtype(name) == message.dtype(name)
            assert (np.from_dlpack(again.dlpack(name)) == value).all()
            assert (again.raw(name) == message.raw(name)).all()
    assert again.tree()["inner"]["n"] == 7
    assert not again.lent and "from" not in repr(again)


@pytest.mark.parametrize("mode", ["asyncio", "blocking"])
def test_a_message_is_pickled(mode):
    message = came(mode)
    for protocol in range(2, 6):
        again = pickle.loads(pickle.dumps(message, protocol))
        expect_same(message, again)
    with pytest.raises(tensormsg.Closed, match="pickled has no peer"):
        again.peer
    expect_same(message, pickle.loads(pickle.dumps(again)))
    kept = again.apart()["plain"]
    with sync.listen(":0", background=True) as listener, \
            sync.connect(listener.url) as ep:
        ep.send(again, frame=7)
        ep.send(again.tree(), frame=7)
        assert (listener.recv(WAIT)["plain"] == kept).all()
        assert (listener.recv(WAIT)["inner/a"] == np.arange(3)).all()
    del again, message
    assert (kept == DATA["plain"]).all()


@pytest.mark.parametrize("mode", ["asyncio", "blocking"])
def test_its_arrays_are_pickled_out_of_band(mode):
    message = came(mode, {**DATA, "large": np.ones(1 << 18)})
    buffers = []
    said = pickle.dumps(message, 5, buffer_callback=buffers.append)
    assert len(said) < 4096 and len(buffers) == 5
    again = pickle.loads(said, buffers=buffers)
    expect_same(message, again)
    assert np.shares_memory(message["large"], again["large"])


@pytest.mark.parametrize("mode", ["asyncio", "blocking"])
def test_a_message_is_copied(mode):
    message = came(mode)
    same, other = copy.copy(message), copy.deepcopy(message)
    assert same.peer is message.peer and other.peer is message.peer
    assert same["plain"] is message["plain"] and dict(same) is not dict(message)
    assert (other["plain"] == message["plain"]).all()
    other["plain"][:] = 5
    assert (message["plain"] == DATA["plain"]).all()
    assert same.apart().meta == message.meta
    assert message._parts is None


def test_a_request_is_pickled():
    requests = []
    with sync.listen(":0") as listener, listener.serve() as server, \
            sync.connect(listener.url) as ep:
        server.method("keep")(lambda request: requests.append(request))
        ep.call("keep", {"x": np.arange(3)}, frame=2, timeout=WAIT)
    again = pickle.loads(pickle.dumps(requests[0]))
    assert (again["x"] == np.arange(3)).all() and again.meta == {"frame": 2}
    assert again.method == "keep" and again.peer is None
    assert again.over and again.remaining is None


def test_like_is_pickled():
    with sync.listen(":0", background=True) as listener, \
            sync.connect(listener.url, like=refuse) as ep:
        ep.send({"x": np.ones(2)})
        listener.recv(WAIT).peer.send({"x": np.ones(2)})
        assert pickle.loads(pickle.dumps(ep.recv(WAIT)))._convert is refuse


def refuse(tensor):
    raise AssertionError("nobody has asked for it")


def test_what_belongs_to_the_process_says_what_to_do_instead(tmp_path):
    key = tensormsg.generate_key()
    ring = tensormsg.Keyring(key)
    with sync.listen(":0", background=True) as listener, \
            listener.serve() as server, sync.connect(listener.url) as ep, \
            sync.publish(":0", background=True) as publisher:
        server.method("x")(lambda request: request)

        @server.method("s")
        def s(stream):
            yield {}

        async def of_asyncio():
            async with tensormsg.listen(":0") as one, \
                    tensormsg.connect(one.url) as other:
                await other.send({})
                return one, other
        for kept, instead in [
                *((one, "connect\\(\\) there")
                  for one in asyncio.run(of_asyncio())),
                (ep, "the URL .* connect\\(\\) there"),
                (listener, "its url, and connect\\(\\) there"),
                (server, "the url of its listener"),
                (publisher, "its url"),
                (listener.offer({"x": np.ones(1)}), "its key .* fetch\\(\\)"),
                (ep.start_call("x", {"x": np.ones(1)}), "wait for it here"),
                (ep.stream("s"), "take its messages here"),
                (tensormsg.connect(listener.url), "the URL"),
                (tensormsg.listen(":0"), "the URL"),
                (tensormsg.publish(":0"), "the URL"),
                (tensormsg.Context(), "the same arguments"),
                (ring, "path of the key file")]:
            for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
                with pytest.raises(TypeError, match=instead) as caught:
                    attempt(kept)
                assert "belongs to this process" in str(caught.value)
                assert key.hex() not in str(caught.value)
