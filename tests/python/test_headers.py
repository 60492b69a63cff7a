# SPDX-License-Identifier: BSD-3-Clause
"""The public headers are C that cffi reads as it stands: no inline bodies, no
UCX or CUDA types, no #if inside a struct."""

import os
import re

import pytest

import headers
from headers import SOURCE

pytestmark = pytest.mark.once

SYMBOLS = (SOURCE / "tests/install/exported-symbols.txt").read_text().split()


@pytest.fixture(scope="module")
def ffi():
    return headers.parse()


def test_the_headers_declare_what_is_exported_and_no_more():
    declared = re.findall(r"\b(tmsg_\w+)\(", headers.declarations())
    assert sorted(set(declared)) == sorted(SYMBOLS)


def test_structs_and_enums_are_as_written(ffi):
    assert [name for name, _ in ffi.typeof("tmsg_tensor_t").fields] == [
        "data", "device", "dtype", "ndim", "shape", "strides"]
    assert ffi.typeof("tmsg_status_t").relements["TMSG_ERR_MALFORMED"] == -8


def test_every_struct_has_its_layout_asserted(ffi):
    """layout.c is compiled with the tests; here it is seen to be whole."""
    kept = (SOURCE / "tests/install/layout.c").read_text()
    assert kept == headers.layout(ffi), \
        "if that was meant: cmake --build build --target update-layout"


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
