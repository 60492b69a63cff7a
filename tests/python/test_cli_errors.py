# SPDX-License-Identifier: BSD-3-Clause
# ctest: twice in soak
"""The command `tensormsg` when something is wrong: exit codes 2 (usage, input
files) and 1 (transfers), one line that says what, and nothing left behind."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
import zipfile

import numpy as np
import pytest

import cli
from cli import (BOUND, DIGITS, DONE, FAILED, HELLO, TOOL, USAGE,
                 assert_same_safetensors, must_send, one_line, receiver, run)

# numpy warns of ml_dtypes that it could not load again
pytestmark = pytest.mark.filterwarnings("ignore:Custom dtypes")


@pytest.fixture
def sample(tmp_path):
    return cli.make_sample(tmp_path)


# --- bad usage: exit code 2 ---

@pytest.mark.once
@pytest.mark.parametrize("words, part", [
    ([], "usage"),
    (["fly"], "fly"),
    (["recv", "--count", "0"], "'0'"),
    (["recv", "--count", "-1"], "'-1'"),
    (["recv", "--count", "many"], "'many'"),
    (["recv", "--timeout", "soon"], "'soon'"),
    (["recv", "--timeout", "nan"], "'nan'"),
    (["recv", "--count", "99999999999"], "'99999999999'"),
    (["recv", "--count", "3x"], "'3x'"),
    (["recv", "--count", ""], "''"),
    (["recv", "--timeout", "0"], "'0'"),
    (["recv", "--timeout", "-1"], "'-1'"),
    (["recv", "--timeout", "inf"], "'inf'"),
    (["recv", "--out"], "out"),
    (["send", "--timeout", "1s", "tcp://localhost:1", DIGITS], "'1s'"),
    (["send", "--out", "x", "tcp://localhost:1", DIGITS], "--out"),
    (["info", "--timeout", "never"], "'never'"),
    (["dump", "--json", DIGITS], "--json"),
    (["recv", "--fast"], "--fast"),
    (["recv", "a.npz"], "a.npz"),
    (["recv", "--listen", "http://localhost"], "http://localhost"),
    (["recv", "--listen", "tcp://localhost:99999"], "99999"),
    (["recv", "--listen", "tcp://0.0.0.0:0"], "--allow-unauthenticated"),
    (["recv", "--listen", "blob://"], "blob://"),
    (["recv", "--out", "/dev/null"], "/dev/null"),
    (["recv", "--out", "/nowhere/at/all"], "/nowhere/at/all"),
    (["recv", "--capture", "/dev/null"], "/dev/null"),
    (["send"], "URL"),
    (["send", "tcp://localhost:1"], "FILE"),
    (["send", "http://localhost", DIGITS], "http://localhost"),
    (["send", "tcp://localhost:1", "/nowhere.npz"], "/nowhere.npz"),
    (["send", "tcp://localhost:1", "/dev/null"], "/dev/null"),
    (["send", "tcp://localhost:1", DIGITS.parent], str(DIGITS.parent)),
    (["info", "what://"], "what://"),
    (["info", "tcp://localhost:1", "more"], "'more'"),
    (["info", "--all"], "a URL"),
    (["info", "--connect", "tcp://localhost:1"],
     "tensormsg info tcp://localhost:1"),
    (["info", "-c", "tcp://localhost:1"], "tensormsg info tcp://localhost:1"),
    (["call", "--connect", "tcp://localhost:1"],
     "tensormsg call tcp://localhost:1"),
    (["serve"], "--echo"),
    (["serve", "--echo", "more"], "'more'"),
    (["serve", "--echo", "--listen", "blob://"], "blob://"),
    (["serve", "--echo", "--listen", "ucx://127.0.0.1:0"], "ucx://"),
    (["serve", "--echo", "--listen", "tcp://0.0.0.0:0"],
     "--allow-unauthenticated"),
    (["call"], "URL"),
    (["call", "tcp://localhost:1"], "METHOD"),
    (["call", "tcp://localhost:1", "m", "--list"], "--list"),
    (["call", "tcp://localhost:1", "m", "x=1", "--health"], "x=1"),
    (["call", "tcp://localhost:1", "--health", "--list"], "exclude each other"),
    (["call", "tcp://localhost:1", "m", "--out", "/dev/null"], "/dev/null"),
    (["dump"], "FILE"),
    (["dump", DIGITS, DIGITS], "digits.npz"),
    (["dump", "/nowhere.npz"], "/nowhere.npz"),
    (["dump", "/nowhere.tmsg"], "/nowhere.tmsg"),
    (["dump", "--table", "/nowhere.tmsg"], "--table"),
])
def test_bad_usage(words, part):
    said = run(*words)
    assert said.returncode == USAGE
    assert said.stdout == "" and part in said.stderr


def npy(header):
    data = header.encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(data)) + data


def st(header, data=b""):
    text = header.encode()
    return struct.pack("<Q", len(text)) + text + data


F4 = '{"dtype":"F32","shape":[1],"data_offsets":[%d,%d]}'
BAD_FILES = {
    "huge_header.safetensors": (struct.pack("<Q", 1 << 60) + b"{}", "header"),
    "short.safetensors": (b"\0\0", "bytes"),
    "no_json.safetensors": (st("nonsense"), "header"),
    "outside.safetensors": (st('{"a":%s}' % (F4 % (0, 4))), "'a'"),
    "overlap.safetensors": (
        st('{"a":%s,"b":%s}' % (F4 % (0, 4), F4 % (0, 4)), bytes(8)), "'b'"),
    "twice.safetensors": (
        st('{"a":%s,"a":%s}' % (F4 % (0, 4), F4 % (4, 8)), bytes(8)), "'a'"),
    "hole.safetensors": (
        st('{"a":%s,"b":%s}' % (F4 % (0, 4), F4 % (8, 12)), bytes(12)), "'b'"),
    "overflow.safetensors": (
        st('{"a":{"dtype":"F64","shape":[4294967296,4294967296,4294967296],'
           '"data_offsets":[0,8]}}', bytes(8)), "'a'"),
    "not_utf8.safetensors": (
        struct.pack("<Q", 9) + b'{"\xff\xfe":1}', "not_utf8"),
    "truncated.npy": (
        npy("{'descr': '<f8', 'fortran_order': False, 'shape': (9,), }\n"),
        "truncated.npy"),
    "object.npy": (
        npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }\n"),
        "O"),
    "string.npy": (
        npy("{'descr': '<U3', 'fortran_order': False, 'shape': (0,), }\n"),
        "U3"),
    "magic.npy": (b"\x93NUMPX\x01\x00", "magic.npy"),
    "no_zip.npz": (b"PK\x03\x04nothing", "no_zip.npz"),
    "header.tmsg": (b"TM\x00\x21", "header.tmsg"),
    "unknown.xyz": (b"", "unknown.xyz"),
}


@pytest.mark.once
@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_one_line_and_2(tmp_path, name):
    data, part = BAD_FILES[name]
    path = tmp_path / name
    path.write_bytes(data)
    dumped = run("dump", path)
    assert (dumped.returncode, dumped.stdout) == (USAGE, "")
    one_line(dumped.stderr, name, part)
    sent = run("send", "tcp://localhost:1", DIGITS, path)
    assert (sent.returncode, sent.stdout) == (USAGE, "")
    one_line(sent.stderr, name)


@pytest.mark.once
def test_one_bad_file_and_nothing_is_written(tmp_path, sample):
    (tmp_path / "bad.npy").write_bytes(b"nothing")
    with receiver("-o", tmp_path / "out") as there:
        assert run("send", there.url, sample,
                   tmp_path / "bad.npy").returncode == USAGE
        assert there.stop() == (DONE, "", "")
    assert os.listdir(tmp_path / "out") == []


@pytest.mark.once
def test_a_zip_bomb_is_refused_in_little_memory(tmp_path):
    data = npy("{'descr': '|u1', 'fortran_order': False, "
               "'shape': (4398046511104,), }\n")
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w",
                         zipfile.ZIP_DEFLATED) as bomb:
        with bomb.open("a.npy", "w") as member:
            member.write(data + bytes(64 << 20))
    said = run("dump", tmp_path / "bomb.npz", timeout=10)
    assert said.returncode == USAGE
    one_line(said.stderr, "bomb.npz")


@pytest.mark.once
def test_a_header_that_is_none(tmp_path):
    folder = tmp_path / "folder.tmsg"
    folder.mkdir()
    empty = tmp_path / "empty.tmsg"
    empty.touch()
    for path in (folder, empty):
        said = run("dump", path)
        assert (said.returncode, said.stdout) == (USAGE, "")
        one_line(said.stderr, path.name)


@pytest.mark.once
def test_a_captured_header_that_is_cut_anywhere(tmp_path, sample):
    with receiver("--capture", tmp_path, "-n", 1) as there:
        must_send(there.url, sample)
        assert there.end()[0] == DONE
    whole = (tmp_path / "header-000001.tmsg").read_bytes()
    assert run("dump", tmp_path / "header-000001.tmsg").returncode == DONE
    for bytes in (1, 7, len(whole) // 2, len(whole) - 1):
        path = tmp_path / f"{bytes}.tmsg"
        path.write_bytes(whole[:bytes])
        said = run("dump", path)
        assert (said.returncode, said.stdout) == (USAGE, "")
        one_line(said.stderr, path.name)


# --- failed transfers: exit code 1 ---

def test_nobody_listens(sample):
    url = f"tcp://127.0.0.1:{cli.free_port()}"
    for words in (["send", url, sample], ["info", url]):
        said = run(*words)
        assert said.returncode == FAILED
        assert said.stdout == ""
        one_line(said.stderr, url, "refused")


@pytest.mark.once
def test_nobody_listens_in_time(tmp_path, sample):
    url = f"unix://{tmp_path}/none"
    for words in (["send", url, sample], ["call", url, "echo"], ["info", url]):
        said = run(*words, "--wait", "--timeout", ".2")
        assert (said.returncode, said.stdout) == (FAILED, "")
        one_line(said.stderr, url, "nobody listened for ", "No such file")
    said = run("perf", "--wait")
    assert (said.returncode, said.stdout) == (USAGE, "")
    one_line(said.stderr, "--wait goes with a URL")


@pytest.mark.once
def test_no_such_socket(tmp_path, sample):
    said = run("send", f"unix://{tmp_path}/none", sample)
    assert said.returncode == FAILED
    one_line(said.stderr, f"{tmp_path}/none")


@pytest.mark.once
def test_host_not_found(sample):
    said = run("send", "tcp://no.such.host.invalid:1", sample)
    assert said.returncode == FAILED
    one_line(said.stderr, "no.such.host.invalid")
    said = run("recv", "--listen", "tcp://no.such.host.invalid:1")
    assert (said.returncode, said.stdout) == (FAILED, "")
    one_line(said.stderr, "no.such.host.invalid")


def test_the_port_is_in_use(tmp_path):
    for listen in ("tcp://127.0.0.1:0", f"unix://{tmp_path}/socket"):
        with receiver("--listen", listen) as there:
            said = run("recv", "--listen", there.url)
            assert (said.returncode, said.stdout) == (FAILED, "")
            one_line(said.stderr, there.url, "in use")
            assert there.stop()[0] == DONE


@pytest.mark.once
@pytest.mark.skipif(not cli.UCX_1_22, reason="needs a second UCX")
@pytest.mark.parametrize("new", [True, False])
def test_another_ucx(sample, new):
    with receiver(env=cli.on_ucx(new)) as there:
        said = run("send", there.url, sample, env=cli.on_ucx(not new))
        assert said.returncode == FAILED
        one_line(said.stderr, "1.22", "1.13")
        code, _, errors = there.stop()
    assert code == DONE
    one_line(errors, "1.22", "1.13")


def test_somebody_else_listens(sample):
    """Silence, and another protocol: both end in bounded time."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = "tcp://127.0.0.1:%d" % server.getsockname()[1]
        said = run("send", "--timeout", 1, url, sample)
        assert said.returncode == FAILED
        one_line(said.stderr, url, "in time")
        with subprocess.Popen([TOOL, "send", url, str(sample)],
                              stderr=subprocess.PIPE, text=True) as sender:
            for _ in range(2):  # the one that gave up is still in the queue
                peer, _ = server.accept()
                peer.sendall(b"220 mail.example.org ESMTP\r\n")
            assert sender.wait(BOUND) == FAILED
            one_line(sender.stderr.read(), url)
            peer.close()


