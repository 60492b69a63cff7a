# SPDX-License-Identifier: BSD-3-Clause
"""silenced.py: connects several times to a process of its own, has a firewall
silence one TCP connection of each, and then waits for something by each. Says of
each, as JSON: its name, what was raised ("" for nothing), after how many
seconds, and the words. Runs in a network namespace that it has to itself, where
it is root."""

import asyncio
import json
import os
import subprocess
import sys
import threading
import time

import numpy as np

import tensormsg

TIMEOUT = 2  # seconds of silence
SMALL = {"x": np.arange(3)}
LARGE = {"x": np.ones(1 << 20)}


def serve():
    context = tensormsg.Context(peer_timeout=TIMEOUT)
    with tensormsg.listen(":0", context=context, reconnect=True) as listener, \
            listener.serve() as server:
        @server.method("echo")
        def echo(request):
            return request.tree()

        print(listener.url, flush=True)
        for message in listener:
            del message


def connections():
    """This process's, by TCP: the ports of both ends."""
    with open("/proc/self/net/tcp") as table:
        rows = [line.split() for line in table][1:]
    inodes = {f"socket:[{row[9]}]": tuple(
        int(end.split(":")[1], 16) for end in row[1:3]) for row in rows}
    links = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            links.add(os.readlink(f"/proc/self/fd/{fd}"))
        except OSError:
            pass  # the folder's own
    return {ends for link, ends in inodes.items() if link in links and ends[1]}


def ports_of(connect, url_port):
    """What connects, and its connections by the ports of both ends: UCX's, and
    the one for large payloads, which comes last."""
    before = connections()
    endpoint = connect()
    deadline = time.monotonic() + 10
    while True:
        more = connections() - before
        to_url = sorted(ends for ends in more if ends[1] == url_port)
        ucx = [ends for ends in more if ends[1] != url_port]
        if endpoint.describe()["bulk"] == "stands" and len(to_url) == 2:
            return endpoint, {"ucx": ucx, "bulk": to_url[1:]}
        assert time.monotonic() < deadline, (more, endpoint.describe()["bulk"])
        endpoint.send(SMALL, acked=True)


def silence(ports):
    rules = "".join(f"tcp {a} . tcp {b} {{ "
                    f"{', '.join(f'{own} . {peers}' for own, peers in ports)} "
                    "} drop\n"
                    for a, b in (("sport", "dport"), ("dport", "sport")))
    subprocess.run(["nft", "-f", "-"], text=True, check=True, input=(
        "table inet test {\nchain in {\n"
        "type filter hook input priority 0;\n" + rules + "}\n}\n"))


def tell(name, began, error=None):
    """A line in one piece: others tell theirs at the same time."""
    line = json.dumps([name, type(error).__name__ if error else "",
                       time.monotonic() - began, str(error or "")])
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def wait_for(name, endpoint, do):
    began = time.monotonic()
    try:
        do(endpoint)
    except tensormsg.Error as error:
        tell(name, began, error)
    else:
        tell(name, began)


# How it is connected, which of its connections is silenced, what is done.
BLOCKING = {
    "send": ({}, "ucx", lambda ep: ep.send(SMALL, acked=True)),
    "send in time": ({}, "ucx", lambda ep: ep.send(SMALL, acked=True,
                                                   timeout=TIMEOUT / 2)),
    "large": ({}, "bulk", lambda ep: ep.send(LARGE, acked=True)),
    "call": ({}, "ucx", lambda ep: ep.call("echo", SMALL)),
    "background": ({"background": True}, "ucx",
                   lambda ep: ep.send(SMALL, acked=True)),
    "session": ({"reconnect": True}, "ucx",
                lambda ep: ep.send(SMALL, acked=True)),
}
ASYNCIO = {
    "asyncio send": ({}, "ucx", lambda ep: ep.send(SMALL, acked=True)),
    "asyncio send in time": ({}, "ucx",
                             lambda ep: ep.send(SMALL, acked=True,
                                                timeout=TIMEOUT / 2)),
    "asyncio call": ({}, "ucx", lambda ep: ep.call("echo", SMALL)),
    "asyncio session": ({"reconnect": True}, "ucx",
                        lambda ep: ep.call("echo", SMALL)),
}


async def wait_all(url, context, port, silent, begin):
    async def wait(name, endpoint, do):
        began = time.monotonic()
        try:
            await do(endpoint)
        except tensormsg.Error as error:
            tell(name, began, error)
        else:
            tell(name, began)

    endpoints = {}
    for name, (how, path, _) in ASYNCIO.items():
        before = connections()
        endpoint = endpoints[name] = await tensormsg.connect(
            url, context=context, **how)
        await endpoint.send(SMALL, acked=True)
        silent += [ends for ends in connections() - before
                   if ends[1] != port]
    begin()
    await asyncio.gather(*(wait(name, endpoints[name], ASYNCIO[name][2])
                           for name in ASYNCIO))
    for endpoint in endpoints.values():
        endpoint.abort()


def main():
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    context = tensormsg.Context(peer_timeout=TIMEOUT)
    with subprocess.Popen([sys.executable, __file__, "serve"], text=True,
                          stdout=subprocess.PIPE) as server:
        try:
            url = server.stdout.readline().strip()
            port = int(url.rpartition(":")[2])
            threads, silent = [], []
            for name, (how, path, do) in BLOCKING.items():
                endpoint, ports = ports_of(
                    lambda how=how: tensormsg.sync.connect(
                        url, context=context, **how), port)
                silent += ports[path]
                threads.append(threading.Thread(
                    target=wait_for, args=(name, endpoint, do)))

            def begin():
                silence(silent)
                for thread in threads:
                    thread.start()

            asyncio.run(wait_all(url, context, port, silent, begin))
            for thread in threads:
                thread.join()
        finally:
            server.kill()


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve()
    else:
        main()
        os._exit(0)  # who waits for a lost peer's end is not waited for
