/* SPDX-License-Identifier: BSD-3-Clause */
#include "lent.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

struct tmsgpy_lent {
    struct tmsgpy_lent *next;
    PyObject *keep;
    PyObject *told; /* to be called; NULL: nothing is */
};

static pthread_mutex_t lent_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(tmsgpy_lent_t *) released; /* to be dropped */
static pthread_cond_t some_to_tell = PTHREAD_COND_INITIALIZER;
static tmsgpy_lent_t *to_tell, *last_to_tell; /* released, in that order */

/* A thread of the parent may have held the lock; and whom it was to tell is not
 * told here. */
static void begin_child(void)
{
    pthread_mutex_init(&lent_lock, NULL);
    pthread_cond_init(&some_to_tell, NULL);
    to_tell = NULL;
}

static void watch_forks(void) { pthread_atfork(NULL, NULL, begin_child); }

tmsgpy_lent_t *tmsgpy_lend(PyObject *keep)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    tmsgpy_lent_t *lent = keep == NULL ? NULL : malloc(sizeof(*lent));

    pthread_once(&once, watch_forks);
    if (lent == NULL) {
        Py_XDECREF(keep);
        if (!PyErr_Occurred()) {
            PyErr_NoMemory();
        }
        return NULL;
    }
    *lent = (tmsgpy_lent_t){NULL, keep, NULL};
    return lent;
}

tmsgpy_lent_t *tmsgpy_lend_told(PyObject *keep, PyObject *told)
{
    tmsgpy_lent_t *lent = tmsgpy_lend(keep);

    if (lent != NULL && told != Py_None) {
        Py_INCREF(told);
        lent->told = told;
    }
    return lent;
}

void tmsgpy_unlend(tmsgpy_lent_t *lent)
{
    Py_DECREF(lent->keep);
    Py_XDECREF(lent->told);
    free(lent);
}

/* Returns whether the object is the first that waits to be dropped. */
static bool release(tmsgpy_lent_t *lent)
{
    bool first = false;

    pthread_mutex_lock(&lent_lock);
    if (lent->told == NULL) {
        first = released == NULL;
        lent->next = released;
        released = lent;
    } else {
        lent->next = NULL;
        if (to_tell == NULL) {
            to_tell = lent;
        } else {
            last_to_tell->next = lent;
        }
        last_to_tell = lent;
        pthread_cond_signal(&some_to_tell);
    }
    pthread_mutex_unlock(&lent_lock);
    return first;
}

void tmsgpy_on_release(void *arg) { (void)release(arg); }

static int drop_pending(void *unused)
{
    (void)unused;
    tmsgpy_drop_lent();
    return 0;
}

void tmsgpy_on_release_soon(void *arg)
{
    /* If there is no room for it, the next call drops the object. */
    if (release(arg) && Py_IsInitialized()) {
        (void)Py_AddPendingCall(drop_pending, NULL);
    }
}

/* released(): waits until an object was released that somebody is to be told
 * of; drops the object, and returns the function to call. */
PyObject *tmsgpy_released(PyObject *self, PyObject *unused)
{
    PyThreadState *threads;
    tmsgpy_lent_t *lent;
    PyObject *told;

    (void)self;
    (void)unused;
    threads = PyEval_SaveThread();
    pthread_mutex_lock(&lent_lock);
    while (to_tell == NULL) {
        pthread_cond_wait(&some_to_tell, &lent_lock);
    }
    lent = to_tell;
    to_tell = lent->next;
    pthread_mutex_unlock(&lent_lock);
    PyEval_RestoreThread(threads);
    told = lent->told;
    lent->told = NULL;
    tmsgpy_unlend(lent);
    return told;
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
