/* SPDX-License-Identifier: BSD-3-Clause */
/* files.h - files as arrays, and arrays as files. */
#ifndef TENSORMSG_PYTHON_FILES_H
#define TENSORMSG_PYTHON_FILES_H

#include <Python.h>

/* file_load(path, format, later): the parts of its map, as of a message;
 * `later`: without arrays, which array() makes. */
PyObject *tmsgpy_file_load(PyObject *self, PyObject *args);

/* file_save(path, format, flags, data, meta): None; NotImplemented where data
 * has to be converted. */
PyObject *tmsgpy_file_save(PyObject *self, PyObject *args);

#endif
