/* SPDX-License-Identifier: BSD-3-Clause */
/* bells.h - bells: functions of module tensormsg._hot. */
#ifndef TENSORMSG_PYTHON_BELLS_H
#define TENSORMSG_PYTHON_BELLS_H

#include <Python.h>

PyObject *tmsgpy_bell(PyObject *self, PyObject *args);
PyObject *tmsgpy_bell_ring(PyObject *self, PyObject *args);
PyObject *tmsgpy_bell_line(PyObject *self, PyObject *capsule);
PyObject *tmsgpy_bell_state(PyObject *self, PyObject *capsule);
PyObject *tmsgpy_bell_warm(PyObject *self, PyObject *args);
PyObject *tmsgpy_bell_end(PyObject *self, PyObject *capsule);

#endif
