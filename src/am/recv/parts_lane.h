/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/parts_lane.h - parts that arrive by a lane: the receiver's half of
 * lane_user.h. */
#ifndef TMSG_AM_RECV_PARTS_LANE_H
#define TMSG_AM_RECV_PARTS_LANE_H

#include "am/path/lane_user.h"

/* The table tmsg_lane_user has these functions as .place and .landed. */
const char *tmsg_parts_lane_place(tmsg_endpoint_t *endpoint,
                                  const tmsg_lane_head_t *head,
                                  tmsg_lane_place_t *place);
void tmsg_parts_lane_landed(tmsg_message_t *message, tmsg_ucx_status_t ucs);

#endif
