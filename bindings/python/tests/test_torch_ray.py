# SPDX-License-Identifier: BSD-3-Clause
"""tensormsg.ray, as Ray calls it. Here Ray is a stand-in of the few names that
the module uses, and owner and receiver are two transports of one process;
rays.py does the same with real Rays."""

import abc
import dataclasses
import gc
import importlib
import os
import pathlib
import subprocess
import sys
import threading
import time
import types
from typing import Any, List

import pytest

torch = pytest.importorskip("torch")

import tensormsg  # noqa: E402
from certificates import Site, needs_tls  # noqa: E402
from conftest import environment  # noqa: E402
from tensormsg import sync  # noqa: E402

RAYS = pathlib.Path(__file__).parent / "../../../build/ray-venv"
WAIT = 30
BIG = 100_000  # elements: more bytes than shm.lend_bytes


def base_class(changes):
    """TensorTransportManager of Ray 2.56 to 2.60, with changes."""
    def call(text):
        scope = {}
        exec(f"def call({text}): pass", scope)
        return scope["call"]

    some = "obj_id, tensor_transport_metadata, communicator_metadata, "
    calls = {
        "tensor_transport_backend": "self", "actor_has_tensor_transport":
        "self, actor", "extract_tensor_transport_metadata":
        "self, obj_id, rdt_object", "get_communicator_metadata":
        "self, src_actor, dst_actor, backend=None", "recv_multiple_tensors":
        f"self, {some}target_buffers=None", "fetch_multiple_tensors":
        f"self, {some}target_buffers=None", "wait_fetch_complete":
        "self, fetch_request, timeout=-1", "send_multiple_tensors":
        "self, tensors, tensor_transport_metadata, communicator_metadata",
        "garbage_collect": "self, obj_id, tensor_transport_meta, tensors",
        "abort_transport": "self, obj_id, communicator_metadata", **changes}
    body = {name: abc.abstractmethod(call(text)) for name, text in calls.items()
            if text is not None}
    for name in "is_one_sided", "can_abort_transport":
        body[name] = staticmethod(abc.abstractmethod(call("")))
    return abc.ABCMeta("TensorTransportManager", (), body)


@dataclasses.dataclass
class Communicator:
    pass


@dataclasses.dataclass
class Metadata:
    tensor_meta: List[Any]
    tensor_device: Any = None


@dataclasses.dataclass
class Request:
    obj_id: str
    tensors: List[Any]


def stand_in(monkeypatch, changes=(), version="2.60.0"):
    """Puts it in the place of Ray, and returns tensormsg.ray of it."""
    store = {}

    def module(name, **names):
        made = types.ModuleType(name)
        made.__dict__.update(names)
        monkeypatch.setitem(sys.modules, name, made)
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, made)
        return made

    ray = module("ray", __version__=version, is_initialized=lambda: True,
                 get_runtime_context=lambda: types.SimpleNamespace(
                     get_node_id=lambda: ray.node_id), node_id="node")
    module("ray.util", get_node_ip_address=lambda: "127.0.0.1")
    module("ray._private")
    module("ray._private.ray_constants", RDT_FETCH_FAIL_TIMEOUT_SECONDS=WAIT)
    module("ray.experimental")
    module("ray.experimental.internal_kv",
           _internal_kv_get=lambda key, namespace: store.get(key),
           _internal_kv_put=lambda key, value, overwrite, namespace:
           store.setdefault(key, value))
    module("ray.experimental.rdt")
    infos = {}
    module("ray.experimental.rdt.util", transport_manager_info=infos,
           register_tensor_transport=lambda name, devices, kind, data_type:
           infos.__setitem__(name, types.SimpleNamespace(
               transport_manager_class=kind, devices=devices)))
    module("ray.experimental.rdt.tensor_transport_manager",
           CommunicatorMetadata=Communicator, FetchRequest=Request,
           TensorTransportManager=base_class(dict(changes)),
           TensorTransportMetadata=Metadata)
    monkeypatch.delitem(sys.modules, "tensormsg.ray", raising=False)
    made = importlib.import_module("tensormsg.ray")
    monkeypatch.setattr(tensormsg, "ray", made, raising=False)
    return made


