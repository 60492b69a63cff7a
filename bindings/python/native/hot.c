/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls of every message: module tensormsg._hot. Hubs, endpoints and
 * requests come as the numbers of their addresses; whoever calls keeps them. */
#include <Python.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <tensormsg/endpoint.h>

#include "apart.h"
#include "arrays.h"
#include "bells.h"
#include "blocks.h"
#include "calls.h"
#include "device.h"
#include "errors.h"
#include "files.h"
#include "hub.h"
#include "into.h"
#include "kept.h"
#include "late_zip.h"
#include "lent.h"
#include "measure.h"
#include "names.h"
#include "offers.h"
#include "ops.h"
#include "pack.h"
#include "publish.h"
#include "streams.h"

#define TURN_NS 1000000ULL

enum { MOVED = 1, CAME = 2, STARVES = 4 }; /* as _loop.py has them */

/* Whether it goes on is asked once: it may end at any time, and with an error
 * that is to be heard. */
static PyObject *post(tmsgpy_hub_t *hub, tmsg_endpoint_t *endpoint,
                      const tmsg_map_t *map, const tmsg_send_params_t *params,
                      int spin_us, tmsg_request_t **request_p, bool *going_p)
{
    PyThreadState *threads;
    tmsg_status_t status = TMSG_ERR_CLOSED;
    char *peer = NULL;
    bool open;

    *going_p = false;
    threads = PyEval_SaveThread();
    open = tmsgpy_hub_enter(hub);
    if (open) {
        status = tmsg_endpoint_send(endpoint, map, params, request_p);
        if (status == TMSG_OK) {
            tmsgpy_spin(tmsgpy_hub_worker(hub), *request_p, spin_us);
            status = tmsg_request_test(*request_p);
        }
        peer = status < 0 ? tmsgpy_peer_words(endpoint) : NULL;
        tmsgpy_hub_leave(hub);
    }
    PyEval_RestoreThread(threads);
    if (!open) {
        return tmsgpy_raise_closed();
    }
    if (status < 0) {
        return tmsgpy_raise_of(status,
                               *request_p == NULL
                                   ? tmsg_error_message()
                                   : tmsg_request_error(*request_p),
                               peer);
    }
    *going_p = status == TMSG_IN_PROGRESS;
    Py_RETURN_NONE;
}

/* Of a message that is lent: the values are kept, and the arrays among them
 * read-only, until nobody reads them any more, which is later than the end of
 * the operation. Takes the map, and the reference to the values. */
static PyObject *post_lent(PyObject *args, tmsg_map_t *map, PyObject *keep)
{
    tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS |
                                               TMSG_SEND_PARAM_ON_RELEASE,
                                 .flags = (uint32_t)tmsgpy_int_at(args, 4)};
    tmsg_request_t *request = NULL;
    PyObject *result = NULL;
    tmsgpy_lent_t *lent;
    bool going = false;

    lent = tmsgpy_lend_frozen(keep, Py_None, &params.on_release);
    if (lent != NULL) {
        params.on_release_arg = lent;
        result = post(tmsgpy_pointer_at(args, 0), tmsgpy_pointer_at(args, 1),
                      map, &params, tmsgpy_int_at(args, 5), &request, &going);
        if (request == NULL) {
            tmsgpy_unlend(lent);
        }
    }
    tmsg_map_destroy(map);
    if (going) {
        return tmsgpy_op_make(request, result, NULL);
    }
    tmsg_request_destroy(request);
    return result;
}

/* send(hub, endpoint, data, meta, flags, spin_us): None when it has ended, else
 * an operation; NotImplemented where data has to be converted first. */
static PyObject *hot_send(PyObject *self, PyObject *args)
{
    tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS};
    tmsg_request_t *request = NULL;
    PyObject *keep, *result;
    bool going = false;
    tmsg_map_t *map;

    (void)self;
    if (!tmsgpy_takes(args, 6)) {
        return NULL;
    }
    map = tmsgpy_pack_new(PyTuple_GetItem(args, 2), PyTuple_GetItem(args, 3),
                          &keep, &result);
    if (map == NULL) {
        return result;
    }
    params.flags = (uint32_t)tmsgpy_int_at(args, 4);
    if (params.flags & TMSG_SEND_LEND) {
        tmsgpy_drop_lent();
        return post_lent(args, map, keep);
    }
    result = post(tmsgpy_pointer_at(args, 0), tmsgpy_pointer_at(args, 1), map,
                  &params, tmsgpy_int_at(args, 5), &request, &going);
    if (going) {
        tmsg_map_destroy(map);
        Py_DECREF(result);
        return tmsgpy_op_make(request, keep, NULL);
    }
    tmsg_request_destroy(request);
    tmsgpy_kept_give(map);
    Py_DECREF(keep);
    return result;
}

