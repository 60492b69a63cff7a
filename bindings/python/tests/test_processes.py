# SPDX-License-Identifier: BSD-3-Clause
"""Processes that are forked or spawned, also while their parent is connected."""

import multiprocessing
import subprocess
import sys
import threading

import numpy as np
import pytest

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
        assert (ep.call("half", {"x": np.full(10, i)}, timeout=WAIT)["x"] ==
                i / 2).all()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # of 3.12
@pytest.mark.parametrize("method", METHODS)
def test_processes_of_multiprocessing(method, tmp_path):
    """They are made while this one uses it."""
    processes = multiprocessing.get_context(method)
    with sync.listen(f"unix://{tmp_path}/s", background=True) as listener, \
            listener.serve() as server:
        @server.method("half")
        def half(request):
            return {"x": request["x"] / 2}

        here = threading.Thread(
            target=of_multiprocessing, args=(listener.url, 1))
        here.start()
        others = [processes.Process(target=of_multiprocessing,
                                    args=(listener.url, i)) for i in (2, 3)]
        for other in others:
            other.start()
        for _ in range(3):
            message = listener.recv(WAIT)
            message.peer.send({"x": 2 * message["x"]})
        for other in others:
            other.join(WAIT)
            assert other.exitcode == 0
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
