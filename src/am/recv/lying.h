/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/lying.h - eager payloads that are used where UCX has laid them.
 *
 * Only those of more than TMSG_LYING_LEAST bytes: UCX puts them together in
 * memory of their own, where a shorter one may take up one of the segments that
 * it receives into, of which there are few. They count against held_bytes like
 * any other memory, and keep their UCX worker alive, which has to free them. */
#ifndef TMSG_AM_RECV_LYING_H
#define TMSG_AM_RECV_LYING_H

#include "am/recv/message.h"

#define TMSG_LYING_LEAST 65536

/* Whether a message that arrived may be, all of it: nobody else has given
 * memory for it, and its tensors are aligned there. Its map is known. */
bool tmsg_message_may_lie(const tmsg_message_t *message);

/* Uses it there. Errors: IN_PROGRESS (over the budget: ask again when
 * signalled). */
tmsg_status_t tmsg_message_lie(tmsg_message_t *message);

/* From any thread, when such a message ends. */
void tmsg_message_lift(tmsg_message_t *message);

#endif
