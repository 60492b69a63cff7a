# SPDX-License-Identifier: BSD-3-Clause
"""Who has no key is not let in; who has one is known by its principal."""

import asyncio
import stat

import numpy as np
import pytest

import tensormsg
from conftest import WAIT

X = {"x": np.arange(4)}


def url_of(server):
    """Of one that listens on all addresses."""
    return "127.0.0.1:" + server.url.rpartition(":")[2]


def keys(count):
    return [tensormsg.generate_key() for _ in range(count)]


def test_a_key_opens_an_address_that_others_reach(mode):
    """Which needs one, or leave to do without."""
    key, = keys(1)
    with pytest.raises(tensormsg.Insecure):
        tensormsg.listen("0.0.0.0:0")
    with tensormsg.listen("0.0.0.0:0", key={"camera": key},
                          background=True) as server:
        async def scenario(ep):
            await ep.send(X)
            msg = server.recv(WAIT)
            assert msg.peer.principal == "camera"
            assert getattr(ep, "endpoint", ep).principal == "server"
            msg.peer.send(X, timeout=WAIT)
            assert (await ep.recv())["x"][3] == 3

        mode.run(url_of(server), scenario, key={"server": key})


@pytest.mark.parametrize("given", ["none", "another", "no_more"])
def test_without_the_right_key_nobody_comes_in(mode, given):
    ring = tensormsg.Keyring({"camera": keys(1)[0]})
    with tensormsg.listen(":0", key=ring, background=True) as server:
        key = {"none": None, "another": keys(1)[0],
               "no_more": tensormsg.Keyring()}[given]

        async def scenario(ep):
            raise AssertionError("connected")

        kinds = {"no_more": tensormsg.Error}.get(given, tensormsg.Refused)
        with pytest.raises(kinds, match="key"):
            mode.run(server.url, scenario, key=key)
        assert server.peers == []


def test_a_listener_has_to_prove_the_key_too():
    with tensormsg.listen(":0", background=True) as server:
        with pytest.raises(tensormsg.Insecure):
            tensormsg.sync.connect(server.url, key=keys(1)[0])


def test_a_key_is_changed_while_peers_are_connected():
    """The new one beside the old; then the old one goes. Who is connected
    stays."""
    old, new, other = keys(3)
    ring = tensormsg.Keyring({"camera": old, "viewer": other})
    with tensormsg.listen(":0", key=ring, background=True) as server:
        first = tensormsg.sync.connect(server.url, key=old)
        with pytest.raises(tensormsg.Refused):
            tensormsg.sync.connect(server.url, key=new)
        ring.add("camera", new)
        for key in old, new:
            with tensormsg.sync.connect(server.url, key=key) as ep:
                ep.send(X, timeout=WAIT)
                assert server.recv(WAIT).peer.principal == "camera"
        ring.replace({"camera": new, "viewer": [other]})
        with pytest.raises(tensormsg.Refused):
            tensormsg.sync.connect(server.url, key=old)
        with tensormsg.sync.connect(server.url, key=new) as ep:
            ep.send(X, timeout=WAIT)
            assert server.recv(WAIT).peer.principal == "camera"
        first.send(X, timeout=WAIT)
        assert server.recv(WAIT).peer.principal == "camera"
        ring.remove("camera")
        with pytest.raises(tensormsg.Refused):
            tensormsg.sync.connect(server.url, key=new)
        with tensormsg.sync.connect(server.url, key=other) as ep:
            ep.send(X, timeout=WAIT)
            assert server.recv(WAIT).peer.principal == "viewer"
        first.close()


def test_a_dialler_with_several_keys_is_known_by_one():
    a, b = keys(2)
    with tensormsg.listen(":0", key={"b": b}, background=True) as server, \
            tensormsg.connect(server.url, key={"x": [a, b]}) as ep:
        ep.send(X, timeout=WAIT)
        msg = server.recv(WAIT)
        peer = msg.peer
        assert (ep.principal, peer.principal) == ("x", "b")
    with pytest.raises(tensormsg.Closed):
        peer.recv(WAIT)
    peer.abort()
    assert peer.principal == "b" and peer.closed


def test_the_key_of_a_context_is_for_all_in_it():
    key, = keys(1)
    context = tensormsg.Context(key={"everybody": key})
    with tensormsg.listen(":0", context=context, background=True) as server:
        with pytest.raises(tensormsg.Refused):
            tensormsg.sync.connect(server.url)
        with tensormsg.connect(server.url, context=context) as ep:
            assert ep.principal == "everybody"


