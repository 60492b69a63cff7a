/* SPDX-License-Identifier: BSD-3-Clause */
/* into.h - receives into given buffers: functions of module tensormsg._hot. */
#ifndef TENSORMSG_PYTHON_INTO_H
#define TENSORMSG_PYTHON_INTO_H

#include <Python.h>

PyObject *tmsgpy_view(PyObject *self, PyObject *args);
PyObject *tmsgpy_posted(PyObject *self, PyObject *arrays);
PyObject *tmsgpy_renew(PyObject *self, PyObject *args);
PyObject *tmsgpy_left(PyObject *self, PyObject *args);
PyObject *tmsgpy_taken(PyObject *self, PyObject *capsule);
PyObject *tmsgpy_recv_into(PyObject *self, PyObject *args);

#endif
