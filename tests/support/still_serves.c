/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/still_serves.h"

#include <string.h>

#include "support/seeded_maps.h"

void side_serves(side_t *to)
{
    unsigned before = to->accepts;
    tmsg_endpoint_t *endpoint;
    tmsg_message_t *message;
    tmsg_request_t *closed;
    pair_t pair;

    memset(&pair, 0, sizeof(pair));
    side_open(&pair.b, NULL);
    pair.sides[0] = to;
    pair.sides[1] = &pair.b;
    endpoint = side_dial(&pair.b, to);
    tmsg_request_destroy(send_map(endpoint, sample_bytes(7, 1000), 0));
    message = pair_take(&pair, to);
    sample_check_bytes(7, 1000, tmsg_message_map(message));
    tmsg_message_destroy(message);
    must(tmsg_endpoint_close(endpoint, &closed));
    must(pair_finish(&pair, closed));
    must_eq(to->accepts, before + 1);
    must_be(pair_end_of(&pair, to->accepted), TMSG_ERR_CLOSED);
    tmsg_endpoint_destroy(to->accepted);
    side_close(&pair.b);
}
