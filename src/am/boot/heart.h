/* SPDX-License-Identifier: BSD-3-Clause */
/* am/boot/heart.h - a context's small thread. It sends signs of life through
 * the bootstrap sockets, and hears those of the peers, while the application
 * computes. It calls neither UCX nor the application, and blocks all signals.
 */
#ifndef TMSG_AM_BOOT_HEART_H
#define TMSG_AM_BOOT_HEART_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "am/boot/frame.h"
#include "core/list.h"

#define TMSG_FRAME_HEARTBEAT 4          /* beside those of endpoint/conn.h */
#define TMSG_HEARTBEAT_LEAST_MS 50      /* a shorter interval counts as this */
#define TMSG_HEARTBEAT_NEVER UINT32_MAX /* sends them, and wants none */

/* Embedded in what has a socket. All zero bits: in no heart. */
typedef struct {
    tmsg_node_t node;
    tmsg_frame_stream_t *stream; /* NULL: in no heart */
    uint64_t beat_ns;            /* between two of ours; 0: none are wanted */
    _Atomic uint64_t next_ns;
} tmsg_pulse_t;

/* Of a context. */
typedef struct {
    uint64_t listen_ns; /* between two looks for the peers'; 0: none come */
    pthread_mutex_t lock;
    pthread_cond_t stirred; /* the thread is to look */
    pthread_cond_t visited;
    tmsg_list_t pulses;
    tmsg_node_t *next;       /* of the round that is under way */
    tmsg_pulse_t *visiting;  /* without the lock */
    _Atomic uint64_t due_ns; /* of the next round; UINT64_MAX: none */
    bool ending;
    _Atomic pid_t owner; /* of the thread; 0: it has not been started */
    pthread_t thread;
} tmsg_heart_t;

/* `timeout_ms` after which the peers' silence counts, 0: never. */
void tmsg_heart_open(tmsg_heart_t *heart, uint32_t timeout_ms);

/* Joins the thread, if there is one. Every pulse was removed. */
void tmsg_heart_close(tmsg_heart_t *heart);

/* Begins to beat every `beat_ms` (TMSG_HEARTBEAT_NEVER: not at all) through a
 * stream, and to listen. The first one starts the thread. Errors: IO,
 * UNSUPPORTED (this is a fork of the process that has the thread). */
tmsg_status_t tmsg_heart_add(tmsg_heart_t *heart, tmsg_pulse_t *pulse,
                             tmsg_frame_stream_t *stream, uint32_t beat_ms);

/* Ends that; when it returns the thread does not use the stream any more. A
 * pulse in no heart is left as it is. */
void tmsg_heart_remove(tmsg_heart_t *heart, tmsg_pulse_t *pulse);

/* Has the next one sent no sooner than an interval from now. */
void tmsg_heart_put_off(tmsg_pulse_t *pulse);

/* Whether the thread is late, because this process was stopped or starved:
 * then it may be that we did not hear what the peers said. */
bool tmsg_heart_is_late(const tmsg_heart_t *heart);

#endif
