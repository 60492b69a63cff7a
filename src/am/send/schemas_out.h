/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/schemas_out.h - layouts that the peer keeps, of what is sent to it.
 */
#ifndef TMSG_AM_SEND_SCHEMAS_OUT_H
#define TMSG_AM_SEND_SCHEMAS_OUT_H

#include "am/endpoint/endpoint.h"
#include "am/endpoint/kinds.h"

/* The sender's table, made when first asked for; NULL where the peer keeps
 * none, or there is no memory: then maps go in full. */
tmsg_schema_table_t *tmsg_schemas_table(tmsg_channel_t *channel);

#endif
