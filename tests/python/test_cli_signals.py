# SPDX-License-Identifier: BSD-3-Clause
"""The command `tensormsg` when it is interrupted, in each of its phases, and
when the other side says nothing for longer than --timeout."""

import contextlib
import os
import signal
import socket
import subprocess
import time

import numpy as np
import pytest

import cli
from cli import (BOUND, DIGITS, DONE, FAILED, TOOL, must_send, one_line,
                 receiver, run)

ENDING = [signal.SIGINT, signal.SIGTERM]


@contextlib.contextmanager
def sender(*words):
    """`tensormsg send` in the background, which does not outlive the test."""
    with subprocess.Popen([TOOL, "send", *map(str, words)], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as it:
        try:
            yield it
        finally:
            it.kill()


@contextlib.contextmanager
def silence():
    """A port where somebody listens and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(BOUND)
        yield server, "tcp://127.0.0.1:%d" % server.getsockname()[1]


def wait_for(condition, what):
    deadline = time.monotonic() + BOUND
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(.001)


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_ends_a_sender_that_connects(number):
    with silence() as (server, url), sender(url, DIGITS) as it:
        peer, _ = server.accept()
        it.send_signal(number)
        assert it.wait(BOUND) == -number
        assert (it.stdout.read(), it.stderr.read()) == ("", "")
        peer.close()


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_ends_a_sender_that_waits(tmp_path, number):
    """The receiver hears of it, keeps nothing, and serves the next."""
    out = tmp_path / "out"
    with receiver("-o", out) as there:
        there.process.send_signal(signal.SIGSTOP)
        with sender(there.url, DIGITS) as it:
            wait_for(lambda: has_socket(it.pid), "it does not dial")
            it.send_signal(number)
            assert it.wait(BOUND) == -number
        there.process.send_signal(signal.SIGCONT)
        must_send(there.url, DIGITS)
        assert there.stop()[0] == DONE
    assert os.listdir(out) == [DIGITS.name]


def has_socket(pid):
    with contextlib.suppress(OSError):
        return any(os.readlink(f"/proc/{pid}/fd/{fd}").startswith("socket:")
                   for fd in os.listdir(f"/proc/{pid}/fd"))
    return False


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_removes_the_socket_file(tmp_path, number):
    path = tmp_path / "socket"
    with receiver("--listen", f"unix://{path}") as there:
        assert path.exists()
        there.process.send_signal(number)
        assert there.end()[0] == DONE
    assert not path.exists()


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_between_two_maps_keeps_the_first(tmp_path, number):
    with receiver("-o", tmp_path / "out", "-n", 2) as there:
        must_send(there.url, DIGITS)
        there.process.send_signal(number)
        code, _, errors = there.end()
    assert code == FAILED
    one_line(errors, "stopped when 1 of 2 maps had come")
    assert os.listdir(tmp_path / "out") == [DIGITS.name]


def test_a_connection_that_is_idle_does_not_hold_up_the_end():
    with receiver() as there:
        host, port = there.url.removeprefix("tcp://").rsplit(":", 1)
        with socket.create_connection((host, int(port))):
            assert there.stop()[0] == DONE


# --- --timeout ---

def test_info_gives_up_in_time():
    with silence() as (_, url):
        begin = time.monotonic()
        said = run("info", "--timeout", .5, url)
        assert time.monotonic() - begin > .5
    assert said.returncode == FAILED
    one_line(said.stderr, url, "in time")


def test_a_receiver_without_failure_waits_longer_than_its_timeout(tmp_path):
    """The timeout is for another sender when one has failed, and no other."""
    with receiver("-o", tmp_path / "out", "-n", 1, "-t", .2) as there:
        with pytest.raises(subprocess.TimeoutExpired):
            there.process.wait(1)
        must_send(there.url, DIGITS)
        assert there.end()[0] == DONE


def test_a_receiver_gives_up_after_a_refusal(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / DIGITS.name).write_text("mine")
    with receiver("-o", out, "-n", 1, "-t", .2) as there:
        assert run("send", there.url, DIGITS).returncode == FAILED
        code, _, errors = there.end()
    assert code == FAILED
    assert "exists" in errors and "0 of 1 maps came" in errors
    assert (out / DIGITS.name).read_text() == "mine"
