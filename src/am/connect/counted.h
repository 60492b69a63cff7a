/* SPDX-License-Identifier: BSD-3-Clause */
/* am/connect/counted.h - whether the peer reads what this side writes to the
 * stream of messages. A relay between the two acknowledges what it keeps back,
 * so that the kernel tells nothing (net/unacked.h). This side asks by the
 * bootstrap socket, COUNT, and the peer's worker answers how many bytes it has
 * read, COUNTED. A peer that computes answers nothing, and is not judged.
 * docs/wire/connection.md has the rules, "Paths". */
#ifndef TMSG_AM_CONNECT_COUNTED_H
#define TMSG_AM_CONNECT_COUNTED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "am/endpoint/endpoint.h"

/* Asks the peer, unless it has said that it has read all that was written, and
 * once in `every_ns` at most. Returns the time until the next question;
 * UINT64_MAX: none is to be asked. Lock held. */
uint64_t tmsg_counted_ask(tmsg_endpoint_t *endpoint, uint64_t every_ns);

/* Returns for how long the peer has read nothing of what was written, if it has
 * said so `answers` times, one after the other: a machine that stood still in
 * between counts once. 0: it reads, or does not say. */
uint64_t tmsg_counted_stuck_ns(const tmsg_endpoint_t *endpoint,
                               unsigned answers);

/* Take the two frames. Errors: MALFORMED, and those of tmsg_link_put(). */
tmsg_status_t tmsg_counted_asked(tmsg_endpoint_t *endpoint, size_t bytes);
tmsg_status_t tmsg_counted_told(tmsg_endpoint_t *endpoint, const uint8_t *data,
                                size_t bytes);

#endif
