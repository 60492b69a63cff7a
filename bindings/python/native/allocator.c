/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory for what is received that functions of Python's give. */
#include "hub_impl.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <tensormsg/domain.h>
#include <tensormsg/endpoint.h>

#include "asking.h"
#include "lent.h"

#define TRIES 3
#define REFUSED_MAX 64
#define GAVE_NO "the application's allocator gave no "

static atomic_bool drops; /* drop_now() is to be run */

static int drop_now(void *arg)
{
    (void)arg;
    atomic_store(&drops, false);
    tmsgpy_drop_lent();
    return 0;
}

/* By the main thread, when it runs Python next, or before by another that calls
 * us; at exit, when only the system is left to do so. */
static void drop_soon(void)
{
    if (Py_IsInitialized() && !atomic_exchange(&drops, true) &&
        Py_AddPendingCall(drop_now, NULL) != 0) {
        atomic_store(&drops, false);
    }
}

/* Ctrl-C may come while the function runs, and is no fault of the message's: it
 * is asked again, and the interrupt is for whoever runs here otherwise. */
static PyObject *call(PyObject *allocator, tmsg_device_t device, uint64_t bytes,
                      uint64_t alignment)
{
    bool interrupted = false;
    PyObject *given = NULL;

    for (int i = 0; i < TRIES && given == NULL; i++) {
        given =
            PyObject_CallFunction(allocator, "KKi", (unsigned long long)bytes,
                                  (unsigned long long)alignment, device.id);
        if (given == NULL && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
            PyErr_Clear();
            interrupted = true;
        } else if (given == NULL) {
            PyErr_WriteUnraisable(allocator);
            break;
        }
    }
    if (interrupted) {
        PyErr_SetInterrupt();
    }
    return given;
}

/* (status, words) or (address, owner), which is lent. */
static tmsg_status_t take(PyObject *given, void **data_p, void **token_p)
{
    PyObject *first = PyTuple_GetItem(given, 0);
    PyObject *second = PyTuple_GetItem(given, 1);
    tmsg_status_t status = TMSG_ERR_NO_MEMORY;
    tmsgpy_lent_t *lent;

    if (PyBytes_Check(second)) {
        status = (tmsg_status_t)PyLong_AsLong(first);
        return tmsg_domain_fail(status, PyBytes_AsString(second));
    }
    Py_INCREF(second);
    lent = tmsgpy_lend(second);
    if (lent == NULL) {
        PyErr_Clear();
        return status;
    }
    *data_p = PyLong_AsVoidPtr(first);
    *token_p = lent;
    return TMSG_OK;
}

tmsg_status_t tmsgpy_alloc(void *arg, tmsg_device_t device, uint64_t bytes,
                           uint64_t alignment, void **data_p, void **token_p)
{
    const tmsgpy_asker_t *asker = arg;
    tmsg_status_t status = TMSG_ERR_INTERNAL;
    PyObject *allocator = asker->allocator, *given;
    tmsgpy_asked_t asked;

    tmsgpy_asking_begin(&asked, asker->hub);
    Py_INCREF(allocator); /* it may drop itself */
    given = call(allocator, device, bytes, alignment);
    if (given != NULL) {
        status = take(given, data_p, token_p);
        Py_DECREF(given);
    }
    Py_DECREF(allocator);
    tmsgpy_asking_end(&asked);
    return status;
}

void *tmsgpy_hub_asker(tmsgpy_hub_t *hub, int of_devices, void *allocator)
{
    tmsgpy_asker_t *asker = &hub->askers[of_devices != 0];

    *asker = (tmsgpy_asker_t){hub, allocator};
    return asker;
}

tmsg_status_t tmsgpy_device_alloc(void *arg, tmsg_device_t device,
                                  uint64_t bytes, uint64_t alignment,
                                  tmsg_stream_t stream, void **data_p,
                                  void **token_p)
{
    (void)stream;
    return tmsgpy_alloc(arg, device, bytes, alignment, data_p, token_p);
}

void tmsgpy_dealloc(void *arg, void *data, uint64_t bytes, void *token)
{
    (void)arg;
    (void)data;
    (void)bytes;
    tmsgpy_on_release(token);
    drop_soon();
}

void tmsgpy_device_dealloc(void *arg, tmsg_device_t device, void *data,
                           uint64_t bytes, tmsg_stream_t stream, void *token)
{
    (void)device;
    (void)stream;
    tmsgpy_dealloc(arg, data, bytes, token);
}

/* A message for which there was no memory. */
struct refused {
    struct refused *next;
    tmsgpy_refused_t what;
};

/* Where it has been refused for another reason that is as without allocators:
 * its sender hears of it. */
void tmsgpy_on_refused(void *arg, tmsg_endpoint_t *endpoint, uint16_t channel,
                       uint32_t sequence, tmsg_status_t status,
                       const char *error)
{
    struct refused *refused, **last;
    tmsgpy_hub_t *hub = arg;
    unsigned count = 0;

    (void)channel;
    (void)sequence;
    if (strstr(error, GAVE_NO) == NULL) {
        return;
    }
    refused = calloc(1, sizeof(*refused));
    if (refused == NULL) {
        return;
    }
    refused->what.endpoint = endpoint;
    refused->what.status = status;
    strncpy(refused->what.words, error, sizeof(refused->what.words) - 1);
    pthread_mutex_lock(&hub->lock);
    for (last = &hub->refused; *last != NULL; last = &(*last)->next) {
        count++;
    }
    if (count < REFUSED_MAX) {
        *last = refused;
        refused = NULL;
    }
    hub->refusals++;
    tmsgpy_hub_stir(hub);
    pthread_mutex_unlock(&hub->lock);
    free(refused);
}

static bool has_refused(tmsgpy_hub_t *hub, const tmsg_endpoint_t *endpoint)
{
    const struct refused *refused;

    pthread_mutex_lock(&hub->lock);
    refused = hub->refused;
    while (refused != NULL && refused->what.endpoint != endpoint) {
        refused = refused->next;
    }
    pthread_mutex_unlock(&hub->lock);
    return refused != NULL;
}

int tmsgpy_hub_readable(tmsgpy_hub_t *hub, const tmsg_endpoint_t *endpoint)
{
    return has_refused(hub, endpoint) || tmsg_endpoint_readable(endpoint);
}

int tmsgpy_hub_waits(tmsgpy_hub_t *hub, const tmsg_endpoint_t *endpoint)
{
    return has_refused(hub, endpoint) || tmsg_endpoint_waiting(endpoint) > 0;
}

int tmsgpy_hub_refused(tmsgpy_hub_t *hub, const tmsg_endpoint_t *endpoint,
                       tmsgpy_refused_t *refused_p)
{
    struct refused *refused, **at;

    pthread_mutex_lock(&hub->lock);
    at = &hub->refused;
    while (*at != NULL && endpoint != NULL &&
           (*at)->what.endpoint != endpoint) {
        at = &(*at)->next;
    }
    refused = *at;
    if (refused != NULL) {
        *at = refused->next;
    }
    pthread_mutex_unlock(&hub->lock);
    if (refused == NULL) {
        return 0;
    }
    *refused_p = refused->what;
    free(refused);
    return 1;
}
