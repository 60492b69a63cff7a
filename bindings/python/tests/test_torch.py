# SPDX-License-Identifier: BSD-3-Clause
"""Tensors of torch, sent and received, on the CPU."""

import asyncio
import copy
import json
import pathlib
import pickle
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tensormsg  # noqa: E402
from conftest import DOCS, blocks_of, environment, run_script  # noqa: E402
from recipes import recipe  # noqa: E402,F401
from test_malformed import Foreign  # noqa: E402
from tensormsg._lib import ffi, lib, take_text  # noqa: E402
from test_messages import SIZES  # noqa: E402

HERE = pathlib.Path(__file__).parent
WAIT = 30
DTYPES = [
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32",
    "int64", "float16", "bfloat16", "float32", "float64", "complex32",
    "complex64", "complex128", "float8_e4m3fn", "float8_e4m3fnuz",
    "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]


class Pair:
    """Both ends, in one process: arrays arrive as `like` says."""
    def __init__(self, like, folder):
        self.listener = tensormsg.sync.listen(
            f"unix://{folder}/{like}", like=like, background=True)
        self.ep = tensormsg.sync.connect(self.listener.url)
        self.there = self.back({"x": torch.ones(1)}).peer

    def send(self, data):
        self.ep.send(data, timeout=WAIT)

    def back(self, data):
        self.send(data)
        return self.listener.recv(WAIT)

    def recv_into(self, buffers):
        return self.there.recv_into(buffers, timeout=WAIT)

    def close(self):
        self.ep.close()
        self.listener.close()


@pytest.fixture(scope="module")
def torch_ep(tmp_path_factory):
    pair = Pair("torch", tmp_path_factory.mktemp("pair"))
    yield pair
    pair.close()


@pytest.mark.parametrize("face", ["blocking", "asyncio"])
def test_a_training_state_comes_back(torch_ep, face):
    """Of a model, an optimizer and a scheduler, which load it again."""
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [1, 30])
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    scheduler.step()
    sent = {"model": model.state_dict(), "optim": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(), "rng": torch.get_rng_state(),
            "size": model.weight.shape}
    if face == "blocking":
        got = torch_ep.back(sent).tree()
    else:
        got = asyncio.run(arrived(sent)).tree()
    assert got["optim"].keys() == sent["optim"].keys()
    assert got["optim"]["param_groups"] == sent["optim"]["param_groups"]
    assert got["scheduler"] == sent["scheduler"]
    assert got["size"] == sent["size"] == (2, 2)
    for there, here in ((got["optim"]["state"], sent["optim"]["state"]),
                        ({0: got["model"]}, {0: sent["model"]})):
        assert there.keys() == here.keys()
        for key, tensors in here.items():
            assert there[key].keys() == tensors.keys()
            assert all(torch.equal(there[key][name], tensors[name])
                       for name in tensors)
    optimizer.load_state_dict(got["optim"])
    scheduler.load_state_dict(got["scheduler"])
    model.load_state_dict(got["model"])


async def arrived(data):
    async with tensormsg.listen(":0", like="torch") as listener, \
            tensormsg.connect(listener.url) as ep:
        await ep.send(data)
        return await listener.recv(WAIT)


@pytest.mark.parametrize("value", [torch.float32, torch.device("cpu")])
def test_what_is_no_tensor_is_refused_with_a_hint(torch_ep, value):
    with pytest.raises(TypeError, match=r"'x' is of .*: send str\(\) of it"):
        torch_ep.send({"x": value})



@pytest.fixture(scope="module")
def ep(tmp_path_factory):
    pair = Pair("numpy", tmp_path_factory.mktemp("pair"))
    yield pair
    pair.close()


def back(ep, data):
    return ep.back(data)


def bits(tensor):
    return tensor.contiguous().view(torch.uint8)


def made(dtype, count=12):
    """A tensor whose every byte says something."""
    of = getattr(torch, dtype)
    if dtype == "bool":
        return torch.arange(count) % 3 == 0
    size = torch.empty(0, dtype=of).element_size()
    raw = (torch.arange(count * size) % 37 + 50).to(torch.uint8)
    return raw.view(of)


