/* SPDX-License-Identifier: BSD-3-Clause */
/* streams.h - streams: functions of module tensormsg._hot. */
#ifndef TENSORMSG_PYTHON_STREAMS_H
#define TENSORMSG_PYTHON_STREAMS_H

#include <Python.h>

#include "hub.h"

/* A stream that came in, and who opened it, to be freed, or NULL. */
typedef struct {
    tmsgpy_stream_t *handle; /* NULL: no memory */
    char *principal;
} tmsgpy_came_t;

/* Takes the stream. Inside of the hub, without the interpreter's lock: who left
 * it may find the endpoint destroyed. */
tmsgpy_came_t tmsgpy_take_stream(tmsgpy_hub_t *hub, const tmsgpy_work_t *work);

/* What task() gives for it, which it takes. */
PyObject *tmsgpy_unpack_stream(const tmsgpy_work_t *work, tmsgpy_came_t came);

/* The functions of the module. */
PyObject *tmsgpy_stream_open(PyObject *self, PyObject *args);
PyObject *tmsgpy_stream_send(PyObject *self, PyObject *args);
PyObject *tmsgpy_stream_recv(PyObject *self, PyObject *args);
PyObject *tmsgpy_stream_finish(PyObject *self, PyObject *stream);
PyObject *tmsgpy_stream_end(PyObject *self, PyObject *args);
PyObject *tmsgpy_stream_cancel(PyObject *self, PyObject *stream);
PyObject *tmsgpy_stream_wait(PyObject *self, PyObject *args);
PyObject *tmsgpy_stream_state(PyObject *self, PyObject *stream);
PyObject *tmsgpy_stream_result(PyObject *self, PyObject *stream);
PyObject *tmsgpy_stream_watching(PyObject *self, PyObject *stream);
PyObject *tmsgpy_told(PyObject *self, PyObject *hub);
PyObject *tmsgpy_rest(PyObject *self, PyObject *args);

#endif
