# SPDX-License-Identifier: BSD-3-Clause
"""Files made by the real numpy, safetensors and ml_dtypes packages: the
library loads them as they are, and those packages read back what it saves."""

import ctypes
import io
import json
import os
import pathlib
import zipfile
import zlib

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy

OVERWRITE, SAVE_PARAM_FLAGS = 1, 2
UNSUPPORTED, MALFORMED, EXISTS = -9, -8, -13

pytestmark = [pytest.mark.once,
              # a sanitized library cannot be loaded into a Python that is not
              pytest.mark.skipif(bool(os.environ.get("TMSG_SANITIZE")),
                                 reason="the library is sanitized"),
              # numpy warns of ml_dtypes that it could not load again
              pytest.mark.filterwarnings("ignore:Custom dtypes")]


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32),
                ("device_id", ctypes.c_int32), ("code", ctypes.c_uint8),
                ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("ndim", ctypes.c_int32),
                ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64))]


class Dtype(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16)]


class SaveParams(ctypes.Structure):
    _fields_ = [("field_mask", ctypes.c_uint64), ("format", ctypes.c_int32),
                ("flags", ctypes.c_uint32)]


class Refused(Exception):
    def __init__(self, status, words):
        super().__init__(f"{status}: {words}")
        self.status, self.words = status, words


class Library:
    """Just enough of the C interface."""

    def __init__(self, path):
        self.c = ctypes.CDLL(path)
        self.c.tmsg_error_message.restype = ctypes.c_char_p
        self.c.tmsg_map_size.restype = ctypes.c_size_t
        self.c.tmsg_dtype_format.restype = ctypes.c_char_p

    def check(self, status):
        if status != 0:
            raise Refused(status, self.c.tmsg_error_message().decode())

    def load(self, path):
        handle = ctypes.c_void_p()
        self.check(self.c.tmsg_file_load(os.fsencode(path), None,
                                         ctypes.byref(handle)))
        return handle

    def save(self, handle, path, flags=0):
        params = SaveParams(SAVE_PARAM_FLAGS, 0, flags)
        self.check(self.c.tmsg_file_save(handle, os.fsencode(path),
                                         ctypes.byref(params)))

    def convert(self, source, target):
        handle = self.load(source)
        try:
            self.save(handle, target, OVERWRITE)
        finally:
            self.c.tmsg_map_destroy(handle)

    def save_one(self, name, array, dtype, path, shape=None):
        """An array's bytes as a tensor of (code, bits, lanes)."""
        handle, shape = ctypes.c_void_p(), shape or array.shape
        extents = (ctypes.c_int64 * len(shape))(*shape)
        tensor = Tensor(array.ctypes.data, 1, 0, *dtype, len(shape), extents,
                        None)
        self.check(self.c.tmsg_map_create(ctypes.byref(handle)))
        try:
            self.check(self.c.tmsg_map_add(handle, name.encode(),
                                           ctypes.byref(tensor), None))
            self.save(handle, path)
        finally:
            self.c.tmsg_map_destroy(handle)

    def contents(self, path):
        """{name: (dtype's name, shape, bytes in C order)}, in order."""
        handle, found = self.load(path), {}
        for i in range(self.c.tmsg_map_size(handle)):
            name, tensor = ctypes.c_char_p(), Tensor()
            size, text = ctypes.c_uint64(), ctypes.create_string_buffer(32)
            self.check(self.c.tmsg_map_at(handle, ctypes.c_size_t(i),
                                          ctypes.byref(name),
                                          ctypes.byref(tensor)))
            self.check(self.c.tmsg_tensor_bytes(ctypes.byref(tensor),
                                                ctypes.byref(size)))
            data = ctypes.create_string_buffer(size.value + 1)
            self.check(self.c.tmsg_tensor_pack(ctypes.byref(tensor), data))
            self.c.tmsg_dtype_format(
                Dtype(tensor.code, tensor.bits, tensor.lanes), text,
                ctypes.c_size_t(32))
            found[name.value.decode()] = (
                text.value.decode(), tuple(tensor.shape[:tensor.ndim]),
                data.raw[:size.value])
        self.c.tmsg_map_destroy(handle)
        return found


@pytest.fixture(scope="module")
def library():
    default = pathlib.Path(__file__).parents[2] / "build/libtensormsg.so"
    path = os.environ.get("LIBTENSORMSG", default)
    if not os.path.exists(path):
        pytest.skip(f"no library at {path}")
    return Library(str(path))