/* Waits up to timeout_ms; 0 looks, for spin_us. */
static tmsg_status_t pull(tmsg_worker_t *worker, tmsg_endpoint_t *endpoint,
                          int timeout_ms, int spin_us,
                          tmsg_message_t **message_p)
{
    uint64_t until = tmsgpy_until(spin_us);
    tmsg_status_t status;

    for (;;) {
        status = endpoint != NULL
                     ? tmsg_endpoint_recv(endpoint, timeout_ms, message_p)
                     : tmsg_worker_recv(worker, timeout_ms, message_p);
        if (status != TMSG_ERR_TIMED_OUT || until == 0 ||
            tmsgpy_now_ns() >= until) {
            return status;
        }
        while (tmsg_worker_progress(worker) == 0 && tmsgpy_now_ns() < until) {
            if (!tmsg_worker_pause(worker)) {
                until = 1; /* it is late */
            }
        }
    }
}

/* recv(hub, endpoint or 0, timeout_ms, spin_us): what tmsgpy_unpack() makes of
 * a message, or None. */
static PyObject *hot_recv(PyObject *self, PyObject *args)
{
    PyThreadState *threads;
    tmsg_message_t *message = NULL;
    tmsg_endpoint_t *endpoint;
    tmsg_status_t status = TMSG_ERR_CLOSED;
    tmsgpy_hub_t *hub;
    int timeout_ms, spin_us;
    char *peer = NULL;
    bool open;

    (void)self;
    if (!tmsgpy_takes(args, 4)) {
        return NULL;
    }
    hub = tmsgpy_pointer_at(args, 0);
    endpoint = tmsgpy_pointer_at(args, 1);
    timeout_ms = tmsgpy_int_at(args, 2);
    spin_us = tmsgpy_int_at(args, 3);
    threads = PyEval_SaveThread();
    open = tmsgpy_hub_enter(hub);
    if (open) {
        status = pull(tmsgpy_hub_worker(hub), endpoint, timeout_ms, spin_us,
                      &message);
        if (status < 0 && status != TMSG_ERR_TIMED_OUT && endpoint != NULL) {
            peer = tmsgpy_peer_words(endpoint);
        }
        tmsgpy_hub_leave(hub);
    }
    PyEval_RestoreThread(threads);
    if (!open) {
        return tmsgpy_raise_closed();
    }
    if (status == TMSG_ERR_TIMED_OUT) {
        Py_RETURN_NONE;
    }
    if (status != TMSG_OK) {
        return tmsgpy_raise_of(status, tmsg_error_message(), peer);
    }
    return tmsgpy_unpack(message);
}

/* For TURN_NS at most: others have something to do, too. Where nothing moves it
 * looks on for spin_us. */
static bool drive(tmsg_worker_t *worker, int spin_us)
{
    uint64_t begun = tmsgpy_now_ns(), now = begun;
    uint64_t until = begun + (uint64_t)spin_us * 1000;
    bool moved = false;

    while (now - begun < TURN_NS) {
        if (tmsg_worker_progress(worker) > 0) {
            moved = true;
        } else if (moved || now >= until || !tmsg_worker_pause(worker)) {
            break;
        }
        now = tmsgpy_now_ns();
    }
    return moved;
}

/* progress(hub, spin_us): MOVED where something has, CAME where something has
 * come by whichever call since the last time, that a receive may wait for,
 * STARVES where a message waits for memory; 0 where it is closed. */
static PyObject *hot_progress(PyObject *self, PyObject *args)
{
    PyThreadState *threads;
    tmsgpy_hub_t *hub;
    long what = 0;
    int spin_us;

    (void)self;
    if (!tmsgpy_takes(args, 2)) {
        return NULL;
    }
    hub = tmsgpy_pointer_at(args, 0);
    spin_us = tmsgpy_int_at(args, 1);
    threads = PyEval_SaveThread();
    if (tmsgpy_hub_enter(hub)) {
        what = drive(tmsgpy_hub_worker(hub), spin_us) ? MOVED : 0;
        tmsgpy_hub_calm(hub); /* first, or what is told is lost */
        what |= tmsgpy_hub_came(hub) ? CAME : 0;
        what |= tmsg_worker_starves(tmsgpy_hub_worker(hub)) ? STARVES : 0;
        tmsgpy_hub_leave(hub);
    }
    PyEval_RestoreThread(threads);
    tmsgpy_drop_lent();
    return PyLong_FromLong(what);
}

