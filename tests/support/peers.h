/* SPDX-License-Identifier: BSD-3-Clause */
/* support/peers.h - two sides of a connection, in one process or in two, and
 * every way to drive them. Whatever does not happen within PEERS_BOUND_MS ends
 * the test by abort(), with what was waited for. */
#ifndef TMSG_TESTS_PEERS_H
#define TMSG_TESTS_PEERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <tensormsg/tensormsg.h>

#include "support/must.h"

#define PEERS_BOUND_MS 30000
/* For a connection: longer than the library's default, on a machine of which
 * other programs take most. */
#define PEERS_CONNECT_MS 25000

typedef enum { DRIVE_POLLING, DRIVE_FD, DRIVE_THREAD, DRIVES } drive_t;
extern const char *const drive_names[DRIVES];

typedef enum {
    LINK_TCP,    /* tcp://, UCX on TCP alone */
    LINK_SHM,    /* tcp://, and UCX finds shared memory */
    LINK_UNIX,   /* unix:// */
    LINK_BLOB,   /* blob:// */
    LINK_STREAM, /* tcp://, carried by a stream */
    LINKS
} link_t;
extern const char *const link_names[LINKS];

/* One side: a context, a worker, and what is on it. */
typedef struct {
    tmsg_context_t *context;
    tmsg_worker_t *worker;
    tmsg_listener_t *listener;
    drive_t drive;
    tmsg_endpoint_t *_Atomic accepted; /* the newest */
    atomic_uint accepts;
    unsigned taken; /* of them, by side_accept() */
} side_t;

/* How to make one; all zero is a polled worker with defaults. */
typedef struct {
    drive_t drive;
    /* Nothing wakes who sleeps but what happens: no keepalive of UCX's, no
     * heartbeats. So it is with DRIVE_FD, always. */
    bool quiet;
    const char *ucx_config;
    uint32_t peer_timeout_ms; /* 0: the default */
    uint32_t flags;           /* of the context */
    tmsg_keyring_t *keyring;  /* of the context; NULL: none */
    tmsg_limits_t limits;
    tmsg_worker_params_t worker; /* its drive's flag is added */
} side_options_t;

/* `options` may be NULL. */
void side_open(side_t *side, const side_options_t *options);
void side_close(side_t *side);

/* From now on contexts have large payloads go by UCX over TCP as well, and not
 * by a bulk stream (am/path/bulk.h). */
void by_ucx_alone(void);

/* From now on contexts have UCX's rendezvous move large payloads over shared
 * memory as well: nobody reads them out of his peer's memory (path/cma.h). */
void without_reading(void);

/* Whether all that is tcp:// otherwise is tls://, by a keyring that every
 * context has; and where a side listens then. With the variable PEERS_TLS. */
bool peers_by_tls(void);
const char *peers_tcp_url(void);

/* The UCX configuration that makes UCX use a link, or NULL. */
const char *link_config(link_t link);

/* Listens, and accepts every endpoint into side->accepted. */
void side_listen(side_t *side, const char *url);
void side_listen_link(side_t *side, link_t link);

/* Starts to connect to where `to` listens. */
tmsg_endpoint_t *side_dial(side_t *side, const side_t *to);

/* Drives the sides, if any, each its own way, until done(arg). `what` is
 * waited for.
 * A wake-up that a file descriptor did not tell of ends the test. */
typedef bool (*done_fn)(void *arg);
void await(side_t *const *sides, size_t count, done_fn done, void *arg,
           const char *what);

/* Two connected sides in one process; b dials. */
typedef struct {
    side_t a, b;
    side_t *sides[2];
    tmsg_endpoint_t *to_b; /* a's */
    tmsg_endpoint_t *to_a; /* b's */
} pair_t;

/* `a` and `b` may be NULL. */
void pair_open(pair_t *pair, link_t link, drive_t drive,
               const side_options_t *a, const side_options_t *b);
