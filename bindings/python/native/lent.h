/* SPDX-License-Identifier: BSD-3-Clause */
/* lent.h - Python objects that the library reads or writes to until it gives
 * them back. The interpreter's lock is held in all of it, but for
 * tmsgpy_on_release() and tmsgpy_on_release_soon(). released() is a function of
 * module tensormsg._hot. */
#ifndef TENSORMSG_PYTHON_LENT_H
#define TENSORMSG_PYTHON_LENT_H

#include <Python.h>

/* An object that the library uses until it calls tmsgpy_on_release() with it as
 * arg, in whatever thread. lend() takes the reference, also where it fails,
 * with an exception; unlend() gives back an object that was not lent after all.
 * The next tmsgpy_drop_lent() drops the objects that have been released. */
typedef struct tmsgpy_lent tmsgpy_lent_t;
tmsgpy_lent_t *tmsgpy_lend(PyObject *keep);
void tmsgpy_unlend(tmsgpy_lent_t *lent);

/* As lend(), with a function to be called when the object was released, unless
 * it is None: released() hands it out. */
tmsgpy_lent_t *tmsgpy_lend_told(PyObject *keep, PyObject *told);
PyObject *tmsgpy_released(PyObject *self, PyObject *unused);
void tmsgpy_on_release(void *arg);
void tmsgpy_drop_lent(void);

/* As tmsgpy_on_release(). The main thread drops the object soon, also if nobody
 * calls this module any more. */
void tmsgpy_on_release_soon(void *arg);

#endif