class Side:
    """A transport, as the one of an actor."""

    def __init__(self, module, **options):
        module.register(**options)
        kind = module.rdt.transport_manager_info[module.NAME]
        self.transport = kind.transport_manager_class()

    def put(self, tensors, obj_id="object"):
        return self.transport.extract_tensor_transport_metadata(obj_id, tensors)

    def get(self, meta, targets=None, obj_id="object"):
        return self.transport.recv_multiple_tensors(obj_id, meta, None, targets)

    def begin(self, meta, targets=None):
        return self.transport.fetch_multiple_tensors("object", meta, None,
                                                     targets)

    def free(self, obj_id="object"):
        self.transport.garbage_collect(obj_id, None, [])

    def offers(self):
        node = self.transport._node
        return [end.describe()["offers"] for end in (node.near, node.far)]


@pytest.fixture
def sides(monkeypatch):
    """Makes an owner and a receiver."""
    made = []

    def make(**options):
        module = stand_in(monkeypatch)
        pair = Side(module, **options), Side(module, **options)
        made.extend(pair)
        return pair

    yield make
    for side in made:
        if side.transport._node is not None:
            side.transport._node.close()


def far(meta):
    """The same, for who runs on another host."""
    meta.place = ("another",)
    return meta


@pytest.mark.parametrize("version, changes, words", [
    ("2.61.0", {"garbage_collect": "self, obj_id, tensors"},
     r"Ray 2\.61\.0.*garbage_collect\(self, obj_id, tensor_transport_meta, "
     r"tensors\).*this Ray has garbage_collect\(self, obj_id, tensors\)"),
    ("2.55.0", {"fetch_multiple_tensors": None},
     r"Ray 2\.55\.0.*fetch_multiple_tensors\(.*this Ray has none"),
    ("3.0.0", {"prefetch": "self"}, r"Ray 3\.0\.0.*calls .*prefetch\(\)"),
])
def test_another_ray_is_refused_by_its_version_and_the_method(
        monkeypatch, version, changes, words):
    module = stand_in(monkeypatch, changes, version)
    with pytest.raises(tensormsg.Unsupported, match=words):
        module.register()


@pytest.mark.parametrize("which", ["newest", "oldest"])
def test_a_real_ray_is_known(which):
    folder = RAYS / which
    if not folder.exists():
        pytest.skip("no Ray: scripts/setup.sh ray installs it")
    subprocess.run(
        [sys.executable, "-B", "-c", "import tensormsg.ray as t; t.register()"],
        check=True, timeout=200, env={
            **environment(), "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH":
            os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])})


def test_registering_twice_is_once(monkeypatch):
    module = stand_in(monkeypatch)
    module.register(frozen=True)
    module.register(frozen=True)
    with pytest.raises(ValueError, match="registered with frozen=True"):
        module.register()


@pytest.mark.parametrize("options", [{}, {"frozen": True}, {"encrypt": True}])
@pytest.mark.parametrize("there", ["here", "far"])
def test_a_receiver_gets_what_was_returned(sides, options, there):
    owner, receiver = sides(**options)
    sent = [torch.randn(BIG), torch.arange(12).reshape(3, 4).t(),
            torch.tensor(7), torch.empty(0, 3), torch.ones(3, dtype=torch.bool),
            torch.randn(5, dtype=torch.complex64).conj(),
            torch.randn(9, requires_grad=True).bfloat16()]
    meta = owner.put(sent)
    assert owner.put(sent) is meta  # Ray has tried the task again
    assert owner.offers() == [1, 1]
    if there == "far":
        far(meta)
    for _ in range(2):
        got = receiver.get(meta)
        assert [(x.shape, x.dtype) for x in got] == meta.tensor_meta
        assert all(torch.equal(x, y) for x, y in zip(got, sent))
    got[0][:] = 0  # is a copy of the receiver's
    assert torch.equal(receiver.get(meta)[0], sent[0])
    targets = [torch.zeros_like(x, memory_format=torch.contiguous_format)
               for x in sent]
    back = receiver.get(meta, targets)
    assert all(x is y for x, y in zip(back, targets))
    assert all(torch.equal(x, y) for x, y in zip(targets, sent))
    owner.free()
    assert owner.offers() == [0, 0]
    with pytest.raises(tensormsg.NotFound):
        receiver.get(meta)
    owner.free()  # Ray has tried again


