/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* A worker that is destroyed while an interceptor's begin waits on it. */
#include <criterion/criterion.h>

#include "support/peers.h"
#include "support/seeded_maps.h"

static void destroy_worker(void *arg, tmsg_message_t *message)
{
    tmsg_message_destroy(message);
    tmsg_worker_destroy(*(tmsg_worker_t **)arg);
}

static tmsg_status_t wait_in_begin(void *arg, tmsg_intercepted_t *call)
{
    (void)call;
    while (tmsg_worker_wait(*(tmsg_worker_t **)arg, 20000) == TMSG_OK) {
    }
    return TMSG_OK;
}

Test(intercept_gone, a_call_outlives_its_worker)
{
    tmsg_worker_t *worker;
    const side_options_t gone = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_HANDLER,
                   .handler = destroy_worker,
                   .handler_arg = &worker}};
    const tmsg_interceptor_t interceptor = {.field_mask =
                                                TMSG_INTERCEPTOR_BEGIN,
                                            .begin = wait_in_begin,
                                            .arg = &worker};
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, &gone);
    worker = pair.b.worker;
    must(tmsg_worker_intercept(worker, TMSG_SIDE_CALLER, &interceptor));
    tmsg_request_destroy(send_map(pair.to_b, sample_bytes(1, 10), 0));
    must_be(tmsg_endpoint_call(pair.to_a, "echo", NULL, NULL, NULL),
            TMSG_ERR_CLOSED);
    tmsg_context_destroy(pair.b.context);
    side_close(&pair.a);
}
