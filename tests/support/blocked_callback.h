/* SPDX-License-Identifier: BSD-3-Clause */
/* support/blocked_callback.h - a callback that does not return before other
 * threads' waits on the same worker have ended. */
#ifndef TMSG_TESTS_BLOCKED_CALLBACK_H
#define TMSG_TESTS_BLOCKED_CALLBACK_H

#include "support/peers.h"

typedef enum {
    STUCK_HANDLER,
    STUCK_ON_DONE,
    STUCK_ON_CLOSED,
    STUCK_ON_ACCEPT,
    STUCK_RELEASE, /* of a map that was sent */
    STUCK_ALLOC,
    STUCK_PLACES
} stuck_place_t;
extern const char *const stuck_place_names[STUCK_PLACES];

/* Two threads wait, each for a send of its own that the peer acknowledges only
 * once the callback has been called, on whatever thread drives: it returns when
 * the other waits have ended. With a handler, more messages come meanwhile.
 * Dies unless all that happens, and callbacks in turn, within
 * PEERS_BOUND_MS. */
void stuck_run(stuck_place_t place, drive_t drive);

#endif