@needs_tls
def test_hosts_prove_by_certificates_who_they_are(sides, tmp_path):
    files = Site(tmp_path).issue("node")
    owner, receiver = sides(tls=files)
    sent = torch.randn(BIG)
    meta = far(owner.put([sent]))
    assert meta.far.url.startswith("tls://")
    assert torch.equal(receiver.get(meta)[0], sent)
    with pytest.raises(tensormsg.Error):  # the cluster's key is none there
        sync.connect(meta.far.url, key=owner.transport._node._key, timeout=WAIT)
    register = tensormsg.ray.register
    with pytest.raises(ValueError, match="registered with tls=another dict"):
        register(tls={**files, "name": "another"})
    with pytest.raises(tensormsg.NotFound, match="nowhere.pem"):
        register(tls={**files, "cert": tmp_path / "nowhere.pem"})


# Tensors of a GPU: torch has none on a simulated driver, so these only have what
# the transport asks of them.
SIMULATED = """
import ctypes, os, types
import numpy as np
import pytest
import torch
import tensormsg
import test_torch_ray

sim = ctypes.CDLL("libcuda.so.1").sim_cuda
sim.restype = ctypes.POINTER(ctypes.c_void_p)
number, address, size = ctypes.c_int, ctypes.c_uint64, ctypes.c_size_t
peek = ctypes.CFUNCTYPE(number, ctypes.c_void_p, address, size)(sim()[5])
poke = ctypes.CFUNCTYPE(number, address, ctypes.c_void_p, size)(sim()[6])

given = []

def memory(nbytes, device):
    given.append(tensormsg.empty(nbytes, "u1", device=f"cuda:{device}"))
    return given[-1]

def address_of(array):
    return array.__cuda_array_interface__["data"][0]

class Tensor:
    layout = torch.strided
    dtype = torch.float32
    device = types.SimpleNamespace(type="cuda")

    def __init__(self, count):
        self.shape = torch.Size([count])
        self.memory = memory(4 * count, 0)
        self.__cuda_array_interface__ = {
            **self.memory.__cuda_array_interface__, "shape": (count,),
            "typestr": "<f4"}

    def same(self):
        return self
    detach = resolve_conj = resolve_neg = contiguous = same

    def copy_(self, other):
        self.copied = other

def connect(*args, like, **options):
    return tensormsg.sync.connect(*args, **options)

with pytest.MonkeyPatch.context() as patch:
    module = test_torch_ray.stand_in(patch)
    module._gpu_memory = memory
    module.sync = types.SimpleNamespace(connect=connect,
                                        listen=tensormsg.sync.listen)
    owner, receiver = [test_torch_ray.Side(module) for _ in range(2)]
    values = np.arange(300000, dtype="f4")
    tensor = Tensor(len(values))
    assert poke(address_of(tensor), values.ctypes.data, values.nbytes) == 0
    meta = owner.put([tensor])
    assert meta.tensor_device == "cuda"
    for place in meta.place, ("another",):
        meta.place = place
        for target in None, Tensor(len(values)):
            [got] = receiver.get(meta, target and [target])
            back = np.empty_like(values)
            assert peek(back.ctypes.data, address_of(given[-1]),
                        back.nbytes) == 0
            assert (back == values).all()
            assert target is None or got is target and target.copied is not None
    del got, target
    owner.free()
    assert owner.offers() == [0, 0]
    for side in owner, receiver:
        side.transport._node.close()
"""


