# SPDX-License-Identifier: BSD-3-Clause
"""Loans: arrays in memory that is lent to peers, and what they see of it."""

import asyncio
import contextlib
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import tensormsg
from conftest import environment
from tensormsg import sync

WAIT = 10  # seconds, before something is called a failure
SIZE = 300_000  # bytes, above shm.lend_bytes


def files():
    """How many files of memory this process has open."""
    names = []
    for each in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            names.append(os.readlink(f"/proc/self/fd/{each}"))
    return sum("memfd:tensormsg" in name for name in names)


def until(holds):
    deadline = time.monotonic() + WAIT
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(.001)


class Sides:
    """An owner, and a borrower of the same process."""

    def __init__(self, listener, ep):
        self.listener, self.borrower = listener, ep
        ep.send({})
        self.owner = listener.recv(WAIT).peer

    def lend(self, data, **more):
        self.owner.send(data, lend=True, timeout=WAIT, **more)
        return self.borrower.recv(WAIT)

    def loans(self):
        return self.owner.describe()["sent_by_loan"]


@contextlib.contextmanager
def sides_at(url, **more):
    more = {"loan": True, "background": True, **more}
    with sync.listen(url, background=True) as listener, \
            sync.connect(listener.url, **more) as ep:
        yield Sides(listener, ep)


@pytest.fixture
def url(tmp_path):
    return f"unix://{tmp_path}/socket"


@pytest.fixture
def sides(url):
    with sides_at(url) as made:
        yield made


def filled(value, size=SIZE):
    array = tensormsg.empty(size, "u1")
    array[:] = value
    return array


# Arrays that can be lent

@pytest.mark.parametrize("shape, dtype", [
    ((2, 3), "f4"), (5, np.int64), ((), "c16"), ((0, 4), "u1"),
    (np.int32(7), "?")])
def test_empty_is_an_array_of_zeros(shape, dtype):
    array = tensormsg.empty(shape, dtype)
    like = np.zeros(shape, dtype)
    assert (array.shape, array.dtype) == (like.shape, like.dtype)
    assert type(array) is np.ndarray and not array.any()
    assert array.flags.c_contiguous and array.flags.writeable
    array[...] = 1
    assert array.all() and not tensormsg.is_lent(array)
    array.flags.writeable = False
    array.flags.writeable = True


def test_arrays_of_one_block():
    arrays = tensormsg.empty({"image": ((3, 5), "u1"), "none": (0, "f8"),
                              "pose": ((4, 4), "f8")})
    assert arrays["pose"].shape == (4, 4) and arrays["none"].size == 0
    assert arrays["image"].base is arrays["pose"].base
    assert arrays["pose"].ctypes.data % 64 == 0
    arrays["image"][:] = 255
    assert not arrays["pose"].any()


def test_empty_refuses_what_no_tensor_has():
    for dtype in (object, "U4", "M8[s]", [("x", "f4")]):
        with pytest.raises(TypeError, match="dtype"):
            tensormsg.empty(3, dtype)
    for shape in (-1, 2.5, (2, -3), True):
        with pytest.raises((TypeError, ValueError), match="shape of"):
            tensormsg.empty(shape)
    with pytest.raises(ValueError, match="like="):
        tensormsg.empty(3, like="jax")
    with pytest.raises(tensormsg.NoMemory, match="shareable memory"):
        tensormsg.empty(1 << 45, "u1")


def test_a_block_goes_with_its_last_view():
    before = files()
    array = tensormsg.empty((100, 100))
    view = array[3:, ::2].T
    assert files() == before + 1
    del array
    gc.collect()
    view[:] = 7
    assert files() == before + 1
    del view
    assert files() == before


def test_other_memory_is_never_lent():
    for other in (np.ones(3), [1, 2], b"bytes", np.float32(3)):
        assert not tensormsg.is_lent(other)


# The owner's arrays

