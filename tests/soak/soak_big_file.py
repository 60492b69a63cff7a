"""An 8 GiB .safetensors of 3,000 tensors goes through send and recv with less
than 512 MiB of resident memory above the page cache on each side, by each
link. The place is kept after each. Needs 24 GiB of disk in $TMSG_SOAK_STATE."""
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time

import numpy

TENSORS = 3000
BYTES = 8 << 30
LIMIT = 512 << 20
SEED = int(os.environ.get("TMSG_SOAK_SEED", 20261121))
STATE = pathlib.Path(os.environ.get("TMSG_SOAK_STATE", "."))
PLACE = STATE / "big_file.place"
SCHEMES = ["unix", "tcp"]


def write_file(path):
    """Random blocks under random names' sizes, all float32, in file order."""
    random = numpy.random.default_rng(SEED)
    weights = random.random(TENSORS) + 0.05
    counts = (weights / weights.sum() * (BYTES // 4)).astype(numpy.int64)
    counts[-1] += BYTES // 4 - counts.sum()
    header, offset = {}, 0
    for i, count in enumerate(counts):
        header[f"layers.{i}.weight"] = {
            "dtype": "F32", "shape": [int(count)],
            "data_offsets": [offset, offset + 4 * int(count)]}
        offset += 4 * int(count)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    block = random.bytes(1 << 20)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for i in range(BYTES >> 20):  # no two blocks alike
            file.write(i.to_bytes(8, "little") + block[8:])


def digest(path):
    """Of names, dtypes, shapes and bytes; the JSON's own form does not count."""
    hash = hashlib.blake2b()
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        for name, entry in json.loads(file.read(length)).items():
            if name != "__metadata__":
                hash.update(f"{name} {entry}".encode())
        while chunk := file.read(1 << 24):
            hash.update(chunk)
    return hash.hexdigest()


class Watch(threading.Thread):
    """The most that a process held beside mapped files."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.path, self.peak = f"/proc/{pid}/status", 0
        self.start()

    def run(self):
        while True:
            try:
                fields = dict(line.split(":", 1) for line in open(self.path))
                held = sum(int(fields[key].split()[0]) << 10
                           for key in ("RssAnon", "RssShmem"))
            except (OSError, KeyError):
                return
            self.peak = max(self.peak, held)
            time.sleep(0.05)


def transfer(folder, scheme):
    source, out = folder / "model.safetensors", folder / f"out-{scheme}"
    out.mkdir()
    url = {"unix": f"unix://{folder}/socket", "tcp": "tcp://127.0.0.1:0"}[scheme]
    env = dict(os.environ)
    if scheme == "tcp":  # else UCX takes shared memory here, too
        env["UCX_TLS"] = "tcp"
    receiver = subprocess.Popen(
        [os.environ["TENSORMSG"], "recv", "--listen", url, "--out", str(out),
         "--count", "1", "--timeout", "600"], stdout=subprocess.PIPE, text=True,
        env=env)
    url = receiver.stdout.readline().strip()
    begin = time.monotonic()
    sender = subprocess.Popen([os.environ["TENSORMSG"], "send", url, str(source)],
                              env=env)
    watches = [Watch(sender.pid), Watch(receiver.pid)]
    codes = [sender.wait(3600)]
    if codes != [0]:
        receiver.terminate()  # it would wait for another
    codes.append(receiver.wait(60))
    seconds = time.monotonic() - begin
    peaks = [watch.peak for watch in watches]
    same = codes == [0, 0] and digest(source) == digest(out / source.name)
    print(f"{scheme}: exit codes {codes}, equal {same}, {seconds:.1f} s, "
          f"{BYTES / seconds / 1e9:.2f} GB/s, peak MiB above the page cache: "
          f"sender {peaks[0] >> 20}, receiver {peaks[1] >> 20}", flush=True)
    (out / source.name).unlink(missing_ok=True)
    return same and max(peaks) < LIMIT


def main():
    print(f"seed {SEED}", flush=True)
    place = int(PLACE.read_text()) if PLACE.exists() else 0
    if place > 0:
        print(f"goes on at slice {place}", flush=True)
    folder = STATE / "big_file"
    shutil.rmtree(folder, ignore_errors=True)  # of one that was killed
    folder.mkdir(parents=True)
    free = shutil.disk_usage(folder).free
    if free < 3 * BYTES:  # the file, what arrives, and what is kept
        sys.exit(f"{STATE}: {3 * BYTES >> 30} GiB are needed, "
                 f"{free >> 30} are free")
    try:
        write_file(folder / "model.safetensors")
        print(f"{TENSORS} tensors, {BYTES} bytes", flush=True)
        for slice in range(place, len(SCHEMES)):
            if not transfer(folder, SCHEMES[slice]):
                sys.exit(1)
            PLACE.write_text(f"{slice + 1}\n")
        PLACE.write_text("0\n")  # the next soak begins anew
    finally:
        shutil.rmtree(folder)


main()
