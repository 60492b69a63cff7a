/* SPDX-License-Identifier: BSD-3-Clause */
/* support/held_resources.h - what this process holds, and so what is left in it
 * of a connection, or of all, when that has gone. Peers, killed ones too, are
 * in other processes. */
#ifndef TMSG_TESTS_HELD_RESOURCES_H
#define TMSG_TESTS_HELD_RESOURCES_H

#include <stdbool.h>
#include <stddef.h>

#include <tensormsg/worker.h>

typedef struct {
    int descriptors;
    int threads;
    int segments; /* of memory that other processes may map */
    size_t bytes; /* of ours, by own_code_alloc.h; 0: nobody counts them */
} left_t;

/* `bytes` is the program's watched_alloc_bytes(), or NULL. */
left_t left_look(size_t (*bytes)(void));

/* The bytes of ours that a worker's pool keeps for whoever is next, whosever
 * message they held (memory/pool.h). They are no part of a connection. */
size_t left_pool_bytes(tmsg_worker_t *worker);

/* Nothing more than before, of whatever. */
bool left_is_none(const left_t *before, const left_t *now);

/* Looks again and again, until there is no more than before or a bound has
 * passed: a thread that was joined may be listed for a moment, and a peer may
 * have yet to hang up. Meanwhile it calls drive(arg), or waits where that is
 * NULL. */
left_t left_await(const left_t *before, size_t (*bytes)(void),
                  void (*drive)(void *arg), void *arg);

/* The same, and dies where there is more. `what` has ended. */
void left_must_be_none(const left_t *before, size_t (*bytes)(void),
                       void (*drive)(void *arg), void *arg, const char *what);

/* "<word> DESCRIPTORS THREADS SEGMENTS BYTES", that there are more than
 * before. */
void left_text(const left_t *before, const left_t *now, const char *word,
               char *text, size_t bytes);

#endif