def test_an_array_is_read_where_it_lies_and_is_read_only_meanwhile(sides):
    array = filled(3)
    msg = sides.lend({"x": array}, frame=7)
    assert msg.lent and msg.meta["frame"] == 7 and (msg["x"] == 3).all()
    assert not array.flags.writeable and tensormsg.is_lent(array)
    for write in (lambda: array.fill(1), lambda: array.__iadd__(1),
                  lambda: array.__setitem__(0, 1)):
        with pytest.raises(ValueError, match="read-only"):
            write()
    with pytest.raises(ValueError, match="WRITEABLE"):
        array.flags.writeable = True
    assert not array[5:].flags.writeable
    del msg
    until(lambda: array.flags.writeable)
    assert not tensormsg.is_lent(array) and sides.loans() == 1
    array[:] = 4
    assert (sides.lend({"x": array})["x"] == 4).all()


def test_nothing_is_copied(sides):
    """The owner breaks its promise, by an older view, to show that."""
    array = filled(3)
    view = array[:]
    msg = sides.lend({"x": array})
    view[9] = 4
    assert msg["x"][9] == 4 and msg["x"].sum() == 3 * SIZE + 1


def test_arrays_of_one_block_are_lent_together(sides):
    arrays = tensormsg.empty({"image": ((300, 500), "u1"),
                              "pose": ((4, 4), "f8")})
    view = arrays["image"][:]
    msg = sides.lend(arrays)
    assert msg.lent and msg["pose"].shape == (4, 4)
    assert not any(array.flags.writeable for array in arrays.values())
    view[:] = 9  # as above
    assert (msg["image"] == 9).all()
    # A part of the block is no loan of the block: the rest is nobody's business.
    part = sides.lend({"image": arrays["image"][:200]})
    view[:] = 8
    assert part.lent and (part["image"] == 9).all()


def test_an_array_is_writable_when_the_last_of_its_loans_came_back(sides):
    array, other = filled(1), filled(2)
    held = [sides.lend({"x": array}), sides.lend({"tree": [array, other]}),
            sides.lend({"x": array[:]})]
    assert held[1].tree()["tree"][1][0] == 2 and sides.loans() == 3
    del held[1]
    until(lambda: other.flags.writeable)
    for _ in range(2):
        assert not array.flags.writeable and tensormsg.is_lent(array)
        held.pop()
    until(lambda: array.flags.writeable)
    assert not tensormsg.is_lent(array)


def test_what_the_user_made_read_only_stays_so(sides):
    array = filled(1)
    array.flags.writeable = False
    msg = sides.lend({"x": array})
    assert tensormsg.is_lent(array) and (msg["x"] == 1).all()
    del msg
    until(lambda: not tensormsg.is_lent(array))
    assert not array.flags.writeable
    array.flags.writeable = True


def test_the_memory_is_kept_while_it_is_lent(sides):
    messages = [sides.lend({"x": filled(i)}) for i in range(5)]
    gc.collect()
    filled(9)
    for i, msg in enumerate(messages):
        assert msg.lent and (msg["x"] == i).all()


def test_other_arrays_are_copied_once_and_stay_writable(sides):
    array = np.full(SIZE, 3, "u1")
    msg = sides.lend({"x": array, "y": filled(4)})
    array[:] = 9
    assert msg.lent and (msg["x"] == 3).all() and (msg["y"] == 4).all()
    assert not tensormsg.is_lent(array) and sides.loans() == 1


def test_what_is_not_lent_arrives_as_ever(url):
    small, array = filled(1, 100), filled(2)
    with sides_at(url) as sides:
        msg = sides.lend({"x": small})
        assert not msg.lent and msg["x"].flags.writeable
        sides.owner.send({"x": array})
        assert not sides.borrower.recv(WAIT).lent
    with sides_at("tcp://127.0.0.1:0") as sides:
        msg = sides.lend({"x": array})
        assert not msg.lent and msg["x"].flags.writeable
        until(lambda: array.flags.writeable)
        assert "none" in sides.owner.describe()["loans"]
    with sides_at(url + "2", loan=False) as sides:
        msg = sides.lend({"x": array})
        assert not msg.lent and (msg["x"] == 2).all()
        assert "does not borrow" in sides.owner.describe()["loans"]
    until(lambda: array.flags.writeable)


