# SPDX-License-Identifier: BSD-3-Clause
"""What ends when: the commands with a peer that is mute, slow, lying, stopped or
killed, and with signals. Each row of the tables in docs/reference/exit-codes.md
is a case here.
They run side by side, because they mostly wait."""

import concurrent.futures
import contextlib
import dataclasses
import os
import pathlib
import re
import signal
import socket
import subprocess
import time

import numpy as np
import pytest

import cli
from cli import BOUND, DONE, FAILED, SOURCE, TOOL, must_send, receiver

# How a command ends is nothing that UCX has a part in.
pytestmark = pytest.mark.once

SANITIZED = bool(os.environ.get("TMSG_SANITIZE"))
TIMEOUTS = [1, 5, 20] if SANITIZED else [.6, 3, 10]  # --timeout of the cases
AT_ONCE = 10  # seconds that are none, on a machine that is busy
TIMED_OUT = 6  # exit code of `tensormsg call`
CASES = {}


def case(command, peer):
    """A case, by the first two columns of its row."""
    def note(function):
        assert (command, peer) not in CASES
        CASES[command, peer] = function
        return function
    return note


NOT_CONNECTED = re.compile("handshake was not|no connection in|no answer by U")


class Busy(Exception):
    """There was no connection in `--timeout`, because the machine is busy."""


@dataclasses.dataclass
class Ended:
    code: int
    out: str
    errors: str
    seconds: float

    def must(self, code, *parts, least=0., most=AT_ONCE):
        if self.code == FAILED and NOT_CONNECTED.search(self.errors) and \
                not any(part in self.errors for part in parts):
            raise Busy(self)
        assert self.code == code, self
        assert least <= self.seconds <= least + most, self
        for part in parts:
            assert part in self.errors, self


class Running:
    """A command, or an odd peer, in the background. Its first line of output is
    its URL, if it listens."""

    def __init__(self, stack, *words, **options):
        self.begin = time.monotonic()
        self.process = stack.enter_context(subprocess.Popen(
            [*map(str, words)], text=True, stderr=subprocess.PIPE,
            **{"stdout": subprocess.PIPE, **options}))
        stack.callback(self.kill)

    def kill(self):
        self.process.kill()

    def line(self):
        return self.process.stdout.readline().strip()

    def signal(self, number):
        self.begin = time.monotonic()
        self.process.send_signal(number)

    def end(self):
        out, errors = self.process.communicate(timeout=BOUND)
        return Ended(self.process.returncode, out, errors,
                     time.monotonic() - self.begin)


class Stage:
    """What a case may use."""

    def __init__(self, stack, folder, t):
        self.stack = stack
        self.t = t
        self.folder = folder
        self.file = folder / "a.npy"

    def tool(self, *words, **options):
        return Running(self.stack, TOOL, *words, **options)

    def odd(self, mode, *url, **options):
        """An odd peer: with a URL one that connects, else its URL is `url`."""
        it = Running(self.stack, os.environ["TMSG_ODD_PEER"], mode, *url,
                     **options)
        it.url = it.line() if not url else url[0]
        return it

    def recv(self, *words):
        """A receiver, with its URL."""
        it = self.tool("recv", "-o", self.folder / "out", *words)
        it.url = it.line()
        return it

    def send(self, url, *files, timeout=None):
        return self.tool("send", "-t", timeout or self.t, url, *(files or [self.file]))

    def silence(self):
        """A port where somebody listens and says nothing."""
        server = self.stack.enter_context(
            socket.create_server(("127.0.0.1", 0)))
        server.settimeout(BOUND)
        return server, "tcp://127.0.0.1:%d" % server.getsockname()[1]

    def stopped(self, *words):
        """A command that listens, and was stopped."""
        it = self.tool(*words)
        it.url = it.line()
        it.process.send_signal(signal.SIGSTOP)
        return it


def perf(stage, url, *words, timeout=None, **options):
    return stage.tool("perf", "-b", 64, "-T", 1, "--seconds", .1, "-m",
                      "latency", "-t", timeout or stage.t, *words, url,
                      **options)


# --- send ---

@case("`send`", "says nothing to the connection")
def _(stage):
    _, url = stage.silence()
    stage.send(url).end().must(FAILED, url, "in time", least=stage.t)


