# SPDX-License-Identifier: BSD-3-Clause
"""50 strangers at a listener with a key, each in its own way and all the time,
and those who have the key are served meanwhile."""

import contextlib
import os
import random
import socket
import struct
import threading
import time

import pytest

import admission
import cli
from admission import ADDRESS, ADMISSION, HELLO, MAGIC, NONCE, PROOF, Peer

pytestmark = pytest.mark.once

STRANGERS, HONEST = 50, 6
PAUSE = .02  # seconds between two attempts of one


class Attack:
    """What the strangers share."""

    def __init__(self, url, secret):
        host, port = url.removeprefix("tcp://").rsplit(":", 1)
        self.to, self.url, self.secret = (host, int(port)), url, secret
        self.over = threading.Event()
        self.count = dict.fromkeys(WAYS, 0)
        self.values = self.overheard = None
        self.overhear()

    def hello(self):
        return {**self.values, NONCE: os.urandom(32), 5: os.urandom(16)}

    def wait(self):
        """Until each way has been tried."""
        deadline = time.monotonic() + cli.BOUND
        while not all(self.count.values()):
            assert time.monotonic() < deadline, self.count
            time.sleep(.01)

    def overhear(self):
        """An honest handshake: what a listener finds good, and all of it."""
        peer = Peer.dial(self.url)
        peer.send(HELLO, admission.hello_of(admission.a_hello()))
        values = admission.fields(peer.expect(HELLO))
        peer.close()
        self.values = {kind: value for kind, value in values.items()
                       if kind <= 42}
        peer, said = Peer.dial(self.url), []
        sock = peer.sock
        peer.sock = Recorder(sock, said)
        kind, _ = admission.dialled_by(peer, self.hello(), [self.secret])
        assert kind == PROOF
        sock.close()
        self.overheard = MAGIC + b"".join(said)


class Recorder:
    def __init__(self, sock, said):
        self.recv, self.said, self.sock = sock.recv, said, sock

    def sendall(self, data):
        self.said.append(data)
        self.sock.sendall(data)


def garbage(attack, sock):
    sock.sendall(os.urandom(random.randrange(1, 5000)))


def garbage_in_frames(attack, sock):
    body = os.urandom(random.randrange(3000))
    sock.sendall(MAGIC + struct.pack("<IB", len(body), random.randrange(16))
                 + body)


def a_long_frame(attack, sock):
    sock.sendall(MAGIC + struct.pack("<IB", 0xffffffff, HELLO) + bytes(9000))


def silence(attack, sock):
    attack.over.wait(.5)


def byte_by_byte(attack, sock):
    """Slow-loris: never done, and never silent for long."""
    for byte in MAGIC + struct.pack("<IB", 900, HELLO) + bytes(900):
        sock.sendall(bytes([byte]))
        if attack.over.wait(.05):
            return


def reset(attack, sock):
    """Gone without a word, as one that was killed."""
    sock.sendall(MAGIC)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                    struct.pack("ii", 1, 0))


def replay(attack, sock):
    sock.sendall(attack.overheard)
    assert struct.pack("<IB", 32, PROOF) not in drain(sock)


def drain(sock):
    said = b""
    while more := sock.recv(4096):
        said += more
    return said


def proves(attack, sock, keys):
    peer = Peer(sock)
    kind, _ = admission.dialled_by(peer, attack.hello(), keys)
    return kind, peer


def a_wrong_key(attack, sock):
    assert proves(attack, sock, [os.urandom(32)])[0] != PROOF


def many_wrong_keys(attack, sock):
    assert proves(attack, sock, [os.urandom(32) for _ in range(16)])[0] != PROOF


def no_key(attack, sock):
    peer = Peer(sock)
    peer.send(HELLO, admission.hello_of({**attack.hello(), ADMISSION: b"\0"}))
    assert peer.receive()[0] != HELLO


def reflection(attack, sock):
    """Its own words back to it."""
    peer = Peer(sock)
    peer.send(HELLO, admission.hello_of(attack.hello()))
    _, theirs = peer.receive()
    sock.sendall(struct.pack("<IB", len(theirs), HELLO) + theirs)
    drain(sock)


def gone_after_its_proof(attack, sock):
    """Who has the key and is killed."""
    _, peer = proves(attack, sock, [attack.secret])
    peer.receive()


def wrong_mac(attack, sock):
    kind, peer = proves(attack, sock, [attack.secret])
    if kind == PROOF:
        peer.protect(os.urandom(32), peer.keys[1])
        peer.send(ADDRESS, os.urandom(200))
        drain(sock)


WAYS = [garbage, garbage_in_frames, a_long_frame, silence, byte_by_byte, reset,
        replay, a_wrong_key, many_wrong_keys, no_key, reflection,
        gone_after_its_proof, wrong_mac]


def keep_on(attack, way, failures):
    while not attack.over.wait(PAUSE):
        try:
            with socket.create_connection(attack.to, cli.BOUND) as sock, \
                    contextlib.suppress(OSError, EOFError):
                attack.count[way] += 1
                way(attack, sock)
        except OSError:
            pass  # the kernel's queue is full: again
        except Exception as wrong:  # pylint: disable=broad-except
            failures.append((way.__name__, wrong))
            return


def test_they_get_nowhere_and_the_others_are_served(tmp_path):
    path = tmp_path / "farm.key"
    assert cli.run("key", "--out", path).returncode == 0
    secret, failures = bytes.fromhex(path.read_text().split()[1]), []
    with cli.receiver("--key", path) as receiver:
        attack = Attack(receiver.url, secret)
        threads = [threading.Thread(target=keep_on, args=(
            attack, WAYS[i % len(WAYS)], failures)) for i in range(STRANGERS)]
        for thread in threads:
            thread.start()
        try:
            attack.wait()
            sent = [cli.run("send", "--timeout", "50", "--key", path,
                            receiver.url, cli.DIGITS) for _ in range(HONEST)]
        finally:
            attack.over.set()
            for thread in threads:
                thread.join()
        assert not failures
        assert [(one.returncode, one.stderr) for one in sent] == \
            [(0, "")] * HONEST
        code, out, errors = receiver.stop()
    assert code == 0 and out.count("digits.npz") == HONEST
    assert "has proved no key" in errors and "has no key set" in errors
    assert "SIGSEGV" not in errors and "Assertion" not in errors
