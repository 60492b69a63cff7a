/* SPDX-License-Identifier: BSD-3-Clause */
/* am/boot/keepalive.h - a context's small thread. It sends signs of life
 * through the bootstrap sockets, and hears those of the peers, while the
 * application computes. The thread calls neither UCX nor the application, and
 * blocks all signals. */
#ifndef TMSG_AM_BOOT_KEEPALIVE_H
#define TMSG_AM_BOOT_KEEPALIVE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "am/boot/frame.h"
#include "core/list.h"

/* Another frame type, beside those of endpoint/conn.h. */
#define TMSG_FRAME_HEARTBEAT 4
#define TMSG_HEARTBEAT_LEAST_MS 50 /* a shorter interval counts as this one */
/* A side that sends heartbeats, and wants none. */
#define TMSG_HEARTBEAT_NEVER UINT32_MAX

/* One socket's place in a keepalive thread, embedded in what has the socket.
 * All zero bits: in no keepalive thread. */
typedef struct {
    tmsg_node_t node;
    tmsg_frame_stream_t *stream; /* NULL: in no keepalive thread */
    /* Time between two of our heartbeats; 0: the peer wants none. */
    uint64_t beat_ns;
    _Atomic uint64_t next_ns;
} tmsg_pulse_t;

/* The keepalive thread of a context. */
typedef struct {
    /* Time between two looks for heartbeats of the peers; 0: none come. */
    uint64_t listen_ns;
    pthread_mutex_t lock;
    pthread_cond_t stirred; /* the thread is to look */
    pthread_cond_t visited;
    tmsg_list_t pulses;
    tmsg_node_t *next; /* next one of the round that is under way */
    /* The one that the thread is at, without the lock. */
    tmsg_pulse_t *visiting;
    /* When the next round is due; UINT64_MAX: none is. */
    _Atomic uint64_t due_ns;
    bool ending;
    /* Process that has the thread; 0: it was not started. */
    _Atomic pid_t owner;
    pthread_t thread;
} tmsg_keepalive_t;

/* Opens a keepalive thread. `timeout_ms` is the time after which the silence of
 * a peer counts, 0: never. */
void tmsg_keepalive_open(tmsg_keepalive_t *keepalive, uint32_t timeout_ms);

/* Joins the thread, if there is one. The caller has removed every pulse. */
void tmsg_keepalive_close(tmsg_keepalive_t *keepalive);

/* Begins to send a heartbeat through a stream every `beat_ms`
 * (TMSG_HEARTBEAT_NEVER: none), and to listen. The first pulse starts the
 * thread. Errors: IO, UNSUPPORTED (this process is a fork of the one that has
 * the thread). */
tmsg_status_t tmsg_keepalive_add(tmsg_keepalive_t *keepalive,
                                 tmsg_pulse_t *pulse,
                                 tmsg_frame_stream_t *stream, uint32_t beat_ms);

/* Ends tmsg_keepalive_add(). When it returns, the thread does not use the
 * stream any more. A pulse in no keepalive thread is left as it is. */
void tmsg_keepalive_remove(tmsg_keepalive_t *keepalive, tmsg_pulse_t *pulse);

/* Delays the next heartbeat: it is sent no sooner than an interval from now. */
void tmsg_keepalive_put_off(tmsg_pulse_t *pulse);

/* Returns whether the thread is late, because this process was stopped or got
 * no processor. Then this side may not have heard what the peers said. */
bool tmsg_keepalive_is_late(const tmsg_keepalive_t *keepalive);

#endif
