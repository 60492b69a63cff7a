/* SPDX-License-Identifier: BSD-3-Clause */
/* blocks.h - memory that can be lent to peers, as numpy arrays, which are to be
 * read only while it is lent. The interpreter's lock is held in all of it. */
#ifndef TENSORMSG_PYTHON_BLOCKS_H
#define TENSORMSG_PYTHON_BLOCKS_H

#include <Python.h>
#include <stdbool.h>

/* block(bytes): a flat uint8 array of zeros in a block of its own, which is
 * freed when that array and all views of it are gone. */
PyObject *tmsgpy_block(PyObject *self, PyObject *number);

/* is_lent(address): whether a peer may read the block in which it lies. */
PyObject *tmsgpy_is_lent(PyObject *self, PyObject *number);

/* Returns whether each value of a list lies in a block; without values: no. */
bool tmsgpy_in_blocks(PyObject *values);

/* Takes the reference to a list of values that are to be lent, and returns what
 * keeps them. Until that is dropped the arrays among them that lie in blocks
 * are read-only. *frozen_p: there are some. NULL: an exception, and the
 * reference is dropped. */
PyObject *tmsgpy_freeze(PyObject *values, bool *frozen_p);

#endif
