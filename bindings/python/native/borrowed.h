/* SPDX-License-Identifier: BSD-3-Clause */
/* borrowed.h - memory that a peer lends, which must not be written to. The
 * interpreter's lock is held in all of it. */
#ifndef TENSORMSG_PYTHON_BORROWED_H
#define TENSORMSG_PYTHON_BORROWED_H

#include <Python.h>
#include <stdbool.h>

#include <tensormsg/map.h>

/* Returns whether some tensor of the map lies in memory that a peer lends. */
bool tmsgpy_is_borrowed(const tmsg_map_t *map);

/* Whether torch is loaded: it takes no notice of what is read-only. */
bool tmsgpy_torch_is_there(void);

/* Maps such a tensor once more, so that who writes to it gets copies of its
 * pages. Returns a capsule that keeps the mapping and `owner`, which keeps the
 * loan, and in *data_p where the tensor's first element is. NULL with an
 * exception. */
PyObject *tmsgpy_map_borrowed(const tmsg_tensor_t *tensor, PyObject *owner,
                              void **data_p);

#endif
