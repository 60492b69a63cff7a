# SPDX-License-Identifier: BSD-3-Clause
"""load(), open() and save(): every value as numpy and safetensors have it, in the
page cache, for as long as an array lives."""

import copy
import gc
import pathlib
import re
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

import tensormsg
from conftest import WAIT, environment, python
from tensormsg import sync

FORMATS = "safetensors", "npz", "npy"
DTYPES = [np.dtype(name) for name in (
    "?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8",
    "c8", ml_dtypes.bfloat16)]
ARRAYS = {f"{dtype}/{'x'.join(map(str, shape))}": np.arange(
    np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    for dtype in DTYPES for shape in ((), (3,), (2, 3), (0, 2))}


def same(got, wanted):
    assert got.dtype == wanted.dtype and got.shape == wanted.shape
    assert got.tobytes() == wanted.tobytes()


def is_mapped(array, path):
    """Whether it lies in pages of that file."""
    at = array.__array_interface__["data"][0]
    for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(one, 16) for one in line.split()[0].split("-"))
        if begin <= at < end:
            return str(path) in line
    return False


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.safetensors"
    safetensors.numpy.save_file(
        {"weight": np.arange(1 << 16, dtype="f4"), "bias": np.ones(3)}, path,
        metadata={"epoch": "3"})
    return path


def test_what_safetensors_saves_is_loaded(tmp_path):
    path = tmp_path / "all.safetensors"
    safetensors.numpy.save_file(ARRAYS, path)
    loaded = tensormsg.load(path)
    assert set(loaded) == set(ARRAYS)
    for name, array in ARRAYS.items():
        same(loaded[name], array)


def test_safetensors_loads_what_is_saved(tmp_path):
    path = tmp_path / "all.safetensors"
    tensormsg.save(path, ARRAYS)
    loaded = safetensors.numpy.load_file(path)
    assert set(loaded) == set(ARRAYS)
    for name, array in ARRAYS.items():
        same(loaded[name], array)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_what_numpy_saves_is_loaded(save, tmp_path):
    arrays = {**ARRAYS, "complex": np.array([1 + 2j]),
              "fortran": np.asfortranarray(np.arange(6.).reshape(2, 3)),
              "big-endian": np.arange(5, dtype=">i4")}
    save(tmp_path / "all.npz", **arrays)
    loaded = tensormsg.load(tmp_path / "all.npz")
    assert list(loaded) == list(arrays)
    for name, array in arrays.items():
        same(loaded[name], array.astype(array.dtype.newbyteorder("=")))
    assert loaded["fortran"].flags.f_contiguous


def test_numpy_loads_what_is_saved(tmp_path):
    arrays = {name: array for name, array in ARRAYS.items()
              if array.dtype != ml_dtypes.bfloat16}  # which it has no name for
    tensormsg.save(tmp_path / "all.npz", arrays)
    with np.load(tmp_path / "all.npz") as loaded:
        assert loaded.files == list(arrays)
        for name, array in arrays.items():
            same(loaded[name], array)
    for array in arrays["float32/2x3"], arrays["float32/2x3"].T, \
            arrays["int64/3"][::-1]:
        tensormsg.save(tmp_path / "one.npy", array, overwrite=True)
        same(np.load(tmp_path / "one.npy"), array)
        same(tensormsg.load(tmp_path / "one.npy")["array"], array)
    tensormsg.save(tmp_path / "x.npy", {"x": arrays["bool/3"]})
    assert list(tensormsg.load(tmp_path / "x.npy")) == ["array"]


@pytest.mark.parametrize("format", FORMATS)
def test_arrays_lie_in_the_page_cache(format, tmp_path):
    path = tmp_path / f"x.{format}"
    tensormsg.save(path, {"x": np.arange(3 << 20, dtype="u1")})
    before = path.read_bytes()
    file = tensormsg.load(path)
    assert file.meta == {"file_name": path.name, "file_format": format}
    (x,) = file.values()
    assert is_mapped(x, path)
    x[:] = 7  # its own copy of these pages
    assert (x == 7).all() and path.read_bytes() == before


