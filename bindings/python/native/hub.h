/* SPDX-License-Identifier: BSD-3-Clause */
/* hub.h - a worker as Python holds it. Declarations only: cffi reads them. */
#ifndef TENSORMSG_PYTHON_HUB_H
#define TENSORMSG_PYTHON_HUB_H

#include <stdint.h>

#include <tensormsg/worker.h>

/* A worker and what happened on it that Python has not seen yet. The worker is
 * SHARED: any thread may call, without the interpreter's lock. Nothing here
 * takes that lock, so that callbacks of the library never wait for it. */
typedef struct tmsgpy_hub tmsgpy_hub_t;

/* Takes the worker over. NULL: no memory; the worker is then the caller's. */
tmsgpy_hub_t *tmsgpy_hub_create(tmsg_worker_t *worker);

/* For as long as it is open. */
tmsg_worker_t *tmsgpy_hub_worker(const tmsgpy_hub_t *hub);

/* Around each use of the worker or of what is on it. enter() answers 0 when it
 * was closed, and then leave() must not follow. */
int tmsgpy_hub_enter(tmsgpy_hub_t *hub);
void tmsgpy_hub_leave(tmsgpy_hub_t *hub);

/* Lets nobody in any more, waits until all have left (those that wait look
 * every so often) and destroys the worker. Once; again does nothing. */
void tmsgpy_hub_close(tmsgpy_hub_t *hub);
int tmsgpy_hub_is_closed(tmsgpy_hub_t *hub);

/* Frees a closed hub. No thread uses it. */
void tmsgpy_hub_free(tmsgpy_hub_t *hub);

typedef struct tmsgpy_event {
    int accepted; /* 1: a peer came in; 0: one has ended */
    tmsg_endpoint_t *endpoint;
} tmsgpy_event_t;

/* Takes the oldest event: 1, or 0 if there is none. */
int tmsgpy_hub_event(tmsgpy_hub_t *hub, tmsgpy_event_t *event_p);

/* Callbacks for the library, with the hub as their arg. */
void tmsgpy_on_accept(void *arg, tmsg_endpoint_t *endpoint);
void tmsgpy_on_closed(void *arg, tmsg_endpoint_t *endpoint,
                      tmsg_status_t status, const char *error);

#endif
