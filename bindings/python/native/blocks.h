/* SPDX-License-Identifier: BSD-3-Clause */
/* blocks.h - memory that can be lent to peers, as numpy arrays, which are to be
 * read only while it is lent. The interpreter's lock is held in all of it. */
#ifndef TENSORMSG_PYTHON_BLOCKS_H
#define TENSORMSG_PYTHON_BLOCKS_H

#include <Python.h>
#include <stdbool.h>

#include <tensormsg/map.h>

#include "lent.h"

/* block(bytes): a flat uint8 array of zeros in a block of its own, which is
 * freed when that array and all views of it are gone. */
PyObject *tmsgpy_block(PyObject *self, PyObject *number);

/* block_given(array): notes an array in a block that a user gets: whatever part
 * of the block is lent, it is read-only, too. */
PyObject *tmsgpy_block_given(PyObject *self, PyObject *array);

/* is_lent(address): whether a peer may read the block in which it lies, now or
 * by a message that waits. */
PyObject *tmsgpy_is_lent(PyObject *self, PyObject *number);

/* in_block(address): whether it lies in a block. */
PyObject *tmsgpy_in_block(PyObject *self, PyObject *number);

/* Returns whether each value of a list lies in a block; without values: no. */
bool tmsgpy_in_blocks(PyObject *values);

/* As tmsgpy_lend_told(), of a list of values. Until they are released the
 * arrays among them that lie in blocks are read-only. *on_release_p: what the
 * library is to call in place of tmsgpy_on_release(). */
tmsgpy_lent_t *tmsgpy_lend_frozen(PyObject *values, PyObject *told,
                                  tmsg_release_fn *on_release_p);

#endif
