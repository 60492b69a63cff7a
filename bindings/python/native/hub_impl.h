/* SPDX-License-Identifier: BSD-3-Clause */
/* hub_impl.h - what the files of the hub share. */
#ifndef TENSORMSG_PYTHON_HUB_IMPL_H
#define TENSORMSG_PYTHON_HUB_IMPL_H

#include "hub.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

#include <tensormsg/bell.h>
#include <tensormsg/offer.h>

/* What an allocator of Python's is given as arg. */
typedef struct {
    tmsgpy_hub_t *hub;
    void *allocator; /* the object */
} tmsgpy_asker_t;

struct tmsgpy_hub {
    tmsg_worker_t *worker;
    tmsgpy_asker_t askers[2]; /* for host memory; for devices' */
    uint64_t seen;            /* of its arrivals */
    pthread_mutex_t lock;
    pthread_cond_t left;
    pthread_cond_t news; /* there was an event, or the hub is closed */
    unsigned inside;
    unsigned holds; /* on its memory */
    pid_t pid;      /* that made it */
    bool closed;
    bool gone;     /* the worker is */
    bool outlived; /* the worker goes by itself, after the hub's end */
    bool put_off;  /* the last to leave destroys the worker */
    struct event *first, **last;
    unsigned events; /* that there were: written with the lock held */
    struct session *sessions, **last_session;
    struct told *told, **last_told;
    bool missed;                /* something that is not in `told` */
    tmsgpy_stream_t *left_over; /* to be dropped when the worker is gone */
    struct hooked *hooked;      /* interceptors */
    struct refused *refused;
    uint64_t refusals;           /* that there were */
    tmsg_publisher_t *publisher; /* of those who come in; NULL: none */
    tmsg_server_t *server;
    pthread_mutex_t serving; /* who uses the server, but for its drain */
    struct method *methods;
    struct work *works, **last_work;
    unsigned overs;
    int wake_fd;
    bool stirred; /* wake_fd is readable */
};

/* Whether this thread runs a function of Python's in a callback of that hub's
 * worker: inside of the hub, or in the worker's own thread, which is not. */
typedef enum { TMSGPY_NOT, TMSGPY_INSIDE, TMSGPY_OWN_THREAD } tmsgpy_asking_t;
tmsgpy_asking_t tmsgpy_asking_in(const tmsgpy_hub_t *hub);

/* Frees what it knows of its interceptors. */
void tmsgpy_hub_unhook(tmsgpy_hub_t *hub);

/* Makes wake_fd readable. The lock is held. */
void tmsgpy_hub_stir(tmsgpy_hub_t *hub);

/* Gives a hold on its memory back; with the last one that. */
void tmsgpy_hub_let_go(tmsgpy_hub_t *hub);

/* A handle on an offer that own() gives it, NULL before. It is dropped as that
 * of a stream, and ends the offer; without the interpreter's lock. */
tmsgpy_stream_t *tmsgpy_offer_handle(tmsgpy_hub_t *hub);
void tmsgpy_offer_own(tmsgpy_stream_t *handle, tmsg_offer_t *offer);
tmsg_offer_t *tmsgpy_offer_of(const tmsgpy_stream_t *handle);

/* The same of a bell. */
tmsgpy_stream_t *tmsgpy_bell_handle(tmsgpy_hub_t *hub);
void tmsgpy_bell_own(tmsgpy_stream_t *handle, tmsg_bell_t *bell);
tmsg_bell_t *tmsgpy_bell_of(const tmsgpy_stream_t *handle);

/* The worker is gone: handles that had to wait for that go. */
void tmsgpy_hub_drop_left_over(tmsgpy_hub_t *hub);

#endif
