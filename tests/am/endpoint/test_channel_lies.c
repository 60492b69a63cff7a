/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* A peer that lies about channels loses its connection. */
#include <criterion/criterion.h>

#include "support/channels.h"
#include "support/forged_messages.h"

#define COUNT(rows) (sizeof(rows) / sizeof(rows[0]))

/* Lists of a BYE, about channels 1 and 2, which got 2 messages each, and about
 * others. Channel 0 got one. */
static const struct {
    uint8_t list[18];
    size_t bytes;
} ends[] = {
    {{0}, 0},
    {{1, 0, 2, 0, 0, 0}, 6},
    {{1, 0, 2, 0, 0, 0, 2, 0, 1, 0, 0, 0}, 12},
    {{1, 0, 2, 0, 0, 0, 2, 0, 2, 0, 1, 0}, 12},
    {{2, 0, 2, 0, 0, 0, 1, 0, 2, 0, 0, 0}, 12},
    {{1, 0, 2, 0, 0, 0, 2, 0, 2, 0, 0, 0, 2, 0, 2, 0, 0, 0}, 18},
    {{0, 0, 1, 0, 0, 0, 1, 0, 2, 0, 0, 0}, 12},
    {{1, 0, 2, 0, 0, 0, 2, 0, 2, 0, 0, 0, 64, 0, 0, 0, 0, 0}, 18},
    {{1, 0, 2, 0, 0, 0, 2, 0, 2, 0, 0}, 11},
};

static void an_end(const pair_t *pair, uint32_t number, forged_t *forged)
{
    forged_make_end(pair, TMSG_KIND_BYE, 1, ends[number].list,
                    ends[number].bytes, forged);
}

static const lie_t false_ends[COUNT(ends)] = {
    LIE("no word of those that were used", ENDS("an impossible count"),
        SAY_NTH(an_end, 0)),
    LIE("one left out", ENDS("an impossible count"), SAY_NTH(an_end, 1)),
    LIE("one counts less than came", ENDS("an impossible count"),
        SAY_NTH(an_end, 2)),
    LIE("one counts beyond the window", ENDS("an impossible count"),
        SAY_NTH(an_end, 3)),
    LIE("in descending order", ENDS("do not ascend"), SAY_NTH(an_end, 4)),
    LIE("one twice", ENDS("do not ascend"), SAY_NTH(an_end, 5)),
    LIE("channel 0 again", ENDS("do not ascend"), SAY_NTH(an_end, 6)),
    LIE("one that was not offered", ENDS("not offered"), SAY_NTH(an_end, 7)),
    LIE("a list that breaks off", ENDS("an end that is cut short"),
        SAY_NTH(an_end, 8)),
};

static void fill_channels(pair_t *pair)
{
    for (unsigned i = 0; i < 5; i++) {
        send_bytes(pair->to_a, i % 3 == 0 && i > 0 ? 2 : i % 3, i, 10, 0);
    }
    must_eq(pair->to_a->channels.zero.tx_sequence, 1);
    await_arrivals(pair, 5);
    for (unsigned i = 0; i < 5; i++) {
        tmsg_message_destroy(pair_take(pair, &pair->a));
    }
}

static void tell_false_ends(link_t link)
{
    const telling_t telling = {.link = link, .prepare = fill_channels};

    tell_lies(&telling, false_ends, COUNT(false_ends));
}

Test(channel_lies, false_ends_end_the_connection) { tell_false_ends(LINK_SHM); }
Test(channel_lies, false_ends_end_the_connection_blob)
{
    tell_false_ends(LINK_BLOB);
}

/* Forges a control message of the channel with that number. */
static void a_word(const pair_t *pair, uint32_t number, forged_t *forged)
{
    static const uint8_t body[24];
    const tmsg_preamble_t head = {.kind = TMSG_KIND_CREDIT,
                                  .channel = (uint16_t)number};

    forged_make(pair, head, body, sizeof(body), forged);
}

/* Messages on channels that they cannot be on; a has sent on channel 7. */
static const lie_t lies[] = {
    LIE("credit of a channel never used", ENDS("never used"),
        SAY_NTH(a_word, 8)),
    LIE("credit for more than was sent", ENDS("never sent"),
        SAY_NTH(a_word, 7, {SAID_SEQUENCE, 2})),
    LIE("credit of a channel not offered", ENDS("never used"),
        SAY_NTH(a_word, 65535)),
    LIE("a schema of a channel never used", ENDS("never used"),
        SAY_NTH(a_word, 8, {SAID_KIND, TMSG_KIND_SCHEMA})),
    LIE("a schema that was answered", ENDS("not asked"),
        SAY_NTH(a_word, 7, {SAID_KIND, TMSG_KIND_SCHEMA})),
    LIE("an ack on a channel", ENDS("has no channel"),
        SAY_NTH(a_word, 7, {SAID_KIND, TMSG_KIND_ACK})),
    LIE("a map on a channel not offered", ENDS("not offered"),
        SAY_NTH(a_word, 64, {SAID_KIND, TMSG_KIND_MAP})),
    LIE("a map beyond its window", ENDS("beyond the window"),
        SAY_NTH(a_word, 3, {SAID_KIND, TMSG_KIND_MAP}, {SAID_SEQUENCE, 256})),
};

static void send_on_channel_7(pair_t *pair)
{
    send_bytes(pair->to_b, 7, 1, 10, 0);
    tmsg_message_destroy(pair_take(pair, &pair->b));
}

Test(channel_lies, lies_about_channels_end_the_connection)
{
    const telling_t telling = {.link = LINK_SHM, .prepare = send_on_channel_7};

    tell_lies(&telling, lies, COUNT(lies));
}
