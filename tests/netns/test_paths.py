# SPDX-License-Identifier: BSD-3-Clause
"""A firewall silences one path of a connection, and heartbeats go on: what waits
there ends in time, or comes by the session's next connection. Whoever computes
is not taken for silent. All is done with each UCX at the same time: it takes
long and does little."""

import os
import re
import time

import pytest

import hosts

PATHS = os.environ["TMSG_NETNS_PATHS"]
TIMEOUT = 2  # seconds of silence
LATE = 4     # more, for a machine that is busy
KEEP_MS = 60000
UCX = {"as built": []}
if os.environ.get("TMSG_UCX_1_22"):
    UCX["1.22"] = ["env", f"LD_LIBRARY_PATH={os.environ['TMSG_UCX_1_22']}",
                   "UCX_MEM_BISTRO_GRACE_DURATION=0us"]
OPENS = {"follow": "follow", "blob": "meet"}  # the others: open
KINDS = {"blob": "acked", "full": "flood", "reply": "call"}  # or their own

# What goes through, by the packets that a firewall between drops, or answers.
BOTH, THERE, BACK, HERE, RESET = "both", "there", "back", "here", "reset"


class Ends:
    """A server and who dials it, with connections by name."""

    def __init__(self, pair, ucx):
        self.hosts = pair
        self.server = pair[0].start(*UCX[ucx], PATHS, "serve", pair[0].address,
                                    1000 * TIMEOUT)
        where = [self.server.line() for _ in range(3)]
        self.dialler = pair[1].start(*UCX[ucx], PATHS, "dial", *where,
                                     1000 * TIMEOUT)
        self.ports = {}

    def tell(self, program, line):
        program.process.stdin.write(line + "\n")
        program.process.stdin.flush()

    def open(self, name, keep_ms=0):
        word = OPENS.get(name.split("-")[0], "open")
        self.tell(self.dialler, f"{word} {name} {keep_ms}")
        ports = self.dialler.line_with(f"open {name} ")[0].split()[2:]
        self.ports[name] = {path: tuple(both.split(".")) for path, both
                            in zip(("url", "ucx", "bulk"), ports)}

    def begin(self, name):
        kind = name.split("-")[0]
        self.tell(self.dialler, f"do {name} {KINDS.get(kind, kind)}")

    def silence(self, paths, how):
        """Paths are names and which of their connections. One port alone may be
        that of two connections, which go to different ones."""
        ports = [self.ports[name][path] for name, path in paths]
        to_peer, from_peer = (
            "tcp sport . tcp dport { " + ", ".join(
                " . ".join(pair[::step]) for pair in ports) + " }"
            for step in (1, -1))
        there, here = self.hosts
        if how in (BOTH, THERE):
            there.filter(f"{to_peer} counter drop")
        if how in (BOTH, BACK):
            here.filter(f"{from_peer} counter drop")
        if how == HERE:
            here.run("nft add table inet own && nft 'add chain inet own out "
                     "{ type filter hook output priority 0; }' && nft 'add "
                     f"rule inet own out {to_peer} drop'")
        if how == RESET:
            there.filter(f"{to_peer} reject with tcp reset")

    def results(self, names, timeout):
        """Status, seconds and words of each that has ended by then."""
        done, deadline = {}, time.monotonic() + timeout
        while names - done.keys() and time.monotonic() < deadline:
            try:
                line = self.dialler.line(1)
            except AssertionError:
                continue
            end = re.fullmatch(r"done (\S+) (.+?) ([\d.]+) ?(.*)", line)
            done[end[1]] = end[2], float(end[3]), end[4]
            print(line)
        assert done.keys() == names, names - done.keys()
        return done


@pytest.fixture(scope="module")
def joined():
    try:
        with hosts.two_hosts() as made:
            yield made
    except hosts.Forbidden as why:
        pytest.skip(f"this machine forbids namespaces: {why}")


