/* SPDX-License-Identifier: BSD-3-Clause */
/* A receiver closes a connection while it fetches a message. If the sender's
 * queue is full, UCX has not asked the sender for the payload yet, and reports
 * the end of the fetch inside the call that closes. */
#include <criterion/criterion.h>

#include "am/endpoint/endpoint.h"
#include "am/recv/message.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

enum { SMALL = 600, FETCHED = 8, TURNS = 1000 };

/* Long names make a body that travels before the payload: UCX fetches the two
 * piece by piece, and asks the sender for each. */
static tmsg_request_t *send_spilled(tmsg_endpoint_t *endpoint)
{
    const sample_t sample = {.seed = 1, .tensors = 12, .name_bytes = 3000};
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_WAY,
                                       .protocol = TMSG_PROTOCOL_RNDV};
    tmsg_map_t *map = sample_make(&sample);
    tmsg_request_t *sent;

    must(tmsg_endpoint_send(endpoint, map, &params, &sent));
    tmsg_map_destroy(map);
    return sent;
}

static unsigned count_fetched(const pair_t *pair)
{
    const tmsg_message_t *message = pair->to_b->channels.zero.rx;
    unsigned count = 0;

    for (; message != NULL; message = message->next_in_order) {
        count += message->state == TMSG_RX_FETCHING && message->pending > 0;
    }
    return count;
}

Test(fetch_ends, inside_the_call_that_closes_its_connection)
{
    const side_options_t deep = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_QUEUE_DEPTH,
                   .queue_depth = 2 * SMALL}};
    tmsg_request_t *sent[FETCHED];
    pair_t pair;

    without_reading();
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, &deep);
    for (unsigned i = 0; i < FETCHED; i++) {
        sent[i] = send_spilled(pair.to_a);
    }
    for (unsigned i = 0; i < SMALL; i++) { /* that b does not read */
        tmsg_request_destroy(send_map(pair.to_b, sample_bytes(i, 8), 0));
    }
    for (unsigned i = 0; i < TURNS && count_fetched(&pair) < FETCHED; i++) {
        tmsg_worker_progress(pair.a.worker);
    }
    must_eq(count_fetched(&pair), FETCHED);
    tmsg_endpoint_destroy(pair.to_b);
    for (unsigned i = 0; i < FETCHED; i++) {
        pair_finish(&pair, sent[i]);
    }
    pair_drop(&pair);
}
