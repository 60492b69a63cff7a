/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/op.h - an operation of an endpoint that UCX works on. */
#ifndef TMSG_AM_ENDPOINT_OP_H
#define TMSG_AM_ENDPOINT_OP_H

#include <tensormsg/endpoint.h>

#include "core/list.h"

/* Is embedded in the record that UCX may touch until it reports. */
typedef struct tmsg_op {
    tmsg_node_t node;
    /* Called instead of UCX's callback if the UCX worker is gone. */
    void (*abandoned)(struct tmsg_op *op);
} tmsg_op_t;

/* Begins an operation that UCX gets, before UCX gets it. The endpoint and its
 * UCX worker stay until tmsg_endpoint_reported(), which is called after
 * tmsg_op_over(). Lock held, as for all functions here. */
void tmsg_op_begin(tmsg_endpoint_t *endpoint, tmsg_op_t *op,
                   void (*abandoned)(tmsg_op_t *op));

/* Ends an operation that UCX has reported. The record may be freed. */
void tmsg_op_over(tmsg_endpoint_t *endpoint, tmsg_op_t *op);

/* Ends all operations that an ended endpoint has left, when its UCX worker is
 * gone. */
void tmsg_ops_abandon(tmsg_endpoint_t *endpoint);

#endif
