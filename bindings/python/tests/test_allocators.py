# SPDX-License-Identifier: BSD-3-Clause
"""Memory for what is received that functions of Python's give."""

import asyncio
import contextlib
import gc
import mmap
import os
import signal
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest

import tensormsg
from tensormsg._moving import Pinned
from test_asyncio import run_in

WAIT = 30


class Memory(np.ndarray):
    """An array that a weak reference can be had to, and that tells who has
    dropped it."""

    def __del__(self):
        Memory.dropped.append(threading.current_thread())

    dropped = []


class Pool:
    """Gives memory, and knows what of it is out."""

    def __init__(self):
        self.asked = []
        self.given = []

    def take(self, nbytes):
        memory = np.full(nbytes, 255, "u1").view(Memory)
        self.asked.append(nbytes)
        self.given.append(weakref.ref(memory))
        return memory

    @property
    def out(self):
        return sum(ref() is not None for ref in self.given)

    def wait_for(self, count):
        end = time.monotonic() + WAIT
        while self.out != count:
            gc.collect()
            assert time.monotonic() < end, self.out
            time.sleep(.001)


@contextlib.contextmanager
def pair(allocators, place=":0", background=True):
    """A listener with these allocators, and what is connected to it."""
    made = []
    with tensormsg.sync.listen(place, allocators=allocators,
                               background=background) as listener:
        thread = threading.Thread(target=lambda: made.append(
            tensormsg.sync.connect(listener.url, background=True)))
        thread.start()
        while thread.is_alive():
            with pytest.raises(tensormsg.TimedOut):
                listener.recv(.01)
        try:
            yield listener, made[0]
        finally:
            made[0].abort()


def sending(ep, data):
    """A thread: who receives is to move what comes, and with some UCX (1.22) even
    what is small waits for that."""
    def send():
        with contextlib.suppress(tensormsg.Error):  # it may end just then
            ep.send(data, timeout=WAIT)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


@pytest.mark.parametrize("place", [":0", "unix"])
@pytest.mark.parametrize("size", [1, 100, 5000, 1 << 23])
@pytest.mark.parametrize("background", [False, True])
def test_what_is_received_lies_in_it(place, size, background, tmp_path):
    pool = Pool()
    place = f"unix://{tmp_path}/socket" if place == "unix" else place
    with pair({"host": pool.take}, place, background=background) as \
            (listener, ep):
        for i in range(5):
            sending = threading.Thread(target=ep.send, args=(
                {"x": np.full(size, i, "u1"), "y": np.arange(3.)},))
            sending.start()
            msg = listener.recv(WAIT)
            sending.join()
            memory = pool.given[-1]()
            assert (msg["x"] == i).all() and (msg["y"] == [0, 1, 2]).all()
            assert np.shares_memory(msg["x"], memory)
            assert np.shares_memory(msg["y"], memory)
            assert min(array.ctypes.data for array in
                       (msg["x"], msg["y"])) % 64 == 0
            assert len(pool.asked) == i + 1 and pool.asked[i] >= size + 24
            del memory
            assert pool.out == 1
            # It lives as long as one of the arrays.
            part = msg["x"][:1]
            del msg
            gc.collect()
            assert pool.out == 1 and part[0] == i
            del part
            pool.wait_for(0)
    assert len(Memory.dropped) >= 5


def test_it_is_given_back_once_whatever_drops_the_message():
    """Messages that nobody received, that are dropped by another thread, that
    outlive their connection."""
    pool = Pool()
    Memory.dropped.clear()
    with pair({"host": pool.take}) as (listener, ep):
        for i in range(30):
            ep.send({"x": np.full(1000, i, "u1")})
        pool.wait_for(30)
        kept = [listener.recv(WAIT)["x"] for _ in range(10)]
        messages = [listener.recv(WAIT) for _ in range(10)]
        thread = threading.Thread(target=messages.clear)
        thread.start()
        thread.join()
        pool.wait_for(20)
    pool.wait_for(10)
    assert [array[0] for array in kept] == list(range(10))
    del kept
    pool.wait_for(0)
    assert len(Memory.dropped) == 30


