/* SPDX-License-Identifier: BSD-3-Clause */
/* rpc/describe.h - tells peers what goes on in this process. */
#ifndef TMSG_RPC_DESCRIBE_H
#define TMSG_RPC_DESCRIBE_H

#include <tensormsg/server.h>

/* The tensors of the reply, whose bytes are text: the JSON of
 * tmsg_worker_overview(), and what tmsg_metrics_text() tells. */
#define TMSG_DESCRIBED_PROCESS "process"
#define TMSG_DESCRIBED_METRICS "metrics"

/* Serves as the handler of TMSG_METHOD_DESCRIBE. */
void tmsg_describe_answer(void *arg, tmsg_task_t *task);

#endif