def test_a_program_that_is_no_receiver(sample):
    """hello misses its image in what comes, and ends at once, so what it
    leaves to the system is no leak."""
    no_leaks = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") +
                ":detect_leaks=0"}
    with cli.alone("examples/hello.c"), subprocess.Popen(  # it has one port
            [HELLO], stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **no_leaks}) as hello:
        try:
            url = "tcp://127.0.0.1:13337"
            deadline = time.monotonic() + BOUND
            while (said := run("send", "-t", 30, url, sample)).stderr.count(
                    "Connection refused"):
                assert hello.poll() is None and time.monotonic() < deadline
        finally:
            hello.kill()
    assert said.returncode == FAILED
    one_line(said.stderr, str(sample))


def test_a_stopped_receiver_is_given_up(sample):
    with receiver() as there:
        there.process.send_signal(signal.SIGSTOP)
        said = run("send", "--timeout", 1, there.url, sample)
        there.process.send_signal(signal.SIGCONT)
        assert said.returncode == FAILED
        one_line(said.stderr, there.url, "in time")
        must_send(there.url, sample)
        assert there.stop()[0] == DONE


def test_a_slow_sender_does_not_call_its_receiver_silent(tmp_path):
    """15 MiB as a scatter list, which UCX writes over tcp in one call while the
    receiver keeps up: longer than the sender's patience, and it hears nothing
    meanwhile."""
    path, out = tmp_path / "slow.npz", tmp_path / "out"
    np.savez(path, **{f"t{i}": np.full((1 << 20) + 4, i, np.uint8)
                      for i in range(15)})
    env = {**os.environ, "UCX_TLS": "tcp"}
    slow = {**env, "LD_PRELOAD": os.environ["TMSG_SLOW_SENDS"],
            "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") +
            ":verify_asan_link_order=0"}
    with receiver("-o", out, env=env) as there:
        sent = run("send", "-t", 2, "--json", there.url, path, env=slow)
        assert (sent.returncode, sent.stderr) == (DONE, "")
        assert there.stop()[0] == DONE
    told = json.loads(sent.stdout)
    assert "tcp" in told["transports"] and told["seconds_moved"] > 2
    assert os.listdir(out) == [path.name]


