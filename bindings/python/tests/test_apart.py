# SPDX-License-Identifier: BSD-3-Clause
"""Arrays of a message that are kept one by one."""

import asyncio
import gc
import json
import os
import threading
import zlib

import numpy as np
import pytest

import tensormsg
from conftest import WAIT, run_script
from tensormsg import sync
from tensormsg._lib import ffi, hot, lib, take_text

MIB = 1 << 20
# Four arrays of 2 MiB, whose bytes all differ, and a short one.
DATA = {name: (np.arange(2 * MIB, dtype="u4") * 2654435761 >> 13).astype("u1")
        + np.uint8(ord(name)) for name in "abcd"}
DATA["reward"] = np.arange(3.)


def checksum(array):
    return zlib.crc32(np.ascontiguousarray(array))


def held(side):
    """Bytes of messages that a worker holds."""
    text_p = ffi.new("char **")
    assert lib.tmsg_worker_describe(side._hub.worker, text_p) == 0
    return json.loads(take_text(text_p))["held_bytes"]


def freed(before, side):
    """MiB fewer than `before`, but for the pages at both ends of an array."""
    return round((before - held(side)) / MIB, 1)


def resident():
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")


@pytest.fixture(params=["unix", "tcp"])
def sides(request, tmp_path):
    """A listener that moves by itself, and an endpoint to it."""
    config = "TLS=tcp,self" if request.param == "tcp" else None
    context = tensormsg.Context(ucx_config=config)
    url = ":0" if config else f"unix://{tmp_path}/socket"
    with sync.listen(url, background=True, context=context) as listener, \
            sync.connect(listener.url, context=context) as ep:
        yield listener, ep


def drop_all_but_one(message, side):
    """Of a message that nobody else holds."""
    assert message.apart() is message and message.apart() is message
    arrays = dict(message)
    del message
    for name, array in arrays.items():
        assert array.flags.writeable and checksum(array) == \
            checksum(DATA[name]), name
    before = held(side)
    assert before >= 8 * MIB
    view = arrays["b"][5:1000:3]
    for i, name in enumerate("ad"):
        del arrays[name]
        assert freed(before, side) == 2 * (i + 1)
    del arrays["b"]  # whose view lives
    assert freed(before, side) == 4
    assert checksum(view) == checksum(DATA["b"][5:1000:3])
    del view
    assert freed(before, side) == 6
    view = arrays.pop("c")[-1000:]
    assert checksum(view) == checksum(DATA["c"][-1000:])
    del view
    gc.collect()
    assert held(side) < MIB / 2
    assert np.array_equal(arrays["reward"], DATA["reward"])


def test_each_array_of_a_message_keeps_its_own_memory(sides):
    listener, ep = sides
    ep.send(DATA)
    drop_all_but_one(listener.recv(WAIT), listener)
    ep.send(DATA)
    for message in listener:
        kept = [message]
        del message
        drop_all_but_one(kept.pop(), listener)
        break


def test_each_array_of_a_reply_and_of_a_stream_does(sides):
    listener, ep = sides
    with listener.serve() as server:
        @server.method("get")
        def get(request):
            return DATA

        @server.method("more")
        def more(stream):
            yield DATA

        drop_all_but_one(ep.call("get", timeout=WAIT), ep)
        call = ep.start_call("get")
        message = call.wait(WAIT)
        del call
        kept = [message]
        del message
        drop_all_but_one(kept.pop(), ep)
        with ep.stream("more") as stream:
            drop_all_but_one(stream.recv(WAIT), ep)
    offer = listener.offer(DATA)
    drop_all_but_one(ep.fetch(offer.key, timeout=WAIT), ep)


def test_each_array_of_what_was_published_does():
    with sync.publish(":0") as publisher, \
            sync.connect(publisher.url) as ep:
        publisher.wait_for(1, WAIT)
        publisher.send(DATA)
        drop_all_but_one(ep.recv(WAIT), ep)


def test_with_asyncio_too():
    async def main():
        async with tensormsg.listen(":0") as listener, \
                tensormsg.connect(listener.url) as ep:
            server = listener.serve()

            @server.method("get")
            async def get(request):
                return DATA

            @server.method("more")
            async def more(stream):
                yield DATA

            await ep.send(DATA)
            drop_all_but_one(await listener.recv(), listener)
            drop_all_but_one(await ep.call("get"), ep)
            offer = listener.offer(DATA)
            drop_all_but_one(await ep.fetch(offer.key), ep)
            async with ep.stream("more") as stream:
                drop_all_but_one(await stream.recv(), ep)
            await server.close()
    asyncio.run(asyncio.wait_for(main(), WAIT))


def test_the_system_has_the_memory_again(sides):
    listener, ep = sides
    ep.send({name: np.full(32 * MIB, ord(name), "u1") for name in "abc"})
    arrays = dict(listener.recv(WAIT).apart())
    assert all(array[0] for array in arrays.values())
    before = resident()
    del arrays["a"], arrays["c"]
    assert before - resident() > 56 * MIB
    assert (arrays["b"] == ord("b")).all()


def test_what_was_taken_before_keeps_the_whole_message(sides):
    """It is never given back under those who may read it."""
    listener, ep = sides
    ways = (lambda m: m["a"][10:], lambda m: m.raw("a")[10:],
            lambda m: np.from_dlpack(m.dlpack("a"))[10:],
            lambda m: m.dlpack("a"))
    for take in ways:
        ep.send(DATA)
        message = listener.recv(WAIT)
        taken = take(message)
        arrays = dict(message.apart())
        del message
        before = held(listener)
        del arrays["a"], arrays["b"]
        assert held(listener) == before
        if take is ways[-1]:
            taken = np.from_dlpack(taken)[10:]
        assert checksum(taken) == checksum(DATA["a"][10:])
        del taken
        del arrays["d"]
        assert freed(before, listener) == 6
        assert checksum(arrays["c"]) == checksum(DATA["c"])
        del arrays


