/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/lend_fill.h - copies tensors that are to be lent, a part at a time.
 * So a loan never stops the thread that progresses for longer than a part
 * takes. */
#ifndef TMSG_AM_SEND_LEND_FILL_H
#define TMSG_AM_SEND_LEND_FILL_H

#include "am/path/loans.h"
#include "am/send/plan.h"
#include "memory/pool.h"

/* Copies the next part of the tensors into a lending of a copy that is not
 * full. Errors: IN_PROGRESS (there is more to be copied); others, after which
 * it cannot be filled. */
tmsg_status_t tmsg_lend_fill(const tmsg_payload_t *payload, tmsg_pool_t *pool,
                             tmsg_lending_t *lending);

#endif
