# SPDX-License-Identifier: BSD-3-Clause
"""Offers and fetches, in both faces; replies that are received into buffers."""

import asyncio
import gc
import json
import math
import queue
import re
import select
import signal
import subprocess
import sys
import threading
import time
import types
import weakref

import numpy as np
import pytest

import tensormsg
from tensormsg import sync
from tensormsg._lib import ffi, lib, take_text

WAIT = 30  # seconds, before something is called a failure
SIZES = [10, 300_000]


@pytest.fixture
def sides():
    """A listener that moves by itself, and an endpoint to it."""
    with sync.listen("tcp://127.0.0.1:0", background=True) as listener, \
            sync.connect(listener.url) as ep:
        yield listener, ep


@pytest.mark.parametrize("size", SIZES)
def test_a_map_is_fetched_by_key_and_by_name(sides, size):
    listener, ep = sides
    w = np.arange(size, dtype="float32")
    offer = listener.offer({"w": w, "b": np.ones(3)}, meta={"step": 7},
                           name="weights", version=5)
    assert len(offer.key) == 48
    for message in (ep.fetch(offer.key, timeout=WAIT),
                    ep.fetch(name="weights", at_least=5, timeout=WAIT)):
        np.testing.assert_array_equal(message["w"], w)
        np.testing.assert_array_equal(message["b"], np.ones(3))
        assert message.meta["step"] == 7
    assert message.meta["tensormsg.offer.version"] == 5
    epoch = message.meta["tensormsg.offer.epoch"]
    assert ep.offers() == {"weights": {"version": 5, "tensors": 2,
                                       "bytes": 4 * size + 24, "offers": 1}}
    with pytest.raises(tensormsg.NotFound, match="not yet 6"):
        ep.fetch(name="weights", at_least=(epoch, 6))
    assert ep.fetch(name="weights", at_least=(epoch - 1, 6))["b"][0] == 1
    offer.withdraw(WAIT)
    assert offer.released and offer.stats.fetches == 3
    w[:] = 0  # it is mine again
    with pytest.raises(tensormsg.NotFound, match="the offer was withdrawn"):
        ep.fetch(offer.key)


def test_a_version_is_any_number(sides):
    listener, ep = sides
    offer = listener.offer({}, name="w", version=2**62 + 1)
    about = {"version": 2**62 + 1, "tensors": 0, "bytes": 0, "offers": 1}
    offers = ep.offers(WAIT)
    assert offers == {"w": about} and offers.more is False
    offer.withdraw(WAIT)


@pytest.mark.parametrize("said", [1, "{", "[]", "7", '{"version": "x"}',
                                  "[" * 100_000])
def test_a_list_of_another_making_is_malformed(said):
    def described(meta):
        return tensormsg._offer.described(types.SimpleNamespace(meta=meta))

    assert described({"other": said, "more": True}).more
    with pytest.raises(tensormsg.Malformed, match="malformed at 'offer/w'"):
        described({"offer/w": said})


def test_a_closed_listener_ends_its_offers():
    with sync.listen("tcp://127.0.0.1:0") as listener:
        x = np.arange(3)
        first = listener.offer({"x": x}, name="x")
        second = listener.offer({"x": x})
    first.withdraw(WAIT)
    assert first.released
    del listener, first, second
    gc.collect()


def test_an_offer_is_not_withdrawn_while_its_arrays_may_be_read(monkeypatch):
    with sync.listen("tcp://127.0.0.1:0") as listener:
        offer = listener.offer({"x": np.arange(3)})
    looks = []

    def state(_):
        looks.append(1)
        return False, 0, 0, 0, 1

    monkeypatch.setattr(tensormsg._offer.hot, "offer_state", state)
    began = time.monotonic()
    with pytest.raises(tensormsg.TimedOut, match="may still read the arrays"):
        offer.withdraw(0.01)
    assert time.monotonic() - began > 0.5  # fetchers may still confirm
    assert len(looks) > 10
    looks.clear()
    with pytest.raises(tensormsg.TimedOut):
        offer.withdraw(0)
    assert len(looks) <= 2  # that one does not wait