def test_kinds_of_memory():
    kinds = [lambda n: bytearray(n), lambda n: mmap.mmap(-1, n),
             lambda n: np.empty((n + 7) // 8), lambda n: memoryview(
                 bytearray(n)), lambda n: np.empty((2, n), "u1")]

    def give(nbytes):
        return kinds[0](nbytes)

    with pair({"host": give}) as (listener, ep):
        while kinds:
            ep.send({"x": np.arange(1000)})
            assert (listener.recv(WAIT)["x"] == np.arange(1000)).all()
            kinds.pop(0)


class Odd(Exception):
    pass


def fail_with(error):
    def broken(nbytes):
        raise error
    return broken


@pytest.mark.parametrize("way", ["sync", "asyncio", "peer", "into"])
@pytest.mark.parametrize("broken, kind, words", [
    (fail_with(Odd("no more\nof it\0")), tensormsg.Internal,
     "'broken' raised Odd: no more of it"),
    (fail_with(MemoryError("full")), tensormsg.NoMemory,
     "'broken' raised MemoryError: full"),
    (fail_with(tensormsg.LimitExceeded("that is too much", -7)),
     tensormsg.LimitExceeded, "that is too much"),
    (fail_with(SystemExit(3)), tensormsg.Internal, "SystemExit: 3"),
    (lambda n: None, tensormsg.Internal, "gave .*NoneType"),
    (lambda n: b"1" * n, tensormsg.Internal, "gave .*read-only"),
    (lambda n: np.empty(2 * n, "u1")[::2], tensormsg.Internal, "gaps"),
    (lambda n: bytearray(n - 1), tensormsg.Internal, "bytes, not"),
    (lambda: None, tensormsg.Internal, "raised TypeError"),
])
def test_a_failure_is_the_receivers_and_the_senders(way, broken, kind, words):
    """It costs that one message, and both hear which function it was."""
    left = [1]

    def give(nbytes):
        if left and nbytes < 2000:
            left.pop()
            return broken(nbytes)
        return bytearray(nbytes)

    give.__name__ = "broken"

    def first(listener, peer):
        x = np.empty(1000, "u1")
        return peer.recv_into({"x": x}, WAIT) if way == "into" else \
            peer.recv(WAIT) if way == "peer" else listener.recv(WAIT)

    def check(caught):
        assert caught.value.reason.startswith(
            "the application's allocator gave no ")
        assert caught.value.__cause__ is not None
        if way == "peer":
            assert caught.value.peer

    async def main():
        async with tensormsg.listen(":0", allocators={"host": give}) as \
                listener:
            loop = asyncio.get_running_loop()
            receiving = asyncio.ensure_future(listener.recv())
            ep = await loop.run_in_executor(
                None, lambda: tensormsg.sync.connect(listener.url,
                                                     background=True))
            for _ in range(2):
                sending = loop.run_in_executor(None, lambda: ep.send(
                    {"x": np.ones(1000, "u1")}, acked=True, timeout=WAIT))
                if left:
                    with pytest.raises(kind, match=words) as caught:
                        await asyncio.wait_for(receiving, WAIT)
                    check(caught)
                    with pytest.raises(kind, match=words):
                        await sending
                else:
                    msg = await asyncio.wait_for(listener.recv(), WAIT)
                    assert msg["x"].all()
                    await sending
            await loop.run_in_executor(None, ep.close)

    if way == "asyncio":
        asyncio.run(main())
        return
    with pair({"host": give}) as (listener, ep):
        ep.send({})
        peer = listener.recv(WAIT).peer
        ep.send({"x": np.full(2000, 7, "u1")})
        with pytest.raises(kind, match=words):
            ep.send({"x": np.ones(1000, "u1")}, acked=True, timeout=WAIT)
        # What came before is taken first.
        assert (listener.recv(WAIT)["x"] == 7).all()
        with pytest.raises(kind, match=words) as caught:
            first(listener, peer)
        check(caught)
        ep.send({"x": np.full(1000, 8, "u1")})
        assert (listener.recv(WAIT)["x"] == 8).all()


