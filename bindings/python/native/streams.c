/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams: part of module tensormsg._hot. A stream is a capsule, which is its
 * handle; where it came in it owns the map that it was opened with. */
#include "streams.h"

#include <stdlib.h>
#include <string.h>

#include <tensormsg/stream.h>

#include "blocks.h"
#include "errors.h"
#include "kept.h"
#include "lent.h"
#include "ops.h"
#include "pack.h"

static void drop_stream(PyObject *capsule)
{
    tmsgpy_stream_drop(PyCapsule_GetPointer(capsule, "tensormsg.stream"));
}

static tmsgpy_stream_t *handle_of(PyObject *capsule)
{
    return PyCapsule_GetPointer(capsule, "tensormsg.stream");
}

/* Takes the stream. Inside of the hub. NULL: no memory. */
static tmsgpy_stream_t *take(tmsgpy_hub_t *hub, tmsg_call_stream_t *stream)
{
    tmsgpy_stream_t *handle = tmsgpy_stream_make(hub, stream);

    if (handle == NULL) {
        tmsg_call_stream_destroy(stream);
    }
    return handle;
}

/* Takes what take() gave. */
static PyObject *make(tmsgpy_stream_t *handle)
{
    PyObject *capsule;

    if (handle == NULL) {
        return PyErr_NoMemory();
    }
    capsule = PyCapsule_New(handle, "tensormsg.stream", drop_stream);
    if (capsule == NULL) {
        tmsgpy_stream_drop(handle);
    }
    return capsule;
}

tmsgpy_came_t tmsgpy_take_stream(tmsgpy_hub_t *hub, const tmsgpy_work_t *work)
{
    const char *principal =
        tmsg_endpoint_principal(tmsg_call_stream_endpoint(work->stream));
    tmsgpy_came_t came = {NULL, NULL};

    if (principal != NULL) {
        came.principal = strdup(principal);
    }
    came.handle = take(hub, work->stream);
    if (came.handle != NULL && principal != NULL && came.principal == NULL) {
        tmsgpy_stream_drop(came.handle); /* it is nobody's otherwise */
        came.handle = NULL;
    }
    return came;
}

PyObject *tmsgpy_unpack_stream(const tmsgpy_work_t *work, tmsgpy_came_t came)
{
    PyObject *owner = make(came.handle), *parts = NULL, *number = NULL;
    PyObject *result = NULL;

    if (owner != NULL) {
        parts = tmsgpy_unpack_map(tmsg_call_stream_map(work->stream), owner,
                                  tmsg_call_stream_endpoint(work->stream));
        number = PyLong_FromVoidPtr(work->stream);
    }
    if (parts != NULL && number != NULL) {
        result =
            Py_BuildValue("(iOzO)", work->index, parts, came.principal, number);
    }
    Py_XDECREF(parts);
    Py_XDECREF(number);
    Py_XDECREF(owner);
    free(came.principal);
    return result;
}

/* stream_open(hub, endpoint, method, data, meta, timeout_ms, queue): (a stream,
 * its number); NotImplemented where data has to be converted. */
PyObject *tmsgpy_stream_open(PyObject *self, PyObject *args)
{
    tmsg_call_stream_params_t params = {.field_mask =
                                            TMSG_CALL_STREAM_PARAM_TIMEOUT |
                                            TMSG_CALL_STREAM_PARAM_QUEUE |
                                            TMSG_CALL_STREAM_PARAM_ON_RELEASE,
                                        .on_release = tmsgpy_on_release};
    tmsg_status_t status = TMSG_ERR_CLOSED;
    tmsg_call_stream_t *stream = NULL;
    PyObject *method, *keep, *result, *capsule;
    tmsgpy_stream_t *handle = NULL;
    tmsg_endpoint_t *endpoint;
    PyThreadState *threads;
    tmsgpy_lent_t *lent;
    tmsgpy_hub_t *hub;
    char *peer = NULL;
    tmsg_map_t *map;
    bool open;

    (void)self;
    tmsgpy_drop_lent();
    if (!tmsgpy_takes(args, 7)) {
        return NULL;
    }
    hub = tmsgpy_pointer_at(args, 0);
    endpoint = tmsgpy_pointer_at(args, 1);
    params.timeout_ms = tmsgpy_int_at(args, 5);
    params.queue = (uint32_t)tmsgpy_int_at(args, 6);
    map = tmsgpy_pack_new(PyTuple_GetItem(args, 3), PyTuple_GetItem(args, 4),
                          &keep, &result);
    if (map == NULL) {
        return result;
    }
    method = PyUnicode_AsUTF8String(PyTuple_GetItem(args, 2));
    lent = tmsgpy_lend(keep);
    if (method == NULL || lent == NULL) {
        if (lent != NULL) {
            tmsgpy_unlend(lent);
        }
        Py_XDECREF(method);
        tmsgpy_kept_give(map);
        return NULL;
    }
    params.on_release_arg = lent;
    threads = PyEval_SaveThread();
    open = tmsgpy_hub_enter(hub);
    if (open) {
        status = tmsg_endpoint_open_stream(endpoint, PyBytes_AsString(method),
                                           map, &params, &stream);
        peer = status != TMSG_OK ? tmsgpy_peer_words(endpoint) : NULL;
        handle = status == TMSG_OK ? take(hub, stream) : NULL;
        tmsgpy_hub_leave(hub);
    }
    PyEval_RestoreThread(threads);
    Py_DECREF(method);
    tmsgpy_kept_give(map);
    if (status != TMSG_OK) {
        tmsgpy_unlend(lent);
        return open ? tmsgpy_raise_of(status, tmsg_error_message(), peer)
                    : tmsgpy_raise_closed();
    }
    capsule = make(handle);
    if (capsule == NULL) {
        return NULL;
    }
    result =
        Py_BuildValue("(OK)", capsule, (unsigned long long)(uintptr_t)stream);
    Py_DECREF(capsule);
    return result;
}

