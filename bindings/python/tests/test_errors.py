# SPDX-License-Identifier: BSD-3-Clause
"""What goes wrong is an exception that says what, who and why; nothing hangs."""

import asyncio
import contextlib
import pickle
import signal
import subprocess
import sys
import threading
import time
import tracemalloc

import numpy as np
import pytest

import tensormsg
from conftest import HERE, WAIT, echo, environment, python
from tensormsg import _native
from waiting import WAITING

X = {"x": np.arange(4)}


@pytest.mark.parametrize("made", [
    lambda server: tensormsg.sync.connect("127.0.0.1:5\0x"),
    lambda server: tensormsg.sync.listen(":0\0x", background=True),
    lambda server: tensormsg.Context(ucx_config="A=1\0B=2"),
    lambda server: server.method("a\0b")(print),
    lambda server: server.method("a", principals="a\0b")(print),
    lambda server: server.method("a", signature="() -> ()\0b")(print),
    lambda server: server.method("a", description="a\0b")(print)])
def test_a_nul_ends_no_word(made):
    with tensormsg.listen(":0") as listener, listener.serve() as server:
        with pytest.raises(ValueError, match="has a NUL"):
            made(server)
        with tensormsg.connect(listener.url) as ep:
            assert "a" not in ep.methods()


def test_there_is_a_class_for_each_status():
    statuses = _native.ffi.typeof("tmsg_status_t").elements
    failures = {name[len("TMSG_ERR_"):]: value
                for value, name in statuses.items() if value < 0}
    assert failures == {status.name: status.value
                        for status in tensormsg.Status}
    classes = {tensormsg.errors.error_of(value, "why", "who").__class__
               for value in failures.values()}
    assert len(classes) == len(failures) and tensormsg.Error not in classes


def test_an_unknown_status_is_an_error_too():
    error = tensormsg.errors.error_of(-1000, "")
    assert type(error) is tensormsg.Error and error.status == -1000
    assert str(error) == "unknown status"
    assert error.status.name == "UNKNOWN (-1000)"
    assert pickle.loads(pickle.dumps(error)).status == -1000


@pytest.mark.parametrize("status", tensormsg.Status)
def test_an_exception_keeps_its_words(status):
    error = tensormsg.errors.error_of(status, "why", "who")
    again = pickle.loads(pickle.dumps(error))
    for one in error, again:
        assert (one.status, one.reason, one.peer) == (status, "why", "who")
        assert str(one) == "why" and isinstance(one, tensormsg.Error)
    assert type(again) is type(error)


class Stubborn:
    def __reduce__(self):
        raise RuntimeError("no")


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("make", [
    lambda: tensormsg.errors.error_of(-24, "why", "who"),
    lambda: tensormsg.CallError("why", code=3)])
def test_an_exception_is_pickled_with_the_details_that_can_be(make, protocol):
    error = make()
    error.code = 3
    for details, kept in (({"x": [1, "2"]}, True), ({"x": Stubborn()}, False),
                          (threading.Lock(), False), ({"f": lambda: 0}, False)):
        error.details = details
        again = pickle.loads(pickle.dumps(error, protocol))
        assert type(again) is type(error) and again.reason == "why"
        assert (again.code, again.status) == (3, error.status)
        assert again.details == (details if kept else None)
        assert error.details is details
    error.details = {"x": np.arange(1 << 20)}
    tracemalloc.start()
    pickle.dumps(error, 5, buffer_callback=lambda buffer: None)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
    error.details["me"] = error
    assert pickle.loads(pickle.dumps(error, protocol)).reason == "why"


@pytest.mark.parametrize("place, kind, base", [
    ("127.0.0.1:1", tensormsg.Unreachable, ConnectionError),
    ("no-such-host.invalid:1", tensormsg.NotFound, OSError),
    ("unix:///no/such/socket", tensormsg.Error, Exception),
    ("ftp://host", tensormsg.InvalidParam, ValueError),
    ("host", tensormsg.InvalidParam, ValueError)])
def test_connecting_fails_with_the_reason(mode, place, kind, base):
    async def scenario(ep):
        raise AssertionError("connected")

    with pytest.raises(kind) as caught:
        mode.run(place, scenario)
    assert isinstance(caught.value, base) and caught.value.reason


def test_listening_fails_with_the_reason():
    server = tensormsg.listen(":0")
    with pytest.raises(tensormsg.AlreadyExists):
        tensormsg.listen(server.url)
    with pytest.raises(tensormsg.Insecure) as caught:
        tensormsg.listen("0.0.0.0:0")
    assert isinstance(caught.value, PermissionError)
    with pytest.raises(tensormsg.InvalidParam):
        tensormsg.listen("nonsense://")
    with pytest.raises(ValueError, match="no limit"):
        tensormsg.Context(limits={"apples": 1})
    with pytest.raises(tensormsg.InvalidParam):
        tensormsg.Context(peer_timeout=.001)
    with pytest.raises(tensormsg.InvalidParam):
        tensormsg.Context(ucx_config="NO_SUCH_KEY=1;;=")


def test_a_peer_that_does_not_answer_costs_the_timeout(mode):
    import socket
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"127.0.0.1:{mute.getsockname()[1]}"

        async def scenario():
            if mode.name == "sync":
                tensormsg.sync.connect(url, timeout=.3)
            else:
                await tensormsg.connect(url, timeout=.3)

        since = time.monotonic()
        with pytest.raises(tensormsg.TimedOut) as caught:
            asyncio.run(scenario())
        assert isinstance(caught.value, TimeoutError)
        assert time.monotonic() - since < 10