def test_a_send_that_fails_lends_nothing(sides):
    array = filled(1)
    with pytest.raises(TypeError):
        sides.owner.send({"x": array, "y": object()}, lend=True)
    assert array.flags.writeable
    sides.owner.abort()
    with pytest.raises(tensormsg.Error):
        sides.owner.send({"x": array}, lend=True)
    assert array.flags.writeable and not tensormsg.is_lent(array)
    sides.borrower.abort()


# The borrower's arrays

def test_borrowed_arrays_are_read_only(sides):
    msg = sides.lend({"x": filled(3), "y": np.ones((300, 100))})
    x = msg["x"]
    for write in (lambda: x.fill(1), lambda: x.__iadd__(1),
                  lambda: msg["y"].__setitem__(0, 1)):
        with pytest.raises(ValueError, match="read-only"):
            write()
    with pytest.raises(ValueError, match="WRITEABLE"):
        x.flags.writeable = True
    assert memoryview(x).readonly and x[5:].base is not None
    assert not msg.raw("y").flags.writeable
    assert (pickle.loads(pickle.dumps(x)) == x).all()
    copy = x.copy()
    copy[:] = 1
    with pytest.raises(tensormsg.InvalidParam, match="read-only"):
        sides.borrower.recv_into({"x": x}, timeout=0)


class OfVersion:
    """Passes for an array of another library, which may know of no versions."""

    def __init__(self, tensor, version):
        self.tensor, self.version = tensor, version

    def __dlpack__(self, **more):
        return self.tensor.__dlpack__(max_version=self.version)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


def test_dlpack_gives_a_copy_on_write(sides):
    array = filled(3)
    msg = sides.lend({"x": array})
    for version in (None, (1, 0)):
        taken = OfVersion(msg.dlpack("x"), version)
        view = np.from_dlpack(taken)
        assert (view == 3).all()
        if version is None:  # which numpy, of all, does not believe writable
            assert not tensormsg.is_lent(view)
            continue
        view[::4096] = 4
        view[-1] = 5
        assert (msg["x"] == 3).all() and (array == 3).all()
    del msg, taken
    gc.collect()
    assert view[0] == 4 and view[1] == 3  # it holds the loan
    assert tensormsg.is_lent(array)
    del view
    until(lambda: not tensormsg.is_lent(array))


def test_strides_of_loans(sides):
    data = {"back": np.arange(40000.)[::-1], "even": np.arange(40000)[::2],
            "turned": np.ones((200, 300)).T,
            "wide": np.broadcast_to(np.arange(3.), (50000, 3))}
    for more in ({}, {"keep_strides": True}):
        msg = sides.lend(data, **more)
        for name, array in data.items():
            assert (msg[name] == array).all()
            assert (np.from_dlpack(msg.dlpack(name)) == array).all()
    assert sides.loans() == 2


def test_a_borrowed_array_is_sent_on(sides):
    msg = sides.lend({"x": filled(7)})
    sides.borrower.send({"x": msg["x"]})
    back = sides.listener.recv(WAIT)
    assert (back["x"] == 7).all() and not back.lent
    back["x"][:] = 1
    again = sides.lend({"x": msg["x"]})
    del msg
    assert (again["x"] == 7).all()


def test_what_is_received_into_is_a_copy(sides):
    array, mine = filled(3), np.zeros(SIZE, "u1")
    sides.owner.send({"x": array, "y": filled(4)}, lend=True)
    msg = sides.borrower.recv_into({"x": mine}, timeout=WAIT)
    assert msg["x"] is mine and (mine == 3).all() and (msg["y"] == 4).all()
    mine[:] = 1
    assert msg.lent and not msg["y"].flags.writeable
    del msg
    until(lambda: not tensormsg.is_lent(array))
    sides.owner.send({"x": array}, lend=True)
    msg = sides.borrower.recv_into({"x": mine}, timeout=WAIT)
    assert not msg.lent and (mine == 3).all()
    until(lambda: not tensormsg.is_lent(array))
    del msg


