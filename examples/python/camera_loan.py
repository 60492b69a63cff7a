# SPDX-License-Identifier: BSD-3-Clause
"""A camera lends 4K frames at 60 a second to three viewers, each a process, that
take 0, 20 and 70 ms for a frame. They read the frames in the camera's memory.
The same once more with copies shows what these cost."""

import subprocess
import sys
import tempfile
import time
from typing import Any, List

import tensormsg

FRAMES, RATE, BLOCKS = 30, 60, 12
SHAPE = 2160, 3840, 3
TAKES = 0, .02, .07  # seconds


def view(url: str, takes: float) -> None:
    """A viewer. A slow one is sent the newest frame whenever it has time."""
    seen = lent = 0
    with tensormsg.connect(url, loan=True,
                           mode="live" if takes > 0 else None) as camera:
        for msg in camera:  # until the camera closes
            image = msg["image"]
            value = image[0, 0, 0]
            time.sleep(takes)
            assert (image[::100] == value).all()  # nobody has changed it
            lent += msg.lent
            seen += 1
            del image, msg  # gives the loan back
    print(f"  {takes * 1000:2.0f} ms a frame: {seen} frames, {lent} of them lent",
          flush=True)


def publish(url: str, frames: List[Any], lend: bool) -> float:
    """Returns the processor's time for a frame, in ms, of all threads here."""
    with tensormsg.publish(url) as camera:
        viewers = [subprocess.Popen([sys.executable, __file__, url, str(takes)])
                   for takes in TAKES]
        camera.wait_for(len(viewers), timeout=60)
        used, begun, late = 0., time.monotonic(), 0
        for i in range(FRAMES):
            image = next((each for each in frames if each.flags.writeable), None)
            if image is None:  # the viewers have all of them
                late += 1
            else:
                image[:] = i  # the camera's own work does not count
                before = time.process_time()
                camera.send({"image": image}, lend=lend, frame=i)
                used += time.process_time() - before
            wait = begun + (i + 1) / RATE - time.monotonic()
            before = time.process_time()
            time.sleep(max(0, wait))
            used += time.process_time() - before
    for viewer in viewers:
        assert viewer.wait(60) == 0
    if late:
        print(f"  {late} frames were left out")
    return used / FRAMES * 1000


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        frames = [tensormsg.empty(SHAPE, "u1") for _ in range(BLOCKS)]
        for lend in True, False:
            print("lent:" if lend else "copied:", flush=True)
            ms = publish(f"unix://{folder}/camera{lend}", frames, lend)
            print(f"  the camera's processor time: {ms:.2f} ms a frame")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        view(sys.argv[1], float(sys.argv[2]))
    else:
        main()
