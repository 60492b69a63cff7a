# SPDX-License-Identifier: BSD-3-Clause
"""Arrays in memory of CUDA's are sent. On a driver that only passes for one:
nothing is said of a GPU here."""

import os
import subprocess
import sys

import numpy as np
import pytest

import tensormsg

with_fakes = pytest.mark.skipif(
    not os.environ.get("TMSG_FAKES"),
    reason="no driver that passes for CUDA's was built here")

# The driver that is none: its table of functions.
FAKE = """
import ctypes, gc, threading, weakref
import numpy as np
import tensormsg
from tensormsg._lib import ffi, lib

fake = ctypes.CDLL("libcuda.so.1").fake_cuda
fake.restype = ctypes.POINTER(ctypes.c_void_p)
size, number, pointer = ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p

def function(at, *types):
    return ctypes.CFUNCTYPE(*types)(fake()[at])

fault = function(3, ctypes.c_char_p)
poke = function(8, None, size, pointer, size)
block = function(9, None, size)
unblock = function(10, None, size)
alloc = function(14, size, number, size, number)
streams = [function(15, size, number)(device) for device in (0, 1)]

class Cuda:
    def __init__(self, array, device, **about):
        base = array.base if array.base is not None else array
        self.address = alloc(device, base.nbytes, 1)
        poke(self.address, base.ctypes.data, base.nbytes)
        self.__cuda_array_interface__ = {
            "shape": array.shape, "typestr": array.dtype.str, "version": 3,
            "data": (self.address, False), "strides": None
            if array.flags.c_contiguous else array.strides, **about}

class DLPack:
    def __init__(self, array, device):
        self.memory, self.device = Cuda(array, device), device
        self.tensor = ffi.new("tmsg_tensor_t *", {
            "data": ffi.cast("void *", self.memory.address),
            "device": (2, device), "dtype": (2, 64, 1), "ndim": 1,
            "shape": ffi.new("int64_t[]", array.shape)})
        self.asked = []

    def __dlpack_device__(self):
        return (2, self.device)

    def __dlpack__(self, *, stream=None):
        self.asked.append(stream)
        managed_p = ffi.new("struct DLManagedTensor **")
        shape = ffi.new("int64_t[]", list(
            self.memory.__cuda_array_interface__["shape"]))
        self.tensor.shape = shape
        assert lib.tmsg_tensor_to_dlpack(self.tensor, ffi.NULL, managed_p) == 0
        new = ctypes.pythonapi.PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = [pointer, ctypes.c_char_p, pointer]
        return new(int(ffi.cast("uintptr_t", managed_p[0])), b"dltensor", None)

image = np.arange(48, dtype="i4").reshape(6, 8)
listener = tensormsg.sync.listen(":0", background=True)
ep = tensormsg.sync.connect(listener.url, background=True)
"""

ARRIVE = FAKE + """
dlpack = DLPack(np.linspace(0, 1, 1000), 1)
sent = {"plain": Cuda(image, 0), "turned": Cuda(image.T, 1),
        "half": Cuda(np.ones(3, "f2"), 1, stream=2),
        "none": Cuda(np.empty((0, 3), "f4"), 0), "dlpack": dlpack,
        "large": Cuda(np.arange(3_000_000.0), 0), "host": image,
        "nested": [Cuda(np.ones(2, "c8"), 0), 7]}
ep.send(sent, acked=False)
msg = listener.recv(30)
assert dlpack.asked == [1], dlpack.asked
assert (msg["plain"] == image).all() and (msg["turned"] == image.T).all()
assert msg["turned"].shape == (8, 6)
assert msg["half"].dtype == "f2" and (msg["half"] == 1).all()
assert msg["none"].shape == (0, 3) and msg["none"].dtype == "f4"
assert (msg["dlpack"] == np.linspace(0, 1, 1000)).all()
assert (msg["large"] == np.arange(3_000_000.0)).all()
assert (msg["host"] == image).all()
tree = msg.tree()["nested"]
assert (tree[0] == 1).all() and tree[0].dtype == "c8" and tree[1] == 7

gone = [weakref.ref(value) for value in (sent["plain"], dlpack)]
del sent, dlpack
gc.collect()
assert [ref() for ref in gone] == [None, None]

server = listener.serve()
@server.method("sum")
def add(request):
    return {"sum": Cuda(np.array([request["x"].sum()]), 1)}
assert ep.call("sum", {"x": Cuda(image, 0)}, timeout=30)["sum"][0] == 1128
assert fault() is None, fault()
ep.close()
listener.close()
"""

ORDER = FAKE + """
x = Cuda(image, 1, stream=streams[1])
block(streams[1])
thread = threading.Thread(target=ep.send, args=({"x": x},))
thread.start()
try:
    listener.recv(0.3)
    raise SystemExit("it was read before its stream came to it")
except tensormsg.TimedOut:
    pass
later = np.full((6, 8), 9, "i4")
poke(x.address, later.ctypes.data, later.nbytes) # what the stream is to write
unblock(streams[1])
assert (listener.recv(30)["x"] == 9).all()
thread.join()
assert fault() is None, fault()
ep.close()
listener.close()
"""