@pytest.fixture
def large(tmp_path):
    """40 MiB that take no disk: too much for one piece, and for memory."""
    path = tmp_path / "large.npy"
    array = np.lib.format.open_memmap(path, "w+", np.uint8, (40 << 20,))
    del array
    return path


@pytest.fixture(params=["tcp", "posix,cma,self"])
def half_way(request):
    """Environments of a sender and of a receiver that stops itself after 8 of
    the 40 MiB: whatever is done to either is then done in the middle."""
    if "cma" in request.param and "cma" not in str(
            json.loads(run("info", "--json").stdout)["transports"]):
        pytest.skip("no CMA on this machine")
    plain = {**os.environ, "UCX_TLS": request.param,
             # through a ring nothing comes that a call of the kernel's brings
             "TENSORMSG_THRESHOLDS": "shm.bulk_bytes=never"}
    return plain, {**plain, "LD_PRELOAD": os.environ["TMSG_STOP_HALF_WAY"],
                   "TMSG_STOP_AFTER": str(8 << 20),
                   "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") +
                   ":verify_asan_link_order=0"}


@contextlib.contextmanager
def caught_half_way(half_way, large, out, *words, patience=10):
    """A receiver that has stopped half-way, its sender, and a way on."""
    with receiver("-o", out, *words, env=half_way[1]) as there, \
            subprocess.Popen([TOOL, "send", "-t", str(patience), there.url,
                              large], stderr=subprocess.PIPE, text=True,
                             env=half_way[0]) as sender:
        try:
            cli.wait_until_stopped(there.process)
            maps = pathlib.Path(f"/proc/{there.process.pid}/maps").read_text()
            assert f"{out}/" in maps  # the payload has come in part
            assert os.listdir(out) == []
            assert sender.poll() is None
            yield there, sender
        finally:
            sender.kill()


