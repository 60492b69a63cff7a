# SPDX-License-Identifier: BSD-3-Clause
"""What two hosts see of each other's troubles, and of the network's."""

import json
import os
import signal
import sys
import time

import numpy as np
import pytest

import hosts
from hosts import MIB, PEER, TOOL, by_tcp_alone

TIMEOUT = 2  # seconds of silence
LATE = 8     # more, for a machine that is busy
BIG = 256 * MIB


@pytest.fixture(scope="module")
def joined():
    try:
        with hosts.two_hosts() as made:
            yield made
    except hosts.Forbidden as why:
        pytest.skip(f"this machine forbids namespaces: {why}")


@pytest.fixture
def pair(joined):
    yield joined
    hosts.restore(*joined)


def connect(pair, size, count, **options):
    options = {"timeout_ms": 1000 * TIMEOUT, **options}
    return hosts.connect(*pair, size, count, **options)


def check_lost(program, since):
    took, _ = hosts.lost_after(program, since, TIMEOUT + LATE + hosts.BOUND)
    print(f"{took:.1f} s: {program.said[-1]}")
    assert took < TIMEOUT + LATE, f"it took {took:.1f} s"
    return took


def test_the_command_transfers(pair, tmp_path):
    receiving, sending = pair
    source, out = tmp_path / "map.npz", tmp_path / "out"
    arrays = {"a": np.arange(3 * MIB, dtype=np.int64), "b": np.ones(7)}
    np.savez(source, **arrays)
    out.mkdir()
    there = receiving.start(TOOL, "recv", "--listen",
                            f"tcp://{receiving.address}:0", "--count", 1,
                            "--allow-unauthenticated", "--out", out)
    url = there.line()
    before = receiving.carried()[0]
    done = sending.run(TOOL, "send", url, source)
    assert (done.returncode, done.stderr) == (0, "")
    assert there.process.wait(hosts.BOUND) == 0
    with np.load(out / "map.npz") as got:
        for name, array in arrays.items():
            np.testing.assert_array_equal(got[name], array)
    assert receiving.carried()[0] - before >= 24 * MIB


HEARS = """import socket, sys
listener = socket.create_server((sys.argv[1], 0))
print(listener.getsockname()[1], flush=True)
peer, heard = listener.accept()[0], b""
while len(heard) < 200:
    heard += peer.recv(4096) or exit()
print(heard.hex(), flush=True)
"""


def test_another_host_gets_no_shared_memory(pair):
    """Both are on one machine here, and say so but for the kernel's word; nor
    is a peer told which machine it is, to say that it was the same."""
    receiving, sending = pair
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot_id = file.read().strip().encode()
    for hearer, teller, told in ((receiving, sending, False),
                                 (receiving, receiving, True)):
        false = hearer.start(sys.executable, "-c", HEARS, hearer.address)
        url = f"tcp://{hearer.address}:{false.line()}"
        teller.run(TOOL, "info", url, check=False)
        assert (boot_id in bytes.fromhex(false.line())) == told
        false.leave()
    there = receiving.start(TOOL, "recv", "--listen",
                            f"tcp://{receiving.address}:0",
                            "--allow-unauthenticated", "--count", 1)
    seen = sending.run(TOOL, "info", "--json", there.line(),
                       check=False)
    assert json.loads(seen.stdout)["connection"]["why"] == "other host"
    there.kill()


def test_many_messages_arrive_by_the_cable(pair):
    there, here = connect(pair, MIB, 50)
    for program, end in ((here, "end ok"), (there, "end closed")):
        line, messages = program.line_with("end ")
        assert line.startswith(end) and messages == 50
        program.leave()
    assert all(sum(host.carried()) >= 50 * MIB for host in pair)


@pytest.mark.parametrize("users", [(1001, 1002), (0, 1002), (1001, 0)],
                         ids=lambda users: "-".join(map(str, users)))
def test_users_of_two_hosts_connect(pair, users):
    """None of them knows the other's, and each has nothing of root's but what
    is named. What is sent is whole (peer.c), and nothing is left of it."""
    if any(pair[0].run(*hosts.become(user), PEER, check=False).returncode != 2
           for user in users):
        pytest.skip("another user may not run what was built here")
    there, here = connect(pair, 4 * MIB, 40, how="stream", users=users)
    for program, user in ((there, users[0]), (here, users[1])):
        assert os.stat(f"/proc/{program.process.pid}").st_uid == user
    for program, end in ((here, "end ok"), (there, "end closed")):
        line, messages = program.line_with("end ")
        assert line.startswith(end) and messages == 40
        program.leave()


@pytest.mark.parametrize("busy", [True, False], ids=["busy", "idle"])
def test_a_cut_cable_is_noticed_by_both(pair, busy):
    there, here = connect(pair, BIG if busy else 10, 0 if busy else -1)
    if busy:
        hosts.await_middle(pair[0], BIG)
    else:
        here.line_with("message 1")
    pair[0].cut()
    since = time.monotonic()
    for program in (there, here):
        check_lost(program, since)
        program.leave()


