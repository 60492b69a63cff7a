# SPDX-License-Identifier: BSD-3-Clause
"""The command `tensormsg`, run as a shell would: what its tests share."""

import contextlib
import fcntl
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import ml_dtypes
import numpy as np
import safetensors.numpy

TOOL = os.environ["TENSORMSG"]
SOURCE = pathlib.Path(os.environ["TMSG_SOURCE_DIR"])
HELLO = os.path.join(os.environ["TENSORMSG_EXAMPLES"], "hello")
DIGITS = SOURCE / "examples/data/digits.npz"
UCX_1_22 = os.environ.get("TMSG_UCX_1_22")
BOUND = 60  # seconds, for what takes one
DONE, FAILED, USAGE = 0, 1, 2


def on_ucx(new):
    """The environment of a program that runs on UCX 1.22 (starting as fast as
    under ctest: cmake/testing.cmake), or on the one it was built with."""
    paths = [p for p in os.environ.get("LD_LIBRARY_PATH", "").split(":")
             if p not in ("", UCX_1_22)]
    env = {**os.environ, "LD_LIBRARY_PATH": ":".join([UCX_1_22] * new + paths)}
    env.pop("UCX_MEM_BISTRO_GRACE_DURATION", None)
    if new:
        env["UCX_MEM_BISTRO_GRACE_DURATION"] = "0us"
    return env


def run(*words, timeout=BOUND, **options):
    """Runs the command to its end."""
    return subprocess.run([TOOL, *map(str, words)], capture_output=True,
                          text=True, timeout=timeout, **options)


class Receiver:
    """`tensormsg recv`, or another that listens, in the background, with its
    URL."""

    def __init__(self, *words, prefix=(), command="recv", **options):
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [*prefix, TOOL, command, *map(str, words)], stdout=subprocess.PIPE,
            stderr=self.errors, text=True, **options)
        self.url = self.process.stdout.readline().strip()

    def end(self, timeout=BOUND):
        """Waits for it; its exit code, the rest of its output, its errors."""
        out, _ = self.process.communicate(timeout=timeout)
        self.errors.seek(0)
        return self.process.returncode, out, self.errors.read()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.end()


def has_tls():
    """Whether the library was built with OpenSSL."""
    needs = subprocess.run(["ldd", TOOL], capture_output=True, text=True,
                           check=True).stdout
    return "libssl" in needs


@contextlib.contextmanager
def receiver(*words, **options):
    """A receiver that does not outlive the test."""
    it = Receiver(*words, **options)
    try:
        yield it
    finally:
        if it.process.poll() is None:
            it.process.kill()
            it.process.wait()
        it.process.stdout.close()
        it.errors.close()


def wait_until_stopped(process):
    """Until it has stopped itself, by SIGSTOP."""
    deadline = time.monotonic() + BOUND
    wanted = os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT
    while not (seen := os.waitid(os.P_PID, process.pid, wanted)):
        assert time.monotonic() < deadline, "it did not stop"
        time.sleep(.001)
    assert seen.si_code == os.CLD_STOPPED, "it ended instead of stopping"


def wait_until_mapped(process, path):
    deadline = time.monotonic() + BOUND
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            maps = pathlib.Path(f"/proc/{process.pid}/maps").read_text()
            if str(path) in maps:
                return
        time.sleep(0.001)
    raise AssertionError(f"{path} was not mapped")


def write_over(path):
    with open(path, "r+b") as file:
        file.seek(8192)
        file.write(b"changed")


def cut(path):
    os.truncate(path, 4096)


# What may happen to a file that is in use, and what the command says of it.
CHANGES = [(write_over, "the file changed"), (cut, "the file was cut short")]


@contextlib.contextmanager
def alone(what):
    """One test at a time: of both runtimes, of every build of this source."""
    with open(SOURCE / what) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def free_port(host="127.0.0.1"):
    """Where nobody listens, and nobody will who takes what the system gives."""
    given = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    for _ in range(1000):
        port = random.randrange(10000, int(given.split()[0]))
        with contextlib.suppress(OSError), \
                socket.create_server((host, port)):
            return port
    raise AssertionError("every port is taken")


def must_have_room(folder, megabytes):
    free = shutil.disk_usage(folder).free >> 20
    assert free >= megabytes, \
        f"this test needs {megabytes} MiB in {folder}, and {free} are free"


def must_send(*words, **options):
    sent = run("send", *words, **options)
    assert (sent.returncode, sent.stderr) == (DONE, "")
    return sent


def one_line(text, *parts):
    """What the command says of an error is one line that names the thing."""
    assert text.count("\n") == 1 and text.startswith("tensormsg: "), text
    for part in parts:
        assert part in text


def make_sample(folder):
    """A file with a little of everything."""
    path = folder / "sample.safetensors"
    safetensors.numpy.save_file({
        "image": np.arange(12, dtype=np.float32).reshape(3, 4),
        "mask": np.array([True, False]),
        "scalar": np.array(7, dtype=np.int64),
        "empty": np.zeros((0, 5), dtype=np.uint8),
        "half": np.array([1.5, -2], dtype=ml_dtypes.bfloat16),
        "имя / 名前": np.array([1, 2], dtype=np.float64),
    }, path, metadata={"who": "a test", "when": "now"})
    return path


def assert_same_safetensors(a, b):
    first, second = (safetensors.numpy.load_file(p) for p in (a, b))
    assert list(sorted(first)) == list(sorted(second))
    for name, array in first.items():
        assert array.dtype == second[name].dtype
        assert array.shape == second[name].shape
        assert array.tobytes() == second[name].tobytes()
    with safetensors.safe_open(a, "np") as x, \
            safetensors.safe_open(b, "np") as y:
        assert x.metadata() == y.metadata()