def test_a_sender_killed_half_way(tmp_path, half_way, large, sample):
    out = tmp_path / "out"
    with caught_half_way(half_way, large, out) as (there, sender):
        sender.kill()
        sender.wait()
        there.process.send_signal(signal.SIGCONT)
        sent = run("send", there.url, sample, env=half_way[0])
        assert (sent.returncode, sent.stderr) == (DONE, "")
        code, _, errors = there.stop()
    assert code == DONE
    one_line(errors, "'large.npy' did not arrive")
    assert "refused" not in errors and "Input/output" not in errors
    assert os.listdir(out) == [sample.name]
    assert_same_safetensors(sample, out / sample.name)


def test_a_sender_killed_half_way_and_no_other(tmp_path, half_way, large):
    out = tmp_path / "out"
    with caught_half_way(half_way, large, out, "-n", 1, "-t", 1) as (
            there, sender):
        sender.kill()
        sender.wait()
        there.process.send_signal(signal.SIGCONT)
        code, printed, errors = there.end()
    assert (code, printed) == (FAILED, "")
    assert "'large.npy' did not arrive" in errors
    assert os.listdir(out) == []


def test_a_receiver_killed_half_way(tmp_path, half_way, large):
    out = tmp_path / "out"
    with caught_half_way(half_way, large, out) as (there, sender):
        there.process.kill()
        there.process.wait()
        code = sender.wait(BOUND)
        said = sender.stderr.read()
    assert code == FAILED
    one_line(said, "large.npy", there.url)
    assert os.listdir(out) == []


