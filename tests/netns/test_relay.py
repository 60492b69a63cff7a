# SPDX-License-Identifier: BSD-3-Clause
"""What the ACKED messages meet on a cable that delays, reorders and loses
packets, and is cut: each arrives whole, once and in order, or both sides hear
that the peer is lost. The receiver ends at the first that does not."""

import time

import pytest

import hosts

SEED = 20261122
TIMEOUT = 2  # seconds of silence
LATE = 8     # more, for a machine that is busy
CUT = 2 * TIMEOUT + 1
COUNT = 200


@pytest.fixture(scope="module")
def joined():
    try:
        with hosts.two_hosts(SEED) as made:
            yield made
    except hosts.Forbidden as why:
        pytest.skip(f"this machine forbids namespaces or TUN devices: {why}")


@pytest.fixture
def crooked(joined):
    receiving, sending, relay = joined
    before = relay.counts()

    def since():
        return {name: count - before[name]
                for name, count in relay.counts().items()}

    yield receiving, sending, relay, since
    for host in (receiving, sending):
        host.clear()
    relay.mend()
    relay.set()


def check_all(there, here, count, seen=0):
    """Every message was taken, once, and every one was confirmed. Returns how
    the sender ended."""
    ends = []
    for program, end, before in ((here, "end ok", 0),
                                 (there, "end closed", seen)):
        line, messages = program.line_with("end ", 240)
        assert line.startswith(end), line
        assert before + messages == count
        program.leave()
        ends.append(line)
    return ends[0]


def test_a_ping_takes_the_time_that_was_set(crooked):
    receiving, sending, relay, since = crooked
    relay.set(delay_ms=20)
    begin = time.monotonic()
    sending.run("ping", "-q", "-c", "1", "-W", "5", receiving.address)
    assert time.monotonic() - begin > 0.04
    assert since()["passed"] >= 2


def test_messages_arrive_delayed_and_reordered_and_some_lost(crooked):
    receiving, sending, relay, since = crooked
    relay.set(delay_ms=20, reorder=5, loss=.5)
    there, here = hosts.connect(receiving, sending, 50000, 150, how="stream",
                                timeout_ms=10000)
    check_all(there, here, 150)
    counts = since()
    print(counts)
    assert counts["early"] > 10 and counts["lost"] > 3
    assert receiving.carried()[0] > 150 * 20000


def test_a_short_cut_is_survived(crooked):
    receiving, sending, relay, since = crooked
    relay.set(delay_ms=5)
    there, here = hosts.connect(receiving, sending, 100000, 200, how="stream",
                                timeout_ms=20000)
    there.line_with("message 20")
    relay.cut(.7)
    check_all(there, here, 200, 20)
    assert since()["cut"] > 0


def test_a_long_cut_loses_the_peer_and_no_confirmed_message(crooked):
    receiving, sending, relay, since = crooked
    relay.set(delay_ms=5, reorder=2)
    there, here = hosts.connect(receiving, sending, 100000, 0, how="stream",
                                timeout_ms=1000 * TIMEOUT)
    there.line_with("message 20")
    relay.cut(600)
    begin = time.monotonic()
    took, taken = hosts.lost_after(there, begin, TIMEOUT + LATE + hosts.BOUND)
    confirmed = hosts.lost_after(here, begin, hosts.BOUND)[1]
    assert took < TIMEOUT + LATE, f"it took {took:.1f} s"
    assert confirmed <= 20 + taken
    assert since()["cut"] > 0
    relay.mend()
    hosts.await_cable(receiving, sending)
    for program in (there, here):
        program.leave()
    check_all(*hosts.connect(receiving, sending, 1000, 5, how="stream"), 5)


def test_a_session_outlives_a_cut_that_breaks_its_connection(crooked,
                                                             monkeypatch):
    """Of several, too: the second while it is hardly back."""
    receiving, sending, relay, since = crooked
    relay.set(delay_ms=5, reorder=2, loss=.2)
    monkeypatch.setenv("TMSG_KEEP_MS", "120000")
    there, here = hosts.connect(receiving, sending, 100000, COUNT,
                                how="stream", timeout_ms=1000 * TIMEOUT,
                                compute_ms=10)
    seen = there.line_with("message 20")[1] + 1
    for _ in range(2):
        relay.cut(CUT)
        time.sleep(CUT)
        seen += there.empty()
        there.line()
        seen += 1
    end = check_all(there, here, COUNT, seen)
    assert int(end.removeprefix("end ok reconnected ")) >= 1
    assert since()["cut"] > 0