def test_parts_are_fetched_into_buffers(sides):
    listener, ep = sides
    w = np.arange(20 * 30).reshape(20, 30)
    offer = listener.offer({"w": w, "v": w + 1})
    message = ep.fetch(offer.key, slices={"w": np.s_[3:7, 5:]}, timeout=WAIT)
    assert list(message) == ["w"]
    np.testing.assert_array_equal(message["w"], w[3:7, 5:])
    np.testing.assert_array_equal(
        ep.fetch(offer.key, slices={"w": np.s_[:4]})["w"], w[:4])
    assert list(ep.fetch(offer.key, slices=["v"])) == ["v"]
    mine = np.zeros((4, 30), w.dtype)
    message = ep.fetch(offer.key, slices={"w": np.s_[16:20]}, into={"w": mine})
    np.testing.assert_array_equal(mine, w[16:])
    assert np.shares_memory(message["w"], mine)
    with pytest.raises(tensormsg.InvalidParam, match="'w': dimension 0"):
        ep.fetch(offer.key, slices={"w": np.s_[18:21]})
    with pytest.raises(tensormsg.InvalidParam, match="'w'"):
        ep.fetch(offer.key, into={"w": np.zeros(3)})
    with pytest.raises(TypeError, match="a step of 1"):
        ep.fetch(offer.key, slices={"w": np.s_[::2]})


@pytest.mark.parametrize("how, error, words", [
    ({}, TypeError, "either key or name=, one of them"),
    ({"key": bytes(48), "name": "w"}, TypeError, "not both"),
    ({"key": b"short"}, ValueError, "key has 5 bytes: it must be 48"),
    ({"key": "00" * 48}, TypeError, "key is str: it must be 48 bytes; to fetch "
     "by name, write name="),
    ({"key": bytes(48), "wait": 1}, TypeError, "wait= is for a fetch by name"),
    ({"key": bytes(48), "wait": None}, TypeError, "wait= is for"),
    ({"key": bytes(48), "at_least": 1}, TypeError, "at_least= is for"),
    ({"key": bytes(48), "at_least": (1, 0)}, TypeError, "at_least= is for"),
    ({"name": 3}, TypeError, "name=3 is not a str"),
    ({"name": b"w"}, TypeError, "name=b'w' is not a str"),
    ({"name": "w", "slices": 5}, TypeError, "slices=5 is neither"),
    ({"name": "w", "slices": "w"}, TypeError, "slices='w' is neither"),
    ({"name": "w", "slices": [1]}, TypeError, "slices: 1 is not a name"),
    ({"name": "w", "slices": {1: np.s_[:]}}, TypeError, "slices: 1 is not a name"),
    ({"name": "w", "slices": []}, ValueError, "slices= names no array"),
    ({"name": "w", "slices": {}}, ValueError, "slices= names no array"),
    ({"name": "w", "slices": ["m", "v", "m"]}, ValueError,
     "slices: 'm' is asked for twice"),
    ({"name": "w", "slices": {"w": np.s_[-1:]}}, ValueError, "start of a slice"),
])
def test_a_fetch_says_what_is_wrong_with_it(sides, how, error, words):
    listener, ep = sides
    offer = listener.offer({"w": np.ones(3)}, name="w")
    for begin in ep.fetch, ep.start_fetch:
        with pytest.raises(error, match=re.escape(words)):
            begin(**how)
    assert offer.stats.fetches == 0


@pytest.mark.parametrize("how, error, words", [
    ({"name": 3}, TypeError, "name=3 is not a str"),
    ({"principals": ["a"]}, TypeError, "principals=['a'] is not a str"),
    ({"ttl": 30 * 86400}, ValueError, "ttl=2592000: at most 2147483 s,"),
    ({"ttl": 0.001, "on_release": 1}, TypeError, "on_release is a function"),
])
def test_an_offer_says_what_is_wrong_with_it(sides, how, error, words):
    listener, ep = sides
    with pytest.raises(error, match=re.escape(words)):
        listener.offer({"w": np.ones(3)}, **how)
    listener.offer({}, ttl=math.inf).withdraw(WAIT)
    assert ep.offers() == {}


