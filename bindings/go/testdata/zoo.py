# SPDX-License-Identifier: BSD-3-Clause
"""A peer of zoo_test.go: sends what it gets back, tells what it was, and then
sends maps of its own."""

import sys

import numpy as np
import tensormsg

ep = tensormsg.sync.connect(sys.argv[1])
msg = ep.recv(30)
for name, array in msg.items():
    array = np.asarray(array)
    print(name, array.dtype, list(array.shape), flush=True)
ep.send(dict(msg.items()))
grid = np.arange(6, dtype="i4").reshape(2, 3)
zoo = {name: np.array([1, 2], name) for name in (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
    "uint64", "float16", "float32", "float64", "complex64", "complex128")}
ep.send({**zoo, "0d": np.array(7.5), "none": np.zeros((3, 0, 2), "f4"),
         "turned": grid.T, "column": grid[:, 1],
         "one": np.broadcast_to(np.int32(9), (2, 2)),
         "large": np.arange(1 << 18, dtype="f4")})
ep.close()
