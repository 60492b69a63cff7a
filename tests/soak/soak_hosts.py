# SPDX-License-Identifier: BSD-3-Clause
"""Two hosts (tests/netns/hosts.py) with 1 GiB messages and the default time of
5 s: each side is stopped and killed amid one, the cable is cut for 30 s, which a session outlives, a
program computes for 20 s, and packets are lost. Over a relay, which delays,
reorders and loses packets, 3,000 messages up to 100 KB, a cut of 30 s, 1,000
connections made and ended, 1,000 that cross each other, 1,000 at once from 10
workers, and random runs of tests/model. Whoever lives has nothing left of it in
the end, by Program.leave() of hosts.py and Run.quit_all() of model.py."""

import collections
import os
import pathlib
import resource
import signal
import sys
import time

SOURCE = pathlib.Path(os.environ["TMSG_SOURCE_DIR"])
sys.path[:0] = [str(SOURCE / "tests/netns"), str(SOURCE / "tests/model")]
import hosts  # noqa: E402
import model  # noqa: E402

TIMEOUT = 5  # the library's default
LATE = 1
BIG = 1 << 30
SEED = int(os.environ.get("TMSG_SOAK_SEED", 20261122))  # of the relay


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


def outlived(pair):
    """Of a stream of ACKED messages, over a cut of 30 s, none is lost."""
    os.environ["TMSG_KEEP_MS"] = "120000"
    there, here = hosts.connect(*pair, 1 << 20, 300, how="stream",
                                compute_ms=10)
    del os.environ["TMSG_KEEP_MS"]
    there.line_with("message 20")
    pair[0].cut()
    time.sleep(30)
    pair[0].mend()
    hosts.await_cable(*pair)
    line, messages = there.line_with("end ", 240)
    assert line.startswith("end closed") and messages == 280, line
    end = here.line_with("end ", 240)[0]
    assert int(end.removeprefix("end ok reconnected ")) >= 1, end
    for program in (there, here):
        program.leave()
    return end


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


def relayed(pair, relay, count=3000, size=100000):
    relay.set(delay_ms=20, reorder=5, loss=.5)
    there, here = hosts.connect(*pair, size, count, timeout_ms=20000,
                                how="stream")
    for program, end in ((here, "end ok"), (there, "end closed")):
        line, messages = program.line_with("end ", 3000)
        assert line.startswith(end) and messages == count, line
        program.leave()
    counts = relay.counts()
    assert counts["early"] > count and counts["lost"] > count / 10
    return f"{count} messages, packets {counts}"


def relayed_cut(pair, relay):
    relay.set(delay_ms=20, reorder=5, loss=.5)
    there, here = hosts.connect(*pair, 100000, 0, how="stream")
    time.sleep(5)
    relay.cut(30)
    since = time.monotonic()
    lost, confirmed = hosts.lost_after(here, since, hosts.BOUND)
    late, taken = hosts.lost_after(there, since, hosts.BOUND)
    assert max(lost, late) < TIMEOUT + LATE and 0 < confirmed <= taken
    for program in (there, here):
        program.leave()
    time.sleep(since + 30 - time.monotonic())
    hosts.await_cable(*pair)
    relayed(pair, relay, 20)
    return f"{lost:.1f} s, {late:.1f} s, {confirmed} confirmed of {taken}"


def come_and_go(pair, relay, crossing=False, count=1000):
    def act(made):
        a, b = made.actors
        for i in range(0, count, 2 if crossing else 1):
            links = [made.dial(a, b), made.dial(b, a)] if crossing else \
                [made.dial(*made.actors[::1 if i % 2 else -1])]
            for link in links:
                made.await_connected(link)
                for end in link.ends:
                    made.send_one(link, end, False)
                made.close(link, link.ends[i // 2 % 2])
                made.wait_for(lambda: made.has_settled(link),
                              f"connection {link.n}")
                for end in link.ends:
                    made.destroy(link, end)
            if i == 20:
                before = {actor: made.hold(actor) for actor in made.actors}
        made.must_hold_no_more(before)

    relay.set(delay_ms=1)
    totals = model.Run(SEED, "tcp", hosts=pair, timeout_ms=20000,
                       actors=2).play(act)
    assert totals["connected"] == count
    return dict(totals)


def cross(pair, relay):
    return come_and_go(pair, relay, crossing=True)


def all_at_once(pair, relay, clients=10, each=100):
    """From so many workers of the one host to one of the other, messages both
    ways by every connection while all of them stand."""
    def act(made):
        server, *dialling = made.actors
        for _ in range(each):
            links = [made.dial(client, server) for client in dialling]
            for link in links:
                made.await_connected(link)
        for _ in range(3):
            for link in made.links:
                for end in link.ends:
                    made.send_one(link, end, False)

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4 * clients * each:
        raise hosts.Forbidden(f"RLIMIT_NOFILE allows {hard} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    relay.set(delay_ms=1, loss=.1)
    totals = model.Run(SEED, "tcp", hosts=[pair[0]] + clients * [pair[1]],
                       timeout_ms=20000, actors=1 + clients).play(act)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert totals["connected"] == clients * each
    return dict(totals)


def random_runs(pair, relay, count=10):
    relay.set(delay_ms=5, reorder=5, loss=.5)
    totals = collections.Counter()
    for seed in range(SEED, SEED + count):
        totals += model.Run(seed, "tcp", 300, hosts=pair,
                            timeout_ms=20000).play()
    return dict(totals)


CASES = {
    "stop the receiver": lambda pair: stop(pair, 0),
    "stop the sender": lambda pair: stop(pair, 1),
    "kill the receiver": lambda pair: kill(pair, 0),
    "kill the sender": lambda pair: kill(pair, 1),
    "cut for 30 s": cut,
    "a session, cut for 30 s": outlived,
    "compute for 20 s": lambda pair: transfer(pair, 1 << 20, 2, 20000),
    "lose 1 % of the packets": lose_packets,
}
RELAYED = {
    "delay 20 ms, reorder 5 %, lose 0.5 %": relayed,
    "cut for 30 s by the relay": relayed_cut,
    "1,000 connections that come and go": come_and_go,
    "1,000 connections that cross": cross,
    "1,000 connections at once": all_at_once,
    "random runs": random_runs,
}


def main():
    state = pathlib.Path(os.environ["TMSG_SOAK_STATE"]) / "hosts"
    done = state.read_text().splitlines() if state.exists() else []
    print(f"seed {SEED}", flush=True)
    for name, case in {**CASES, **RELAYED}.items():
        if name in done:
            continue
        if name in RELAYED:
            with hosts.two_hosts(SEED) as (*pair, relay):
                print(f"{name}: {case(pair, relay)}", flush=True)
        else:
            with hosts.two_hosts() as pair:
                print(f"{name}: {case(pair)}", flush=True)
        done.append(name)
        state.write_text("\n".join(done))
    state.unlink(missing_ok=True)
    print(f"{len(CASES) + len(RELAYED)} cases")


try:
    main()
except hosts.Forbidden as why:
    print(f"SKIPPED: this machine forbids what it takes: {why}")
    sys.exit(77)
