/* SPDX-License-Identifier: BSD-3-Clause */
#include "measure.h"

#include <time.h>

#include <tensormsg/endpoint.h>

#include "errors.h"
#include "hub.h"
#include "kept.h"
#include "ops.h"

#define WAIT_MS 10000

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static tmsg_status_t answer(tmsg_endpoint_t *endpoint, const tmsg_map_t *map)
{
    tmsg_request_t *request;
    tmsg_status_t status = tmsg_endpoint_send(endpoint, map, NULL, &request);

    if (status == TMSG_OK) {
        status = tmsg_request_wait(request, WAIT_MS);
        tmsg_request_destroy(request);
    }
    return status;
}

static tmsg_status_t round_trip(tmsg_endpoint_t *endpoint,
                                const tmsg_map_t *map, double *seconds_p)
{
    tmsg_message_t *message = NULL;
    double since = now_s();
    tmsg_status_t status = answer(endpoint, map);

    if (status == TMSG_OK) {
        status = tmsg_endpoint_recv(endpoint, WAIT_MS, &message);
    }
    tmsg_message_destroy(message);
    *seconds_p = now_s() - since;
    return status;
}

static PyObject *run(tmsg_endpoint_t *endpoint, const tmsg_map_t *map,
                     long count)
{
    PyThreadState *threads;
    PyObject *all = PyList_New(0);

    for (long i = 0; all != NULL && i < count; i++) {
        double seconds = 0;
        tmsg_status_t status;
        PyObject *number;

        threads = PyEval_SaveThread();
        status = round_trip(endpoint, map, &seconds);
        PyEval_RestoreThread(threads);
        if (status != TMSG_OK) {
            Py_DECREF(all);
            return tmsgpy_raise(status, tmsg_error_message(), NULL);
        }
        number = PyFloat_FromDouble(seconds);
        if (number == NULL || PyList_Append(all, number) != 0) {
            Py_DECREF(all);
            all = NULL;
        }
        Py_XDECREF(number);
    }
    return all;
}

/* What is sent is held, whatever becomes of the dict, and where it fails for
 * good: it may still be read. */
PyObject *tmsgpy_ping(PyObject *self, PyObject *args)
{
    PyObject *hub, *endpoint, *data, *keep, *result = NULL;
    tmsg_map_t *map;
    long count;

    (void)self;
    if (!PyArg_ParseTuple(args, "OOOl", &hub, &endpoint, &data, &count)) {
        return NULL;
    }
    map = tmsgpy_pack_new(data, Py_None, &keep, &result);
    if (map == NULL) {
        if (result != NULL) {
            Py_DECREF(result);
            PyErr_SetString(PyExc_TypeError, "a dict of plain arrays");
        }
        return NULL;
    }
    if (!tmsgpy_hub_enter(PyLong_AsVoidPtr(hub))) {
        Py_DECREF(keep);
        tmsgpy_kept_give(map);
        return tmsgpy_raise_closed();
    }
    result = run(PyLong_AsVoidPtr(endpoint), map, count);
    tmsgpy_hub_leave(PyLong_AsVoidPtr(hub));
    tmsg_map_destroy(map);
    if (result != NULL) {
        Py_DECREF(keep);
    }
    return result;
}

PyObject *tmsgpy_echo(PyObject *self, PyObject *args)
{
    PyThreadState *threads;
    tmsg_status_t status = TMSG_OK;
    tmsgpy_hub_t *hub;
    PyObject *number;

    (void)self;
    if (!PyArg_ParseTuple(args, "O", &number)) {
        return NULL;
    }
    hub = PyLong_AsVoidPtr(number);
    threads = PyEval_SaveThread();
    while (status == TMSG_OK && tmsgpy_hub_enter(hub)) {
        tmsg_message_t *message = NULL;

        status = tmsg_worker_recv(tmsgpy_hub_worker(hub), WAIT_MS, &message);
        if (status == TMSG_OK) {
            status = answer(tmsg_message_endpoint(message),
                            tmsg_message_map(message));
        }
        tmsg_message_destroy(message);
        tmsgpy_hub_leave(hub);
    }
    PyEval_RestoreThread(threads);
    Py_RETURN_NONE;
}
