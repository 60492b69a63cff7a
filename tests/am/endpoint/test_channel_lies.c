/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* A peer that lies about channels loses its connection. */
#include <criterion/criterion.h>
#include <string.h>

#include "am/endpoint/control.h"
#include "am/endpoint/endpoint.h"
#include "core/bytes.h"
#include "support/channels.h"
#include "support/raw.h"
#include "support/sample.h"

/* Ends that cannot be: what they say of channel 0, which got 1 message, and of
 * others, of which 1 and 2 got 2 each. */
static const struct {
    const char *what;
    uint8_t list[18];
    size_t bytes;
} false_ends[] = {
    {"no word of those that were used", {0}, 0},
    {"one left out", {1, 0, 2, 0, 0, 0}, 6},
    {"one counts less than came", {1, 0, 2, 0, 0, 0, 2, 0, 1, 0, 0, 0}, 12},
    {"one counts beyond the window", {1, 0, 2, 0, 0, 0, 2, 0, 2, 0, 1, 0}, 12},
    {"in descending order", {2, 0, 2, 0, 0, 0, 1, 0, 2, 0, 0, 0}, 12},
    {"one twice", {1, 0, 2, 0, 0, 0, 2, 0, 2, 0, 0, 0, 2, 0, 2, 0, 0, 0}, 18},
    {"channel 0 again", {0, 0, 1, 0, 0, 0, 1, 0, 2, 0, 0, 0}, 12},
    {"one that was not offered",
     {1, 0, 2, 0, 0, 0, 2, 0, 2, 0, 0, 0, 64, 0, 0, 0, 0, 0},
     18},
    {"a list that breaks off", {1, 0, 2, 0, 0, 0, 2, 0, 2, 0, 0}, 11},
};

static void say_bye(pair_t *pair, size_t row)
{
    uint8_t data[4 + sizeof(false_ends[0].list)];
    const tmsg_preamble_t head = {.endpoint_id = pair->to_a->peer_id,
                                  .sequence = 1};

    tmsg_put_le(data, 1, 4);
    memcpy(data + 4, false_ends[row].list, false_ends[row].bytes);
    if (pair->to_a->link.fd >= 0) {
        raw_send_frame(pair->to_a->link.fd, TMSG_KIND_BYE, data,
                       4 + false_ends[row].bytes);
    } else {
        must(tmsg_control_post(pair->to_a, TMSG_KIND_BYE, &head, NULL, 0,
                               data + 4, false_ends[row].bytes));
    }
}

static void tell_false_ends(link_t link)
{
    for (size_t i = 0; i < sizeof(false_ends) / sizeof(false_ends[0]); i++) {
        pair_t pair;

        pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
        for (unsigned j = 0; j < 5; j++) {
            send_bytes(pair.to_a, j % 3 == 0 && j > 0 ? 2 : j % 3, j, 10, 0);
        }
        must_eq(pair.to_a->channels.zero.tx_sequence, 1);
        await_arrivals(&pair, 5);
        say_bye(&pair, i);
        if (pair_end_of(&pair, pair.to_b) != TMSG_ERR_MALFORMED) {
            die("%s: '%s'", false_ends[i].what, tmsg_endpoint_error(pair.to_b));
        }
        pair_drop(&pair);
    }
}

Test(channel_lies, false_ends_end_the_connection) { tell_false_ends(LINK_SHM); }
Test(channel_lies, false_ends_end_the_connection_blob)
{
    tell_false_ends(LINK_BLOB);
}

/* Control messages on channels that they cannot be on. */
static void tell(uint8_t kind, unsigned channel, uint32_t sequence)
{
    static const uint8_t body[24];
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    send_bytes(pair.to_b, 7, 1, 10, 0);
    tmsg_message_destroy(pair_take(&pair, &pair.b));
    must(tmsg_control_post(pair.to_a, kind,
                           &(tmsg_preamble_t){.channel = (uint16_t)channel,
                                              .endpoint_id = pair.to_a->peer_id,
                                              .sequence = sequence},
                           body, sizeof(body), NULL, 0));
    must_be(pair_end_of(&pair, pair.to_b), TMSG_ERR_MALFORMED);
    pair_drop(&pair);
}

Test(channel_lies, lies_about_channels_end_the_connection)
{
    tell(TMSG_KIND_CREDIT, 8, 0);     /* never used */
    tell(TMSG_KIND_CREDIT, 7, 2);     /* for more than was sent */
    tell(TMSG_KIND_CREDIT, 65535, 0); /* not offered */
    tell(TMSG_KIND_SCHEMA, 8, 0);
    tell(TMSG_KIND_SCHEMA, 7, 0); /* answers what was answered */
    tell(TMSG_KIND_ACK, 7, 0);    /* no channel's */
    tell(TMSG_KIND_MAP, 64, 0);
    tell(TMSG_KIND_MAP, 3, 256); /* beyond its window */
}
