/* SPDX-License-Identifier: BSD-3-Clause */
/* device.h - tensors to be sent from memory of a device, with the stream whose
 * work comes first. The lock of the interpreter is held in all of it. */
#ifndef TENSORMSG_PYTHON_DEVICE_H
#define TENSORMSG_PYTHON_DEVICE_H

#include <Python.h>

#include <tensormsg/domain.h>

#include "arrays.h"

typedef struct {
    PyObject *owner; /* keeps the memory */
    tmsg_tensor_t tensor;
    tmsg_stream_t stream; /* of kind NONE: the data are there */
    int64_t shape[TMSGPY_NDIM_MAX], strides[TMSGPY_NDIM_MAX];
} tmsgpy_device_t;

/* NULL: another value. It lives as long as the value. */
const tmsgpy_device_t *tmsgpy_device_of(PyObject *value);

/* What is in a capsule of DLPack's that is to be there: 0, or -1 with an
 * exception. */
int tmsgpy_capsule_of(const char *name, PyObject *capsule,
                      tmsg_tensor_t *tensor_p, int64_t *strides);

/* Whether the CPU reads it. */
bool tmsgpy_is_host(const tmsg_tensor_t *tensor);

/* The functions of module tensormsg._hot. */
PyObject *tmsgpy_device_tensor(PyObject *self, PyObject *args);
PyObject *tmsgpy_device_memory(PyObject *self, PyObject *args);

#endif
