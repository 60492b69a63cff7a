# SPDX-License-Identifier: BSD-3-Clause
"""A server that is killed and started anew: an endpoint with reconnect= goes on
by a new session, what was under way ends by name, and the application is told."""

import asyncio
import contextlib
import functools
import gc
import logging
import math
import threading
import time
import weakref

import numpy as np
import pytest

import tensormsg
from conftest import WAIT, without_loop
from kills import Blocking
from restarted import Restarted
from tensormsg import sync

SOON = {"reconnect": 60, "backoff": (.005, .02)}
FACES = ["asyncio", "blocking", "background"]


@pytest.fixture(scope="module")
def forks():
    made = Restarted()
    yield made
    made.close()


@pytest.fixture
def server(forks):
    yield forks
    forks.kill()


@pytest.fixture(params=["tcp", "unix"])
def place(request, tmp_path):
    return ":0" if request.param == "tcp" else f"unix://{tmp_path}/socket"


@pytest.fixture(params=FACES)
def face(request):
    return request.param


class Face:
    """An endpoint of a face, under the names of asyncio's, and work beside it."""

    def __init__(self, name, ep):
        self.ep = ep if name == "asyncio" else Blocking(ep)
        self.plain = ep
        self.name = name

    def __getattr__(self, name):
        return getattr(self.ep, name)

    def begin(self, coroutine):
        """It goes on: await what this returns for its result."""
        if self.name == "asyncio":
            return asyncio.ensure_future(coroutine)
        return asyncio_like(coroutine)

    async def until(self, holds):
        """Drives the endpoint meanwhile."""
        end = time.monotonic() + WAIT
        while not holds():
            assert time.monotonic() < end
            if self.name == "asyncio":
                await asyncio.sleep(.002)
            else:
                self.plain._hub._move()
                time.sleep(.002)


def asyncio_like(coroutine):
    """What a thread runs meanwhile."""
    went = []

    def run():
        try:
            went.append((without_loop(coroutine), None))
        except BaseException as error:
            went.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    class Later:
        def done(self):
            return not thread.is_alive()

        def __await__(self):
            thread.join(WAIT)
            (result, error), = went
            if error is not None:
                raise error
            return result
            yield

    return Later()


def run(face, url, scenario, **options):
    """`scenario` with an endpoint, in that face."""
    async def main():
        async with tensormsg.connect(url, **options) as ep:
            await scenario(Face(face, ep))

    if face == "asyncio":
        asyncio.run(asyncio.wait_for(main(), 2 * WAIT))
        return
    with tensormsg.connect(url, background=face == "background",
                           **options) as ep:
        without_loop(scenario(Face(face, ep)))


async def fails(awaitable, kind=tensormsg.PeerLost):
    with pytest.raises(kind) as caught:
        await awaitable
    assert type(caught.value) is kind
    return caught.value


def test_it_gives_up(server, face):
    url = server.start(":0", 60)

    async def scenario(ep):
        assert (await ep.call("add", {"x": 1}, timeout=WAIT))["y"] == 2
        server.kill()
        assert "gave up" in str(await fails(ep.recv()))
        assert ep.plain.closed and "gave up" in ep.plain.status

    with contextlib.suppress(tensormsg.PeerLost):  # as the block ends
        run(face, url, scenario, reconnect=.1, backoff=(.005, .02))


def test_a_cut_connection_is_told_as_back(face):
    from test_reconnect import Cable
    told = []
    with tensormsg.listen(":0", reconnect=60, background=True) as listener, \
            Cable(listener.url) as cable:
        async def scenario(ep):
            await ep.send({"x": 1}, timeout=WAIT)
            cable.cut()
            await ep.until(lambda: len(told) == 2)
            assert ep.plain.describe()["sessions"] == 1

        run(face, cable.url, scenario, on_session=told.append, **SOON)
    assert [event.kind for event in told] == ["away", "back"]


def test_what_cannot_be_told_is_refused():
    async def later(event):
        pass

    for use in tensormsg.connect, sync.connect:
        with pytest.raises(ValueError, match="reconnect="):
            use(":1", on_session=print)
        with pytest.raises(TypeError, match="function"):
            use(":1", on_session=3, reconnect=1)
    for use in sync.connect, lambda *args, **more: tensormsg.connect(
            *args, **more).__enter__():
        with pytest.raises(TypeError, match="coroutine"):
            use(":1", on_session=later, reconnect=1)


def test_who_is_told_does_not_keep_the_endpoint(server):
    """A cycle by the callback ends with its last user, and so does its thread."""
    url = server.start(":0", 60)
    threads = threading.active_count()

    class User:
        def __init__(self):
            self.ep = sync.connect(url, on_session=self.on_session, **SOON)

        def on_session(self, event):
            pass

    user = weakref.ref(User())
    gc.collect()
    assert user() is None
    end = time.monotonic() + WAIT
    while threading.active_count() > threads:
        assert time.monotonic() < end
        time.sleep(.002)
