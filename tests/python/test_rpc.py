# SPDX-License-Identifier: BSD-3-Clause
"""The examples of docs/reference/calls.md, docs/reference/streams.md,
docs/reference/offers.md and
docs/reference/interceptors.md."""

import json
import os
import subprocess
import time

import cli


def run(tmp_path, server, client, *args):
    """What the client, of examples/ or another command, says to the server."""
    folder = os.path.dirname(cli.HELLO)
    url = f"unix://{tmp_path}/socket"
    with subprocess.Popen([os.path.join(folder, server), url]) as serving:
        try:
            end = time.monotonic() + 60
            while not (tmp_path / "socket").exists():
                assert serving.poll() is None and time.monotonic() < end
                time.sleep(0.01)
            said = subprocess.run([os.path.join(folder, client), *args, url],
                                  capture_output=True, text=True, timeout=60)
        finally:
            serving.kill()
    assert said.returncode == 0, said.stderr
    return said.stdout


def test_the_server_and_client_examples(tmp_path):
    assert run(tmp_path, "server", "client") == "2\n4\n6\n"


def test_the_stream_examples(tmp_path):
    assert run(tmp_path, "stream_server", "stream_client") == "1\n3\n6\n10\n"


def test_the_examples_of_offers(tmp_path):
    assert run(tmp_path, "offer", "fetch") == (
        "version 3: 4 x 3, the first is 3\nversion 3: 2 x 3, the first is 3.1\n")


def test_info_lists_what_a_peer_offers(tmp_path):
    assert "\n  offers\n    weights  (version 3: 1 tensor, 48 bytes)\n" in run(
        tmp_path, "offer", cli.TOOL, "info")


def test_info_says_that_a_peer_offers_nothing(tmp_path):
    assert "\n  offers  none\n" in run(tmp_path, "server", cli.TOOL, "info")


def test_info_lists_offers_as_json(tmp_path):
    told = json.loads(run(tmp_path, "offer", cli.TOOL, "info", "--json"))
    assert told["offers"] == [{"name": "weights", "version": 3, "tensors": 1,
                               "bytes": 48, "offers": 1}]
    assert told["more_offers"] is False


def test_the_example_of_interceptors():
    program = os.path.join(os.path.dirname(cli.HELLO), "intercept")
    said = subprocess.run([program], capture_output=True, text=True, timeout=60)
    assert said.returncode == 0, said.stderr
    assert said.stdout.splitlines() == [
        "answer: refused",
        "span of the server",
        "span of the caller, which began it",
        "no good token (no handler saw the call)",
        "answer: ok",
        "span of the server",
        "span of the caller, which began it",
        "anwser: not found",
        "span of the caller, which began it",
        "no such method here (no handler saw the call)",
    ]
