# SPDX-License-Identifier: BSD-3-Clause
"""A program that ends, or drops a connection, without having closed it: what
it sent arrives, for as long as it may wait for that."""

import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import tensormsg
from conftest import WAIT, environment, place_of

COUNT = 20
SEND = f"""
    for i in range({COUNT}):
        ep.send({{"x": np.full(100000, i)}}, i=i)
"""
BEGIN = "import asyncio, sys, numpy as np, tensormsg\nurl = sys.argv[1]\n"
SYNC = "ep = tensormsg.sync.connect(url)\nif True:" + SEND
PROGRAMS = {
    "kept": SYNC,
    "exits": SYNC + "sys.exit()",
    "local": "def main():\n    ep = tensormsg.sync.connect(url)" + SEND +
             "main()",
    "asyncio": "async def main():\n    global ep\n"
               "    ep = await tensormsg.connect(url)" +
               SEND.replace("ep.send", "await ep.send") + "asyncio.run(main())",
    "asyncio, local": "async def main():\n"
                      "    ep = await tensormsg.connect(url)" +
                      SEND.replace("ep.send", "await ep.send") +
                      "asyncio.run(main())",
    "multiprocessing": f"""
import multiprocessing
def main():
    ep = tensormsg.sync.connect(url){SEND}
if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=main)
    child.start()
    child.join()
""",
}


@pytest.mark.parametrize("transport", ["tcp", "unix"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_what_was_sent_arrives(program, transport, tmp_path):
    (tmp_path / "main.py").write_text(BEGIN + PROGRAMS[program])
    more = {"UCX_TLS": "tcp,self"} if transport == "tcp" else {}
    with tensormsg.listen(place_of(transport, tmp_path),
                          background=True) as server:
        with subprocess.Popen(
                [sys.executable, "-W", "error", str(tmp_path / "main.py"),
                 server.url], env={**environment(), **more},
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True) as process:
            time.sleep(.3)  # it is to wait for us
            for i in range(COUNT):
                msg = server.recv(WAIT)
                assert msg.meta["i"] == i and (msg["x"] == i).all()
            assert process.communicate(timeout=WAIT)[0] == ""
            assert process.returncode == 0


def test_what_was_answered_arrives(tmp_path):
    """Of a listener that is dropped."""
    (tmp_path / "main.py").write_text(BEGIN + f"""
def main():
    server = tensormsg.sync.listen(url)
    print(server.url, flush=True)
    msg = server.recv(60)
    for i in range({COUNT}):
        msg.peer.send({{"x": np.full(100000, i)}}, i=i)
main()
""")
    with subprocess.Popen(
            [sys.executable, "-W", "error", str(tmp_path / "main.py"), ":0"],
            env=environment(), stdout=subprocess.PIPE, text=True) as process:
        url = process.stdout.readline().strip()
        with tensormsg.connect(url, background=True) as ep:
            ep.send({"x": np.arange(3)}, timeout=WAIT)
            assert [ep.recv(WAIT).meta["i"] for _ in range(COUNT)] == list(
                range(COUNT))
        assert process.wait(WAIT) == 0


def test_a_peer_that_is_stopped_holds_the_end_up_for_a_while_only():
    with subprocess.Popen(
            [sys.executable, "-c", "import tensormsg\n"
             "server = tensormsg.sync.listen(':0', background=True)\n"
             "print(server.url, flush=True)\nserver.recv(60)\n"
             "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"],
            env=environment(), stdout=subprocess.PIPE, text=True) as peer:
        url = peer.stdout.readline().strip()
        with subprocess.Popen(
                [sys.executable, "-c",
                 BEGIN + "ep = tensormsg.sync.connect(url)\n"
                 "ep.send({'x': np.arange(3)})\n"
                 "import time; time.sleep(.5)\n"
                 "ep.send({'x': np.arange(3)})\nprint('end', flush=True)"]
                + [url], env=environment(), stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "end\n"
            since = time.monotonic()
            error = process.communicate(timeout=WAIT)[1]
            assert time.monotonic() - since < 8 and process.returncode == 0
            assert "ended before its peer had all that was sent" in error
        os.kill(peer.pid, signal.SIGCONT)
        peer.kill()


def test_abort_waits_for_nobody():
    with tensormsg.listen(":0", background=True) as server:
        ep = tensormsg.sync.connect(server.url)
        ep.send({"x": np.arange(3)})
        server.recv(WAIT)
        since = time.monotonic()
        ep.abort()
        del ep
        assert time.monotonic() - since < 1


USES = {
    "send": "ep.send(X)",
    "acked": "ep.send(X, acked=True)",
    "recv": "ep.recv()",
    "call": "ep.call('none')",
    "describe": "ep.describe()",
    "connect": "tensormsg.sync.connect(listener.url).abort()",
    "peers": "listener.peers",
    "publish": "publisher.send(X)",
    "subscribers": "publisher.subscribers",
    "wait_for": "publisher.wait_for(1000)",
    "flush": "publisher.flush()",
    "info": "tensormsg.info()",
}


@pytest.mark.parametrize("use", USES)
def test_daemon_threads_are_not_heard_of_at_exit(tmp_path, use):
    (tmp_path / "main.py").write_text(f"""
import numpy as np, tensormsg, threading, time
X = {{"x": np.arange(3)}}
listener = tensormsg.sync.listen(":0", background=True)
publisher = tensormsg.sync.publish(":0", keep=1)
ep = tensormsg.sync.connect(listener.url, background=True)

def run():
    while True:
        try:
            {USES[use]}
        except tensormsg.Unavailable:  # nobody serves
            pass

def take():
    while True:
        listener.recv()

for work in (run, run, take):
    threading.Thread(target=work, daemon=True).start()
time.sleep(.2)
""")
    ran = subprocess.run(
        [sys.executable, "-W", "error", str(tmp_path / "main.py")],
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        timeout=WAIT, text=True)
    said = [line for line in ran.stdout.splitlines()  # before the exit
            if use != "connect" or not re.match(
                r"lost tcp://|a peer was lost \d+ more times", line)]
    assert (ran.returncode, said) == (0, [])
