/* SPDX-License-Identifier: BSD-3-Clause */
/* Publishing: part of module tensormsg._hot. */
#include "publish.h"

#include <tensormsg/publisher.h>

#include "errors.h"
#include "hub.h"
#include "kept.h"
#include "ops.h"

typedef struct {
    tmsgpy_hub_t *hub;
    tmsg_publisher_t *publisher;
    tmsg_send_params_t params;
    bool copies; /* the arrays, so that they may be changed at once */
} publishing_t;

/* How it went, and with which words. */
typedef struct {
    tmsg_status_t status;
    const char *failed; /* a tensor that was not copied */
    bool copied, closed;
    tmsg_request_t *request; /* NULL: nothing is read of ours any more */
} published_t;

static void hand_over(const publishing_t *how, const tmsg_map_t *map,
                      published_t *done)
{
    done->closed = !tmsgpy_hub_enter(how->hub);
    if (!done->closed) {
        done->status =
            tmsg_publisher_publish(how->publisher, map, &how->params,
                                   how->copies ? NULL : &done->request);
        tmsgpy_hub_leave(how->hub);
    }
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
        tmsgpy_raise(done.status, tmsg_error_message(), NULL);
    }
    tmsgpy_kept_give(map);
    Py_DECREF(keep);
    if (PyErr_Occurred()) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* publish(hub, publisher, data, meta, flags, timeout_ms, copy): None where the
 * arrays are free, else an operation that ends when they are; NotImplemented
 * where data has to be converted first. */
PyObject *tmsgpy_publish(PyObject *self, PyObject *args)
{
    publishing_t how = {.params.field_mask =
                            TMSG_SEND_PARAM_FLAGS | TMSG_SEND_PARAM_TIMEOUT};
    PyObject *keep, *result;
    tmsg_map_t *map;

    (void)self;
    if (!tmsgpy_takes(args, 7)) {
        return NULL;
    }
    how.hub = tmsgpy_pointer_at(args, 0);
    how.publisher = tmsgpy_pointer_at(args, 1);
    how.params.flags = (uint32_t)tmsgpy_int_at(args, 4);
    how.params.timeout_ms = tmsgpy_int_at(args, 5);
    how.copies = PyTuple_GetItem(args, 6) == Py_True;
    map = tmsgpy_pack_new(PyTuple_GetItem(args, 2), PyTuple_GetItem(args, 3),
                          &keep, &result);
    return map == NULL ? result : outcome(&how, map, keep);
}