/* came(hub): whether something has come that a receive may wait for, since this
 * or progress() was asked. */
static PyObject *hot_came(PyObject *self, PyObject *number)
{
    PyThreadState *threads;
    tmsgpy_hub_t *hub = PyLong_AsVoidPtr(number);
    bool came = false;

    (void)self;
    threads = PyEval_SaveThread();
    if (tmsgpy_hub_enter(hub)) {
        came = tmsgpy_hub_came(hub);
        tmsgpy_hub_leave(hub);
    }
    PyEval_RestoreThread(threads);
    return PyBool_FromLong(came);
}

/* readable(hub, endpoints): those of a list that a receive has something to
 * find of, 0 among them; all where it is closed. */
static PyObject *hot_readable(PyObject *self, PyObject *args)
{
    PyObject *list, *found = NULL;
    PyThreadState *threads;
    bool *is_readable;
    tmsgpy_hub_t *hub;
    void **endpoints;
    Py_ssize_t count;

    (void)self;
    if (!tmsgpy_takes(args, 2)) {
        return NULL;
    }
    hub = tmsgpy_pointer_at(args, 0);
    list = PyTuple_GetItem(args, 1);
    count = PyList_Size(list);
    endpoints = calloc((size_t)count + 1, sizeof(*endpoints));
    is_readable = calloc((size_t)count + 1, sizeof(*is_readable));
    if (endpoints == NULL || is_readable == NULL) {
        PyErr_NoMemory();
        goto out;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        endpoints[i] = PyLong_AsVoidPtr(PyList_GetItem(list, i));
    }
    threads = PyEval_SaveThread();
    if (tmsgpy_hub_enter(hub)) {
        for (Py_ssize_t i = 0; i < count; i++) {
            is_readable[i] =
                endpoints[i] == NULL || tmsgpy_hub_readable(hub, endpoints[i]);
        }
        tmsgpy_hub_leave(hub);
    } else {
        memset(is_readable, true, (size_t)count);
    }
    PyEval_RestoreThread(threads);
    found = PyList_New(0);
    for (Py_ssize_t i = 0; found != NULL && i < count; i++) {
        if (is_readable[i] &&
            PyList_Append(found, PyList_GetItem(list, i)) != 0) {
            Py_DECREF(found);
            found = NULL;
        }
    }
out:
    free(is_readable);
    free(endpoints);
    return found;
}

/* arm(hub): False where there is work, True where one may sleep. The descriptor
 * does not tell of what other threads have received before it was armed. */
static PyObject *hot_arm(PyObject *self, PyObject *number)
{
    PyThreadState *threads;
    tmsgpy_hub_t *hub = PyLong_AsVoidPtr(number);
    bool busy = false;

    (void)self;
    threads = PyEval_SaveThread();
    if (tmsgpy_hub_enter(hub)) {
        busy = tmsg_worker_arm(tmsgpy_hub_worker(hub)) == TMSG_ERR_BUSY ||
               tmsgpy_hub_has_come(hub);
        tmsgpy_hub_leave(hub);
    }
    PyEval_RestoreThread(threads);
    return PyBool_FromLong(!busy);
}

/* op(request, keep): an operation of a request, which it takes. */
static PyObject *hot_op(PyObject *self, PyObject *args)
{
    PyObject *keep;

    (void)self;
    if (!tmsgpy_takes(args, 2)) {
        return NULL;
    }
    keep = PyTuple_GetItem(args, 1);
    Py_INCREF(keep);
    return tmsgpy_op_make(tmsgpy_pointer_at(args, 0), keep, NULL);
}

/* wait(hub, op, timeout_ms): whether it has ended. Raises in an allocator of
 * the same hub. */
