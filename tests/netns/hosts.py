# SPDX-License-Identifier: BSD-3-Clause
"""Two hosts on one machine: namespaces of their own (net, ipc, uts, mount),
joined by a cable, which is a veth pair, or a relay (relay.c) that delays,
reorders and loses. They have no names, are in nobody's way, and go when the
last process in them does, which is when the test does."""

import contextlib
import os
import queue
import re
import signal
import subprocess
import threading
import time

PEER = os.environ["TMSG_NETNS_PEER"]
RELAY = os.environ["TMSG_NETNS_RELAY"]
TOOL = os.environ["TENSORMSG"]
BOUND = 60  # seconds, for what takes none
RELAYED = 600  # seconds that a relay lives
CABLE = "cable"
UP = 2.5  # seconds that a new link takes until UCX uses it
MIB = 1 << 20


class Forbidden(Exception):
    """This machine makes no such namespaces."""


def must_be_none(line):
    """What a peer counts, as peer.c says it."""
    names = ("descriptors", "threads", "segments", "bytes")
    left = dict(zip(names, map(int, line.split()[1:])))
    assert len(left) == 4 and all(n <= 0 for n in left.values()), (line, left)


class Program:
    """One that runs on a host, and the lines it says."""

    def __init__(self, host, *words):
        self.is_peer = PEER in words
        self.process = subprocess.Popen(
            host.prefix + [str(word) for word in words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.lines = queue.SimpleQueue()
        self.said = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            if re.match(r"\[\d+\.\d+\] \[", line):
                self.said.append(line)  # in UCX's words
            else:
                self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def line(self, timeout=BOUND):
        try:
            line = self.lines.get(timeout=timeout)
        except queue.Empty:
            raise AssertionError(f"no line in {timeout} s after {self.said}")
        assert line is not None, \
            f"it ended by {self.process.wait(BOUND)} after {self.said}"
        self.said.append(line)
        return line

    def empty(self):
        """The number of lines that were not read, which now are."""
        skipped = 0
        while not self.lines.empty():
            self.line()
            skipped += 1
        return skipped

    def line_with(self, beginning, timeout=BOUND):
        """The next line that begins so; the number of others before it."""
        deadline = time.monotonic() + timeout
        skipped = 0
        while True:
            line = self.line(max(0, deadline - time.monotonic()))
            if line.startswith(beginning):
                return line, skipped
            skipped += 1

    def signal(self, number):
        self.process.send_signal(number)

    def stop(self):
        """Until every thread stands still."""
        self.signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def leave(self):
        """Lets it end in its own way, which must be a good one: whatever has
        become of who was at the other end, a peer has nothing left of it. By
        TCP alone no UCX keeps anything (docs/wire/connection.md)."""
        self.process.stdin.close()
        assert self.process.wait(BOUND) == 0, self.said
        if self.is_peer:
            must_be_none(self.line_with("left ")[0])

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Host:
    def __init__(self, address):
        self.address = address
        self.programs = []
        self.is_cut = False
        self.holder = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--ipc",
             "--uts", "--mount", "sh", "-c",
             # UCX looks for devices in /sys, which shows those of its mounter.
             f"mount -t sysfs sysfs /sys && hostname host-{address} && "
             "echo ready && exec sleep 1000"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self.holder.stdout.readline() != "ready\n":
            _, why = self.holder.communicate()
            raise Forbidden(why.strip())
        self.prefix = ["nsenter", "--target", str(self.holder.pid), "--net",
                       "--ipc", "--uts", "--mount", "--"]

    def run(self, *words, check=True, timeout=BOUND):
        """Runs a program to its end; as one line, by the shell."""
        words = ["sh", "-ec", words[0]] if len(words) == 1 else words
        done = subprocess.run(self.prefix + [str(word) for word in words],
                              capture_output=True, text=True, timeout=timeout)
        assert not check or done.returncode == 0, (words, done.stderr)
        return done

    def start(self, *words):
        self.programs.append(Program(self, *words))
        return self.programs[-1]

    def carried(self, cable=CABLE):
        """Bytes that came, and that went, by a cable."""
        with open(f"/proc/{self.holder.pid}/net/dev") as table:
            for line in table:
                name, _, counts = line.partition(":")
                if name.strip() == cable:
                    return int(counts.split()[0]), int(counts.split()[8])
        raise AssertionError("the cable is gone")

    def cut(self):
        self.run("ip", "link", "set", CABLE, "down")
        self.is_cut = True

    def mend(self):
        self.run("ip", "link", "set", CABLE, "up")
        self.is_cut = False

    def filter(self, *rules):
        """Rules for what comes in by the cable."""
        self.run("\n".join(
            ["nft add table inet test",
             "nft 'add chain inet test in { type filter hook input priority 0; }'",
             *(f"nft 'add rule inet test in iif {CABLE} {rule}'"
               for rule in rules)]))

    def dropped(self):
        """Packets that such a rule with a counter has taken."""
        words = self.run("nft", "list", "ruleset").stdout.split()
        return sum(int(words[i + 1]) for i, word in enumerate(words)
                   if word == "packets")

    def clear(self):
        while self.programs:
            self.programs.pop().kill()

    def end(self):
        self.clear()
        self.holder.kill()
        self.holder.communicate()


class Relay:
    """A cable of a slow and crooked kind."""

    def __init__(self, a, b, seed=1):
        words = [RELAY, a.holder.pid, b.holder.pid, seed, RELAYED]
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *map(str, words)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        said = self.process.stdout.readline()
        if said.startswith("forbidden"):
            self.process.communicate()
            raise Forbidden(said.strip())
        assert said == "ready\n", said

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def set(self, delay_ms=0, reorder=0, loss=0):
        """Reordering and loss in percent of the packets."""
        line = f"set {1000 * delay_ms} {int(1e4 * reorder)} {int(1e4 * loss)}"
        assert self.ask(line) == "set\n"

    def cut(self, seconds):
        assert self.ask(f"cut {int(1000 * seconds)}") == "cut\n"

    def mend(self):
        self.cut(0)

    def counts(self):
        """Packets so far: passed, early, lost, cut, full."""
        words = self.ask("count").split()
        return dict(zip(words[::2], map(int, words[1::2])))

    def end(self):
        self.process.communicate()
        assert self.process.returncode == 0


def join(a, b):
    made = a.run("ip", "link", "add", "name", CABLE, "type", "veth",
                 "peer", "name", CABLE, "netns", b.holder.pid, check=False)
    if "Operation not" in made.stderr:  # permitted, or supported
        raise Forbidden(made.stderr.strip())
    assert made.returncode == 0, made.stderr


def bring_up(a, b):
    for host in (a, b):
        host.run(f"ip addr add {host.address}/24 dev {CABLE} && "
                 f"ip link set lo up && ip link set {CABLE} up")


def lay(a, b, cable, addresses):
    """A further cable, which has a network of its own."""
    a.run("ip", "link", "add", "name", cable, "type", "veth",
          "peer", "name", cable, "netns", b.holder.pid)
    for host, address in zip((a, b), addresses):
        host.run(f"ip addr add {address}/24 dev {cable} && "
                 f"ip link set lo up && ip link set {cable} up")


def await_cable(a, b):
    deadline = time.monotonic() + BOUND
    time.sleep(UP)
    while a.run("ping", "-q", "-c", "1", "-W", "1", b.address,
                check=False).returncode != 0:
        assert time.monotonic() < deadline, "the hosts do not reach each other"


def restore(a, b):
    """As they were: no programs, no rules, and a cable."""
    for host in (a, b):
        host.clear()
        host.run("nft", "flush", "ruleset")
    if a.is_cut or b.is_cut:
        for host in (a, b):
            host.mend()
        await_cable(a, b)


@contextlib.contextmanager
def two_hosts(seed=None):
    """The hosts; with the seed of a relay, the relay as well."""
    with contextlib.ExitStack() as stack:
        made = []
        for address in ("10.0.0.1", "10.0.0.2"):
            made.append(Host(address))
            stack.callback(made[-1].end)
        if seed is None:
            join(*made)
        else:
            relay = Relay(*made, seed)
            stack.callback(relay.end)
        bring_up(*made)
        await_cable(*made)
        yield made if seed is None else (*made, relay)


def by_tcp_alone(line):
    """What a peer says of its transports."""
    return "tcp" in line and not any(
        name in line for name in ("posix", "sysv", "cma", "xpmem", "self"))


def become(user):
    """The words before those of a program that is another user's, by number."""
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups",
            "--"] if user else []


def connect(receiving, sending, size, count, timeout_ms=-1, compute_ms=0,
            how="send", users=(0, 0)):
    """A receiver and a sender (peer.c says how), connected over the cable."""
    there = receiving.start(*become(users[0]), PEER, "recv",
                            f"tcp://{receiving.address}:0", timeout_ms,
                            compute_ms)
    here = sending.start(*become(users[1]), PEER, how, there.line(),
                         timeout_ms, compute_ms, size, count)
    for program in (there, here):
        line = program.line()
        assert by_tcp_alone(line), line
    return there, here


def await_middle(receiving, size):
    """Until half a message has come since now, of messages without end."""
    deadline = time.monotonic() + BOUND
    begin = receiving.carried()[0]
    while receiving.carried()[0] < begin + size // 2:
        assert time.monotonic() < deadline, "nothing is carried"
        time.sleep(.001)


def lost_after(program, since, timeout):
    """Seconds from `since` until the program knows that its peer is lost."""
    line, messages = program.line_with("end ", timeout)
    took = time.monotonic() - since
    assert line.startswith("end peer lost "), line
    return took, messages