def test_two_parts_of_an_array_have_names_of_their_own(sides):
    listener, ep = sides
    w = np.arange(12).reshape(4, 3)
    offer = listener.offer({"w": w})
    got = ep.fetch(offer.key, slices={"top": ("w", np.s_[:1]),
                                      "left": ("w", np.s_[:, :1]),
                                      "w": np.s_[3:], "all": ("w", ())})
    assert list(got) == ["top", "left", "w", "all"]
    np.testing.assert_array_equal(got["top"], w[:1])
    np.testing.assert_array_equal(got["left"], w[:, :1])
    np.testing.assert_array_equal(got["w"], w[3:])
    np.testing.assert_array_equal(got["all"], w)
    offer.withdraw(WAIT)


def test_a_part_of_a_tree_is_none_and_says_so(sides):
    listener, ep = sides
    layers = {"layers": [{"w": np.ones(2)}, {"w": np.zeros(3)}], "step": 7}
    offer = listener.offer(layers)
    names = ["layers/0/w", "layers/1/w"]
    for fetch in ep.fetch, lambda *a, **k: ep.start_fetch(*a, **k).wait(WAIT):
        part = fetch(offer.key, slices=names[:1])
        assert list(part["layers/0/w"]) == [1, 1] and part["step"] == 7
        with pytest.raises(ValueError, match="only a part was fetched: "
                           "'layers/1/w' is not in it; tree"):
            part.tree()
        assert fetch(offer.key, slices=names).tree()["step"] == 7
    offer.withdraw(WAIT)


def test_a_buffer_that_nothing_came_for_is_told_of(sides):
    listener, ep = sides
    offer = listener.offer({"w": np.ones(3)}, meta={"step": 7})
    w, other = np.zeros(3), np.zeros(3)
    into = {"w": w, "W": other}
    for fetch in ep.fetch, lambda *a, **k: ep.start_fetch(*a, **k).wait(WAIT):
        w[:] = 0
        with pytest.raises(tensormsg.InvalidParam,
                           match="buffer 'W': no such tensor came") as caught:
            fetch(offer.key, into=into)
        assert caught.value.details.meta == {"step": 7}
        assert (w == 1).all() and not other.any()
    fetch(offer.key, slices={"W": ("w", ())}, into={"W": other})
    assert (other == 1).all()
    offer.withdraw(WAIT)


def test_the_side_that_connected_offers(sides):
    listener, ep = sides
    with sync.connect(listener.url, background=True) as owner:
        owner.send({})
        peer = listener.recv(WAIT).peer
        offer = owner.offer({"x": np.arange(3)}, name="x", version=2)
        assert peer.offers()["x"]["version"] == 2
        assert list(peer.fetch(name="x", timeout=WAIT)["x"]) == [0, 1, 2]
        offer.withdraw(WAIT)
        with pytest.raises(ValueError, match="the listener offers to those"):
            peer.offer({})


def test_a_listener_tells_what_is_lent():
    listener = sync.listen("tcp://127.0.0.1:0", background=True)
    assert listener.describe()["url"] == listener.url
    offer = listener.offer({"x": np.zeros(3)})
    about = listener.describe()
    assert (about["offers"], about["lent_bytes"]) == (1, 24)
    offer.withdraw(WAIT)
    assert listener.describe()["lent_bytes"] == 0
    listener.close()
    with pytest.raises(tensormsg.Closed, match="the listener was closed here"):
        listener.offer({})
    with pytest.raises(tensormsg.Closed):
        listener.describe()


def test_who_offers_is_told_when_the_arrays_are_free():
    """Also where others that were told have ended their thread."""
    told = queue.Queue()
    with sync.listen("tcp://127.0.0.1:0") as listener:
        x = np.ones(3)
        exits = listener.offer({"x": x}, on_release=sys.exit)
        offer = listener.offer({"x": x}, on_release=lambda: told.put(
            (offer.released, threading.current_thread().name)))
        exits.withdraw(WAIT)
        time.sleep(0.05)
        assert told.empty()
        offer.withdraw(WAIT)
        assert told.get(timeout=WAIT) == (True, "tensormsg-released")
        listener.offer({"x": x}, ttl=0.001, on_release=lambda: told.put("ttl"))
        listener.offer({"x": x}, on_release=lambda: told.put("dropped"))
        assert {told.get(timeout=WAIT), told.get(timeout=WAIT)} == \
            {"ttl", "dropped"}
        with pytest.raises(tensormsg.InvalidParam):
            listener.offer({"x": x}, name="", on_release=lambda: told.put("?"))

    async def main():
        free = asyncio.Event()
        async with tensormsg.listen("tcp://127.0.0.1:0") as listener:
            loop = threading.get_ident()
            offer = listener.offer({"x": x}, on_release=lambda: (
                told.put(threading.get_ident() == loop), free.set()))
            await offer.withdraw(WAIT)
            await free.wait()

    asyncio.run(asyncio.wait_for(main(), WAIT))
    assert told.get(timeout=WAIT) is True and told.empty()