def test_apart_keeps_all_of_a_loan(sides):
    arrays = filled(1, 1 << 20), filled(2, 1 << 20)
    msg = sides.lend({"x": arrays[0], "y": arrays[1]}).apart()
    assert msg.lent
    x, y = msg["x"], msg["y"]
    assert not x.flags.writeable
    del msg, x
    gc.collect()
    assert tensormsg.is_lent(arrays[0]) and (y == 2).all()
    del y
    until(lambda: not tensormsg.is_lent(arrays[0]))


def test_many_messages_by_few_blocks(sides):
    blocks = [filled(0) for _ in range(3)]
    for i in range(60):
        until(lambda: not all(map(tensormsg.is_lent, blocks)))
        block = next(b for b in blocks if not tensormsg.is_lent(b))
        until(lambda: block.flags.writeable)
        block[:] = i
        assert (sides.lend({"x": block})["x"] == i).all()
    assert sides.loans() == 60


def test_threads(sides):
    """Some lend the same array, others look, while the collector runs."""
    array, failures, over = filled(1), [], threading.Event()

    def lend():
        try:
            for _ in range(30):
                sides.owner.send({"x": array}, lend=True, timeout=WAIT)
        except Exception as error:
            failures.append(error)

    def look():
        while not over.is_set():
            tensormsg.is_lent(array)
            gc.collect(0)
            filled(2, 10).sum()

    threads = [threading.Thread(target=lend) for _ in range(3)]
    looker = threading.Thread(target=look)
    for thread in (looker, *threads):
        thread.start()
    for _ in range(90):
        assert (sides.borrower.recv(WAIT)["x"] == 1).all()
    for thread in threads:
        thread.join()
    over.set()
    looker.join()
    assert not failures
    until(lambda: array.flags.writeable)


# Offers, replies, publications, and asyncio

def test_offers_are_lent(sides):
    array = filled(3)
    offer = sides.listener.offer({"x": array}, name="x", lend=True)
    assert not array.flags.writeable
    msg = sides.borrower.fetch(name="x", loan=True, timeout=WAIT)
    assert msg.lent and (msg["x"] == 3).all()
    part = sides.borrower.fetch(offer.key, slices={"x": np.s_[:9]}, loan=True)
    assert not part.lent
    later = sides.borrower.start_fetch(offer.key, loan=True).wait(WAIT)
    assert later.lent
    with pytest.raises(tensormsg.TimedOut):
        offer.withdraw(0)
    assert tensormsg.is_lent(array) and not offer.released
    del msg, later
    until(lambda: array.flags.writeable)
    assert offer.released


def test_a_fetch_asks_for_a_loan(url):
    with sides_at(url, loan=False) as sides:
        offer = sides.listener.offer({"x": filled(3)}, lend=True)
        assert not sides.borrower.fetch(offer.key, timeout=WAIT).lent
        msg = sides.borrower.fetch(offer.key, loan=True, timeout=WAIT)
        assert msg.lent and not msg["x"].flags.writeable
        other = sides.listener.offer({"x": np.full(SIZE, 4, "u1")}, lend=True)
        msg = sides.borrower.fetch(other.key, loan=True, timeout=WAIT)
        assert msg.lent and (msg["x"] == 4).all()
        other.withdraw(WAIT)  # the library's copy is lent, not the array
        assert (msg["x"] == 4).all()
        del msg


def test_replies_are_lent(sides):
    array, free = filled(3), threading.Event()
    with sides.listener.serve() as server:
        @server.method("give")
        def give(request):
            return tensormsg.Reply({"x": array}, lend=True, on_release=free.set)

        reply = sides.borrower.call("give", timeout=WAIT)
        assert reply.lent and (reply["x"] == 3).all()
        assert not array.flags.writeable and not free.is_set()
        del reply
        assert free.wait(WAIT) and array.flags.writeable


