/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/endpoint/op.h"

#include "am/endpoint/endpoint.h"

void tmsg_op_begin(tmsg_endpoint_t *endpoint, tmsg_op_t *op,
                   void (*abandoned)(tmsg_op_t *op))
{
    op->abandoned = abandoned;
    tmsg_list_push(&endpoint->ops, &op->node);
    endpoint->in_ucx++;
}

void tmsg_op_over(tmsg_endpoint_t *endpoint, tmsg_op_t *op)
{
    tmsg_list_remove(&endpoint->ops, &op->node);
}

void tmsg_ops_abandon(tmsg_endpoint_t *endpoint)
{
    tmsg_endpoint_hold(endpoint);
    while (endpoint->ops.count > 0) {
        tmsg_op_t *op = TMSG_CONTAINER_OF(endpoint->ops.head, tmsg_op_t, node);

        op->abandoned(op);
    }
    tmsg_endpoint_drop(endpoint);
}