@pytest.mark.parametrize("give", [tensormsg.load, tensormsg.open])
def test_an_array_keeps_the_mapping(give, model):
    with give(model) as file:
        weight = file["weight"]
        raw = file.raw("weight")
    view = weight[10:20]
    del weight, file
    gc.collect()
    assert is_mapped(view, model)
    model.unlink()
    assert view.tolist() == list(range(10, 20))
    del view
    assert raw.view("f4")[-1] == (1 << 16) - 1
    del raw
    gc.collect()
    assert str(model) not in pathlib.Path("/proc/self/maps").read_text()


def test_each_array_of_open_is_made_when_it_is_asked_for(model):
    with tensormsg.open(model) as file:
        assert set(file._arrays.values()) == {None} and len(file) == 2
        assert file["bias"].tolist() == [1, 1, 1]
        assert file["bias"] is file["bias"]
        assert file._arrays["weight"] is None
        assert file.dtype("weight") == "float32" and "weight" in file
        assert file.meta["epoch"] == "3"
        assert "file 'model.safetensors'" in repr(file)
        assert "'weight': float32[65536]" in repr(file)
        with pytest.raises(KeyError, match="no 'wieght': is it 'weight'") as no:
            file["wieght"]
    for use in (lambda: file["bias"], lambda: "bias" in file,
                lambda: list(file), lambda: len(file), lambda: dict(file),
                lambda: file.dtype("bias"), lambda: file.raw("bias"),
                lambda: file.dlpack("bias"), lambda: file.lent, file.apart,
                lambda: copy.copy(file), lambda: copy.deepcopy(file)):
        with pytest.raises(tensormsg.Closed, match="model.safetensors was "
                                                   "closed: open it again"):
            use()
    assert "closed" in repr(file)
    assert str(no.value) == "no 'wieght'"
    file.close()


def test_what_is_loaded_is_sent(mode, echo_url, model):
    async def scenario(ep):
        with tensormsg.open(model) as file:
            await ep.send(file, meta=file.meta)
        msg = await ep.recv()
        assert msg["bias"].sum() == 3
        assert (msg["weight"] == np.arange(1 << 16)).all()
        assert msg.meta == {"file_name": "model.safetensors", "epoch": "3",
                            "file_format": "safetensors"}

    mode.run(echo_url, scenario)


def test_what_is_sent_is_not_copied(tmp_path):
    """A file of 64 MiB, from its pages in the page cache."""
    path = tmp_path / "x.npy"
    np.lib.format.open_memmap(path, "w+", "u1", (64 << 20,))

    def own_bytes():
        status = pathlib.Path("/proc/self/status").read_text()
        return int(re.search(r"RssAnon:\s+(\d+) kB", status)[1]) * 1024

    with python("-c", SINK) as sink, \
            sync.connect(sink.stdout.readline().strip()) as ep:
        before = own_bytes()
        ep.send(tensormsg.load(path), acked=True, timeout=WAIT)
        assert own_bytes() - before < 16 << 20


def test_like_another_library(model):
    seen = []

    def convert(tensor):
        seen.append(tensor.__dlpack_device__())
        return np.from_dlpack(tensor)

    with tensormsg.open(model, like=convert) as file:
        assert file["bias"].sum() == 3 and seen == [(1, 0)]
        weight = file["weight"]
    assert is_mapped(weight, model) and weight[5] == 5


SINK = """
import tensormsg
with tensormsg.listen(":0") as listener:
    print(listener.url, flush=True)
    for msg in listener:
        pass
"""

TREE = {"step": 7, "name": "a\"b", "digits": "7", "truth": True, "rate": .1,
        "huge": 2**63 - 1, "nothing": None,
        "layers": [{"w": np.ones((2, 2))}, {"w": np.zeros(1), "deep": ()}],
        "pair": (np.arange(3), "x"),
        # As a state of torch's optimizers has it.
        "state": {0: {"step": np.array(3.)}, 1: {}},
        "groups": [{"lr": .001, "betas": (.9, .999), "params": [0, 1]}]}


