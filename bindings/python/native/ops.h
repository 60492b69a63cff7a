/* SPDX-License-Identifier: BSD-3-Clause */
/* ops.h - operations, as Python holds them, and what the calls of the module
 * have in common. The interpreter's lock is held in all of it. */
#ifndef TENSORMSG_PYTHON_OPS_H
#define TENSORMSG_PYTHON_OPS_H

#include <Python.h>
#include <stdbool.h>

#include <tensormsg/call.h>

#include "places.h"

/* A request, and what must live until it has ended; or a call, and the buffers
 * that its reply is received into, if there are any. */
typedef struct {
    tmsg_request_t *request;
    PyObject *keep;
    tmsg_call_t *call;
    tmsgpy_posted_t *posted;
    unsigned forks; /* that there had been */
} tmsgpy_op_t;

/* A capsule that takes the request and the reference to keep, or the call. */
PyObject *tmsgpy_op_make(tmsg_request_t *request, PyObject *keep,
                         tmsg_call_t *call);
tmsgpy_op_t *tmsgpy_op_of(PyObject *capsule);

/* The same of a call with buffers that were claimed for it, or without (NULL).
 */
PyObject *tmsgpy_op_call(tmsg_call_t *call, tmsgpy_posted_t *posted);

/* One that was given up is not over while UCX may read what was lent. */
bool tmsgpy_op_is_over(const tmsgpy_op_t *op);

/* A map of a dict and metadata, for tmsgpy_kept_give(), and in *keep_p a
 * reference to the values that it borrows from; NULL with an exception, or
 * *result_p is NotImplemented: convert it. */
tmsg_map_t *tmsgpy_pack_new(PyObject *data, PyObject *meta, PyObject **keep_p,
                            PyObject **result_p);

/* Adds a copy of a tensor of `from` to a map: in C order, of what is broadcast
 * one element; or, with `gaps`, with all that lies between its elements, and
 * its strides. Needs no lock. Errors: UNSUPPORTED (memory of a device),
 * NO_MEMORY, which leaves no words. */
tmsg_status_t tmsgpy_copy_tensor(const tmsg_map_t *from, size_t index,
                                 bool gaps, tmsg_map_t *to);

/* How many bytes that copy takes; UINT64_MAX where there can be none. */
uint64_t tmsgpy_copy_bytes(const tmsg_map_t *from, size_t index, bool gaps);

/* A map with the same names and metadata and copies of the tensors, each as
 * tmsgpy_copy_tensor() makes it. Where it fails *failed_p is the name of the
 * tensor, or NULL. Errors: as there. */
tmsg_status_t tmsgpy_copy_map(const tmsg_map_t *map, bool gaps,
                              tmsg_map_t **copy_p, const char **failed_p);

/* Raises what that answered. Returns NULL. */
PyObject *tmsgpy_raise_copy(tmsg_status_t status, const char *failed);

/* How a task or a stream is failed: of the arguments (hub, what, status, code,
 * words, data, meta). False: `instead` is what is answered, NULL with an
 * exception or NotImplemented: convert it. told() gives it back, and answers.
 */
typedef struct {
    PyObject *instead;
    tmsg_status_t status;
    int code;
    PyObject *words;
    const char *text;    /* of these */
    tmsg_map_t *details; /* a copy: nobody tells when they were read */
} tmsgpy_failure_t;
bool tmsgpy_failure_take(PyObject *args, tmsgpy_failure_t *failure_p);
PyObject *tmsgpy_failure_told(tmsgpy_failure_t *failure, tmsg_status_t status,
                              bool open);

/* How a call or a stream has ended: (status, reason, code, may have run, the
 * map's parts or None). */
typedef struct {
    tmsg_status_t status;
    const char *error;
    int code;
    bool may_have_run;
} tmsgpy_end_t;
PyObject *tmsgpy_ending(PyObject *owner, tmsgpy_end_t end,
                        const tmsg_map_t *map);

bool tmsgpy_takes(PyObject *args, Py_ssize_t count);
void *tmsgpy_pointer_at(PyObject *args, Py_ssize_t index);
int tmsgpy_int_at(PyObject *args, Py_ssize_t index);

uint64_t tmsgpy_now_ns(void);

/* When one that spins for so long has to stop; 0: it does not spin. */
uint64_t tmsgpy_until(int spin_us);

/* Whether one that has found nothing is to look on until then; others may have
 * the processor first. */
bool tmsgpy_polls_on(tmsg_worker_t *worker, uint64_t until);

/* Drives the worker until the request has ended, nothing moves any more, and
 * that time is over. Inside of the hub. */
void tmsgpy_spin(tmsg_worker_t *worker, const tmsg_request_t *request,
                 int spin_us);

#endif
