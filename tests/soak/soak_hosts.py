# SPDX-License-Identifier: BSD-3-Clause
"""Two hosts (tests/netns/hosts.py) with 1 GiB messages and the default time of
5 s: each side is stopped and killed amid one, the cable is cut for 30 s, a
program computes for 20 s, and packets are lost."""

import os
import pathlib
import signal
import sys
import time

SOURCE = pathlib.Path(os.environ["TMSG_SOURCE_DIR"])
sys.path.insert(0, str(SOURCE / "tests/netns"))
import hosts  # noqa: E402

TIMEOUT = 5  # the library's default
LATE = 1
BIG = 1 << 30


def must_lose(program, since):
    took, messages = hosts.lost_after(program, since, hosts.BOUND)
    assert took < TIMEOUT + LATE, f"it took {took:.1f} s"
    return f"{took:.1f} s, {messages} whole messages before"


def cut(pair):
    programs = hosts.connect(*pair, BIG, 0)
    hosts.await_middle(pair[0], BIG)
    pair[0].cut()
    since = time.monotonic()
    said = [must_lose(program, since) for program in programs]
    time.sleep(since + 30 - time.monotonic())
    pair[0].mend()
    for program in programs:
        program.leave()
    hosts.await_cable(*pair)
    transfer(pair)
    return "; ".join(said)


def stop(pair, who):
    programs = hosts.connect(*pair, BIG, 0)
    hosts.await_middle(pair[0], BIG)
    programs[who].stop()
    said = must_lose(programs[1 - who], time.monotonic())
    time.sleep(TIMEOUT)
    programs[who].signal(signal.SIGCONT)
    must_lose(programs[who], time.monotonic())
    for program in programs:
        program.leave()
    return said


def kill(pair, who):
    programs = hosts.connect(*pair, BIG, 0)
    hosts.await_middle(pair[0], BIG)
    programs[who].kill()
    said = must_lose(programs[1 - who], time.monotonic())
    programs[1 - who].leave()
    return said


def transfer(pair, size=BIG, count=2, compute_ms=0):
    there, here = hosts.connect(*pair, size, count, compute_ms=compute_ms)
    for program, end in ((here, "end ok"), (there, "end closed")):
        line, messages = program.line_with("end ", 600)
        assert line.startswith(end) and messages == count, line
        program.leave()
    return f"{count} messages of {size} bytes"


def lose_packets(pair):
    for host in pair:
        host.filter("numgen random mod 100 < 1 counter drop")
    said = transfer(pair, BIG // 4)
    return f"{said}, {sum(host.dropped() for host in pair)} packets lost"


CASES = {
    "stop the receiver": lambda pair: stop(pair, 0),
    "stop the sender": lambda pair: stop(pair, 1),
    "kill the receiver": lambda pair: kill(pair, 0),
    "kill the sender": lambda pair: kill(pair, 1),
    "cut for 30 s": cut,
    "compute for 20 s": lambda pair: transfer(pair, 1 << 20, 2, 20000),
    "lose 1 % of the packets": lose_packets,
}


def main():
    state = pathlib.Path(os.environ["TMSG_SOAK_STATE"]) / "hosts"
    done = state.read_text().splitlines() if state.exists() else []
    for name, case in CASES.items():
        if name in done:
            continue
        with hosts.two_hosts() as pair:
            print(f"{name}: {case(pair)}", flush=True)
        done.append(name)
        state.write_text("\n".join(done))
    state.unlink()
    print(f"{len(CASES)} cases")


try:
    main()
except hosts.Forbidden as why:
    print(f"SKIPPED: this machine forbids namespaces: {why}")
    sys.exit(77)
