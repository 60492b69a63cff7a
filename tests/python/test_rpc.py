# SPDX-License-Identifier: BSD-3-Clause
"""The examples of docs/rpc.md."""

import os
import subprocess
import time

import cli


def test_the_server_and_client_examples(tmp_path):
    folder = os.path.dirname(cli.HELLO)
    url = f"unix://{tmp_path}/socket"
    with subprocess.Popen([os.path.join(folder, "server"), url]) as server:
        try:
            end = time.monotonic() + 60
            while not (tmp_path / "socket").exists():
                assert server.poll() is None and time.monotonic() < end
                time.sleep(0.01)
            said = subprocess.run([os.path.join(folder, "client"), url],
                                  capture_output=True, text=True, timeout=60)
        finally:
            server.kill()
    assert (said.returncode, said.stdout) == (0, "2\n4\n6\n"), said.stderr
