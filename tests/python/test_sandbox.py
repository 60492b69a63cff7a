# SPDX-License-Identifier: BSD-3-Clause
"""`--sandbox` of `tensormsg recv` and `tensormsg serve`: plain senders need
nothing, and whoever controls the process gets nowhere."""

import ctypes
import errno
import glob
import os
import socket
import time

import pytest

from cli import BOUND, DIGITS, DONE, FAILED, USAGE, one_line, receiver, run

# LeakSanitizer forks, and traces its parent.
NO_LEAKS = {**os.environ, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") +
            ":detect_leaks=0:verify_asan_link_order=0"}
BREAK_OUT = {**NO_LEAKS, "LD_PRELOAD": os.environ["TMSG_BREAK_OUT"]}


@pytest.fixture(scope="module", autouse=True)
def sandbox():
    said = run("serve", "--echo", "--sandbox", "--listen", "unix:///no/such",
               env=NO_LEAKS)
    for why in ("this build has none", "this kernel has no"):
        if why in said.stderr:
            pytest.skip(said.stderr)


def url_of(scheme, folder):
    return f"unix://{folder}/socket" if scheme == "unix" else \
        "tcp://127.0.0.1:0"


def tries(there, threads):
    """What came of them: a dict for each thread."""
    libc = ctypes.CDLL(None)
    for count, thread in enumerate(threads):
        assert libc.tgkill(there.process.pid, int(thread), 10) == 0
        end = time.monotonic() + BOUND
        while True:
            there.errors.seek(0)
            said = [line for line in there.errors.read().splitlines()
                    if line.startswith("tried:")]
            if len(said) > count:
                break
            assert time.monotonic() < end, "no answer"
            assert there.process.poll() is None, "it runs something else"
            time.sleep(.005)
    return [{name: int(number) for name, number in
             (word.split("=") for word in line.split()[1:])} for line in said]


@pytest.mark.parametrize("scheme", ["unix", "tcp"])
def test_a_plain_sender_is_served_and_nothing_gets_out(scheme, tmp_path):
    inside, outside = tmp_path / "in", tmp_path / "out"
    outside.mkdir()
    (outside / "old").write_text("kept")
    before = set(glob.glob("/dev/shm/tensormsg-*"))
    with socket.create_server(("127.0.0.1", 0)) as there_too, \
            socket.socket(socket.AF_UNIX) as service:
        service.bind(str(outside / "service"))
        service.listen()
        env = {**BREAK_OUT, "TMSG_INSIDE": str(inside),
               "TMSG_OUTSIDE": str(outside),
               "TMSG_UNIX": str(outside / "service"),
               "TMSG_PORT": str(there_too.getsockname()[1])}
        with receiver("--sandbox", "-l", url_of(scheme, tmp_path), "-o", inside,
                      "-n", 1, env=env) as there:
            # UCX's thread as well as the command's.
            threads = os.listdir(f"/proc/{there.process.pid}/task")
            assert len(threads) > 1
            for came_of in tries(there, threads):
                assert came_of.pop("inside") == 0
                assert len(came_of) == 21
                for name, number in came_of.items():
                    assert number in (errno.EACCES, errno.EPERM), name
            sent = run("send", there.url, DIGITS)
            code, _, errors = there.end()
    assert (sent.returncode, code) == (DONE, DONE), errors + sent.stderr
    assert sorted(os.listdir(inside)) == [DIGITS.name, "new"]
    assert (outside / "old").read_text() == "kept"
    assert sorted(os.listdir(outside)) == ["old", "service"]
    # The broker of unix:// goes last, and cleans up.
    end = time.monotonic() + BOUND
    while (tmp_path / "socket").exists() or \
            set(glob.glob("/dev/shm/tensormsg-*")) - before:
        assert time.monotonic() < end, "something was left"
        time.sleep(.01)


@pytest.mark.parametrize("scheme, how", [
    ("unix", []), ("tcp", ["--delay", .01])])  # in threads
def test_calls_are_answered(scheme, how, tmp_path):
    with receiver("--echo", "--sandbox", *how, "-l", url_of(scheme, tmp_path),
                  command="serve", env=NO_LEAKS) as there:
        assert "reply" in run("call", there.url, "echo", "x=1").stdout
        assert there.stop()[0] == DONE


def test_a_kernel_without_landlock_is_an_error(tmp_path):
    env = {**BREAK_OUT, "TMSG_LANDLOCK": "0"}
    said = run("recv", "--sandbox", "-o", tmp_path, env=env)
    assert (said.returncode, said.stdout) == (FAILED, "")
    one_line(said.stderr, "this kernel has no Landlock")


def test_what_an_older_landlock_lacks_is_said(tmp_path):
    env = {**BREAK_OUT, "TMSG_LANDLOCK": "1"}
    with receiver("--sandbox", "-o", tmp_path, "-n", 1, env=env) as there:
        assert run("send", there.url, DIGITS).returncode == DONE
        code, _, errors = there.end()
    assert code == DONE
    assert "version 1 of Landlock, with which the process may still cut " \
        "files" in errors and "bind TCP ports" in errors


def test_ucx_urls_have_none():
    said = run("recv", "--sandbox", "--listen", "ucx://127.0.0.1:0")
    assert (said.returncode, said.stdout) == (USAGE, "")
    one_line(said.stderr, "--sandbox")