/* Closes the connection in order, then both sides. */
void pair_close(pair_t *pair);
/* Ends both sides at once. */
void pair_drop(pair_t *pair);

/* These drive both sides of a pair. */
void pair_await(pair_t *pair, done_fn done, void *arg, const char *what);
/* The outcome of a request, which stays the caller's. */
tmsg_status_t pair_wait(pair_t *pair, tmsg_request_t *request);
/* The same, and destroys it. */
tmsg_status_t pair_finish(pair_t *pair, tmsg_request_t *request);
tmsg_message_t *pair_take(pair_t *pair, side_t *side);
/* Until the endpoint's status is no longer OK or IN_PROGRESS: which it is. */
tmsg_status_t pair_end_of(pair_t *pair, tmsg_endpoint_t *endpoint);

/* The same for one side alone; the peer is in another process. */
void side_await(side_t *side, done_fn done, void *arg, const char *what);
tmsg_status_t side_wait(side_t *side, tmsg_request_t *request);
tmsg_status_t side_finish(side_t *side, tmsg_request_t *request);
tmsg_message_t *side_take(side_t *side);
tmsg_status_t side_end_of(side_t *side, tmsg_endpoint_t *endpoint);
/* The newest, once there is one that it has not given yet. */
tmsg_endpoint_t *side_accept(side_t *side);
/* Connects to a URL, or dies. */
tmsg_endpoint_t *side_connect(side_t *side, const char *url);

/* Sends and forgets: the map is destroyed, the request its owner. */
tmsg_request_t *send_map(tmsg_endpoint_t *endpoint, tmsg_map_t *map,
                         unsigned flags);

/* For pair_await(): a receive into a map at a, until it ends. */
typedef struct {
    pair_t *pair;
    const tmsg_map_t *map;
    tmsg_status_t status;
    tmsg_message_t *message;
    bool unwanted; /* the message is not asked for */
} receiving_t;

bool receiving_has_ended(void *receiving);

/* Whether tmsg_endpoint_describe() says that a transport is in use. */
bool endpoint_uses(const tmsg_endpoint_t *endpoint, const char *transport);

/* Whether its large payloads go by a connection of their own; for await(). */
bool endpoint_has_bulk(void *endpoint);

/* Whether the peer reads large payloads out of this side's memory; likewise. */
bool endpoint_is_read(void *endpoint);

/* A path in /tmp that this process alone uses; gone at its exit. */
const char *scratch_path(const char *name);

/* Open descriptors of this process. */
int count_descriptors(void);
/* Waits until there are no more than that: the library closes what a peer of
 * another process might still use when that has hung up. */
void await_descriptors(int most);

/* Its threads, this one included. One that was joined may be listed for a
 * moment. */
int count_threads(void);

/* A child process with a pipe each way. It must be made before the parent has
 * opened UCX; it dies with its parent. */
typedef struct {
    pid_t pid;
    int pidfd;
    int in;  /* from it */
    int out; /* to it */
} child_t;

/* For await(): whether a child_t that was sent SIGSTOP stands still, which
 * takes hold of every thread only after a while. */
bool child_is_stopped(void *child);

typedef struct {
    int in;
    int out;
} pipes_t;

/* Runs body(pipes, arg) in a child, which then exits 0. Leaks are not looked
 * for there: LeakSanitizer cannot, once it was forked. */
void child_start(child_t *child, void (*body)(pipes_t *pipes, void *arg),
                 void *arg);
/* Waits for its end, which must be exit 0. */
void child_join(child_t *child);
/* Drives a side until the child has said something, or ended. */
void child_await(side_t *side, child_t *child);
/* SIGKILLs and reaps it. */
void child_kill(child_t *child);

/* Lines through those pipes; get dies at the pipe's end. */
void line_put(int fd, const char *line);
void line_get(int fd, char *line, size_t bytes);

/* A listener's blob through those pipes, and the connection by it. */
void blob_put(int fd, const tmsg_listener_t *listener);
tmsg_endpoint_t *blob_connect(side_t *side, int fd);

#endif
