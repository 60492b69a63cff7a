# SPDX-License-Identifier: BSD-3-Clause
"""What a program of a user's looks like to mypy and to pyright, which
test_types.py has read it: nothing of it runs. A line that ignores an error must
have that error."""

import concurrent.futures
import pathlib
from typing import Any, AsyncIterator, Dict, Iterator, List, Optional

import numpy as np
from typing_extensions import assert_type

import tensormsg
from tensormsg import sync

KEY = b"key"
INTO = {"x": np.empty(3)}


async def endpoints() -> None:
    """Awaited, or by `async with`: asyncio's face."""
    assert_type(tensormsg.connect("host:1"), tensormsg.Connecting)
    assert_type(await tensormsg.connect("host:1", wait=True, timeout=None),
                tensormsg.Endpoint)
    async with tensormsg.connect("host:1", like="torch", device="cuda:0",
                                 mode="live", loan=True) as ep:
        assert_type(ep, tensormsg.Endpoint)
        assert_type(await ep.send({"x": 1}, frame=7), None)
        await ep.send({"layers": [{"w": np.eye(2)}, {0: None}]})
        await ep.send([np.eye(2), {"lr": .1}])
        await ep.send(await ep.recv())
        msg = await ep.recv(timeout=1)
        assert_type(msg, tensormsg.Message)
        assert_type(msg["x"], Any)
        assert_type(msg.peer, tensormsg.Endpoint)
        assert_type(msg.meta, Dict[str, Any])
        assert_type(list(msg), List[str])
        assert_type(msg.apart(), tensormsg.Message)
        assert_type(await ep.recv_into(INTO), tensormsg.Message)
        assert_type(await ep.call("x"), tensormsg.Message)
        assert_type(await ep.call("x", {"x": 1}, timeout=1, into=INTO, frame=7),
                    tensormsg.Message)
        assert_type(await ep.fetch(KEY, slices=["x"], into=INTO),
                    tensormsg.Message)
        assert_type(await ep.fetch(name="x", at_least=(1, 2), wait=None),
                    tensormsg.Message)
        started = ep.start_call("x", {"x": 1})
        assert_type(started, tensormsg.Call)
        assert_type(await started, tensormsg.Message)
        assert_type(await ep.start_fetch(KEY).wait(1), tensormsg.Message)
        assert_type(ep.start_fetch(name="x", wait=3), tensormsg.Call)
        assert_type((await ep.health()).running, int)
        async for one in ep:
            assert_type(one, tensormsg.Message)
        async with ep.stream("y", timeout=1, frame=7) as stream:
            assert_type(stream, tensormsg.Stream)
            assert_type(stream.peer, tensormsg.Endpoint)
            assert_type(await stream.recv(), Optional[tensormsg.Message])
            async for answer in stream:
                assert_type(answer, tensormsg.Message)
        ep.set_queue(queue=4, queue_ms=50, slow="reject")


async def listeners() -> None:
    assert_type(tensormsg.listen(":1"), tensormsg.Listening)
    assert_type(await tensormsg.listen(":1").recv(timeout=1), tensormsg.Message)
    assert_type(await tensormsg.listen(":1"), tensormsg.Listener)
    async for msg in tensormsg.listen(":1", key="farm.key", reconnect=30):
        assert_type(msg.peer.principal, Optional[str])
    async with tensormsg.listen(":1", background=True, on_peer=greet,
                                on_lost=lost) as listener:
        assert_type(listener, tensormsg.Listener)
        assert_type(await listener.recv(), tensormsg.Message)
        assert_type(listener.peers, List[tensormsg.Endpoint])
        async for event in listener.presence():
            assert_type(event.peer, tensormsg.Endpoint)
            assert_type(event.error, Optional[tensormsg.Error])
        offer = listener.offer({"x": 1}, name="x", on_release=lambda: None)
        assert_type(await offer.withdraw(), None)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            server = listener.serve(executor=pool)
        assert_type(server, tensormsg.Server)
        assert_type(await server.run(grace=1), int)

        @server.method("x")
        async def x(request: tensormsg.Request) -> Dict[str, Any]:
            assert_type(request.remaining, Optional[float])
            return {"y": request["x"]}

        @server.method("y")
        async def y(stream: tensormsg.ServerStream
                    ) -> AsyncIterator[tensormsg.Reply]:
            assert_type(stream.request, tensormsg.Message)
            async for message in stream:
                yield tensormsg.Reply(message, frame=7)

        assert_type(await x(tensormsg.Request.__new__(tensormsg.Request)),
                    Dict[str, Any])