NATIVE = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16",
          "uint32", "uint64", "float16", "float32", "float64", "complex64"]
FLOAT8 = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2",
          "float8_e5m2fnuz", "float8_e8m0fnu"]
SHAPES = [(), (1,), (7,), (2, 3, 5), (0,), (4, 0, 2), (1, 1, 1, 1, 6)]
NAMES = ["weight", "層.0/重み", "ünïcode", "Ω", "with space", 'quote"\\', "🙂",
         "a" * 300, "ends.npy", "عربي", "line\nbreak"]


def dtype_of(name):
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def random_array(dtype, shape, seed=0):
    rng = np.random.default_rng(seed)
    dtype = dtype_of(dtype)
    count = int(np.prod(shape))
    if dtype == bool:
        return rng.integers(0, 2, shape).astype(bool)
    raw = rng.bytes(count * dtype.itemsize)
    return np.frombuffer(raw, dtype).reshape(shape)


def check_contents(found, arrays, dtypes=None):
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        dtype, shape, data = found[name]
        assert dtype == (dtypes or {}).get(name, array.dtype.name), name
        assert shape == array.shape, name
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        assert data == little.tobytes(), name


def same(left, right):
    return (left.dtype == right.dtype and left.shape == right.shape
            and left.tobytes() == right.tobytes())


# safetensors

def stored_order(path):
    data = path.read_bytes()
    header = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])
    return [name for name in header if name != "__metadata__"]


@pytest.mark.parametrize("dtype", NATIVE + ["bfloat16"])
def test_safetensors_round_trip(library, tmp_path, dtype):
    arrays = {f"{i}": random_array(dtype, shape, i)
              for i, shape in enumerate(SHAPES)}
    source, target = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    safetensors.numpy.save_file(arrays, source)
    check_contents(library.contents(source),
                   {name: arrays[name] for name in stored_order(source)})
    library.convert(source, target)
    assert target.read_bytes() == source.read_bytes()
    back = safetensors.numpy.load_file(target)
    assert set(back) == set(arrays)
    assert all(same(back[name], arrays[name]) for name in arrays)


@pytest.mark.parametrize("dtype", FLOAT8)
def test_safetensors_float8(library, tmp_path, dtype):
    """numpy cannot load these back by name, the package's core can."""
    array = random_array(dtype, (16, 16))
    source, target = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    source.write_bytes(safetensors.serialize(
        {"x": safetensors.TensorSpec(dtype=dtype, shape=array.shape,
                                     data_ptr=array.ctypes.data,
                                     data_len=array.nbytes)}))
    check_contents(library.contents(source), {"x": array})
    library.convert(source, target)
    assert target.read_bytes() == source.read_bytes()
    (name, entry), = safetensors.deserialize(target.read_bytes())
    assert (name, list(entry["shape"])) == ("x", [16, 16])
    back = np.frombuffer(bytes(entry["data"]), array.dtype)
    assert back.tobytes() == array.tobytes()


def pairs(shape, seed=0):
    """A spec of float4_e2m1fn_x2 as torch has it, its bytes, and what keeps
    these."""
    array = random_array("uint8", shape, seed)
    return safetensors.TensorSpec(
        dtype="float4_e2m1fn_x2", shape=shape, data_ptr=array.ctypes.data,
        data_len=array.nbytes), array


@pytest.mark.parametrize("shape", [(3,), (4, 5), (2, 0)], ids=str)
def test_safetensors_float4(library, tmp_path, shape):
    """The package doubles the last extent, and so do we of lanes."""
    spec, array = pairs(shape)
    source, target = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    source.write_bytes(safetensors.serialize({"x": spec}))
    single = (*shape[:-1], 2 * shape[-1])
    assert library.contents(source) == {
        "x": ("float4_e2m1fn", single, array.tobytes())}
    library.convert(source, target)
    assert target.read_bytes() == source.read_bytes()
    library.save_one("x", array, (17, 4, 2), tmp_path / "c.safetensors")
    assert (tmp_path / "c.safetensors").read_bytes() == source.read_bytes()


@pytest.mark.parametrize("name, dtype, shape, written", [
    ("F6_E2M3", (15, 6, 1), (2, 16), [2, 16]),
    ("F6_E2M3", (15, 6, 4), (2, 4), [2, 16]),
    ("F6_E3M2", (16, 6, 4), (8,), [32])])
