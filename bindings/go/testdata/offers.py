# SPDX-License-Identifier: BSD-3-Clause
"""A peer of offer_test.go: fetches of an owner, and then offers at a URL until
its input ends."""

import sys

import numpy as np
from tensormsg import empty, sync


def main(owner, url):
    with sync.connect(owner) as ep:
        print(ep.offers()["weights"])
        whole = ep.fetch(name="weights", at_least=1)
        print(whole.meta["tensormsg.offer.version"], whole["w"][5].tolist())
        print(ep.fetch(name="weights", slices={"w": np.s_[1:3, 2:]})["w"].tolist())
        into = np.zeros((1 << 14, 4), "f4")
        ep.fetch(name="weights", into={"w": into})
        print(into[5].tolist())
        loan = ep.fetch(name="weights", loan=True)["w"]
        print(loan.flags.writeable, loan[5].tolist())
        del loan
        frame = empty((1 << 16,), "i8")
        frame[:] = np.arange(1 << 16)
        print(ep.call("look", {"frame": frame}, lend=True)["seen"].tolist())
        kept = ep.fetch(name="kept", loan=True)
        with sync.listen(url, background=True) as listener:
            offer = listener.offer({"frame": frame}, name="frame", version=7,
                                   lend=True)
            print("ready", flush=True)
            sys.stdin.read()
            del offer, kept


main(*sys.argv[1:])
