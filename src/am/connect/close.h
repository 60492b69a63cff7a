/* SPDX-License-Identifier: BSD-3-Clause */
/* am/connect/close.h - the orderly end of a connection. */
#ifndef TMSG_AM_CONNECT_CLOSE_H
#define TMSG_AM_CONNECT_CLOSE_H

#include "am/endpoint/endpoint.h"

/* Takes every step that can be taken; called whenever one may have become
 * possible. */
void tmsg_close_advance(tmsg_endpoint_t *endpoint);

/* The peer said so: it sends no message from `sequence` on, on channel 0, nor
 * from those on that the list says of the others; it has all ours. */
void tmsg_close_bye(tmsg_endpoint_t *endpoint, uint32_t sequence,
                    const uint8_t *list, size_t list_bytes);
void tmsg_close_fin(tmsg_endpoint_t *endpoint);

/* Whether both sides have received all. */
bool tmsg_close_is_over(const tmsg_endpoint_t *endpoint);

/* The endpoint gets another connection. */
void tmsg_close_forget(tmsg_endpoint_t *endpoint);

#endif