@pytest.fixture
def all_ends(joined):
    """By the UCX that they run with."""
    yield {ucx: Ends(joined, ucx) for ucx in UCX}
    hosts.restore(*joined)


# What waits, the path that is silenced, which way, whether a session heals it.
CASES = [(kind, path, how, False)
         for kind, path in (("acked", "ucx"), ("large", "bulk"),
                            ("call", "ucx"), ("follow", "ucx"))
         for how in (BOTH, THERE, BACK)
         if (kind, how) != ("follow", THERE)]  # its messages come
CASES += [("plain", "ucx", BOTH, False), ("plain", "ucx", THERE, False),
          ("large", "ucx", BACK, False), ("stream", "ucx", BOTH, False),
          ("stream", "ucx", BACK, True), ("blob", "ucx", THERE, False),
          ("blob", "ucx", BACK, False), ("acked", "ucx", THERE, True),
          ("large", "bulk", BOTH, True), ("call", "ucx", BACK, True),
          ("follow", "ucx", BACK, True), ("acked", "ucx", HERE, False),
          ("large", "bulk", HERE, True), ("acked", "ucx", RESET, False),
          ("acked", "ucx", RESET, True), ("large", "bulk", RESET, False)]
NAMES = {"-".join([*case[:3], "keeps" * case[3]]): case for case in CASES}


def check_result(name, status, took, words):
    kind, path, how, keeps = NAMES[name]
    assert status == ("ok" if keeps else "peer lost"), (name, words)
    assert took < 2 * TIMEOUT + LATE, (name, took)
    if not keeps and how != RESET:
        assert {"ucx": "UCX's connection to",
                "bulk": "the connection for large payloads to"}[path] in words
        assert "nothing was acknowledged there for" in words, words
        assert ("though the peer is alive" in words) == (kind != "blob"), words


def test_what_waits_on_a_silent_path_ends_or_heals(all_ends):
    """Each has a connection of its own, and all wait at once."""
    for ends in all_ends.values():
        for name, (*_, keeps) in NAMES.items():
            ends.open(name, KEEP_MS if keeps else 0)
    for ends in all_ends.values():
        for how in (BOTH, THERE, BACK, HERE, RESET):
            ends.silence([(name, path) for name, (_, path, its, _)
                          in NAMES.items() if its == how], how)
        for name in NAMES:
            ends.begin(name)
    for ucx, ends in all_ends.items():
        print("UCX", ucx)
        for name, end in ends.results(set(NAMES), 4 * TIMEOUT + LATE).items():
            check_result(name, *end)


def test_who_computes_is_not_silent(all_ends):
    """And fills the window of UCX's connection meanwhile, which the kernel then
    probes; where nobody answers the probes, that is silence. So is it where a
    reply goes unheard to somebody who has nothing to send."""
    names = {"flood", "large", "acked", "call", "blob"}
    for ends in all_ends.values():
        for name in names | {"full", "reply"}:
            ends.open(name)
        ends.tell(ends.server, f"compute {3000 * TIMEOUT}")
    time.sleep(.3)
    for ends in all_ends.values():
        for name in names | {"full", "reply"}:
            ends.begin(name)
    time.sleep(.5)
    for ends in all_ends.values():
        ends.silence([("full", "ucx")], BOTH)
        ends.silence([("reply", "ucx")], BACK)
    for ends in all_ends.values():
        status, took, words = ends.results({"full"}, 5 * TIMEOUT)["full"]
        assert status == "peer lost" and took < 3 * TIMEOUT + LATE, words
    for ends in all_ends.values():
        done = ends.results(names | {"reply"}, 6 * TIMEOUT + LATE)
        status, took, words = done.pop("reply")
        assert status == "peer lost" and took < 5 * TIMEOUT + LATE, words
        assert "UCX's connection to" in words
        assert all(status == "ok" for status, *_ in done.values()), done
        assert min(took for _, took, _ in done.values()) > TIMEOUT
