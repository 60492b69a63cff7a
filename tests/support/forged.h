/* SPDX-License-Identifier: BSD-3-Clause */
/* support/forged.h - messages about calls and streams that b of a pair sends as
 * it likes, past all that would not let it. */
#ifndef TMSG_TESTS_FORGED_H
#define TMSG_TESTS_FORGED_H

#include "am/calls/calls.h"
#include "am/endpoint/endpoint.h"
#include "support/peers.h"

typedef struct {
    tmsg_preamble_t head;
    tmsg_call_head_t call;
    uint8_t header[512];
    size_t bytes; /* of the header */
} forged_t;

/* Writes the header, with the call's part but for a kind that has none, and an
 * empty body. */
void forged_encode(forged_t *forged);

/* Sends the header as it is, and lets both sides look at it. */
void forged_send(pair_t *pair, const forged_t *forged);

#endif
