/* SPDX-License-Identifier: BSD-3-Clause */
/* offers.h - offers, and fetches of a peer's: functions of module
 * tensormsg._hot. */
#ifndef TENSORMSG_PYTHON_OFFERS_H
#define TENSORMSG_PYTHON_OFFERS_H

#include <Python.h>

PyObject *tmsgpy_fetch(PyObject *self, PyObject *args);
PyObject *tmsgpy_offer(PyObject *self, PyObject *args);
PyObject *tmsgpy_offer_end(PyObject *self, PyObject *args);
PyObject *tmsgpy_offer_state(PyObject *self, PyObject *capsule);

#endif
