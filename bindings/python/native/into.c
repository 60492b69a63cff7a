/* SPDX-License-Identifier: BSD-3-Clause */
/* Receiving into buffers of the application's: part of module tensormsg._hot.
 */
#include "into.h"

#include <tensormsg/endpoint.h>

#include "arrays.h"
#include "device.h"
#include "errors.h"
#include "hub.h"
#include "lent.h"
#include "ops.h"
#include "pack.h"
#include "places.h"

/* view(name, capsule): an array that views what is in a capsule of DLPack's, in
 * memory of the host. The library looks at it first: numpy believes it. */
PyObject *tmsgpy_view(PyObject *self, PyObject *args)
{
    int64_t strides[TMSGPY_NDIM_MAX];
    PyObject *capsule, *array;
    tmsg_tensor_t tensor;
    const char *name;
    int rc;

    (void)self;
    if (!PyArg_ParseTuple(args, "sO", &name, &capsule)) {
        return NULL;
    }
    rc = tmsgpy_capsule_of(name, capsule, &tensor, strides);
    if (rc != 0) {
        return NULL;
    }
    if (!tmsgpy_is_host(&tensor)) {
        return PyErr_Format(PyExc_TypeError,
                            "'%s': what its __dlpack__() gave is in memory of "
                            "a device, unlike its __dlpack_device__()",
                            name);
    }
    tensor.device = (tmsg_device_t){TMSG_DEVICE_CPU, 0};
    array = tmsgpy_view_of(&tensor, capsule);
    if (array == Py_None) {
        char dtype[TMSG_DTYPE_NAME_MAX];

        Py_DECREF(array);
        return PyErr_Format(
            PyExc_TypeError, "buffer '%s' is %s, which numpy has no type for",
            name, tmsg_dtype_format(tensor.dtype, dtype, sizeof(dtype)));
    }
    return array;
}

static tmsgpy_posted_t *posted_of(PyObject *capsule)
{
    return PyCapsule_GetPointer(capsule, "tensormsg.posted");
}

static void drop_posted(PyObject *capsule)
{
    tmsgpy_posted_t *posted = posted_of(capsule);

    tmsg_map_destroy(tmsgpy_posted_unset(posted));
    tmsgpy_posted_drop(posted);
    tmsgpy_drop_lent();
}

/* Gives the record a map of the arrays, which it keeps until no byte can be
 * written to them by it any more. False with an exception. */
static bool post(tmsgpy_posted_t *posted, PyObject *arrays)
{
    tmsg_map_t *map;
    int rc;

    if (!tmsgpy_posted_keep(posted, arrays)) {
        return false;
    }
    if (tmsg_map_create(&map) != TMSG_OK) {
        PyErr_NoMemory();
        tmsgpy_posted_release(posted);
        return false;
    }
    rc = tmsgpy_pack_buffers(arrays, map, posted);
    if (rc == 1) {
        tmsgpy_posted_set(posted, map);
    } else {
        tmsg_map_destroy(map);
    }
    if (rc == 0) {
        PyErr_SetString(PyExc_TypeError, "one of the buffers is not an array");
    }
    tmsgpy_posted_release(posted);
    return rc == 1;
}

/* posted(arrays): a record of arrays that can be written to. */
PyObject *tmsgpy_posted(PyObject *self, PyObject *arrays)
{
    Py_ssize_t count = PyDict_Size(arrays);
    tmsgpy_posted_t *posted;
    PyObject *capsule;

    (void)self;
    tmsgpy_drop_lent();
    posted = count < 0 ? NULL : tmsgpy_posted_make((size_t)count);
    if (posted == NULL) {
        return NULL;
    }
    capsule = PyCapsule_New(posted, "tensormsg.posted", drop_posted);
    if (capsule == NULL) {
        tmsgpy_posted_drop(posted);
    } else if (!post(posted, arrays)) {
        Py_DECREF(capsule);
        capsule = NULL;
    }
    return capsule;
}

/* renew(posted, arrays): its map has gone with a message; it gets another one
 * of the same arrays. */
