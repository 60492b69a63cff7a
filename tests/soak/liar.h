/* SPDX-License-Identifier: BSD-3-Clause */
/* liar.h - a peer that is admitted and then changes what it says. The program
 * that has it sends its active messages and bytes of sockets by way of it. */
#ifndef TMSG_TESTS_LIAR_H
#define TMSG_TESTS_LIAR_H

#include "support/peers.h"

#define LIAR_RESUME_MS 300 /* of sessions whose connection broke */

typedef struct {
    link_t link;
    uint64_t seed;
} liar_role_t;

/* Of child_start(), with its role: is told a URL, connects there some times,
 * calls "echo" and opens streams to "talk", and says how many messages and
 * frames it has changed. */
void liar_run(pipes_t *pipes, void *role);

#endif
