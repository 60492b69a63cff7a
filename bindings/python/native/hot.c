/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls of every message: module tensormsg._hot. Hubs, endpoints and
 * requests come as the numbers of their addresses; whoever calls keeps them. */
#include <Python.h>

#include <stdbool.h>
#include <time.h>

#include <tensormsg/endpoint.h>

#include "arrays.h"
#include "hub.h"
#include "measure.h"
#include "pack.h"

#define SPARE_MAX 8

static PyObject *error_of; /* makes an exception of (status, reason, peer) */
static tmsg_map_t *spare[SPARE_MAX];
static unsigned spare_count;

/* A request and what must live until it has ended. */
typedef struct {
    tmsg_request_t *request;
    PyObject *keep;
} op_t;

PyObject *tmsgpy_raise(tmsg_status_t status, const char *reason,
                       const char *peer)
{
    PyObject *error =
        PyObject_CallFunction(error_of, "isz", (int)status, reason, peer);

    if (error != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_DECREF(error);
    }
    return NULL;
}

static PyObject *raise_closed(void)
{
    return tmsgpy_raise(TMSG_ERR_CLOSED, "it was closed here", NULL);
}

static void *pointer_at(PyObject *args, Py_ssize_t index)
{
    return PyLong_AsVoidPtr(PyTuple_GetItem(args, index));
}

static long number_at(PyObject *args, Py_ssize_t index)
{
    return PyLong_AsLong(PyTuple_GetItem(args, index));
}

static bool takes(PyObject *args, Py_ssize_t count)
{
    if (PyTuple_Size(args) != count) {
        PyErr_SetString(PyExc_TypeError, "wrong number of arguments");
        return false;
    }
    return true;
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

/* Given up is not over while UCX may read what was lent. */
static bool is_over(const tmsg_request_t *request)
{
    tmsg_status_t status = tmsg_request_test(request);

    return status != TMSG_IN_PROGRESS && status != TMSG_CANCEL_PENDING;
}

/* What a request still reads is never given back: where the worker lives on
 * without us, it leaks. */
static void drop_op(PyObject *capsule)
{
    op_t *op = PyCapsule_GetPointer(capsule, "tensormsg.op");

    if (is_over(op->request)) {
        Py_DECREF(op->keep);
    }
    tmsg_request_destroy(op->request);
    PyMem_Free(op);
}

/* Takes the request and the reference to keep. */
static PyObject *make_op(tmsg_request_t *request, PyObject *keep)
{
    op_t *op = PyMem_Malloc(sizeof(*op));
    PyObject *capsule = NULL;

    if (op != NULL) {
        *op = (op_t){request, keep};
        capsule = PyCapsule_New(op, "tensormsg.op", drop_op);
    }
    return capsule == NULL ? PyErr_NoMemory() : capsule;
}

static op_t *op_of(PyObject *capsule)
{
    return PyCapsule_GetPointer(capsule, "tensormsg.op");
}

static tmsg_map_t *take_map(void)
{
    tmsg_map_t *map;

    if (spare_count > 0) {
        return spare[--spare_count];
    }
    return tmsg_map_create(&map) == TMSG_OK ? map : NULL;
}

static void give_map(tmsg_map_t *map)
{
    if (spare_count < SPARE_MAX && tmsg_map_clear(map) == TMSG_OK) {
        spare[spare_count++] = map;
    } else {
        tmsg_map_destroy(map);
    }
}

static void spin(tmsg_worker_t *worker, const tmsg_request_t *request,
                 long spin_us)
{
    uint64_t until = spin_us > 0 ? now_ns() + (uint64_t)spin_us * 1000 : 0;

    while (tmsg_request_test(request) == TMSG_IN_PROGRESS &&
           (tmsg_worker_progress(worker) > 0 ||
            (until != 0 && now_ns() < until))) {
    }
}

static PyObject *post(tmsgpy_hub_t *hub, tmsg_endpoint_t *endpoint,
                      const tmsg_map_t *map, unsigned flags, long spin_us,
                      tmsg_request_t **request_p)
{
    PyThreadState *threads;
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                       .flags = flags};
    tmsg_status_t status = TMSG_ERR_CLOSED;
    bool open;

    threads = PyEval_SaveThread();
    open = tmsgpy_hub_enter(hub);
    if (open) {
        status = tmsg_endpoint_send(endpoint, map, &params, request_p);
        if (status == TMSG_OK) {
            spin(tmsgpy_hub_worker(hub), *request_p, spin_us);
            status = tmsg_request_test(*request_p);
        }
        tmsgpy_hub_leave(hub);
    }
    PyEval_RestoreThread(threads);
    if (!open) {
        return raise_closed();
    }
    if (status < 0 && *request_p == NULL) {
        return tmsgpy_raise(status, tmsg_error_message(),
                            tmsg_endpoint_peer(endpoint));
    }
    if (status < 0) {
        return tmsgpy_raise(status, tmsg_request_error(*request_p),
                            tmsg_endpoint_peer(endpoint));
    }
    Py_RETURN_NONE;
}

