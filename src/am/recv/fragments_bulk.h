/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/fragments_bulk.h - fragments that arrive by a bulk stream: the
 * receiver's half of bulk_user.h. */
#ifndef TMSG_AM_RECV_FRAGMENTS_BULK_H
#define TMSG_AM_RECV_FRAGMENTS_BULK_H

#include "am/path/bulk_user.h"

/* The table tmsg_bulk_user has these functions as .place and .landed. */
const char *tmsg_fragments_bulk_place(tmsg_endpoint_t *endpoint,
                                      const tmsg_bulk_head_t *head,
                                      tmsg_bulk_place_t *place);
void tmsg_fragments_bulk_landed(tmsg_message_t *message, tmsg_ucx_status_t ucs);

#endif
