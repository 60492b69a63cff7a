# SPDX-License-Identifier: BSD-3-Clause
"""ucx:// against UCXX itself: PyPI's, which wants a newer UCX than Debian's, so
both sides run on that of build/venv."""

import contextlib
import os
import pathlib
import re
import struct
import subprocess
import sys
import textwrap

import pytest

import cli
from cli import BOUND

pytestmark = pytest.mark.once

HERE = pathlib.Path(__file__).parent
EXAMPLE = os.path.join(os.environ["TENSORMSG_EXAMPLES"], "ucxx")
SHAPED = b'{"dtype":"int16","shape":[2,300,5],"name":"x"}'  # 6000 bytes
LARGE = b'{"dtype":"float32","shape":[4,256,256]}'  # 1 MiB

pytest.importorskip("libucxx", reason="no UCXX in build/venv: no such wheel")
if not cli.UCX_1_22:
    pytest.skip("no UCX in build/venv that UCXX runs on",
                allow_module_level=True)


def environment():
    return {**cli.on_ucx(True), "TENSORMSG_LOG": "warn",
            "UCX_WARN_UNUSED_ENV_VARS": "n"}


class Process:
    """A program that is told a line and answers with one."""

    def __init__(self, *words):
        self.process = subprocess.Popen(
            [str(word) for word in words], text=True, env=environment(),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE)

    def hear(self):
        line = self.process.stdout.readline()
        assert line, self.end()
        return line.strip()

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.hear()

    def end(self):
        out, errors = self.process.communicate(timeout=BOUND)
        return self.process.returncode, out, errors

    def kill(self):
        self.process.kill()
        return self.end()


@contextlib.contextmanager
def started(*words):
    it = Process(*words)
    try:
        yield it
    finally:
        if it.process.poll() is None:
            it.kill()


@contextlib.contextmanager
def listening():
    """Our side, that prints what comes and sends it back; its port."""
    with started(EXAMPLE, "listen") as ours:
        yield ours, ours.hear().rpartition(":")[2]


@pytest.fixture(scope="module")
def peer(tmp_path_factory):
    """UCXX's C++ interface, which alone has headers and scatter lists."""
    import libucxx
    root = pathlib.Path(libucxx.__file__).parent
    program = tmp_path_factory.mktemp("ucxx") / "peer"
    libraries = [root / "lib64", cli.UCX_1_22]
    subprocess.run(
        ["g++", "-std=c++17", "-w", HERE / "ucxx_peer.cpp", "-o", program,
         f"-I{root}/include", f"-I{root}/include/rapids",
         f"-I{cli.UCX_1_22}/../include",
         *(f"-L{folder}" for folder in libraries), "-lucxx", "-lucp", "-lucs",
         *(f"-Wl,-rpath,{folder}" for folder in libraries)], check=True)
    return program


def send(peer, header, size, policy=0, pieces=1):
    return peer.ask(f"send {policy} {pieces} {size} {header.hex() or '-'}")


def test_python_dials():
    with listening() as (ours, port), \
            started(sys.executable, HERE / "ucxx_peer.py", "dial",
                    port) as theirs:
        for count in 0, 1, 3000, 1 << 20:
            assert ours.hear() == f"data uint8 [{8 * count}]"
            assert theirs.hear() == str(count)
        assert theirs.end()[0] == 0


def test_what_the_page_says_in_python():
    """As it stands in docs/how-to/ucxx.md, but for the port."""
    page = (cli.SOURCE / "docs/how-to/ucxx.md").read_text()
    code, = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert "13337" in code and "reply = " in code
    with listening() as (ours, port):
        program = "import asyncio\nasync def main():\n" + textwrap.indent(
            code.replace("13337", port) +
            "print(bytes(reply) == np.arange(6, dtype='f4').tobytes())\n"
            "await endpoint.close()\n",
            "    ") + "asyncio.run(main())"
        with started(sys.executable, "-c", program) as theirs:
            assert ours.hear() == "data uint8 [24]"
            assert theirs.hear() == "True"
            assert theirs.end()[0] == 0


def test_python_listens():
    with started(sys.executable, HERE / "ucxx_peer.py", "listen") as theirs, \
            started(EXAMPLE, "send",
                    f"ucx://127.0.0.1:{theirs.hear()}") as ours:
        assert ours.end()[:2] == (0, "data uint8 [24]\n")
        assert theirs.end()[0] == 0


