/* SPDX-License-Identifier: BSD-3-Clause */
/* support/message_mutator.h - what a peer that was admitted may make of its
 * messages before it sends them. Everything follows from a seed. */
#ifndef TMSG_TESTS_MESSAGE_MUTATOR_H
#define TMSG_TESTS_MESSAGE_MUTATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One active message; the memory is its owner's. */
typedef struct {
    uint8_t *header;
    size_t header_bytes;
    uint8_t *payload;
    size_t payload_bytes;
    unsigned flags; /* UCP_AM_SEND_FLAG_* */
} mutant_t;

void mutant_copy(mutant_t *mutant, const mutant_t *of);
void mutant_free(mutant_t *mutant);

#define MUTATOR_KEPT 16

typedef struct {
    uint64_t state;
    unsigned one_in;             /* so many is changed; 0: none */
    size_t header_most;          /* that UCX takes */
    uint32_t endpoint_id;        /* the receiver's name for this connection */
    mutant_t kept[MUTATOR_KEPT]; /* as they should have been, to come again */
    unsigned kept_count;
    mutant_t late; /* goes behind the next one; no header: none */
    uint64_t changed;
} mutator_t;

void mutator_free(mutator_t *mutator);

/* Whether this one is to go as it is; it is kept to come again. */
bool mutator_spares(mutator_t *mutator, const mutant_t *message);

/* What is to be sent in place of one that is not, three at most: how many. Each
 * is the caller's to free. */
#define MUTATOR_MOST 3
size_t mutator_run(mutator_t *mutator, const mutant_t *message,
                   mutant_t out[MUTATOR_MOST]);

/* The same for bytes on their way into the socket, which may grow by 64. */
size_t mutator_bytes(mutator_t *mutator, uint8_t *data, size_t bytes);

/* A frame that is none, or nearly one: the payload's bytes, `bound` at most. */
size_t mutator_frame(mutator_t *mutator, uint8_t *type_p, uint8_t *data,
                     size_t bound);

#endif
