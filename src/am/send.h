/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send.h - a map on its way out. */
#ifndef TMSG_AM_SEND_H
#define TMSG_AM_SEND_H

#include "am/endpoint.h"
#include "am/plan.h"

struct tmsg_send {
    tmsg_request_t request; /* outlives its handle */
    tmsg_send_t *next;
    tmsg_send_t *previous;
    tmsg_endpoint_t *endpoint;
    tmsg_map_t *map; /* held until its buffers are free */
    unsigned flags;
    tmsg_policy_t policy;
    uint32_t message_id;
    uint8_t *header; /* UCX reads it until the send has ended */
    size_t header_bytes;
    size_t body_bytes;
    tmsg_plan_t plan;
    tmsg_op_t op;
    bool in_ucx;
    ucs_status_t ucx_status;
    bool answered; /* the peer took it, or refused it */
    tmsg_status_t answer;
    char answer_text[TMSG_ERROR_BYTES];
};

#endif