@case("`send`", "is stopped")
def _(stage):
    url = stage.stopped("recv").url
    stage.send(url).end().must(FAILED, "in time", least=stage.t)


@case("`send`", "is mute after the offer")
def _(stage):
    url = stage.odd("mute").url
    stage.send(url).end().must(FAILED, "in time", least=stage.t)


@case("`send`", "is mute after `go`")
def _(stage):
    url = stage.odd("go-mute").url
    stage.send(url).end().must(FAILED, "in time", least=stage.t)


@case("`send`", "says `alive` and never `go`")
def _(stage):
    url = stage.odd("alive").url
    stage.send(url).end().must(FAILED, "in time", least=stage.t)


@case("`send`", "says other words, however many")
def _(stage):
    ours = [stage.send(stage.odd(mode).url) for mode in ("noise", "go")]
    for it in ours:
        it.end().must(FAILED, "in time", least=stage.t)


@case("`send`", "says `alive` while it works on the file")
def _(stage):
    """As a receiver does whose disk is slow. The user ends it."""
    it = stage.send(stage.odd("works").url)
    with pytest.raises(subprocess.TimeoutExpired):
        it.process.wait(2 * stage.t)
    it.signal(signal.SIGTERM)
    it.end().must(-signal.SIGTERM)


@case("`send`", "leaves before `done`")
def _(stage):
    url = stage.odd("leaves").url
    stage.send(url, timeout=BOUND).end().must(FAILED, "ended first")


@case("`send`", "is killed")
def _(stage):
    there = stage.odd("mute")
    it = stage.send(there.url, timeout=BOUND)
    assert there.line() == "mute"
    there.kill()
    it.end().must(FAILED, "a.npy")


@case("`send`", "is mute after `done`")
def _(stage):
    url = stage.odd("done-mute").url
    stage.send(url).end().must(DONE, least=stage.t)


# --- recv ---

@case("`recv`", "connects and says nothing")
def _(stage):
    it = stage.recv()
    host, port = it.url.removeprefix("tcp://").rsplit(":", 1)
    stage.stack.enter_context(socket.create_connection((host, int(port))))
    it.signal(signal.SIGTERM)
    it.end().must(DONE)


@case("`recv`", "is mute")
def _(stage):
    """A signal ends it, and waits for the peer's goodbye for 3 s."""
    it = stage.recv()
    there = stage.odd("dial-mute", it.url)
    assert there.line() == "mute"
    it.signal(signal.SIGTERM)
    it.end().must(DONE, least=3)


@case("`recv`", "is mute, and a second signal comes")
def _(stage):
    it = stage.recv()
    there = stage.odd("dial-mute", it.url)
    assert there.line() == "mute"
    it.process.send_signal(signal.SIGINT)
    time.sleep(.5)
    it.signal(signal.SIGINT)
    it.end().must(-signal.SIGINT, most=2)


@case("`recv`", "offers 100 files that are refused")
def _(stage):
    it = stage.recv()
    assert stage.odd("dial-refused", it.url).end().code == 0
    it.signal(signal.SIGTERM)
    ended = it.end()
    ended.must(DONE, "and 80 more refused")
    assert ended.errors.count("\n") == 21, ended


@case("`recv`", "offers without a pause")
def _(stage):
    """Those who connected before it, and later, have their turns."""
    it = stage.recv()
    first = stage.odd("dial-idle", it.url)
    assert first.line() == "idle"
    assert stage.odd("dial-flood", it.url).line() == "flood"
    stage.send(it.url, timeout=BOUND).end().must(DONE)
    it.signal(signal.SIGTERM)
    it.end().must(DONE, "more refused")


@case("`recv`", "nobody reads standard output")
def _(stage):
    """The pipe is full: not even the URL can be said."""
    reads, writes = os.pipe()
    stage.stack.callback(os.close, reads)
    os.set_blocking(writes, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writes, bytes(4096))
    os.set_blocking(writes, True)
    it = stage.tool("recv", "--json", stdout=writes)
    os.close(writes)
    while not any("socket:" in name for name in descriptors(it.process)):
        time.sleep(.01)
    it.signal(signal.SIGTERM)
    it.end().must(FAILED, "standard output: it is not being read")


def descriptors(process):
    folder = pathlib.Path(f"/proc/{process.pid}/fd")
    names = []
    for entry in folder.iterdir():
        with contextlib.suppress(OSError):
            names.append(os.readlink(entry))
    return names


