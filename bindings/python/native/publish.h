/* SPDX-License-Identifier: BSD-3-Clause */
/* publish.h - publishing: a function of module tensormsg._hot. */
#ifndef TENSORMSG_PYTHON_PUBLISH_H
#define TENSORMSG_PYTHON_PUBLISH_H

#include <Python.h>

/* publish(hub, publisher, data, meta, flags, timeout_ms, copy). */
PyObject *tmsgpy_publish(PyObject *self, PyObject *args);

#endif