def test_a_receiver_stopped_half_way(tmp_path, half_way, large, sample):
    out = tmp_path / "out"
    with caught_half_way(half_way, large, out, patience=3) as (there, sender):
        code = sender.wait(BOUND)
        said = sender.stderr.read()
        there.process.send_signal(signal.SIGCONT)
        sent = run("send", there.url, sample, env=half_way[0])
        assert (sent.returncode, sent.stderr) == (DONE, "")
        assert there.stop()[0] == DONE
    assert code == FAILED
    one_line(said, "large.npy", there.url)
    assert os.listdir(out) == [sample.name]


@pytest.mark.parametrize("change, words", cli.CHANGES)
@pytest.mark.parametrize("half_way, bulk", [
    ("tcp", ""), ("tcp", ",tcp.bulk_bytes=never"), ("posix,cma,self", "")],
    indirect=["half_way"])
def test_a_file_that_changes_half_way(tmp_path, half_way, large, bulk, change,
                                      words):
    """Some of it is with the kernel, and some is still to be read."""
    out = tmp_path / "out"
    for env in half_way:
        env["TENSORMSG_THRESHOLDS"] += bulk
    with caught_half_way(half_way, large, out) as (there, sender):
        change(large)
        there.process.send_signal(signal.SIGCONT)
        code = sender.wait(BOUND)
        said = sender.stderr.read()
        assert there.stop()[0] == DONE
    assert code == FAILED
    one_line(said, "large.npy", words)
    assert os.listdir(out) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_receiver(tmp_path, sample, number):
    with receiver("-o", tmp_path / "out") as there:
        must_send(there.url, sample)
        there.process.send_signal(number)
        code, _, errors = there.end()
        assert (code, errors) == (DONE, "")
    with receiver("--count", 1) as there:  # it did not get what it wanted
        there.process.send_signal(number)
        code, _, errors = there.end()
        assert code == FAILED
        one_line(errors, "stopped when 0 of 1 maps had come")


@pytest.mark.parametrize("half_way", ["tcp"], indirect=True)
def test_a_signal_tells_the_sender(tmp_path, half_way, large):
    """Not by CMA: that takes the rest in one piece, before any signal."""
    out = tmp_path / "out"
    with caught_half_way(half_way, large, out) as (there, sender):
        there.process.send_signal(signal.SIGINT)
        there.process.send_signal(signal.SIGCONT)
        code = sender.wait(BOUND)
        said = sender.stderr.read()
        assert there.end()[0] == DONE
    assert code == FAILED
    one_line(said, "large.npy")
    assert os.listdir(out) == []


