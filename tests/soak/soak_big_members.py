"""Deflated members of a .npz around 2^32 bytes, byte for byte as they were
written; numpy reads one of them, too. The place is kept after each. Needs
10 GiB of memory: 5 for the member, or as much for numpy's."""
import ctypes
import os
import pathlib
import sys
import zipfile

import numpy
from numpy.lib import format

SIZES = [(1 << 32) - 2, (1 << 32) - 1, 1 << 32, (1 << 32) + 1,
         (1 << 32) + 5000]
BLOCK = numpy.resize(numpy.random.default_rng(1).integers(
    0, 256, 4093, dtype="u1"), 1 << 26)  # and each is one more than before it
STATE = pathlib.Path(os.environ.get("TMSG_SOAK_STATE", "."))
PLACE = STATE / "big_members.place"
LIBRARY = os.environ.get(
    "LIBTENSORMSG",
    pathlib.Path(__file__).parents[2] / "build/libtensormsg.so")


class Limits(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in
                ("field_mask", "tensors", "ndim", "name_bytes",
                 "metadata_bytes", "header_bytes", "message_bytes",
                 "held_bytes", "metadata_keys")]


class LoadParams(ctypes.Structure):
    _fields_ = [("field_mask", ctypes.c_uint64), ("format", ctypes.c_int32),
                ("limits", ctypes.POINTER(Limits))]


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2),
                ("dtype", ctypes.c_uint32), ("ndim", ctypes.c_int32),
                ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64))]


def write_archive(path, size):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED,
                         compresslevel=1) as archive:
        with archive.open("a.npy", "w", force_zip64=True) as file:
            format.write_array_header_1_0(
                file, {"descr": "|u1", "fortran_order": False,
                       "shape": (size,)})
            for begin in range(0, size, len(BLOCK)):
                file.write((BLOCK + begin // len(BLOCK))[:size - begin])


def is_right(array, size):
    return len(array) == size and all(
        (array[begin:begin + len(BLOCK)] ==
         (BLOCK + begin // len(BLOCK))[:size - begin]).all()
        for begin in range(0, size, len(BLOCK)))


def load(c, path, size):
    limits = Limits(field_mask=1 << 6, held_bytes=8 << 30)
    params = LoadParams(2, 0, ctypes.pointer(limits))
    handle, tensor = ctypes.c_void_p(), Tensor()
    if c.tmsg_file_load(os.fsencode(path), ctypes.byref(params),
                        ctypes.byref(handle)) != 0:
        print(c.tmsg_error_message().decode())
        return False
    c.tmsg_map_at(handle, ctypes.c_size_t(0), None, ctypes.byref(tensor))
    array = numpy.ctypeslib.as_array(
        ctypes.cast(tensor.data, ctypes.POINTER(ctypes.c_uint8)),
        (tensor.shape[0],))
    right = is_right(array, size)
    c.tmsg_map_destroy(handle)
    return right


def main():
    c = ctypes.CDLL(str(LIBRARY))
    c.tmsg_error_message.restype = ctypes.c_char_p
    place = int(PLACE.read_text()) if PLACE.exists() else 0
    path = STATE / "big_members.npz"
    try:
        for slice in range(place, len(SIZES)):
            write_archive(path, SIZES[slice])
            right = load(c, path, SIZES[slice])
            print(f"{SIZES[slice]} bytes of {path.stat().st_size}: "
                  f"right {right}", flush=True)
            if right and SIZES[slice] == 1 << 32:
                right = is_right(numpy.load(path)["a"], SIZES[slice])
                print(f"numpy's: right {right}", flush=True)
            if not right:
                sys.exit(1)
            PLACE.write_text(f"{slice + 1}\n")
        PLACE.write_text("0\n")  # the next soak begins anew
    finally:
        path.unlink(missing_ok=True)


main()
