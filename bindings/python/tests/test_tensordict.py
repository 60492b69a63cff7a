# SPDX-License-Identifier: BSD-3-Clause
"""tensormsg.tensordict in the place of tensordict's pipe over UCXX."""

import asyncio
import gc
import inspect
import json
import math
import pathlib
import threading

import numpy as np
import pytest

torch = pytest.importorskip("torch")
tensordict = pytest.importorskip("tensordict")

from tensordict import LazyStackedTensorDict, NonTensorData, \
    NonTensorStack, TensorDict, UnbatchedTensor  # noqa: E402

import tensormsg  # noqa: E402
from conftest import DOCS, blocks_of, run_script  # noqa: E402
from tensormsg import _tensordict  # noqa: E402
from tensormsg.tensordict import Pipe, Server, TensorDictPipe, \
    TensorDictServer, recv_tensordict, send_tensordict  # noqa: E402

HERE = pathlib.Path(__file__).parent
WAIT = 60


def run(scenario, place):
    """With both ends of a pipe, in one event loop."""
    async def main():
        a, b = await both(place)
        async with a, b:
            await scenario(a, b)

    asyncio.run(asyncio.wait_for(main(), WAIT))


async def both(place):
    return await asyncio.gather(Pipe.listen(place), connected(place))


async def connected(place):
    """As soon as it listens."""
    for _ in range(WAIT * 100):
        try:
            return await Pipe.connect(place)
        except (tensormsg.Unreachable, tensormsg.NotFound):
            await asyncio.sleep(0.01)
    raise AssertionError("nobody listens")


@pytest.fixture
def place(tmp_path):
    return f"unix://{tmp_path}/pipe"


def raw(td, key):
    return dict(td.items())[key]


def same(a, b):
    """Whether all of the two is: kinds, sizes, names, values."""
    assert type(a) is type(b)
    assert a.batch_size == b.batch_size
    if isinstance(a, NonTensorData):
        assert type(a.data) is type(b.data)
        assert a.data == b.data or (a.data != a.data and b.data != b.data)
        return
    if isinstance(a, LazyStackedTensorDict):
        assert a.stack_dim == b.stack_dim
        for pair in zip(a.tensordicts, b.tensordicts, strict=True):
            same(*pair)
        return
    assert a.names == b.names and a.device == b.device
    assert list(a.keys()) == list(b.keys())
    for key, mine in a.items():
        its = raw(b, key)
        if not isinstance(mine, torch.Tensor):
            same(mine, its)
            continue
        assert type(mine) is type(its)
        assert mine.shape == its.shape and mine.dtype == its.dtype
        assert torch.equal(torch.as_tensor(mine.tolist()),
                           torch.as_tensor(its.tolist()))


def step(i=0, batch=4):
    return TensorDict({"obs": torch.full((batch, 3), float(i)),
                       "action": torch.arange(batch) + i}, [batch])


