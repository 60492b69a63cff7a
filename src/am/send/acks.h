/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/acks.h - the peer says what became of a message. */
#ifndef TMSG_AM_SEND_ACKS_H
#define TMSG_AM_SEND_ACKS_H

#include "am/endpoint/kinds.h"

tmsg_ucx_status_t tmsg_ack_arrived(const tmsg_arrival_t *arrival);

#endif