@pytest.mark.skipif(not os.path.exists(os.path.join(
    os.environ.get("TMSG_SIM", ""), "libcuda.so.1")),
    reason="no simulated driver was built here")
def test_tensors_of_a_gpu_go_into_its_memory(tmp_path):
    (tmp_path / "simulated.py").write_text(SIMULATED)
    ran = subprocess.run(
        [sys.executable, "-B", tmp_path / "simulated.py"], text=True,
        env={**environment(), "UCX_LOG_LEVEL": "fatal", "TENSORMSG_UCX":
             "system", "LD_LIBRARY_PATH": os.environ["TMSG_SIM"], "PYTHONPATH":
             os.pathsep.join([os.path.dirname(__file__),
                              os.environ.get("PYTHONPATH", "")])},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=200)
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stdout


def test_no_tensors_need_no_offer(sides):
    owner, receiver = sides()
    meta = owner.put([])
    assert (meta.tensor_meta, meta.tensor_device) == ([], None)
    assert receiver.get(meta) == []
    owner.free()


def test_a_copy_for_others_of_this_host_is_made_in_memory_used_before(sides):
    owner, receiver = sides()
    tensor = torch.zeros(BIG)
    seen = []
    for i in range(6):
        tensor.fill_(i)
        [got] = receiver.get(owner.put([tensor], str(i)))
        assert (got == i).all()
        block = owner.transport._offered[str(i)].block
        seen.append(None if block is None else block.data_ptr())
        before = got  # is kept while the next is made
        owner.free(str(i))
    assert seen[0] is None  # nobody of this host had fetched
    large = [torch.randn(3 << 20), torch.tensor(True),
             torch.randn(1 << 20, dtype=torch.complex64)]
    got = receiver.get(owner.put(large, "large"))
    assert all(torch.equal(x, y) for x, y in zip(got, large))
    assert len(set(seen[1:])) <= 3
    assert (before == 5).all()


def test_freeing_waits_for_no_loan_and_the_loan_keeps_what_it_has(sides):
    owner, receiver = sides()
    mine = tensormsg.empty(BIG, like="torch"), torch.zeros(BIG)
    for i, tensor in enumerate(mine):
        tensor.fill_(1)
        [got] = receiver.get(owner.put([tensor], str(i)))
        begun = time.monotonic()
        owner.free(str(i))
        assert time.monotonic() - begun < WAIT / 2
        tensor.fill_(2)
        assert (got == 1).all()


def test_freeing_never_raises(sides, monkeypatch, caplog):
    def fail(*_):
        raise OSError("out of luck")

    owner, receiver = sides()
    owner.put([torch.ones(3)])
    monkeypatch.setattr(sync.Offer, "withdraw", fail)
    owner.free()
    assert "object: out of luck" in caplog.text


def test_what_is_frozen_is_copied_once_or_never(sides):
    owner, receiver = sides(frozen=True)
    block = tensormsg.empty(BIG, like="torch")
    meta = owner.put([block])
    [got] = receiver.get(meta)
    block.fill_(5)  # breaks the promise, which shows that nothing was copied
    assert (got == 5).all()
    ordinary = torch.ones(BIG)
    copies = []
    for i in range(3):
        meta = owner.put([ordinary], str(i))
        [got] = receiver.get(meta)
        assert torch.equal(got, ordinary)
        [(_, copy)] = owner.transport._copies._of.values()
        copies.append(copy[0].data_ptr())
        owner.free(str(i))
    assert len(set(copies)) == 1
    del ordinary, meta
    owner.put([block], "last")
    gc.collect()
    owner.transport._copies.of([torch.ones(3)])
    assert len(owner.transport._copies._of) == 1  # that of the first is gone


