/* SPDX-License-Identifier: BSD-3-Clause */
/* errors.h - what the library answered, as exceptions or as words. The
 * interpreter's lock is held in all of it, but for tmsgpy_peer_words(). */
#ifndef TENSORMSG_PYTHON_ERRORS_H
#define TENSORMSG_PYTHON_ERRORS_H

#include <Python.h>
#include <stdbool.h>

#include <tensormsg/endpoint.h>

/* The peer in words, to be freed; NULL: no memory. Inside of the hub: outside
 * of it the endpoint may be destroyed at any time. */
char *tmsgpy_peer_words(const tmsg_endpoint_t *endpoint);

/* Raises, and frees the peer's words. */
PyObject *tmsgpy_raise_of(tmsg_status_t status, const char *reason, char *peer);

PyObject *tmsgpy_raise_closed(void);

/* Of a wait in an allocator of the same hub. */
PyObject *tmsgpy_raise_would_block(void);

/* Sets the function of (status, reason, peer) that makes exceptions. */
void tmsgpy_raise_by(PyObject *maker);

/* Raises what the library just answered about the tensor of that name. */
void tmsgpy_refuse_tensor(tmsg_status_t status, const char *name);

/* Raises the exception of a status. Returns NULL, as all that raise do. */
PyObject *tmsgpy_raise(tmsg_status_t status, const char *reason,
                       const char *peer);

/* (status, words) of the answer that was just given. Where the hub was not
 * `open` it was not given, and the words say so. */
PyObject *tmsgpy_answered(tmsg_status_t status, bool open);

#endif