@pytest.mark.parametrize("size", SIZES)
def test_tensors_come_back(mode, echo_url, size):
    """In each way to drive it, over each transport, in every size."""
    made = torch.Generator().manual_seed(size)
    tensor = torch.randint(0, 255, (size,), dtype=torch.uint8, generator=made)

    async def scenario(ep):
        for frame in range(3):
            await ep.send({"a": tensor, "b": tensor.flip(0)}, frame=frame)
            msg = await ep.recv()
            assert list(msg) == ["a", "b"]
            assert isinstance(msg["a"], torch.Tensor)
            assert torch.equal(msg["a"], tensor)
            assert torch.equal(msg["b"], tensor.flip(0))
            assert msg.meta == {"frame": frame}

    mode.run(echo_url, scenario, like="torch")


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(torch_ep, dtype):
    x = made(dtype).reshape(3, 4)
    got = back(torch_ep, {"x": x, "t": x.T, "none": x[:0], "one": x[0, 0]})
    for name, want in ("x", x), ("t", x.T), ("none", x[:0]), ("one", x[0, 0]):
        assert isinstance(got[name], torch.Tensor)
        assert got[name].dtype == x.dtype and got[name].shape == want.shape
        if want.numel():
            assert torch.equal(bits(got[name].reshape(-1)),
                               bits(want.reshape(-1)))
        assert not got[name].requires_grad