async def publishers() -> None:
    assert_type(tensormsg.publish(":1"), tensormsg.Publishing)
    assert_type(await tensormsg.publish(":1"), tensormsg.Publisher)
    async with tensormsg.publish(":1", keep=1, slow="disconnect") as camera:
        assert_type(camera, tensormsg.Publisher)
        assert_type(await camera.send({"x": 1}, copy=False, frame=7), None)
        assert_type(camera.listener, tensormsg.Listener)
        assert_type(await camera.wait_for(2, timeout=1), None)


def endpoints_without_asyncio() -> None:
    """By `with`, and by sync: the face that blocks."""
    assert_type(sync.connect("host:1"), sync.Endpoint)
    with tensormsg.connect("host:1") as ep:
        assert_type(ep, sync.Endpoint)
        assert_type(ep.send({"x": 1}, acked=True), None)
        msg = ep.recv()
        assert_type(msg, sync.Message)
        assert_type(msg.peer, sync.Endpoint)
        assert_type(ep.recv_into(INTO), sync.Message)
        assert_type(ep.call("x", into=INTO), sync.Message)
        assert_type(ep.fetch(KEY), sync.Message)
        assert_type(ep.fetch(name="x", at_least=3), sync.Message)
        assert_type(ep.start_call("x").wait(), sync.Message)
        assert_type(ep.start_fetch(name="x"), sync.Call)
        for one in ep:
            assert_type(one, sync.Message)
        with ep.stream("y") as stream:
            assert_type(stream, sync.Stream)
            assert_type(stream.recv(), Optional[sync.Message])
            for answer in stream:
                assert_type(answer, sync.Message)


def listeners_without_asyncio() -> None:
    for msg in tensormsg.listen(":1"):
        assert_type(msg, sync.Message)
    with tensormsg.listen(":1") as listener:
        assert_type(listener, sync.Listener)
    assert_type(sync.listen(":1", on_lost=lost), sync.Listener)
    for event in listener.presence():
        assert_type(event, sync.PeerEvent)
        event.peer.send({"x": event.joined})
    assert_type(listener.offer({"x": 1}), sync.Offer)
    with listener.serve(threads=2) as server:
        assert_type(server, sync.Server)

        @server.method("y")
        def y(stream: sync.ServerStream) -> Iterator[Dict[str, Any]]:
            assert_type(stream.request, sync.Message)
            for message in stream:
                yield {"y": message["x"], "n": stream.request["n"]}

    with tensormsg.publish(":1") as publisher:
        assert_type(publisher, sync.Publisher)
        assert_type(publisher.listener, sync.Listener)


def lost(peer: tensormsg.Endpoint, error: Optional[tensormsg.Error]) -> None:
    assert_type(peer.peer, str)


async def greet(peer: tensormsg.Endpoint) -> None:
    await peer.send({"x": 1})


def files() -> None:
    assert_type(tensormsg.load("x.npz", like="torch"), tensormsg.File)
    with tensormsg.open("x.npy") as file:
        assert_type(file, tensormsg.File)
        assert_type(file.meta, Dict[str, Any])
        tensormsg.save("y.npz", file, overwrite=True)


def others(error: tensormsg.Error) -> None:
    assert_type(error.status, tensormsg.Status)
    ring = tensormsg.Keyring({"a": tensormsg.generate_key(), "b": [bytes(32)]})
    for key in "farm.key", bytes(32), {"a": bytes(32)}, ring:
        tensormsg.connect("host:1", key=key, reconnect=True, newest=True)
    tls = tensormsg.TLS(ca="ca.pem", cert=pathlib.Path("a.pem"), key="a.key", pin=["0"])
    tensormsg.connect("tls://host:1", tls=tls)
    tensormsg.sync.listen("tls://:1", tls=tls)


async def wrong(ep: tensormsg.Endpoint, server: tensormsg.Server) -> None:
    await ep.fetch()  # type: ignore[call-overload]
    await ep.fetch(KEY, name="x")  # type: ignore[call-overload]
    await ep.fetch(KEY, wait=1)  # type: ignore[call-overload]
    ep.start_fetch(at_least=1)  # type: ignore[call-overload]
    tensormsg.connect("host:1").send({})  # type: ignore[attr-defined]
    tensormsg.listen(":1").serve()  # type: ignore[attr-defined]
    tensormsg.publish(":1").send({})  # type: ignore[attr-defined]
    tensormsg.connect("tls://host:1", tls="ca.pem")  # type: ignore[arg-type]
    tensormsg.connect("host:1", mode="newest")  # type: ignore[arg-type]
    ep.set_queue(slow="disconnect")  # type: ignore[arg-type]
    ep.recv()["x"]  # type: ignore[index]
    server.method(lambda request: {})  # type: ignore[arg-type]
    await ep.send(np.ones(3))  # type: ignore[arg-type]
    await ep.call("x", np.ones(3))  # type: ignore[arg-type]
    tensormsg.Reply(np.ones(3))  # type: ignore[arg-type]
