/* SPDX-License-Identifier: BSD-3-Clause */
/* am/path/shared.h - what describe() says of the memory of rings and fast
 * boxes: whether the peer can give its pages back. Lock held. */
#ifndef TMSG_AM_PATH_SHARED_H
#define TMSG_AM_PATH_SHARED_H

#include "am/endpoint/endpoint.h"
#include "am/shm/segment.h"

/* Notes a ring or fast box of the connection, which is settled. */
void tmsg_shared_note(tmsg_endpoint_t *endpoint, const tmsg_segment_t *segment);

/* Returns "none", "sealed", or why it is not sealed. */
const char *tmsg_shared_words(const tmsg_endpoint_t *endpoint);

#endif
