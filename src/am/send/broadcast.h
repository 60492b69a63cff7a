/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/broadcast.h - writes maps out for peers that take no broadcast
 * tensors. */
#ifndef TMSG_AM_SEND_BROADCAST_H
#define TMSG_AM_SEND_BROADCAST_H

#include "core/map.h"
#include "memory/pool.h"

/* Holds a map whose broadcast tensors are in C order, and the block that these
 * lie in. The data of its other tensors are those of the original map. All zero
 * bits: none. */
typedef struct {
    tmsg_map_t *map;
    tmsg_pool_block_t block;
} tmsg_written_t;

/* Makes the written-out map of `map`. On error *written is untouched. Errors:
 * NO_MEMORY, UNSUPPORTED (memory that the CPU cannot read). */
tmsg_status_t tmsg_broadcast_write(const tmsg_map_t *map, tmsg_pool_t *pool,
                                   tmsg_written_t *written);

void tmsg_written_free(tmsg_written_t *written, tmsg_pool_t *pool);

#endif