def test_the_arrays_of_an_offer_that_expired_are_dropped():
    """Though nobody calls the package meanwhile."""
    gone, x = threading.Event(), np.zeros(3)
    weakref.finalize(x, gone.set)
    with sync.listen("tcp://127.0.0.1:0") as listener:
        offer = listener.offer({"x": x}, ttl=0.01)
        del x
        until(gone.is_set)
        assert offer.released




def test_a_fetch_waits_for_what_is_not_there_yet(sides):
    listener, ep = sides
    made = []

    def later():
        time.sleep(0.05)
        made.append(listener.offer({"x": np.arange(3)}, name="soon"))

    thread = threading.Thread(target=later)
    thread.start()
    assert list(ep.fetch(name="soon", wait=WAIT)["x"]) == [0, 1, 2]
    thread.join()
    with pytest.raises(tensormsg.NotFound, match="never was"):
        ep.fetch(name="never", wait=0.01)
    with pytest.raises(tensormsg.TimedOut):
        ep.fetch(name="never", wait=None, timeout=0.05)
    with pytest.raises(tensormsg.AlreadyExists):
        listener.offer({}, name="soon")


def test_an_offer_ends_by_itself_and_with_its_last_holder(sides):
    listener, ep = sides
    offer = listener.offer({"x": np.arange(3)}, fetches=1)
    ep.fetch(offer.key)
    with pytest.raises(tensormsg.NotFound, match="as often as it may be"):
        while True:  # the acknowledgement may come after it
            ep.fetch(offer.key)
    offer = listener.offer({"x": np.arange(3)}, ttl=0.001)
    with pytest.raises(tensormsg.NotFound, match="has expired"):
        while True:
            ep.fetch(offer.key)
    key = listener.offer({"x": np.arange(3)}).key
    gc.collect()
    with pytest.raises(tensormsg.NotFound, match="was withdrawn"):
        ep.fetch(key)


OWNER = """
import ctypes, sys
import numpy as np
from tensormsg import sync
with sync.listen(sys.argv[1]) as listener:
    offer = listener.offer({"x": np.arange(3)}, name="x")
    print("ready", flush=True)
    sys.stdin.readline()
    print("computes", flush=True)
    ctypes.PyDLL(None).usleep(900_000)  # keeps the interpreter's lock
    print("has computed", flush=True)
    sys.stdin.readline()
"""


