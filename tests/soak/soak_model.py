# SPDX-License-Identifier: BSD-3-Clause
"""Random runs of tests/model by every link, a slice each; $TMSG_SOAK_SLICES of
them (300), each with a seed of its own, which the totals name. A run that
breaks the model prints its commands and events, and is repeated by
TMSG_SOAK_SEED and the slice."""
import collections
import os
import pathlib
import sys

SOURCE = pathlib.Path(os.environ["TMSG_SOURCE_DIR"])
sys.path.insert(0, str(SOURCE / "tests/model"))
import model  # noqa: E402

SEED = int(os.environ.get("TMSG_SOAK_SEED", 20261122))
SLICES = int(os.environ.get("TMSG_SOAK_SLICES", 300))
PLACE = pathlib.Path(os.environ.get("TMSG_SOAK_STATE", ".")) / "model.place"
LINKS = ["tcp", "shm", "unix"]


def play(n):
    weights = {"be_silent": 1, "kill": 2} if n % 10 == 9 else {}
    return model.Run(SEED + n, LINKS[n % len(LINKS)], steps=1000,
                     actors=2 + n % 3, weights=weights).play()


def main():
    place = int(PLACE.read_text()) if PLACE.exists() else 0
    print(f"seed {SEED}, {SLICES} slices", flush=True)
    if place > 0:
        print(f"goes on at slice {place}", flush=True)
    totals = collections.Counter()
    for n in range(place, SLICES):
        totals += play(n)
        PLACE.write_text(f"{n + 1}\n")
        if n % 10 == 9:
            print(f"{n + 1}: {dict(totals)}", flush=True)
    PLACE.write_text("0\n")
    print(f"totals since slice {place}: {dict(totals)}")


main()
