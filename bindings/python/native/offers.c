/* SPDX-License-Identifier: BSD-3-Clause */
/* Offers, and fetches of a peer's: part of module tensormsg._hot. */
#include "offers.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <tensormsg/offer.h>

#include "arrays.h"
#include "blocks.h"
#include "errors.h"
#include "hub_impl.h"
#include "kept.h"
#include "lent.h"
#include "ops.h"
#include "pack.h"

/* One slice, with room for its numbers. */
typedef struct {
    tmsg_slice_t slice;
    int64_t start[TMSGPY_NDIM_MAX], count[TMSGPY_NDIM_MAX];
} box_t;

typedef struct {
    tmsgpy_hub_t *hub;
    tmsg_endpoint_t *endpoint;
    bool by_key;
    tmsg_offer_key_t key;
    const char *name;
    uint64_t at_least;
    tmsg_fetch_params_t params;
    int spin_us;
    tmsgpy_posted_t *posted; /* NULL: none */
} wanted_t;

static tmsg_status_t begin(const wanted_t *wanted, tmsg_call_t **call_p)
{
    return wanted->by_key
               ? tmsg_endpoint_fetch(wanted->endpoint, &wanted->key,
                                     &wanted->params, call_p)
               : tmsg_endpoint_fetch_name(wanted->endpoint, wanted->name,
                                          wanted->at_least, &wanted->params,
                                          call_p);
}

static PyObject *fetch(const wanted_t *wanted)
{
    PyThreadState *threads;
    tmsg_status_t status = TMSG_ERR_CLOSED;
    tmsg_call_t *call = NULL;
    uint64_t until = tmsgpy_until(wanted->spin_us);
    char *peer = NULL;
    bool open;

    threads = PyEval_SaveThread();
    open = tmsgpy_hub_enter(wanted->hub);
    if (open) {
        tmsg_worker_t *worker = tmsgpy_hub_worker(wanted->hub);

        status = begin(wanted, &call);
        while (status == TMSG_OK &&
               tmsg_call_status(call) == TMSG_IN_PROGRESS &&
               (tmsg_worker_progress(worker) > 0 ||
                tmsgpy_polls_on(worker, until))) {
        }
        peer = status != TMSG_OK ? tmsgpy_peer_words(wanted->endpoint) : NULL;
        tmsgpy_hub_leave(wanted->hub);
    }
    PyEval_RestoreThread(threads);
    if (status == TMSG_OK) {
        return tmsgpy_op_call(call, wanted->posted);
    }
    return open ? tmsgpy_raise_of(status, tmsg_error_message(), peer)
                : tmsgpy_raise_closed();
}

static PyObject *claim_and_fetch(wanted_t *wanted)
{
    PyObject *result;

    if (wanted->posted == NULL) {
        return fetch(wanted);
    }
    if (!tmsgpy_posted_claim(wanted->posted, wanted->hub, &result)) {
        return result;
    }
    wanted->params.into = tmsgpy_posted_map(wanted->posted);
    result = fetch(wanted);
    tmsgpy_posted_forgo(wanted->posted);
    return result;
}

/* Reads (name, as, starts, counts). The texts live as long as `item`. */
static bool read_box(PyObject *item, box_t *box)
{
    PyObject *starts, *counts;
    Py_ssize_t ndim;

    if (!PyArg_ParseTuple(item, "ssO!O!", &box->slice.name, &box->slice.as,
                          &PyTuple_Type, &starts, &PyTuple_Type, &counts)) {
        return false;
    }
    ndim = PyTuple_Size(starts);
    if (ndim > TMSGPY_NDIM_MAX || PyTuple_Size(counts) != ndim) {
        PyErr_SetString(PyExc_ValueError, "a slice has too many dimensions");
        return false;
    }
    for (Py_ssize_t i = 0; i < ndim; i++) {
        box->start[i] = PyLong_AsLongLong(PyTuple_GetItem(starts, i));
        box->count[i] = PyLong_AsLongLong(PyTuple_GetItem(counts, i));
    }
    box->slice.ndim = (uint32_t)ndim;
    return !PyErr_Occurred();
}

