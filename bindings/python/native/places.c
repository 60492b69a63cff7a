/* SPDX-License-Identifier: BSD-3-Clause */
#include "places.h"

#include <pthread.h>
#include <search.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "errors.h"
#include "hub.h"
#include "lent.h"

typedef struct {
    tmsgpy_posted_t *posted;
    tmsg_device_t device;
    uintptr_t begin, end;
    size_t index; /* in the map */
    bool claimed; /* it is in the tree */
} place_t;

struct tmsgpy_posted {
    atomic_uint refs;
    /* With the interpreter's lock held: */
    tmsg_map_t *map;         /* NULL: it was taken */
    const tmsg_call_t *call; /* NULL: none, or it was destroyed */
    void *hub;
    unsigned forks; /* that there had been */
    unsigned busy;  /* functions that use the map now */
    bool waits;     /* recv_into() does */
    bool lies;      /* a message does, or is on its way */
    bool cleared;   /* the map was, by others */
    /* With places_lock held: */
    unsigned held; /* the buffers of its maps that were not released */
    tmsgpy_lent_t *lent;
    size_t count;
    place_t places[];
};

static pthread_mutex_t places_lock = PTHREAD_MUTEX_INITIALIZER;
static void *tree; /* of places that were claimed: no two overlap */

/* A thread of the parent may have held the lock, and have the tree half
 * changed. */
static void begin_child(void)
{
    pthread_mutex_init(&places_lock, NULL);
    tree = NULL;
}

static void watch_forks(void) { pthread_atfork(NULL, NULL, begin_child); }

tmsgpy_posted_t *tmsgpy_posted_make(size_t count)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    tmsgpy_posted_t *posted =
        calloc(1, sizeof(*posted) + count * sizeof(posted->places[0]));

    pthread_once(&once, watch_forks);
    if (posted == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    atomic_init(&posted->refs, 1);
    posted->forks = tmsgpy_forks();
    return posted;
}

void tmsgpy_posted_hold(tmsgpy_posted_t *posted)
{
    atomic_fetch_add(&posted->refs, 1);
}

void tmsgpy_posted_drop(tmsgpy_posted_t *posted)
{
    if (atomic_fetch_sub(&posted->refs, 1) == 1) {
        free(posted);
    }
}

/* Places that overlap are equal: the tree takes one of them. */
static int compare(const void *left, const void *right)
{
    const place_t *a = left, *b = right;

    if (a->device.type != b->device.type) {
        return a->device.type < b->device.type ? -1 : 1;
    }
    if (a->device.id != b->device.id) {
        return a->device.id < b->device.id ? -1 : 1;
    }
    return a->end <= b->begin ? -1 : b->end <= a->begin;
}

/* places_lock held. Those of the parent are in no tree here. */
static void take_out(tmsgpy_posted_t *posted)
{
    for (size_t i = 0; i < posted->count; i++) {
        place_t *place = &posted->places[i];

        if (place->claimed && posted->forks == tmsgpy_forks()) {
            tdelete(place, &tree, compare); /* none but itself is equal */
        }
        place->claimed = false;
    }
}

bool tmsgpy_posted_keep(tmsgpy_posted_t *posted, PyObject *arrays)
{
    tmsgpy_lent_t *lent;
    bool first;

    Py_INCREF(arrays);
    lent = tmsgpy_lend(arrays);
    if (lent == NULL) {
        return false;
    }
    pthread_mutex_lock(&places_lock);
    first = posted->held++ == 0;
    if (first) {
        posted->lent = lent;
    }
    pthread_mutex_unlock(&places_lock);
    if (first) {
        tmsgpy_posted_hold(posted);
    } else {
        tmsgpy_unlend(lent);
    }
    return true;
}

void tmsgpy_posted_add(tmsgpy_posted_t *posted)
{
    pthread_mutex_lock(&places_lock);
    posted->held++;
    pthread_mutex_unlock(&places_lock);
}

void tmsgpy_posted_release(void *arg)
{
    tmsgpy_posted_t *posted = arg;
    tmsgpy_lent_t *lent = NULL;

    pthread_mutex_lock(&places_lock);
    if (--posted->held == 0) {
        take_out(posted);
        lent = posted->lent;
        posted->lent = NULL;
    }
    pthread_mutex_unlock(&places_lock);
    if (lent != NULL) {
        tmsgpy_on_release(lent);
        tmsgpy_posted_drop(posted);
    }
}

/* The device whose addresses the memory has: the host's has one address under
 * every name. */
static tmsg_device_t memory_of(tmsg_device_t device)
{
    switch (device.type) {
    case TMSG_DEVICE_CPU:
    case TMSG_DEVICE_CUDA_HOST:
    case TMSG_DEVICE_ROCM_HOST:
    case TMSG_DEVICE_CUDA_MANAGED:
        return (tmsg_device_t){TMSG_DEVICE_CPU, 0};
    default:
        return device;
    }
}