static PyObject *hot_wait(PyObject *self, PyObject *args)
{
    tmsg_status_t status = TMSG_OK;
    PyThreadState *threads;
    tmsgpy_hub_t *hub;
    int timeout_ms;
    tmsgpy_op_t *op;
    bool over;

    (void)self;
    if (!tmsgpy_takes(args, 3)) {
        return NULL;
    }
    hub = tmsgpy_pointer_at(args, 0);
    op = tmsgpy_op_of(PyTuple_GetItem(args, 1));
    timeout_ms = tmsgpy_int_at(args, 2);
    if (op == NULL) {
        return NULL;
    }
    threads = PyEval_SaveThread();
    if (tmsgpy_hub_enter(hub)) {
        status = op->call != NULL
                     ? tmsg_call_wait(op->call, timeout_ms)
                     : tmsg_request_wait_released(op->request, timeout_ms);
        tmsgpy_hub_leave(hub);
    }
    over = tmsgpy_op_is_over(op);
    PyEval_RestoreThread(threads);
    return !over && status == TMSG_ERR_WOULD_BLOCK ? tmsgpy_raise_would_block()
                                                   : PyBool_FromLong(over);
}

/* cancel(hub, op): gives it up; nothing where it has ended. */
static PyObject *hot_cancel(PyObject *self, PyObject *args)
{
    PyThreadState *threads;
    tmsgpy_hub_t *hub;
    tmsgpy_op_t *op;

    (void)self;
    if (!tmsgpy_takes(args, 2) ||
        (op = tmsgpy_op_of(PyTuple_GetItem(args, 1))) == NULL) {
        return NULL;
    }
    hub = tmsgpy_pointer_at(args, 0);
    threads = PyEval_SaveThread();
    if (tmsgpy_hub_enter(hub)) {
        if (op->call != NULL) {
            tmsg_call_cancel(op->call);
        } else {
            tmsg_request_cancel(op->request);
        }
        tmsgpy_hub_leave(hub);
    }
    PyEval_RestoreThread(threads);
    Py_RETURN_NONE;
}

/* ended(op): whether it has. */
static PyObject *hot_ended(PyObject *self, PyObject *capsule)
{
    tmsgpy_op_t *op = tmsgpy_op_of(capsule);

    (void)self;
    return op == NULL ? NULL : PyBool_FromLong(tmsgpy_op_is_over(op));
}

/* reap(list): takes the operations that have ended out of the list. */
static PyObject *hot_reap(PyObject *self, PyObject *list)
{
    Py_ssize_t count = PyList_Size(list);
    PyObject *ended = PyList_New(0);

    (void)self;
    for (Py_ssize_t i = count; ended != NULL && i-- > 0;) {
        PyObject *capsule = PyList_GetItem(list, i);
        tmsgpy_op_t *op = tmsgpy_op_of(capsule);

        if (op != NULL && tmsgpy_op_is_over(op) &&
            (PyList_Append(ended, capsule) != 0 ||
             PyList_SetSlice(list, i, i + 1, NULL) != 0)) {
            Py_DECREF(ended);
            ended = NULL;
        }
    }
    if (ended != NULL) {
        PyList_Reverse(ended);
    }
    return ended;
}

/* outcome(op, peer): None, or raises; of one that has ended. What came of a
 * call is for result(). */
static PyObject *hot_outcome(PyObject *self, PyObject *args)
{
    tmsg_status_t status;
    PyObject *peer, *utf8;
    tmsgpy_op_t *op;

    (void)self;
    if (!tmsgpy_takes(args, 2) ||
        (op = tmsgpy_op_of(PyTuple_GetItem(args, 0))) == NULL) {
        return NULL;
    }
    status = op->call != NULL ? TMSG_OK : tmsg_request_test(op->request);
    if (status >= 0) {
        Py_RETURN_NONE;
    }
    peer = PyTuple_GetItem(args, 1);
    utf8 = PyUnicode_AsUTF8String(peer);
    tmsgpy_raise(status, tmsg_request_error(op->request),
                 utf8 == NULL ? NULL : PyBytes_AsString(utf8));
    Py_XDECREF(utf8);
    return NULL;
}

typedef PyObject *(*export_fn)(const tmsg_tensor_t *, PyObject *);

static PyObject *export(PyObject *args, export_fn make)
{
    tmsg_tensor_t tensor;
    PyObject *owner;

    if (!tmsgpy_takes(args, 2)) {
        return NULL;
    }
    owner = PyTuple_GetItem(args, 0);
    return tmsgpy_tensor_at(owner, tmsgpy_int_at(args, 1), &tensor) == 0
               ? make(&tensor, owner)
               : NULL;
}

/* array(owner, index), raw(owner, index) */
static PyObject *hot_array(PyObject *self, PyObject *args)
{
    (void)self;
    return export(args, tmsgpy_array_of);
}