def test_a_failure_is_told_before_the_end():
    with tensormsg.sync.listen(":0", background=True, allocators={
            "host": fail_with(MemoryError("full"))}) as listener:
        with tensormsg.sync.connect(listener.url) as ep:
            ep.send({})
            peer = listener.recv(WAIT).peer
            with pytest.raises(tensormsg.NoMemory):
                ep.send({"x": np.ones(1000)}, acked=True, timeout=WAIT)
        with pytest.raises(tensormsg.NoMemory, match="full"):
            peer.recv(WAIT)
        with pytest.raises(tensormsg.Closed):
            peer.recv(WAIT)


def test_a_call_fails_by_it_on_either_side():
    full = fail_with(MemoryError("full"))
    for server, client in ((full, None), (None, full)):
        with tensormsg.sync.listen(
                ":0", background=True,
                allocators={"host": server}) as listener, \
                listener.serve() as serving, \
                tensormsg.sync.connect(listener.url,
                                       allocators={"host": client}) as ep:
            serving.method("same")(lambda request: {"x": request["x"]})
            with pytest.raises(tensormsg.NoMemory,
                               match="'broken' raised MemoryError: full"):
                ep.call("same", {"x": np.ones(1000)}, timeout=WAIT)
            assert ep.health() == "SERVING"  # without arrays: none is asked


def test_the_process_has_some_and_each_connection_may_have_its_own():
    mine, ours = Pool(), Pool()
    assert tensormsg.set_allocator("host", ours.take) is None
    try:
        for allocators, who in ((None, ours), ({"host": mine.take}, mine),
                                ({"host": None}, None)):
            counts = len(mine.asked), len(ours.asked)
            with pair(allocators) as (listener, ep):
                ep.send({"x": np.ones(1000)})
                listener.recv(WAIT)
            grown = (len(mine.asked) - counts[0], len(ours.asked) - counts[1])
            assert grown == (who is mine, who is ours)
        with pair(None) as (listener, ep):
            # It is of those that are made later.
            assert tensormsg.set_allocator("host", None) == ours.take
            ep.send({"x": np.ones(1000)})
            listener.recv(WAIT)
            assert len(ours.asked) == 2
    finally:
        tensormsg.set_allocator("host", None)
    assert tensormsg.set_allocator("host", None) is None


def test_what_is_no_allocator():
    for use in tensormsg.set_allocator, \
            lambda *args: tensormsg.sync.listen(":0", allocators=dict([args])):
        with pytest.raises(ValueError, match="'rocm'"):
            use("rocm", bytearray)
        with pytest.raises(TypeError, match="cannot be called"):
            use("host", 7)


def test_it_lives_as_long_as_the_connection():
    pool = Pool()
    ref = weakref.ref(pool)
    listener = tensormsg.sync.listen(":0", background=True,
                                     allocators={"host": pool.take})
    del pool
    with tensormsg.sync.connect(listener.url, background=True) as ep:
        ep.send({"x": np.ones(1000)})
        x = listener.recv(WAIT)["x"]
        gc.collect()
        assert ref() is not None
        ep.abort()
    listener.abort()
    del listener
    gc.collect()
    assert ref() is None and x.all()


def test_each_failure_is_told():
    with pair({"host": fail_with(MemoryError("full"))}) as (listener, ep):
        for _ in range(3):
            with pytest.raises(tensormsg.NoMemory):
                ep.send({"x": np.ones(1000)}, acked=True, timeout=WAIT)
        for _ in range(3):
            with pytest.raises(tensormsg.NoMemory, match="full"):
                listener.recv(WAIT)
        with pytest.raises(tensormsg.TimedOut):
            listener.recv(.01)


