# SPDX-License-Identifier: BSD-3-Clause
"""The library admits another implementation of docs/wire/bootstrap.md that has
the
key, is admitted by it, and admits none that has not."""

import os
import socket
import subprocess

import pytest

import admission
import cli
from admission import (ADDRESS, ADMISSION, HELLO, NONCE, PROOF, REFUSE, Peer)

pytestmark = pytest.mark.once


@pytest.fixture
def key(tmp_path):
    path = tmp_path / "farm.key"
    made = cli.run("key", "--out", path, "--principal", "alice")
    assert (made.returncode, made.stdout) == (0, ""), made.stderr
    assert path.stat().st_mode & 0o777 == 0o600
    name, digits = path.read_text().split()
    assert name == "alice"
    return path, bytes.fromhex(digits)


def fitting(url):
    """A hello that the listener finds nothing wrong with: mostly its own."""
    peer = Peer.dial(url)
    peer.send(HELLO, admission.hello_of(admission.a_hello()))
    values = admission.fields(peer.expect(HELLO))
    assert peer.expect(REFUSE)[4:].startswith(b"peer runs UCX 1.2.3")
    peer.close()
    return {**{kind: value for kind, value in values.items() if kind <= 42},
            5: os.urandom(16), NONCE: os.urandom(32)}


def test_an_honest_peer_is_told_where_ucx_is(key):
    path, secret = key
    with cli.receiver("--key", path) as receiver:
        peer = Peer.dial(receiver.url)
        kind, payload = admission.dialled_by(
            peer, fitting(receiver.url), [os.urandom(32), secret])
        assert (kind, len(payload)) == (PROOF, 32)
        assert peer.keys is not None, "it proves the same key"
        assert len(peer.expect(ADDRESS)) > 4 + 28
        peer.send(REFUSE, b"\xfa\xff\xff\xffno more")
        peer.close()
        code, _, errors = receiver.stop()
    assert code == 0 and "refused by the peer: no more" in errors


def test_others_are_refused_in_the_same_words(key, tmp_path):
    path, _ = key
    with cli.receiver("--key", path) as receiver:
        values = fitting(receiver.url)
        peer = Peer.dial(receiver.url)
        kind, wrong = admission.dialled_by(peer, values, [os.urandom(32)])
        assert kind == REFUSE
        with pytest.raises(EOFError):
            peer.receive()
        peer.close()
        peer = Peer.dial(receiver.url)
        peer.send(HELLO, admission.hello_of({**values, ADMISSION: b"\0"}))
        assert peer.expect(REFUSE) == wrong, "nor is a hello told"
        peer.close()
        other = tmp_path / "other.key"
        assert cli.run("key", "--out", other).returncode == 0
        for words in ([], ["--key", other]):
            sent = cli.run("send", *words, receiver.url, cli.DIGITS)
            assert sent.returncode == 1
            assert wrong[4:].decode() in sent.stderr
        sent = cli.run("send", "--key", path, receiver.url, cli.DIGITS)
        assert sent.returncode == 0, sent.stderr
        code, _, errors = receiver.stop()
    assert code == 0
    assert "has proved no key" in errors and "has no key set" in errors


def serve_once(sock, secret, spoil):
    """Plays a listener, as far as the address. What the dialling side said of
    it."""
    peer = Peer(sock.accept()[0])
    theirs = peer.expect(HELLO)
    values = {**admission.fields(theirs), 5: os.urandom(16),
              NONCE: os.urandom(32)}
    mine = admission.hello_of(values)
    peer.send(HELLO, mine)
    of = admission.transcript(theirs, mine)
    proofs = peer.expect(PROOF)
    assert proofs == admission.proof(secret, b">", of)
    of = admission.bound(of, proofs)
    peer.send(PROOF, admission.proof(secret, b"<", of if not spoil else mine))
    peer.protect(admission.hashed(b"tensormsg frame<" + of, secret),
                 admission.hashed(b"tensormsg frame>" + of, secret))
    if not spoil:
        peer.send(ADDRESS, bytes(100))
    peer.sock.recv(1)
    peer.close()