static PyObject *hot_raw(PyObject *self, PyObject *args)
{
    (void)self;
    return export(args, tmsgpy_bytes_of);
}

/* dlpack(owner, index, versioned): a capsule. */
static PyObject *hot_dlpack(PyObject *self, PyObject *args)
{
    (void)self;
    return tmsgpy_takes(args, 3)
               ? tmsgpy_dlpack_at(PyTuple_GetItem(args, 0),
                                  tmsgpy_int_at(args, 1),
                                  PyTuple_GetItem(args, 2) == Py_True)
               : NULL;
}

/* dtype(owner, index): its name. */
static PyObject *name_dtype(const tmsg_tensor_t *tensor, PyObject *owner)
{
    char name[TMSG_DTYPE_NAME_MAX];

    (void)owner;
    return PyUnicode_FromString(
        tmsg_dtype_format(tensor->dtype, name, sizeof(name)));
}

static PyObject *hot_dtype(PyObject *self, PyObject *args)
{
    (void)self;
    return export(args, name_dtype);
}

/* shape(owner, index): a tuple. */
static PyObject *tell_shape(const tmsg_tensor_t *tensor, PyObject *owner)
{
    PyObject *shape = PyTuple_New(tensor->ndim);

    (void)owner;
    for (int i = 0; shape != NULL && i < tensor->ndim; i++) {
        PyObject *extent = PyLong_FromLongLong(tensor->shape[i]);

        if (extent == NULL || PyTuple_SetItem(shape, i, extent) != 0) {
            Py_DECREF(shape);
            shape = NULL;
        }
    }
    return shape;
}

static PyObject *hot_shape(PyObject *self, PyObject *args)
{
    (void)self;
    return export(args, tell_shape);
}

/* device(owner, index): (DLPack's type, number). */
static PyObject *name_device(const tmsg_tensor_t *tensor, PyObject *owner)
{
    (void)owner;
    return Py_BuildValue("(ii)", (int)tensor->device.type,
                         (int)tensor->device.id);
}

static PyObject *hot_device(PyObject *self, PyObject *args)
{
    (void)self;
    return export(args, name_device);
}