@pytest.mark.parametrize("how", ["collected", "abort"])
def test_it_ends_the_connection_that_asks_it(how):
    """The worker outlives the call of the function."""
    kept, asked = [], threading.Event()

    class Ends:
        def __call__(self, nbytes):
            listener = kept.pop() if kept else None
            if how == "abort" and listener is not None:
                listener.abort()
            del listener
            gc.collect()
            asked.set()
            return bytearray(nbytes)

    ends = Ends()
    ref = weakref.ref(ends)
    kept.append(tensormsg.sync.listen(":0", background=True,
                                      allocators={"host": ends}))
    del ends
    hub = weakref.ref(kept[0]._hub)
    with tensormsg.sync.connect(kept[0].url, background=True) as ep:
        while not kept[0].peers:  # it and the hub are a cycle
            time.sleep(.001)
        with pytest.raises(tensormsg.Error):
            for i in range(100):
                ep.send({"x": np.ones(1000), "y": np.ones(1000)}, acked=True,
                        timeout=WAIT)
        assert asked.wait(WAIT) and not kept
        ep.abort()
    gc.collect()
    assert hub() is None and ref() is not None  # it leaks


@pytest.mark.parametrize("how", ["abort", "close"])
@pytest.mark.parametrize("kind", ["listener", "endpoint"])
def test_it_ends_the_connection_that_waits(kind, how):
    """Nobody but the thread that waits drives it: it is gone when the wait is
    over, with nothing left."""
    kept, told = [], []

    class Ends:
        def __call__(self, nbytes):
            if kept:
                try:
                    getattr(kept.pop(), how)()
                except tensormsg.Error as error:
                    told.append(str(error))
            return bytearray(nbytes)

    ends = Ends()
    ref = weakref.ref(ends)
    mine = {"allocators": {"host": ends}}
    with tensormsg.sync.listen(
            ":0", background=kind == "endpoint",
            **(mine if kind == "listener" else {})) as listener:

        def come():
            with contextlib.suppress(tensormsg.Error):
                with tensormsg.sync.connect(listener.url, background=True) as ep:
                    ep.send({"x": np.ones(1000)}, acked=True, timeout=WAIT)

        if kind == "listener":
            other = threading.Thread(target=come)
            asker = listener
            kept.append(asker)
            other.start()
        else:
            asker = tensormsg.sync.connect(listener.url, **mine)
            while not listener.peers:
                time.sleep(.001)
            kept.append(asker)
            peer, = listener.peers
            other = sending(peer, {"x": np.ones(1000)})
        with contextlib.suppress(tensormsg.Closed):  # or it is the last one
            assert asker.recv(WAIT)["x"].all()
        assert not kept
        if kind == "endpoint" and how == "close":
            assert "allocator" in told[0]
        with pytest.raises(tensormsg.Closed):
            asker.recv(WAIT)
        hub = weakref.ref(asker._hub)
        other.join(WAIT)
        assert not other.is_alive()
    del asker, listener, ends, mine
    gc.collect()
    assert hub() is None and ref() is None


@contextlib.contextmanager
def stuck():
    """Who listens, and answers nothing."""
    with tensormsg.sync.listen(":0", background=True) as listener, \
            listener.serve() as server:

        @server.method("waits", stream=True)
        def waits(stream):
            while not stream.over:
                time.sleep(.001)

        @server.method("late")
        def late(request):
            while not request.over:
                time.sleep(.001)

        yield listener


async def wait_on(ep, way):
    if way == "recv":
        await ep.recv()
    elif way == "recv_into":
        await ep.recv_into({"y": np.zeros(3)})
    elif way == "send":
        await ep.send({"y": np.ones(3)}, acked=True)
    else:
        await ep.stream("waits").wait()