def test_a_handler_knows_who_calls():
    one, two = keys(2)

    async def main():
        async with tensormsg.listen(":0", key={"one": one, "two": two}) as door:
            server = door.serve()

            @server.method("who")
            async def who(request):
                assert request.peer.principal == request.principal
                return {"who": request.principal}

            @server.method("count")
            async def count(stream):
                yield {"who": stream.principal}

            @server.method("for_one", principals="one")
            async def for_one(request):
                return {}

            for name, key in ("one", one), ("two", two):
                async with tensormsg.connect(door.url, key=key) as ep:
                    assert (await ep.call("who", timeout=WAIT))["who"] == name
                    async with ep.stream("count") as stream:
                        assert (await stream.recv())["who"] == name
                    if name == "one":
                        await ep.call("for_one", timeout=WAIT)
                        continue
                    with pytest.raises(tensormsg.Refused):
                        await ep.call("for_one", timeout=WAIT)

    asyncio.run(main())


def test_without_keys_there_is_no_principal():
    with tensormsg.listen(":0", background=True) as server, \
            tensormsg.connect(server.url) as ep:
        ep.send(X, timeout=WAIT)
        assert server.recv(WAIT).peer.principal is None
        assert ep.principal is None


def test_keys_in_a_file(tmp_path):
    path = tmp_path / "farm.key"
    tensormsg.save_key(path, "farm")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(tensormsg.AlreadyExists):
        tensormsg.save_key(path)
    for key in path, str(path):
        with tensormsg.listen(":0", key=key, background=True) as server, \
                tensormsg.connect(server.url, key=path) as ep:
            assert ep.principal == "farm"
    ring = tensormsg.Keyring(path)
    with tensormsg.listen(":0", key=ring, background=True) as server:
        path.unlink()
        tensormsg.save_key(path, "farm", key=keys(1)[0])
        with pytest.raises(tensormsg.Refused):
            tensormsg.sync.connect(server.url, key=path)
        ring.load(path)
        tensormsg.sync.connect(server.url, key=path).close()
        path.chmod(0o644)
        with pytest.raises(tensormsg.Insecure):
            ring.load(path)
        path.chmod(0o600)
        path.write_text("farm abc\n")
        with pytest.raises(tensormsg.Malformed):
            ring.load(path)
    with pytest.raises(tensormsg.NotFound):
        tensormsg.listen(":0", key=tmp_path / "none")


@pytest.mark.parametrize("key, kind, words", [
    (b"short", ValueError, "a key is 32 bytes, not 5"),
    (b"", ValueError, "a key is 32 bytes, not 0"),
    ({"a": "0" * 64}, TypeError, "not a str"),
    ({"a": [b"short"]}, ValueError, "32 bytes"),
    ({1: bytes(range(32))}, TypeError, "a principal's name is a str, not 1"),
    ({"a\0b": bytes(range(32))}, ValueError, "NUL"),
    ({"a b": bytes(range(32))}, tensormsg.InvalidParam, "principal"),
    ({"": bytes(range(32))}, tensormsg.InvalidParam, "principal"),
    ({"\udc80": bytes(range(32))}, ValueError, "principal"),
    (bytes(32), tensormsg.InvalidParam, "zero"),
    ({"a": bytes(range(32)), "b": bytes(range(32))}, tensormsg.AlreadyExists,
     "'a'"),
    (7, TypeError, "keys are a file's name"),
    ("0f" * 32, ValueError, "bytes.fromhex")])
def test_what_is_no_key_is_refused_where_it_is_given(key, kind, words):
    for use in tensormsg.listen, tensormsg.connect, tensormsg.publish, \
            tensormsg.sync.listen:
        with pytest.raises(kind, match=words) as caught:
            use(":0", key=key)
        assert "0f" * 8 not in str(caught.value)


def test_a_refused_change_leaves_the_keys_as_they_are():
    one, two = keys(2)
    ring = tensormsg.Keyring({"one": one})
    with pytest.raises(tensormsg.AlreadyExists):
        ring.replace({"two": two, "three": two})
    with pytest.raises(tensormsg.AlreadyExists):
        ring.add("again", one)
    with pytest.raises(tensormsg.NotFound):
        ring.remove("two")
    with pytest.raises(tensormsg.LimitExceeded):
        ring.replace({"many": keys(65)})
    with tensormsg.listen(":0", key=ring, background=True) as server:
        tensormsg.sync.connect(server.url, key=one).close()
        with pytest.raises(tensormsg.Refused):
            tensormsg.sync.connect(server.url, key=two)
    assert len(one) == 32 and one != two
    assert one.hex() not in repr(ring)
