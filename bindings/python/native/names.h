/* SPDX-License-Identifier: BSD-3-Clause */
/* names.h - short names that come again and again: as str that are made once,
 * whose hash is known, and as UTF-8 that is; and how names are shown. The lock
 * of the interpreter is held in all of it. */
#ifndef TENSORMSG_PYTHON_NAMES_H
#define TENSORMSG_PYTHON_NAMES_H

#include <Python.h>

/* The str of a name in UTF-8. NULL with an exception. */
PyObject *tmsgpy_name_of(const char *utf8);

/* The UTF-8 of this very str, where that is known, else NULL, and no exception.
 * It lies where the next that is noted may be put: no other name is to be
 * looked at, and no Python code run, before it has been used. */
const char *tmsgpy_name_utf8(PyObject *name);

/* shown(text): a str as core/shown.h says. */
PyObject *tmsgpy_shown(PyObject *self, PyObject *text);

/* Notes the UTF-8 of a str. */
void tmsgpy_name_note(PyObject *name, const char *utf8);

#endif