def send_to(listener):
    """In a thread of its own: the allocator of that peer is asked."""
    def send():
        with contextlib.suppress(tensormsg.Error):
            listener.peers[0].send({"x": np.ones(1000)}, timeout=WAIT)

    while not listener.peers:
        time.sleep(.001)
    threading.Thread(target=send).start()


@run_in
@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("way", ["recv", "recv_into", "send", "stream"])
def test_it_ends_a_connection_that_a_loop_waits_for(run, way, debug):
    """In the thread that asks it, while the loop sleeps."""
    kept = []

    def take(nbytes):
        if kept:
            kept.pop().abort()
        return bytearray(nbytes)

    async def main(listener):
        asyncio.get_running_loop().set_debug(debug)
        ep = await tensormsg.connect(listener.url, background=True,
                                     allocators={"host": take})
        waiting = asyncio.ensure_future(wait_on(ep, way))
        await asyncio.sleep(.1)
        kept.append(ep)
        since = time.monotonic()
        send_to(listener)
        await asyncio.wait({waiting}, timeout=WAIT)
        assert time.monotonic() - since < WAIT / 2 and not kept
        assert isinstance(waiting.exception(), tensormsg.Error)

    with stuck() as listener:
        run(main(listener))


@pytest.mark.parametrize("way", ["recv", "recv_into", "send", "stream"])
def test_a_loop_goes_on_until_it_has_returned(way):
    """The connection has ended then, and its worker has not."""
    kept, ticks, seen = [], [], []

    def take(nbytes):
        if kept:
            kept.pop().abort()
            wanted = len(ticks) + 50
            if threading.current_thread() is threading.main_thread():
                wanted = 0  # the loop came first, and asks it itself
            end = time.monotonic() + WAIT / 2
            while len(ticks) < wanted and time.monotonic() < end:
                time.sleep(.001)
            seen.append(len(ticks) >= wanted)
        return bytearray(nbytes)

    async def main(listener):
        ep = await tensormsg.connect(listener.url, background=True,
                                     allocators={"host": take})
        waiting = asyncio.ensure_future(wait_on(ep, way))
        await asyncio.sleep(.1)
        kept.append(ep)
        send_to(listener)
        while not (waiting.done() and seen):
            await asyncio.sleep(.001)
            ticks.append(0)
        assert seen == [True]
        assert isinstance(waiting.exception(), tensormsg.Error)

    with stuck() as listener:
        asyncio.run(asyncio.wait_for(main(listener), WAIT))


@pytest.mark.parametrize("way", ["send", "call", "stream", "stream send"])
def test_a_thread_that_waits_uses_no_processor_until_it_has_returned(way):
    """The connection has ended then, and its worker has not."""
    kept, returned = [], []

    def take(nbytes):
        if kept:
            kept.pop().abort()
            time.sleep(.5)
            returned.append(time.monotonic())
        return bytearray(nbytes)

    with stuck() as listener:
        ep = tensormsg.sync.connect(listener.url, background=True,
                                    allocators={"host": take})
        kept.append(ep)
        later = threading.Timer(.2, send_to, [listener])
        later.start()
        before = time.thread_time()
        with pytest.raises(tensormsg.Error):
            if way == "send":
                ep.send({"y": np.ones(3)}, acked=True, timeout=WAIT)
            else:
                ep.stream("waits").wait(WAIT)
        assert returned and time.thread_time() - before < .15
        later.join()


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("wait", ["recv", "wait", "send"])
def test_it_waits_for_no_stream_of_its_connection(wait, background):
    """Nobody would move what it waits for."""
    told, stream = [], None

    def take(nbytes):
        if stream is not None and not told:
            try:
                if wait == "send":
                    for _ in range(1000):
                        stream.send({"y": np.ones(1)}, timeout=WAIT)
                else:
                    getattr(stream, wait)(timeout=WAIT)
            except tensormsg.Error as error:
                told.append(error)
        return bytearray(nbytes)

    with tensormsg.listen(":0", background=True) as listener, \
            listener.serve() as server, \
            tensormsg.connect(listener.url, background=background,
                              allocators={"host": take}) as ep:

        @server.method("waits", stream=True)
        def waits(other):
            while not other.over:
                time.sleep(.001)

        while not listener.peers:
            time.sleep(.001)
        with ep.stream("waits", queue=1) as stream:
            other = sending(listener.peers[0], {"x": np.ones(1000)})
            assert ep.recv(WAIT)["x"].all()
            other.join()
            error, = told
            assert isinstance(error, tensormsg.WouldBlock)
            assert "its own connection" in str(error)
            stream.cancel()