def test_a_tree_comes_back(tmp_path):
    path = tmp_path / "tree.safetensors"
    tensormsg.save(path, TREE, meta={"run": "a", "frame": 3})
    file = tensormsg.load(path)
    tree = file.tree()
    assert repr(tree) == repr(TREE)
    assert type(tree["digits"]) is str and type(tree["step"]) is int
    assert file["layers/1/w"].tolist() == [0]
    assert file.meta["run"] == "a" and file.meta["frame"] == 3
    assert safetensors.numpy.load_file(path)["layers/0/w"].sum() == 4
    with tensormsg.open(path) as lazy:
        assert repr(lazy.tree()) == repr(TREE)
    tensormsg.save(path, file, meta=file.meta, overwrite=True)
    assert repr(tensormsg.load(path).tree()) == repr(TREE)


def test_a_message_with_a_tree_is_saved_by_its_names_alone_in_a_npz(tmp_path):
    tensormsg.save(tmp_path / "a.safetensors", {"a": {"b": np.ones(1)}})
    file = tensormsg.load(tmp_path / "a.safetensors")
    tensormsg.save(tmp_path / "a.npz", file)
    assert list(tensormsg.load(tmp_path / "a.npz")) == ["a/b"]


@pytest.mark.parametrize("text, value", [
    ("7", 7), ("\"7\"", "7"), ("a", "a"), ("[7]", "[7]"), ("null", "null"),
    ("[" * 99999, "[" * 99999), ("7" * 10**6, "7" * 10**6), ("NaN", np.nan),
    ("\"" + "a" * 999 + "\"", "a" * 999)])
def test_what_another_program_saves_among_the_arrays(text, value, tmp_path):
    """It is text: a number or a str in JSON, or what stands there."""
    path = tmp_path / "x.safetensors"
    safetensors.numpy.save_file({"x": np.ones(1)}, path, metadata={"/n": text})
    assert repr(tensormsg.load(path)["n"]) == repr(value)


@pytest.mark.parametrize("data, meta, words", [
    ({"x": np.ones(1), "n": 7}, None, "not 'n', which is a int"),
    ({"x": {"y": np.ones(1)}}, None, "not dicts, lists or None"),
    ({"x": np.ones(1)}, {"frame": 1}, "not the metadata 'frame'"),
])
@pytest.mark.parametrize("format", ["npz", "npy"])
def test_nothing_is_left_out_of_a_file(format, data, meta, words, tmp_path):
    with pytest.raises(tensormsg.Unsupported, match=f"holds arrays alone, "
                       f"{words}.*: save a .safetensors"):
        tensormsg.save(tmp_path / f"x.{format}", data, meta=meta)
    assert list(tmp_path.iterdir()) == []


def test_bytes_are_no_text(tmp_path):
    for data, meta in ({"b": b"12"}, None), ({}, {"b": b"12"}), ({"b": "\0"}, {}):
        with pytest.raises(tensormsg.Unsupported, match="'b' (is bytes|has a "
                           "NUL), and a .safetensors holds text alone"):
            tensormsg.save(tmp_path / "x.safetensors", data, meta=meta)


def test_a_file_that_is_there_is_kept(tmp_path):
    path = tmp_path / "x.npz"
    tensormsg.save(path, {"x": np.ones(1)})
    with pytest.raises(tensormsg.AlreadyExists, match="x.npz"):
        tensormsg.save(path, {"x": np.zeros(2)})
    old = tensormsg.load(path)
    tensormsg.save(path, {"x": np.zeros(2)}, overwrite=True)
    assert tensormsg.load(path)["x"].shape == (2,)
    assert old["x"].tolist() == [1]  # it has the file that was there


def test_what_numpy_cannot_name_is_raw(tmp_path):
    """As in a message: float4 has no array."""
    header = b'{"x":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}}'
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\x12\x34")
    file = tensormsg.load(path)
    assert isinstance(file["x"], tensormsg.RawTensor)
    assert file["x"].tobytes() == b"\x12\x34"


def test_what_lies_unaligned_says_so(tmp_path):
    """Past the 64 MiB of a file that are copied."""
    path = tmp_path / "x.npz"
    np.savez(path, b=np.zeros(8 << 20), cc=np.arange(99.))
    file = tensormsg.load(path)
    assert not is_mapped(file["b"], path) and is_mapped(file["cc"], path)
    assert not file["cc"].flags.aligned and file["b"].flags.aligned
    with tensormsg.open(path) as lazy:
        assert not lazy["cc"].flags.aligned
    assert (file["cc"] == np.arange(99.)).all() and file["cc"].sum() == 4851


