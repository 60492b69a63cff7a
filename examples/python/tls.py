# SPDX-License-Identifier: BSD-3-Clause
"""tls: a client and a server of tls://, which prove by certificates who they
are. The command makes these: `tensormsg key --ca DIR --principal server`."""

import os
import pathlib
import subprocess
import tempfile

import numpy as np

import tensormsg
from tensormsg import sync

COMMAND = os.environ.get("TENSORMSG", "tensormsg")


def certificate(folder: pathlib.Path, principal: str) -> tensormsg.TLS:
    """What a side proves, and whose certificates it takes."""
    subprocess.run([COMMAND, "key", "--ca", folder, "--principal", principal],
                   check=True)
    return tensormsg.TLS(ca=folder / "ca.pem", cert=folder / f"{principal}.pem",
                         key=folder / f"{principal}.key")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        server = certificate(pathlib.Path(name), "server")
        client = certificate(pathlib.Path(name), "client")
    # The files have been read. reload() would read them again.
    with sync.listen("tls://localhost:0", tls=server,
                     background=True) as listener:
        with sync.connect(listener.url, tls=client) as ep:
            ep.send({"numbers": np.zeros(1000000, "f4")})
            msg = listener.recv(10)
            print(f"{msg.peer.principal} sent {msg['numbers'].size} numbers to "
                  f"{ep.principal}")


if __name__ == "__main__":
    main()