def test_another_connection_ends_in_it():
    """What is ended there leaves nothing behind."""
    kept, refs = [], []

    def drop(nbytes):
        kept.clear()
        gc.collect()
        return bytearray(nbytes)

    with pair({"host": drop}) as (listener, ep):
        class Unused:
            def __call__(self, nbytes):
                return bytearray(nbytes)

        unused = Unused()
        refs.append(weakref.ref(unused))
        kept.append(tensormsg.sync.connect(listener.url, background=True,
                                           allocators={"host": unused}))
        del unused
        ep.send({"x": np.ones(1000)}, timeout=WAIT)
        assert listener.recv(WAIT)["x"].all()
        assert not kept and refs[0]() is None


def test_an_interrupt_is_not_the_messages_fault():
    """Ctrl-C while the function runs reaches who waits, and the message
    arrives."""
    pressed = []

    def give(nbytes):
        if not pressed:
            pressed.append(1)
            signal.raise_signal(signal.SIGINT)
        return bytearray(nbytes)

    with pair({"host": give}, background=False) as (listener, ep):
        other = sending(ep, {"x": np.ones(1000)})
        with pytest.raises(KeyboardInterrupt):
            while True:
                listener.recv(WAIT)["x"]
                time.sleep(.01)
        more = sending(ep, {"x": np.full(1000, 2.)})
        got = [listener.recv(WAIT)["x"][0]]
        while got[-1] != 2:
            got.append(listener.recv(WAIT)["x"][0])
        other.join()
        more.join()
        assert got in ([1, 2], [2])


def test_threads_that_hold_the_interpreter_do_not_stop_it():
    """The allocator takes the interpreter's lock while others send, receive
    and drop messages on the same connections."""
    pool = Pool()
    over = threading.Event()

    def spin():
        while not over.is_set():
            sum(range(100))

    with pair({"host": pool.take}) as (listener, ep):
        threads = [threading.Thread(target=spin, daemon=True)
                   for _ in range(2)]

        def send():
            for i in range(100):
                ep.send({"x": np.full(3000, i, "u1")}, timeout=WAIT)

        threads.append(threading.Thread(target=send, daemon=True))
        for thread in threads:
            thread.start()
        for i in range(100):
            assert (listener.recv(WAIT)["x"] == i).all()
        over.set()
        for thread in threads:
            thread.join(WAIT)
        pool.wait_for(0)


AT_EXIT = """
import sys, threading
import numpy as np, tensormsg
way = sys.argv[1]
listener = tensormsg.sync.listen(":0", background=True,
                                 allocators={"host": bytearray})
ep = tensormsg.sync.connect(listener.url, background=True)
for i in range(20):
    ep.send({"x": np.full(2000, i)})
kept = listener.recv(30)["x"]
if way == "thread":
    threading.Thread(target=lambda: [m for m in listener], daemon=True).start()
elif way == "flood":
    def flood():
        try:
            while True:
                ep.send({"x": np.ones(2000)})
        except tensormsg.Error:
            pass
    threading.Thread(target=flood, daemon=True).start()
print(kept[0])
"""