/* Sends where there is room. */
static tmsg_status_t post(tmsgpy_stream_t *handle, const tmsg_map_t *map,
                          const tmsg_send_params_t *params, int spin_us,
                          bool *open_p, tmsg_request_t **request_p)
{
    tmsgpy_hub_t *hub = tmsgpy_stream_hub(handle);
    tmsg_status_t status;

    *open_p = tmsgpy_hub_enter(hub);
    if (!*open_p) {
        return TMSG_ERR_CLOSED;
    }
    status =
        tmsg_call_stream_send(tmsgpy_stream_of(handle), map, params, request_p);
    if (status == TMSG_OK) {
        tmsgpy_spin(tmsgpy_hub_worker(hub), *request_p, spin_us);
        status = tmsg_request_test(*request_p);
    }
    tmsgpy_hub_leave(hub);
    return status;
}

static PyObject *posted(tmsg_status_t status, const tmsg_request_t *request)
{
    if (status == TMSG_ERR_WOULD_BLOCK && request == NULL) {
        return PyBool_FromLong(0);
    }
    if (status < 0) {
        return tmsgpy_raise(status,
                            request == NULL ? tmsg_error_message()
                                            : tmsg_request_error(request),
                            NULL);
    }
    Py_RETURN_NONE;
}

/* Of a message that is lent: as post_lent() of hot.c. Takes the map, and the
 * reference to the values. */
static PyObject *post_lent(tmsgpy_stream_t *handle, tmsg_map_t *map,
                           PyObject *keep, int spin_us)
{
    tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS |
                                               TMSG_SEND_PARAM_ON_RELEASE,
                                 .flags = TMSG_SEND_TRY | TMSG_SEND_LEND};
    tmsg_status_t status = TMSG_ERR_NO_MEMORY;
    tmsg_request_t *request = NULL;
    PyThreadState *threads;
    tmsgpy_lent_t *lent;
    PyObject *result;
    bool open = true;

    lent = tmsgpy_lend_frozen(keep, Py_None, &params.on_release);
    if (lent != NULL) {
        params.on_release_arg = lent;
        threads = PyEval_SaveThread();
        status = post(handle, map, &params, spin_us, &open, &request);
        PyEval_RestoreThread(threads);
    }
    tmsg_map_destroy(map);
    if (lent == NULL) {
        return NULL;
    }
    if (status == TMSG_IN_PROGRESS) {
        Py_INCREF(Py_None);
        return tmsgpy_op_make(request, Py_None, NULL);
    }
    result = open ? posted(status, request) : tmsgpy_raise_closed();
    if (request == NULL) {
        tmsgpy_unlend(lent);
    }
    tmsg_request_destroy(request);
    return result;
}

static bool is_of_host(const tmsg_map_t *map)
{
    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        tmsg_tensor_t tensor;

        if (tmsg_map_at(map, i, NULL, &tensor) != TMSG_OK ||
            tensor.device.type != TMSG_DEVICE_CPU) {
            return false;
        }
    }
    return true;
}

/* Of a message whose arrays may be changed at once, though it may have to be
 * sent again: a copy goes in its place, which nobody waits for. False: it
 * cannot be copied. */