@case("`recv -n`", "offers a file and is mute")
def _(stage):
    it = stage.recv("-n", 1, "-t", stage.t)
    stage.odd("dial-mute", it.url)
    it.end().must(FAILED, "did not come in time", "0 of 1 maps came, and",
                  least=2 * stage.t)


@case("`recv -n`", "offers a file and never sends it")
def _(stage):
    it = stage.recv("-n", 1, "-t", stage.t)
    stage.odd("dial-offers", it.url)
    it.end().must(FAILED, "did not come in time", least=2 * stage.t)


@case("`recv -n`", "sends a file and never says that it is whole")
def _(stage):
    it = stage.recv("-n", 1, "-t", stage.t)
    stage.odd("dial-without-verdict", it.url)
    it.end().must(FAILED, "did not come in time", least=2 * stage.t)
    assert os.listdir(stage.folder / "out") == []


@case("`recv -n`", "offers a file and leaves")
def _(stage):
    it = stage.recv("-n", 1, "-t", stage.t)
    stage.odd("dial-and-leave", it.url)
    it.end().must(FAILED, "'a.npy' did not arrive", least=stage.t)


@case("`recv -n`", "offers a file and is killed")
def _(stage):
    """It says so at once, and how long it waits."""
    it = stage.recv("-n", 1, "-t", BOUND)
    there = stage.odd("dial-offers", it.url)
    assert there.line() == "go"
    there.kill()
    begin = time.monotonic()
    said = [it.process.stderr.readline() for _ in range(2)]
    assert time.monotonic() - begin < AT_ONCE
    assert "'a.npy' did not arrive" in said[0]
    assert f"another sender may come within {BOUND} s" in said[1]
    must_send(it.url, stage.file)
    it.end().must(DONE)


@case("`recv -n`", "sends a file that is lost, and another")
def _(stage):
    """The first file does not fit into what memory there may be."""
    large = stage.folder / "large.npy"
    np.lib.format.open_memmap(large, "w+", np.uint8, (40 << 20,))
    full = stage.tool("recv", "-n", 2, "-t", stage.t, "-o", stage.folder / "out",
                      preexec_fn=lambda: limit_files(32 << 20))
    url = full.line()
    assert stage.send(url, large, stage.file, timeout=20).end().code == FAILED
    full.end().must(FAILED, "1 of 2 maps came, and no other", least=stage.t)


def limit_files(most):
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


@case("`recv -n`", "sends a file that is refused; another only looks")
def _(stage):
    """Who connects and sends nothing is no other sender."""
    it = stage.recv("-n", 1, "-t", stage.t)
    (stage.folder / "out" / "a.npy").write_text("mine")
    assert stage.send(it.url).end().code == FAILED
    stage.tool("info", it.url).end()
    it.end().must(FAILED, "0 of 1 maps came, and no other", least=stage.t)


@case("`recv -n`", "sends more bytes than it offered")
def _(stage):
    it = stage.recv("-n", 1, "-t", BOUND)
    stage.odd("dial-more", it.url)
    it.end().must(DONE)
    assert np.load(stage.folder / "out" / "a.npy").shape == (20000,)


@case("`recv -n`", "connects and offers nothing")
def _(stage):
    it = stage.recv("-n", 1, "-t", stage.t)
    there = stage.odd("dial-idle", it.url)
    assert there.line() == "idle"
    with pytest.raises(subprocess.TimeoutExpired):
        it.process.wait(2 * stage.t)
    it.signal(signal.SIGTERM)
    it.end().must(FAILED, "stopped when 0 of 1 maps had come")


# --- call and serve ---

@case("`call`", "says nothing to the connection")
def _(stage):
    _, url = stage.silence()
    stage.tool("call", "-t", stage.t, url, "m").end().must(FAILED, "in time",
                                                     least=stage.t)


@case("`call`", "is mute")
def _(stage):
    url = stage.odd("live").url
    stage.tool("call", "-t", stage.t, url, "mute").end().must(TIMED_OUT, least=stage.t)


@case("`call`", "takes the call and never replies")
def _(stage):
    url = stage.odd("live").url
    stage.tool("call", "-t", stage.t, url, "never").end().must(TIMED_OUT, least=stage.t)