@pytest.mark.parametrize("way", ["plain", "thread", "flood"])
def test_at_exit(way):
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-X", "dev", "-c", AT_EXIT, way],
        env={**os.environ, "UCX_LOG_LEVEL": "fatal"}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
    assert (ran.returncode, ran.stdout) == (0, "0\n"), ran.stdout


CUDA = """
import ctypes, gc, sys, weakref
import numpy as np
import tensormsg
from tensormsg._lib import ffi, lib

# The driver that is none: its table of functions, of which "peek" and "poke"
# reach its memory, and "alloc" gives some.
fake = ctypes.CDLL("libcuda.so.1").fake_cuda
fake.restype = ctypes.POINTER(ctypes.c_void_p)
size = ctypes.c_size_t
peek = ctypes.CFUNCTYPE(None, ctypes.c_void_p, size, size)(fake()[7])
poke = ctypes.CFUNCTYPE(None, size, ctypes.c_void_p, size)(fake()[8])
alloc = ctypes.CFUNCTYPE(size, ctypes.c_int, size, ctypes.c_int)(fake()[14])

class Memory:
    def __init__(self, device, nbytes, shift=0):
        self.address = alloc(device, nbytes + shift, 1) + shift
        self.__cuda_array_interface__ = {
            "shape": (nbytes,), "typestr": "|u1", "version": 3,
            "data": (self.address, False)}

given = []
for device in 0, 1:
    assert lib.tmsg_domain_use(ffi.new("tmsg_device_t *", [2, device])[0]) == 0

def take(nbytes, device):
    if mode == "raises":
        raise ValueError("full")
    if mode == "none":
        raise tensormsg.NotFound("not here", -12)
    if mode == "full":
        raise MemoryError
    if mode == "host":
        return np.empty(nbytes, "u1")
    memory = Memory(device, nbytes - (mode == "short"), mode == "shifted")
    given.append(weakref.ref(memory))
    return memory

def send(ep, i):
    memory = Memory(i % 2, 4000)
    x = np.full(1000, i, "i4")
    poke(memory.address, x.ctypes.data, 4000)
    shape = ffi.new("int64_t[]", [1000])
    tensor = ffi.new("tmsg_tensor_t *", {
        "data": ffi.cast("void *", memory.address), "device": (2, i % 2),
        "dtype": (0, 32, 1), "ndim": 1, "shape": shape})
    map_p = ffi.new("tmsg_map_t **")
    assert lib.tmsg_map_create(map_p) == 0
    assert lib.tmsg_map_add(map_p[0], b"x", tensor, ffi.NULL) == 0
    request_p = ffi.new("tmsg_request_t **")
    assert lib.tmsg_endpoint_send(
        ffi.cast("tmsg_endpoint_t *", ep._number), map_p[0], ffi.NULL,
        request_p) == 0
    # So small a tensor travels in the message: whether the receiver had memory
    # for it is no affair of a send that is not acknowledged.
    assert lib.tmsg_request_wait(request_p[0], 30000) == 0
    lib.tmsg_request_destroy(request_p[0])
    lib.tmsg_map_destroy(map_p[0])

with tensormsg.sync.listen(":0", background=True,
                           allocators={"cuda": take}) as listener, \\
        tensormsg.sync.connect(listener.url, background=True) as ep:
    mode = "gives"
    for i in range(4):
        send(ep, i)
        msg = listener.recv(30)
        view = msg.dlpack("x")
        assert view.__dlpack_device__() == (2, i % 2)
        assert msg["x"].dtype == "int32" and msg["x"].shape == (1000,)
        assert msg["x"].__dlpack_device__() == (2, i % 2)
        for read in (lambda: np.asarray(msg["x"]), lambda: msg.raw("x"),
                     lambda: msg["x"].tobytes()):
            try:
                read()
                raise SystemExit("read")
            except TypeError as error:
                assert "memory of a device" in str(error), error
                assert "tensor 'x'" in str(error), error
        memory = given[-1]()
        got = np.empty(1000, "i4")
        peek(got.ctypes.data, memory.address, 4000)
        assert (got == i).all() and got.size == 1000
        del memory, msg
        gc.collect()
        assert given[-1]() is not None
        del view
        gc.collect()
        assert given[-1]() is None
    for mode in "none", "full":
        send(ep, 5)
        assert (listener.recv(30)["x"] == 5).all()
    for mode, words in (("raises", "'take' raised ValueError: full"),
                        ("host", "__cuda_array_interface__"),
                        ("short", "3999 bytes, not 4000"),
                        ("shifted", "aligned")):
        send(ep, 6)
        try:
            listener.recv(30)
            raise SystemExit("got " + mode)
        except tensormsg.Error as error:
            assert words in error.reason, error
"""


