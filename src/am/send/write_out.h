/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/write_out.h - maps for peers that take no tensor broadcast. */
#ifndef TMSG_AM_SEND_WRITE_OUT_H
#define TMSG_AM_SEND_WRITE_OUT_H

#include "core/map.h"
#include "memory/pool.h"

/* A map whose broadcast tensors are in C order, and what these lie in. The
 * others' data are those of the map that it was made of. All zero bits: none.
 */
typedef struct {
    tmsg_map_t *map;
    tmsg_pool_block_t block;
} tmsg_written_t;

/* Errors: NO_MEMORY, UNSUPPORTED (memory that the CPU cannot read). On error
 * *written is untouched. */
tmsg_status_t tmsg_write_out(const tmsg_map_t *map, tmsg_pool_t *pool,
                             tmsg_written_t *written);

void tmsg_written_free(tmsg_written_t *written, tmsg_pool_t *pool);

#endif
