/* SPDX-License-Identifier: BSD-3-Clause */
/* ops.h - what goes on, as Python holds it. The lock of the interpreter is held
 * in all of it, but for tmsgpy_on_release(). */
#ifndef TENSORMSG_PYTHON_OPS_H
#define TENSORMSG_PYTHON_OPS_H

#include <Python.h>
#include <stdbool.h>

#include <tensormsg/call.h>

#include "hub.h"

/* A request, and what must live until it has ended; or a call. */
typedef struct {
    tmsg_request_t *request;
    PyObject *keep;
    tmsg_call_t *call;
} tmsgpy_op_t;

/* A capsule that takes the request and the reference to keep, or the call. */
PyObject *tmsgpy_op_make(tmsg_request_t *request, PyObject *keep,
                         tmsg_call_t *call);
tmsgpy_op_t *tmsgpy_op_of(PyObject *capsule);

/* What the library reads of ours until it calls tmsgpy_on_release() with it as
 * arg, in whatever thread. lend() takes the reference, also where it fails,
 * with an exception; unlend() gives back what was not lent after all. What has
 * been released is dropped by the next tmsgpy_drop_lent(). */
typedef struct tmsgpy_lent tmsgpy_lent_t;
tmsgpy_lent_t *tmsgpy_lend(PyObject *keep);
void tmsgpy_unlend(tmsgpy_lent_t *lent);
void tmsgpy_on_release(void *arg);
void tmsgpy_drop_lent(void);

/* A map of a dict and metadata, for tmsgpy_kept_give(), and in *keep_p a
 * reference to the values that it borrows from; NULL with an exception, or
 * *result_p is NotImplemented: convert it. */
tmsg_map_t *tmsgpy_pack_new(PyObject *data, PyObject *meta, PyObject **keep_p,
                            PyObject **result_p);

/* A map with the same names and metadata and copies of the tensors, each in C
 * order, of what is broadcast one element; or, with `gaps`, each with all that
 * lies between its elements, and its strides. Needs no lock. Where it fails
 * *failed_p is the name of the tensor, or NULL. Errors: UNSUPPORTED (memory of
 * a device), NO_MEMORY, which leaves no words. */
tmsg_status_t tmsgpy_copy_map(const tmsg_map_t *map, bool gaps,
                              tmsg_map_t **copy_p, const char **failed_p);

/* Raises what that answered. Returns NULL. */
PyObject *tmsgpy_raise_copy(tmsg_status_t status, const char *failed);

/* (status, words) of what was just answered with; in a hub that is not `open`
 * it was not. */
PyObject *tmsgpy_answered(tmsg_status_t status, bool open);

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

/* The peer in words, to be freed; NULL: no memory. Inside of the hub: who left
 * it may find the endpoint destroyed. */
char *tmsgpy_peer_words(const tmsg_endpoint_t *endpoint);

/* Raises, and frees the peer's words. */
PyObject *tmsgpy_raise_of(tmsg_status_t status, const char *reason, char *peer);

PyObject *tmsgpy_raise_closed(void);

/* Of a wait in an allocator of the same hub. */
PyObject *tmsgpy_raise_would_block(void);

/* Exceptions are made by this function of (status, reason, peer). */
void tmsgpy_raise_by(PyObject *maker);

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

/* The functions of calls, in module tensormsg._hot. */
PyObject *tmsgpy_call(PyObject *self, PyObject *args);
PyObject *tmsgpy_result(PyObject *self, PyObject *capsule);
PyObject *tmsgpy_task(PyObject *self, PyObject *args);
PyObject *tmsgpy_answer(PyObject *self, PyObject *args);
PyObject *tmsgpy_refuse(PyObject *self, PyObject *args);
PyObject *tmsgpy_task_state(PyObject *self, PyObject *task);

/* Receiving into buffers. */
PyObject *tmsgpy_view(PyObject *self, PyObject *args);
PyObject *tmsgpy_posted(PyObject *self, PyObject *arrays);
PyObject *tmsgpy_recv_into(PyObject *self, PyObject *args);

/* A stream that came in, and who opened it, to be freed, or NULL. */
typedef struct {
    tmsgpy_stream_t *handle; /* NULL: no memory */
    char *principal;
} tmsgpy_came_t;

/* Takes the stream. Inside of the hub, without the interpreter's lock: who left
 * it may find the endpoint destroyed. */
tmsgpy_came_t tmsgpy_take_stream(tmsgpy_hub_t *hub, const tmsgpy_work_t *work);

/* What task() gives for it, which it takes. */
PyObject *tmsgpy_unpack_stream(const tmsgpy_work_t *work, tmsgpy_came_t came);

/* The functions of streams. */
PyObject *tmsgpy_stream_open(PyObject *self, PyObject *args);
PyObject *tmsgpy_stream_send(PyObject *self, PyObject *args);
PyObject *tmsgpy_stream_recv(PyObject *self, PyObject *args);
PyObject *tmsgpy_stream_finish(PyObject *self, PyObject *stream);
PyObject *tmsgpy_stream_end(PyObject *self, PyObject *args);
PyObject *tmsgpy_stream_cancel(PyObject *self, PyObject *stream);
PyObject *tmsgpy_stream_wait(PyObject *self, PyObject *args);
PyObject *tmsgpy_stream_state(PyObject *self, PyObject *stream);
PyObject *tmsgpy_stream_result(PyObject *self, PyObject *stream);
PyObject *tmsgpy_stream_watching(PyObject *self, PyObject *stream);
/* publish(hub, publisher, data, meta, flags, timeout_ms, copy). */
PyObject *tmsgpy_publish(PyObject *self, PyObject *args);

PyObject *tmsgpy_told(PyObject *self, PyObject *hub);
PyObject *tmsgpy_rest(PyObject *self, PyObject *args);

#endif
