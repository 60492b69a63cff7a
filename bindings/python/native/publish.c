/* SPDX-License-Identifier: BSD-3-Clause */
/* Publishing, and sends that nobody waits for: part of module tensormsg._hot.
 */
#include "publish.h"

#include <tensormsg/publisher.h>

#include "blocks.h"
#include "errors.h"
#include "hub.h"
#include "kept.h"
#include "ops.h"

typedef struct {
    tmsgpy_hub_t *hub;
    tmsg_publisher_t *publisher; /* NULL: it goes to the endpoint alone */
    tmsg_endpoint_t *endpoint;
    tmsg_send_params_t params;
    bool copies; /* the arrays, so that they may be changed at once */
    bool waits;  /* until nothing is read of ours any more */
} publishing_t;

/* How it went, and with which words. */
typedef struct {
    tmsg_status_t status;
    const char *failed; /* a tensor that was not copied */
    char *peer;         /* of the endpoint, where that failed; in words */
    bool copied, closed;
    tmsg_request_t *request; /* NULL: nothing is read of ours any more */
} published_t;

static void hand_over(const publishing_t *how, const tmsg_map_t *map,
                      published_t *done)
{
    tmsg_request_t **request_p = how->waits ? &done->request : NULL;

    done->closed = !tmsgpy_hub_enter(how->hub);
    if (done->closed) {
        return;
    }
    if (how->publisher != NULL) {
        done->status = tmsg_publisher_publish(how->publisher, map, &how->params,
                                              request_p);
    } else {
        done->status =
            tmsg_endpoint_send(how->endpoint, map, &how->params, request_p);
        if (done->status < 0) {
            done->peer = tmsgpy_peer_words(how->endpoint);
        }
    }
    tmsgpy_hub_leave(how->hub);
}

/* Without the interpreter's lock. */
static void publish(const publishing_t *how, const tmsg_map_t *map,
                    published_t *done)
{
    const bool gaps = (how->params.flags & TMSG_SEND_KEEP_STRIDES) != 0;
    tmsg_map_t *copy;

    if (!how->copies) {
        done->copied = true;
        hand_over(how, map, done);
        return;
    }
    done->status = tmsgpy_copy_map(map, gaps, &copy, &done->failed);
    done->copied = done->status == TMSG_OK;
    if (done->copied) {
        hand_over(how, copy, done);
        tmsg_map_destroy(copy); /* the publisher holds it */
    }
}

/* Takes the map, and `keep`, which it borrows from. */
static PyObject *outcome(const publishing_t *how, tmsg_map_t *map,
                         PyObject *keep)
{
    published_t done = {.status = TMSG_OK};
    PyThreadState *threads;

    threads = PyEval_SaveThread();
    publish(how, map, &done);
    PyEval_RestoreThread(threads);
    if (done.request != NULL) {
        tmsg_map_destroy(map);
        return tmsgpy_op_make(done.request, keep, NULL);
    }
    if (!done.copied) {
        tmsgpy_raise_copy(done.status, done.failed);
    } else if (done.closed) {
        tmsgpy_raise_closed();
    } else if (done.status != TMSG_OK) {
        tmsgpy_raise_of(done.status, tmsg_error_message(), done.peer);
    }
    tmsgpy_kept_give(map);
    Py_DECREF(keep);
    if (PyErr_Occurred()) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* Has the map keep the values until nobody reads them any more, and the arrays
 * among them read-only. Takes the reference. */
static bool keep_by(tmsg_map_t *map, PyObject *keep)
{
    tmsg_map_add_params_t params = {.field_mask = TMSG_MAP_ADD_PARAM_RELEASE};
    tmsg_tensor_t first;
    tmsgpy_lent_t *lent = tmsgpy_lend_frozen(keep, Py_None, &params.release);
    tmsg_status_t status;

    if (lent == NULL) {
        return false;
    }
    params.release_arg = lent;
    status = tmsg_map_at(map, 0, NULL, &first);
    if (status == TMSG_OK) {
        status = tmsg_map_set_data(map, 0, first.data, &params);
    }
    if (status != TMSG_OK) {
        tmsgpy_unlend(lent);
        tmsgpy_raise(status, tmsg_error_message(), NULL);
    }
    return status == TMSG_OK;
}

/* Publishes a map that is lent where it lies. Takes it, and `keep`. */
static PyObject *lend(publishing_t *how, tmsg_map_t *map, PyObject *keep)
{
    published_t done = {.status = TMSG_OK};
    PyThreadState *threads;

    if (!keep_by(map, keep)) {
        tmsg_map_destroy(map);
        return NULL;
    }
    how->waits = false;
    threads = PyEval_SaveThread();
    hand_over(how, map, &done);
    tmsg_map_destroy(map); /* the publisher holds it */
    PyEval_RestoreThread(threads);
    if (done.closed) {
        return tmsgpy_raise_closed();
    }
    if (done.status != TMSG_OK) {
        return tmsgpy_raise_of(done.status, tmsg_error_message(), done.peer);
    }
    Py_RETURN_NONE;
}

static PyObject *pack_and_publish(publishing_t *how, PyObject *args)
{
    PyObject *keep, *result;
    tmsg_map_t *map;

    how->hub = tmsgpy_pointer_at(args, 0);
    how->params.field_mask = TMSG_SEND_PARAM_FLAGS | TMSG_SEND_PARAM_TIMEOUT;
    how->params.flags = (uint32_t)tmsgpy_int_at(args, 4);
    how->params.timeout_ms = tmsgpy_int_at(args, 5);
    tmsgpy_drop_lent();
    map = tmsgpy_pack_new(PyTuple_GetItem(args, 2), PyTuple_GetItem(args, 3),
                          &keep, &result);
    if (map == NULL) {
        return result;
    }
    return (how->params.flags & TMSG_SEND_LEND) && tmsg_map_size(map) > 0 &&
                   (!how->copies || tmsgpy_in_blocks(keep))
               ? lend(how, map, keep)
               : outcome(how, map, keep);
}

/* publish(hub, publisher, data, meta, flags, timeout_ms, copy): None where the
 * arrays are free, else an operation that ends when they are; NotImplemented
 * where data has to be converted first. */
PyObject *tmsgpy_publish(PyObject *self, PyObject *args)
{
    publishing_t how = {0};

    (void)self;
    if (!tmsgpy_takes(args, 7)) {
        return NULL;
    }
    how.publisher = tmsgpy_pointer_at(args, 1);
    how.copies = PyTuple_GetItem(args, 6) == Py_True;
    how.waits = !how.copies;
    return pack_and_publish(&how, args);
}

/* send_queued(hub, endpoint, data, meta, flags, timeout_ms): sends a copy, and
 * answers None; NotImplemented where data has to be converted first. */
PyObject *tmsgpy_send_queued(PyObject *self, PyObject *args)
{
    publishing_t how = {.copies = true};

    (void)self;
    if (!tmsgpy_takes(args, 6)) {
        return NULL;
    }
    how.endpoint = tmsgpy_pointer_at(args, 1);
    return pack_and_publish(&how, args);
}
