/* SPDX-License-Identifier: BSD-3-Clause */
/* Bells: part of module tensormsg._hot. */
#include "bells.h"

#include <stdatomic.h>
#include <stdlib.h>

#include <tensormsg/bell.h>

#include "errors.h"
#include "hub_impl.h"
#include "lent.h"
#include "ops.h"
#include "pack.h"

#define CAPSULE "tensormsg.bell"

/* A bell. Its capsule has a reference until it is ended, and so has each call
 * that is in it without the interpreter's lock. */
typedef struct {
    tmsgpy_stream_t *handle;
    atomic_uint refs;
    bool ended;
    unsigned forks; /* that there had been */
} bell_t;

static bell_t *bell_of(PyObject *capsule)
{
    return PyCapsule_GetPointer(capsule, CAPSULE);
}

/* Without the interpreter's lock, for which a thread may wait that has the
 * worker's. */
static void drop_bell(bell_t *bell)
{
    if (atomic_fetch_sub(&bell->refs, 1) == 1) {
        tmsgpy_stream_drop(bell->handle);
        free(bell);
    }
}

static void end_bell(bell_t *bell)
{
    PyThreadState *threads;

    if (!bell->ended && bell->forks == tmsgpy_forks()) {
        bell->ended = true;
        threads = PyEval_SaveThread();
        drop_bell(bell);
        PyEval_RestoreThread(threads);
    }
    tmsgpy_drop_lent();
}

/* Its record may be gone when it has been ended. */
static void drop_capsule(PyObject *capsule)
{
    bell_t *bell = bell_of(capsule);

    if (PyCapsule_GetContext(capsule) == NULL) {
        end_bell(bell);
    }
}

/* Takes a reference to a bell that was not ended; NULL with an exception. */
static bell_t *enter(PyObject *capsule)
{
    bell_t *bell = bell_of(capsule);

    if (bell == NULL) {
        return NULL;
    }
    if (PyCapsule_GetContext(capsule) != NULL) {
        tmsgpy_raise_of(TMSG_ERR_CLOSED, "the bell was closed here", NULL);
        return NULL;
    }
    atomic_fetch_add(&bell->refs, 1);
    return bell;
}

static void leave(bell_t *bell)
{
    PyThreadState *threads = PyEval_SaveThread();

    drop_bell(bell);
    PyEval_RestoreThread(threads);
}

static PyObject *leave_with(bell_t *bell, tmsg_status_t status)
{
    leave(bell);
    if (status != TMSG_OK) {
        return tmsgpy_raise_of(status, tmsg_error_message(), NULL);
    }
    Py_RETURN_NONE;
}

typedef struct {
    tmsgpy_hub_t *hub;
    tmsg_endpoint_t *endpoint;
    tmsg_send_params_t params;
    int receives;
} wanted_t;

/* Has the map keep the arrays. Takes the reference. False with an exception. */
static bool keep_by(tmsg_map_t *map, PyObject *keep)
{
    tmsg_map_add_params_t params = {.field_mask = TMSG_MAP_ADD_PARAM_RELEASE,
                                    .release = tmsgpy_on_release_soon};
    tmsg_tensor_t first;
    tmsgpy_lent_t *lent;

    if (tmsg_map_at(map, 0, NULL, &first) != TMSG_OK) {
        Py_DECREF(keep);
        PyErr_SetString(PyExc_ValueError, "a bell needs an array");
        return false;
    }
    lent = tmsgpy_lend(keep);
    if (lent == NULL) {
        return false;
    }
    params.release_arg = lent;
    if (tmsg_map_set_data(map, 0, first.data, &params) != TMSG_OK) {
        tmsgpy_unlend(lent);
        tmsgpy_raise(TMSG_ERR_INVALID_PARAM, tmsg_error_message(), NULL);
        return false;
    }
    return true;
}

static PyObject *wrap(tmsgpy_stream_t *handle)
{
    bell_t *bell = calloc(1, sizeof(*bell));
    PyThreadState *threads;
    PyObject *capsule;

    if (bell == NULL) {
        threads = PyEval_SaveThread();
        tmsgpy_stream_drop(handle);
        PyEval_RestoreThread(threads);
        return PyErr_NoMemory();
    }
    bell->handle = handle;
    bell->forks = tmsgpy_forks();
    atomic_init(&bell->refs, 1);
    capsule = PyCapsule_New(bell, CAPSULE, drop_capsule);
    if (capsule == NULL) {
        leave(bell);
    }
    return capsule;
}

static PyObject *make(const wanted_t *wanted, const tmsg_map_t *map)
{
    tmsgpy_stream_t *handle = tmsgpy_bell_handle(wanted->hub);
    tmsg_status_t status = TMSG_ERR_CLOSED;
    tmsg_bell_t *bell = NULL;
    PyThreadState *threads;
    char *peer = NULL;
    bool open;

    if (handle == NULL) {
        return PyErr_NoMemory();
    }
    threads = PyEval_SaveThread();
    open = tmsgpy_hub_enter(wanted->hub);
    if (open) {
        status = wanted->receives
                     ? tmsg_bell_receive(wanted->endpoint, map, &bell)
                     : tmsg_bell_create(wanted->endpoint, map, &wanted->params,
                                        &bell);
        peer = status == TMSG_OK ? NULL : tmsgpy_peer_words(wanted->endpoint);
        tmsgpy_hub_leave(wanted->hub);
    }
    tmsgpy_bell_own(handle, bell);
    if (status != TMSG_OK) {
        tmsgpy_stream_drop(handle);
    }
    PyEval_RestoreThread(threads);
    if (status != TMSG_OK) {
        return open ? tmsgpy_raise_of(status, tmsg_error_message(), peer)
                    : tmsgpy_raise_closed();
    }
    return wrap(handle);
}