@pytest.mark.parametrize("spoil, words", [
    (False, "worker address: its checksum does not match"),
    (True, "the peer has proved no key that is in this side's keyring")])
def test_a_listener_proves_the_key_as_well(key, spoil, words):
    path, secret = key
    with socket.create_server(("127.0.0.1", 0)) as sock:
        url = f"tcp://127.0.0.1:{sock.getsockname()[1]}"
        with subprocess.Popen([cli.TOOL, "send", "--key", path, url,
                               cli.DIGITS], stderr=subprocess.PIPE,
                              text=True) as sender:
            sock.settimeout(cli.BOUND)
            serve_once(sock, secret, spoil)
            _, errors = sender.communicate(timeout=cli.BOUND)
    assert sender.returncode == 1 and words in errors


@pytest.mark.parametrize("words, said", [
    ([], "--out FILE"), (["--out", "x", "--principal", "a b"], "'a b'"),
    (["--out", "/dev/null"], "File exists"), (["x"], "'x'")])
def test_what_makes_no_key_says_why(words, said, tmp_path):
    made = cli.run("key", *words, cwd=tmp_path)
    assert made.returncode in (1, 2) and said in made.stderr
    assert not list(tmp_path.iterdir())


def test_a_key_file_that_others_read_is_not_taken(key):
    path, _ = key
    path.chmod(0o644)
    for words in (["recv"], ["send", "tcp://127.0.0.1:1", cli.DIGITS]):
        said = cli.run(*words[:1], "--key", path, *words[1:])
        assert said.returncode in (1, 2) and "chmod 600" in said.stderr


OPTIONS = {"serve": ["--echo", "--listen"], "perf": ["--listen"]}


@pytest.mark.parametrize("listener, words, says", [
    ("serve", ["call", "--list"], "echo (...)"),
    ("serve", ["call", "--health"], "SERVING"),
    ("serve", ["info"], "principal"),
    ("perf", ["perf", "--quick"], "8x64B")])
def test_every_command_proves_a_key(key, tmp_path, listener, words, says):
    path, _ = key
    other = tmp_path / "other.key"
    assert cli.run("key", "--out", other).returncode == 0
    with cli.receiver(*OPTIONS[listener], "tcp://127.0.0.1:0", "--key", path,
                      command=listener) as there:
        done = cli.run(*words, there.url, "--key", path, timeout=4 * cli.BOUND)
        assert done.returncode == 0, done.stderr
        assert says in done.stdout
        for wrong in ([], ["--key", other]):
            done = cli.run(*words, there.url, *wrong)
            assert done.returncode == 1
            cli.one_line(done.stderr, "not admitted: a key is asked for here")
        code, out, _ = there.stop()
    assert (code, out) == (0, "")


@pytest.mark.parametrize("listener", ["serve", "perf"])
def test_a_listener_with_a_key_may_be_open(key, listener):
    path, _ = key
    anywhere = [*OPTIONS[listener], "tcp://0.0.0.0:0"]
    done = cli.run(listener, *anywhere)
    assert done.returncode == 2
    cli.one_line(done.stderr, "--key FILE", "--allow-unauthenticated")
    with cli.receiver(*anywhere, "--key", path, command=listener) as there:
        assert there.url.startswith("tcp://0.0.0.0:")
        assert there.stop()[0] == 0


@pytest.mark.parametrize("words, code, says", [
    (["info", "--key", "x"], 2, "a URL"),
    (["perf", "--key", "x"], 2, "a URL or --listen"),
    (["perf", "--key", "x", "tcp://127.0.0.1:1"], 1, "key file x"),
    (["perf", "--key", "x", "--listen", "tcp://127.0.0.1:0"], 1, "key file x"),
    (["serve", "--echo", "--key", "x"], 1, "key file x"),
    (["call", "--key", "x", "tcp://127.0.0.1:1", "--list"], 1, "key file x"),
    (["info", "--key", "x", "tcp://127.0.0.1:1"], 1, "key file x")])
def test_a_key_that_is_not_there_is_named(words, code, says, tmp_path):
    done = cli.run(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, "") and says in done.stderr
