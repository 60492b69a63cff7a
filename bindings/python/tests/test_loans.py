# SPDX-License-Identifier: BSD-3-Clause
"""Loans: arrays in memory that is lent to peers, and what they see of it."""

import gc
import os

import numpy as np
import pytest

import tensormsg


def files():
    """How many files of memory this process has open."""
    names = []
    for each in os.listdir("/proc/self/fd"):
        try:
            names.append(os.readlink(f"/proc/self/fd/{each}"))
        except FileNotFoundError:
            pass
    return sum("memfd:" in name for name in names)


@pytest.mark.parametrize("shape, dtype", [
    ((2, 3), "f4"), (5, np.int64), ((), "c16"), ((0, 4), "u1"),
    (np.int32(7), "?")])
def test_empty_is_an_array_of_zeros(shape, dtype):
    array = tensormsg.empty(shape, dtype)
    like = np.zeros(shape, dtype)
    assert (array.shape, array.dtype) == (like.shape, like.dtype)
    assert type(array) is np.ndarray and not array.any()
    assert array.flags.c_contiguous and array.flags.writeable
    array[...] = 1
    assert array.all() and not tensormsg.is_lent(array)
    array.flags.writeable = False
    array.flags.writeable = True


def test_arrays_of_one_block():
    arrays = tensormsg.empty({"image": ((3, 5), "u1"), "none": (0, "f8"),
                              "pose": ((4, 4), "f8")})
    assert arrays["pose"].shape == (4, 4) and arrays["none"].size == 0
    assert arrays["image"].base is arrays["pose"].base
    assert arrays["pose"].ctypes.data % 64 == 0
    arrays["image"][:] = 255
    assert not arrays["pose"].any()


def test_empty_refuses_what_no_tensor_has():
    for dtype in (object, "U4", "M8[s]", [("x", "f4")]):
        with pytest.raises(TypeError, match="dtype"):
            tensormsg.empty(3, dtype)
    for shape in (-1, 2.5, (2, -3), True):
        with pytest.raises((TypeError, ValueError), match="shape of"):
            tensormsg.empty(shape)
    with pytest.raises(ValueError, match="like="):
        tensormsg.empty(3, like="jax")
    with pytest.raises(tensormsg.NoMemory, match="shareable memory"):
        tensormsg.empty(1 << 45, "u1")


def test_a_block_goes_with_its_last_view():
    before = files()
    array = tensormsg.empty((100, 100))
    view = array[3:, ::2].T
    assert files() == before + 1
    del array
    gc.collect()
    view[:] = 7
    assert files() == before + 1
    del view
    assert files() == before


def test_other_memory_is_never_lent():
    for other in (np.ones(3), [1, 2], b"bytes", np.float32(3)):
        assert not tensormsg.is_lent(other)