@pytest.mark.parametrize("tensors, words", [
    ([torch.ones(2), torch.ones(2).to_sparse()], "tensor 1 is .*to_dense"),
    ([torch.ones(2, device="meta")], "tensor 0 is on 'meta'"),
])
def test_what_cannot_be_moved_is_named(sides, tensors, words):
    owner, _ = sides()
    with pytest.raises(TypeError, match=words):
        owner.put(tensors)
    assert owner.offers() == [0, 0]


def test_another_cluster_has_other_keys_and_listeners(sides, monkeypatch):
    owner, receiver = sides()
    meta = owner.put([torch.ones(3)])
    sys.modules["ray"].node_id = "another"
    owner.put([torch.ones(3)], "second")
    assert owner.offers() == [1, 1]
    with pytest.raises(tensormsg.Error):
        receiver.get(meta)


def test_connections_to_owners_that_are_gone_are_freed(sides):
    owner, receiver = sides()
    receiver.get(owner.put([torch.ones(3)]))
    node = receiver.transport._node
    [endpoint] = node._endpoints.values()
    owner.transport._node.close()
    end = time.monotonic() + WAIT
    while not endpoint.closed:
        assert time.monotonic() < end
        time.sleep(0.001)
    before = len(os.listdir("/proc/self/fd"))
    receiver.transport._here()
    del endpoint
    gc.collect()
    assert not node._endpoints and not node._dialling
    while len(os.listdir("/proc/self/fd")) >= before:
        assert time.monotonic() < end
        time.sleep(0.001)


@pytest.fixture
def silent(sides):
    """A receiver, and an object whose owner was connected to and then answers
    no more."""
    owner, receiver = sides()
    meta = owner.put([torch.ones(3)])
    node = receiver.transport._here()
    name = f"unix://@tensormsg-test-{time.monotonic_ns()}"
    connected = threading.Event()
    with sync.listen(name, key=node._key, carrier="stream",
                     background=False) as listener:
        def move():
            while not connected.is_set():
                try:
                    listener.recv(timeout=0.05)
                except tensormsg.TimedOut:
                    pass

        mover = threading.Thread(target=move)
        mover.start()
        try:
            node.endpoint(name, "cpu")
        finally:
            connected.set()
            mover.join()
        meta.near = type(meta.near)(name, meta.near.key)
        yield receiver, meta
        node.close()


def test_an_abort_ends_the_transfer_and_no_other(silent):
    receiver, meta = silent
    other = receiver.begin(meta)  # of ray.get(), which has its own timeout
    failed = []

    def receive():
        try:
            receiver.get(meta)
        except tensormsg.Canceled as error:
            failed.append(error)

    thread = threading.Thread(target=receive)
    thread.start()
    while not receiver.transport._receiving:
        time.sleep(0.001)
    receiver.transport.abort_transport("object", None)
    thread.join(WAIT)
    assert len(failed) == 1 and not receiver.transport._receiving
    assert not other.call.done


def test_an_abort_before_its_turn_ends_it_once(sides):
    owner, receiver = sides()
    meta = owner.put([torch.ones(3)])
    receiver.transport.abort_transport("object", None)
    with pytest.raises(tensormsg.Canceled, match="aborted .* object"):
        receiver.get(meta)
    assert receiver.get(meta)[0].sum() == 3
    for i in range(3000):
        receiver.transport.abort_transport(str(i), None)
    assert len(receiver.transport._aborted) == 1024


def test_a_dropped_request_is_cancelled(silent):
    receiver, meta = silent
    request = receiver.begin(meta)
    with pytest.raises(TimeoutError):
        receiver.transport.wait_fetch_complete(request, 0)
    call = request.call
    del request
    gc.collect()
    with pytest.raises(tensormsg.Canceled):
        call.wait(WAIT)
