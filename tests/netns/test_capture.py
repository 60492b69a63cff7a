# SPDX-License-Identifier: BSD-3-Clause
"""Who listens on the cable reads all that goes by tcp://, and nothing of what goes by
tls://: no tensor's bytes, no name, no metadata."""

import secrets
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import hosts
from hosts import CABLE, TOOL

WINDOW = 16  # bytes
NAME, META = "a-secret-name", "a-secret-of-the-metadata"

CAPTURES = """import select, socket, sys
cable = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
cable.setsockopt(socket.SOL_SOCKET, 33, 1 << 24)  # SO_RCVBUFFORCE
cable.bind((sys.argv[1], 0))
print("captures", flush=True)
with open(sys.argv[2], "wb") as out:
    while True:
        ready = select.select([cable, sys.stdin], [], [])[0]
        if cable in ready:
            packet = cable.recv(1 << 18)
            out.write(len(packet).to_bytes(4, "little") + packet)
        elif ready:
            break
"""


@pytest.fixture(scope="module")
def joined():
    try:
        with hosts.two_hosts() as made:
            yield made
    except hosts.Forbidden as why:
        pytest.skip(f"this machine forbids namespaces: {why}")


def captured(path):
    """All windows of all packets, and the packets."""
    data = path.read_bytes()
    packets, at = [], 0
    while at < len(data):
        length = int.from_bytes(data[at:at + 4], "little")
        packets.append(data[at + 4:at + 4 + length])
        at += 4 + length
    windows = {packet[i:i + WINDOW] for packet in packets
               for i in range(len(packet) - WINDOW + 1)}
    return windows, b"".join(packets)


def seen(joined, tmp_path, scheme):
    """How many windows of the tensor, and whether its name and the metadata, are
    seen on the cable."""
    receiving, sending = joined
    source, out, key = (tmp_path / name for name in ("map.safetensors", "out", "key"))
    array = np.frombuffer(secrets.token_bytes(1 << 18), np.uint8)
    save_file({NAME: array}, source, metadata={"of": META})
    out.mkdir()
    receiving.run(TOOL, "key", "--out", key)
    capture = receiving.start(sys.executable, "-c", CAPTURES, CABLE,
                              tmp_path / "packets")
    assert capture.line() == "captures"
    there = receiving.start(TOOL, "recv", "--listen",
                            f"{scheme}://{receiving.address}:0", "--count", 1,
                            "--key", key, "--out", out)
    done = sending.run(TOOL, "send", "--key", key, there.line(), source)
    assert (done.returncode, done.stderr) == (0, "")
    assert there.process.wait(hosts.BOUND) == 0
    np.testing.assert_array_equal(load_file(out / "map.safetensors")[NAME], array)
    capture.process.stdin.close()
    assert capture.process.wait(hosts.BOUND) == 0
    windows, all_bytes = captured(tmp_path / "packets")
    assert len(all_bytes) > array.nbytes
    data = array.tobytes()
    count = sum(data[i:i + WINDOW] in windows for i in range(0, len(data), WINDOW))
    return (count / (len(data) / WINDOW), NAME.encode() in all_bytes,
            META.encode() in all_bytes)


def test_nothing_of_tls_is_read_on_the_cable(joined, tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORMSG_CARRIER", "stream")
    assert seen(joined, tmp_path, "tls") == (0, False, False)


def test_all_of_tcp_is_read_on_the_cable(joined, tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORMSG_CARRIER", "stream")
    share, name, meta = seen(joined, tmp_path, "tcp")
    assert share > .99 and name and meta
