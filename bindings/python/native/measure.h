/* SPDX-License-Identifier: BSD-3-Clause */
/* measure.h - what `python -m tensormsg.bench` compares Python with: the same
 * round trips, by the same library, in C. */
#ifndef TENSORMSG_PYTHON_MEASURE_H
#define TENSORMSG_PYTHON_MEASURE_H

#include <Python.h>

/* ping(hub, endpoint, data, count): the seconds of each round trip. */
PyObject *tmsgpy_ping(PyObject *self, PyObject *args);

/* echo(hub): sends what comes back to whom it came from, until a peer goes. */
PyObject *tmsgpy_echo(PyObject *self, PyObject *args);

#endif
