# SPDX-License-Identifier: BSD-3-Clause
"""Connections between two hosts that come and go, cross each other, and are
several a pair; and a random run of the model (tests/model) between them."""

import pytest

import hosts
import model

SEED = 20261122


@pytest.fixture(scope="module")
def joined():
    try:
        with hosts.two_hosts(SEED) as made:
            yield made
    except hosts.Forbidden as why:
        pytest.skip(f"this machine forbids namespaces or TUN devices: {why}")


@pytest.fixture
def relay(joined):
    yield joined[2]
    joined[2].set()


def run(joined, act=None, seed=SEED, **options):
    made = model.Run(seed, "tcp", hosts=joined[:2], timeout_ms=20000, **options)
    before = [sum(host.carried()) for host in joined[:2]]
    totals = made.play(act)
    print(dict(totals))
    assert all(sum(host.carried()) > bytes + 1000 * totals["connected"]
               for host, bytes in zip(joined, before))
    return totals


def exchange(made, links, count=3):
    """Messages both ways, small and larger, every one ACKED."""
    for link in links:
        for end in link.ends:
            for size in range(count):
                message = model.Message(len(end.messages), 20000 * size,
                                        model.ACKED)
                end.messages.append(message)
                end.actor.tell(f"send {link.n} {message.number} "
                               f"{message.size} {message.flags} "
                               f"{message.channel} {message.timeout}")


def settle(made, links):
    for link in links:
        made.wait_for(lambda: made.has_settled(link), f"connection {link.n}")


def test_connects_and_disconnects(joined, relay):
    """And while the workers stand, nothing is left of a connection."""
    relay.set(delay_ms=1)

    def act(made):
        for i in range(40):
            link = made.dial(*made.actors[::1 if i % 2 else -1])
            made.await_connected(link)
            exchange(made, [link], 1)
            made.close(link, link.ends[i // 2 % 2])
            settle(made, [link])
            for end in link.ends:
                made.destroy(link, end)
            if i == 9:
                before = {actor: made.hold(actor) for actor in made.actors}
        made.must_hold_no_more(before)

    totals = run(joined, act, actors=2)
    assert totals["connected"] == 40 and totals["acked"] >= 40


def test_crossing_connects(joined, relay):
    """Both dial at once, so that the connections are made in opposite order;
    what is sent on one comes by that one."""
    relay.set(delay_ms=5)

    def act(made):
        a, b = made.actors
        for _ in range(10):
            links = [made.dial(a, b), made.dial(b, a)]
            for link in links:
                made.await_connected(link)
            exchange(made, links)
            settle(made, links)
            for link in links:
                made.close(link, link.ends[0])

    totals = run(joined, act, actors=2)
    assert totals["connected"] == 20 and totals["acked"] == 20 * 6


def test_several_connections_a_pair(joined, relay):
    relay.set(delay_ms=5, reorder=5)

    def act(made):
        a, b = made.actors
        links = [made.dial(a, b), made.dial(a, b), made.dial(b, a),
                 made.dial(a, b)]
        for link in links:
            made.await_connected(link)
        exchange(made, links)
        made.close(links[0], links[0].ends[0])  # the others do not notice
        exchange(made, links[1:])
        settle(made, links)

    totals = run(joined, act, actors=2)
    assert totals["connected"] == 4 and totals["acked"] >= 3 * 12


def test_the_model_holds_between_hosts(joined, relay):
    relay.set(delay_ms=5, reorder=5, loss=.5)
    totals = run(joined, steps=100, seed=31)
    assert totals["delivered"] > 20
