/* SPDX-License-Identifier: BSD-3-Clause */
/* arrays.h - numpy arrays and DLPack capsules as tensors, and back. The lock of
 * the interpreter is held in all of it. */
#ifndef TENSORMSG_PYTHON_ARRAYS_H
#define TENSORMSG_PYTHON_ARRAYS_H

#include <Python.h>
#include <stdbool.h>

#include <tensormsg/map.h>

#define TMSGPY_NDIM_MAX 64

/* 0, or -1 with an exception: numpy cannot be imported, or is too old. */
int tmsgpy_arrays_init(void);

/* Has numpy's type `descr` stand for the dtype from now on (ml_dtypes'). */
int tmsgpy_arrays_register(PyObject *descr, int code, int bits);

/* Describes an array, or the tensor in a capsule of DLPack's: 1; 0 if `value`
 * is neither, or an array that cannot be described (byte order, dtype); a
 * status if the library refuses what is in the capsule. What *tensor_p points
 * to lives as long as the value; strides holds 64. */
int tmsgpy_tensor_of(PyObject *value, tmsg_tensor_t *tensor_p,
                     int64_t *strides);

/* An array that views the tensor's data and holds `owner`. None where numpy
 * has no such dtype or too few dimensions; NULL with an exception. */
PyObject *tmsgpy_array_of(const tmsg_tensor_t *tensor, PyObject *owner);

/* The same of what tmsgpy_tensor_of() found in a capsule, which is held. It can
 * be written to where the capsule says so, which one without a version
 * cannot. */
PyObject *tmsgpy_view_of(const tmsg_tensor_t *tensor, PyObject *capsule);

/* Whether it is an array, and none that tmsgpy_array_of() made of `owner`. */
bool tmsgpy_is_of_another(PyObject *value, PyObject *owner);

/* The tensor's bytes as a flat uint8 array. */
PyObject *tmsgpy_bytes_of(const tmsg_tensor_t *tensor, PyObject *owner);

/* A flat uint8 array of memory that `owner` keeps. */
PyObject *tmsgpy_bytes_at(void *memory, Py_ssize_t bytes, PyObject *owner);

/* Makes an array of numpy's own class read-only, and returns whether it was
 * not; other values stay as they are. thaw() takes that back. */
bool tmsgpy_array_freeze(PyObject *value);
void tmsgpy_array_thaw(PyObject *array);

/* A capsule of DLPack's with a tensor of a message's map, which it holds: NULL
 * with an exception, or a status if the library refuses. */
tmsg_status_t tmsgpy_dlpack_of(const tmsg_map_t *map, const char *name,
                               bool versioned, PyObject **capsule_p);

#endif