def test_a_receiver_that_had_enough(tmp_path, sample):
    with receiver("-o", tmp_path / "out", "-n", 1) as there:
        said = run("send", there.url, sample, DIGITS)
        assert said.returncode == FAILED
        one_line(said.stderr, "digits.npz")
        assert there.end()[0] == DONE


def test_what_failed_is_a_line_of_json_too(tmp_path, sample):
    out = tmp_path / "out"
    out.mkdir()
    (out / sample.name).write_text("mine")
    with receiver("-o", out) as there:
        said = run("send", "--json", there.url, sample, DIGITS)
        assert there.stop()[0] == DONE
    assert said.returncode == FAILED
    failed, sent = map(json.loads, said.stdout.splitlines())
    assert (failed["event"], failed["file"]) == ("failed", str(sample))
    assert "exists" in failed["error"]
    assert (sent["event"], sent["file"]) == ("sent", str(DIGITS))


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_a_file_that_comes_to_exist_meanwhile(tmp_path, half_way, large,
                                              force):
    """After the receiver wanted it: kept still, and both sides say so."""
    out = tmp_path / "out"
    with caught_half_way(half_way, large, out, "--json", *force) as (
            there, sender):
        (out / large.name).write_text("mine")
        there.process.send_signal(signal.SIGCONT)
        code = sender.wait(BOUND)
        said = sender.stderr.read()
        _, printed, _ = there.stop()
    event = json.loads(printed)
    assert os.listdir(out) == [large.name]
    if force:
        assert (code, said, event["event"]) == (DONE, "", "received")
        assert (out / large.name).read_bytes() == large.read_bytes()
        return
    assert (code, event["event"]) == (FAILED, "failed")
    assert "--force" in event["error"] and "path" not in event
    one_line(said, large.name, "--force")
    assert (out / large.name).read_text() == "mine"


@pytest.mark.once
def test_errors_that_nobody_can_read_change_nothing(tmp_path, sample):
    closed = ["sh", "-c", 'exec "$@" 2>&-', "sh"]
    with receiver("-o", tmp_path / "out", "-n", 1, prefix=closed) as there:
        for code, file in ((USAGE, "/nowhere.npy"), (DONE, sample)):
            said = subprocess.run([*closed, TOOL, "send", there.url, file],
                                  timeout=BOUND)
            assert said.returncode == code
        assert there.end()[0] == DONE
    assert_same_safetensors(sample, tmp_path / "out" / sample.name)


@pytest.mark.once
def test_a_name_that_would_hide_is_refused(tmp_path):
    path = tmp_path / ".hidden.npy"
    np.save(path, np.zeros(3))
    with receiver("-o", tmp_path / "out") as there:
        said = run("send", there.url, path)
        assert said.returncode == FAILED
        one_line(said.stderr, ".hidden.npy", "dot")
        code, _, errors = there.stop()
    assert code == DONE and ".hidden.npy" in errors
    assert os.listdir(tmp_path / "out") == []


def test_garbage_on_the_port_costs_nobody_else(sample):
    with receiver("--count", 1) as there:
        port = int(there.url.rsplit(":", 1)[1])
        for junk in (b"GET / HTTP/1.0\r\n\r\n", b"\xff" * 4096, b"TMSGBOOT"):
            with socket.create_connection(("127.0.0.1", port)) as peer:
                peer.sendall(junk)
        must_send(there.url, sample)
        assert there.end()[0] == DONE