/* bell(hub, endpoint, data, meta, flags, timeout_ms, receives): a bell of these
 * arrays, which it keeps; NotImplemented where data has to be converted. */
PyObject *tmsgpy_bell(PyObject *self, PyObject *args)
{
    wanted_t wanted = {.params = {.field_mask = TMSG_SEND_PARAM_FLAGS |
                                                TMSG_SEND_PARAM_TIMEOUT}};
    PyObject *data, *meta, *keep, *result;
    unsigned long long hub, endpoint;
    tmsg_map_t *map;

    (void)self;
    tmsgpy_drop_lent();
    if (!PyArg_ParseTuple(args, "KKOOIip", &hub, &endpoint, &data, &meta,
                          &wanted.params.flags, &wanted.params.timeout_ms,
                          &wanted.receives)) {
        return NULL;
    }
    wanted.hub = (tmsgpy_hub_t *)(uintptr_t)hub;
    wanted.endpoint = (tmsg_endpoint_t *)(uintptr_t)endpoint;
    map = tmsgpy_pack_new(data, meta, &keep, &result);
    if (map == NULL) {
        return result;
    }
    result = keep_by(map, keep) ? make(&wanted, map) : NULL;
    tmsg_map_destroy(map); /* the bell holds it */
    return result;
}

/* bell_ring(bell, stream, awaits): has a stream ring it, or wait for it. */
PyObject *tmsgpy_bell_ring(PyObject *self, PyObject *args)
{
    unsigned long long handle;
    PyThreadState *threads;
    tmsg_status_t status;
    tmsg_stream_t stream;
    PyObject *capsule;
    bell_t *bell;
    int awaits;

    (void)self;
    if (!PyArg_ParseTuple(args, "OKp", &capsule, &handle, &awaits) ||
        (bell = enter(capsule)) == NULL) {
        return NULL;
    }
    stream = (tmsg_stream_t){TMSG_STREAM_CUDA, handle};
    threads = PyEval_SaveThread();
    status = awaits ? tmsg_bell_await(tmsgpy_bell_of(bell->handle), stream)
                    : tmsg_bell_ring(tmsgpy_bell_of(bell->handle), stream);
    PyEval_RestoreThread(threads);
    return leave_with(bell, status);
}

/* bell_line(bell): the address that a kernel is given. */
PyObject *tmsgpy_bell_line(PyObject *self, PyObject *capsule)
{
    bell_t *bell = enter(capsule);
    tmsg_status_t status;
    PyObject *none;
    void *line;

    (void)self;
    if (bell == NULL) {
        return NULL;
    }
    status = tmsg_bell_device(tmsgpy_bell_of(bell->handle), &line);
    none = leave_with(bell, status);
    if (none == NULL) {
        return NULL;
    }
    Py_DECREF(none);
    return PyLong_FromVoidPtr(line);
}

/* bell_state(bell): (status, words). */
PyObject *tmsgpy_bell_state(PyObject *self, PyObject *capsule)
{
    bell_t *bell = enter(capsule);
    PyObject *state;

    (void)self;
    if (bell == NULL) {
        return NULL;
    }
    state = Py_BuildValue("(is)",
                          (int)tmsg_bell_status(tmsgpy_bell_of(bell->handle)),
                          tmsg_bell_error(tmsgpy_bell_of(bell->handle)));
    leave(bell);
    return state;
}

/* bell_warm(hub, bell, timeout_ms): whether it is warm. */
PyObject *tmsgpy_bell_warm(PyObject *self, PyObject *args)
{
    tmsg_status_t status = TMSG_ERR_CLOSED;
    PyThreadState *threads;
    unsigned long long hub;
    PyObject *capsule;
    bell_t *bell;
    int timeout_ms;
    bool open;

    (void)self;
    if (!PyArg_ParseTuple(args, "KOi", &hub, &capsule, &timeout_ms) ||
        (bell = enter(capsule)) == NULL) {
        return NULL;
    }
    threads = PyEval_SaveThread();
    open = tmsgpy_hub_enter((tmsgpy_hub_t *)(uintptr_t)hub);
    if (open) {
        status = tmsg_bell_warm(tmsgpy_bell_of(bell->handle), timeout_ms);
        tmsgpy_hub_leave((tmsgpy_hub_t *)(uintptr_t)hub);
    }
    PyEval_RestoreThread(threads);
    leave(bell);
    if (!open) {
        return tmsgpy_raise_closed();
    }
    return status == TMSG_OK || status == TMSG_ERR_TIMED_OUT
               ? PyBool_FromLong(status == TMSG_OK)
               : tmsgpy_raise_of(status, tmsg_error_message(), NULL);
}

/* bell_end(bell): ends it. */
PyObject *tmsgpy_bell_end(PyObject *self, PyObject *capsule)
{
    bell_t *bell = bell_of(capsule);

    (void)self;
    if (bell == NULL) {
        return NULL;
    }
    if (PyCapsule_GetContext(capsule) == NULL) {
        if (PyCapsule_SetContext(capsule, capsule) != 0) {
            return NULL;
        }
        end_bell(bell);
    }
    Py_RETURN_NONE;
}
