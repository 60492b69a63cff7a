/* SPDX-License-Identifier: BSD-3-Clause */
#include "errors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLOSED_HERE "it was closed here"

static PyObject *error_of; /* makes an exception of (status, reason, peer) */

void tmsgpy_raise_by(PyObject *maker)
{
    Py_INCREF(maker);
    Py_XDECREF(error_of);
    error_of = maker;
}

PyObject *tmsgpy_raise(tmsg_status_t status, const char *reason,
                       const char *peer)
{
    /* Words that were cut may end within a character. */
    PyObject *why =
        PyUnicode_DecodeUTF8(reason, (Py_ssize_t)strlen(reason), "replace");
    PyObject *error =
        why == NULL
            ? NULL
            : PyObject_CallFunction(error_of, "iOz", (int)status, why, peer);

    Py_XDECREF(why);
    if (error != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_DECREF(error);
    }
    return NULL;
}

char *tmsgpy_peer_words(const tmsg_endpoint_t *endpoint)
{
    return strdup(tmsg_endpoint_peer(endpoint));
}

PyObject *tmsgpy_raise_of(tmsg_status_t status, const char *reason, char *peer)
{
    tmsgpy_raise(status, reason, peer);
    free(peer);
    return NULL;
}

PyObject *tmsgpy_raise_closed(void)
{
    return tmsgpy_raise(TMSG_ERR_CLOSED, CLOSED_HERE, NULL);
}

PyObject *tmsgpy_raise_would_block(void)
{
    return tmsgpy_raise(TMSG_ERR_WOULD_BLOCK,
                        "an allocator must not wait for its own connection",
                        NULL);
}

void tmsgpy_refuse_tensor(tmsg_status_t status, const char *name)
{
    char why[256];

    snprintf(why, sizeof(why), "tensor '%.100s': %s", name,
             tmsg_error_message());
    tmsgpy_raise(status, why, NULL);
}

PyObject *tmsgpy_answered(tmsg_status_t status, bool open)
{
    const char *words = !open               ? CLOSED_HERE
                        : status == TMSG_OK ? ""
                                            : tmsg_error_message();

    return Py_BuildValue("(is)", (int)status, words);
}