static bool post_copy(tmsgpy_stream_t *handle, const tmsg_map_t *map,
                      const tmsg_send_params_t *params, PyObject **result_p)
{
    tmsg_request_t *request = NULL;
    PyThreadState *threads;
    tmsg_map_t *copy = NULL;
    tmsg_status_t status = TMSG_OK;
    const char *failed;
    bool open = true;

    if (!is_of_host(map)) {
        return false;
    }
    threads = PyEval_SaveThread();
    if (tmsgpy_copy_map(map, false, &copy, &failed) == TMSG_OK) {
        status = post(handle, copy, params, 0, &open, &request);
        tmsg_map_destroy(copy);
    }
    PyEval_RestoreThread(threads);
    if (copy == NULL) {
        return false;
    }
    if (status == TMSG_IN_PROGRESS) {
        status = TMSG_OK;
    }
    *result_p = open ? posted(status, request) : tmsgpy_raise_closed();
    tmsg_request_destroy(request);
    return true;
}

/* What becomes of the arrays: they may be changed when it has ended, are lent,
 * or may be changed at once. */
enum { BORROWS, LENDS, COPIES };

/* stream_send(stream, data, meta, spin_us, how): None when it has ended, else
 * an operation; False where there is no room; NotImplemented where data has to
 * be converted first. */
PyObject *tmsgpy_stream_send(PyObject *self, PyObject *args)
{
    tmsg_request_t *request = NULL;
    tmsgpy_stream_t *handle;
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                       .flags = TMSG_SEND_TRY};
    PyObject *keep, *result;
    PyThreadState *threads;
    tmsg_status_t status;
    tmsg_map_t *map;
    int spin_us, how;
    bool open;

    (void)self;
    tmsgpy_drop_lent();
    if (!tmsgpy_takes(args, 5) ||
        (handle = handle_of(PyTuple_GetItem(args, 0))) == NULL) {
        return NULL;
    }
    spin_us = tmsgpy_int_at(args, 3);
    map = tmsgpy_pack_new(PyTuple_GetItem(args, 1), PyTuple_GetItem(args, 2),
                          &keep, &result);
    if (map == NULL) {
        return result;
    }
    how = tmsgpy_int_at(args, 4);
    if (how == LENDS) {
        return post_lent(handle, map, keep, spin_us);
    }
    if (how == COPIES && post_copy(handle, map, &params, &result)) {
        tmsgpy_kept_give(map);
        Py_DECREF(keep);
        return result;
    }
    threads = PyEval_SaveThread();
    status = post(handle, map, &params, spin_us, &open, &request);
    PyEval_RestoreThread(threads);
    if (status == TMSG_IN_PROGRESS) {
        tmsg_map_destroy(map);
        return tmsgpy_op_make(request, keep, NULL);
    }
    result = open ? posted(status, request) : tmsgpy_raise_closed();
    tmsg_request_destroy(request);
    tmsgpy_kept_give(map);
    Py_DECREF(keep);
    return result;
}

/* Waits up to timeout_ms; 0 looks, for spin_us. IN_PROGRESS: nothing came;
 * *blocked_p: nor may it be waited for. */
static tmsg_status_t pull(tmsg_worker_t *worker, tmsg_call_stream_t *stream,
                          int timeout_ms, int spin_us,
                          tmsg_message_t **message_p, bool *blocked_p)
{
    uint64_t until = tmsgpy_until(spin_us);
    tmsg_status_t status = tmsg_call_stream_try_recv(stream, message_p);

    while (status == TMSG_IN_PROGRESS && until != 0 &&
           tmsgpy_now_ns() < until) {
        if (tmsg_worker_progress(worker) > 0) {
            status = tmsg_call_stream_try_recv(stream, message_p);
        } else if (!tmsg_worker_pause(worker)) {
            break;
        }
    }
    if (status == TMSG_IN_PROGRESS && timeout_ms > 0) {
        /* TIMED_OUT may be how the stream ended. */
        *blocked_p = tmsg_call_stream_recv(stream, timeout_ms, message_p) ==
                     TMSG_ERR_WOULD_BLOCK;
        status = *message_p != NULL
                     ? TMSG_OK
                     : tmsg_call_stream_try_recv(stream, message_p);
    }
    return status;
}

/* stream_recv(stream, timeout_ms, spin_us): the parts of a message; None where
 * none will come; False where none is there; True where it has failed. */