/* register(dtype, code, bits) */
static PyObject *hot_register(PyObject *self, PyObject *args)
{
    (void)self;
    if (!tmsgpy_takes(args, 3) ||
        tmsgpy_arrays_register(PyTuple_GetItem(args, 0), tmsgpy_int_at(args, 1),
                               tmsgpy_int_at(args, 2)) != 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* setup(error_of): how an exception is made. */
static PyObject *hot_setup(PyObject *self, PyObject *maker)
{
    (void)self;
    tmsgpy_raise_by(maker);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"send", hot_send, METH_VARARGS, NULL},
    {"recv", hot_recv, METH_VARARGS, NULL},
    {"progress", hot_progress, METH_VARARGS, NULL},
    {"came", hot_came, METH_O, NULL},
    {"readable", hot_readable, METH_VARARGS, NULL},
    {"arm", hot_arm, METH_O, NULL},
    {"op", hot_op, METH_VARARGS, NULL},
    {"wait", hot_wait, METH_VARARGS, NULL},
    {"cancel", hot_cancel, METH_VARARGS, NULL},
    {"ping", tmsgpy_ping, METH_VARARGS, NULL},
    {"echo", tmsgpy_echo, METH_VARARGS, NULL},
    {"ended", hot_ended, METH_O, NULL},
    {"reap", hot_reap, METH_O, NULL},
    {"outcome", hot_outcome, METH_VARARGS, NULL},
    {"publish", tmsgpy_publish, METH_VARARGS, NULL},
    {"send_queued", tmsgpy_send_queued, METH_VARARGS, NULL},
    {"call", tmsgpy_call, METH_VARARGS, NULL},
    {"result", tmsgpy_result, METH_O, NULL},
    {"fetch", tmsgpy_fetch, METH_VARARGS, NULL},
    {"bell", tmsgpy_bell, METH_VARARGS, NULL},
    {"bell_ring", tmsgpy_bell_ring, METH_VARARGS, NULL},
    {"bell_line", tmsgpy_bell_line, METH_O, NULL},
    {"bell_state", tmsgpy_bell_state, METH_O, NULL},
    {"bell_warm", tmsgpy_bell_warm, METH_VARARGS, NULL},
    {"bell_end", tmsgpy_bell_end, METH_O, NULL},
    {"offer", tmsgpy_offer, METH_VARARGS, NULL},
    {"offer_end", tmsgpy_offer_end, METH_VARARGS, NULL},
    {"offer_state", tmsgpy_offer_state, METH_O, NULL},
    {"task", tmsgpy_task, METH_VARARGS, NULL},
    {"answer", tmsgpy_answer, METH_VARARGS, NULL},
    {"released", tmsgpy_released, METH_NOARGS, NULL},
    {"refuse", tmsgpy_refuse, METH_VARARGS, NULL},
    {"task_state", tmsgpy_task_state, METH_O, NULL},
    {"task_put_off", tmsgpy_task_put_off, METH_O, NULL},
    {"map_meta", tmsgpy_map_meta, METH_O, NULL},
    {"add_meta", tmsgpy_add_meta, METH_VARARGS, NULL},
    {"request_map", tmsgpy_request_map, METH_O, NULL},
    {"task_begin", tmsgpy_task_begin, METH_O, NULL},
    {"stream_open", tmsgpy_stream_open, METH_VARARGS, NULL},
    {"stream_send", tmsgpy_stream_send, METH_VARARGS, NULL},
    {"stream_recv", tmsgpy_stream_recv, METH_VARARGS, NULL},
    {"stream_finish", tmsgpy_stream_finish, METH_O, NULL},
    {"stream_end", tmsgpy_stream_end, METH_VARARGS, NULL},
    {"stream_cancel", tmsgpy_stream_cancel, METH_O, NULL},
    {"stream_wait", tmsgpy_stream_wait, METH_VARARGS, NULL},
    {"stream_state", tmsgpy_stream_state, METH_O, NULL},
    {"stream_result", tmsgpy_stream_result, METH_O, NULL},
    {"stream_watch", tmsgpy_stream_watching, METH_O, NULL},
    {"view", tmsgpy_view, METH_VARARGS, NULL},
    {"posted", tmsgpy_posted, METH_O, NULL},
    {"renew", tmsgpy_renew, METH_VARARGS, NULL},
    {"left", tmsgpy_left, METH_VARARGS, NULL},
    {"taken", tmsgpy_taken, METH_O, NULL},
    {"recv_into", tmsgpy_recv_into, METH_VARARGS, NULL},
    {"told", tmsgpy_told, METH_O, NULL},
    {"rest", tmsgpy_rest, METH_VARARGS, NULL},
    {"apart", tmsgpy_apart, METH_VARARGS, NULL},
    {"owner", tmsgpy_owner, METH_O, NULL},
    {"block", tmsgpy_block, METH_O, NULL},
    {"block_given", tmsgpy_block_given, METH_O, NULL},
    {"borrows", tmsgpy_borrows, METH_O, NULL},
    {"is_lent", tmsgpy_is_lent, METH_O, NULL},
    {"in_block", tmsgpy_in_block, METH_O, NULL},
    {"array", hot_array, METH_VARARGS, NULL},
    {"raw", hot_raw, METH_VARARGS, NULL},
    {"dlpack", hot_dlpack, METH_VARARGS, NULL},
    {"dtype", hot_dtype, METH_VARARGS, NULL},
    {"shape", hot_shape, METH_VARARGS, NULL},
    {"device", hot_device, METH_VARARGS, NULL},
    {"device_tensor", tmsgpy_device_tensor, METH_VARARGS, NULL},
    {"device_memory", tmsgpy_device_memory, METH_VARARGS, NULL},
    {"register", hot_register, METH_VARARGS, NULL},
    {"shown", tmsgpy_shown, METH_O, NULL},
    {"file_load", tmsgpy_file_load, METH_VARARGS, NULL},
    {"file_save", tmsgpy_file_save, METH_VARARGS, NULL},
    {"load_zip", tmsgpy_load_zip, METH_NOARGS, NULL},
    {"setup", hot_setup, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    "tensormsg._hot",
    NULL,
    -1,
    functions,
    NULL,
    NULL,
    NULL,
    NULL,
};

/* What is here counts on the lock of the interpreter: one that goes without
 * (3.13t and later) takes it up when this is imported. */
PyMODINIT_FUNC PyInit__hot(void)
{
    PyObject *made =
        tmsgpy_arrays_init() == 0 ? PyModule_Create(&module) : NULL;

#ifdef Py_GIL_DISABLED
    if (made != NULL) {
        PyUnstable_Module_SetGIL(made, Py_MOD_GIL_USED);
    }
#endif
    return made;
}
