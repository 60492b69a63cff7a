/* SPDX-License-Identifier: BSD-3-Clause */
/* asking.h - functions of Python's that callbacks of the library run. */
#ifndef TENSORMSG_PYTHON_ASKING_H
#define TENSORMSG_PYTHON_ASKING_H

#include <Python.h>
#include <stdbool.h>

#include "hub.h"

/* One that this thread runs. */
typedef struct tmsgpy_asked {
    const struct tmsgpy_asked *outer;
    const tmsgpy_hub_t *hub;
    bool own_thread; /* the library's, which knows no Python */
    PyGILState_STATE lock;
    PyObject *type, *value, *trace; /* an exception that this came amid */
} tmsgpy_asked_t;

/* Around the function: takes the interpreter's lock, and gives it back. */
void tmsgpy_asking_begin(tmsgpy_asked_t *asked, const tmsgpy_hub_t *hub);
void tmsgpy_asking_end(tmsgpy_asked_t *asked);

#endif