@pytest.mark.parametrize("options", [(), ("-v",)])
@pytest.mark.parametrize("transports", ["all", "tcp"])
def test_a_file_that_is_cut_short_while_it_is_sent(tmp_path, options,
                                                   transports):
    path = tmp_path / "a.npy"
    np.save(path, np.ones(40 << 20, np.uint8))
    env = {**os.environ, "UCX_TLS": transports}
    with receiver("-o", tmp_path / "out", env=env) as there:
        there.process.send_signal(signal.SIGSTOP)
        with subprocess.Popen([TOOL, "send", *options, there.url, path],
                              stderr=subprocess.PIPE, text=True, env=env,
                              stdout=subprocess.DEVNULL) as sender:
            cli.wait_until_mapped(sender, path)
            os.truncate(path, 4096)
            there.process.send_signal(signal.SIGCONT)
            assert sender.wait(BOUND) == FAILED
            one_line(sender.stderr.read(), "a.npy", "cut short")
        assert there.stop()[0] == DONE
    assert os.listdir(tmp_path / "out") == []


@pytest.mark.once
def test_a_file_that_is_cut_short_while_it_is_dumped(tmp_path):
    """Each page takes a while: 2 GiB of hole are time enough to cut it."""
    path = tmp_path / "a.npy"
    with open(path, "wb") as file:
        header = npy("{'descr': '|u1', 'fortran_order': False, "
                     "'shape': (2147483648,), }")
        file.write(header)
        file.truncate(len(header) + (2 << 30))
    with subprocess.Popen([TOOL, "dump", "--table", path], text=True,
                          stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE) as dump:
        cli.wait_until_mapped(dump, path)
        os.truncate(path, 4096)
        assert dump.wait(BOUND) == FAILED
        one_line(dump.stderr.read(), "a.npy", "cut short")


