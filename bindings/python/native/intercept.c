/* SPDX-License-Identifier: BSD-3-Clause */
/* Interceptors that are objects of Python's. */
#include "hub_impl.h"

#include <stdlib.h>

#include "asking.h"

struct hooked {
    struct hooked *next;
    tmsgpy_hub_t *hub;
    PyObject *hooks; /* of _intercept.py, which answer a status */
};

/* A destructor may have brought us here, which has its exception back after it.
 */
static tmsg_status_t run(const struct hooked *hooked, const char *hook,
                         const tmsg_intercepted_t *call, int sent,
                         const tmsg_map_t *map)
{
    long status = TMSG_ERR_INTERNAL;
    tmsgpy_asked_t asked;
    PyObject *answer;

    tmsgpy_asking_begin(&asked, hooked->hub);
    answer = PyObject_CallMethod(hooked->hooks, hook, "KiK",
                                 (unsigned long long)(uintptr_t)call, sent,
                                 (unsigned long long)(uintptr_t)map);
    if (answer != NULL) {
        status = PyLong_AsLong(answer);
        Py_DECREF(answer);
    } else {
        PyErr_WriteUnraisable(hooked->hooks);
    }
    tmsgpy_asking_end(&asked);
    return (tmsg_status_t)status;
}

static tmsg_status_t begin(void *arg, tmsg_intercepted_t *call)
{
    return run(arg, "begin", call, 0, call->map);
}

static void message(void *arg, const tmsg_intercepted_t *call, int sent,
                    const tmsg_map_t *map)
{
    (void)run(arg, "message", call, sent, map);
}

static void end(void *arg, const tmsg_intercepted_t *call)
{
    (void)run(arg, "end", call, 0, NULL);
}

static void refused(void *arg, const tmsg_intercepted_t *call)
{
    (void)run(arg, "refused", call, 0, NULL);
}

tmsg_status_t tmsgpy_hub_intercept(tmsgpy_hub_t *hub, tmsg_side_t side,
                                   uint64_t mask, void *hooks)
{
    struct hooked *hooked = malloc(sizeof(*hooked));
    tmsg_interceptor_t interceptor = {mask, begin,   message,
                                      end,  refused, hooked};
    tmsg_status_t status = TMSG_ERR_NO_MEMORY;

    if (hooked != NULL) {
        *hooked = (struct hooked){NULL, hub, hooks};
        status = tmsg_worker_intercept(hub->worker, side, &interceptor);
    }
    if (status != TMSG_OK) {
        free(hooked);
        return status;
    }
    pthread_mutex_lock(&hub->lock);
    hooked->next = hub->hooked;
    hub->hooked = hooked;
    pthread_mutex_unlock(&hub->lock);
    return TMSG_OK;
}

void tmsgpy_hub_unhook(tmsgpy_hub_t *hub)
{
    while (hub->hooked != NULL) {
        struct hooked *hooked = hub->hooked;

        hub->hooked = hooked->next;
        free(hooked);
    }
}