PyObject *tmsgpy_stream_recv(PyObject *self, PyObject *args)
{
    tmsg_status_t status = TMSG_ERR_CLOSED;
    tmsg_message_t *message = NULL;
    tmsgpy_stream_t *handle;
    PyThreadState *threads;
    int timeout_ms, spin_us;
    bool open, blocked = false;
    tmsgpy_hub_t *hub;

    (void)self;
    tmsgpy_drop_lent();
    if (!tmsgpy_takes(args, 3) ||
        (handle = handle_of(PyTuple_GetItem(args, 0))) == NULL) {
        return NULL;
    }
    hub = tmsgpy_stream_hub(handle);
    timeout_ms = tmsgpy_int_at(args, 1);
    spin_us = tmsgpy_int_at(args, 2);
    threads = PyEval_SaveThread();
    open = tmsgpy_hub_enter(hub);
    if (open) {
        status = pull(tmsgpy_hub_worker(hub), tmsgpy_stream_of(handle),
                      timeout_ms, spin_us, &message, &blocked);
        tmsgpy_hub_leave(hub);
    }
    PyEval_RestoreThread(threads);
    if (!open) {
        return tmsgpy_raise_closed();
    }
    if (message != NULL) {
        return tmsgpy_unpack(message);
    }
    if (status == TMSG_OK) {
        Py_RETURN_NONE;
    }
    return status == TMSG_IN_PROGRESS && blocked
               ? tmsgpy_raise_would_block()
               : PyBool_FromLong(status != TMSG_IN_PROGRESS);
}

/* Puts what was just said on its way, where nobody else does. */
static void push(tmsg_worker_t *worker)
{
    for (unsigned i = 0; i < 256 && tmsg_worker_progress(worker) > 0; i++) {
    }
}

/* stream_finish(stream): no more is sent. */
PyObject *tmsgpy_stream_finish(PyObject *self, PyObject *capsule)
{
    tmsg_status_t status = TMSG_ERR_CLOSED;
    tmsgpy_stream_t *handle = handle_of(capsule);
    PyThreadState *threads;
    bool open;

    (void)self;
    if (handle == NULL) {
        return NULL;
    }
    threads = PyEval_SaveThread();
    open = tmsgpy_hub_enter(tmsgpy_stream_hub(handle));
    if (open) {
        status = tmsg_call_stream_finish(tmsgpy_stream_of(handle));
        push(tmsgpy_hub_worker(tmsgpy_stream_hub(handle)));
        tmsgpy_hub_leave(tmsgpy_stream_hub(handle));
    }
    PyEval_RestoreThread(threads);
    return open ? posted(status, NULL) : tmsgpy_raise_closed();
}

/* stream_end(hub, stream, status, code, words, data, meta): (status, words) of
 * it; NotImplemented where data, the details, have to be converted. */
PyObject *tmsgpy_stream_end(PyObject *self, PyObject *args)
{
    tmsg_status_t status = TMSG_ERR_UNAVAILABLE;
    tmsgpy_failure_t failure;
    PyThreadState *threads;
    tmsgpy_stream_t *handle;
    tmsgpy_hub_t *hub;
    bool open;

    (void)self;
    if (!tmsgpy_takes(args, 7) ||
        (handle = handle_of(PyTuple_GetItem(args, 1))) == NULL) {
        return NULL;
    }
    if (!tmsgpy_failure_take(args, &failure)) {
        return failure.instead;
    }
    hub = tmsgpy_pointer_at(args, 0);
    threads = PyEval_SaveThread();
    open = tmsgpy_hub_enter(hub);
    if (open) {
        status =
            tmsg_call_stream_end(tmsgpy_stream_of(handle), failure.status,
                                 failure.code, failure.text, failure.details);
        tmsgpy_hub_leave(hub);
    }
    PyEval_RestoreThread(threads);
    return tmsgpy_failure_told(&failure, status, open);
}

/* stream_cancel(stream) */
PyObject *tmsgpy_stream_cancel(PyObject *self, PyObject *capsule)
{
    tmsgpy_stream_t *handle = handle_of(capsule);
    PyThreadState *threads;

    (void)self;
    if (handle == NULL) {
        return NULL;
    }
    threads = PyEval_SaveThread();
    if (tmsgpy_hub_enter(tmsgpy_stream_hub(handle))) {
        tmsg_call_stream_cancel(tmsgpy_stream_of(handle));
        push(tmsgpy_hub_worker(tmsgpy_stream_hub(handle)));
        tmsgpy_hub_leave(tmsgpy_stream_hub(handle));
    }
    PyEval_RestoreThread(threads);
    Py_RETURN_NONE;
}