def test_a_call_asks_for_a_loan(url):
    array, mine = filled(3), np.zeros(SIZE, "u1")
    with sides_at(url, loan=False) as sides, sides.listener.serve() as server:
        server.method("give")(
            lambda request: tensormsg.Reply({"x": array}, lend=True))
        call = sides.borrower.call
        msg = call("give", timeout=WAIT)
        assert not msg.lent and msg["x"].flags.writeable
        until(lambda: array.flags.writeable)
        msg = call("give", timeout=WAIT, loan=True)
        assert msg.lent and (msg["x"] == 3).all()
        assert not msg["x"].flags.writeable and not array.flags.writeable
        later = sides.borrower.start_call("give", loan=True).wait(WAIT)
        assert later.lent and (later["x"] == 3).all()
        del msg, later
        until(lambda: array.flags.writeable)
        msg = call("give", timeout=WAIT, loan=True, into={"x": mine})
        assert not msg.lent and msg["x"] is mine and (mine == 3).all()
        with pytest.raises(tensormsg.NotFound):
            call("take", {"x": array}, timeout=WAIT, lend=True, loan=True)
        until(lambda: array.flags.writeable)


def test_what_a_method_is_called_with_is_lent(sides):
    array, plain, kept = filled(3), np.full(SIZE, 4, "u1"), []
    with sides.borrower.serve() as server:
        @server.method("take")
        def take(request):
            assert request.lent and not request["x"].flags.writeable
            kept.append(request["x"])
            return {"sum": request["x"].sum(keepdims=True)}

        for data in (array, plain):
            reply = sides.owner.call("take", {"x": data}, timeout=WAIT,
                                     lend=True)
            assert reply["sum"][0] == int(data[0]) * SIZE
        assert not array.flags.writeable and plain.flags.writeable
        plain[:] = 5
        assert (kept[0] == 3).all() and (kept[1] == 4).all()
        kept.clear()
        until(lambda: array.flags.writeable)
        sides.owner.start_call("take", {"x": array}, lend=True).wait(WAIT)
        assert not array.flags.writeable
        kept.clear()
        until(lambda: array.flags.writeable)
        with pytest.raises(TypeError):
            sides.owner.call("take", {"x": array, "y": object()}, lend=True)
        assert array.flags.writeable


def test_messages_of_streams_are_lent(sides):
    """Both ways: by send(), and by what a generator yields."""
    arrays = filled(3), filled(4)
    with sides.listener.serve() as server:
        @server.method("back")
        def back(stream):
            for msg in stream:
                assert not msg.lent  # the listener does not borrow
                stream.send({"x": arrays[0]}, lend=True, n=1)
                yield tensormsg.Reply({"x": arrays[1]}, meta={"n": 2},
                                      lend=True)

        with sides.borrower.stream("back") as stream:
            for _ in range(3):  # more of them than the first, which is offered
                stream.send({"x": arrays[0]}, timeout=WAIT, lend=True)
                messages = [stream.recv(WAIT), stream.recv(WAIT)]
                for n, msg in enumerate(messages):
                    assert msg.lent and msg.meta["n"] == n + 1
                    assert (msg["x"] == 3 + n).all()
                    assert not arrays[n].flags.writeable
                del msg
                messages.clear()
                until(lambda: arrays[0].flags.writeable and
                      arrays[1].flags.writeable)
            with pytest.raises(TypeError, match="acked= is not an option"):
                stream.send({}, acked=True)


def test_publications_are_lent(url):
    array = filled(3)
    with sync.publish(url) as publisher, \
            sync.connect(url, loan=True) as one, \
            sync.connect(url, loan=True, background=True) as another:
        publisher.wait_for(2, WAIT)
        publisher.send({"x": array}, lend=True, frame=1)
        messages = [one.recv(WAIT), another.recv(WAIT)]
        for msg in messages:
            assert msg.lent and (msg["x"] == 3).all() and \
                msg.meta["frame"] == 1
        assert not array.flags.writeable and tensormsg.is_lent(array)
        del msg
        messages.clear()

        def gave_back():
            with contextlib.suppress(tensormsg.TimedOut):
                one.recv(0)  # in which it says that it gives the loan back
            return array.flags.writeable

        until(gave_back)
        plain = np.full(SIZE, 5, "u1")
        for copy in (True, False):
            publisher.send({"x": plain}, lend=True, copy=copy)
            if copy:
                plain[:] = 6
            assert [(each.recv(WAIT)["x"] == 5 + (not copy)).all()
                    for each in (one, another)] == [True, True]


