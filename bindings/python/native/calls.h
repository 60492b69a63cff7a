/* SPDX-License-Identifier: BSD-3-Clause */
/* calls.h - calls and what answers them: functions of module tensormsg._hot. */
#ifndef TENSORMSG_PYTHON_CALLS_H
#define TENSORMSG_PYTHON_CALLS_H

#include <Python.h>

PyObject *tmsgpy_call(PyObject *self, PyObject *args);
PyObject *tmsgpy_result(PyObject *self, PyObject *capsule);
PyObject *tmsgpy_task(PyObject *self, PyObject *args);
PyObject *tmsgpy_answer(PyObject *self, PyObject *args);
PyObject *tmsgpy_refuse(PyObject *self, PyObject *args);
PyObject *tmsgpy_task_state(PyObject *self, PyObject *task);
PyObject *tmsgpy_request_map(PyObject *self, PyObject *capsule);
PyObject *tmsgpy_task_put_off(PyObject *self, PyObject *task);
PyObject *tmsgpy_task_begin(PyObject *self, PyObject *task);

#endif