/* stream_wait(stream, timeout_ms): whether it is over. */
PyObject *tmsgpy_stream_wait(PyObject *self, PyObject *args)
{
    tmsg_status_t status = TMSG_OK;
    tmsgpy_stream_t *handle;
    PyThreadState *threads;
    int timeout_ms;
    bool over;

    (void)self;
    if (!tmsgpy_takes(args, 2) ||
        (handle = handle_of(PyTuple_GetItem(args, 0))) == NULL) {
        return NULL;
    }
    timeout_ms = tmsgpy_int_at(args, 1);
    threads = PyEval_SaveThread();
    if (tmsgpy_hub_enter(tmsgpy_stream_hub(handle))) {
        status = tmsg_call_stream_wait(tmsgpy_stream_of(handle), timeout_ms);
        tmsgpy_hub_leave(tmsgpy_stream_hub(handle));
    }
    over =
        tmsg_call_stream_status(tmsgpy_stream_of(handle)) != TMSG_IN_PROGRESS;
    PyEval_RestoreThread(threads);
    return !over && status == TMSG_ERR_WOULD_BLOCK ? tmsgpy_raise_would_block()
                                                   : PyBool_FromLong(over);
}

/* stream_state(stream): (status, milliseconds left or -1). */
PyObject *tmsgpy_stream_state(PyObject *self, PyObject *capsule)
{
    tmsgpy_stream_t *handle = handle_of(capsule);
    const tmsg_call_stream_t *stream;

    (void)self;
    if (handle == NULL) {
        return NULL;
    }
    stream = tmsgpy_stream_of(handle);
    return Py_BuildValue("(ii)", (int)tmsg_call_stream_status(stream),
                         tmsg_call_stream_remaining_ms(stream));
}

/* stream_result(stream): (status, reason, code, may have run, the details'
 * parts or None) of one that is over. */
PyObject *tmsgpy_stream_result(PyObject *self, PyObject *capsule)
{
    tmsgpy_stream_t *handle = handle_of(capsule);
    const tmsg_call_stream_t *stream;

    (void)self;
    if (handle == NULL) {
        return NULL;
    }
    stream = tmsgpy_stream_of(handle);
    return tmsgpy_ending(capsule,
                         (tmsgpy_end_t){tmsg_call_stream_status(stream),
                                        tmsg_call_stream_error(stream),
                                        tmsg_call_stream_code(stream),
                                        tmsg_call_stream_may_have_run(stream)},
                         tmsg_call_stream_details(stream));
}

/* stream_watch(stream): told() tells of it from now on. */
PyObject *tmsgpy_stream_watching(PyObject *self, PyObject *capsule)
{
    tmsgpy_stream_t *handle = handle_of(capsule);
    PyThreadState *threads;

    (void)self;
    if (handle == NULL) {
        return NULL;
    }
    threads = PyEval_SaveThread();
    if (tmsgpy_hub_enter(tmsgpy_stream_hub(handle))) {
        tmsgpy_stream_watch(handle);
        tmsgpy_hub_leave(tmsgpy_stream_hub(handle));
    }
    PyEval_RestoreThread(threads);
    Py_RETURN_NONE;
}

/* told(hub): the numbers of streams that can be read or are over; 0 stands for
 * any. */
PyObject *tmsgpy_told(PyObject *self, PyObject *hub)
{
    const tmsg_call_stream_t *stream;
    PyObject *numbers = PyList_New(0);

    (void)self;
    while (numbers != NULL && tmsgpy_hub_told(PyLong_AsVoidPtr(hub), &stream)) {
        PyObject *number = PyLong_FromVoidPtr((void *)stream);

        if (number == NULL || PyList_Append(numbers, number) != 0) {
            Py_CLEAR(numbers);
        }
        Py_XDECREF(number);
    }
    return numbers;
}

/* rest(hub, timeout_ms): until something has moved. */
PyObject *tmsgpy_rest(PyObject *self, PyObject *args)
{
    tmsg_status_t status = TMSG_OK;
    PyThreadState *threads;
    tmsgpy_hub_t *hub;
    int timeout_ms;

    (void)self;
    if (!tmsgpy_takes(args, 2)) {
        return NULL;
    }
    hub = tmsgpy_pointer_at(args, 0);
    timeout_ms = tmsgpy_int_at(args, 1);
    threads = PyEval_SaveThread();
    if (tmsgpy_hub_enter(hub)) {
        status = tmsg_worker_wait(tmsgpy_hub_worker(hub), timeout_ms);
        tmsgpy_hub_leave(hub);
    }
    PyEval_RestoreThread(threads);
    if (status == TMSG_ERR_WOULD_BLOCK) {
        return tmsgpy_raise_would_block();
    }
    Py_RETURN_NONE;
}