def test_what_is_made_of_it_then_keeps_its_part(sides):
    listener, ep = sides
    ep.send(DATA)
    message = listener.recv(WAIT).apart()
    capsule = message.dlpack("a").__dlpack__()
    view, raw = np.from_dlpack(message.dlpack("b")), message.raw("c")
    assert message.dtype("d") == "uint8"
    assert message.tree().keys() == DATA.keys()
    before = held(listener)
    del message
    assert freed(before, listener) == 2  # d
    assert checksum(view) == checksum(DATA["b"])
    assert checksum(raw) == checksum(DATA["c"])
    del view
    assert freed(before, listener) == 4
    threads = [threading.Thread(target=kept.clear)
               for kept in ([capsule], [raw])]
    del capsule, raw
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    del threads, thread
    gc.collect()
    assert held(listener) < MIB / 2


def test_short_messages_and_requests_are_copied(sides):
    listener, ep = sides
    data = {"x": np.arange(1000.)[::-1], "f": np.asfortranarray(np.eye(5)),
            "one": np.broadcast_to(np.float32(3), (1000, 10000)),
            "none": np.zeros((0, 3)), "point": np.array(5)}
    ep.send(data, keep_strides=True)
    arrays = dict(listener.recv(WAIT).apart())
    assert held(listener) == 0
    for name, array in arrays.items():
        assert np.array_equal(array, data[name])
        assert array.strides == data[name].strides or name == "none"
    kept = []
    with listener.serve() as server:
        @server.method("keep")
        def keep(request):
            kept.append(request.apart()["b"])
            assert not request.over and request.remaining > 0
            return {"x": kept[0][:3]}

        reply = ep.call("keep", DATA, timeout=WAIT)
        assert checksum(reply["x"]) == checksum(DATA["b"][:3])
        server.drain(WAIT)  # the call does not run any more
    assert held(listener) < MIB / 2
    assert checksum(kept[0]) == checksum(DATA["b"])


def test_what_was_received_into_stays_that(sides):
    listener, ep = sides
    ep.send({"x": np.ones(1)})
    there = listener.recv(WAIT).peer
    into = np.empty(2 * MIB, "u1")
    ep.send(DATA)
    message = there.recv_into({"b": into}, timeout=WAIT).apart()
    assert message["b"] is into
    arrays = dict(message)
    del message
    before = held(listener)
    del arrays["a"], arrays["b"]
    assert held(listener) < before
    for name in "bc":
        assert checksum({**arrays, "b": into}[name]) == checksum(DATA[name])


def test_where_memory_is_used_up_the_message_stays_as_it_was(sides,
                                                             monkeypatch):
    def no_memory(*at):
        raise MemoryError

    listener, ep = sides
    ep.send(DATA)
    message = listener.recv(WAIT)
    before = held(listener)
    with monkeypatch.context() as broken:
        broken.setattr(hot, "array", no_memory)
        with pytest.raises(MemoryError):
            message.apart()
    assert held(listener) == before
    assert checksum(message["a"]) == checksum(DATA["a"])
    with pytest.raises(ValueError, match="not the arrays"):
        hot.apart(message._owner, [])


def test_they_may_be_sent_on(sides):
    listener, ep = sides
    with listener.serve() as server:
        kept = []

        @server.method("keep")
        def keep(request):
            kept.append(request.apart())
            return kept[0]

        @server.method("again")
        def again(request):
            return {"y": kept[0].dlpack("b")}

        reply = ep.call("keep", DATA, timeout=WAIT).apart()
        assert reply.keys() == DATA.keys()
        again = ep.call("again", timeout=WAIT)
        assert checksum(again["y"]) == checksum(DATA["b"])
        ep.send({"x": reply["a"], "y": reply.dlpack("d")})
        del reply
        gc.collect()
        message = listener.recv(WAIT)
        assert checksum(message["x"]) == checksum(DATA["a"])
        assert checksum(message["y"]) == checksum(DATA["d"])


FORKS = """
import gc, os
import numpy as np
from tensormsg import sync
with sync.listen(':0', background=True) as listener, \\
        sync.connect(listener.url) as ep:
    ep.send({n: np.full(1 << 21, i, 'u1') for i, n in enumerate('abc')})
    arrays = dict(listener.recv(30).apart())
    if os.fork() == 0:
        del arrays['a'], arrays['b']
        gc.collect()
        right = (arrays['c'] == 2).all()
        arrays.clear()
        os._exit(7 if right else 1)
    _, status = os.wait()
    assert os.waitstatus_to_exitcode(status) == 7, status
    assert all((arrays[n] == i).all() for i, n in enumerate('abc'))
    del arrays['a']
    assert (arrays['b'] == 1).all()
    print('right')
"""


def test_a_forked_child_gives_none_of_them_back(tmp_path):
    script = tmp_path / "forks.py"
    script.write_text(FORKS)
    assert run_script(script) == "right\n"


def test_exit_with_arrays_that_are_kept(tmp_path):
    script = tmp_path / "exit.py"
    script.write_text(
        "import numpy as np, tensormsg\n"
        "from tensormsg import sync\n"
        "listener = sync.listen(':0', background=True)\n"
        "ep = sync.connect(listener.url)\n"
        "ep.send({n: np.ones(1 << 20) for n in 'abc'})\n"
        "kept = listener.recv(10).apart()\n"
        "capsule = kept.dlpack('a').__dlpack__()\n"
        "view = kept['b'][3:]\n"
        "del kept\n"
        "print(view.sum())\n")
    assert run_script(script).split() == [f"{(1 << 20) - 3}.0"]
