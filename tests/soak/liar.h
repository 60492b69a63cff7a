/* SPDX-License-Identifier: BSD-3-Clause */
/* liar.h - a peer that is admitted and then changes what it says, or the memory
 * that it shares with its peer (flipper.h). The program that has it sends its
 * active messages and bytes of sockets by way of it. */
#ifndef TMSG_TESTS_LIAR_H
#define TMSG_TESTS_LIAR_H

#include "support/peers.h"

#define LIAR_RESUME_MS 300 /* of sessions whose connection broke */

typedef struct {
    link_t link;
    bool keyed; /* both sides have the key of number 1 */
    uint64_t seed;
    bool in_memory; /* what it says is right; what both share, it changes */
} liar_role_t;

/* How all sides of that role are made. */
void liar_open_side(side_t *side, const liar_role_t *role,
                    const side_options_t *options);

/* Where to connect: told through a pipe, and as often as is wanted. */
typedef struct {
    char url[256];
    uint8_t blob[8192];
    size_t blob_bytes; /* 0: there is none */
} door_t;

void door_put(int fd, const tmsg_listener_t *listener);
void door_get(int fd, door_t *door);
/* Connects, or dies. `params` may be NULL. */
tmsg_endpoint_t *door_enter(const door_t *door, side_t *side,
                            const tmsg_endpoint_params_t *params);

/* Of child_start(), with its role: is told a door, connects there some times,
 * calls "echo" and opens streams to "talk", and says how many messages, frames
 * and words of memory it has changed. */
void liar_run(pipes_t *pipes, void *role);

#endif