LAYOUTS = {
    "transposed": lambda x: x.T,
    "permuted": lambda x: x.reshape(2, 4, 12).permute(2, 0, 1),
    "channels last": lambda x: x.reshape(1, 2, 4, 12).contiguous(
        memory_format=torch.channels_last),
    "stepped": lambda x: x[::2, 1::3],
    "column": lambda x: x[:, 5],
    "expanded": lambda x: x[0].expand(7, 12),
    "empty": lambda x: x[:0, ::2],
    "flipped": lambda x: x.flip(0),
    "unfolded": lambda x: x[0].unfold(0, 4, 1),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout(torch_ep, layout):
    x = LAYOUTS[layout](torch.arange(96.).reshape(8, 12))
    got = back(torch_ep, {"x": x})["x"]
    assert got.shape == x.shape and torch.equal(got, x)


def test_values_are_sent_without_their_graph(torch_ep):
    """What requires a gradient, also what was computed from it, arrives as
    values that do not; what was sent goes on requiring it."""
    x = torch.arange(3., requires_grad=True)
    parameter = torch.nn.Parameter(torch.ones(2, 2))
    got = back(torch_ep, {"x": x, "y": x * 2, "p": parameter})
    assert torch.equal(got["x"], torch.arange(3.))
    assert torch.equal(got["y"], torch.arange(3.) * 2)
    assert torch.equal(got["p"], torch.ones(2, 2))
    assert not any(got[name].requires_grad for name in "xyp")
    assert x.requires_grad and parameter.requires_grad


def test_what_came_backwards_is_turned():
    x = np.arange(6.)
    with tensormsg.listen(":0", background=True, like="torch") as server, \
            tensormsg.connect(server.url) as ep:
        ep.send({"x": x[::-1], "y": x[::2]}, keep_strides=True)
        msg = server.recv()
        assert msg["x"].tolist() == [5, 4, 3, 2, 1, 0]
        assert msg["y"].stride() == (2,) and msg["y"].tolist() == [0, 2, 4]


def test_lazy_conjugates_and_negatives_are_what_they_stand_for(torch_ep):
    x = torch.tensor([1 + 2j, 3 - 4j])
    assert x.conj().is_conj() and x.conj().imag.is_neg()
    got = back(torch_ep, {"conj": x.conj(), "neg": x.conj().imag})
    assert torch.equal(got["conj"], torch.tensor([1 - 2j, 3 + 4j]))
    assert torch.equal(got["neg"], torch.tensor([-2., 4.]))


class Wrapper(torch.Tensor):
    """As DTensor and quantized ones are: without memory of its own."""
    @staticmethod
    def __new__(cls, data):
        made = torch.Tensor._make_wrapper_subclass(cls, data.shape,
                                                   dtype=data.dtype)
        made.data_of_it = data
        return made

    def __tensor_flatten__(self):
        return ["data_of_it"], None

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError


def fake():
    from torch._subclasses.fake_tensor import FakeTensorMode
    with FakeTensorMode():
        return torch.ones(3)


REFUSED = {
    "sparse": (lambda: torch.eye(3).to_sparse(), "layout other than"),
    "meta": (lambda: torch.zeros(3, device="meta"), "meta"),
    "wrapper": (lambda: Wrapper(torch.ones(3)), "wraps other tensors"),
    "nested": (lambda: torch.nested.nested_tensor(
        [torch.ones(2), torch.ones(3)]), "is nested"),
    "jagged": (lambda: torch.nested.nested_tensor(
        [torch.ones(2), torch.ones(3)], layout=torch.jagged), "is nested"),
    "fake": (lambda: fake(), "has no data"),
    "mkldnn": (lambda: torch.ones(3).to_mkldnn(), "cannot be sent"),
    "bits": (lambda: torch.zeros(3, dtype=torch.uint8).view(torch.bits8),
             "not supported by dlpack"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_sent_is_refused_by_name(torch_ep, kind):
    make, words = REFUSED[kind]
    with pytest.raises(TypeError, match=f"'a/{kind}' .*{words}"):
        torch_ep.send({"a": {kind: make()}})
    assert back(torch_ep, {"x": torch.ones(1)})["x"] == 1


@pytest.mark.parametrize("transform", ["vmap", "grad", "functionalize"])
def test_what_a_transform_has_is_refused_by_name(torch_ep, transform):
    def send(x):
        for send in torch_ep.send, lambda data: torch_ep.recv_into(data["a"]):
            with pytest.raises(TypeError, match="x' stands for others inside"):
                send({"a": {"x": x}})
        return x.sum()

    getattr(torch.func, transform)(send)(torch.ones(3))
    assert back(torch_ep, {"x": torch.ones(1)})["x"] == 1


def test_what_was_sent_can_be_resized(torch_ep):
    tensor = torch.ones(8)
    assert back(torch_ep, {"x": tensor})["x"].sum() == 8
    assert tensor.resize_(1000).numel() == 1000


def test_received_without_a_copy(ep):
    """Tensors share the memory that the message came into, and keep it."""
    msg = back(ep, {"x": torch.arange(100000.)})
    view, tensor = msg["x"], torch.from_dlpack(msg.dlpack("x"))
    assert tensor.data_ptr() == view.ctypes.data
    tensor[5] = -1
    assert view[5] == -1
    del msg, view
    assert tensor[99999] == 99999


@pytest.mark.parametrize("dtype", ["uint8", "bfloat16"])
def test_each_tensor_of_a_message_can_keep_its_own_memory(torch_ep, dtype):
    def held():
        text_p = ffi.new("char **")
        assert lib.tmsg_worker_describe(
            torch_ep.listener._hub.worker, text_p) == 0
        return json.loads(take_text(text_p))["held_bytes"]

    sent = {name: torch.full((1 << 21,), i, dtype=getattr(torch, dtype))
            for i, name in enumerate("abc")}
    sent["short"] = torch.ones(3, dtype=getattr(torch, dtype))
    message = back(torch_ep, sent)
    early = message["a"]  # keeps all of it
    tensors = dict(message.apart())
    del message
    before = held()
    size = sent["a"].nbytes
    del tensors["a"]
    assert held() == before
    del early, tensors["b"]
    assert abs(before - held() - 2 * size) <= 1 << 14
    view = tensors.pop("c")[5::7]
    assert (view == 2).all() and (tensors["short"] == 1).all()
    kept = [view]
    del view
    thread = threading.Thread(target=kept.clear)
    thread.start()
    thread.join()
    assert held() < size / 2


def test_a_tree_of_tensors(torch_ep):
    tree = {"layers": [{"w": torch.ones(2, 2)}, {"w": torch.zeros(3)}],
            "lr": 0.1, "n": np.arange(2)}
    got = back(torch_ep, tree).tree()
    assert torch.equal(got["layers"][0]["w"], torch.ones(2, 2))
    assert got["lr"] == 0.1 and torch.equal(got["n"], torch.arange(2))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e5m2",
                                   "bool", "complex64"])
def test_received_into_tensors(ep, dtype):
    sent = made(dtype).reshape(3, 4)
    into = torch.zeros(3, 4, dtype=sent.dtype)
    ep.send({"x": sent, "more": sent})
    msg = ep.recv_into({"x": into})
    assert torch.equal(bits(into), bits(sent))
    assert msg["x"].ctypes.data == into.data_ptr()
    assert msg["more"].ctypes.data != into.data_ptr()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_what_is_received_into_is_what_the_message_has(echo_unix, asynchronous):
    into = {"x": torch.zeros(3), "y": np.zeros(2), "none": torch.zeros(1)}
    sent = {"x": torch.ones(3), "y": np.ones(2), "z": torch.ones(4)}

    def check(msg):
        assert msg["x"] is into["x"] and msg["y"] is into["y"]
        assert into["x"].sum() == 3 and into["y"].sum() == 2
        assert torch.is_tensor(msg["z"]) and "none" not in msg

    async def main():
        async with tensormsg.connect(echo_unix, like="torch") as ep:
            await ep.send(sent)
            check(await ep.recv_into(into))

    if asynchronous:
        asyncio.run(main())
    else:
        with tensormsg.connect(echo_unix, like="torch") as ep:
            ep.send(sent, timeout=WAIT)
            check(ep.recv_into(into, timeout=WAIT))


def test_received_into_parameters(ep):
    """Which go on requiring their gradient."""
    layer = torch.nn.Linear(4, 3)
    ep.send({"weight": torch.ones(3, 4), "bias": torch.zeros(3)})
    ep.recv_into(dict(layer.named_parameters()))
    assert (layer.weight == 1).all() and (layer.bias == 0).all()
    assert layer.weight.requires_grad and layer.weight.is_leaf


def test_a_tensor_that_cannot_be_received_into(ep):
    ep.send({"x": torch.ones(3)})
    for into, kind in ((torch.zeros(3, device="meta"), ValueError),
                       (torch.zeros(3, dtype=torch.complex64).conj(),
                        ValueError),
                       (torch.zeros(4), tensormsg.InvalidParam),
                       (torch.zeros(3, dtype=torch.int32),
                        tensormsg.InvalidParam)):
        with pytest.raises(kind, match="'x'"):
            ep.recv_into({"x": into})
    assert ep.there.recv(WAIT)["x"].sum() == 3


SMALL = [f"{kind}{bits}" for kind in ("int", "uint") for bits in range(1, 8)
         if hasattr(torch, f"{kind}{bits}")]


def test_small_integers_are_refused_by_name(torch_ep):
    """torch exports them as int8 and uint8."""
    assert SMALL
    for name in SMALL:
        x = torch.zeros(4, dtype=torch.uint8).view(getattr(torch, name))
        whole = name[:-1] + "8"
        for data, at in ({"x": x}, "x"), ({"y": [1, x[:2]]}, "y/1"), (
                {"x": torch.nn.Parameter(x, requires_grad=False)}, "x"):
            with pytest.raises(TypeError, match=f"'{at}' is torch.{name}, "
                               f"which would arrive as {whole}: send .view"):
                torch_ep.send(data)
        with pytest.raises(TypeError, match="buffer 'x'"):
            torch_ep.recv_into({"x": x})
    assert back(torch_ep, {"x": torch.ones(1)})["x"] == 1


@pytest.mark.parametrize("dtype, name", [((0, 4, 1), "int4"),
                                         ((2, 32, 4), "float32x4")])
@pytest.mark.parametrize("more", [{}, {"device": "meta"}], ids=["", "moved"])
def test_what_torch_has_no_tensor_of(tmp_path, dtype, name, more):
    """Costs nobody the others, and says which it is."""
    with tensormsg.listen(f"unix://{tmp_path}/socket", background=True,
                          like="torch", **more) as server, \
            tensormsg.connect(server.url) as ep:
        ep.send({"a": torch.ones(2), "t": Foreign(dtype=dtype), "n": 3})
        got = dict(server.recv(WAIT))
    assert isinstance(got["a"], torch.Tensor) and got["n"] == 3
    assert isinstance(got["t"], tensormsg.RawTensor)
    assert got["t"].dtype == name and got["t"].shape == (3,)
    words = rf"tensor 't' is {name} of shape \(3,\), which " \
        r"torch.from_dlpack\(\) does not take \(.+\)"
    for use in (got["t"].__len__, lambda: got["t"] + 1,
                lambda: np.asarray(got["t"])):
        with pytest.raises(TypeError, match=words):
            use()
    with pytest.raises(AttributeError, match=words):
        got["t"].cuda()


def test_what_fails_as_it_is_moved_names_the_tensor():
    """As memory of a GPU that is used up."""
    def full(tensor):
        raise torch.OutOfMemoryError("CUDA out of memory")

    convert = tensormsg._message.Converter(torch.from_dlpack, "torch", full)
    with tensormsg.listen(":0", background=True, like=convert) as server, \
            tensormsg.connect(server.url) as ep:
        ep.send({"x": torch.ones(2)})
        with pytest.raises(torch.OutOfMemoryError,
                           match="tensor 'x': CUDA out of memory"):
            server.recv(WAIT)["x"]


def test_torch_is_not_imported_unless_the_user_did(echo_unix):
    program = ("import sys, numpy as np, tensormsg\n"
               f"with tensormsg.connect({echo_unix!r}) as ep:\n"
               "    ep.send({'x': np.ones(3)})\n"
               "    ep.recv(30)['x']\n"
               "for name in 'torch', 'tensordict', 'jax', 'cupy':\n"
               "    assert name not in sys.modules, name\n")
    subprocess.run([sys.executable, "-c", program], check=True, timeout=50,
                   env=environment())


@pytest.mark.parametrize("other", ["", "import libucx; libucx.load_library()"])
def test_torch_may_come_first(other):
    """That of PyPI brings no UCX; with one that does, or what else did, that is
    the one."""
    if other:
        pytest.importorskip("libucx", reason="no UCX in build/venv")
    ran = subprocess.run(
        [sys.executable, "-c", f"""
import torch
{other}
import tensormsg
with tensormsg.listen(":0", background=True, like="torch") as server, \\
        tensormsg.connect(server.url) as ep:
    ep.send({{"x": torch.ones(1000)}})
    assert server.recv(30)["x"].sum() == 1000
print(tensormsg.info()["ucx"]["why"])
"""], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=270,
        env=environment())
    assert ran.returncode == 0, ran.stderr
    assert ("had loaded it before" in ran.stdout) == bool(other), ran.stdout


def test_a_models_weights_in_another_process():
    example = HERE / "../../../examples/python/interop/state_dict.py"
    assert "the same outputs: True" in run_script(example)


@pytest.mark.parametrize("module", [tensormsg, tensormsg.sync])
def test_tensors_are_moved_where_they_are_wanted(module):
    for device in "meta", torch.device("meta"):
        with module.listen(":0", background=True, like="torch",
                           device=device) as listener, \
                tensormsg.sync.connect(listener.url) as ep:
            ep.send({"x": torch.ones(2, 3), "n": 7})
            msg = listener.recv(WAIT)
            assert msg["x"].device.type == "meta" and msg["x"].shape == (2, 3)
            assert msg["x"] is msg["x"] and msg["n"] == 7  # moved once
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="torch finds no such device"):
            module.listen(":0", like="torch", device="cuda")