/* Reads a list of slices into arrays that the caller frees. */
static bool read_slices(PyObject *list, box_t **boxes_p,
                        tmsg_slice_t **slices_p)
{
    Py_ssize_t count = PyList_Size(list);

    *boxes_p = count < 0 ? NULL : calloc((size_t)count + 1, sizeof(**boxes_p));
    *slices_p =
        count < 0 ? NULL : calloc((size_t)count + 1, sizeof(**slices_p));
    if (count >= 0 && (*boxes_p == NULL || *slices_p == NULL)) {
        PyErr_NoMemory();
        return false;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!read_box(PyList_GetItem(list, i), &(*boxes_p)[i])) {
            return false;
        }
        (*slices_p)[i] = (*boxes_p)[i].slice;
        (*slices_p)[i].start = (*boxes_p)[i].start;
        (*slices_p)[i].count = (*boxes_p)[i].count;
    }
    return count >= 0;
}

static bool read_key(PyObject *given, wanted_t *wanted)
{
    wanted->by_key = given != Py_None;
    if (!wanted->by_key) {
        return true;
    }
    if (!PyBytes_Check(given) ||
        PyBytes_Size(given) != (Py_ssize_t)sizeof(wanted->key.bytes)) {
        PyErr_SetString(PyExc_ValueError, "a key is bytes, 48 of them");
        return false;
    }
    memcpy(wanted->key.bytes, PyBytes_AsString(given),
           sizeof(wanted->key.bytes));
    return true;
}

/* fetch(hub, endpoint, key or None, name or None, at_least, epoch or None,
 * wait_ms, slices or None, posted or None, timeout_ms, spin_us, flags): an
 * operation, or what a buffer lacks, as of call(). */
PyObject *tmsgpy_fetch(PyObject *self, PyObject *args)
{
    wanted_t wanted = {.params = {.field_mask = TMSG_FETCH_PARAM_TIMEOUT |
                                                TMSG_FETCH_PARAM_WAIT |
                                                TMSG_FETCH_PARAM_FLAGS |
                                                TMSG_FETCH_PARAM_ON_DONE,
                                  .on_done = tmsgpy_on_done}};
    unsigned long long hub, endpoint, at_least;
    PyObject *key, *epoch, *slices, *posted, *result = NULL;
    tmsg_slice_t *made = NULL;
    box_t *boxes = NULL;

    (void)self;
    tmsgpy_drop_lent();
    if (!PyArg_ParseTuple(
            args, "KKOzKOiOOiiI", &hub, &endpoint, &key, &wanted.name,
            &at_least, &epoch, &wanted.params.wait_ms, &slices, &posted,
            &wanted.params.timeout_ms, &wanted.spin_us, &wanted.params.flags) ||
        !read_key(key, &wanted)) {
        return NULL;
    }
    wanted.hub = (tmsgpy_hub_t *)(uintptr_t)hub;
    wanted.endpoint = (tmsg_endpoint_t *)(uintptr_t)endpoint;
    wanted.at_least = at_least;
    wanted.params.on_done_arg = wanted.hub;
    if (epoch != Py_None) {
        wanted.params.epoch = PyLong_AsUnsignedLongLong(epoch);
        wanted.params.field_mask |= TMSG_FETCH_PARAM_EPOCH;
    }
    if (posted != Py_None) {
        wanted.posted = PyCapsule_GetPointer(posted, "tensormsg.posted");
        wanted.params.field_mask |= TMSG_FETCH_PARAM_INTO;
    }
    if (!PyErr_Occurred() &&
        (slices == Py_None || read_slices(slices, &boxes, &made))) {
        if (slices != Py_None) {
            wanted.params.slices = made;
            wanted.params.slice_count = (uint32_t)PyList_Size(slices);
            wanted.params.field_mask |= TMSG_FETCH_PARAM_SLICES;
        }
        result = claim_and_fetch(&wanted);
    }
    free(boxes);
    free(made);
    return result;
}