class Torch:
    """What _moving.py asks torch for, without a GPU to be page-locked for."""
    uint8 = np.uint8

    def __init__(self):
        self.pool = Pool()
        self.full = False

    def empty(self, nbytes, dtype, pin_memory):
        assert dtype is np.uint8 and pin_memory
        if self.full:
            raise RuntimeError("no more memory can be page-locked")
        return self.pool.take(nbytes)


def test_pinned_memory_is_bounded():
    torch = Torch()
    pinned = Pinned(torch, 2500)
    x = np.arange(1000, dtype="u1")
    with pair({"host": pinned.take}) as (listener, ep):
        held = []
        for there in 1, 2, 2:  # the third finds no room
            ep.send({"x": x})
            held.append(listener.recv(WAIT)["x"])
            assert (held[-1] == x).all() and torch.pool.out == there
        del held[0]
        torch.pool.wait_for(1)
        ep.send({"x": x})  # into what was given back
        held.append(listener.recv(WAIT)["x"])
        assert torch.pool.out == 2
        held.clear()
        torch.pool.wait_for(0)
        torch.full = True
        for _ in range(5):  # what failed is not out
            ep.send({"x": x})
            assert (listener.recv(WAIT)["x"] == x).all()
        torch.full = False
        ep.send({"x": x})
        held.append(listener.recv(WAIT)["x"])
        assert torch.pool.out == 1


def test_pinned_memory_goes_back_whenever_it_is_dropped():
    """Between any two steps of the main thread, which may hold the lock."""
    class Tensor:
        pass

    class Dropping(int):
        def __gt__(self, other):
            held.clear()
            return int(self) > other

    torch = Torch()
    torch.empty = lambda *args, **more: Tensor()
    pinned = Pinned(torch, 1000)
    held = [pinned.take(1000)]
    thread = threading.Thread(target=pinned.take, args=(Dropping(5000),),
                              daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert isinstance(pinned.take(1000), Tensor)


def test_a_device_is_torchs():
    for like in None, "numpy", "jax", np.asarray:
        for module in tensormsg, tensormsg.sync:
            with pytest.raises(ValueError, match="needs like='torch'"):
                module.listen(":0", like=like, device="cuda")
            with pytest.raises(ValueError, match="needs like='torch'"):
                module.connect(":1", like=like, device="cuda")


@pytest.mark.skipif(not os.environ.get("TMSG_FAKES"),
                    reason="no driver that passes for CUDA's was built here")
def test_memory_of_a_device(tmp_path):
    """On the driver that is none; nothing is said of a GPU here."""
    (tmp_path / "cuda.py").write_text(CUDA)
    folder = os.path.join(os.environ["TMSG_FAKES"], "new")
    ran = subprocess.run(
        [sys.executable, "-W", "error", tmp_path / "cuda.py"], text=True,
        env={**os.environ, "UCX_LOG_LEVEL": "fatal", "LD_LIBRARY_PATH": folder,
             "TENSORMSG_UCX": "system"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=50)
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stdout
