/* SPDX-License-Identifier: BSD-3-Clause */
/* support/restarted.h - a client whose endpoint goes on with a server that is
 * restarted: its context is freed, and another one made that listens at the
 * same URL, which is another process to its peers. */
#ifndef TMSG_TESTS_RESTARTED_H
#define TMSG_TESTS_RESTARTED_H

#include "support/breaking_relay.h"
#include "support/peers.h"

#define TOLD_MOST 64

/* What on_session and on_closed have told of an endpoint. */
typedef struct {
    tmsg_endpoint_t *endpoint;
    atomic_uint count;
    tmsg_session_event_t events[TOLD_MOST];
    char words[TOLD_MOST][512];
    atomic_uint ends; /* calls of on_closed */
    tmsg_status_t status;
    char error[512];
} told_t;

/* All zero but for the link: polled, a listener without sessions, attempts 1 to
 * 20 ms apart. What a test sets is read when sides are opened. */
typedef struct restarted {
    link_t link;
    int32_t resume_ms; /* of the listener; 0: it keeps no session */
    side_options_t client_options, server_options;
    tmsg_reconnect_t reconnect;
    uint32_t flags, subscribe;
    /* The connection breaks before the server ends, which thus says nothing of
     * its end. Not with LINK_UNIX. */
    bool abrupt;
    /* Called once a server listens, and before it ends. */
    void (*serve)(struct restarted *restarted);
    void (*leave)(struct restarted *restarted);
    void *arg; /* the test's */

    side_t server, client;
    side_t *sides[2];
    char url[256];
    relay_t *relay;            /* NULL: not abrupt */
    tmsg_endpoint_t *endpoint; /* the client's */
    told_t told;
} restarted_t;

void restarted_open(restarted_t *restarted, drive_t drive);
/* Ends both at once. */
void restarted_close(restarted_t *restarted);

/* Ends the server, and starts it again. */
void restarted_stop(restarted_t *restarted);
void restarted_start(restarted_t *restarted);

/* Waits until the endpoint knows that the server is gone. After an abrupt end
 * that is all that it knows: a new session is not sought before another server
 * has answered. */
void restarted_await_loss(restarted_t *restarted);
/* Waits until a new session stands, and the application has heard of it. */
void restarted_await_new(restarted_t *restarted);

/* These drive the sides that there are. */
void restarted_await(restarted_t *restarted, done_fn done, void *arg,
                     const char *what);
tmsg_status_t restarted_finish(restarted_t *restarted, tmsg_request_t *request);
tmsg_status_t restarted_call_end(restarted_t *restarted, tmsg_call_t *call);
/* Receives sample_bytes(seed, 1000) on a channel. */
void restarted_take(restarted_t *restarted, tmsg_endpoint_t *endpoint,
                    uint64_t seed);
/* A message each way. */
void restarted_exchange(restarted_t *restarted, uint64_t seed);

#endif