def test_an_owner_answers_while_its_python_computes(tmp_path):
    url = f"unix://{tmp_path}/socket"
    with subprocess.Popen([sys.executable, "-c", OWNER, url], text=True,
                          stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as owner:
        try:
            assert owner.stdout.readline() == "ready\n"
            with sync.connect(url) as ep:
                ep.fetch(name="x", timeout=WAIT)
                owner.stdin.write("\n")
                owner.stdin.flush()
                assert owner.stdout.readline() == "computes\n"
                for _ in range(20):
                    ep.fetch(name="x", timeout=WAIT)
                assert not select.select([owner.stdout], [], [], 0)[0]
        finally:
            owner.kill()


def test_asyncio_offers_and_fetches():
    async def main():
        async with tensormsg.listen("tcp://127.0.0.1:0") as listener, \
                tensormsg.connect(listener.url) as ep:
            w = np.arange(1000)
            offer = listener.offer({"w": w}, name="w")
            message = await ep.fetch(name="w", timeout=WAIT)
            np.testing.assert_array_equal(message["w"], w)
            several = await asyncio.gather(*(
                ep.fetch(offer.key, slices={"w": np.s_[i:i + 1]})
                for i in range(20)))
            assert [each["w"][0] for each in several] == list(range(20))
            await offer.withdraw(WAIT)
            w[:] = 0
            with pytest.raises(tensormsg.NotFound):
                await ep.fetch(offer.key)
            waits = asyncio.ensure_future(ep.fetch(name="n", wait=None))
            await asyncio.sleep(0.02)
            waits.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waits

    asyncio.run(asyncio.wait_for(main(), WAIT))


def test_an_owner_moves_in_the_background_unless_told_not_to():
    with sync.listen("tcp://127.0.0.1:0") as listener, \
            tensormsg.listen("tcp://127.0.0.1:0") as other:
        offers = [one.offer({"x": np.arange(3)}, name="x")
                  for one in (listener, other)]
        for one in (listener, other):  # in this thread, which alone is there
            with sync.connect(one.url) as ep:
                assert list(ep.fetch(name="x", timeout=WAIT)["x"]) == [0, 1, 2]
                ep.send({"y": np.ones(2)}, timeout=WAIT)
                assert list(one.recv(WAIT)["y"]) == [1, 1]
        for offer in offers:
            offer.withdraw(WAIT)
    with sync.listen("tcp://127.0.0.1:0", background=False) as listener:
        offer = listener.offer({"x": np.arange(3)})
        with pytest.raises(tensormsg.TimedOut):
            sync.connect(listener.url, timeout=0.2)  # nothing moves it
        over = threading.Event()

        def drives():
            while not over.is_set():
                try:
                    listener.recv(0.01)
                except tensormsg.TimedOut:
                    pass

        thread = threading.Thread(target=drives)
        thread.start()
        with sync.connect(listener.url) as ep:
            assert list(ep.fetch(offer.key, timeout=WAIT)["x"]) == [0, 1, 2]
        over.set()
        thread.join()
        assert not listener._hub.background


@pytest.mark.parametrize("calls", [50])
def test_whoever_drives_an_owner_goes_on(calls):
    """By threads of a server and by receives, and by an event loop."""
    x = np.arange(20_000)

    def ask(url):
        with sync.connect(url) as ep:
            for i in range(calls):
                ep.send({"i": np.full(3, i)}, timeout=WAIT)
                assert ep.call("twice", {"x": np.full(3, i)},
                               timeout=WAIT)["y"][0] == 2 * i
                assert ep.fetch(name="x", wait=WAIT)["x"][-1] == x[-1]

    with sync.listen("tcp://127.0.0.1:0") as listener, \
            listener.serve(threads=2) as server:
        server.method("twice")(lambda request: {"y": 2 * request["x"]})
        asks = threading.Thread(target=ask, args=(listener.url,))
        asks.start()
        listener.recv(WAIT)
        offer = listener.offer({"x": x}, name="x")  # while all of it is driven
        assert [listener.recv(WAIT)["i"][0] for _ in range(calls - 1)] == \
            list(range(1, calls))
        asks.join(WAIT)
        offer.withdraw(WAIT)

    async def main():
        async with tensormsg.listen("tcp://127.0.0.1:0") as listener, \
                listener.serve() as server:
            server.method("twice")(lambda request: {"y": 2 * request["x"]})
            asks = asyncio.ensure_future(
                asyncio.to_thread(ask, listener.url))
            await listener.recv()
            offer = listener.offer({"x": x}, name="x")
            assert [(await listener.recv())["i"][0]
                    for _ in range(calls - 1)] == list(range(1, calls))
            await asks
            await offer.withdraw(WAIT)

    asyncio.run(asyncio.wait_for(main(), WAIT))


def test_an_offer_is_for_its_principals_alone():
    one, two = tensormsg.generate_key(), tensormsg.generate_key()
    with sync.listen(":0", key={"one": one, "two": two}) as listener:
        offer = listener.offer({"x": np.arange(3)}, name="x", principals="one")
        kept = listener.offer({"x": np.arange(3)}, name="all")
        with sync.connect(listener.url, key={"one": one}) as ep:
            assert sorted(ep.offers()) == ["all", "x"]
            assert list(ep.fetch(offer.key)["x"]) == [0, 1, 2]
        with sync.connect(listener.url, key={"two": two}) as ep:
            assert list(ep.offers()) == ["all"]
            with pytest.raises(tensormsg.Refused):
                ep.fetch(offer.key)
            assert list(ep.fetch(name="all")["x"]) == [0, 1, 2]
        kept.withdraw(WAIT)


# Fetches a large map and stops itself with the fetch under way; continued it
# says whether the map was right.
STOPS = """
import os, signal, sys
import numpy as np
import tensormsg
from tensormsg import sync
with sync.connect(sys.argv[1]) as ep:
    fetch = ep.start_fetch(name="x")
    print("began", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
    try:
        print((fetch.wait(30)["x"] == 7).all(), flush=True)
    except tensormsg.Error as error:
        print(type(error).__name__, flush=True)
"""


def test_what_a_stopped_fetcher_may_read_stays_lent(tmp_path):
    x = np.full(1 << 22, 7)
    with sync.listen(f"unix://{tmp_path}/socket") as listener, \
            subprocess.Popen([sys.executable, "-c", STOPS, listener.url],
                             text=True, stdout=subprocess.PIPE) as fetcher:
        try:
            offer = listener.offer({"x": x}, name="x")
            assert fetcher.stdout.readline() == "began\n"
            until(lambda: offer.stats.under_way == 1)
            time.sleep(0.1)
            try:  # mostly it knows where to read by now
                offer.withdraw(0.1)
                assert offer.released
            except tensormsg.TimedOut as error:
                assert "may still read" in str(error) and not offer.released
            if offer.released:
                x[:] = 0
            fetcher.send_signal(signal.SIGCONT)
            assert fetcher.stdout.readline() in ("True\n", "Canceled\n")
            until(lambda: offer.released)
            offer.withdraw(WAIT)  # it was
        finally:
            fetcher.kill()


def in_child(program, *args):
    """What a program printed that forks."""
    ran = subprocess.run([sys.executable, "-c", program, *args], text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         timeout=2 * WAIT)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


FORKS = """
import gc, os, sys
import numpy as np
import tensormsg
from tensormsg import sync
listener = sync.listen(":0")
x = np.arange(300_000)
offer = listener.offer({"x": x}, name="x")
ep = sync.connect(listener.url)
fetch = ep.start_fetch(name="later", wait=None)

def refused(call):
    try:
        call()
    except tensormsg.Unsupported:
        return True

if os.fork() == 0:
    good = all(map(refused, [
        lambda: ep.fetch(offer.key), lambda: ep.start_fetch(offer.key),
        lambda: listener.offer({}), lambda: offer.withdraw(1), fetch.wait,
        fetch.cancel, lambda: offer.stats, lambda: offer.released,
        lambda: ep.offer({})]))
    del offer, fetch, ep, listener
    gc.collect()
    os._exit(7 if good else 8)
_, status = os.wait()
assert os.waitstatus_to_exitcode(status) == 7, status
assert not fetch.done and not offer.released
assert (ep.fetch(offer.key, timeout=30)["x"] == x).all()
later = listener.offer({"y": x}, name="later")
assert (fetch.wait(30)["y"] == x).all()
offer.withdraw(30)
later.withdraw(30)
ep.close()
print("alive")
"""


def test_a_forked_owner_and_fetcher_are_as_before():
    """The child neither answers nor fetches, and gives nothing back."""
    assert in_child(FORKS) == "alive\n"


# Children that drop what they were forked with, while another thread fetches.
FORKS_AND_DROPS = """
import gc, os, threading
import numpy as np
from tensormsg import sync
listener = sync.listen(":0")
x = np.arange(300_000)
offer = listener.offer({"x": x}, name="x")
key = offer.key
over, right = threading.Event(), []

def fetches():
    with sync.connect(listener.url) as ep:
        while not over.is_set():
            right.append((ep.fetch(key, timeout=30)["x"] == x).all())
    right.append("over")

thread = threading.Thread(target=fetches)
thread.start()
with sync.connect(listener.url) as ep:
    for _ in range(15):
        fetch = ep.start_fetch(name="later", wait=None)
        if os.fork() == 0:
            del offer, fetch
            gc.collect()
            os._exit(7)
        _, status = os.wait()
        assert os.waitstatus_to_exitcode(status) == 7, status
        assert not fetch.done
        fetch.cancel()
    over.set()
    thread.join()
assert right.pop() == "over" and all(right)
offer.withdraw(30)
print("alive")
"""


def test_a_forked_child_gives_nothing_back():
    """It would wait for locks of threads that are not there, and end its parent's
    fetches."""
    assert in_child(FORKS_AND_DROPS) == "alive\n"


FETCHER = """
import sys
from tensormsg import sync
with sync.connect(sys.argv[1]) as ep:
    got = ep.fetch(bytes.fromhex(sys.argv[2]), timeout=30)
    print(got["x"].sum(), flush=True)
    if sys.argv[3] == "dies":
        ep.start_fetch(name="never", wait=None).wait()
"""


def test_a_fetcher_that_was_started_anew_fetches_by_the_same_key(tmp_path):
    with sync.listen(f"unix://{tmp_path}/socket") as listener:
        x = np.arange(300_000)
        offer = listener.offer({"x": x})
        for how in ("dies", "ends"):
            with subprocess.Popen(
                    [sys.executable, "-c", FETCHER, listener.url,
                     offer.key.hex(), how], text=True,
                    stdout=subprocess.PIPE) as fetcher:
                try:
                    assert int(fetcher.stdout.readline()) == x.sum()
                    if how == "dies":
                        until(lambda: waiting_fetches(listener) == 1)
                finally:
                    if how == "dies":
                        fetcher.kill()
            assert how == "dies" or fetcher.wait() == 0
        until(lambda: waiting_fetches(listener) == 0)
        until(lambda: offer.stats.fetches == 2)
        offer.withdraw(WAIT)
        x[:] = 0


def until(holds):
    end = time.monotonic() + WAIT
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.001)


