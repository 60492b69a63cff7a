/* SPDX-License-Identifier: BSD-3-Clause */
/* pack.h - dicts as maps, and messages as dicts. The lock of the interpreter is
 * held in all of it, but that others may have it once in TMSGPY_SLICE entries.
 */
#ifndef TENSORMSG_PYTHON_PACK_H
#define TENSORMSG_PYTHON_PACK_H

#include <Python.h>
#include <stdbool.h>

#include <tensormsg/message.h>

#include "places.h"

#define TMSGPY_SLICE 1024

/* Lets other threads run, if that many entries were made by now. */
void tmsgpy_breathe(Py_ssize_t entry);

/* As many forks tell capsules apart: a process that has more between itself and
 * the one that made a capsule takes it for its own. */
#define TMSGPY_NAMES 64

/* Adds the arrays of `data`, a dict of str, to a map, and `meta`, a dict or
 * None. If they are TMSGPY_SLICE or more, nobody else changes these dicts. 1; 0
 * where a value is no array as it stands (convert it and try again); -1 with an
 * exception. The data is borrowed from the arrays. */
int tmsgpy_pack(PyObject *data, PyObject *meta, tmsg_map_t *map);

/* Sets the metadata alone: 1, or -1 with an exception. */
int tmsgpy_pack_meta(PyObject *meta, tmsg_map_t *map);

/* The same as tmsgpy_pack() of buffers to receive into, which the record keeps
 * until nothing is written to them any more. */
int tmsgpy_pack_buffers(PyObject *data, tmsg_map_t *map,
                        tmsgpy_posted_t *posted);

/* (arrays, owner, meta or None, endpoint) of a message, which it takes: owner
 * frees it. Arrays are None where numpy has no such dtype. */
PyObject *tmsgpy_unpack(tmsg_message_t *message);

/* The same of a map that `owner`, a capsule, keeps. */
PyObject *tmsgpy_unpack_map(const tmsg_map_t *map, PyObject *owner,
                            const tmsg_endpoint_t *endpoint);

/* The same of a file's map, with None in place of each array: array() makes
 * one. */
PyObject *tmsgpy_unpack_later(const tmsg_map_t *map, PyObject *owner);

/* map_meta(map): the metadata of the map at that address, a dict or None. */
PyObject *tmsgpy_map_meta(PyObject *self, PyObject *map);

/* add_meta(call, name, value): a key for the request that a caller's `begin` is
 * told of by that tmsg_intercepted_t. */
PyObject *tmsgpy_add_meta(PyObject *self, PyObject *args);

/* The tensor at `index` of the map that an owner holds: 0, or -1 with an
 * exception. */
int tmsgpy_tensor_at(PyObject *owner, Py_ssize_t index,
                     tmsg_tensor_t *tensor_p);

/* The same tensor as a capsule of DLPack's, which keeps its memory: NULL with
 * an exception. */
PyObject *tmsgpy_dlpack_at(PyObject *owner, Py_ssize_t index, bool versioned);

/* borrows(owner): whether a tensor of it lies in memory that a peer lends. */
PyObject *tmsgpy_borrows(PyObject *self, PyObject *owner);

#endif
