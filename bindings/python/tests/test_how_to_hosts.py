# SPDX-License-Identifier: BSD-3-Clause
"""The recipes of docs/how-to for restarts, keys, event loops and FastAPI."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest

from certificates import Site, needs_tls
from conftest import HERE, WAIT, blocks_of
from recipes import PAGES, recipe  # noqa: F401


def test_a_server_that_restarts(recipe):  # noqa: F811
    start = recipe("restart-reconnect.md", client={"range(20)": "range(4)"},
                   shown={"19 squared is 361": "3 squared is 9"})
    server, client = start("python server.py"), start("python client.py")
    lines = [client.line(), client.line()]
    assert lines == ["0 squared is 0\n", "1 squared is 1\n"]
    server.process.kill()
    server.process.wait()
    server = start("python server.py")
    client.ends(before="".join(lines))
    server.ends(signal.SIGTERM)


@needs_tls
def test_keys_of_two_hosts(recipe, tmp_path):  # noqa: F811
    start = recipe("keys-and-tls.md")
    start("python make_keys.py").ends()
    (tmp_path / "clients.key").write_text("".join(
        (tmp_path / f"{name}.key").read_text() for name in ("left", "right")))
    (tmp_path / "clients.key").chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    receiver = start("python receive.py tls://0.0.0.0:4000",
                     url=f"tls://0.0.0.0:{port}")
    end = time.monotonic() + WAIT
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        assert time.monotonic() < end
        time.sleep(0.02)
    for name in "left", "right":
        start(f"python send.py tls://192.0.2.7:4000 {name}.key",
              url=f"tls://127.0.0.1:{port}").ends()
    assert [receiver.line(), receiver.line()] == \
        receiver.shown.splitlines(keepends=True)


@needs_tls
def test_certificates_of_two_hosts(tmp_path):
    (block,) = blocks_of(PAGES / "keys-and-tls.md", "tls")
    site = Site(tmp_path)
    site.issue("farm")
    site.issue("camera")
    (tmp_path / "block.py").write_text(block)
    ran = subprocess.run(
        [sys.executable, "-W", "error", "block.py"], cwd=tmp_path, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=WAIT)
    assert ran.stdout == "camera at farm\n"


def test_an_event_loop_in_python(recipe):  # noqa: F811
    start = recipe("event-loop.md")
    loop = start("python loop.py")
    start("python send.py").ends()
    loop.ends()


def maps_of(text):
    return [line for line in text.splitlines() if "map" in line]


def test_an_event_loop_in_c(recipe, tmp_path):  # noqa: F811
    start = recipe("event-loop.md")
    (code,) = re.findall(r"^```c\n(.*?)^```",
                         (PAGES / "event-loop.md").read_text(),
                         re.MULTILINE | re.DOTALL)
    (tmp_path / "loop.c").write_text(code)
    library = os.path.dirname(os.environ["TMSG_PACKAGE"])
    subprocess.run(
        ["cc", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-I",
         HERE / "../../../include", "loop.c", "-o", "loop", "-L", library,
         "-ltensormsg", f"-Wl,-rpath,{library}"], cwd=tmp_path, check=True)
    loop = start("./loop", url=f"unix://{tmp_path}/socket")
    start("python send.py").ends()
    printed = loop.rest(signal.SIGINT)
    assert loop.process.returncode == 0
    assert maps_of(printed) == maps_of(loop.shown) != []


def ask(port, path, body=None):
    """What the application answers; it may not listen yet, or ask a server that
    does not yet."""
    end = time.monotonic() + WAIT
    while True:
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{port}{path}",
                                          body, timeout=WAIT)
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read()) from error
        except urllib.error.URLError:
            assert time.monotonic() < end
            time.sleep(0.02)


def test_fastapi_in_front_of_a_model(recipe):  # noqa: F811
    pytest.importorskip("fastapi")
    pytest.importorskip("uvicorn")
    infers, streams = recipe("inference-server.md"), recipe("token-stream.md")
    start = recipe("fastapi.md")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    model = infers("python server.py")
    app = start("uvicorn app:app --port 8000", port=str(port))
    image = b"\0\0\200\77" * 64
    with ask(port, "/infer", image) as answer:
        assert answer.read().decode() in (PAGES / "fastapi.md").read_text()
    with pytest.raises(AssertionError, match="256 bytes"):
        ask(port, "/infer", image[1:])
    model.ends(signal.SIGTERM)
    model = streams("python model.py")  # the application finds it by itself
    prompt = urllib.parse.quote("to be or not")
    with ask(port, f"/generate?prompt={prompt}") as answer:
        assert answer.read(18) == b"to be or not to be"
    assert model.line() == "generation ended\n"
    assert "Application shutdown complete" in app.rest(signal.SIGINT)
