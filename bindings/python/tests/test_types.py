# SPDX-License-Identifier: BSD-3-Clause
"""The package's hints are strict, and they serve its users."""

import subprocess
import sys

import pytest

pytest.importorskip("mypy")

USER = """
import tensormsg
from tensormsg import sync

async def use() -> None:
    async with tensormsg.connect("host:1") as ep:
        await ep.send({"x": 1}, frame=7)
        reveal_type(await ep.recv())
    reveal_type(await tensormsg.connect("host:1"))
    async for msg in tensormsg.listen(":1"):
        reveal_type(msg.peer)

with tensormsg.connect("host:1") as ep:
    reveal_type(ep.recv())
for msg in tensormsg.listen(":1"):
    reveal_type(msg.peer)
"""


def mypy(cache, *args):
    # From there, as no folder of ours must be found beside the package.
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache, *args],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=cache)
    assert ran.returncode == 0, ran.stdout
    return ran.stdout


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("mypy")


def test_the_package_is_strict(cache):
    mypy(cache, "-p", "tensormsg")


def test_a_user_sees_the_types(cache, tmp_path):
    (tmp_path / "user.py").write_text(USER)
    out = mypy(cache, tmp_path / "user.py")
    assert out.count('"tensormsg._aio.Message"') == 1
    assert out.count('"tensormsg._aio.Endpoint"') == 2
    assert out.count('"tensormsg.sync.Message"') == 1
    assert out.count('"tensormsg.sync.Endpoint"') == 1
