# SPDX-License-Identifier: BSD-3-Clause
"""Each block of the package's README, docs/start and docs/python runs as it
stands, without a warning, and so do the programs of README."""

import pathlib
import re
import subprocess
import sys
import time

import pytest

import tensormsg
from certificates import Site, needs_tls
from conftest import DOCS, blocks_of, environment, python

HERE = pathlib.Path(__file__).parent
BLOCKS = [pytest.param(block, id=f"{page.stem}{i}") for page in (
    HERE / "../README.md", DOCS / "start/install.md",
    *sorted(DOCS.glob("python/*.md"))) for i, block in enumerate(blocks_of(page))]
OBSERVED = DOCS / "reference/observability.md"
OF_LOANS = blocks_of(DOCS / "reference/loans.md")
EXAMPLES = sorted((HERE / "../../../examples/python").glob("*.py"))


def run(*args, **where):
    ran = subprocess.run([sys.executable, "-W", "error", *map(str, args)],
                         text=True, **where, stdout=subprocess.PIPE, timeout=50,
                         stderr=subprocess.STDOUT, env=environment())
    assert ran.returncode == 0, ran.stdout
    return ran.stdout


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_of_a_page(block, tmp_path):
    (tmp_path / "block.py").write_text(block)
    out = run(tmp_path / "block.py", cwd=tmp_path)
    assert (out != "") == ("print" in block), out


@needs_tls
def test_tls_in_python(tmp_path):
    (block,) = blocks_of(DOCS / "python/security.md", "tls")
    site = Site(tmp_path)
    site.issue("farm")
    site.issue("camera")
    (tmp_path / "block.py").write_text(block)
    assert run(tmp_path / "block.py", cwd=tmp_path) == "camera farm\n"


def test_tls_of_its_page(tmp_path):
    (block,) = blocks_of(DOCS / "reference/tls.md")
    site = Site(tmp_path)
    site.issue("server")
    site.issue("alice")
    (tmp_path / "block.py").write_text(block)
    assert run(tmp_path / "block.py", cwd=tmp_path) == "alice server\n"


def test_loans_of_their_page(tmp_path):
    (block,) = OF_LOANS
    block = block.replace("/tmp/viewer", f"{tmp_path}/viewer")
    (tmp_path / "block.py").write_text(block)
    assert run(tmp_path / "block.py") == "(2160, 3840, 3) False False\n"


@pytest.mark.parametrize("needs, index", [
    (needs, index)
    for needs in (None, "prometheus_client", "opentelemetry", "tqdm")
    for index in range(len(blocks_of(OBSERVED, needs)))])
def test_a_block_of_the_page_on_observability(needs, index, tmp_path):
    if needs is not None:
        pytest.importorskip(needs)
    (tmp_path / "block.py").write_text(blocks_of(OBSERVED, needs)[index])
    run(tmp_path / "block.py")


@pytest.mark.parametrize("example", [
    pytest.param(path, marks=needs_tls if path.name == "tls.py" else (),
                 id=path.name) for path in EXAMPLES])
def test_an_example(example):
    assert run(example)


@pytest.mark.parametrize("page, served, said", [
    ("../README.md", "{'frame': 7} [[1. 1. 1.]", ""),
    ("start/first-message.md", "{'frame': 7} [[1. 1. 1.]", ""),
    ("start/two-hosts.md", "farm (480, 640, 3)", ""),
    ("start/first-call.md", None, "[2. 4. 6.]\n")])
def test_the_two_programs_of_a_page(page, served, said, tmp_path):
    """As two processes. The first has no end: it is killed."""
    server, client = [
        re.sub(r'"(tls://)?(localhost|[\d.]*):\d+"',
               f'"unix://{tmp_path}/socket"', code)
        for code in blocks_of(DOCS / page)]
    assert "unix://" in server and "unix://" in client
    tensormsg.save_key(str(tmp_path / "farm.key"), "farm")
    (tmp_path / "server.py").write_text(server)
    (tmp_path / "client.py").write_text(client)
    with python("-u", "-W", "error", "server.py", cwd=tmp_path) as serving:
        end = time.monotonic() + 50
        while not (tmp_path / "socket").exists():
            assert serving.poll() is None and time.monotonic() < end
            time.sleep(0.01)
        assert run("client.py", cwd=tmp_path) == said
        if served is not None:
            assert serving.stdout.readline() == served + "\n"