def waiting_fetches(listener):
    text_p = ffi.new("char **")
    assert lib.tmsg_worker_describe(listener._hub.worker, text_p) == 0
    return json.loads(take_text(text_p))["waiting_fetches"]


def test_a_fetch_is_started_and_cancelled_from_another_thread(sides):
    listener, ep = sides
    fetch = ep.start_fetch(name="later", wait=None)
    assert not fetch.done and "goes on" in repr(fetch)
    with pytest.raises(tensormsg.TimedOut, match="goes on"):
        fetch.wait(0.01)
    until(lambda: waiting_fetches(listener) == 1)
    ended = []

    def waits():
        with pytest.raises(tensormsg.Canceled) as caught:
            fetch.wait(WAIT)
        ended.append(caught.value)

    threads = [threading.Thread(target=waits) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.02)
    fetch.cancel()
    assert fetch.done
    for thread in threads:
        thread.join(WAIT)
    assert len(ended) == 3
    until(lambda: waiting_fetches(listener) == 0)
    fetch.cancel()  # does nothing
    with pytest.raises(tensormsg.Canceled):
        fetch.wait()
    # The connection goes on, and what was started is had later.
    fetch = ep.start_fetch(name="later", wait=WAIT)
    listener.offer({"x": np.arange(3)}, name="later")
    offer = listener.offer({"y": np.ones(2)})
    y = np.zeros(2)
    several = [ep.start_fetch(offer.key, into={"y": y})] + [
        ep.start_fetch(offer.key) for _ in range(20)]
    until(lambda: all(one.done for one in several))
    assert all((one.wait()["y"] == 1).all() for one in several)
    assert (y == 1).all() and several[0].wait() is several[0].wait()


