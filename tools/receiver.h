/* SPDX-License-Identifier: BSD-3-Clause */
/* receiver.h - the inside of `tensormsg recv`. recv.c has its arguments and
 * its loop, receiver.c its peers and maps. */
#ifndef TMSG_RECEIVER_H
#define TMSG_RECEIVER_H

#include "job.h"
#include "options.h"

typedef struct {
    connection_options_t connection;
    const char *capture; /* folder for headers, or NULL */
    unsigned count;      /* maps to receive; 0: until a signal */
    int timeout_ms;      /* for another sender when one has failed */
    bool verbose;
    bool json;
} recv_options_t;

typedef struct peer {
    struct peer *next;
    tmsg_endpoint_t *endpoint;
    int64_t offer;              /* number of the file that comes next, or 0 */
    uint64_t offered_ns;        /* when it was */
    uint64_t bytes;             /* of it */
    char *name;                 /* of it, or NULL */
    char *note;                 /* of the last one, or NULL */
    bool checked;               /* its sender has a verdict to give */
    tmsg_message_t *held;       /* the file, until that comes, or NULL */
    uint64_t spoken_ns;         /* when it last heard from us */
    tmsg_request_t *last_alive; /* while that word is on its way */
} peer_t;

typedef struct {
    const recv_options_t *options;
    tmsg_context_t *context;
    tmsg_worker_t *worker;
    tmsg_listener_t *listener;
    store_t store;
    peer_t *peers;
    job_t job;
    tmsg_message_t *message; /* of the job under way, or NULL */
    peer_t *sender;          /* of that message */
    unsigned received;       /* maps that came whole, for headers */
    unsigned captured;
    unsigned done;        /* maps that were kept */
    bool stopping;        /* nothing more is taken */
    bool output_lost;     /* what came cannot be told */
    bool failed;          /* a sender did, and none has come since */
    uint64_t deadline_ns; /* for one to come, or 0 */
    pthread_t thread;     /* that drives the worker */
    char held[1024];      /* what the library said last, or "" */
} receiver_t;

/* tmsg_log_fn: `arg` is the receiver. Of the end of a connection there is more
 * to say when its file is known, so each line waits for that. */
void receiver_hold(void *arg, tmsg_log_level_t level, const char *line);

/* Says it now. */
void receiver_say_held(receiver_t *receiver);

/* tmsg_accept_fn: `arg` is the receiver. */
void receiver_accept(void *arg, tmsg_endpoint_t *endpoint);

/* Whether --count is reached. */
bool receiver_is_done(const receiver_t *receiver);

/* Takes what can be taken now. False: nothing to do. */
bool receiver_step(receiver_t *receiver);

/* Tells senders whose file is under way that we live. Returns in how many ms
 * it wants to be called again, -1: when something happens. */
int receiver_say_alive(receiver_t *receiver);

/* Turns down what was offered and closes every connection in order. */
void receiver_close(receiver_t *receiver, const char *why);

#endif