/* An offer. Its capsule has a reference, and so has its on_release. */
typedef struct {
    tmsgpy_stream_t *handle;
    tmsgpy_lent_t *lent;
    atomic_bool released;
    atomic_uint refs;
    unsigned forks; /* that there had been */
} offered_t;

static void drop_offered(offered_t *offered)
{
    if (atomic_fetch_sub(&offered->refs, 1) == 1) {
        free(offered);
    }
}

static void on_release(void *arg)
{
    offered_t *offered = arg;
    tmsgpy_lent_t *lent = offered->lent;

    atomic_store(&offered->released, true); /* before anybody is told */
    drop_offered(offered);
    tmsgpy_on_release_soon(lent);
}

static offered_t *offered_of(PyObject *capsule)
{
    return PyCapsule_GetPointer(capsule, "tensormsg.offer");
}

/* Ends a live offer. */
static void drop_handle(offered_t *offered)
{
    /* A thread that has the worker's lock may wait for the interpreter's. */
    PyThreadState *threads = PyEval_SaveThread();

    tmsgpy_stream_drop(offered->handle);
    drop_offered(offered);
    PyEval_RestoreThread(threads);
}

static void drop_capsule(PyObject *capsule)
{
    offered_t *offered = offered_of(capsule);

    if (offered->forks != tmsgpy_forks()) {
        return;
    }
    drop_handle(offered);
    tmsgpy_drop_lent();
}

/* Makes a record for an offer of arrays, which are lent. NULL with an
 * exception; the reference is taken in any case. */
static offered_t *make_offered(tmsgpy_hub_t *hub, PyObject *keep,
                               PyObject *told, bool lends)
{
    offered_t *offered = calloc(1, sizeof(*offered));
    tmsg_release_fn unused; /* every offer is told of soon */

    if (offered == NULL) {
        Py_DECREF(keep);
        PyErr_NoMemory();
        return NULL;
    }
    offered->lent = lends ? tmsgpy_lend_frozen(keep, told, &unused)
                          : tmsgpy_lend_told(keep, told);
    if (offered->lent == NULL) {
        free(offered);
        return NULL;
    }
    offered->handle = tmsgpy_offer_handle(hub);
    if (offered->handle == NULL) {
        tmsgpy_unlend(offered->lent);
        free(offered);
        PyErr_NoMemory();
        return NULL;
    }
    atomic_init(&offered->refs, 2);
    offered->forks = tmsgpy_forks();
    return offered;
}

/* Offers the map; the arrays are lent. NULL with an exception. */
static PyObject *offer_map(tmsgpy_hub_t *hub, const tmsg_map_t *map,
                           tmsg_offer_params_t *params, PyObject *keep,
                           PyObject *told)
{
    offered_t *offered =
        make_offered(hub, keep, told, (params->flags & TMSG_OFFER_LEND) != 0);
    tmsg_status_t status = TMSG_ERR_CLOSED;
    tmsg_offer_t *offer = NULL;
    PyThreadState *threads;
    PyObject *capsule;
    bool open;

    if (offered == NULL) {
        return NULL;
    }
    params->on_release = on_release;
    params->on_release_arg = offered;
    threads = PyEval_SaveThread();
    open = tmsgpy_hub_enter(hub);
    if (open) {
        status = tmsg_offer_create(tmsgpy_hub_worker(hub), map, params, &offer);
        tmsgpy_hub_leave(hub);
    }
    PyEval_RestoreThread(threads);
    tmsgpy_offer_own(offered->handle, offer);
    if (status != TMSG_OK) {
        PyObject *raised =
            open ? tmsgpy_raise_of(status, tmsg_error_message(), NULL)
                 : tmsgpy_raise_closed();

        tmsgpy_stream_drop(offered->handle);
        tmsgpy_unlend(offered->lent);
        free(offered);
        return raised;
    }
    capsule = PyCapsule_New(offered, "tensormsg.offer", drop_capsule);
    if (capsule == NULL) {
        drop_handle(offered);
    }
    return capsule;
}

