# SPDX-License-Identifier: BSD-3-Clause
"""Hosts with two networks, of which a named one carries the bytes, and routers
that translate addresses, before either side
(docs/how-to/nothing-arrives.md)."""

import time

import pytest

import hosts
from hosts import CABLE, MIB, PEER, TOOL

SECOND = "second"
SIZE, COUNT = 8 * MIB, 6
ALL = SIZE * COUNT


@pytest.fixture(scope="module")
def joined():
    try:
        with hosts.two_hosts() as made:
            hosts.lay(*made, SECOND, ("10.0.1.1", "10.0.1.2"))
            time.sleep(hosts.UP)
            yield made
    except hosts.Forbidden as why:
        pytest.skip(f"this machine forbids namespaces: {why}")


@pytest.fixture
def pair(joined):
    yield joined
    hosts.restore(*joined)


def transfer(receiving, sending):
    """What messages added to what each cable carried, both hosts looked at."""
    cables = (CABLE, SECOND)

    def carried():
        return [(receiving.carried(each)[0], sending.carried(each)[1])
                for each in cables]

    before = carried()
    there, here = hosts.connect(receiving, sending, SIZE, COUNT)
    assert here.line_with("end ")[0].startswith("end ok")
    line, messages = there.line_with("end ")
    assert line.startswith("end closed") and messages == COUNT
    return [min(now) - max(then) if now[0] > ALL else max(now) - min(then)
            for now, then in zip(carried(), before)]


@pytest.mark.parametrize("device", [None, CABLE, SECOND])
def test_the_named_device_carries_the_bytes(pair, monkeypatch, device):
    """The URL is of the first network, whichever is named; else that is the
    one that is used."""
    if device:
        monkeypatch.setenv("TMSG_DEVICES", device)
    by_cable, by_second = transfer(*pair)
    print(f"{CABLE}: {by_cable}, {SECOND}: {by_second} of {ALL} bytes")
    most, least = (by_second, by_cable) if device == SECOND else \
        (by_cable, by_second)
    assert most >= ALL and least < ALL / 100


def test_both_devices_may_be_named(pair, monkeypatch):
    monkeypatch.setenv("TMSG_DEVICES", f"{CABLE},{SECOND}")
    assert sum(transfer(*pair)) >= ALL


def test_a_device_that_is_not_there_is_named(pair, monkeypatch):
    monkeypatch.setenv("TMSG_DEVICES", "third")
    receiving, _ = pair
    done = receiving.run(PEER, "recv", f"tcp://{receiving.address}:0", -1, 0,
                         check=False)
    assert done.returncode != 0
    for name in ("third", CABLE, SECOND):
        assert name in done.stderr


OUTSIDE, INSIDE = "10.0.0.2", "192.168.7.2"


@pytest.fixture
def routed():
    """A host outside, a router, and a host inside, of whose network the one
    outside knows nothing."""
    with hosts.contextlib.ExitStack() as stack:
        try:
            made = []
            for address in (OUTSIDE, "10.0.0.1", INSIDE):
                made.append(hosts.Host(address))
                stack.callback(made[-1].end)
            outside, router, inside = made
            hosts.join(outside, router)
        except hosts.Forbidden as why:
            pytest.skip(f"this machine forbids namespaces: {why}")
        hosts.bring_up(outside, router)
        hosts.lay(router, inside, SECOND, ("192.168.7.1", INSIDE))
        router.run("echo 1 > /proc/sys/net/ipv4/ip_forward")
        inside.run("ip", "route", "add", "default", "via", "192.168.7.1")
        hosts.await_cable(outside, router)
        yield made


def translate(router, chain, rule):
    router.run("\n".join([
        "nft add table ip test",
        f"nft 'add chain ip test translate {{ type nat hook {chain}; }}'",
        f"nft 'add rule ip test translate {rule}'"]))


def forbid_inwards(router):
    router.run("\n".join([
        "nft 'add chain ip test forward { type filter hook forward priority 0; }'",
        f"nft 'add rule ip test forward iif {CABLE} ct state new counter drop'"]))


def test_a_client_behind_a_router_that_translates(routed):
    """Nobody could dial the client, and nobody tries. UCX 1.22 asks for a route
    to it all the same."""
    outside, router, inside = routed
    outside.run("ip", "route", "add", "default", "via", router.address)
    translate(router, "postrouting priority 100",
              f"oif {CABLE} counter masquerade")
    assert router.dropped() == 0  # the counter, which shows connections
    before = outside.carried()[0]
    there, here = hosts.connect(outside, inside, SIZE, COUNT)
    assert here.line_with("end ")[0].startswith("end ok")
    line, messages = there.line_with("end ")
    assert line.startswith("end closed") and messages == COUNT
    assert outside.carried()[0] - before >= ALL
    translated = router.dropped()
    assert translated >= 2  # the socket of the URL, and UCX's
    forbid_inwards(router)
    assert outside.run("ping", "-q", "-c", "1", "-W", "1", INSIDE,
                       check=False).returncode != 0
    there, here = hosts.connect(outside, inside, MIB, 2)
    assert here.line_with("end ")[0].startswith("end ok")


def forward(routed, monkeypatch):
    """A listener inside that tells of itself by the router's address, which
    passes on whatever comes."""
    outside, router, inside = routed
    translate(router, "prerouting priority -100",
              f"ip daddr {router.address} meta l4proto tcp counter "
              f"dnat to {INSIDE}")
    monkeypatch.setenv("TMSG_ADVERTISE", f"tcp://{router.address}:0")
    there = inside.start(PEER, "recv", f"tcp://{INSIDE}:0", -1, 0)
    url = there.line()
    assert url.startswith(f"tcp://{router.address}:")
    return there, url


def test_an_advertised_address_with_a_route(routed, monkeypatch):
    """The socket goes by the address that is told, UCX by its own."""
    outside, router, inside = routed
    outside.run("ip", "route", "add", "192.168.7.0/24", "via", router.address)
    there, url = forward(routed, monkeypatch)
    before = outside.carried()[1]
    here = outside.start(PEER, "send", url, -1, 0, SIZE, COUNT)
    for program in (there, here):
        line = program.line()
        assert hosts.by_tcp_alone(line), line
    assert here.line_with("end ")[0].startswith("end ok")
    line, messages = there.line_with("end ")
    assert line.startswith("end closed") and messages == COUNT
    assert outside.carried()[1] - before >= ALL
    assert router.dropped() == 2  # the socket, and its bulk stream, were translated


def test_a_forwarded_port_is_refused_in_words(routed, monkeypatch):
    """UCX's address is the listener's own, to which there is no route."""
    outside, router, _ = routed
    _, url = forward(routed, monkeypatch)
    begin = time.monotonic()
    here = outside.start(TOOL, "info", "--timeout", 10, url)
    assert here.process.wait(hosts.BOUND) == 1
    print(f"{time.monotonic() - begin:.1f} s")
    assert time.monotonic() - begin < 20
    assert router.dropped() == 1
