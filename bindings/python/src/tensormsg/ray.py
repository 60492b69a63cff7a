# SPDX-License-Identifier: BSD-3-Clause
"""Tensors from one actor of Ray to another, past Ray's object store::

    import ray
    import tensormsg.ray

    ray.init()
    tensormsg.ray.register()

    @ray.remote
    class Trainer:
        @ray.method(tensor_transport="TENSORMSG")
        def weights(self):
            return torch.randn(1000, 1000)

It needs the extra `tensormsg[ray]`, and torch.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import os
import secrets
import threading
import time
from concurrent import futures
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

try:
    ray: Any = importlib.import_module("ray")
except ImportError as missing:
    raise ImportError("tensormsg.ray needs the package ray: pip install "
                      "'tensormsg[ray]'") from missing
try:
    constants: Any = importlib.import_module("ray._private.ray_constants")
    store: Any = importlib.import_module("ray.experimental.internal_kv")
    rdt: Any = importlib.import_module("ray.experimental.rdt.util")
    base: Any = importlib.import_module(
        "ray.experimental.rdt.tensor_transport_manager")
except ImportError as changed:
    raise ImportError(f"tensormsg.ray knows Ray 2.56 to 2.60, and this is Ray "
                      f"{ray.__version__}: {changed}") from changed

from . import _loan, sync
from ._lib import hot
from .errors import Busy, Error, Status, TimedOut, error_of
from .tls import TLS

__all__ = ["register"]

NAME = "TENSORMSG"
CONNECT_S = 10.0
# How long the owner of an object that Ray frees waits for fetches under way.
FREE_S = 1.0
_ABORTED_MOST = 1024
_ALIGNMENT = 64  # of each tensor of a block
_SPLIT_BYTES = 4 << 20  # of a tensor that several threads copy
_THREADS = 4
_IDLE_MOST = 2   # blocks that wait to be used again
_ENDED_MOST = 64  # objects that are over and still read
_log = logging.getLogger("tensormsg")

# What Ray calls, and by which arguments: another Ray's are refused.
_CALLS = {
    "tensor_transport_backend": "self",
    "is_one_sided": "",
    "can_abort_transport": "",
    "actor_has_tensor_transport": "self actor",
    "extract_tensor_transport_metadata": "self obj_id rdt_object",
    "get_communicator_metadata": "self src_actor dst_actor backend",
    "recv_multiple_tensors": "self obj_id tensor_transport_metadata "
                             "communicator_metadata target_buffers",
    "fetch_multiple_tensors": "self obj_id tensor_transport_metadata "
                              "communicator_metadata target_buffers",
    "wait_fetch_complete": "self fetch_request timeout",
    "send_multiple_tensors": "self tensors tensor_transport_metadata "
                             "communicator_metadata",
    "garbage_collect": "self obj_id tensor_transport_meta tensors",
    "abort_transport": "self obj_id communicator_metadata",
}


def __dir__() -> List[str]:
    return sorted(__all__)


class _Where(NamedTuple):
    """An offer, and the URL of its owner."""

    url: str
    key: bytes


@dataclass(eq=False)
class TensormsgMetadata(base.TensorTransportMetadata):  # type: ignore[misc]
    """What Ray takes from the owner of an object to those who fetch it."""

    #: Where the owner runs: who runs in the same place fetches from `near`.
    place: Tuple[Any, ...] = ()
    near: Optional[_Where] = None
    far: Optional[_Where] = None
    __eq__ = object.__eq__
    __hash__ = object.__hash__


@dataclass
class _Communicator(base.CommunicatorMetadata):  # type: ignore[misc]
    """Nothing: only the receiver acts."""


@dataclass(eq=False)
class _Fetch(base.FetchRequest):  # type: ignore[misc]
    """A fetch under way, which ends when nobody refers to it any more."""

    call: Any = None
    targets: Any = None
    #: Whether they are written to when all has come.
    is_copied: bool = False
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def cancel(self) -> None:
        if self.call is not None and not self.call.done:
            self.call.cancel()

    def __del__(self) -> None:
        try:
            self.cancel()
        except Error:  # the connection was closed
            pass


def _place() -> Tuple[Any, ...]:
    """Processes whose places are equal reach each other's abstract sockets."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        boot_id = file.read().strip()
    return boot_id, os.stat("/proc/self/ns/net").st_ino, os.geteuid()