def test_what_a_publisher_keeps_counts_as_lent(url):
    arrays = filled(1), filled(2)
    with sync.publish(url, keep=1) as publisher:
        publisher.send({"x": arrays[0]}, lend=True)
        assert tensormsg.is_lent(arrays[0]) and not arrays[0].flags.writeable
        publisher.send({"x": arrays[1]}, lend=True)
        until(lambda: not tensormsg.is_lent(arrays[0]))
        assert arrays[0].flags.writeable and tensormsg.is_lent(arrays[1])
        with sync.connect(url, loan=True) as late:
            assert late.recv(WAIT).lent
        assert publisher.describe()["lent"] == 1
    until(lambda: not tensormsg.is_lent(arrays[1]))


def test_asyncio(url):
    async def main():
        array = filled(3)
        async with tensormsg.listen(url) as listener, \
                tensormsg.connect(url, loan=True) as ep:
            await ep.send({})
            peer = (await listener.recv()).peer
            await peer.send({"x": array}, lend=True)
            msg = await ep.recv()
            assert msg.lent and (msg["x"] == 3).all()
            assert not array.flags.writeable
            del msg
            while not array.flags.writeable:
                await asyncio.sleep(.001)
            offer = listener.offer({"x": array}, lend=True)
            msg = await ep.fetch(offer.key, loan=True)
            assert msg.lent
            del msg
            await offer.withdraw(WAIT)
            assert array.flags.writeable

            async def give(request):
                return tensormsg.Reply({"x": array}, lend=True)

            async def both(stream):
                msg = await stream.recv()
                await stream.send({"n": msg["x"][:1]})
                yield tensormsg.Reply({"x": array}, lend=True)

            async with ep.serve() as server, listener.serve() as other:
                other.method("give")(give)
                other.method("both")(both)
                server.method("sum")(lambda request: {
                    "lent": np.array(request.lent),
                    "sum": request["x"].sum(keepdims=True)})
                reply = await peer.call("sum", {"x": array}, lend=True)
                assert reply["lent"] and reply["sum"][0] == 3 * SIZE
                reply = await ep.call("give", loan=True)
                assert reply.lent
                del reply
                reply = await ep.start_call("give", loan=True)
                assert reply.lent
                del reply
                async with ep.stream("both") as stream:
                    await stream.send({"x": array}, lend=True)
                    assert (await stream.recv())["n"][0] == 3
                    msg = await stream.recv()
                    assert msg.lent and (msg["x"] == 3).all()
                    del msg
            while not array.flags.writeable:
                await asyncio.sleep(.001)
    asyncio.run(asyncio.wait_for(main(), WAIT))


# Processes that end

BEGIN = """
import os, sys
import numpy as np
import tensormsg
from tensormsg import sync
url, size = sys.argv[1], int(sys.argv[2])
"""
BORROW = BEGIN + """
ep = sync.connect(url, loan=True)
ep.send({})
msg = ep.recv(30)
assert msg.lent
"""
OWN = BEGIN + """
listener = sync.listen(url)
print("listens", flush=True)
peer = listener.recv(30).peer
array = tensormsg.empty(size, "u1")
array[:] = 3
peer.send({"x": array}, lend=True)
"""


@contextlib.contextmanager
def program(text, url):
    with subprocess.Popen([sys.executable, "-c", text, url, str(SIZE)],
                          env=environment(), text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT) as process:
        try:
            yield process
        finally:
            process.kill()


def test_views_outlive_their_owner(url):
    with program(OWN + "sys.stdin.read()", url) as owner:
        assert owner.stdout.readline() == "listens\n"
        ep = sync.connect(url, loan=True)
        ep.send({})
        msg = ep.recv(WAIT)
        owner.send_signal(signal.SIGKILL)
        owner.wait(WAIT)
    with pytest.raises(tensormsg.Error):
        ep.recv(WAIT)
    ep.abort()
    view = np.from_dlpack(msg.dlpack("x"))
    view[0] = 4
    assert msg.lent and (msg["x"] == 3).all() and view.sum() == 3 * SIZE + 1


