#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""strangers.py [COMMAND] - what one stranger costs a listener, for the table of
docs/understand/security.md: memory and descriptors while it holds a place, the
processor's
time and bytes of the log for one that comes and goes, at a listener without a
key and at one with a key. COMMAND is the `tensormsg` to measure, by default
build/tensormsg."""

import contextlib
import os
import pathlib
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests/python"))

import admission  # noqa: E402  pylint: disable=wrong-import-position
# pylint: disable-next=wrong-import-position
from admission import HELLO, MAGIC, NONCE, Peer  # noqa: E402

HELD = 100      # strangers that hold a place at once
PASSING = 2000  # strangers that come and go
AT_ONCE = 64    # of these
TICKS = os.sysconf("SC_CLK_TCK")


class Listener:
    """`tensormsg recv` with its log in a file."""

    def __init__(self, command, *options):
        self.log = tempfile.TemporaryFile("w+b")
        self.process = subprocess.Popen(
            [command, "recv", "--listen", "tcp://127.0.0.1:0", *options],
            stdout=subprocess.PIPE, stderr=self.log, text=True,
            env={**os.environ, "TENSORMSG_LOG": "warn"})
        self.url = self.process.stdout.readline().strip()
        host, port = self.url.removeprefix("tcp://").rsplit(":", 1)
        self.to = host, int(port)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)

    def _stat(self, name, pattern):
        text = pathlib.Path(f"/proc/{self.process.pid}/{name}").read_text()
        return re.search(pattern, text)

    def bytes(self):
        """Resident memory of its own."""
        return int(self._stat("smaps_rollup",
                              r"Private_Dirty: +(\d+)")[1]) * 1024

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def seconds(self):
        fields = self._stat("stat", r"\) (.*)")[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def log_bytes(self):
        return os.fstat(self.log.fileno()).st_size

    def settle(self):
        """Until it uses no processor any more."""
        before = -1
        while before != (before := self.seconds()):
            time.sleep(.2)


def good_hello(listener):
    """As the listener itself says it, of another process."""
    with contextlib.closing(Peer.dial(listener.url)) as peer:
        peer.send(HELLO, admission.hello_of(admission.a_hello()))
        values = admission.fields(peer.expect(HELLO))
    values = {kind: value for kind, value in values.items() if kind <= 42}
    return {**values, 5: os.urandom(16),
            **({NONCE: os.urandom(32)} if NONCE in values else {})}


def framed(hello):
    return MAGIC + struct.pack("<IB", len(hello), HELLO) + hello


def bent(hello):
    data = bytearray(hello)
    place = random.randrange(len(data))
    data[place] ^= 1 << random.randrange(8)
    return bytes(data)


WAYS = {
    "says nothing": lambda hello: b"",
    "half a hello": lambda hello: framed(hello)[:-1],
    "garbage": lambda hello: b"GET / HTTP/1.1\r\n\r\n",
    "a hello with a bit changed": lambda hello: framed(bent(hello)),
    "a good hello, then nothing": framed,
}


def hold(listener, words):
    """Bytes and descriptors of one of HELD; None: it is ended at once."""
    listener.settle()
    before = listener.bytes(), listener.descriptors()
    held = [socket.create_connection(listener.to) for _ in range(HELD)]
    for sock in held:
        with contextlib.suppress(OSError):
            sock.sendall(words)
    time.sleep(.5)
    after = listener.bytes(), listener.descriptors()
    for sock in held:
        sock.close()
    listener.settle()
    if after[1] - before[1] < HELD / 2:
        return None
    return (max(after[0] - before[0], 0) / HELD,
            (after[1] - before[1]) / HELD)


def passing(listener, make):
    """Seconds of a processor of one of PASSING, and bytes of the log of all."""
    listener.settle()
    before = listener.seconds(), listener.log_bytes()
    for _ in range(PASSING // AT_ONCE):
        socks = [socket.create_connection(listener.to) for _ in range(AT_ONCE)]
        for sock in socks:
            with contextlib.suppress(OSError):
                sock.sendall(make())
                sock.shutdown(socket.SHUT_WR)
        for sock in socks:
            with contextlib.suppress(OSError):
                while sock.recv(4096):
                    pass
            sock.close()
    listener.settle()
    count = PASSING // AT_ONCE * AT_ONCE
    return ((listener.seconds() - before[0]) / count,
            listener.log_bytes() - before[1])


def measure(command, title, *options):
    for name, words in WAYS.items():
        with Listener(command, *options) as listener:
            hello = admission.hello_of(good_hello(listener))
            cpu, log = passing(listener, lambda: words(hello))
            held = hold(listener, words(hello)) # what is kept is there by now
        print(f"| {title} | {name} | "
              + ("ended at once" if held is None else
                 f"{held[0] / 1024:.1f} KiB, {held[1]:.0f}")
              + f" | {cpu * 1e6:.0f} us | {log} bytes |", flush=True)


def main():
    command = sys.argv[1] if len(sys.argv) > 1 else \
        str(HERE.parent / "build/tensormsg")
    print("| listener | stranger | memory, descriptors | processor | "
          f"log, {PASSING} of them |\n"
          "|---|---|---|---|---|")
    measure(command, "no key")
    with tempfile.TemporaryDirectory() as folder:
        key = f"{folder}/key"
        subprocess.run([command, "key", "--out", key], check=True,
                       stdout=subprocess.DEVNULL)
        measure(command, "a key", "--key", key)


if __name__ == "__main__":
    main()
