/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/in_place.h - eager payloads that are used where UCX has put them.
 *
 * Only payloads of more than TMSG_IN_PLACE_LEAST bytes are used in place: UCX
 * assembles them in memory of their own. A shorter payload may occupy one of
 * UCX's receive segments, of which there are few. Payloads in place count
 * against held_bytes like any other memory. They keep their UCX worker alive,
 * which has to free them. */
#ifndef TMSG_AM_RECV_IN_PLACE_H
#define TMSG_AM_RECV_IN_PLACE_H

#include "am/recv/message.h"

#define TMSG_IN_PLACE_LEAST 65536

/* Returns whether the whole message may be used in place: nobody else has given
 * memory for it, and its tensors are aligned. The map must be known. Lock held.
 */
bool tmsg_message_may_stay_in_place(const tmsg_message_t *message);

/* Uses the payload in place. Lock held. Errors: IN_PROGRESS (over the memory
 * budget; ask again when the budget signals). */
tmsg_status_t tmsg_message_use_in_place(tmsg_message_t *message);

/* Returns a payload in place to UCX when its message ends. Does nothing if the
 * payload is not in place. Any thread. */
void tmsg_message_end_in_place(tmsg_message_t *message);

#endif
