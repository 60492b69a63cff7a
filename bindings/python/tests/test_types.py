# SPDX-License-Identifier: BSD-3-Clause
"""The package's hints are strict, and they serve its users."""

import subprocess
import sys

import pytest

pytest.importorskip("mypy")

USER = """
from typing import Dict, Iterator, Optional
import tensormsg
from tensormsg import sync

async def use() -> None:
    async with tensormsg.connect("host:1") as ep:
        await ep.send({"x": 1}, frame=7)
        reveal_type(await ep.recv(timeout=1))
        reveal_type(await ep.call("x", {"x": 1}, timeout=1, frame=7))
        async with ep.stream("y", timeout=1, frame=7) as stream:
            await stream.send({"x": 1}, frame=7)
            await stream.done_writing()
            async for answer in stream:
                reveal_type(answer)
    reveal_type(await tensormsg.connect("host:1", wait=True, timeout=None))
    awaited = await tensormsg.listen(":1")
    reveal_type(awaited)
    reveal_type(await tensormsg.listen(":1").recv(timeout=1))
    reveal_type(await tensormsg.publish(":1"))
    async for msg in tensormsg.listen(":1", key="farm.key", reconnect=30):
        reveal_type(msg.peer)
        reveal_type(msg.peer.principal)
    async with tensormsg.connect("host:1", mode="live") as live:
        live.set_queue(queue=4, queue_ms=50, window=2, slow="drop oldest")
    async with tensormsg.publish(":1", keep=1, slow="disconnect") as camera:
        reveal_type(camera)
        await camera.send({"x": 1}, copy=False, frame=7)
        reveal_type(await camera.listener.recv())
    ring = tensormsg.Keyring({"a": tensormsg.generate_key(), "b": [bytes(32)]})
    for key in "farm.key", bytes(32), {"a": bytes(32)}, ring:
        await tensormsg.connect("host:1", key=key, reconnect=True, newest=True)

with tensormsg.connect("host:1") as ep:
    reveal_type(ep.recv())
    reveal_type(ep.call("x"))
    with ep.stream("y") as blocking:
        reveal_type(blocking)
        for said in blocking:
            said["x"]
with tensormsg.listen(":1") as listener:
    with tensormsg.publish(":1") as publisher:
        reveal_type(publisher)
        publisher.send({"x": 1})
        reveal_type(publisher.listener)
    with listener.serve() as server:
        @server.method("x")
        def x(request: tensormsg.Request) -> tensormsg.Reply:
            return tensormsg.Reply({"y": request["x"]}, frame=7)

        @server.method("y")
        def y(stream: sync.ServerStream) -> Iterator[Dict[str, object]]:
            for message in stream:
                yield {"y": message["x"], "n": stream.request["n"]}
        reveal_type(server)
for msg in tensormsg.listen(":1"):
    reveal_type(msg.peer)

def lost(peer: tensormsg.Endpoint, error: Optional[tensormsg.Error]) -> None:
    print(peer.peer, error)

async def greet(peer: tensormsg.Endpoint) -> None:
    await peer.send({"x": 1})

async def follow() -> None:
    async with tensormsg.listen(":1", on_peer=greet, on_lost=lost) as farm:
        async for event in farm.presence():
            await event.peer.send({"x": 1})
with sync.publish(":1", on_lost=lambda peer, error: None) as told:
    for event in told.presence():
        event.peer.send({"x": event.joined})
"""


def mypy(cache, *args):
    # From there, as no folder of ours must be found beside the package.
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache, *args],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=cache)
    assert ran.returncode == 0, ran.stdout
    return ran.stdout


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("mypy")


def test_the_package_is_strict(cache):
    mypy(cache, "-p", "tensormsg")


def test_a_user_sees_the_types(cache, tmp_path):
    (tmp_path / "user.py").write_text(USER)
    out = mypy(cache, tmp_path / "user.py")
    assert out.count('"tensormsg._aio.Message"') == 5
    assert out.count('"tensormsg._aio.Listener"') == 1
    assert out.count('"tensormsg._aio.Publisher"') == 2
    assert out.count('"tensormsg.sync.Publisher"') == 1
    assert out.count('"tensormsg.sync.Listener"') == 1
    assert out.count('"str | None"') + \
        out.count('"Union[builtins.str, None]"') == 1
    assert out.count('"tensormsg.sync.Stream"') == 1
    assert out.count('"tensormsg._aio.Endpoint"') == 2
    assert out.count('"tensormsg.sync.Message"') == 2
    assert out.count('"tensormsg.sync.Server"') == 1
    assert out.count('"tensormsg.sync.Endpoint"') == 1


def test_the_stubs_are_of_what_the_extension_has(cache):
    """Each name, and no other; what numpy's types are is no part of that, and to
    read them takes most of the time."""
    config = cache / "stubtest.ini"
    config.write_text("[mypy]\nfollow_imports = skip\n"
                      "follow_imports_for_stubs = True\n")
    ran = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "--mypy-config-file", config,
         "tensormsg._hot", "tensormsg._native"],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=cache)
    assert ran.returncode == 0, ran.stdout
    assert "no issues found in 2 modules" in ran.stdout
