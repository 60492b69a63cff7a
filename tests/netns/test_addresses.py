# SPDX-License-Identifier: BSD-3-Clause
"""Devices that have several addresses: that of the URL decides which of them
UCX uses, on both sides. No other address leads to the other host."""

import re
import time

import pytest

import hosts
from hosts import CABLE, PEER

A6, B6 = "fd00:1111:2222:3333:4444:5555:6666:7777", "fd00:1111:2222:3333::2"
A4, B4 = "10.77.0.1", "10.77.0.2"

# What each device has, in the order in which it gets it: an IPv4 device's
# first address is the one of the kernel's list, of IPv6 its last.
CASES = {
    "v6 alone": ([A6], [B6], A6),
    "v6 with v4 apart": ([A6, "10.1.0.1"], [B6, "10.2.0.2"], A6),
    "v6 with v4 at the client": ([A6], [B6, "10.2.0.2"], A6),
    "v6 with v4 at the server": ([A6, "10.1.0.1"], [B6], A6),
    "v4 with v6 apart": ([A4, "fd00:1::1"], [B4, "fd00:2::2"], A4),
    "second v6 at the server": ([A6, "fd00:9::1"], [B6], A6),
    "second v6 at the client": ([A6], [B6, "fd00:9::2"], A6),
    "second v4 at the server": (["10.1.0.1", A4], [B4], A4),
    "labelled v4 at the client": ([A4], ["10.2.0.2", B4 + "+label"], A4),
    "second of each": (["10.1.0.1", A4, A6, "fd00:8::1"],
                       ["10.2.0.2", B4, B6, "fd00:9::2"], A6),
}


@pytest.fixture(scope="module")
def joined():
    try:
        with hosts.two_hosts() as made:
            yield made
    except hosts.Forbidden as why:
        pytest.skip(f"this machine forbids namespaces: {why}")


def give(host, addresses):
    lines = [f"ip addr flush dev {CABLE} scope global"]
    for address in addresses:
        address, _, label = address.partition("+")
        words = "/64 nodad" if ":" in address else "/24"
        label = f" label {CABLE}:1" if label else ""
        lines.append(f"ip addr add {address}{words} dev {CABLE}{label}")
    host.run("\n".join(lines))


def at(address, port=0):
    return f"tcp://[{address}]:{port}" if ":" in address else \
        f"tcp://{address}:{port}"


@pytest.fixture
def pair(joined):
    yield joined
    for host in joined:
        host.clear()


def send(receiving, sending, address):
    there = receiving.start(PEER, "recv", at(address), -1, 0)
    here = sending.start(PEER, "send", there.line(), -1, 0, 1000, 3)
    return there, here


@pytest.mark.parametrize("case", CASES)
def test_the_address_of_the_url_is_used(pair, case):
    receiving, sending = pair
    ours, theirs, address = CASES[case]
    give(receiving, ours)
    give(sending, theirs)
    there, here = send(receiving, sending, address)
    for program in (there, here):
        line = program.line()
        assert hosts.by_tcp_alone(line), line
    assert here.line_with("end ")[0].startswith("end ok")
    line, messages = there.line_with("end ")
    assert line.startswith("end closed") and messages == 3


def link_local(host):
    """Once the kernel has found out that nobody else has it."""
    until = time.monotonic() + 10
    while True:
        found = host.run("ip", "-6", "addr", "show", "dev", CABLE, "scope",
                         "link")
        if "tentative" not in found.stdout or time.monotonic() > until:
            break
        time.sleep(.05)
    return re.search(r"inet6 (fe80:[0-9a-f:]+)", found.stdout)[1] + "%" + CABLE


def test_a_link_local_address_leads_to_another_of_the_device(pair):
    """UCX uses none itself."""
    for host, address in zip(pair, (A4, B4)):
        give(host, [address])
        link_local(host)
    there, here = send(*pair, link_local(pair[0]))
    assert here.line_with("end ")[0].startswith("end ok")


def test_a_link_local_address_alone_is_an_error_in_words(pair):
    for host in pair:
        give(host, [])
    here = send(*pair, link_local(pair[0]))[1]
    line, _ = here.line_with("end ")
    assert line.startswith("end unreachable"), line
    assert f"no link-local address, and {CABLE} has no other" in line
