/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/endpoint/op.h"

#include "am/endpoint/endpoint.h"

void tmsg_op_begin(tmsg_endpoint_t *endpoint, tmsg_op_t *op,
                   void (*forsaken)(tmsg_op_t *op))
{
    op->forsaken = forsaken;
    tmsg_list_push(&endpoint->ops, &op->node);
    endpoint->in_ucx++;
}

void tmsg_op_over(tmsg_endpoint_t *endpoint, tmsg_op_t *op)
{
    tmsg_list_remove(&endpoint->ops, &op->node);
}

void tmsg_ops_forsake(tmsg_endpoint_t *endpoint)
{
    tmsg_endpoint_hold(endpoint);
    while (endpoint->ops.count > 0) {
        tmsg_op_t *op = TMSG_CONTAINER_OF(endpoint->ops.head, tmsg_op_t, node);

        op->forsaken(op);
    }
    tmsg_endpoint_drop(endpoint);
}