@case("`call`", "is killed")
def _(stage):
    there = stage.odd("live")
    it = stage.tool("call", "-t", BOUND, there.url, "mute")
    assert there.line() == "mute"
    there.kill()
    it.end().must(FAILED)


@case("`call --list`", "is mute")
def _(stage):
    for what in "--list", "--health":
        url = stage.odd("mute-at-once").url
        stage.tool("call", "-t", stage.t, url, what).end().must(TIMED_OUT, least=stage.t)


@case("`health`", "says nothing to the connection")
def _(stage):
    _, url = stage.silence()
    stage.tool("health", "-t", stage.t, url).end().must(FAILED, "in time",
                                                       least=stage.t)


@case("`health`", "is mute")
def _(stage):
    for what in "--ready", "--live":
        url = stage.odd("mute-at-once").url
        stage.tool("health", what, "-t", stage.t, url).end().must(
            TIMED_OUT, least=stage.t * .5)


def under_way(stage, *how):
    """A server with a call that has begun, of a map that does not go at once."""
    np.save(stage.file, np.arange(3_000_000))
    it = stage.tool("serve", "--echo", *how)
    it.url = it.line()
    it.call = stage.tool("call", "-t", BOUND, it.url, "echo", f"x={stage.file}")
    cli.wait_until_mapped(it.call.process, stage.file)
    time.sleep(stage.t)
    return it


def begun(ended):
    """How a call has ended that is to have begun."""
    if "no handler saw" in ended.errors or "broke" in ended.errors:
        raise Busy(ended)
    return ended


@case("`serve`", "waits for a reply")
def _(stage):
    it = under_way(stage, "--delay", 2 * stage.t + 1)
    it.signal(signal.SIGTERM)
    end = time.monotonic() + BOUND
    while (asked := stage.tool("health", "--ready", it.url).end()).out == \
            "SERVING\n":
        assert time.monotonic() < end
    if asked.code == FAILED:  # there was no call to wait for
        raise Busy(asked)
    assert (asked.code, asked.out) == (7, "DRAINING\n")
    stage.tool("call", it.url, "echo", "x=1").end().must(7, "being shut down")
    stage.tool("health", "--live", it.url).end().must(DONE)
    begun(it.call.end()).must(DONE)
    it.end().must(DONE)


@case("`serve`", "waits for a reply that takes longer than `--grace`")
def _(stage):
    it = under_way(stage, "--delay", BOUND, "--grace", .5)
    it.signal(signal.SIGTERM)
    ended = it.end()
    begun(it.call.end()).must(7, "the server was shut down")
    ended.must(8, "0.5 s after the signal calls were under way", least=.5)


@case("`serve`", "waits for a reply, and a second signal comes")
def _(stage):
    it = under_way(stage, "--delay", BOUND)
    it.signal(signal.SIGTERM)
    time.sleep(.3)
    it.signal(signal.SIGTERM)
    ended = it.end()
    if ended.code == DONE:  # there was no call to wait for
        raise Busy(ended)
    ended.must(-signal.SIGTERM)
    it.call.end().must(FAILED)


@case("`serve`", "is mute")
def _(stage):
    it = stage.tool("serve", "--echo")
    there = stage.odd("dial-idle", it.line())
    assert there.line() == "idle"
    there.process.send_signal(signal.SIGSTOP)
    it.signal(signal.SIGTERM)
    it.end().must(DONE)


@case("`serve`", "is idle, and lives")
def _(stage):
    """Its goodbye is not waited for longer than it takes."""
    it = stage.tool("serve", "--echo")
    there = stage.odd("dial-idle", it.line())
    assert there.line() == "idle"
    it.signal(signal.SIGTERM)
    it.end().must(DONE, most=2)


# --- info ---

@case("`info`", "says nothing to the connection")
def _(stage):
    _, url = stage.silence()
    stage.tool("info", "-t", stage.t, url).end().must(FAILED, "in time", least=stage.t)


@case("`info`", "is mute")
def _(stage):
    """What is known without an answer is printed."""
    url = stage.odd("mute-at-once").url
    ended = stage.tool("info", "-t", stage.t, url).end()
    ended.must(DONE, least=stage.t)
    assert "transports" in ended.out


# --- perf ---

@case("`perf`", "says nothing to the connection")
def _(stage):
    _, url = stage.silence()
    perf(stage, url).end().must(FAILED, "in time", least=stage.t)