@pytest.mark.parametrize("pieces", [1, 2, 7])  # contiguous, or IOV
def test_messages_arrive_with_their_headers_and_go_back(peer, pieces):
    rows = [
        (SHAPED, 6000, "x int16 [2, 300, 5]"),
        (LARGE, 1 << 20, "data float32 [4, 256, 256]"),
        (b"", 100, "data uint8 [100]"),
        (b"\0\xffwords", 1 << 20, "data uint8 [1048576]"),
    ]
    with listening() as (ours, port), started(peer, port) as theirs:
        for header, size, tensor in rows:
            assert send(theirs, header, size, pieces=pieces) == "sent"
            if header:
                tensor += f" header of {len(header)} bytes"
            assert ours.hear() == tensor
            # Without a header the tensor is described on the way back.
            back = header or b'{"name":"data","dtype":"uint8","shape":[100]}'
            assert theirs.ask("recv") == f"{size} {back.hex()} counted"


def test_a_receiver_of_ucxx_is_addressed(peer):
    with started(peer, "listen") as theirs, \
            started(EXAMPLE, "send",
                    f"ucx://127.0.0.1:{theirs.hear()}") as ours:
        header = b'{"name":"ramp","dtype":"float32","shape":[2,3]}'
        data = struct.pack("6f", *range(6))
        assert theirs.ask("recv") == f"24 {header.hex()} {data.hex()}"
        assert send(theirs, b"", 1000) == "sent"
        assert ours.end()[:2] == (0, "data uint8 [1000]\n")


def head(memory=0, callback=b"", policy=b"\0", length=None, user=b""):
    """A header of UCXX's, or what could be one."""
    return (struct.pack("<I?", memory, bool(callback)) + callback + policy +
            (b"" if length is None else struct.pack("<Q", length)) + user)


OWNER = b"owner".ljust(64, b"\0") + struct.pack("<Q", 7)


@pytest.mark.parametrize("size", [8, 1 << 20])  # eager, rendezvous
def test_a_bad_header_costs_its_message_alone(peer, size):
    rows = [
        (b"", "ends before the flag"),
        (b"\0\0\0", "ends before the flag"),
        (head(length=1 << 63), "a user header of 9223372036854775808 bytes"),
        (head(length=(1 << 64) - 1), "of which 0 are there"),
        (head(length=5, user=b"four"), "of 5 bytes, of which 4 are there"),
        (head(callback=OWNER[:71], policy=b""), "ends inside the callback"),
        (head(policy=b"\x07"), "policy 7"),
        (head(policy=b"\1", memory=1, length=0), "the policy is strict"),
        (head(length=len(SHAPED), user=SHAPED), "takes 6000 bytes"),
    ]
    with listening() as (ours, port), started(peer, port) as theirs:
        for header, _ in rows:
            told = theirs.ask(f"raw {header.hex() or '-'} {size}")
            assert (told == "sent") == (size == 8), told
            assert theirs.ask(f"raw {head().hex()} {size}") == "sent"
            assert ours.hear() == f"data uint8 [{size}]"
            assert theirs.ask("recv").startswith(f"{size} ")
        errors = ours.kill()[2].splitlines()
    assert len(errors) == len(rows), errors
    for (_, words), error in zip(rows, errors):
        assert words in error and "message" in error, error


def test_every_form_of_the_header_is_read(peer):
    rows = [
        head(policy=b""), head(), head(length=0), head(memory=3, length=0),
        head(callback=OWNER, length=0), head(callback=OWNER, policy=b""),
        head(length=0, user=b"of a newer version"),
    ]
    with listening() as (ours, port), started(peer, port) as theirs:
        for count, header in enumerate(rows):
            assert theirs.ask(f"raw {header.hex()} {count}") == "sent"
            assert ours.hear() == f"data uint8 [{count}]"


def test_peers_come_and_go(peer):
    with listening() as (ours, port):
        for end in "kill", "end", "kill":
            with started(peer, port) as theirs:
                assert send(theirs, b"", 8) == "sent"
                assert ours.hear() == "data uint8 [8]"
                assert theirs.ask("recv").startswith("8 ")
                getattr(theirs, end)()
        errors = [ours.process.stderr.readline() for _ in range(3)]
        assert ours.kill()[2] == ""
    for error in errors:
        assert "closed the connection, or died" in error
