/* SPDX-License-Identifier: BSD-3-Clause */
/* kept.h - maps for what is sent, which are kept as they were laid out: a dict
 * with the names, dtypes and shapes of one before it only has its data put into
 * that one's map. The lock of the interpreter is held in all of it. */
#ifndef TENSORMSG_PYTHON_KEPT_H
#define TENSORMSG_PYTHON_KEPT_H

#include <Python.h>
#include <stdbool.h>

#include <tensormsg/map.h>

/* A map for `data`, a dict: with its arrays where *filled_p, else an empty one;
 * without metadata. NULL: no memory. */
tmsg_map_t *tmsgpy_kept_take(PyObject *data, bool *filled_p);

/* Takes back a map that was sent, and may keep it. */
void tmsgpy_kept_give(tmsg_map_t *map);

/* Takes back a map that was not sent, and keeps no layout of it. */
void tmsgpy_kept_give_back(tmsg_map_t *map);

#endif
