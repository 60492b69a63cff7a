/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* A map that the peer's limits just admit is sent, whatever a definition of its
 * layout would add to it. */
#include <criterion/criterion.h>

#include "serialize/header.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

static void pass_at_limit(const sample_t *sample)
{
    tmsg_map_t *map = sample_make(sample);
    side_options_t options = {
        .limits = {.field_mask = TMSG_LIMIT_HEADER_BYTES}};
    pair_t pair;
    size_t bytes;

    must(tmsg_body_encode(map, NULL, NULL, 0, &bytes));
    tmsg_map_destroy(map);
    options.limits.header_bytes = bytes;
    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, &options, NULL);
    for (int i = 0; i < 3; i++) {
        tmsg_request_t *request =
            send_map(pair.to_a, sample_make(sample), TMSG_SEND_ACKED);
        tmsg_message_t *message = pair_take(&pair, &pair.a);

        sample_check(sample, tmsg_message_map(message));
        tmsg_message_destroy(message);
        must(pair_finish(&pair, request));
    }
    pair_close(&pair);
}

Test(schema_limit, a_header_of_as_many_bytes_as_the_peer_allows)
{
    const sample_t sample = {.seed = 5, .tensors = 20};

    pass_at_limit(&sample);
}

Test(schema_limit, a_spilled_header_of_as_many_bytes_as_the_peer_allows)
{
    const sample_t sample = {.seed = 5, .tensors = 500, .name_bytes = 200};

    pass_at_limit(&sample);
}