def test_the_block_of_its_page(capsys):
    block, = blocks_of(DOCS / "python/torch.md", "torch")
    exec(block, {})
    assert capsys.readouterr().out == "2 True\n"


def until(holds):
    deadline = time.monotonic() + WAIT
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(.001)


@pytest.mark.parametrize("dtype", [None, "u1", torch.bfloat16])
def test_tensors_that_can_be_lent(dtype):
    more = {} if dtype is None else {"dtype": dtype}
    x = tensormsg.empty((3, 4), like="torch", **more)
    assert x.dtype == {None: torch.float32, "u1": torch.uint8}.get(dtype, dtype)
    assert x.shape == (3, 4) and (x == 0).all()
    x += 1
    assert not tensormsg.is_lent(x) and not tensormsg.is_lent(torch.ones(3))
    both = tensormsg.empty({"x": (2, torch.float16), "y": (5, "f8")},
                           like=torch)
    assert both["x"].dtype == torch.float16 and both["y"].shape == (5,)


@pytest.mark.parametrize("like", ["torch", None])
def test_a_loan_is_copied_where_torch_writes_to_it(like, tmp_path):
    x = tensormsg.empty(1 << 20, "u1", like="torch")
    x[:] = 3
    with tensormsg.listen(f"unix://{tmp_path}/socket", like=like, loan=True,
                          background=True) as server, \
            tensormsg.connect(server.url, background=True) as ep:
        ep.send({"x": x}, lend=True)
        msg = server.recv(WAIT)
        assert msg.lent and tensormsg.is_lent(x)
        if like is None:
            assert not msg["x"].flags.writeable
            with warnings.catch_warnings():  # torch's, of read-only arrays
                warnings.simplefilter("ignore")
                taken = [torch.from_numpy(msg["x"]), torch.from_dlpack(msg["x"]),
                         torch.as_tensor(msg.raw("x")),
                         torch.from_dlpack(msg.dlpack("x"))]
        else:
            taken = [msg["x"], torch.from_dlpack(msg.dlpack("x"))]
        for tensor in taken:
            tensor += 1
            assert (tensor >= 4).all()
        assert (x == 3).all()
        del msg, tensor
        assert tensormsg.is_lent(x)
        taken.clear()
        until(lambda: not tensormsg.is_lent(x))
        x[:] = 5
        ep.send({"x": x}, lend=True)
        msg = server.recv(WAIT)
        assert (torch.from_dlpack(msg.dlpack("x")) == 5).all()  # no old copy
        del msg