def test_a_close_takes_no_longer_than_it_may(mode):
    with echo() as (url, process):
        async def scenario(ep):
            ep = getattr(ep, "endpoint", ep)
            process.send_signal(signal.SIGSTOP)
            closing = ep.close(timeout=.2)
            if closing is not None:
                await closing

        with pytest.raises(tensormsg.TimedOut, match="closing took more than"):
            mode.run(url, scenario)


@pytest.mark.parametrize("place", [":0", "unix"])
@pytest.mark.parametrize("doing", ["recv", "send", "stream"])
def test_a_killed_peer_is_an_exception(mode, place, doing, tmp_path):
    place = f"unix://{tmp_path}/s" if place == "unix" else place
    with echo("sync", place) as (url, process):
        async def scenario(ep):
            await ep.send(X)
            await ep.recv()
            if doing == "recv":
                threading.Timer(.2, process.kill).start()
                await ep.recv()
            elif doing == "send":
                process.send_signal(signal.SIGSTOP)
                threading.Timer(.2, process.kill).start()
                while True:  # until the peer's queue is full, and on
                    await ep.send({"x": np.zeros(1 << 20, "u1")})
            else:
                threading.Timer(.2, process.kill).start()
                while True:
                    await ep.send({"x": np.zeros(1 << 18, "u1")})
                    await ep.recv()

        with pytest.raises(tensormsg.PeerLost) as caught:
            mode.run(url, scenario)
        assert caught.value.status is tensormsg.Status.PEER_LOST
        assert str(process.pid) in (caught.value.peer or caught.value.reason)


def test_a_wait_may_end_before_its_operation(echo_unix):
    with tensormsg.connect(echo_unix) as ep:
        with pytest.raises(tensormsg.TimedOut):
            ep.recv(timeout=.05)
        with pytest.raises(tensormsg.TimedOut):
            ep.recv(timeout=0)
        ep.send(X)
        assert ep.recv(10)["x"][3] == 3


def test_a_limit_of_the_peer_is_named():
    context = tensormsg.Context(limits={"message_bytes": 1000})
    with tensormsg.listen(":0", context=context, background=True) as server:
        with tensormsg.connect(server.url) as ep:
            with pytest.raises(tensormsg.LimitExceeded) as caught:
                ep.send({"x": np.zeros(1001, "u1")})
            assert "1000" in caught.value.reason and caught.value.peer
            ep.send(X)
            assert server.recv(10)["x"][1] == 1


def test_what_was_closed_says_so():
    with tensormsg.listen(":0", background=True) as server:
        with tensormsg.connect(server.url) as ep:
            ep.send(X)
            ep.close()
            for call in lambda: ep.send(X), ep.recv, ep.describe:
                with pytest.raises(tensormsg.Closed):
                    call()
    with pytest.raises(tensormsg.Closed):
        server.recv()
    assert list(server) == [] and ep.closed


def test_an_exception_in_the_block_ends_it_at_once():
    with tensormsg.listen(":0", background=True) as server:
        with pytest.raises(ZeroDivisionError):
            with tensormsg.connect(server.url) as ep:
                ep.send(X, acked=False)
                raise ZeroDivisionError
        assert ep.closed


@pytest.fixture(scope="module")
def waiting():
    """A process that waits in what it is told, and another where that has ended."""
    with contextlib.ExitStack() as opened:
        processes = []

        def process():
            if not processes or processes[-1].poll() is not None:
                url, peer = opened.enter_context(echo("sync"))
                processes.append(opened.enter_context(python(
                    HERE / "waiting.py", url, peer.pid, stdin=subprocess.PIPE)))
            return processes[-1]

        yield process
        assert len(processes) == 1 and process().poll() is None
        process().stdin.close()
        assert process().wait(WAIT) == 0


@pytest.mark.parametrize("call", WAITING)
def test_ctrl_c_ends_a_blocking_call(waiting, call):
    """And other threads run meanwhile."""
    process = waiting()
    print(call, file=process.stdin, flush=True)
    assert process.stdout.readline() == "waits\n"
    time.sleep(.2)
    process.send_signal(signal.SIGINT)
    since = time.monotonic()
    said, ticks = process.stdout.readline().split()
    assert said == "interrupted" and int(ticks) > 10
    assert process.stdout.readline() == "over\n"
    assert time.monotonic() - since < 10


def test_info_without_descriptors(tmp_path):
    """What there is says what is missing; UCX would end the process."""
    ran = subprocess.run(
        [sys.executable, "-c", """if True:
            import os, resource, tensormsg
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
            for left in (0, 1, 2, 3, 5, 9, 12):
                taken = []
                try:
                    while True:
                        taken.append(os.dup(1))
                except OSError:
                    pass
                for _ in range(left):
                    os.close(taken.pop())
                info = tensormsg.info()
                for fd in taken:
                    os.close(fd)
                assert info["ucx"]["path"] and info["version"]
                assert info["machine"]["transports"] == []
                assert "RLIMIT_NOFILE" in info["machine"]["ucx_error"]
            assert tensormsg.info()["machine"]["transports"]"""],
        env=environment(), text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, timeout=WAIT)
    assert (ran.returncode, ran.stdout) == (0, "")
