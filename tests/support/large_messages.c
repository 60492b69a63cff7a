/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/large_messages.h"

#include "support/channels.h"
#include "support/seeded_maps.h"

/* One large, many middling, many small, a little of each, and names that do not
 * fit into a header. */
static const sample_t kinds[] = {
    {.seed = 1, .tensors = 1, .shape = SAMPLE_VECTOR, .elements = 1 << 24},
    {.seed = 2, .tensors = 40, .shape = SAMPLE_VECTOR, .elements = 20000},
    {.seed = 3, .tensors = 4000, .shape = SAMPLE_VECTOR, .elements = 60},
    {.seed = 4, .tensors = 3, .shape = SAMPLE_VECTOR, .elements = 700001},
    {.seed = 5,
     .tensors = 300,
     .name_bytes = 2000,
     .elements = 400,
     .shape = SAMPLE_VECTOR},
};

#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

_Static_assert(LARGE_MESSAGES == KINDS * 3, "three flags");

void large_exchange(pair_t *pair)
{
    static const unsigned flags[] = {0, TMSG_SEND_ACKED, TMSG_SEND_VERIFY};

    for (size_t i = 0; i < LARGE_MESSAGES; i++) {
        const sample_t *kind = &kinds[i % KINDS];
        tmsg_request_t *there =
            send_map(pair->to_a, sample_make(kind), flags[i / KINDS]);
        tmsg_request_t *back =
            send_map(pair->to_b, sample_make(kind), flags[i / KINDS]);
        tmsg_message_t *at_a = pair_take(pair, &pair->a);
        tmsg_message_t *at_b = pair_take(pair, &pair->b);

        sample_check(kind, tmsg_message_map(at_a));
        sample_check(kind, tmsg_message_map(at_b));
        tmsg_message_destroy(at_a);
        tmsg_message_destroy(at_b);
        must(pair_finish(pair, there));
        must(pair_finish(pair, back));
    }
}

void large_take(pair_t *pair, side_t *side, uint64_t seed, size_t bytes)
{
    tmsg_message_t *message = pair_take(pair, side);

    sample_check_bytes(seed, bytes, tmsg_message_map(message));
    tmsg_message_destroy(message);
}

void large_is_passed(pair_t *pair, tmsg_request_t *sent, size_t bytes,
                     size_t by)
{
    tmsg_request_t *passes = send_on(pair->to_a, 1, sample_bytes(2, by), 0);

    large_take(pair, &pair->a, 2, by);
    large_take(pair, &pair->a, 1, bytes);
    must(pair_finish(pair, sent));
    must(pair_finish(pair, passes));
}