def test_a_cut_cable_is_noticed_by_tcp_alone(pair, monkeypatch):
    monkeypatch.setenv("TENSORMSG_NO_THREAD", "1")
    there, here = connect(pair, 10, -1)
    here.line_with("message 1")
    pair[0].cut()
    since = time.monotonic()
    for program in (there, here):
        check_lost(program, since)
        assert "timed out" in program.said[-1]
        program.leave()


def test_a_session_outlives_a_network_that_is_restarted(pair, monkeypatch):
    """With no link, no address and no route for longer than a peer may be
    silent."""
    monkeypatch.setenv("TMSG_KEEP_MS", "120000")
    there, here = connect(pair, MIB, 300, how="stream", compute_ms=10)
    there.line_with("message 20")
    for host in pair:
        host.run("ip", "addr", "flush", "dev", hosts.CABLE)
        host.cut()
    time.sleep(2 * TIMEOUT + 1)
    hosts.bring_up(*pair)
    line, messages = there.line_with("end ", 240)
    assert line.startswith("end closed") and messages == 280
    end = here.line_with("end ", 240)[0]
    assert int(end.removeprefix("end ok reconnected ")) >= 1
    for program in (there, here):
        program.leave()


@pytest.mark.parametrize("who", [0, 1], ids=["receiver", "sender"])
def test_a_stopped_peer_is_noticed(pair, who):
    programs = connect(pair, BIG, 0)
    stopped, other = programs[who], programs[1 - who]
    hosts.await_middle(pair[0], BIG)
    stopped.stop()
    since = time.monotonic()
    assert check_lost(other, since) > TIMEOUT / 3
    stopped.signal(signal.SIGCONT)
    check_lost(stopped, time.monotonic())
    for program in programs:
        program.leave()  # the receiver has found every byte right


@pytest.mark.parametrize("who", [0, 1], ids=["receiver", "sender"])
def test_a_killed_peer_is_noticed(pair, who):
    programs = connect(pair, BIG, 0)
    hosts.await_middle(pair[0], BIG)
    programs[who].kill()
    check_lost(programs[1 - who], time.monotonic())
    programs[1 - who].leave()


def test_who_lives_keeps_nothing_of_those_that_went(pair):
    """In order, killed, stopped or cut off amid a message: the listener stands,
    and when they are gone it holds no more than when the first was."""
    receiving, sending = pair
    there = receiving.start(PEER, "serve", f"tcp://{receiving.address}:0",
                            1000 * TIMEOUT, 0)
    url = there.line()

    size = 64 * MIB

    def send(count=0):
        here = sending.start(PEER, "send", url, 1000 * TIMEOUT, 0, size, count)
        for program in (there, here):
            assert by_tcp_alone(program.line_with('"transports')[0])
        if not count:
            hosts.await_middle(receiving, size)
        return here

    def check_kept():
        hosts.must_be_none(there.line_with("kept ")[0])

    here = send(1)
    assert there.line_with("end ")[0].startswith("end closed")
    here.leave()
    check_kept()
    send().kill()
    check_lost(there, time.monotonic())
    check_kept()
    here = send()
    here.stop()
    check_lost(there, time.monotonic())
    here.signal(signal.SIGCONT)
    check_lost(here, time.monotonic())
    here.leave()
    check_kept()
    here = send()
    receiving.cut()
    for program in (there, here):
        check_lost(program, time.monotonic())
    receiving.mend()
    hosts.await_cable(*pair)
    here.leave()
    check_kept()
    there.leave()


def test_who_computes_is_kept(pair):
    there, here = connect(pair, MIB, 2, compute_ms=3000 * TIMEOUT // 2)
    assert here.line_with("end ")[0].startswith("end ok")
    assert there.line_with("end ")[0].startswith("end closed")
    there.leave()
    here.leave()


def test_a_client_that_lets_nobody_in_connects(pair):
    receiving, sending = pair
    sending.filter("tcp flags & (syn|ack) == syn counter drop")
    there, here = connect(pair, 8 * MIB, 5)
    assert here.line_with("end ")[0].startswith("end ok")
    assert sending.dropped() == 0  # nobody tried
    # That it lets nobody in is so:
    inside = sending.start(PEER, "recv", f"tcp://{sending.address}:0", -1, 0)
    outside = receiving.start(TOOL, "info", "--timeout", 1,
                              inside.line())
    assert outside.process.wait(hosts.BOUND) == 1
    assert sending.dropped() > 0


def test_packets_may_be_lost(pair):
    for host in pair:
        host.filter("numgen random mod 100 < 1 counter drop")
    there, here = connect(pair, 4 * MIB, 8)
    assert here.line_with("end ")[0].startswith("end ok")
    line, messages = there.line_with("end ")
    assert line.startswith("end closed") and messages == 8
    assert sum(host.dropped() for host in pair) > 0