KINDS = {
    "plain": lambda: step(),
    "empty": lambda: TensorDict({}, []),
    "empty with a batch": lambda: TensorDict({}, [3, 0]),
    "nested": lambda: TensorDict(
        {"a": torch.zeros(2, 3), "next": TensorDict(
            {"b": torch.ones(2, 5, 1), "deep": TensorDict(
                {"c": torch.ones(2, 5)}, [2, 5])}, [2, 5])}, [2]),
    "names": lambda: TensorDict({"a": torch.zeros(2, 3)}, [2, 3],
                                names=["batch", "time"]),
    "device": lambda: TensorDict({"a": torch.zeros(2)}, [2], device="cpu"),
    "non tensor": lambda: TensorDict({
        "str": NonTensorData("é\ud800"), "none": NonTensorData(None),
        "bool": NonTensorData(True), "int": NonTensorData(-(1 << 80)),
        "float": NonTensorData(math.inf), "nan": NonTensorData(math.nan),
        "bytes": NonTensorData(b"\0\xff"), "list": NonTensorData([1, [2.5]]),
        "tuple": NonTensorData(((), ("b", b"x"))),
        "dict": NonTensorData({"t": ("l", {"": []})})}, [2]),
    "non tensor with its own batch": lambda: TensorDict(
        {"n": NonTensorData("x", batch_size=[2, 3])}, [2]),
    "stack of non tensors": lambda: TensorDict(
        {"s": NonTensorStack("p", "q")}, [2]),
    "stack of stacks": lambda: TensorDict(
        {"s": NonTensorStack(NonTensorStack("p", 1), NonTensorStack(2.5, "q"))},
        [2, 2]),
    "stack along the second": lambda: TensorDict({"s": torch.stack(
        [NonTensorStack("a", "b"), NonTensorStack("c", "d")], 1)}, [2, 2]),
    "unbatched": lambda: TensorDict(
        {"u": UnbatchedTensor(torch.arange(5)), "a": torch.zeros(2)}, [2]),
    "unbatched, in others": lambda: TensorDict(
        {"n": {"u": UnbatchedTensor(torch.arange(3.).expand(2, 3))}}, [4]),
    "lazy stack": lambda: tensordict.lazy_stack(
        [TensorDict({"a": torch.zeros(3)}), TensorDict({"a": torch.ones(4)})]),
    "lazy stack in one": lambda: TensorDict({"l": tensordict.lazy_stack(
        [TensorDict({"a": torch.zeros(2, 3)}, [2]),
         TensorDict({"a": torch.ones(2, 4)}, [2])], 1)}, [2, 2]),
    "expanded": lambda: step().expand(3, 4).clone(False),
    "dtypes": lambda: TensorDict({
        str(dtype): torch.ones(2, 3).to(dtype) for dtype in (
            torch.bfloat16, torch.float16, torch.bool, torch.int8,
            torch.float8_e4m3fn, torch.complex64)}, [2]),
    "not contiguous": lambda: TensorDict(
        {"t": torch.arange(12.).reshape(3, 4).T}, [4]),
    "odd names": lambda: TensorDict(
        {"a/b": torch.zeros(1), "a": {"b": torch.ones(1)}, "": torch.ones(2)}),
    "no elements": lambda: TensorDict({"a": torch.zeros(0, 3)}, [0]),
    "scalars": lambda: TensorDict({"a": 1, "b": 2.5, "c": True}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_arrives_as_it_was(kind, place):
    async def scenario(a, b):
        td = KINDS[kind]()
        await b.asend(td)
        same(td, await a.arecv())
        await a.asend(td)  # the other way, and once more
        await a.asend(td)
        same(td, await b.arecv())
        same(td, await b.arecv())

    run(scenario, place)


def test_it_has_all_that_the_pipe_of_tensordict_has():
    """Names and parameters, so that existing code changes its import."""
    theirs = pytest.importorskip("tensordict._ucxx")
    for mine, its in (TensorDictPipe, theirs.TensorDictPipe), \
            (TensorDictServer, theirs.TensorDictServer):
        for name, member in vars(its).items():
            if name.startswith("_") and not name.startswith("__a") and \
                    name not in ("__init__", "__enter__", "__exit__"):
                continue
            assert name in vars(mine), name
            if callable(member) or isinstance(member, classmethod):
                wanted = inspect.signature(getattr(its, name)).parameters
                has = inspect.signature(getattr(mine, name)).parameters
                for each in wanted if name not in ("__aexit__", "__exit__") \
                        else ():
                    assert each in has, (name, each)
                    assert wanted[each].kind is has[each].kind
            assert inspect.iscoroutinefunction(getattr(its, name)) == \
                inspect.iscoroutinefunction(getattr(mine, name)), name
    for name in theirs.__all__:
        assert hasattr(tensormsg.tensordict, name)


def test_each_receive_is_its_own(place):
    async def scenario(a, b):
        for i in range(3):
            await b.asend(step(i))
        got = [await a.arecv() for _ in range(3)]
        assert [td["obs"][0, 0].item() for td in got] == [0, 1, 2]
        got[0]["obs"] += 10
        assert got[1]["obs"].sum() == 12

    run(scenario, place)


FLAT = {
    "plain": lambda i: TensorDict(a=torch.full((3,), i), b=torch.ones(2, i)),
    "batched": lambda i: TensorDict(
        {"a": torch.full((2, 3), i), "/": torch.ones(2)}, [2], names=["t"]),
    "on the cpu": lambda i: TensorDict(a=torch.arange(i), device="cpu"),
    "empty": lambda i: TensorDict({}, [4]),
    "strided": lambda i: TensorDict(a=torch.full((3, 4), i).t()[1:]),
}


@pytest.mark.parametrize("kind", FLAT)
def test_the_same_structure_over_and_over(kind, place, monkeypatch):
    """Whose form is known from the second time on, on both sides."""
    async def scenario(a, b):
        for i in range(2):
            await b.asend(FLAT[kind](i))
            same(await a.arecv(), FLAT[kind](i))
        monkeypatch.setattr(_tensordict, "_pack", None)
        monkeypatch.setattr(_tensordict._Builder, "entry", None)
        for i in range(3):
            await b.asend(FLAT[kind](i))
            got = await a.arecv()
            same(got, FLAT[kind](i))
            if got.batch_dims:  # what is changed in one is in no other
                got.names = ["other"]
            got["more"] = torch.zeros(got.batch_size)

    run(scenario, place)


def test_a_form_that_is_known_and_lies(place):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    unknown = np.ones((2, 1), ml_dtypes.float8_e3m4)  # to torch

    async def scenario(a, b):
        honest = FLAT["batched"]
        for more, kind, words in (
                ({"a": np.ones((2, 1))}, tensormsg.Malformed, "malformed"),
                ({}, tensormsg.Malformed, "malformed"),
                ({"a": unknown, "/": unknown}, tensormsg.Unsupported,
                 "tensor 'a' is float8_e3m4 of shape .*torch.from_dlpack"),
                ({"a": np.ones(3), "/": np.ones(2)}, tensormsg.Malformed,
                 "malformed"),
                ({"a": np.ones(()), "/": np.ones(2)}, tensormsg.Malformed,
                 "malformed")):
            await b.asend(honest(1))
            same(await a.arecv(), honest(1))
            form = _tensordict.pack(honest(1))[1]
            await b._endpoint.send(more, meta=form)
            with pytest.raises(kind, match=words):
                await a.arecv()
        await b._endpoint.send({"a": np.ones(1), "u": unknown})  # without one
        with pytest.raises(tensormsg.Unsupported, match="tensor 'u' is float8"):
            await a.arecv()

    run(scenario, place)


def test_small_integers_are_refused_by_name(place):
    x = torch.zeros(4, dtype=torch.uint8).view(torch.int4)

    async def scenario(a, b):
        for td, at in (TensorDict({"x": x}, []), "x"), (
                TensorDict({"y": TensorDict({"x": x}, [4])}, [4]), "y/x"):
            with pytest.raises(TypeError, match=f"'{at}' is torch.int4"):
                await b.asend(td)

    run(scenario, place)


def test_many_forms_are_not_kept_for_ever(place):
    async def scenario(a, b):
        for i in range(200):
            td = TensorDict({f"x{i}": torch.ones(1)}, [])
            await b.asend(td)
            same(await a.arecv(), td)
        assert len(_tensordict._flats) <= 64
        assert len(_tensordict._forms) <= 64

    run(scenario, place)


def test_into_one(place):
    async def scenario(a, b):
        mine = step(9)
        mine["more"] = NonTensorData("old")
        mine["u"] = UnbatchedTensor(torch.zeros(3))
        obs, u = mine["obs"], mine["u"].data_ptr()
        for i in range(2):
            sent = step(i)
            sent["more"] = NonTensorData(f"new {i}")
            sent["u"] = UnbatchedTensor(torch.full((3,), float(i)))
            await b.asend(sent)
            got = await (a.arecv(mine) if i == 0 else a.arecv(into=mine))
            assert got is mine and mine["obs"] is obs
            assert mine["u"].data_ptr() == u
            same(mine, sent)

    run(scenario, place)


UNLIKE = {
    "shape": lambda: TensorDict({"a": torch.zeros(2, 4), "n": "x"}, [2]),
    "dtype": lambda: TensorDict({"a": torch.zeros(2, 3).int(), "n": "x"}, [2]),
    "batch": lambda: TensorDict({"a": torch.zeros(2, 3), "n": "x"}, [2, 3]),
    "more": lambda: TensorDict({"a": torch.zeros(2, 3), "n": "x",
                                "z": torch.zeros(2)}, [2]),
    "less": lambda: TensorDict({"a": torch.zeros(2, 3)}, [2]),
    "kind": lambda: TensorDict({"a": torch.zeros(2, 3), "n": {}}, [2]),
    "unbatched": lambda: TensorDict(
        {"a": UnbatchedTensor(torch.zeros(2, 3)), "n": "x"}, [2]),
    "lazy": lambda: tensordict.lazy_stack(
        [TensorDict({"a": torch.zeros(3), "n": "x"})] * 2),
}


@pytest.mark.parametrize("kind", UNLIKE)
def test_into_one_of_another_structure(kind, place):
    """It stays as it is: a new one is given, or an error that says where, and
    then nothing is lost."""
    async def scenario(a, b):
        mine = UNLIKE[kind]()
        sent = TensorDict({"a": torch.ones(2, 3), "n": "y"}, [2])
        await b.asend(sent)
        await b.asend(sent)
        got = await a.arecv(mine)
        assert got is not mine
        same(got, sent)
        with pytest.raises(ValueError, match="into: '"):
            await a.arecv(into=mine)
        same(await a.arecv(), sent)
        same(mine, UNLIKE[kind]())

    run(scenario, place)


UNWRITABLE = {
    "expanded": lambda: torch.zeros(1, 3).expand(2, 3),
    "expanded, unbatched": lambda: UnbatchedTensor(
        torch.zeros(1, 3).expand(2, 3)),
    "sparse": lambda: torch.zeros(2, 3).to_sparse(),
    "of inference mode": torch.inference_mode()(lambda: torch.zeros(2, 3)),
}


@pytest.mark.parametrize("kind", UNWRITABLE)
def test_nothing_is_written_where_not_all_can_be(kind, place):
    async def scenario(a, b):
        mine = TensorDict({"a": torch.zeros(2, 3), "b": UNWRITABLE[kind]()},
                          [2])
        of = UnbatchedTensor if "unbatched" in kind else torch.Tensor.clone
        sent = TensorDict({"a": torch.ones(2, 3), "b": of(torch.ones(2, 3))},
                          [2])
        await b.asend(sent)
        with pytest.raises(ValueError, match="into: 'b' is "):
            await a.arecv(into=mine)
        same(await a.arecv(mine), sent)
        assert not mine["a"].any()

    run(scenario, place)


def test_a_locked_one_is_written_to(place):
    async def scenario(a, b):
        mine = step(9).lock_()
        await b.asend(step(1))
        assert await a.arecv(into=mine) is mine and mine["obs"][0, 0] == 1

    run(scenario, place)


def test_by_the_methods_of_tensordict(place):
    async def scenario(a, b):
        await step(3).asend(b)
        got = await TensorDict().arecv(a)
        assert got["obs"][0, 0] == 3
        await step(4).asend(b)
        assert await got.arecv(a) is got and got["obs"][0, 0] == 4

    run(scenario, place)


def test_blocking(place):
    """Made in one event loop, used in none: in threads."""
    a, b = asyncio.run(both(place))
    got = []

    def receive():
        with a:
            got.append(a.recv(timeout=WAIT))
            got.append(TensorDict().recv(a))
            a.send(step(5))
            got.append(a.recv(into=got[0]))

    thread = threading.Thread(target=receive)
    thread.start()
    with b:
        b.send(step(1), timeout=WAIT)
        step(2).send(b)
        assert b.recv(timeout=WAIT)["obs"][0, 0] == 5
        b.send(step(3))
    thread.join(WAIT)
    assert [td["obs"][0, 0].item() for td in got] == [3, 2, 3]
    assert a.closed and b.closed
    a.close()
    with pytest.raises(RuntimeError, match="Cannot recv on a closed pipe"):
        a.recv()
    with pytest.raises(RuntimeError, match="Cannot send on a closed pipe"):
        a.send(step())


def test_blocking_calls_are_refused_in_an_event_loop(place):
    async def scenario(a, b):
        for call in (lambda: b.send(step()), a.recv, a.close):
            with pytest.raises(RuntimeError, match="would block the event "
                                                   "loop"):
                call()
        await b.asend(step(1))
        assert (await a.arecv())["obs"][0, 0] == 1

    run(scenario, place)


def test_going_through_it_ends_with_the_peer(place):
    async def main():
        a, b = await both(place)

        async def send():
            async with b:
                for i in range(5):
                    await b.asend(step(i))

        sending = asyncio.ensure_future(send())
        got = [td["obs"][0, 0].item() async for td in a]
        await sending
        assert got == [0, 1, 2, 3, 4]
        await a.aclose()
        assert [td async for td in a] == []

    asyncio.run(asyncio.wait_for(main(), WAIT))


def test_a_lost_peer_is_an_error_and_no_end(place):
    async def main():
        a, b = await both(place)
        b.abort()
        with pytest.raises(tensormsg.PeerLost):
            async for _ in a:
                pass
        a.abort()

    asyncio.run(asyncio.wait_for(main(), WAIT))


def test_a_server_gives_each_client_its_pipe(tmp_path):
    async def main():
        server = Server(f"unix://{tmp_path}/server")

        async def twice(pipe):
            async for td in pipe:
                await pipe.asend(td * 2)
            await pipe.aclose()

        serving = asyncio.ensure_future(server.serve(twice))

        async def client(i):
            async with await Pipe.connect(server.url) as pipe:
                await pipe.asend(step(i))
                return (await pipe.arecv())["obs"][0, 0].item()

        assert await asyncio.gather(*map(client, range(3))) == [0, 2, 4]
        server.close()
        await serving
        with pytest.raises(tensormsg.Error):
            await Pipe.connect(server.url, timeout=WAIT)

    asyncio.run(asyncio.wait_for(main(), WAIT))


def test_a_port_by_its_number():
    async def main():
        async with Server(0) as server:
            port = int(server.url.rpartition(":")[2])
            a = await Pipe.connect("127.0.0.1", port, consolidated=False)
            async for b in server:
                break
            await a.asend(step(7))
            assert (await b.arecv())["obs"][0, 0] == 7
            await asyncio.gather(a.aclose(), b.aclose())

    asyncio.run(asyncio.wait_for(main(), WAIT))


def test_others_are_let_in_only_on_request():
    async def main():
        with pytest.raises(tensormsg.Insecure):
            await Pipe.listen(0, host="0.0.0.0")
        with pytest.raises(TypeError, match="tensormsg.Endpoint"):
            Pipe(object())

    asyncio.run(main())


REFUSED = {
    "an object": (lambda: NonTensorData({1, 2}), ValueError, "'n/x'.*set"),
    "a key that is not a str": (lambda: NonTensorData({1: 2}), ValueError,
                             "'n/x'.*dict"),
    "an array": (lambda: NonTensorData(np.ones(2)), ValueError,
                 "'n/x'.*ndarray"),
    "meta": (lambda: torch.zeros(2, device="meta"), TypeError, "'n/x'.*meta"),
    "sparse": (lambda: torch.eye(2).to_sparse(), TypeError, "'n/x'.*layout"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_sent_is_refused_by_name(kind, place):
    async def scenario(a, b):
        make, error, words = REFUSED[kind]
        with pytest.raises(error, match=words):
            await b.asend(TensorDict({"n": {"x": make()}}, []))
        with pytest.raises(ValueError, match="a TensorDict"):
            await b.asend({"x": torch.ones(1)})
        await b.asend(step(1))
        assert (await a.arecv())["obs"][0, 0] == 1

    run(scenario, place)


def test_gradients_stay_here(place):
    async def scenario(a, b):
        module = torch.nn.Linear(2, 3)
        await b.asend(TensorDict.from_module(module))
        got = await a.arecv()
        assert not got["weight"].requires_grad
        assert torch.equal(got["weight"], module.weight)

    run(scenario, place)


def test_it_keeps_the_memory_of_its_message(place):
    async def scenario(a, b):
        await b.asend(TensorDict({"x": torch.arange(100000.)}, []))
        x = (await a.arecv())["x"]
        gc.collect()
        assert x[99999] == 99999 and x.is_contiguous()

    run(scenario, place)


def test_dicts_of_arrays_of_other_programs(place):
    async def scenario(a, b):
        await b._endpoint.send({"x": np.arange(3), "y": np.ones((2, 2))})
        got = await a.arecv()
        assert got.batch_size == torch.Size([]) and set(got.keys()) == {"x", "y"}
        await b._endpoint.send({"x": np.arange(3)[::-1]}, keep_strides=True)
        assert (await a.arecv())["x"].tolist() == [2, 1, 0]
        await send_tensordict(b._endpoint, step(2))
        got = await recv_tensordict(a._endpoint, step(0), consolidated=True)
        assert got["obs"][0, 0] == 2

    run(scenario, place)


LIES = [
    "", "[]", "1", "null", '"x"', "{", '{"of":{}}', '{"batch":[],"of":[]}',
    '{"batch":[-1],"of":{}}', '{"batch":"x","of":{}}',
    '{"batch":[],"of":{"x":1}}', '{"batch":[],"of":{"x":-1}}',
    '{"batch":[],"of":{"x":true}}', '{"batch":[7],"of":{"x":0}}',
    '{"batch":[],"of":{"x":["pickle","gASVBQ=="]}}',
    '{"batch":[],"of":{"x":["unbatched","0"]}}',
    '{"batch":[],"of":{"x":["data",["b","!"],[]]}}',
    '{"batch":[],"of":{"x":["data",["z"],[]]}}',
    '{"batch":[],"of":{"x":["data",1]}}',
    '{"batch":[],"of":{"x":["stack",0,[]]}}',
    '{"batch":[],"of":{"x":["stack",9,[["data",1,[]]]]}}',
    '{"batch":[],"of":{"x":["lazy",0,[0,0]]}}',
    '["stack",0,[["data",1,[]]]]',
    '{"batch":[],"of":{"x":' * 3000 + "0" + "}}" * 3000,
    '{"batch":[' + "9" * 30 + '],"of":{}}',
    '{"batch":[],"names":["a","a"],"of":{}}',
]


def test_forms_that_lie(place):
    async def scenario(a, b):
        for form in LIES:
            await b._endpoint.send({"x": np.arange(3)}, tensordict=form)
            with pytest.raises(tensormsg.Malformed, match="malformed"):
                print(json.dumps(form), await a.arecv())
        await b.asend(step(1))
        assert (await a.arecv())["obs"][0, 0] == 1

    run(scenario, place)


def test_a_receive_that_is_cancelled_takes_nothing(place):
    async def scenario(a, b):
        for i in range(5):
            waiting = asyncio.ensure_future(a.arecv())
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await b.asend(step(i))
            assert (await a.arecv())["obs"][0, 0] == i

    run(scenario, place)


def test_two_processes():
    example = HERE / "../../../examples/python/interop/tensordict_pipe.py"
    assert "all rollouts were received" in run_script(example)


def test_the_block_of_its_page(capsys):
    block, = blocks_of(DOCS / "python/torch.md", "tensordict")
    exec(block, {})
    assert capsys.readouterr().out.startswith("torch.Size([4])")
