# SPDX-License-Identifier: BSD-3-Clause
"""A peer of secure_test.go: calls by a certificate and by a key, a file, and a
listener whose connection is cut and comes back."""

import sys

import numpy as np
import tensormsg
from tensormsg import sync


def main(folder, by_certificate, by_key):
    mine = tensormsg.TLS(ca=f"{folder}/ca.pem", cert=f"{folder}/python.pem",
                         key=f"{folder}/python.key")
    key = f"{folder}/secret.key"
    for url, how in (by_certificate, {"tls": mine}), (by_key, {"key": key}):
        with sync.connect(url, **how) as ep:
            reply = ep.call("who", {}, q=7)
            print(ep.principal, reply.meta["principal"], reply.meta["asked"])
            print(ep.health("who"), list(ep.methods()))
    tensormsg.save(f"{folder}/python.npz", {"image": np.arange(6.0).reshape(2, 3)})
    print(tensormsg.load(f"{folder}/go.safetensors")["image"].tolist(),
          flush=True)
    with sync.listen("tcp://127.0.0.1:0", key=key, reconnect=30,
                     carrier="stream", background=True) as listener:
        print("listens", listener.url, flush=True)
        for _ in range(2):
            msg = listener.recv(timeout=60)
            print(msg.peer.principal, int(msg["x"]), flush=True)
        sys.stdin.read()


main(*sys.argv[1:])
