/* SPDX-License-Identifier: BSD-3-Clause */
/* am/connect/close.h - the orderly end of a connection. Lock held, for all
 * functions here. */
#ifndef TMSG_AM_CONNECT_CLOSE_H
#define TMSG_AM_CONNECT_CLOSE_H

#include "am/endpoint/endpoint.h"

/* Takes every step that can be taken. Called whenever a step may have become
 * possible. */
void tmsg_close_advance(tmsg_endpoint_t *endpoint);

/* Handle BYE and FIN. BYE: the peer sends no message from `sequence` on over
 * channel 0, and none on the other channels from the numbers in the list on.
 * FIN: the peer has received all our messages; 1: its server shuts down. A
 * malformed end breaks the
 * endpoint. */
void tmsg_close_bye(tmsg_endpoint_t *endpoint, uint32_t sequence,
                    const uint8_t *list, size_t list_bytes);
void tmsg_close_fin(tmsg_endpoint_t *endpoint, uint32_t value);

/* Returns whether both sides have received everything. */
bool tmsg_close_is_over(const tmsg_endpoint_t *endpoint);

/* Forgets the end, because the endpoint gets another connection. */
void tmsg_close_forget(tmsg_endpoint_t *endpoint);

#endif
