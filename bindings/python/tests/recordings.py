# SPDX-License-Identifier: BSD-3-Clause
"""recordings.py SECONDS: three cameras of 30 frames a second are recorded for so
long by a process of its own, whose memory is bounded, and played at their own speed:
each map comes when it is due. test_recording.py has minutes by the cameras' clocks
alone."""

import pathlib
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

from tensormsg import recording, sync

CAMERAS = "left", "right", "rear"
RATE_HZ = 30
LATE_S = 1.0  # at most, on a machine that others use, too
MOST_MIB = 400


def film(camera, number, frames, began):
    camera.wait_for(1, 30)
    image = np.zeros((120, 160, 3), "u1")
    for frame in range(frames):
        time.sleep(max(began + frame / RATE_HZ - time.time(), 0))
        image[:] = frame % 256
        camera.send({"image": image, "number": number}, frame=frame,
                    acquired_ns=time.time_ns())
    camera.close()


def record(path, frames):
    """The most memory that it took, in MiB."""
    cameras = [sync.publish(":0", mode="all") for _ in CAMERAS]
    process = subprocess.Popen(
        [sys.executable, "-m", "tensormsg", "record",
         *(f"{name}={camera.url}" for name, camera in zip(CAMERAS, cameras)),
         path])
    began = time.time() + 2
    threads = [threading.Thread(target=film, args=(camera, number, frames, began))
               for number, camera in enumerate(cameras)]
    for thread in threads:
        thread.start()
    most = 0
    while process.poll() is None:
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        for line in status.splitlines():
            if line.startswith("VmHWM:"):
                most = max(most, int(line.split()[1]) >> 10)
        time.sleep(.1)
    for thread in threads:
        thread.join()
    assert process.returncode == 0
    return most


def view(url, got):
    with sync.connect(url, wait=True, timeout=30) as ep:
        for msg in ep:
            got.append((time.monotonic(), msg.meta["acquired_ns"] / 1e9,
                        msg.meta["frame"], int(msg["image"][0, 0, 0])))


def play(path, folder):
    """The latest that a map came, in seconds."""
    targets = {name: f"unix://{folder}/{name}" for name in CAMERAS}
    got = {name: [] for name in CAMERAS}
    threads = [threading.Thread(target=view, args=(targets[name], got[name]))
               for name in CAMERAS]
    for thread in threads:
        thread.start()
    subprocess.run([sys.executable, "-m", "tensormsg", "replay", path,
                    *(f"{name}={url}" for name, url in targets.items())],
                   check=True)
    for thread in threads:
        thread.join()
    # By the map that came soonest after its time in the recording.
    offset = min(came - at for of in got.values() for came, at, _, _ in of)
    for of in got.values():
        assert [frame for _, _, frame, _ in of] == list(range(len(of)))
        assert all(frame % 256 == pixel for _, _, frame, pixel in of)
    return max(came - at for of in got.values()
               for came, at, _, _ in of) - offset, got


def main(seconds):
    frames = int(seconds * RATE_HZ)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/cameras.mcap"
        most = record(path, frames)
        with recording.Reader(path) as reader:
            took = (reader.end_ns - reader.start_ns) / 1e9
            assert all(reader.topics[name].messages == frames
                       for name in CAMERAS)
        late, got = play(path, folder)
        assert all(len(of) == frames for of in got.values())
        print(f"{took:.1f} s, {pathlib.Path(path).stat().st_size >> 20} MiB, "
              f"recorded in {most} MiB of memory, played {late:.3f} s late at "
              "most")
        assert most < MOST_MIB and late < LATE_S


if __name__ == "__main__":
    main(float(sys.argv[1]))
