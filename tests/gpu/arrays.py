# SPDX-License-Identifier: BSD-3-Clause
"""Arrays of torch and cupy on a GPU, from process to process.

Prints a line for each case as it ends, "python|library|case|outcome". "driver"
is memory of the driver's own, which needs no library: the least that can go
wrong. Exit: 0 all is well, 1 a case failed, also where none could be run.

all.sh runs it with the package that pack.sh unpacked beside it.
"""

import contextlib
import ctypes
import importlib
import os
import subprocess
import sys
import threading
import time

import numpy as np

import tensormsg

WAIT = int(os.environ.get("TMSG_GPU_WAIT_S", "15"))
LARGE = min(64 << 20, int(os.environ.get("TMSG_GPU_MOST", 64 << 20)))


def pattern(nbytes, seed):
    return (np.arange(nbytes, dtype="u4") * 7 + seed).astype("u1")


class Driver:
    """Memory by cuMemAlloc(), in numpy's arrays at either end."""

    like = None

    class Memory:
        def __init__(self, driver, nbytes):
            address = ctypes.c_uint64()
            driver.call("cuMemAlloc_v2", ctypes.byref(address),
                        ctypes.c_size_t(max(nbytes, 1)))
            self.driver, self.address = driver, address.value
            self.__cuda_array_interface__ = {
                "shape": (nbytes,), "typestr": "|u1", "version": 3,
                "data": (self.address, False), "strides": None}

        def __del__(self):
            self.driver.call("cuMemFree_v2", ctypes.c_uint64(self.address))

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        self.context = ctypes.c_void_p()
        self.check("cuInit", 0)
        self.check("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), 0)

    def check(self, name, *args):
        error = getattr(self.library, name)(*args)
        if error:
            raise RuntimeError(f"{name}(): error {error}")

    def call(self, name, *args):
        """From whatever thread."""
        self.check("cuCtxPushCurrent_v2", self.context)
        try:
            self.check(name, *args)
        finally:
            self.check("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def copy(self, name, to, source, nbytes):
        self.call(name, to, source, ctypes.c_size_t(nbytes), None)
        self.call("cuStreamSynchronize", None)

    def put(self, host):
        memory = self.Memory(self, host.nbytes)
        self.copy("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(memory.address),
                  ctypes.c_void_p(host.ctypes.data), host.nbytes)
        return memory

    def take(self, nbytes, device):
        return self.Memory(self, nbytes)

    def get(self, msg):
        """Reads where the DLTensor says: data, device, ndim and dtype, shape."""
        capsule = msg.dlpack("x").__dlpack__(stream=1)
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype = ctypes.c_void_p
        pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
        at = pointer(capsule, b"dltensor")
        data = ctypes.c_uint64.from_address(at)
        assert ctypes.c_int32.from_address(at + 8).value == 2  # CUDA's
        shape = ctypes.c_uint64.from_address(at + 24).value
        host = np.empty(ctypes.c_int64.from_address(shape).value, "u1")
        self.copy("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(host.ctypes.data),
                  data, host.nbytes)
        return host


class Torch:
    like = "torch"

    def __init__(self):
        self.torch = importlib.import_module("torch")
        self.torch.zeros(1, device="cuda")

    def put(self, host):
        return self.torch.from_numpy(host).cuda()

    def take(self, nbytes, device):
        return self.torch.empty(nbytes, dtype=self.torch.uint8,
                                device=f"cuda:{device}")

    def get(self, msg):
        assert msg["x"].is_cuda
        return msg["x"].cpu().numpy()

    @contextlib.contextmanager
    def late(self, host):
        """A tensor that a stream, the current one, fills in some 50 ms."""
        source = self.put(host)
        tensor = self.torch.empty_like(source)
        with self.torch.cuda.stream(self.torch.cuda.Stream()):
            self.torch.cuda._sleep(100_000_000)  # cycles
            tensor.copy_(source)
            yield tensor

    def capture(self, stop):
        """Graphs are captured, each for some 50 ms, until `stop()`."""
        x = self.torch.ones(1000, device="cuda")
        while not stop():
            graph = self.torch.cuda.CUDAGraph()
            with self.torch.cuda.graph(graph):
                for _ in range(10):
                    x.mul_(1)
                    time.sleep(0.005)
            graph.replay()
        self.torch.cuda.synchronize()


class Cupy:
    like = "cupy"

    def __init__(self):
        self.cupy = importlib.import_module("cupy")
        self.cupy.zeros(1)

    def put(self, host):
        return self.cupy.asarray(host)

    def take(self, nbytes, device):
        return self.cupy.empty(nbytes, "u1")

    def get(self, msg):
        assert isinstance(msg["x"], self.cupy.ndarray)
        return self.cupy.asnumpy(msg["x"])


LIBRARIES = {"driver": Driver, "torch": Torch, "cupy": Cupy}


# What the sender does, and what comes of it.

def sizes(library, send):
    for seed, nbytes in enumerate([1, 64, 4096, 65537, 5_000_001]):
        send(library.put(pattern(nbytes, seed)))


def take_sizes(library, receive):
    for seed, nbytes in enumerate([1, 64, 4096, 65537, 5_000_001]):
        assert (library.get(receive()) == pattern(nbytes, seed)).all()


def turned(library, send):
    send(library.put(pattern(600 * 500, 3)).reshape(600, 500).T)


def take_turned(library, receive):
    there = pattern(600 * 500, 3).reshape(600, 500).T
    assert (library.get(receive()) == there).all()


def late(library, send):
    for seed in range(3):
        with library.late(pattern(LARGE // 8, seed)) as array:
            send(array)


def take_late(library, receive):
    for seed in range(3):
        assert (library.get(receive()) == pattern(LARGE // 8, seed)).all()


def capture(library, send):
    array = library.put(pattern(LARGE // 8, 5))
    done, failed = threading.Event(), []

    def sending():
        try:
            for _ in range(20):
                send(array)
        except Exception as error:  # noqa: BLE001
            failed.append(error)
        done.set()

    thread = threading.Thread(target=sending)
    thread.start()
    try:
        library.capture(done.is_set)
    finally:
        thread.join()
    if failed:
        raise failed[0]


def take_captured(library, receive):
    for _ in range(20):
        assert (library.get(receive()) == pattern(LARGE // 8, 5)).all()


def rate(library, send):
    array = library.put(pattern(LARGE, 0))
    for _ in range(13):
        send(array)


def take_rate(library, receive):
    for _ in range(3):
        receive()
    began = time.monotonic()
    for _ in range(10):
        receive()
    return f"{10 * LARGE / (time.monotonic() - began) / 1e9:.2f} GB/s"


CASES = {
    "1 B to 5 MB": (sizes, take_sizes, LIBRARIES),
    "a transposed array": (turned, take_turned, ["torch", "cupy"]),
    "filled by a stream": (late, take_late, ["torch"]),
    f"{LARGE >> 20} MiB arrays": (rate, take_rate, LIBRARIES),
    "sent while another thread captures a graph":
        (capture, take_captured, ["torch"]),
}


def sender(name, url):
    """Sends what standard input names, and says how that went."""
    library = LIBRARIES[name]()
    with tensormsg.connect(url, background=True) as ep:
        print("ready", flush=True)
        for line in sys.stdin:
            try:
                CASES[line.strip()][0](
                    library, lambda array: ep.send({"x": array}, timeout=WAIT))
                print("ok", flush=True)
            except Exception as error:  # noqa: BLE001
                print("FAILED:", repr(error).replace("\n", " "), flush=True)


def outcome(library, child, case, receive):
    child.stdin.write(case + "\n")
    child.stdin.flush()
    try:
        said = CASES[case][1](library, receive) or "ok"
    except Exception as error:  # noqa: BLE001
        said = "FAILED: " + repr(error).replace("\n", " ")
    if not said.startswith("FAILED"):
        there = child.stdout.readline().strip()
        said = said if there == "ok" else there or "FAILED: the sender died"
    return said


def run(name):
    """Whether all is well."""
    library = LIBRARIES[name]()
    like = {"like": library.like} if library.like else {}
    with tensormsg.listen("tcp://127.0.0.1:0", background=True,
                          allocators={"cuda": library.take}, **like) as server:
        child = subprocess.Popen(
            [sys.executable, __file__, name, server.url], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            if child.stdout.readline() != "ready\n":
                raise RuntimeError("the sender does not start")
            for case, (_, _, libraries) in CASES.items():
                if name not in libraries:
                    continue
                said = outcome(library, child, case,
                               lambda: server.recv(timeout=WAIT))
                print(f"python|{name}|{case}|{said}")
                if said.startswith("FAILED"):
                    return False  # what it still sends is of that case
            child.stdin.close()
            child.wait(WAIT)
        finally:
            child.kill()
            child.wait()
    return True


def main():
    ucx = tensormsg.info()["ucx"]
    print("package:", tensormsg.__file__, "UCX:", ucx)
    well = True
    for name in LIBRARIES:
        if name != "driver":
            try:
                importlib.import_module(name)
            except ImportError as error:
                print(f"python|{name}|-|not here: {error}")
                continue
        try:
            well = run(name) and well
        except Exception as error:  # noqa: BLE001
            print(f"python|{name}|-|FAILED: {error!r}".replace("\n", " "))
            well = False
    return 0 if well else 1


if __name__ == "__main__":
    if len(sys.argv) == 3:
        sender(*sys.argv[1:])
    else:
        sys.exit(main())
