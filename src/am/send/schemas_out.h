/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/schemas_out.h - the layouts of sent maps that the peer keeps. */
#ifndef TMSG_AM_SEND_SCHEMAS_OUT_H
#define TMSG_AM_SEND_SCHEMAS_OUT_H

#include "am/endpoint/endpoint.h"
#include "am/endpoint/kinds.h"

/* Returns the sender's table of a channel, and makes it on first use. Returns
 * NULL if the peer keeps no layouts or there is no memory; maps then go in
 * full. */
tmsg_schema_table_t *tmsg_schemas_table(tmsg_channel_t *channel);

#endif
