/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/op.h - an operation that UCX works at for an endpoint. */
#ifndef TMSG_AM_ENDPOINT_OP_H
#define TMSG_AM_ENDPOINT_OP_H

#include <tensormsg/endpoint.h>

#include "core/list.h"

/* Embedded in what UCX may touch until it reports. */
typedef struct tmsg_op {
    tmsg_node_t node;
    void (*forsaken)(struct tmsg_op *op); /* UCX is gone, and never will */
} tmsg_op_t;

/* UCX gets it. The endpoint and its UCX worker stay until
 * tmsg_endpoint_reported(), which is called after tmsg_op_over(). */
void tmsg_op_begin(tmsg_endpoint_t *endpoint, tmsg_op_t *op,
                   void (*forsaken)(tmsg_op_t *op));

/* UCX has reported it: it may be freed. */
void tmsg_op_over(tmsg_endpoint_t *endpoint, tmsg_op_t *op);

/* Ends all that an ended endpoint has left, whose UCX worker is gone. */
void tmsg_ops_forsake(tmsg_endpoint_t *endpoint);

#endif