@case("`perf`", "is mute")
def _(stage):
    # The signs of life are too many for a pause to be noticed.
    env = {**os.environ, "TENSORMSG_PEER_TIMEOUT_MS": "3000"}
    ours = [perf(stage, stage.odd(mode, env=env).url, *words, env=env)
            for mode, *words in (["mute"], ["echo-mute", "--seconds", BOUND],
                                 ["mute", "--sleep"],
                                 ["mute", "-m", "bandwidth"])]
    for it in ours:
        it.end().must(FAILED, f"nothing came back for {stage.t} s", least=stage.t)


@case("`perf`", "returns more messages than it got, and never says how many")
def _(stage):
    url = stage.odd("twice").url
    perf(stage, url).end().must(FAILED, least=stage.t)


@case("`perf`", "is killed")
def _(stage):
    there = stage.odd("mute")
    it = perf(stage, there.url, timeout=BOUND)
    assert there.line() == "mute"
    there.kill()
    it.end().must(FAILED, there.url)


@case("`perf`", "is mute, and a signal comes")
def _(stage):
    for number in signal.SIGTERM, signal.SIGINT:
        there = stage.odd("mute")
        it = perf(stage, there.url, timeout=BOUND)
        assert there.line() == "mute"
        it.signal(number)
        it.end().must(FAILED, "a signal came", least=.5)


@case("`perf`", "says nothing to the connection, and a signal comes")
def _(stage):
    server, url = stage.silence()
    it = perf(stage, url, timeout=BOUND)
    server.accept()
    it.signal(signal.SIGTERM)
    it.end().must(FAILED, "a signal came")


@case("`perf`", "is its own process, which is stopped, and a signal comes")
def _(stage):
    it = stage.tool("perf", "--seconds", BOUND, "-b", 64, "-t", BOUND)
    stage.stack.callback(it.kill)
    assert "shm" in it.line() or "tcp" in it.line()
    children = pathlib.Path(
        f"/proc/{it.process.pid}/task/{it.process.pid}/children").read_text()
    os.kill(int(children), signal.SIGSTOP)
    it.signal(signal.SIGTERM)
    it.end().must(FAILED, "a signal came")
    assert not pathlib.Path(f"/proc/{int(children)}").exists()


@case("`perf --tune`", "is mute")
def _(stage):
    url = stage.odd("mute").url
    stage.tool("perf", "--tune", "--quick", "-t", stage.t, url).end().must(
        FAILED, f"nothing came back for {stage.t} s", least=stage.t)


@case("`perf --tune`", "is mute, and a signal comes")
def _(stage):
    there = stage.odd("mute")
    it = stage.tool("perf", "--tune", "-t", BOUND, there.url)
    assert there.line() == "mute"
    it.signal(signal.SIGTERM)
    it.end().must(-signal.SIGTERM)


@case("`perf --listen`", "is mute")
def _(stage):
    it = stage.tool("perf", "--listen", "tcp://127.0.0.1:0")
    there = stage.odd("dial-idle", it.line())
    assert there.line() == "idle"
    there.process.send_signal(signal.SIGSTOP)
    it.signal(signal.SIGTERM)
    it.end().must(DONE)


# --- all of them ---

@pytest.fixture(scope="module")
def ends(tmp_path_factory):
    """What became of each case."""
    base = tmp_path_factory.mktemp("ends")

    def run(function, number):
        for t in TIMEOUTS:
            folder = base / f"{number}-{t}"
            folder.mkdir()
            np.save(folder / "a.npy", np.arange(10.))
            with contextlib.suppress(Busy), contextlib.ExitStack() as stack:
                return function(Stage(stack, folder, t))
        raise Busy

    with concurrent.futures.ThreadPoolExecutor(8 if SANITIZED else 16) as pool:
        yield {key: pool.submit(run, function, i)
               for i, (key, function) in enumerate(CASES.items())}


@pytest.mark.parametrize("key", CASES, ids=": ".join)
def test_it_ends(ends, key):
    ends[key].result(2 * BOUND)


def test_every_row_is_a_case():
    rows = re.findall(r"^\| (`[^|]*`) \| ([^|]*) \|",
                      (SOURCE / "docs/reference/exit-codes.md").read_text(), re.M)
    assert sorted(rows) == sorted(CASES)