def test_a_borrower_that_is_killed_gives_back(url):
    array = filled(3)
    with sync.listen(url, background=True) as listener:
        with program(BORROW + "print('has it', flush=True)\n"
                     "sys.stdin.read()", url) as borrower:
            listener.recv(WAIT).peer.send({"x": array}, lend=True)
            assert borrower.stdout.readline() == "has it\n"
            assert tensormsg.is_lent(array) and not array.flags.writeable
            borrower.send_signal(signal.SIGKILL)
        until(lambda: array.flags.writeable)
        assert not tensormsg.is_lent(array)


@pytest.mark.parametrize("end", ["", "ep.close()", "sys.exit()",
                                 "view = np.from_dlpack(msg.dlpack('x'))"])
def test_a_borrower_ends_while_it_has_views(url, end):
    array = filled(3)
    with sync.listen(url, background=True) as listener:
        with program(BORROW + "x = msg['x']\nassert (x == 3).all()\n" + end,
                     url) as borrower:
            with contextlib.suppress(tensormsg.Error):
                listener.recv(WAIT).peer.send({"x": array}, lend=True)
            assert borrower.communicate(timeout=WAIT) == ("", None)
            assert borrower.returncode == 0
        until(lambda: array.flags.writeable)


@pytest.mark.parametrize("end", ["", "peer.close()", "listener.close()"])
def test_an_owner_ends_while_its_array_is_lent(url, end):
    with program(OWN + end, url) as owner:
        assert owner.stdout.readline() == "listens\n"
        with sync.connect(url, loan=True, background=True) as ep:
            ep.send({})
            msg = ep.recv(WAIT)
            assert owner.communicate(timeout=WAIT) == ("", None)
            assert owner.returncode == 0
            assert msg.lent and (msg["x"] == 3).all()
            del msg
            with contextlib.suppress(tensormsg.Error):
                ep.recv(0)
            ep.abort()


FORKS = """
def child(what):
    pid = os.fork()
    if pid == 0:
        try:
            what()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
"""


def test_the_child_of_a_borrower_reads(url):
    array = filled(3)
    with sync.listen(url, background=True) as listener:
        with program(BORROW + FORKS + """
x = msg["x"]
def what():
    global x, msg
    assert (x == 3).all() and msg.lent
    view = np.from_dlpack(msg.dlpack("x"))
    view[:] = 4
    del x, msg, view
child(what)
assert (x == 3).all()
ep.send({})
sys.stdin.read()
""", url) as borrower:
            peer = listener.recv(WAIT).peer
            peer.send({"x": array}, lend=True)
            listener.recv(WAIT)  # the child is over, and gave nothing back
            assert tensormsg.is_lent(array)
            assert borrower.communicate(timeout=WAIT) == ("", None)
        until(lambda: array.flags.writeable)


def test_the_child_of_an_owner_lends_nothing(url):
    with program(OWN + FORKS + """
spare = tensormsg.empty(100)
def what():
    global array, spare
    assert tensormsg.is_lent(array) and tensormsg.is_lent(spare)
    assert not array.flags.writeable and (array == 3).all()
    own = tensormsg.empty(100)
    own[:] = 1
    assert not tensormsg.is_lent(own)
    del array, spare, own
child(what)
assert not tensormsg.is_lent(spare)
spare[:] = 1
listener.recv(30)
while not array.flags.writeable:
    tensormsg.is_lent(array)
    try:
        listener.recv(.01)
    except tensormsg.Error:
        pass
""", url) as owner:
        assert owner.stdout.readline() == "listens\n"
        with sync.connect(url, loan=True, background=True) as ep:
            ep.send({})
            msg = ep.recv(WAIT)
            assert (msg["x"] == 3).all()
            ep.send({})
            del msg
            assert owner.communicate(timeout=WAIT) == ("", None)
            assert owner.returncode == 0
            ep.abort()
