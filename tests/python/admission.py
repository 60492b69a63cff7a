# SPDX-License-Identifier: BSD-3-Clause
"""The bootstrap socket and its admission once more, from
docs/wire/bootstrap.md:
what another implementation has to do."""

import hashlib
import os
import socket
import struct

MAGIC = b"TMSGBOOT"
HELLO, REFUSE, ADDRESS, PROOF = 1, 2, 3, 10
ADMISSION, NONCE = 41, 42
BOUND = 60  # seconds


class Tampered(Exception):
    pass


def hashed(data, key=b"", size=32):
    return hashlib.blake2b(data, key=key, digest_size=size).digest()


def transcript(dialling, dialled):
    return hashed(b"tensormsg hellos" + hashed(dialling) + hashed(dialled))


def bound(of, proofs):
    """With all that the dialling side proved: what follows is of this."""
    return hashed(b"tensormsg proofs" + of + hashed(proofs))


def proof(key, way, of):
    return hashed(b"tensormsg proof" + way + of, key)


def fields(hello):
    found, at = {}, 0
    while at < len(hello):
        kind, size = struct.unpack_from("<HH", hello, at)
        found[kind] = hello[at + 4:at + 4 + size]
        at += 4 + size
    assert at == len(hello)
    return found


def hello_of(values):
    return b"".join(struct.pack("<HH", kind, len(value)) + value
                    for kind, value in sorted(values.items()))


def a_hello(**numbers):
    """As short as may be, of a UCX that nobody has."""
    values = {1: b"\0", 2: b"\1\0", 3: b"\2\0", 4: b"\3\0", 5: os.urandom(16),
              6: struct.pack("<I", os.geteuid()), 7: struct.pack("<I", 1),
              15: struct.pack("<I", 8000), 16: struct.pack("<I", 16)}
    values.update({kind: struct.pack("<Q", 1 << 20) for kind in range(21, 28)})
    values.update({ADMISSION: b"\1", NONCE: os.urandom(32)})
    values.update(numbers)
    return values


class Peer:
    """Either end of a bootstrap socket."""

    def __init__(self, sock):
        self.sock = sock
        self.sock.settimeout(BOUND)
        self.sock.sendall(MAGIC)
        self.greeted = False
        self.keys = None  # of the frames that this side sends, and the peer's
        self.counts = [0, 0]

    @classmethod
    def dial(cls, url):
        host, port = url.removeprefix("tcp://").rsplit(":", 1)
        return cls(socket.create_connection((host, int(port)), BOUND))

    def close(self):
        self.sock.close()

    def protect(self, mine, theirs):
        self.keys = (mine, theirs)

    def mac(self, side, kind, payload):
        count = struct.pack("<QB", self.counts[side], kind)
        self.counts[side] += 1
        return hashed(count + payload, self.keys[side], 16)

    def send(self, kind, payload):
        if self.keys:
            payload += self.mac(0, kind, payload)
        self.sock.sendall(struct.pack("<IB", len(payload), kind) + payload)

    def take(self, size):
        data = b""
        while len(data) < size:
            more = self.sock.recv(size - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def receive(self):
        """The next frame that is no heartbeat."""
        if not self.greeted:
            assert self.take(len(MAGIC)) == MAGIC
            self.greeted = True
        size, kind = struct.unpack("<IB", self.take(5))
        payload = self.take(size)
        if self.keys:
            payload, mac = payload[:-16], payload[-16:]
            if mac != self.mac(1, kind, payload):
                raise Tampered
        return (kind, payload) if kind != 4 else self.receive()

    def expect(self, kind):
        got, payload = self.receive()
        assert got == kind, (got, payload)
        return payload


def dialled_by(peer, values, keys):
    """Plays the dialling side up to the answer: a frame. `keys` are those that
    it proves."""
    mine = hello_of(values)
    peer.send(HELLO, mine)
    theirs = peer.expect(HELLO)
    of = transcript(mine, theirs)
    proofs = b"".join(proof(key, b">", of) for key in keys)
    peer.send(PROOF, proofs)
    kind, payload = peer.receive()
    of = bound(of, proofs)
    for key in keys:
        if kind == PROOF and payload == proof(key, b"<", of):
            peer.protect(hashed(b"tensormsg frame>" + of, key),
                         hashed(b"tensormsg frame<" + of, key))
    return kind, payload