@pytest.mark.parametrize("background", [False, True])
def test_a_call_is_started_and_cancelled_from_another_thread(background):
    called, over = threading.Event(), threading.Event()
    with sync.listen("tcp://127.0.0.1:0", background=True) as listener, \
            listener.serve(threads=2) as server, \
            sync.connect(listener.url, background=background) as ep:
        @server.method("slow")
        def slow(request):
            called.set()
            until(lambda: request.over)
            over.set()

        @server.method("twice")
        def twice(request):
            return {"y": 2 * request["x"]}

        call = ep.start_call("slow", {"x": np.ones(3)})
        threading.Timer(0, lambda: called.wait(WAIT) and call.cancel()).start()
        with pytest.raises(tensormsg.Canceled):
            call.wait(WAIT)
        assert over.wait(WAIT)  # the handler was told
        calls = [ep.start_call("twice", {"x": np.arange(i)}) for i in range(9)]
        for i, call in enumerate(calls):
            assert list(call.wait(WAIT)["y"]) == list(range(0, 2 * i, 2))
        call = ep.start_call("slow", timeout=0.01)
        with pytest.raises(tensormsg.TimedOut):
            call.wait()
        assert call.done
        call = ep.start_call("slow")
        ep.abort()
        with pytest.raises(tensormsg.Error):
            call.wait(WAIT)
        assert call.done


