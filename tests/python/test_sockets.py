# SPDX-License-Identifier: BSD-3-Clause
"""Which sockets listening, and dialling, opens: what the table "Sockets" of
docs/understand/security.md says, and no other."""

import contextlib
import os
import re
import socket
import struct
import subprocess

import pytest

import cli

LISTEN = os.environ["TMSG_LISTEN"]
LISTENS = 0x10000  # of the flags of /proc/net/unix
WAKE_UPS = ("unix", "wake-ups", None)  # any number of them


def address(text):
    """An address of /proc/net, as text: words of the host's byte order."""
    digits, number = text.split(":")
    words = struct.unpack(f">{len(digits) // 8}I", bytes.fromhex(digits))
    family = socket.AF_INET if len(words) == 1 else socket.AF_INET6
    host = socket.inet_ntop(family, struct.pack(f"={len(words)}I", *words))
    return host, int(number, 16)


def inodes(pid):
    """Of the sockets that a process has open."""
    found = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            if it := re.fullmatch(r"socket:\[(\d+)\]",
                                  os.readlink(f"/proc/{pid}/fd/{fd}")):
                found.add(it[1])
    return found


def rows(pid, table):
    with open(f"/proc/{pid}/net/{table}") as lines:
        next(lines)
        return [line.split() for line in lines]


def sockets(pid):
    """What a stranger can reach of a process: (kind, address, port or None).
    The kernel may skip or repeat rows while other programs open and close
    sockets: read until it says the same twice."""
    before, now = None, read_sockets(pid)
    while before != now:
        before, now = now, read_sockets(pid)
    return now


def read_sockets(pid):
    mine, found = inodes(pid), []
    for table in "tcp", "tcp6":
        found += [("tcp", *address(row[1])) for row in rows(pid, table)
                  if row[3] == "0A" and row[9] in mine]
    for table in "udp", "udp6", "raw", "raw6", "udplite", "udplite6":
        if os.path.exists(f"/proc/{pid}/net/{table}"):
            found += [(table, *address(row[1])) for row in rows(pid, table)
                      if row[9] in mine]
    named = [row for row in rows(pid, "unix") if row[6] in mine
             and (int(row[3], 16) & LISTENS or len(row) > 7)]
    for row in named:
        name, datagrams = row[7] if len(row) > 7 else "", row[4] == "0002"
        if datagrams and re.fullmatch("@[0-9a-f]{5}", name):
            found.append(WAKE_UPS)
        else:
            found.append(("unix", name, None))
    return found


@contextlib.contextmanager
def process(*words, carrier="auto"):
    """One that listens or dials, with what it says of its URL."""
    environment = dict(os.environ, TENSORMSG_CARRIER=carrier)
    with subprocess.Popen([LISTEN, *words], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True,
                          env=environment) as it:
        try:
            yield it.stdout.readline().strip(), it.pid
        finally:
            it.stdin.close()
            assert it.wait(cli.BOUND) == 0


def promised():
    """The table, by what is in its first column: ours, UCX's."""
    text = (cli.SOURCE / "docs/understand/security.md").read_text()
    table = text.split("\n## Sockets\n")[1].split("\n## ")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")]
             for line in table.splitlines() if line.startswith("| ")]
    return {row[0].strip("`"): row[1:] for row in cells[1:]}


def fill(cell, url):
    """The sockets that a cell promises; a port that is UCX's choice is 0."""
    if cell == "none":
        return []
    if cell == "wake-ups":
        return [WAKE_UPS]
    if cell == "the socket file":
        return [("unix", url.removeprefix("unix://"), None)]
    host, which = re.fullmatch(r"TCP (\S+), (.+)", cell).groups()
    host = outside() if host == "A" else host
    port = int(url.rsplit(":", 1)[1]) if which == "the URL's port" else 0
    return [("tcp", host, port)]


def outside():
    """An address of this machine that is not loopback's; None: it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        return probe.getsockname()[0]


def has_ipv6():
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def must_be(pid, url, cells):
    expected = sum((fill(one, url) for cell in cells
                    for one in cell.split("; ")), [])
    chosen = {it[2] for it in expected if it[2]}
    found = [it[:2] + (it[2] if it[2] in chosen else it[2] and 0,)
             for it in sockets(pid) if it != WAKE_UPS]
    found += {WAKE_UPS} & set(sockets(pid))
    assert sorted(found, key=str) == sorted(expected, key=str)


@pytest.mark.parametrize("row", [row for row in promised() if "dial" not in row])
def test_listening_opens_what_the_documents_say(row, tmp_path):
    host = outside()
    if "//A" in row and host is None or "::1" in row and not has_ipv6():
        return  # this machine has no such address
    if row.startswith("tls:") and not cli.has_tls():
        return  # nor this library tls://
    row_url, _, by_ucx = row.partition("`, ")
    url = row_url.replace("//A", f"//{host}").replace("/path", f"{tmp_path}/s")
    if url.startswith("ucx://"):
        url = url.replace(":port", f":{cli.free_port(url[6:].split(':')[0])}")
    url = url.replace(":port", ":0")
    words = ["listen", url] if "://" in url else []
    with process(*words, carrier="ucx" if by_ucx else "auto") as (said, pid):
        must_be(pid, said, promised()[row])


def test_dialling_opens_what_the_documents_say():
    row, = [row for row in promised() if "dial" in row]
    with cli.receiver() as receiver, process("dial", receiver.url) as dialled:
        must_be(dialled[1], receiver.url, promised()[row])


def test_a_shell_sees_the_same(tmp_path):
    """`ss`, where there is one, knows of no more."""
    with process("listen", "tcp://127.0.0.1:0") as (_, pid):
        try:
            told = subprocess.run(["ss", "-Hlntup"], capture_output=True,
                                  text=True, timeout=cli.BOUND, check=True)
        except FileNotFoundError:
            return
        seen = [line.split()[4] for line in told.stdout.splitlines()
                if f"pid={pid}," in line]
        assert sorted(seen) == sorted(f"{host}:{port}" for _, host, port
                                      in sockets(pid) if port is not None)
