/* SPDX-License-Identifier: BSD-3-Clause */
/* apart.h - tensors of a message that are kept one by one, or that never came:
 * functions of module tensormsg._hot. */
#ifndef TENSORMSG_PYTHON_APART_H
#define TENSORMSG_PYTHON_APART_H

#include <Python.h>

PyObject *tmsgpy_apart(PyObject *self, PyObject *args);
PyObject *tmsgpy_owner(PyObject *self, PyObject *arrays);

#endif
