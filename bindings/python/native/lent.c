/* SPDX-License-Identifier: BSD-3-Clause */
#include "lent.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

struct tmsgpy_lent {
    struct tmsgpy_lent *next;
    PyObject *keep;
};

static pthread_mutex_t lent_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(tmsgpy_lent_t *) released; /* to be dropped */

tmsgpy_lent_t *tmsgpy_lend(PyObject *keep)
{
    tmsgpy_lent_t *lent = keep == NULL ? NULL : malloc(sizeof(*lent));

    if (lent == NULL) {
        Py_XDECREF(keep);
        if (!PyErr_Occurred()) {
            PyErr_NoMemory();
        }
        return NULL;
    }
    *lent = (tmsgpy_lent_t){NULL, keep};
    return lent;
}

void tmsgpy_unlend(tmsgpy_lent_t *lent)
{
    Py_DECREF(lent->keep);
    free(lent);
}

void tmsgpy_on_release(void *arg)
{
    tmsgpy_lent_t *lent = arg;

    pthread_mutex_lock(&lent_lock);
    lent->next = released;
    released = lent;
    pthread_mutex_unlock(&lent_lock);
}

void tmsgpy_drop_lent(void)
{
    tmsgpy_lent_t *lent;

    if (atomic_load_explicit(&released, memory_order_relaxed) == NULL) {
        return;
    }
    pthread_mutex_lock(&lent_lock);
    lent = released;
    released = NULL;
    pthread_mutex_unlock(&lent_lock);
    while (lent != NULL) {
        tmsgpy_lent_t *next = lent->next;

        tmsgpy_unlend(lent);
        lent = next;
    }
}