@with_fakes
@pytest.mark.parametrize("age", ["new", "old"])
@pytest.mark.parametrize("script", [ARRIVE, ORDER], ids=["arrive", "order"])
def test_cuda_memory_is_sent(tmp_path, script, age):
    (tmp_path / "cuda.py").write_text(script)
    folder = os.path.join(os.environ["TMSG_FAKES"], age)
    ran = subprocess.run(
        [sys.executable, "-W", "error", tmp_path / "cuda.py"], text=True,
        env={**os.environ, "UCX_LOG_LEVEL": "fatal", "LD_LIBRARY_PATH": folder,
             "TENSORMSG_UCX": "system"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=100)
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stdout


# The simulated driver, which has CUDA's IPC; its table of functions.
SHAREABLE = """
import ctypes, gc, sys, types
import numpy as np
import tensormsg

sim = ctypes.CDLL("libcuda.so.1").sim_cuda
sim.restype = ctypes.POINTER(ctypes.c_void_p)
number, address, size = ctypes.c_int, ctypes.c_uint64, ctypes.c_size_t
peek = ctypes.CFUNCTYPE(number, ctypes.c_void_p, address, size)(sim()[5])
poke = ctypes.CFUNCTYPE(number, address, ctypes.c_void_p, size)(sim()[6])

def at(array):
    return array.__cuda_array_interface__["data"][0]

given = []

def take(nbytes, device):
    given.append(tensormsg.empty(nbytes, "u1", device=f"cuda:{device}"))
    return given[-1]

with tensormsg.sync.listen(":0", background=True,
                           allocators={"cuda": take}) as listener, \\
        tensormsg.sync.connect(listener.url, background=True) as ep:
    x = tensormsg.empty((500, 1000), "f4", device="cuda")
    assert (x.shape, x.dtype, x.ndim, x.nbytes, x.device, repr(x)) == (
        (500, 1000), "f4", 2, 2000000, "cuda:0",
        "<array of float32, shape (500, 1000), on cuda:0>")
    values = np.arange(500000, dtype="f4").reshape(500, 1000)
    assert poke(at(x), values.ctypes.data, values.nbytes) == 0
    ep.send({"x": x})
    msg = listener.recv(30)
    assert msg["x"].shape == (500, 1000) and msg["x"].dtype == "float32"
    got = np.empty_like(values)
    assert peek(got.ctypes.data, at(given[0]), got.nbytes) == 0
    assert (got == values).all()
    assert ep.describe()["device_tensors"]["sent_ipc"] == 1, ep.describe()
    assert not tensormsg.is_lent(x)

    # One block for both, and no memory for none.
    both = tensormsg.empty({"a": (3, "u1"), "b": ((2, 2), "i8"),
                            "none": ((0, 4), "f4")}, device="cuda:0")
    assert at(both["b"]) - at(both["a"]) == 64 and at(both["none"]) == 0
    ep.send(both)
    assert listener.recv(30)["none"].shape == (0, 4)
    sys.modules["cupy"] = types.ModuleType("cupy")
    sys.modules["cupy"].asarray = lambda array: [array.device]
    assert tensormsg.empty(3, device="cuda:0", like="cupy") == ["cuda:0"]
    host = tensormsg.empty(3, device="cpu")
    assert isinstance(host, np.ndarray)
    for more, error, words in (
            ({"device": "gpu"}, ValueError, "device='gpu': None, 'cpu', 'cuda'"),
            ({"device": "cuda:7"}, tensormsg.NotFound, "no CUDA device 7"),
            ({"like": "cupy"}, ValueError, "'cupy' for a GPU"),
            ({"device": "cuda", "dtype": "O"}, TypeError, "'array'")):
        try:
            tensormsg.empty(3, **more)
            raise SystemExit(f"taken: {more}")
        except error as told:
            assert words in str(told), told
    del x, both, msg, given[:]
    gc.collect()
"""


@pytest.mark.skipif(not os.path.exists(os.path.join(
    os.environ.get("TMSG_SIM", ""), "libcuda.so.1")),
    reason="no simulated driver was built here")
def test_memory_of_a_gpu_is_shareable(tmp_path):
    (tmp_path / "shareable.py").write_text(SHAREABLE)
    ran = subprocess.run(
        [sys.executable, "-W", "error", tmp_path / "shareable.py"], text=True,
        env={**os.environ, "UCX_LOG_LEVEL": "fatal", "TENSORMSG_UCX": "system",
             "LD_LIBRARY_PATH": os.environ["TMSG_SIM"]},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=100)
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stdout


class Interface:
    def __init__(self, **about):
        self.__cuda_array_interface__ = {
            "shape": (4,), "typestr": "<f4", "version": 3,
            "data": (0x7000000000, False), **about}


@pytest.mark.parametrize("about, error, words", [
    ({"mask": Interface}, TypeError, "'x' is masked"),
    ({"typestr": ">f4"}, TypeError, "'x' is in another byte order"),
    ({"typestr": "|V2"}, TypeError, "'x' has dtype"),
    ({"typestr": "<f8", "strides": (12,)}, TypeError,
     "'x' has strides that are no whole elements"),
    ({}, TypeError, "'x' says that it is CUDA's memory, at"),
])
def test_what_cannot_be_sent_is_named(about, error, words):
    with tensormsg.sync.listen(":0", background=True) as listener, \
            tensormsg.sync.connect(listener.url) as ep:
        with pytest.raises(error) as raised:
            ep.send({"x": Interface(**about)})
        assert str(raised.value).startswith(words), raised.value
        ep.send({"x": np.ones(3)})  # nothing is lost
        assert (listener.recv(30)["x"] == 1).all()