def test_files_hold_tensors_of_torch(tmp_path):
    """As the package safetensors saves and loads them; they lie in the file."""
    safetensors = pytest.importorskip("safetensors.torch")
    tensors = {name: torch.arange(12, dtype=torch.uint8).view(
        getattr(torch, name)) for name in DTYPES
        if name not in ("complex32", "complex128", "bool") and
        getattr(torch, name).itemsize <= 4}
    tensors["bool"] = torch.tensor([True, False])
    theirs, ours = tmp_path / "theirs.safetensors", tmp_path / "o.safetensors"
    safetensors.save_file(tensors, theirs)
    with tensormsg.open(theirs, like="torch") as file:
        loaded = dict(file)
    assert set(loaded) == set(tensors)
    theirs.unlink()
    tensormsg.save(ours, loaded)
    again = safetensors.load_file(ours)
    for name, tensor in tensors.items():
        for got in loaded[name], again[name]:
            assert got.dtype == tensor.dtype
            assert torch.equal(got.view(torch.uint8), tensor.view(torch.uint8))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_message_of_tensors_is_pickled(dtype, tmp_path):
    """Also one of a dtype that numpy lacks."""
    pair = Pair("torch", tmp_path)
    message = pair.back({"x": torch.ones(5, dtype=dtype), "y": torch.zeros(2)})
    for again in (pickle.loads(pickle.dumps(message, 5)),
                  copy.deepcopy(message)):
        assert again["x"].dtype == dtype and (again["x"] == 1).all()
        assert again.dtype("x") == message.dtype("x")
        again["x"][0] = 5
        assert message["x"][0] == 1


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_a_data_loader_of_the_recipe(method, recipe):  # noqa: F811
    """With a connection of the process that loads, too."""
    start = recipe("dataloader.md", train={
        '"spawn"': repr(method), "num_workers=2": "num_workers=1"})
    start("python samples.py")
    start("python train.py").ends(wait=270)
