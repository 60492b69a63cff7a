/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/paths.h - what an endpoint keeps of the ways past UCX. */
#ifndef TMSG_AM_ENDPOINT_PATHS_H
#define TMSG_AM_ENDPOINT_PATHS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/list.h"

/* These bytes go in place of a payload: address u64, token u64. */
#define TMSG_CMA_BYTES 16

/* Tells which side reads the other's memory. All zero bits: neither does. */
typedef struct {
    bool sends;    /* the peer has said that it reads our memory */
    bool receives; /* the peer was told that we read its memory */
    uint64_t tokens;
    tmsg_list_t lent;  /* payloads that the peer has not read yet */
    tmsg_list_t ended; /* payloads it never will: their connection is over */
} tmsg_cma_t;

#endif