/* send(hub, endpoint, data, meta, flags, spin_us): None when it has ended, else
 * an operation; NotImplemented where data has to be converted first. */
static PyObject *hot_send(PyObject *self, PyObject *args)
{
    tmsg_request_t *request = NULL;
    PyObject *data, *keep, *result;
    tmsg_map_t *map;
    int packed;

    (void)self;
    if (!takes(args, 6)) {
        return NULL;
    }
    data = PyTuple_GetItem(args, 2);
    map = take_map();
    if (map == NULL) {
        return PyErr_NoMemory();
    }
    packed = tmsgpy_pack(data, PyTuple_GetItem(args, 3), map);
    if (packed != 1) {
        give_map(map);
        if (packed == 0) {
            Py_INCREF(Py_NotImplemented);
        }
        return packed == 0 ? Py_NotImplemented : NULL;
    }
    keep = PyDict_Values(data); /* who has the dict may change it meanwhile */
    result = keep == NULL ? NULL
                          : post(pointer_at(args, 0), pointer_at(args, 1), map,
                                 (unsigned)number_at(args, 4),
                                 number_at(args, 5), &request);
    if (request != NULL && tmsg_request_test(request) == TMSG_IN_PROGRESS) {
        tmsg_map_destroy(map);
        Py_DECREF(result);
        return make_op(request, keep);
    }
    tmsg_request_destroy(request);
    give_map(map);
    Py_XDECREF(keep);
    return result;
}

