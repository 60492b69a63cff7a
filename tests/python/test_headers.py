# SPDX-License-Identifier: BSD-3-Clause
"""The public headers are C that cffi reads as it stands: no inline bodies, no
UCX or CUDA types, no #if inside a struct."""

import os
import pathlib
import re
import subprocess

import cffi
import pytest

SOURCE = pathlib.Path(os.environ["TMSG_SOURCE_DIR"])
SYMBOLS = (SOURCE / "tests/install/exported-symbols.txt").read_text().split()


@pytest.fixture(scope="module")
def declarations(tmp_path_factory):
    """tensormsg.h without attributes and without the system's headers, whose
    types cffi knows."""
    empty = tmp_path_factory.mktemp("include")
    for name in ("stddef.h", "stdint.h"):
        (empty / name).touch()
    return subprocess.run(
        ["gcc", "-E", "-P", "-nostdinc", "-D__attribute__(x)=", f"-I{empty}",
         f"-I{SOURCE}/include", SOURCE / "include/tensormsg/tensormsg.h"],
        stdout=subprocess.PIPE, text=True, check=True).stdout


@pytest.fixture(scope="module")
def ffi(declarations):
    it = cffi.FFI()
    it.cdef(declarations)
    return it


def test_the_headers_declare_what_is_exported_and_no_more(declarations):
    assert sorted(set(re.findall(r"\b(tmsg_\w+)\(", declarations))) == \
        sorted(SYMBOLS)


def test_structs_and_enums_are_as_written(ffi):
    assert [name for name, _ in ffi.typeof("tmsg_tensor_t").fields] == [
        "data", "device", "dtype", "ndim", "shape", "strides"]
    assert ffi.typeof("tmsg_status_t").relements["TMSG_ERR_MALFORMED"] == -8
    for name in ffi.list_types()[0]:
        kind = ffi.typeof(name)
        if kind.kind == "struct" and kind.fields:
            assert ffi.sizeof(kind) > 0, name


def test_a_library_that_was_loaded_has_it_all(ffi):
    if os.environ.get("TMSG_SANITIZE"):
        pytest.skip("a sanitizer's library does not load into Python")
    library = ffi.dlopen(os.environ["LIBTENSORMSG"])
    for name in SYMBOLS:
        assert callable(getattr(library, name))
    tensor = ffi.new("tmsg_tensor_t *", {
        "device": {"type": 1}, "dtype": {"code": 2, "bits": 32, "lanes": 1},
        "ndim": 2, "shape": (shape := ffi.new("int64_t[]", [3, 5]))})
    size = ffi.new("uint64_t *")
    assert library.tmsg_tensor_bytes(tensor, size) == 0 and size[0] == 60
    assert shape[1] == 5
    assert ffi.string(library.tmsg_status_name(library.TMSG_ERR_BUSY)) == \
        b"busy"
