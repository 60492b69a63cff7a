/* SPDX-License-Identifier: BSD-3-Clause */
/* receiver.h - the inside of `tensormsg recv`. recv.c has the arguments and the
 * loop; receiver.c has the peers and the maps. */
#ifndef TMSG_RECEIVER_H
#define TMSG_RECEIVER_H

#include "flood.h"
#include "job.h"
#include "options.h"

typedef struct {
    connection_options_t connection;
    const char *capture; /* folder for captured headers, or NULL */
    unsigned count;      /* number of maps to receive; 0 means until a signal */
    int timeout_ms;      /* wait for a file, or for another sender */
    bool verbose;
    bool json;
} recv_options_t;

typedef struct peer {
    struct peer *next;
    tmsg_endpoint_t *endpoint;
    unsigned number;     /* number of the connection, from 1 */
    int64_t offer;       /* number of the file that comes next, or 0 */
    uint64_t offered_ns; /* time of that file's offer */
    uint64_t due_ns; /* time by which that file, or its verdict, is due; or 0 */
    uint64_t bytes;  /* bytes of that file */
    char *name;      /* name of that file, or NULL */
    char *note;      /* note of the last file offered, or NULL */
    bool checked;    /* the sender gives a verdict on that file */
    tmsg_message_t *held;       /* that file until the verdict comes, or NULL */
    uint64_t spoken_ns;         /* time of the last message to this peer */
    tmsg_request_t *last_alive; /* request of the last ALIVE message, or NULL */
} peer_t;

typedef struct {
    const recv_options_t *options;
    tmsg_context_t *context;
    tmsg_worker_t *worker;
    tmsg_listener_t *listener;
    store_t store;
    peer_t *peers;
    job_t job;
    tmsg_message_t *message; /* message of the job under way, or NULL */
    peer_t *sender;          /* peer that sent `message` */
    uint64_t job_ns;         /* time of the beginning of that job */
    unsigned accepted;       /* number of connections so far */
    unsigned received;       /* number of maps that arrived complete */
    unsigned captured;
    unsigned done;    /* number of maps that were kept, or printed */
    bool stopping;    /* takes no more maps */
    bool output_lost; /* standard output cannot be written */
    bool failed;      /* a sender has failed, and no later one has sent a map */
    unsigned failed_at;   /* the value of `accepted` at that time */
    uint64_t deadline_ns; /* end of the wait for another sender, or 0 */
    flood_t refused;      /* lines about files that are refused */
    flood_t lost;         /* lines about other faults of senders */
    pthread_t thread;     /* thread that drives the worker */
    char held[1024];      /* the library's last log line, or "" */
} receiver_t;

/* Holds a log line back, as a tmsg_log_fn, until the next line, or until
 * receiver_say_held(). If the line is about the end of a connection, the
 * receiver can then add which file did not arrive. `arg` is the receiver. */
void receiver_hold(void *arg, tmsg_log_level_t level, const char *line);

/* Prints the line that receiver_hold() holds back. */
void receiver_say_held(receiver_t *receiver);

/* Does that, and tells how many lines were not printed. */
void receiver_say_rest(receiver_t *receiver);

/* Adds a peer for a new connection, as a tmsg_accept_fn. `arg` is the
 * receiver. */
void receiver_accept(void *arg, tmsg_endpoint_t *endpoint);

/* Tells whether --count is reached. */
bool receiver_is_done(const receiver_t *receiver);

/* Handles one thing: the end of a job, a message, or the end of a connection.
 * Returns false if there was nothing to do. */
bool receiver_step(receiver_t *receiver);

/* Does what is due: sends ALIVE to each sender whose file is under way, gives
 * up one whose file does not come, and tells how many lines were not printed.
 * Returns the milliseconds until the next call is due, or -1 if no call is
 * due. */
int receiver_do_due(receiver_t *receiver);

/* Tells whether --count is set, a sender has failed, none is connected, and the
 * time for another one is over. */
bool receiver_is_left_alone(const receiver_t *receiver);

/* Refuses the files under way, with the reason `why`, and closes all
 * connections in order. Waits three seconds at most, and frees the peers. */
void receiver_close(receiver_t *receiver, const char *why);

#endif