/* Waits up to timeout_ms; 0 looks, for spin_us. */
static tmsg_status_t pull(tmsg_worker_t *worker, tmsg_endpoint_t *endpoint,
                          long timeout_ms, long spin_us,
                          tmsg_message_t **message_p)
{
    uint64_t until = spin_us > 0 ? now_ns() + (uint64_t)spin_us * 1000 : 0;
    tmsg_status_t status;

    for (;;) {
        status = endpoint != NULL
                     ? tmsg_endpoint_recv(endpoint, (int)timeout_ms, message_p)
                     : tmsg_worker_recv(worker, (int)timeout_ms, message_p);
        if (status != TMSG_ERR_TIMED_OUT || until == 0 || now_ns() >= until) {
            return status;
        }
        while (tmsg_worker_progress(worker) == 0 && now_ns() < until) {
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
    long timeout_ms, spin_us;
    bool open;

    (void)self;
    if (!takes(args, 4)) {
        return NULL;
    }
    hub = pointer_at(args, 0);
    endpoint = pointer_at(args, 1);
    timeout_ms = number_at(args, 2);
    spin_us = number_at(args, 3);
    threads = PyEval_SaveThread();
    open = tmsgpy_hub_enter(hub);
    if (open) {
        status = pull(tmsgpy_hub_worker(hub), endpoint, timeout_ms, spin_us,
                      &message);
        tmsgpy_hub_leave(hub);
    }
    PyEval_RestoreThread(threads);
    if (!open) {
        return raise_closed();
    }
    if (status == TMSG_ERR_TIMED_OUT) {
        Py_RETURN_NONE;
    }
    if (status != TMSG_OK) {
        return tmsgpy_raise(status, tmsg_error_message(),
                            endpoint != NULL ? tmsg_endpoint_peer(endpoint)
                                             : NULL);
    }
    return tmsgpy_unpack(message);
}

/* progress(hub): the number of events handled; nothing where it is closed. */
static PyObject *hot_progress(PyObject *self, PyObject *number)
{
    PyThreadState *threads;
    tmsgpy_hub_t *hub = PyLong_AsVoidPtr(number);
    unsigned count = 0;

    (void)self;
    threads = PyEval_SaveThread();
    if (tmsgpy_hub_enter(hub)) {
        for (unsigned i = 0, now = 1; i < 256 && now > 0; i++) {
            now = tmsg_worker_progress(tmsgpy_hub_worker(hub));
            count += now;
        }
        tmsgpy_hub_leave(hub);
    }
    PyEval_RestoreThread(threads);
    return PyLong_FromUnsignedLong(count);
}

/* arm(hub): False where there is work, True where one may sleep. */
static PyObject *hot_arm(PyObject *self, PyObject *number)
{
    PyThreadState *threads;
    tmsgpy_hub_t *hub = PyLong_AsVoidPtr(number);
    tmsg_status_t status = TMSG_OK;

    (void)self;
    threads = PyEval_SaveThread();
    if (tmsgpy_hub_enter(hub)) {
        status = tmsg_worker_arm(tmsgpy_hub_worker(hub));
        tmsgpy_hub_leave(hub);
    }
    PyEval_RestoreThread(threads);
    return PyBool_FromLong(status != TMSG_ERR_BUSY);
}

/* op(request, keep): an operation of a request, which it takes. */
static PyObject *hot_op(PyObject *self, PyObject *args)
{
    PyObject *keep;

    (void)self;
    if (!takes(args, 2)) {
        return NULL;
    }
    keep = PyTuple_GetItem(args, 1);
    Py_INCREF(keep);
    return make_op(pointer_at(args, 0), keep);
}

/* wait(hub, op, timeout_ms): whether it has ended. */
static PyObject *hot_wait(PyObject *self, PyObject *args)
{
    PyThreadState *threads;
    tmsgpy_hub_t *hub;
    long timeout_ms;
    bool over;
    op_t *op;

    (void)self;
    if (!takes(args, 3)) {
        return NULL;
    }
    hub = pointer_at(args, 0);
    op = op_of(PyTuple_GetItem(args, 1));
    timeout_ms = number_at(args, 2);
    if (op == NULL) {
        return NULL;
    }
    threads = PyEval_SaveThread();
    if (tmsgpy_hub_enter(hub)) {
        tmsg_request_wait_released(op->request, (int)timeout_ms);
        tmsgpy_hub_leave(hub);
    }
    over = is_over(op->request);
    PyEval_RestoreThread(threads);
    return PyBool_FromLong(over);
}

/* cancel(hub, op): gives it up; nothing where it has ended. */
static PyObject *hot_cancel(PyObject *self, PyObject *args)
{
    PyThreadState *threads;
    tmsgpy_hub_t *hub;
    op_t *op;

    (void)self;
    if (!takes(args, 2) || (op = op_of(PyTuple_GetItem(args, 1))) == NULL) {
        return NULL;
    }
    hub = pointer_at(args, 0);
    threads = PyEval_SaveThread();
    if (tmsgpy_hub_enter(hub)) {
        tmsg_request_cancel(op->request);
        tmsgpy_hub_leave(hub);
    }
    PyEval_RestoreThread(threads);
    Py_RETURN_NONE;
}

/* ended(op): whether it has. */
static PyObject *hot_ended(PyObject *self, PyObject *capsule)
{
    op_t *op = op_of(capsule);

    (void)self;
    return op == NULL ? NULL : PyBool_FromLong(is_over(op->request));
}

/* reap(list): takes the operations that have ended out of the list. */
static PyObject *hot_reap(PyObject *self, PyObject *list)
{
    Py_ssize_t count = PyList_Size(list);
    PyObject *ended = PyList_New(0);

    (void)self;
    for (Py_ssize_t i = count; ended != NULL && i-- > 0;) {
        PyObject *capsule = PyList_GetItem(list, i);
        op_t *op = op_of(capsule);

        if (op != NULL && is_over(op->request) &&
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

/* outcome(op, peer): None, or raises; of one that has ended. */
static PyObject *hot_outcome(PyObject *self, PyObject *args)
{
    tmsg_status_t status;
    PyObject *peer, *utf8;
    op_t *op;

    (void)self;
    if (!takes(args, 2) || (op = op_of(PyTuple_GetItem(args, 0))) == NULL) {
        return NULL;
    }
    status = tmsg_request_test(op->request);
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

    if (!takes(args, 2)) {
        return NULL;
    }
    owner = PyTuple_GetItem(args, 0);
    return tmsgpy_tensor_at(owner, number_at(args, 1), &tensor) == 0
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
    return takes(args, 3)
               ? tmsgpy_dlpack_at(PyTuple_GetItem(args, 0), number_at(args, 1),
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

/* register(dtype, code, bits) */
static PyObject *hot_register(PyObject *self, PyObject *args)
{
    (void)self;
    if (!takes(args, 3) ||
        tmsgpy_arrays_register(PyTuple_GetItem(args, 0),
                               (int)number_at(args, 1),
                               (int)number_at(args, 2)) != 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* setup(error_of): how an exception is made. */
static PyObject *hot_setup(PyObject *self, PyObject *maker)
{
    (void)self;
    Py_INCREF(maker);
    Py_XDECREF(error_of);
    error_of = maker;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"send", hot_send, METH_VARARGS, NULL},
    {"recv", hot_recv, METH_VARARGS, NULL},
    {"progress", hot_progress, METH_O, NULL},
    {"arm", hot_arm, METH_O, NULL},
    {"op", hot_op, METH_VARARGS, NULL},
    {"wait", hot_wait, METH_VARARGS, NULL},
    {"cancel", hot_cancel, METH_VARARGS, NULL},
    {"ping", tmsgpy_ping, METH_VARARGS, NULL},
    {"echo", tmsgpy_echo, METH_VARARGS, NULL},
    {"ended", hot_ended, METH_O, NULL},
    {"reap", hot_reap, METH_O, NULL},
    {"outcome", hot_outcome, METH_VARARGS, NULL},
    {"array", hot_array, METH_VARARGS, NULL},
    {"raw", hot_raw, METH_VARARGS, NULL},
    {"dlpack", hot_dlpack, METH_VARARGS, NULL},
    {"dtype", hot_dtype, METH_VARARGS, NULL},
    {"register", hot_register, METH_VARARGS, NULL},
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

PyMODINIT_FUNC PyInit__hot(void)
{
    return tmsgpy_arrays_init() == 0 ? PyModule_Create(&module) : NULL;
}
