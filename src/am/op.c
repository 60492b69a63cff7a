/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/op.h"

#include "am/endpoint.h"

void tmsg_op_begin(tmsg_endpoint_t *endpoint, tmsg_op_t *op,
                   void (*forsaken)(tmsg_op_t *op))
{
    op->forsaken = forsaken;
    op->previous = NULL;
    op->next = endpoint->ops;
    if (op->next != NULL) {
        op->next->previous = op;
    }
    endpoint->ops = op;
    endpoint->in_ucx++;
}

void tmsg_op_over(tmsg_endpoint_t *endpoint, tmsg_op_t *op)
{
    if (op->previous == NULL) {
        endpoint->ops = op->next;
    } else {
        op->previous->next = op->next;
    }
    if (op->next != NULL) {
        op->next->previous = op->previous;
    }
}

void tmsg_ops_forsake(tmsg_endpoint_t *endpoint)
{
    tmsg_endpoint_hold(endpoint);
    while (endpoint->ops != NULL) {
        endpoint->ops->forsaken(endpoint->ops);
    }
    tmsg_endpoint_drop(endpoint);
}
