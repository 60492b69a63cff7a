/* SPDX-License-Identifier: BSD-3-Clause */
/* bench/many.h - who plays a part in bench_many_run(): a server with all
 * endpoints, or one of its clients. */
#ifndef TMSG_BENCH_MANY_H
#define TMSG_BENCH_MANY_H

#include "bench.h"

#define BENCH_MANY_TENSORS 8
#define BENCH_MANY_TENSOR_BYTES 64
#define BENCH_MANY_AHEAD 16 /* messages that a client has under way */

typedef struct {
    const bench_many_t *many;
    unsigned share; /* endpoints of this process */
    int socket;     /* to the parent, who says when to begin */
} bench_player_t;

/* Plays it to the end. The server first tells the parent its address, which
 * the clients hear; each block begins with bench_many_meet(); the last thing is
 * bench_many_tell(). */
void bench_many_play_maps(const bench_player_t *self, bool serving);
void bench_many_play_raw(const bench_player_t *self, bool serving);

/* Returns when all have called it. */
void bench_many_meet(const bench_player_t *self);

/* What the server saw of each block, from the second on; NULL: a client. `held`
 * are the bytes of all this process's endpoints. */
void bench_many_tell(const bench_player_t *self, const double *rates,
                     long held);

#endif
