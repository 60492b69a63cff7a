#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures how far behind a slow viewer of live frames is, by mode.

A camera publishes 60 frames a second; a viewer in a process of its own takes 50
ms for each that it gets. The lag of a frame is the time from its publication to
the moment at which the viewer has it and begins to look at it, by the clock that
both processes share. Frames that a viewer sees after the camera has stopped do
not count. Neither process is pinned to a core.

  live      mode="live" of the publisher
  asked     mode="live" of the viewer's connect()
  dialled   the camera dials its viewer, with mode="live"
  default   what publish() does by itself
  window 32 32 frames on the way and 16 that wait, whatever the viewer does: the
            default until now

  shm       a Unix socket, payloads over shared memory
  tcp       TCP alone, on the loopback device

`behind` is how many newer frames there were, at the median and at most. A viewer
in live mode is to be at most two frames (33 ms) and its own time behind: that is
50 ms, and what it overslept on a machine with other work. `beyond` is the most by
which a lag exceeds the viewer's own time for the frame before."""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

RATE, TAKES_S = 60, .05
LIMIT_MS = 1000 * 2 / RATE
SIZES = {"1080p": (1080, 1920, 3), "4k": (2160, 3840, 3)}
WAYS = {"live": {"mode": "live"}, "asked": {}, "dialled": {}, "default": {},
        "window 32": {"window": 32, "queue": 16}}
WARM_S = .5  # that do not count, at the beginning


def view(way, url, link):
    """The viewer: prints what it has seen as JSON, when it is told to end."""
    import tensormsg
    context = context_of(link)
    if way == "dialled":
        door = tensormsg.sync.listen(url, background=True, context=context)
        print(json.dumps(door.url), flush=True)
    else:
        door = tensormsg.sync.connect(url, context=context, background=True,
                                      mode="live" if way == "asked" else None)
    seen, own = [], 0.
    try:
        while True:
            msg = door.recv(5)
            now = time.monotonic()
            if msg.meta["frame"] < 0:
                break
            seen.append((msg.meta["frame"], now, own))
            time.sleep(TAKES_S)
            own = time.monotonic() - now
    except (tensormsg.Closed, tensormsg.PeerLost, tensormsg.TimedOut):
        pass
    print(json.dumps(seen), flush=True)
    door.abort()


def context_of(link):
    import tensormsg
    return tensormsg.Context(
        ucx_config="TLS=tcp,self" if link == "tcp" else None)


def film(send, seconds, shape):
    """Publishes at the rate, and returns when each frame was."""
    image, begun, at = np.zeros(shape, "u1"), time.monotonic(), []
    for frame in range(int(seconds * RATE)):
        time.sleep(max(0, begun + frame / RATE - time.monotonic()))
        image[0, 0] = frame % 256
        at.append(time.monotonic())
        send({"image": image}, frame=frame)
    return at


def measure(way, link, shape, seconds, folder):
    import tensormsg
    url = ":0" if link == "tcp" else f"unix://{folder}/{way.split()[0]}"
    start = [sys.executable, __file__, "--view", way, "--link", link]
    context = context_of(link)
    if way == "dialled":
        viewer = subprocess.Popen([*start, "--url", url], text=True,
                                  stdout=subprocess.PIPE)
        camera = tensormsg.sync.connect(json.loads(viewer.stdout.readline()),
                                        mode="live", context=context)
        transport = camera.describe()["transport"]
    else:
        camera = tensormsg.sync.publish(url, context=context, **WAYS[way])
        viewer = subprocess.Popen([*start, "--url", camera.url], text=True,
                                  stdout=subprocess.PIPE)
        camera.wait_for(1, 60)
        transport = camera.listener.peers[0].describe()["transport"]
    assert transport == link, f"{transport}, not {link}"
    at = film(camera.send, seconds, shape)
    camera.send({}, frame=-1)
    seen = json.loads(viewer.stdout.read())
    viewer.wait()
    camera.abort()
    return lags(at, seen)


def lags(at, seen):
    """Of each frame that was seen while the camera ran: ms, how many of them are
    not the viewer's own, and how many newer ones there were."""
    found = []
    for frame, when, own in seen:
        if at[0] + WARM_S < when < at[-1]:
            newer = sum(1 for later in at[frame + 1:] if later <= when)
            found.append((1000 * (when - at[frame]),
                          1000 * (when - at[frame] - own), newer))
    return found


def main():
    asked = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--seconds", type=float, default=6)
    asked.add_argument("--sizes", nargs="*", default=["1080p"], choices=SIZES)
    asked.add_argument("--ways", nargs="*", default=list(WAYS), choices=WAYS)
    asked.add_argument("--links", nargs="*", default=["shm", "tcp"])
    asked.add_argument("--view", help=argparse.SUPPRESS)
    asked.add_argument("--link", help=argparse.SUPPRESS)
    asked.add_argument("--url", help=argparse.SUPPRESS)
    args = asked.parse_args()
    if args.view:
        view(args.view, args.url, args.link)
        return 0
    bad = 0
    print(f"{len(os.sched_getaffinity(0))} cores, load "
          f"{os.getloadavg()[0]:.1f}\n")
    print("| size | link | mode | frames | ms median | 95 % | worst "
          "| behind median | worst | beyond ms | |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for size in args.sizes:
        for link in args.links:
            for way in args.ways:
                with tempfile.TemporaryDirectory() as folder:
                    found = measure(way, link, SIZES[size], args.seconds,
                                    folder)
                ms, beyond, newer = (sorted(one) for one in zip(*found))
                met = beyond[-1] <= LIMIT_MS
                is_live = way in ("live", "asked", "dialled")
                bad += is_live and not met
                print(f"| {size} | {link} | {way} | {len(ms)} "
                      f"| {statistics.median(ms):.1f} "
                      f"| {ms[math.ceil(.95 * len(ms)) - 1]:.1f} "
                      f"| {ms[-1]:.1f} | {statistics.median(newer):.0f} "
                      f"| {newer[-1]} | {beyond[-1]:.1f} "
                      f"| {('met' if met else 'not met') if is_live else ''} |",
                      flush=True)
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