@pytest.mark.once
def test_a_file_that_changes_while_it_is_dumped(tmp_path):
    """More is to be printed than a pipe takes."""
    path = tmp_path / "a.npz"
    np.savez(path, **{f"tensor {i}": np.zeros(1) for i in range(3000)})
    with subprocess.Popen([TOOL, "dump", path], text=True,
                          stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as dump:
        assert dump.stdout.read(1) == "{"
        cli.write_over(path)
        json.loads("{" + dump.stdout.read())
        assert dump.wait(BOUND) == FAILED
        one_line(dump.stderr.read(), "a.npz", "the file changed")


LISTINGS = [("--help",), ("--version",), ("dump", "--help"), ("dump", DIGITS),
            ("dump", "--table", DIGITS), ("info",), ("info", "--json"),
            ("recv",), ("recv", "--json")]


@pytest.mark.once
@pytest.mark.parametrize("words", LISTINGS, ids=lambda words: " ".join(
    str(word) for word in words if word is not DIGITS))
@pytest.mark.parametrize("target", ["> /dev/full", ">&-"])
def test_output_that_cannot_be_written(words, target):
    said = subprocess.run(
        ["sh", "-c", f'exec "$@" {target}', "sh", TOOL, *map(str, words)],
        stderr=subprocess.PIPE, text=True, timeout=BOUND)
    assert said.returncode == FAILED
    one_line(said.stderr, "standard output: " + (
        "No space" if "full" in target else "Bad file descriptor"))


@pytest.mark.once
@pytest.mark.parametrize("option", ["-v", "--json"])
def test_a_report_of_sending_that_cannot_be_written(tmp_path, sample, option):
    """The file has arrived all the same."""
    with receiver("-o", tmp_path / "out", "-n", 1) as there:
        with open("/dev/full", "w") as full:
            said = subprocess.run([TOOL, "send", option, there.url, sample],
                                  stdout=full, stderr=subprocess.PIPE,
                                  text=True, timeout=BOUND)
        assert there.end()[0] == DONE
    assert said.returncode == FAILED
    one_line(said.stderr, "standard output: No space")
    assert_same_safetensors(sample, tmp_path / "out" / sample.name)


@pytest.mark.once
@pytest.mark.parametrize("words", [("--json", "-o"), ("--json",), ()])
def test_a_receiver_whose_reader_goes_ends(tmp_path, sample, words):
    """What it prints is all that it is there for."""
    words = [*words, tmp_path / "out"] if "-o" in words else words
    with receiver(*words) as there:
        there.process.stdout.close()
        must_send(there.url, sample)
        assert there.process.wait(BOUND) == FAILED
        there.errors.seek(0)
        one_line(there.errors.read(), "standard output: Broken pipe")


@pytest.mark.once
def test_a_captured_header_replaces_a_link_and_follows_none(tmp_path, sample):
    caught = tmp_path / "caught"
    caught.mkdir()
    (tmp_path / "victim").write_text("mine")
    (caught / "header-000001.tmsg").symlink_to(tmp_path / "victim")
    with receiver("--capture", caught, "-n", 1) as there:
        must_send(there.url, sample)
        assert there.end()[0] == DONE
    assert sorted(os.listdir(caught)) == [
        f"header-00000{i}.tmsg" for i in (1, 2)]
    with receiver("--capture", caught, "-f", "-n", 1) as there:
        must_send(there.url, sample)
        assert there.end()[0] == DONE
    assert (tmp_path / "victim").read_text() == "mine"
    assert not (caught / "header-000001.tmsg").is_symlink()


@pytest.mark.once
def test_a_header_that_cannot_be_captured_leaves_nothing(tmp_path, sample):
    no_files = ["sh", "-c", "trap '' XFSZ; ulimit -f 0; exec \"$@\"", "sh"]
    no_shm = {**os.environ, "UCX_TLS": "tcp"}
    with receiver("--capture", tmp_path / "caught", "-n", 1,
                  prefix=no_files, env=no_shm) as there:
        must_send(there.url, sample)
        assert there.end()[0] == DONE
    assert os.listdir(tmp_path / "caught") == []


def can_mount():
    return os.geteuid() == 0 and shutil.which("unshare") and subprocess.run(
        ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"],
        capture_output=True).returncode == 0


@pytest.mark.skipif(not can_mount(), reason="needs leave to mount")
@pytest.mark.parametrize("bytes", [2 << 20, (1 << 20) - 64, 60 << 20])
def test_a_full_disk_is_told_to_both(tmp_path, bytes):
    """Seen beforehand, only when it is written, and in the unnamed file."""
    out = tmp_path / "out"
    out.mkdir()
    np.save(tmp_path / "a.npy", np.zeros(bytes, np.uint8))
    np.save(tmp_path / "b.npy", np.zeros(100, np.uint8))
    size = "64m" if bytes > 32 << 20 else "1m"
    inside = ["unshare", "-m", "sh", "-c",
              f'mount -t tmpfs -o size={size} none "$0" && exec "$@"', out]
    with receiver("-o", out, prefix=inside) as there:
        said = run("send", there.url, tmp_path / "a.npy")
        assert said.returncode == FAILED
        assert re.search("disk full|No space", said.stderr), said.stderr
        one_line(said.stderr, "a.npy")
        must_send(there.url, tmp_path / "b.npy")
        code, out, errors = there.stop()
    assert code == DONE and "b.npy" in out
    one_line(errors, "a.npy" if bytes < 2 << 20 else "disk full")


NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def can_be_nobody():
    return os.geteuid() == 0 and shutil.which("setpriv") and subprocess.run(
        [*NOBODY, TOOL, "--version"], capture_output=True).returncode == 0


@pytest.mark.skipif(not can_be_nobody(), reason="needs a second user")
def test_another_user():
    """By tcp:// it works, without shared memory; unix:// says why not."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        path = os.path.join(folder, "a.npy")
        np.save(path, np.arange(1000))
        # A build for coverage would write into our folders.
        counts = os.path.join(folder, "gcov")
        os.mkdir(counts)
        os.chmod(counts, 0o777)
        env = {**os.environ, "GCOV_PREFIX": counts}
        with receiver("-n", 1) as there:
            sent = subprocess.run(
                [*NOBODY, TOOL, "send", "-v", there.url, path],
                capture_output=True, text=True, timeout=BOUND, env=env)
            assert sent.returncode == DONE, sent.stderr
            assert "other user" in sent.stdout and "posix" not in sent.stdout
            assert there.end()[0] == DONE
        with receiver("--listen", f"unix://{folder}/socket") as there:
            os.chmod(f"{folder}/socket", 0o777)
            sent = subprocess.run([*NOBODY, TOOL, "send", there.url, path],
                                  capture_output=True, text=True,
                                  timeout=BOUND, env=env)
            assert sent.returncode == FAILED
            one_line(sent.stderr, "user")
            assert there.stop()[0] == DONE