/* offer(hub, data, meta, name or None, version, ttl_ms, fetches, principals or
 * None, told, flags): (the offer, its key); NotImplemented where data has to be
 * converted. released() hands out `told`, unless that is None, when the arrays
 * may be changed. */
PyObject *tmsgpy_offer(PyObject *self, PyObject *args)
{
    tmsg_offer_params_t params = {
        .field_mask = TMSG_OFFER_PARAM_NAME | TMSG_OFFER_PARAM_VERSION |
                      TMSG_OFFER_PARAM_TTL | TMSG_OFFER_PARAM_FETCHES |
                      TMSG_OFFER_PARAM_PRINCIPALS |
                      TMSG_OFFER_PARAM_ON_RELEASE | TMSG_OFFER_PARAM_FLAGS};
    unsigned long long hub, version;
    PyObject *data, *meta, *told, *keep, *capsule, *result;
    tmsg_offer_key_t key;
    tmsg_map_t *map;

    (void)self;
    tmsgpy_drop_lent();
    if (!PyArg_ParseTuple(args, "KOOzKiIzOI", &hub, &data, &meta, &params.name,
                          &version, &params.ttl_ms, &params.fetches,
                          &params.principals, &told, &params.flags)) {
        return NULL;
    }
    params.version = version;
    map = tmsgpy_pack_new(data, meta, &keep, &result);
    if (map == NULL) {
        return result;
    }
    capsule =
        offer_map((tmsgpy_hub_t *)(uintptr_t)hub, map, &params, keep, told);
    tmsgpy_kept_give(map);
    if (capsule == NULL) {
        return NULL;
    }
    tmsg_offer_key(tmsgpy_offer_of(offered_of(capsule)->handle), &key);
    return Py_BuildValue(
        "(NN)", capsule,
        PyBytes_FromStringAndSize((const char *)key.bytes, sizeof(key.bytes)));
}

/* offer_end(hub, offer, timeout_ms): begins to withdraw it. */
PyObject *tmsgpy_offer_end(PyObject *self, PyObject *args)
{
    PyThreadState *threads;
    offered_t *offered;
    tmsgpy_hub_t *hub;
    int timeout_ms;

    (void)self;
    if (!tmsgpy_takes(args, 3) ||
        (offered = offered_of(PyTuple_GetItem(args, 1))) == NULL) {
        return NULL;
    }
    hub = tmsgpy_pointer_at(args, 0);
    timeout_ms = tmsgpy_int_at(args, 2);
    threads = PyEval_SaveThread();
    if (tmsgpy_hub_enter(hub)) {
        (void)tmsg_offer_end(tmsgpy_offer_of(offered->handle), timeout_ms);
        tmsgpy_hub_leave(hub);
    }
    PyEval_RestoreThread(threads);
    tmsgpy_drop_lent();
    Py_RETURN_NONE;
}

/* offer_state(offer): (whether its arrays are free, fetches, failed fetches,
 * bytes, fetches under way). */
PyObject *tmsgpy_offer_state(PyObject *self, PyObject *capsule)
{
    offered_t *offered = offered_of(capsule);
    tmsg_offer_stats_t stats;

    (void)self;
    if (offered == NULL) {
        return NULL;
    }
    tmsgpy_drop_lent();
    tmsg_offer_stats(tmsgpy_offer_of(offered->handle), &stats);
    return Py_BuildValue(
        "(OKKKK)", atomic_load(&offered->released) ? Py_True : Py_False,
        (unsigned long long)stats.fetches, (unsigned long long)stats.failed,
        (unsigned long long)stats.bytes, (unsigned long long)stats.under_way);
}
