/* SPDX-License-Identifier: BSD-3-Clause */
/* late_zip.h - libzip, which is loaded when a .npz file is first read or
 * written. */
#ifndef TENSORMSG_PYTHON_LATE_ZIP_H
#define TENSORMSG_PYTHON_LATE_ZIP_H

#include <Python.h>

/* load_zip(): loads it, once. None, or why it cannot be loaded, in words.
 * Before it has, no .npz may be read or written. */
PyObject *tmsgpy_load_zip(PyObject *self, PyObject *unused);

#endif
