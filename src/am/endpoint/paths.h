/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/paths.h - what an endpoint keeps of the ways past UCX. */
#ifndef TMSG_AM_ENDPOINT_PATHS_H
#define TMSG_AM_ENDPOINT_PATHS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/list.h"

#define TMSG_CMA_BYTES 16 /* in place of a payload: address u64, token u64 */

/* Of an endpoint. All zero bits: neither side reads. */
typedef struct {
    bool sends;    /* the peer reads our memory: it has said so */
    bool receives; /* and we its, which it was told */
    uint64_t tokens;
    tmsg_list_t lent;  /* payloads that the peer has not read yet, */
    tmsg_list_t ended; /* and that it never will: their connection is over */
} tmsg_cma_t;

#endif