void tmsgpy_posted_set(tmsgpy_posted_t *posted, tmsg_map_t *map)
{
    size_t count = 0;

    posted->map = map;
    posted->cleared = false;
    if (posted->count > 0) {
        return; /* the same buffers again */
    }
    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        place_t *place = &posted->places[count];
        tmsg_tensor_t tensor;
        uint64_t bytes = 0;

        if (tmsg_map_at(map, i, NULL, &tensor) == TMSG_OK &&
            tmsg_tensor_bytes(&tensor, &bytes) == TMSG_OK && bytes > 0) {
            uintptr_t begin = (uintptr_t)tensor.data;

            *place = (place_t){posted, memory_of(tensor.device),
                               begin,  begin + (uintptr_t)bytes,
                               i,      false};
            count++;
        }
    }
    posted->count = count;
}

tmsg_map_t *tmsgpy_posted_map(const tmsgpy_posted_t *posted)
{
    return posted->map;
}

tmsg_map_t *tmsgpy_posted_unset(tmsgpy_posted_t *posted)
{
    tmsg_map_t *map = posted->map;

    posted->map = NULL;
    return map;
}

/* Claims all or none. Returns 1, -1: no memory, or 0: *has_p, of which the
 * caller drops a reference, has the place at *index_p of the map. */
static int claim(tmsgpy_posted_t *posted, tmsgpy_posted_t **has_p,
                 size_t *index_p)
{
    int rc = 1;

    pthread_mutex_lock(&places_lock);
    for (size_t i = 0; rc == 1 && i < posted->count; i++) {
        place_t *place = &posted->places[i];
        place_t **found = tsearch(place, &tree, compare);

        if (found == NULL) {
            rc = -1;
        } else if (*found == place) {
            place->claimed = true;
        } else if ((*found)->posted != posted) {
            /* The library itself refuses buffers of one map that overlap. */
            *has_p = (*found)->posted;
            *index_p = place->index;
            tmsgpy_posted_hold(*has_p);
            rc = 0;
        }
    }
    if (rc != 1) {
        take_out(posted);
    }
    pthread_mutex_unlock(&places_lock);
    return rc;
}

/* Why the buffers of that one are not free; -1: they are now. */
static int why_not(tmsgpy_posted_t *posted)
{
    tmsg_status_t status =
        posted->call != NULL ? tmsg_call_status(posted->call) : TMSG_ERR_CLOSED;

    if (status == TMSG_IN_PROGRESS || posted->waits || posted->busy > 0) {
        return TMSGPY_GOES_ON;
    }
    if (status == TMSG_OK || posted->lies) {
        return TMSGPY_LIES;
    }
    /* Only a map that nothing writes to any more can be cleared. */
    if (posted->map != NULL && !posted->cleared &&
        tmsg_map_clear(posted->map) == TMSG_OK) {
        posted->cleared = true;
        return -1;
    }
    return TMSGPY_WRITTEN;
}

static PyObject *not_free(const tmsgpy_posted_t *posted, size_t index, int why,
                          const tmsgpy_posted_t *has)
{
    const char *name = "";

    tmsg_map_at(posted->map, index, &name, NULL);
    return Py_BuildValue("(siK)", name, why,
                         (unsigned long long)(uintptr_t)has->hub);
}

bool tmsgpy_posted_claim(tmsgpy_posted_t *posted, void *hub,
                         PyObject **result_p)
{
    tmsgpy_posted_t *has = NULL;
    size_t index = 0;
    int rc, why = -1;

    *result_p = NULL;
    if (posted->cleared || posted->busy > 0) {
        tmsgpy_raise(TMSG_ERR_BUSY, "another receive has taken the buffers",
                     NULL);
        return false;
    }
    while (why < 0) {
        rc = claim(posted, &has, &index);
        if (rc == 1) {
            posted->hub = hub;
            posted->busy++;
            return true;
        }
        if (rc < 0) {
            PyErr_NoMemory();
            return false;
        }
        why = why_not(has);
        if (why >= 0) {
            *result_p = not_free(posted, index, why, has);
        }
        tmsgpy_posted_drop(has);
    }
    return false;
}

void tmsgpy_posted_forgo(tmsgpy_posted_t *posted) { posted->busy--; }

void tmsgpy_posted_call(tmsgpy_posted_t *posted, const tmsg_call_t *call)
{
    posted->call = call;
}

void tmsgpy_posted_waits(tmsgpy_posted_t *posted)
{
    posted->waits = true;
    posted->lies = false;
}

void tmsgpy_posted_left(tmsgpy_posted_t *posted, bool lies)
{
    posted->waits = false;
    posted->lies = lies;
}

void tmsgpy_posted_taken(tmsgpy_posted_t *posted)
{
    tmsgpy_posted_left(posted, false);
    pthread_mutex_lock(&places_lock);
    take_out(posted);
    pthread_mutex_unlock(&places_lock);
}