def _cluster_key() -> bytes:
    """The key of all processes of the cluster, which Ray's control store keeps.
    Whoever asks first makes it."""
    how: Dict[str, Any] = {"namespace": b"tensormsg"}
    key = store._internal_kv_get(b"key", **how)
    if key is None:
        store._internal_kv_put(b"key", secrets.token_bytes(32), False,
                                     **how)
        key = store._internal_kv_get(b"key", **how)
    return bytes(key)


def _gpu_memory(nbytes: int, device: int) -> Any:
    torch = importlib.import_module("torch")
    return torch.empty(nbytes, dtype=torch.uint8, device=f"cuda:{device}")


class _Node:
    """The listeners and connections of this process, in one cluster."""

    def __init__(self, node_id: str, encrypt: bool,
                 tls: Optional[Mapping[str, Any]]) -> None:
        self.node_id = node_id
        self.place = _place()
        self._key = _cluster_key()
        self._tls = None if tls is None else TLS(**tls)
        host = ray.util.get_node_ip_address()
        self.near = self._listen(
            f"unix://@tensormsg-ray-{secrets.token_hex(16)}")
        self.far = self._listen(
            f"{'tls' if encrypt or tls else 'tcp'}://"
            f"{f'[{host}]' if ':' in host else host}:0")
        self._lock = threading.Lock()
        self._dialling: Dict[Tuple[str, str], threading.Lock] = {}
        self._endpoints: Dict[Tuple[str, str], sync.Endpoint] = {}

    def _how(self, url: str) -> Dict[str, Any]:
        if not url.startswith("tls"):
            return {"key": self._key, "carrier": "stream"}
        return {"key": self._key} if self._tls is None else {"tls": self._tls}

    def _listen(self, url: str) -> sync.Listener:
        return sync.listen(url, background=True, **self._how(url))

    def endpoint(self, url: str, device: str) -> sync.Endpoint:
        """The connection to an owner, for tensors of that kind of device. One
        that does not answer holds up nobody who wants another."""
        which = url, device
        with self._lock:
            dialling = self._dialling.setdefault(which, threading.Lock())
        with dialling:
            endpoint = self._endpoints.get(which)
            if endpoint is not None and not endpoint.closed:
                return endpoint
            try:
                endpoint = sync.connect(
                    url, timeout=CONNECT_S, background=True, like="torch",
                    allocators={"cuda": _gpu_memory} if device == "cuda"
                    else None, **self._how(url))
            except Error:
                with self._lock:
                    self._endpoints.pop(which, None)
                    self._dialling.pop(which, None)
                raise
            with self._lock:
                self._endpoints[which] = endpoint
            return endpoint

    def forget_ended(self) -> None:
        """Frees the connections to owners that are gone."""
        with self._lock:
            ended = [which for which, endpoint in self._endpoints.items()
                     if endpoint.closed]
            endpoints = [self._endpoints.pop(which) for which in ended]
            for which in ended:
                self._dialling.pop(which, None)
        for endpoint in endpoints:
            endpoint.abort()

    def close(self) -> None:
        with self._lock:
            endpoints, self._endpoints = self._endpoints, {}
        for end in (*endpoints.values(), self.near, self.far):
            end.abort()


class _Copies:
    """Copies of tensors that never change, in memory that can be lent. A copy
    lives as long as its tensors."""

    def __init__(self) -> None:
        self._of: Dict[Tuple[Any, ...], Tuple[List[Any], List[Any]]] = {}

    def of(self, tensors: List[Any]) -> List[Any]:
        weak = importlib.import_module("torch.multiprocessing.reductions") \
            .StorageWeakRef
        for known, (storages, _) in list(self._of.items()):
            if any(storage.expired() for storage in storages):
                self._of.pop(known, None)
        storages = [weak(tensor.untyped_storage()) for tensor in tensors]
        which = tuple(
            (storage.cdata, tensor.storage_offset(), tensor.shape,
             tensor.stride(), tensor.dtype)
            for storage, tensor in zip(storages, tensors))
        found = self._of.get(which)
        if found is None:
            made = _loan.empty({str(i): (tuple(tensor.shape), tensor.dtype)
                                for i, tensor in enumerate(tensors)},
                               like="torch")
            for copy, tensor in zip(made.values(), tensors):
                copy.copy_(tensor)
            found = self._of[which] = storages, list(made.values())
        return found[1]


