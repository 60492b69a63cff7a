# SPDX-License-Identifier: BSD-3-Clause
import asyncio
import contextlib
import os
import pathlib
import re
import subprocess
import sys
import time

import pytest

import tensormsg
from tensormsg import _logs
from tensormsg._often import often

HERE = pathlib.Path(__file__).parent
DOCS = HERE / "../../../docs"
WAIT = 30  # seconds, before something is called a failure


class Blocking:
    """A sync.Endpoint under the names of the asynchronous one."""

    def __init__(self, endpoint):
        self.endpoint = endpoint

    async def send(self, *args, **more):
        self.endpoint.send(*args, timeout=WAIT, **more)

    async def recv(self):
        return self.endpoint.recv(timeout=WAIT)


class Mode:
    """Runs one scenario, written for asyncio, in each of the three ways."""

    def __init__(self, name):
        self.name = name

    def run(self, url, scenario, **options):
        async def main():
            async with tensormsg.connect(url, **options) as endpoint:
                await scenario(endpoint)

        if self.name == "sync":
            with tensormsg.connect(url, **options) as endpoint:
                without_loop(scenario(Blocking(endpoint)))
        elif self.name == "uvloop":
            uvloop = pytest.importorskip("uvloop")
            uvloop.run(main())
        else:
            asyncio.run(main())


def without_loop(coroutine):
    """Runs one all of whose calls block, in a thread that has no event loop."""
    assert asyncio._get_running_loop() is None
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise AssertionError("it waits for an event loop")


@pytest.fixture(autouse=True)
def all_is_logged():
    """What the tests before have logged does not count, here and in the library,
    which is asked anew."""
    often.forget()
    _logs.lines._taken = None


@pytest.fixture
def silent_library(monkeypatch):
    """The library's own log is not in `logging`, so that the package itself says
    what it would."""
    monkeypatch.setattr(_logs, "_level", lambda: 0)


@pytest.fixture(params=["asyncio", "uvloop", "sync"])
def mode(request):
    return Mode(request.param)


async def becomes_idle(seconds, most):
    """Whether this process uses no more than `most` of the processor's time in
    as many seconds, once what it did before is over."""
    for _ in range(8):
        before = time.process_time()
        await asyncio.sleep(seconds)
        if time.process_time() - before <= most:
            return True
    return False


def blocks_of(page, needs=None):
    """The programs in a document: those that need no more than numpy, or that
    say in their first line what they do."""
    every = re.findall(r"^```python\n(.*?)^```", page.read_text(),
                       re.MULTILINE | re.DOTALL)
    return [block for block in every if needs == (
        re.match("# needs (\\w+)\n|", block)[1])]


def environment():
    return {**os.environ, "UCX_LOG_LEVEL": "fatal"}


@contextlib.contextmanager
def python(*args, **options):
    """A Python process that ends with the block."""
    with subprocess.Popen([sys.executable, *map(str, args)],
                          stdout=subprocess.PIPE, text=True,
                          **{"env": environment(), **options}) as process:
        try:
            yield process
        finally:
            process.kill()


def place_of(transport, folder):
    return ":0" if transport == "tcp" else f"unix://{folder}/socket"


@contextlib.contextmanager
def echo(mode="sync", place=":0", **more):
    """Where another process answers each message with itself; `more` of its
    environment."""
    with python(HERE / "peer.py", mode, place,
                env={**environment(), **more}) as process:
        yield process.stdout.readline().strip(), process


@pytest.fixture(scope="session", params=["tcp", "unix"])
def echo_url(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("echo")
    if request.param == "unix":
        mode, more = "sync", {}
    else:  # on one machine shared memory would carry that, too
        mode, more = "asyncio", {"UCX_TLS": "tcp,self"}
    with echo(mode, place_of(request.param, folder), **more) as (url, _):
        yield url


@pytest.fixture(scope="session")
def echo_unix(tmp_path_factory):
    folder = tmp_path_factory.mktemp("echo_unix")
    with echo("sync", place_of("unix", folder)) as (url, _):
        yield url


def run_script(path):
    """What it says, which has no warning; it may import torch."""
    ran = subprocess.run([sys.executable, "-W", "error", str(path)], text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         timeout=270, env=environment())
    assert ran.returncode == 0, ran.stdout
    return ran.stdout