def test_asyncio_starts_and_cancels():
    async def main():
        cancelled = asyncio.Event()
        async with tensormsg.listen("tcp://127.0.0.1:0") as listener, \
                listener.serve() as server, \
                tensormsg.connect(listener.url) as ep:
            @server.method("slow")
            async def slow(request):
                try:
                    await asyncio.sleep(WAIT)
                except asyncio.CancelledError:
                    cancelled.set()
                    raise

            fetch = ep.start_fetch(name="n", wait=None)
            waits = [asyncio.ensure_future(fetch.wait()) for _ in range(3)]
            with pytest.raises(tensormsg.TimedOut):
                await fetch.wait(0.01)
            waits.pop().cancel()  # the fetch goes on
            await asyncio.sleep(0.01)
            assert not fetch.done
            offer = listener.offer({"x": np.arange(3)}, name="n")
            for message in await asyncio.gather(*waits, fetch):
                assert list(message["x"]) == [0, 1, 2]
            assert fetch.done and (await fetch) is message
            # It is answered though this blocks the loop, and what a handler
            # would answer is not.
            with tensormsg.connect(listener.url) as blocks:
                started = blocks.start_fetch(name="never", wait=0.7)
                with pytest.raises(tensormsg.NotFound):
                    started.wait(WAIT)
                with pytest.raises(tensormsg.WouldBlock):
                    blocks.start_call("slow").wait(WAIT)
                blocks.abort()
            call = ep.start_call("slow")
            thread = threading.Timer(0.05, call.cancel)
            thread.start()
            with pytest.raises(tensormsg.Canceled):
                await call
            await asyncio.wait_for(cancelled.wait(), WAIT)
            await offer.withdraw()
            with pytest.raises(tensormsg.NotFound):
                await ep.start_fetch(offer.key)

    asyncio.run(asyncio.wait_for(main(), WAIT))


@pytest.mark.parametrize("size", SIZES)
def test_a_reply_is_received_into_buffers(sides, size):
    listener, ep = sides
    with listener.serve() as server:
        @server.method("twice")
        def twice(request):
            return {"y": 2 * request["x"], "z": np.arange(2)}

        y = np.zeros(size)
        reply = ep.call("twice", {"x": np.arange(size, dtype=float)},
                        into={"y": y}, timeout=WAIT)
        np.testing.assert_array_equal(y, 2.0 * np.arange(size))
        assert np.shares_memory(reply["y"], y) and list(reply["z"]) == [0, 1]
        with pytest.raises(tensormsg.InvalidParam, match="'y'"):
            ep.call("twice", {"x": np.ones(3)}, into={"y": y[:2]})


@pytest.mark.parametrize("more, kind, words", [
    ({"name": "a\0b"}, ValueError, "name='a.x00b' has a NUL"),
    ({"name": "\ud800"}, ValueError, "has a lone surrogate"),
    ({"at_least": (1, 2, 3)}, TypeError, "neither a version nor"),
    ({"at_least": (1,)}, TypeError, "neither a version nor")])
def test_what_no_fetch_can_ask_for(sides, more, kind, words):
    with pytest.raises(kind, match=words):
        sides[1].fetch(**{"name": "x", **more})


def test_what_cannot_be_offered(sides):
    for more, kind, words in (
            ({"name": "a\0b"}, ValueError, "has a NUL"),
            ({"principals": "\ud800"}, ValueError, "has a lone surrogate"),
            ({"meta": 3}, TypeError, "meta=3 is not a dict")):
        with pytest.raises(kind, match=words):
            sides[0].offer({}, **more)
