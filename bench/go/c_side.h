/* SPDX-License-Identifier: BSD-3-Clause */
/* c_side.h - what the Go package is measured against: the same in C, within the
 * same process. It polls. */
#ifndef TENSORMSG_BENCH_GO_C_SIDE_H
#define TENSORMSG_BENCH_GO_C_SIDE_H

#include <stdint.h>

typedef struct c_side c_side_t;

/* Dials (or listens for one peer at) a URL. Messages are received `into` the
 * memory of a map, as by a prepared map of Go's, or are given to a handler.
 * What fails ends the process. */
c_side_t *c_side_open(const char *url, int dialling, int into);
void c_side_close(c_side_t *side);

/* So many tensors of such length, made once, are sent from now on. */
void c_side_load(c_side_t *side, int tensors, int64_t bytes);

/* Round trips. */
void c_side_ask(c_side_t *side, int rounds);
void c_side_answer(c_side_t *side, int rounds);

/* Sends `count`, of which `window` are under way at once. */
void c_side_push(c_side_t *side, int count, int window);
/* Waits until so many have come. */
void c_side_pull(c_side_t *side, int count);

#endif
