/* SPDX-License-Identifier: BSD-3-Clause */
/* publish.h - what is sent and not waited for: functions of module
 * tensormsg._hot. */
#ifndef TENSORMSG_PYTHON_PUBLISH_H
#define TENSORMSG_PYTHON_PUBLISH_H

#include <Python.h>

/* publish(hub, publisher, data, meta, flags, timeout_ms, copy). */
PyObject *tmsgpy_publish(PyObject *self, PyObject *args);

/* send_queued(hub, endpoint, data, meta, flags, timeout_ms). */
PyObject *tmsgpy_send_queued(PyObject *self, PyObject *args);

#endif
