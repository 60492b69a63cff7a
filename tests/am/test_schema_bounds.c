/* SPDX-License-Identifier: BSD-3-Clause */
/* What layouts that are kept, and the answers to them, may cost a side whose
 * peer wants it to. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#include "am/endpoint.h"
#include "am/message.h"
#include "am/schemas.h"
#include "support/peers.h"
#include "support/sample.h"

static uint64_t noted(pair_t *pair, const sample_t *sample)
{
    tmsg_request_t *request =
        send_map(pair->to_a, sample_make(sample), TMSG_SEND_ACKED);
    tmsg_message_t *message = pair_take(pair, &pair->a);
    uint64_t bytes = message->noted;

    tmsg_message_destroy(message);
    must(pair_finish(pair, request));
    return bytes;
}

/* Its layout lives as long as it does, be the slot another's by then. */
Test(schema_bounds, a_message_counts_its_layout_that_went_before)
{
    const sample_t sample = {.seed = 3, .tensors = 50, .name_bytes = 4000};
    pair_t pair;
    uint64_t whole;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    whole = noted(&pair, &sample);
    cr_expect(gt(u64, whole, 50 * 4000));
    cr_expect(ge(u64, noted(&pair, &sample), whole));
    cr_expect(eq(u64, pair.to_a->sent_by_schema, 1));
    pair_close(&pair);
}