@pytest.mark.parametrize("use, error, words", [
    (lambda at: tensormsg.load(at / "no.npz"), tensormsg.NotFound, "no.npz"),
    (lambda at: tensormsg.load(at / "x.pt"), tensormsg.Unsupported, "x.pt"),
    (lambda at: tensormsg.save(at / "x.pt", {}), tensormsg.Unsupported, "x.pt"),
    (lambda at: tensormsg.load(at / "x.npy", format="pt"), ValueError,
     "format='pt': 'safetensors', 'npz' or 'npy'"),
    (lambda at: tensormsg.load(at / "bad.npz"), tensormsg.Malformed, "bad.npz"),
    (lambda at: tensormsg.load(at / "bad.npy"), tensormsg.Malformed, "bad.npy"),
    (lambda at: tensormsg.load("a\0.npy"), ValueError, "has a NUL"),
    (lambda at: tensormsg.load(7), TypeError, "int"),
    (lambda at: tensormsg.save(at / "no/x.npy", np.ones(1)), tensormsg.NotFound,
     "No such file"),
    (lambda at: tensormsg.save(at / "x.npy", {"x": np.ones(1), "y": np.ones(1)}),
     tensormsg.Unsupported, "more than one|2 tensors|one tensor"),
    (lambda at: tensormsg.save(at / "x.npz", {"x": object()}), TypeError, "'x'"),
    (lambda at: tensormsg.save(at / "x.npz", np.ones(1)), TypeError, "dict"),
    (lambda at: tensormsg.save(at / "x.safetensors", {"x": np.ones(1, "c16")}),
     tensormsg.Unsupported, "'x'.*npz"),
])
def test_what_is_mistaken(use, error, words, tmp_path):
    (tmp_path / "bad.npz").write_bytes(b"PK")
    (tmp_path / "bad.npy").write_bytes(b"NUMPY")
    with pytest.raises(error, match=words):
        use(tmp_path)


def test_the_format_may_be_told(tmp_path):
    tensormsg.save(tmp_path / "x.bin", {"x": np.ones(2)}, format="npz")
    assert tensormsg.load(tmp_path / "x.bin", format="npz")["x"].sum() == 2
    tensormsg.save(str(tmp_path / "ü.NPY"), np.ones(2))
    assert tensormsg.load(bytes(tmp_path / "ü.NPY").decode())["array"].sum() == 2


@pytest.mark.parametrize("name", [".npz", "x/.NPZ", ".npy", ".safetensors"])
def test_a_name_may_be_nothing_but_the_ending(name, tmp_path):
    (tmp_path / "x").mkdir()
    tensormsg.save(tmp_path / name, {"array": np.ones(2)})
    assert tensormsg.load(tmp_path / name)["array"].sum() == 2


LOADS = """
import sys, tensormsg
def has():
    return "libzip" in open("/proc/self/maps").read()
assert not has()
tensormsg.load(sys.argv[1] + "/x.safetensors")
assert not has()
assert tensormsg.load(sys.argv[1] + "/x.npz")["x"].sum() == 3
assert has()
import ssl, zlib, bz2
"""


def test_libzip_is_loaded_with_the_first_npz(tmp_path):
    for name in "x.safetensors", "x.npz":
        tensormsg.save(tmp_path / name, {"x": np.ones(3)})
    subprocess.run([sys.executable, "-c", LOADS, tmp_path], check=True,
                   timeout=WAIT, env=environment())


def test_a_name_of_an_array_and_of_a_value_is_listed_once(tmp_path):
    said = b'{"__metadata__":{"/x":"7"},"x":{"dtype":"U8","shape":[1],' \
        b'"data_offsets":[0,1]}}'
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(said).to_bytes(8, "little") + said + b"\1")
    file = tensormsg.load(path)
    assert list(file) == ["x"] and len(file) == 1 and file["x"] == [1]
