/* SPDX-License-Identifier: BSD-3-Clause */
/* bench/many.h - who plays a part in bench_many_run(): a server with all
 * endpoints, or one of its clients. */
#ifndef TMSG_BENCH_MANY_H
#define TMSG_BENCH_MANY_H

#include "bench.h"

#define BENCH_MANY_AHEAD 16 /* messages that a client has under way */

typedef struct {
    const bench_many_t *many;
    unsigned share; /* endpoints of this process */
    bool serves;    /* it is the server */
    int socket;     /* to the parent, who says when to begin */
} bench_player_t;

/* Plays it to the end. The server first tells the parent its address, which
 * the clients hear; then come the blocks. */
void bench_many_play_maps(const bench_player_t *self);
void bench_many_play_raw(const bench_player_t *self);

/* Plays all blocks, the first of them as a warm-up: block(arg) takes the
 * messages of one block, or sends this client's share of them. Then it reports
 * the rate, and the bytes of an endpoint since bench_counts_start(), to the
 * parent. */
void bench_many_blocks(const bench_player_t *self, void (*block)(void *arg),
                       void *arg);

#endif