def test_safetensors_float6(library, tmp_path, name, dtype, shape, written):
    """The package writes none, but reads it."""
    array, path = random_array("uint8", (24,)), tmp_path / "a.safetensors"
    library.save_one("x", array, dtype, path, shape)
    (_, entry), = safetensors.deserialize(path.read_bytes())
    assert (entry["dtype"], entry["shape"]) == (name, written)
    assert entry["data"] == array.tobytes()
    assert library.contents(path)["x"][1:] == (tuple(written), array.tobytes())


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", ["F4", "F6_E2M3", "F6_E3M2"])
def test_safetensors_sub_byte_as_strict(library, tmp_path, dtype, count):
    """Elements that end within a byte are refused here as there."""
    bits = int(dtype[1]) * count
    header = json.dumps({"x": {"dtype": dtype, "shape": [count],
                               "data_offsets": [0, (bits + 7) // 8]}}).encode()
    data = (len(header).to_bytes(8, "little") + header +
            bytes(range((bits + 7) // 8)))
    (tmp_path / "a.safetensors").write_bytes(data)
    if bits % 8 == 0:
        safetensors.deserialize(data)
        library.contents(tmp_path / "a.safetensors")
        return
    with pytest.raises(safetensors.SafetensorError):
        safetensors.deserialize(data)
    with pytest.raises(Refused, match="do not fill whole bytes"):
        library.contents(tmp_path / "a.safetensors")


def test_safetensors_names_order_and_metadata(library, tmp_path):
    dtypes = ["uint8", "float64", "float16", "int64", "bool"]
    arrays = {name: random_array(dtypes[i % 5], (3, i), i)
              for i, name in enumerate(NAMES)}
    metadata = {"format": "np", "κλειδί": 'value "quoted"\n', "empty": ""}
    source, target = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    safetensors.numpy.save_file(arrays, source, metadata)
    check_contents(library.contents(source),
                   {name: arrays[name] for name in stored_order(source)})
    library.convert(source, target)
    assert target.read_bytes() == source.read_bytes()
    with safetensors.safe_open(target, "np") as file:
        assert file.metadata() == metadata
        assert all(same(file.get_tensor(name), arrays[name])
                   for name in NAMES)


def test_safetensors_data_are_aligned(library, tmp_path):
    """Large elements first, as the original has it; the names keep the map's
    order, and the original reads them."""
    arrays = {"bytes": np.arange(3, dtype=np.uint8),
              "doubles": np.arange(2, dtype=np.float64),
              "halves": np.arange(5, dtype=np.float16),
              "more bytes": np.arange(1, dtype=np.int8),
              "complex": np.arange(2, dtype=np.complex64),
              "floats": np.arange(3, dtype=np.float32)}
    np.savez(tmp_path / "a.npz", **arrays)
    path = tmp_path / "a.safetensors"
    library.convert(tmp_path / "a.npz", path)
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + length])
    assert list(header) == list(arrays)
    starts = {name: entry["data_offsets"][0] for name, entry in header.items()}
    assert starts == {"doubles": 0, "complex": 16, "floats": 32, "halves": 44,
                      "bytes": 54, "more bytes": 57}
    for name, array in arrays.items():
        assert (8 + length + starts[name]) % array.itemsize == 0, name
    back = safetensors.numpy.load_file(path)
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array)
    library.convert(path, tmp_path / "b.npz")
    assert np.load(tmp_path / "b.npz").files == list(arrays)


def test_safetensors_of_nothing(library, tmp_path):
    safetensors.numpy.save_file({}, tmp_path / "a.safetensors")
    library.convert(tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    assert safetensors.numpy.load_file(tmp_path / "b.safetensors") == {}


# .npy

ORDERS = {"C": lambda a: a, "Fortran": np.asfortranarray}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", NATIVE + ["complex128"])
def test_npy_round_trip(library, tmp_path, dtype, order):
    for i, shape in enumerate(SHAPES):
        array = random_array(dtype, shape, i)
        array = ORDERS[order](array) if shape else array
        source, target = tmp_path / "a.npy", tmp_path / "b.npy"
        np.save(source, array)
        check_contents(library.contents(source), {"array": array})
        library.convert(source, target)
        assert target.read_bytes() == source.read_bytes()
        back = np.load(target)
        assert same(back, array)
        assert back.flags.f_contiguous == array.flags.f_contiguous


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_npy_versions(library, tmp_path, version):
    array = random_array("float32", (2, 3, 4))
    with open(tmp_path / "a.npy", "wb") as file:
        np.lib.format.write_array(file, array, version)
    check_contents(library.contents(tmp_path / "a.npy"), {"array": array})


@pytest.mark.parametrize("dtype", [">i2", ">u4", ">f2", ">f4", ">f8", ">c8",
                                   ">c16", ">i8", ">b1", ">u1"])
def test_npy_big_endian(library, tmp_path, dtype):
    array = np.arange(24).reshape(2, 3, 4).astype(dtype)
    np.save(tmp_path / "a.npy", array)
    check_contents(library.contents(tmp_path / "a.npy"), {"array": array})
    library.convert(tmp_path / "a.npy", tmp_path / "b.npy")
    back = np.load(tmp_path / "b.npy")
    assert back.dtype.isnative and (back == array).all()


def test_npy_bfloat16(library, tmp_path):
    array = random_array("bfloat16", (5, 6))
    np.save(tmp_path / "a.npy", array)
    check_contents(library.contents(tmp_path / "a.npy"), {"array": array})
    library.convert(tmp_path / "a.npy", tmp_path / "b.npy")
    assert (tmp_path / "b.npy").read_bytes() == \
        (tmp_path / "a.npy").read_bytes()
    back = np.load(tmp_path / "b.npy").view(ml_dtypes.bfloat16)
    assert same(back, array)


def test_npy_float8_e5m2(library, tmp_path):
    array = random_array("float8_e5m2", (5, 6))
    np.save(tmp_path / "a.npy", array)
    check_contents(library.contents(tmp_path / "a.npy"), {"array": array})
    library.convert(tmp_path / "a.npy", tmp_path / "b.npy")
    assert (tmp_path / "b.npy").read_bytes() == \
        (tmp_path / "a.npy").read_bytes()


@pytest.mark.parametrize("dtype", [
    name for name in FLOAT8 if name != "float8_e5m2"] + [
    "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "int4", "uint4"])
def test_npy_other_small_types(library, tmp_path, dtype):
    """Their .npy says only "one byte", to numpy and to us; the bytes arrive."""
    array = random_array("uint8", (5, 6)).view(dtype_of(dtype))
    np.save(tmp_path / "a.npy", array)
    check_contents(library.contents(tmp_path / "a.npy"), {"array": array},
                   {"array": "opaque8"})
    library.convert(tmp_path / "a.npy", tmp_path / "b.npy")
    assert same(np.load(tmp_path / "b.npy").view(array.dtype), array)


# Deliberate differences, which docs/reference/files.md lists.
ONLY_NUMPY = ["l", "L", "p", "P", "n", "N", "int", "uint", "intp", "float",
              "double", "single", "half", "complex", "cdouble", "longlong",
              "bool_", "int_", "i04", "V3"]
ONLY_US = ["<f1"]
BOTH = ["?", "<?", "b", "B", "h", ">H", "i", "I", "q", "=Q", "e", "<f", "d",
        "|d", ">d", "F", "D", "b1", ">b1", "=f4", "|f4", "f4", ">f4", "V1",
        "V2", "|V2", "<V1", "bool", "int8", "int16", "int32", "int64", "uint8",
        "uint16", "uint32", "uint64", "float16", "float32", "float64",
        "complex64", "complex128"]
NEITHER = ["opaque8", "opaque16", "float32x2", "<float32",
           "Float32", "f4 ", " f4", "i3", "c4", "?1", "2f4", ""]


def npy_of(descr, shape, pad=0):
    header = f"{{'descr': '{descr}', 'fortran_order': False, " \
             f"'shape': {shape}, }}".encode() + b" " * pad + b"\n"
    return b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header


@pytest.mark.parametrize("descr", ONLY_NUMPY + ONLY_US + BOTH + NEITHER)
def test_npy_descr_means_what_numpy_says(library, tmp_path, descr):
    try:
        size = np.dtype(descr).itemsize
    except TypeError:
        size = 1
    (tmp_path / "a.npy").write_bytes(
        npy_of(descr, (2,)) + bytes(i % 2 for i in range(2 * size)))
    try:
        array = np.load(tmp_path / "a.npy")
    except ValueError:
        array = None
    assert (array is not None) == (descr in ONLY_NUMPY + BOTH)
    if descr in ONLY_US + BOTH:
        dtypes = {"array": f"opaque{8 * size}"} if "V" in descr else None
        found = library.contents(tmp_path / "a.npy")
        assert array is None or check_contents(
            found, {"array": array}, dtypes) is None
    else:
        with pytest.raises(Refused):
            library.load(tmp_path / "a.npy")


@pytest.mark.parametrize("shape, pad", [
    ("(0, 4611686018427387904, 4)", 0), ("(0, 2305843009213693952)", 0),
    ("(4294967296, 4294967296, 0)", 0), ("(0, 4)", 10000)])
def test_npy_refuses_what_numpy_refuses(library, tmp_path, shape, pad):
    (tmp_path / "a.npy").write_bytes(npy_of("<f4", shape, pad))
    with pytest.raises(ValueError):
        np.load(tmp_path / "a.npy")
    with pytest.raises(Refused):
        library.load(tmp_path / "a.npy")


@pytest.mark.parametrize("array, words", [
    (np.array([{}, None]), "Python objects"),
    (np.array(["text"]), "strings"),
    (np.array([b"text"]), "byte strings"),
    (np.array(["2026-01-01"], "M8[D]"), "datetime64"),
    (np.array([1], "m8[s]"), "timedelta64"),
    (np.zeros(2, [("a", "i4"), ("b", "f8")]), "structured"),
    (np.zeros(2, np.longdouble), "longdouble"),
    (np.zeros(2, np.clongdouble), "clongdouble"),
], ids=lambda value: value if isinstance(value, str) else "")
def test_npy_and_npz_refuse_by_name(library, tmp_path, array, words):
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "a.npz", good=np.zeros(3), bad=array)
    for name, part in (("a.npy", ""), ("a.npz", "member 'bad.npy'")):
        with pytest.raises(Refused) as refused:
            library.load(tmp_path / name)
        assert refused.value.status == UNSUPPORTED
        assert words in refused.value.words and part in refused.value.words


# .npz

def varied_arrays():
    arrays = {name: random_array(NATIVE[i % len(NATIVE)], SHAPES[i % 7], i)
              for i, name in enumerate(NAMES)}
    arrays["fortran"] = np.asfortranarray(random_array("int32", (4, 5, 6)))
    arrays["big"] = np.arange(50, dtype=">f8")
    arrays["complex"] = random_array("complex128", (3, 3))
    arrays["large"] = random_array("uint8", (1000, 1001))
    return arrays


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_round_trip(library, tmp_path, save):
    arrays = varied_arrays()
    save(tmp_path / "a.npz", **arrays)
    check_contents(library.contents(tmp_path / "a.npz"), arrays)
    library.convert(tmp_path / "a.npz", tmp_path / "b.npz")
    with zipfile.ZipFile(tmp_path / "b.npz") as archive:
        assert archive.testzip() is None
    with np.load(tmp_path / "b.npz") as back:
        assert back.files == list(arrays)
        for name, array in arrays.items():
            native = array.astype(array.dtype.newbyteorder("="))
            assert same(back[name], native), name
        assert back["fortran"].flags.f_contiguous


def test_npz_names_with_control_characters(library, tmp_path):
    """As numpy has them; libzip could not write them again."""
    arrays = {"a\x01\x1f": np.arange(3, dtype=np.uint8),
              "b\t\x7f": np.arange(2, dtype=np.uint8)}
    np.savez(tmp_path / "a.npz", **arrays)
    check_contents(library.contents(tmp_path / "a.npz"), arrays)
    with pytest.raises(Refused, match=r"tensor 'a\\x01\\x1f': a .npz file cannot"):
        library.convert(tmp_path / "a.npz", tmp_path / "b.npz")
    assert not (tmp_path / "b.npz").exists()
    library.convert(tmp_path / "a.npz", tmp_path / "c.safetensors")
    assert set(safetensors.numpy.load_file(tmp_path / "c.safetensors")) == \
        set(arrays)


@pytest.mark.parametrize("method", ["STORED", "DEFLATED"])
def test_npz_by_zipfile(library, tmp_path, method):
    """Streamed archives, with sizes behind the data."""
    arrays = {"x": random_array("float32", (64, 64)), "y": np.float64(2.5)}
    with open(tmp_path / "a.npz", "wb") as file:
        class Pipe:
            write, flush = file.write, file.flush
        with zipfile.ZipFile(Pipe(), "w", getattr(zipfile, f"ZIP_{method}")
                             ) as archive:
            for name, array in arrays.items():
                with archive.open(name + ".npy", "w") as member:
                    np.lib.format.write_array(member, np.asarray(array))
    check_contents(library.contents(tmp_path / "a.npz"),
                   {name: np.asarray(array) for name, array in arrays.items()})


@pytest.mark.parametrize("method", ["BZIP2", "LZMA"])
def test_npz_of_other_compressions_is_refused(library, tmp_path, method):
    """64 MiB of zeros in a hundred bytes; numpy writes neither."""
    with zipfile.ZipFile(tmp_path / "a.npz", "w",
                         getattr(zipfile, f"ZIP_{method}")) as archive:
        with archive.open("x.npy", "w") as member:
            np.lib.format.write_array(member, np.zeros(64 << 20, np.uint8))
    with pytest.raises(Refused) as refused:
        library.load(tmp_path / "a.npz")
    assert refused.value.status == UNSUPPORTED
    assert "'x.npy': compression" in refused.value.words


def test_npz_of_nothing(library, tmp_path):
    np.savez(tmp_path / "a.npz")
    library.convert(tmp_path / "a.npz", tmp_path / "b.npz")
    assert np.load(tmp_path / "b.npz").files == []


def test_npz_bomb_is_refused(library, tmp_path):
    """64 MiB of zeros behind a header that says 1 KiB."""
    header = (b"{'descr': '|u1', 'fortran_order': False, 'shape': (1024,), }"
              .ljust(117) + b"\n")
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("a.npy", b"\x93NUMPY\1\0\x76\0" + header + bytes(64 << 20))
    with pytest.raises(Refused) as refused:
        library.load(tmp_path / "a.npz")
    assert refused.value.status == MALFORMED
    assert "member 'a.npy': dtype and shape take 1024" in refused.value.words


def test_npz_members_may_not_overlap(library, tmp_path):
    """The second member lies in the data of the first."""
    inner = zipfile.ZipInfo("b.npy")
    stream = io.BytesIO()
    np.save(stream, np.zeros(4096, "u1"))
    data = stream.getvalue()
    inner.CRC, inner.compress_size = zlib.crc32(data), len(data)
    inner.file_size = len(data)
    nested = np.frombuffer(inner.FileHeader() + data, "u1")
    stream = io.BytesIO()
    np.save(stream, nested)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("a.npy", stream.getvalue())
        inner.header_offset = archive.fp.tell() - nested.nbytes
        archive.filelist.append(inner)
    assert (np.load(tmp_path / "a.npz")["b"] == 0).all()
    with pytest.raises(Refused) as refused:
        library.load(tmp_path / "a.npz")
    assert refused.value.status == MALFORMED
    assert "member 'b.npy': overlaps another" in refused.value.words


# between the formats

def test_formats_convert_into_one_another(library, tmp_path):
    arrays = {"a": random_array("float32", (3, 4)),
              "b": np.asfortranarray(random_array("int16", (3, 4)))}
    np.savez(tmp_path / "a.npz", **arrays)
    library.convert(tmp_path / "a.npz", tmp_path / "a.safetensors")
    back = safetensors.numpy.load_file(tmp_path / "a.safetensors")
    assert all(same(back[name], arrays[name]) for name in arrays)
    library.convert(tmp_path / "a.safetensors", tmp_path / "b.npz")
    with np.load(tmp_path / "b.npz") as back:
        assert all(same(back[name], arrays[name]) for name in arrays)


def test_a_format_says_who_can_hold_a_dtype(library, tmp_path):
    np.savez(tmp_path / "a.npz", z=random_array("complex128", (2,)))
    with pytest.raises(Refused) as refused:
        library.convert(tmp_path / "a.npz", tmp_path / "a.safetensors")
    assert refused.value.status == UNSUPPORTED
    assert ("tensor 'z': a .safetensors file cannot hold complex128; "
            ".npz and .npy can") in refused.value.words
    assert not (tmp_path / "a.safetensors").exists()


def test_an_existing_file_is_kept(library, tmp_path):
    np.save(tmp_path / "a.npy", np.arange(3))
    (tmp_path / "b.npy").write_bytes(b"mine")
    handle = library.load(tmp_path / "a.npy")
    with pytest.raises(Refused) as refused:
        library.save(handle, tmp_path / "b.npy")
    library.c.tmsg_map_destroy(handle)
    assert refused.value.status == EXISTS
    assert (tmp_path / "b.npy").read_bytes() == b"mine"


def test_the_digits_of_the_examples(library):
    path = pathlib.Path(__file__).parents[2] / "examples/data/digits.npz"
    found = library.contents(path)
    with np.load(path) as arrays:
        check_contents(found, dict(arrays))
    assert found["images"][:2] == ("uint8", (1797, 8, 8))
    assert found["labels"][:2] == ("uint8", (1797,))