def _checked(tensors: List[Any]) -> Tuple[List[Any], Optional[str]]:
    """The tensors as they can be offered, and their kind of device."""
    torch = importlib.import_module("torch")
    device = None
    offered = []
    for i, tensor in enumerate(tensors):
        if tensor.layout is not torch.strided:
            raise TypeError(f"tensor {i} is {tensor.layout}: {NAME} moves "
                            "dense tensors alone; use to_dense()")
        kind = tensor.device.type
        if kind not in ("cpu", "cuda"):
            raise TypeError(f"tensor {i} is on '{kind}': {NAME} moves tensors "
                            "of 'cpu' and 'cuda'")
        if device not in (None, kind):
            raise TypeError(f"tensor {i} is on '{kind}', and those before it "
                            f"are on '{device}': return them apart")
        device = kind
        # Ray's target buffers are contiguous.
        offered.append(
            tensor.detach().resolve_conj().resolve_neg().contiguous())
    return offered, device


class _Blocks:
    """Memory for copies that are lent, used again: fresh memory costs more than
    the copy. It keeps the offers that were ended, until nobody reads them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._copiers = futures.ThreadPoolExecutor(
            _THREADS, thread_name_prefix="tensormsg-copy")
        self._ended: List[Tuple[List[sync.Offer], Any]] = []

    def copy(self, tensors: List[Any]) -> Tuple[Any, List[Any]]:
        """A block, and in it copies of the tensors."""
        places, end = [], 0
        for tensor in tensors:
            start = -(-end // _ALIGNMENT) * _ALIGNMENT if tensor.nbytes else end
            places.append(slice(start, start + tensor.nbytes))
            end = start + tensor.nbytes
        block = self._take(end)
        copies = []
        for tensor, place in zip(tensors, places):
            copy = block[place].view(tensor.dtype).reshape(tensor.shape)
            self._copy(block[place], tensor.reshape(-1).view(block.dtype))
            copies.append(copy)
        return block, copies

    def _copy(self, to: Any, flat: Any) -> None:
        """By several threads, if that is worth it."""
        if len(flat) < _SPLIT_BYTES:
            to.copy_(flat)
            return
        step = -(-len(flat) // _THREADS)
        parts = [slice(at, at + step) for at in range(0, len(flat), step)]
        list(self._copiers.map(lambda part: to[part].copy_(flat[part]), parts))

    def _take(self, nbytes: int) -> Any:
        with self._lock:
            for each in self._ended:
                if each[1] is not None and len(each[1]) == nbytes and \
                        all(offer.released for offer in each[0]):
                    self._ended.remove(each)
                    return each[1]
        return _loan.empty(nbytes, "u1", like="torch")

    def end(self, offers: List[sync.Offer], block: Any) -> None:
        """Ends the offers, without a wait for those who fetch them now."""
        for offer in offers:
            offer._end(FREE_S)
        with self._lock:
            self._ended.append((offers, block))
            idle = [each for each in self._ended
                    if all(offer.released for offer in each[0])]
            for each in idle:
                if each[1] is None or each in idle[:-_IDLE_MOST]:
                    self._ended.remove(each)
            del self._ended[:-_ENDED_MOST]


class _Offered(NamedTuple):
    """An object of this process, at both listeners."""

    meta: TensormsgMetadata
    offers: List[sync.Offer]
    #: Whether nobody writes to its memory while it is read.
    stays: bool
    #: The block with the copy that is offered, if there is one.
    block: Any = None

    def end(self, blocks: _Blocks) -> None:
        """Returns when the tensors of the object may be written to."""
        if self.stays:
            blocks.end(self.offers, self.block)
            return
        deadline = time.monotonic() + FREE_S
        for offer in self.offers:
            try:
                offer.withdraw(max(0.05, deadline - time.monotonic()))
            except TimedOut:
                pass  # who reads on has lost the connection, and gets an error


class _Transport(base.TensorTransportManager):  # type: ignore[misc]
    """Extract is an offer, and receive is a fetch."""

    frozen = False
    encrypt = False
    tls: Optional[Mapping[str, Any]] = None

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._node: Optional[_Node] = None
        self._offered: Dict[str, _Offered] = {}
        self._copies = _Copies()
        self._blocks = _Blocks()
        self._receiving: Dict[str, List[_Fetch]] = {}
        self._aborted: Dict[str, None] = {}

    def _here(self) -> _Node:
        """Made anew where this process has left a cluster for another."""
        node_id = ray.get_runtime_context().get_node_id()
        with self._lock:
            node = self._node
            if node is None or node.node_id != node_id:
                if node is not None:
                    node.close()
                    self._offered.clear()
                node = self._node = _Node(node_id, self.encrypt,
                                          self.tls)
        node.forget_ended()
        return node

    def tensor_transport_backend(self) -> str:
        return NAME

    @staticmethod
    def is_one_sided() -> bool:
        return True

    @staticmethod
    def can_abort_transport() -> bool:
        return True

    def actor_has_tensor_transport(self, actor: Any) -> bool:
        return True

    def get_communicator_metadata(self, src_actor: Any, dst_actor: Any,
                                  backend: Optional[str] = None
                                  ) -> _Communicator:
        return _Communicator()

    def extract_tensor_transport_metadata(self, obj_id: str,
                                          rdt_object: List[Any]
                                          ) -> TensormsgMetadata:
        node = self._here()
        with self._lock:
            known = self._offered.get(obj_id)
        if known is not None:  # the task was tried again
            return known.meta
        tensors, device = _checked(rdt_object)
        meta = TensormsgMetadata(
            [(tensor.shape, tensor.dtype) for tensor in rdt_object], device)
        if not tensors:
            return meta
        stays, block, lend = self.frozen, None, device == "cpu"
        if lend:
            shareable = [hot.in_block(tensor.data_ptr()) for tensor in tensors]
            if self.frozen:
                if not all(shareable):
                    tensors = self._copies.of(tensors)
            elif any(shareable) or node.near.peers:
                # The first would be lent as it lies, with what its owner writes
                # there later; and the library would copy into fresh memory.
                block, tensors = self._blocks.copy(tensors)
                stays = True
        offers = []
        for listener, lends in (node.near, lend), (node.far, False):
            offers.append(listener.offer(
                {str(i): tensor for i, tensor in enumerate(tensors)},
                lend=lends))
        meta.place = node.place
        meta.near = _Where(node.near.url, offers[0].key)
        meta.far = _Where(node.far.url, offers[1].key)
        with self._lock:
            self._offered[obj_id] = _Offered(meta, offers, stays, block)
        return meta

    def fetch_multiple_tensors(self, obj_id: str,
                               tensor_transport_metadata: Any,
                               communicator_metadata: Any,
                               target_buffers: Optional[List[Any]] = None
                               ) -> _Fetch:
        meta = tensor_transport_metadata
        fetch = _Fetch(obj_id, [], targets=target_buffers)
        if not meta.tensor_meta:
            return fetch
        node = self._here()
        where = meta.near if meta.place == node.place else meta.far
        fetch.is_copied = meta.tensor_device == "cuda"
        into = None if not target_buffers or fetch.is_copied else \
            {str(i): target.detach() for i, target in enumerate(target_buffers)}
        endpoint = node.endpoint(where.url, meta.tensor_device)
        timeout: Optional[float] = constants.RDT_FETCH_FAIL_TIMEOUT_SECONDS
        while fetch.call is None:
            try:
                fetch.call = endpoint.start_fetch(
                    where.key, into=into, loan=into is None, timeout=timeout)
            except Busy as busy:  # an earlier fetch may still write there
                timeout = endpoint._outlast(busy, timeout)
        return fetch

    def wait_fetch_complete(self, fetch_request: _Fetch, timeout: float = -1
                            ) -> List[Any]:
        call = fetch_request.call
        if call is None:
            return []
        message = call.wait(None if timeout < 0 else timeout)
        got = [message[str(i)] for i in range(len(message))]
        if not fetch_request.targets:
            return got
        if fetch_request.is_copied:
            for target, tensor in zip(fetch_request.targets, got):
                target.detach().copy_(tensor)
            for device in {target.device for target in fetch_request.targets
                           if target.is_cuda}:
                # The memory copied from was taken by another thread, so torch
                # may give it away while this thread's stream still reads it.
                torch = importlib.import_module("torch")
                torch.cuda.current_stream(device).synchronize()
        return list(fetch_request.targets)

    def recv_multiple_tensors(self, obj_id: str, tensor_transport_metadata: Any,
                              communicator_metadata: Any,
                              target_buffers: Optional[List[Any]] = None
                              ) -> List[Any]:
        self._check_aborted(obj_id)
        fetch = self.fetch_multiple_tensors(
            obj_id, tensor_transport_metadata, communicator_metadata,
            target_buffers)
        with self._lock:
            self._receiving.setdefault(obj_id, []).append(fetch)
        try:
            self._check_aborted(obj_id)  # before it was in the list
            return self.wait_fetch_complete(fetch)
        finally:
            with self._lock:
                fetches = self._receiving[obj_id]
                fetches.remove(fetch)
                if not fetches:
                    del self._receiving[obj_id]

    def _check_aborted(self, obj_id: str) -> None:
        with self._lock:
            if obj_id not in self._aborted:
                return
            del self._aborted[obj_id]
        raise error_of(Status.CANCELED, f"Ray has aborted the transfer of "
                       f"object {obj_id}")

    def send_multiple_tensors(self, tensors: List[Any],
                              tensor_transport_metadata: Any,
                              communicator_metadata: Any) -> None:
        raise NotImplementedError(f"{NAME} is one-sided: nothing is sent")

    def garbage_collect(self, obj_id: str, tensor_transport_meta: Any,
                        tensors: List[Any]) -> None:
        with self._lock:
            known = self._offered.pop(obj_id, None)
        if known is None:
            return
        try:
            known.end(self._blocks)
        except Exception as error:  # Ray would keep the object
            _log.warning("freeing object %s: %s", obj_id, error)

    def abort_transport(self, obj_id: str, communicator_metadata: Any) -> None:
        with self._lock:
            fetches = list(self._receiving.get(obj_id, ()))
            if not fetches:  # it may wait for its turn
                self._aborted[obj_id] = None
                if len(self._aborted) > _ABORTED_MOST:
                    del self._aborted[next(iter(self._aborted))]
        for fetch in fetches:
            fetch.cancel()


def _check_contract() -> None:
    """Raises where Ray calls a transport in another way than this one knows."""
    for name, wanted in _CALLS.items():
        method = getattr(base.TensorTransportManager, name, None)
        has = None if method is None else \
            " ".join(inspect.signature(method).parameters)
        if has != wanted:
            told = "has none" if has is None else \
                f"has {name}({', '.join(has.split())})"
            raise error_of(
                Status.UNSUPPORTED,
                f"Ray {ray.__version__}: tensormsg.ray knows "
                f"TensorTransportManager.{name}({', '.join(wanted.split())}), "
                f"and this Ray {told}: take one of 2.56 to 2.60")
    abstract = base.TensorTransportManager.__abstractmethods__
    for name in sorted(abstract - set(_CALLS)):
        raise error_of(
            Status.UNSUPPORTED,
            f"Ray {ray.__version__}: it calls TensorTransportManager.{name}(), "
            "which tensormsg.ray does not know: take one of 2.56 to 2.60")


def register(*, frozen: bool = False, encrypt: bool = False,
             tls: Optional[Mapping[str, Any]] = None) -> None:
    """Makes @ray.method(tensor_transport="TENSORMSG") work. Call it before the
    actors are made, in the process that makes them. An actor that Ray may start
    anew calls it, too, at the beginning of its __init__().

    `frozen`: promises that no tensor is written to once an actor has returned
    it or put it, for as long as anybody has it. Actors of one host then read it
    in place. Without that the library makes one copy, which they share.
    `encrypt`: between hosts all is encrypted, by TLS 1.3, with the key of the
    cluster. `tls`: the same with certificates in place of that key: the
    arguments of tensormsg.TLS, as a dict. Each host has files of these names;
    the certificate of a host is for the address of its node, or for `name`.

    May be called again with the same arguments. Raises Unsupported (another
    Ray), ValueError (it was called with other arguments), and what TLS()
    raises."""
    _check_contract()
    torch = importlib.import_module("torch")
    if tls is not None:
        TLS(**tls)
    options = {"frozen": frozen, "encrypt": encrypt, "tls": tls}
    # Ray takes a class that no module has to the actors as it is.
    kind = type("Tensormsg", (_Transport,), options)
    if NAME not in rdt.transport_manager_info:
        rdt.register_tensor_transport(NAME, ["cpu", "cuda"], kind, torch.Tensor)
    known = rdt.transport_manager_info[NAME].transport_manager_class
    for name, option in options.items():
        if getattr(known, name) != option:
            was = "another dict" if name == "tls" and known.tls else \
                getattr(known, name)
            raise ValueError(f"{NAME} is registered with {name}={was} in this "
                             "process")
    if ray.is_initialized():
        _cluster_key()