PyObject *tmsgpy_renew(PyObject *self, PyObject *args)
{
    tmsgpy_posted_t *posted;

    (void)self;
    if (!tmsgpy_takes(args, 2) ||
        (posted = posted_of(PyTuple_GetItem(args, 0))) == NULL) {
        return NULL;
    }
    tmsg_map_destroy(tmsgpy_posted_unset(posted));
    if (!post(posted, PyTuple_GetItem(args, 1))) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* left(posted, lies): recv_into() waits no more with it. `lies`: a message may
 * be in the buffers, or on its way there, which nobody has taken. */
PyObject *tmsgpy_left(PyObject *self, PyObject *args)
{
    tmsgpy_posted_t *posted;

    (void)self;
    if (!tmsgpy_takes(args, 2) ||
        (posted = posted_of(PyTuple_GetItem(args, 0))) == NULL) {
        return NULL;
    }
    tmsgpy_posted_left(posted, PyTuple_GetItem(args, 1) == Py_True);
    Py_RETURN_NONE;
}

/* taken(posted): the message that was on its way into the buffers was. */
PyObject *tmsgpy_taken(PyObject *self, PyObject *capsule)
{
    tmsgpy_posted_t *posted = posted_of(capsule);

    (void)self;
    if (posted == NULL) {
        return NULL;
    }
    tmsgpy_posted_taken(posted);
    Py_RETURN_NONE;
}

/* Waits up to timeout_ms; 0 looks, for spin_us. */
static tmsg_status_t pull(tmsgpy_hub_t *hub, tmsg_endpoint_t *endpoint,
                          const tmsg_map_t *map, int timeout_ms, int spin_us,
                          tmsg_message_t **message_p)
{
    uint64_t until = tmsgpy_until(spin_us);
    tmsg_status_t status;

    do {
        status = tmsg_endpoint_recv_into(endpoint, map, timeout_ms, message_p);
    } while (status == TMSG_ERR_TIMED_OUT && !tmsgpy_hub_is_closed(hub) &&
             tmsgpy_polls_on(tmsgpy_hub_worker(hub), until));
    return status;
}

/* recv_into(hub, endpoint, posted, timeout_ms, spin_us): the parts of a
 * message; None: there is none; False: one is on its way into the buffers;
 * True: into those of another receive, or one that was received lies there;
 * what tmsgpy_posted_claim() says: a buffer is not free. */
PyObject *tmsgpy_recv_into(PyObject *self, PyObject *args)
{
    tmsg_status_t status = TMSG_ERR_CLOSED;
    tmsg_message_t *message = NULL;
    tmsg_endpoint_t *endpoint;
    PyThreadState *threads;
    tmsgpy_posted_t *posted;
    tmsgpy_hub_t *hub;
    PyObject *result;
    int timeout_ms;
    char *peer = NULL;
    int spin_us;
    bool open;

    (void)self;
    tmsgpy_drop_lent();
    if (!tmsgpy_takes(args, 5)) {
        return NULL;
    }
    hub = tmsgpy_pointer_at(args, 0);
    endpoint = tmsgpy_pointer_at(args, 1);
    posted = posted_of(PyTuple_GetItem(args, 2));
    timeout_ms = tmsgpy_int_at(args, 3);
    spin_us = tmsgpy_int_at(args, 4);
    if (posted == NULL || !tmsgpy_posted_claim(posted, hub, &result)) {
        return posted == NULL ? NULL : result;
    }
    tmsgpy_posted_waits(posted);
    threads = PyEval_SaveThread();
    open = tmsgpy_hub_enter(hub);
    if (open) {
        status = pull(hub, endpoint, tmsgpy_posted_map(posted), timeout_ms,
                      spin_us, &message);
        if (status < 0 && status != TMSG_ERR_TIMED_OUT &&
            status != TMSG_ERR_BUSY) {
            peer = tmsgpy_peer_words(endpoint);
        }
        tmsgpy_hub_leave(hub);
    }
    PyEval_RestoreThread(threads);
    tmsgpy_posted_forgo(posted);
    if (!open) {
        return tmsgpy_raise_closed();
    }
    if (status == TMSG_OK) {
        tmsgpy_posted_taken(posted);
    }
    if (status == TMSG_ERR_TIMED_OUT) {
        Py_RETURN_NONE;
    }
    if (status == TMSG_CANCEL_PENDING || status == TMSG_ERR_BUSY) {
        return PyBool_FromLong(status == TMSG_ERR_BUSY);
    }
    return status == TMSG_OK
               ? tmsgpy_unpack(message)
               : tmsgpy_raise_of(status, tmsg_error_message(), peer);
}
