/* SPDX-License-Identifier: BSD-3-Clause */
/* An admitted peer that lies about payloads that are read out of its memory, or
 * out of ours, loses the message or the connection. The process goes on, and
 * nothing is delivered that was not sent. */
#include <criterion/criterion.h>
#include <string.h>

#include "am/endpoint/control.h"
#include "am/path/cma.h"
#include "core/bytes.h"
#include "support/forged_messages.h"
#include "support/seeded_maps.h"

#define COUNT(rows) (sizeof(rows) / sizeof(rows[0]))

enum { BYTES = 70000, CHUNK = 40000 };

static uint8_t memory[BYTES]; /* that the peer is said to read */

/* Has the message say that its payload lies in `memory`, and so many bytes on.
 */
static void point(forged_t *forged, size_t offset)
{
    sample_fill(1, memory, BYTES);
    forged->payload_bytes = TMSG_CMA_BYTES;
    tmsg_put_le(forged->payload, (uintptr_t)memory + offset, 8);
    tmsg_put_le(forged->payload + 8, 1, 8); /* the token */
    forged_set(forged, SAID_FLAGS, TMSG_HEADER_READ);
    forged->way = BY_EAGER;
}

static void a_map(const pair_t *pair, uint32_t number, forged_t *forged)
{
    (void)number;
    forged_make_map(pair, sample_bytes(1, BYTES), NULL, BYTES, forged);
    point(forged, 0);
}

/* Forges a head without payload, whose one tensor travels in two fragments. */
static void a_head(const pair_t *pair, uint32_t number, forged_t *forged)
{
    const tmsg_body_extra_t extra = {.split = {.large = 1, .chunk = CHUNK}};

    (void)number;
    forged_make_map(pair, sample_bytes(1, BYTES), &extra, 0, forged);
    forged->way = BY_EAGER;
}

static void a_fragment(const pair_t *pair, uint32_t number, forged_t *forged)
{
    const tmsg_preamble_t head = {
        .kind = TMSG_KIND_FRAGMENT,
        .message_id = 77,
        .sequence = pair->to_a->channels.zero.tx_sequence,
        .payload_bytes = number == 0 ? CHUNK : BYTES - CHUNK};
    uint8_t body[4];

    tmsg_put_le(body, number, sizeof(body));
    forged_make(pair, head, body, sizeof(body), forged);
    point(forged, number * CHUNK);
}

/* Forges an offer of device memory, with number 1. */
static void a_frame(const pair_t *pair, uint32_t number, forged_t *forged)
{
    const tmsg_preamble_t head = {.kind = TMSG_FRAME_DEVICE,
                                  .payload_bytes = 106};

    (void)number;
    forged_make(pair, head, NULL, 0, forged);
    tmsg_put_le(forged->payload, 0x100, 8);
    memcpy(forged->payload + 101, "GPU-1", 5);
    forged->way = BY_FRAME;
}

static const lie_t lies[] = {
    LIE("nothing", DELIVERED, SAY(a_map)),
    LIE("out of turn", DELIVERED,
        SAY(a_map, {SAID_FLAGS, TMSG_HEADER_READ | TMSG_HEADER_UNORDERED})),
    LIE("charged", DELIVERED,
        SAY(a_map, {SAID_FLAGS, TMSG_HEADER_READ | TMSG_HEADER_CHARGED})),
    LIE("pulled", DELIVERED,
        SAY(a_map, {SAID_FLAGS, TMSG_HEADER_READ | TMSG_HEADER_PULLED})),
    LIE("of no memory", REFUSED_AS(TMSG_ERR_IO), SAY(a_map, {SAID_ADDRESS, 0})),
    LIE("of the kernel's memory", REFUSED_AS(TMSG_ERR_IO),
        SAY(a_map, {SAID_ADDRESS, INT64_MIN})),
    LIE("around the end of memory", REFUSED_AS(TMSG_ERR_IO),
        SAY(a_map, {SAID_ADDRESS, -101})),
    LIE("longer than its tensors", REFUSED, SAY(a_map, {ADD(SAID_PAYLOAD), 1})),
    LIE("huge", REFUSED_AS(TMSG_ERR_LIMIT_EXCEEDED),
        SAY(a_map, {SAID_PAYLOAD, -1})),
    LIE("spilled noise", REFUSED,
        SAY(a_map, {SAID_FLAGS, TMSG_HEADER_READ | TMSG_HEADER_SPILLED})),
    LIE("charged too much", ENDS("beyond the window"),
        SAY(a_map, {SAID_FLAGS, TMSG_HEADER_READ | TMSG_HEADER_CHARGED},
            {SAID_PAYLOAD, -1})),
    LIE("a byte too few", ENDS("an impossible payload to read"),
        SAY(a_map, {ADD(SENT_PAYLOAD), -1})),
    LIE("a byte too many", ENDS("an impossible payload to read"),
        SAY(a_map, {ADD(SENT_PAYLOAD), 1})),
    LIE("no address", ENDS("an impossible payload to read"),
        SAY(a_map, {SENT_PAYLOAD, 0})),
    LIE("a place in a device's memory", ENDS("that is not there"),
        SAY(a_map, {SENT_PAYLOAD, 24})),
    LIE("an empty payload", ENDS("an impossible payload to read"),
        SAY(a_map, {SAID_PAYLOAD, 0})),
    LIE("by rendezvous", ENDS("an impossible payload to read"),
        SAY(a_map, {SENT_BY, BY_RENDEZVOUS})),
    LIE("a call on a channel of messages", ENDS("a call on a channel"),
        SAY(a_map, {SAID_KIND, TMSG_KIND_CALL})),
    LIE("an offer of a device's memory with a byte too few",
        ENDS("a malformed offer"), SAY(a_frame, {SENT_PAYLOAD, 101})),
    LIE("an offer with number 0", ENDS("a malformed frame"),
        SAY(a_frame, {SAID_ADDRESS, 0})),
    LIE("an answer about a device's memory", ENDS("that was not offered"),
        SAY(a_frame, {SAID_ADDRESS, 0x101}, {SENT_PAYLOAD, 5})),
    LIE("a device's memory that is gone", ENDS("that was not taken"),
        SAY(a_frame, {SAID_ADDRESS, 0x103}, {SENT_PAYLOAD, 5})),
    LIE("a word of credit", IGNORED, SAY(a_map, {SAID_KIND, TMSG_KIND_CREDIT})),
    LIE("a word of reading", IGNORED, SAY(a_map, {SAID_KIND, TMSG_KIND_READ})),
};

/* Right fragments first, and then wrong ones. */
static const lie_t fragments[] = {
    LIE("fragments", DELIVERED, SAY(a_head), SAY_NTH(a_fragment, 0),
        SAY_NTH(a_fragment, 1)),
    LIE("a part of no memory", REFUSED_AS(TMSG_ERR_IO), SAY(a_head),
        SAY_NTH(a_fragment, 0), SAY_NTH(a_fragment, 1, {SAID_ADDRESS, 1})),
    LIE("a part of the kernel's memory", REFUSED_AS(TMSG_ERR_IO), SAY(a_head),
        SAY_NTH(a_fragment, 0),
        SAY_NTH(a_fragment, 1, {SAID_ADDRESS, INT64_MIN})),
    LIE("a fragment twice", ENDS("came twice"), SAY(a_head),
        SAY_NTH(a_fragment, 0), SAY_NTH(a_fragment, 0)),
    LIE("a fragment with a byte too few", ENDS("an impossible payload to read"),
        SAY(a_head), SAY_NTH(a_fragment, 0),
        SAY_NTH(a_fragment, 1, {ADD(SENT_PAYLOAD), -1})),
    LIE("a fragment without address", ENDS("an impossible payload to read"),
        SAY(a_head), SAY_NTH(a_fragment, 0),
        SAY_NTH(a_fragment, 1, {SENT_PAYLOAD, 0})),
};

static void await_reading(pair_t *pair)
{
    pair_await(pair, endpoint_is_read, pair->to_a, "a peer that reads");
    pair_await(pair, endpoint_is_read, pair->to_b, "a peer that reads");
}

static const telling_t reading = {.link = LINK_SHM, .prepare = await_reading};

Test(cma_lies, each_costs_its_message_or_its_connection)
{
    tell_lies(&reading, lies, COUNT(lies));
}

Test(cma_lies, fragments) { tell_lies(&reading, fragments, COUNT(fragments)); }

/* A peer that has not said that it reads is sent nothing to read. */
static void unasked(link_t link)
{
    const telling_t telling = {.link = link};
    const lie_t lie = LIE("a payload to read",
                          ENDS("an impossible payload to read"), SAY(a_map));

    without_reading();
    tell_lies(&telling, &lie, 1);
}

Test(cma_lies, what_nobody_asked_for_ends_the_connection) { unasked(LINK_SHM); }

Test(cma_lies, what_nobody_asked_for_ends_the_connection_tcp)
{
    unasked(LINK_TCP);
}

/* Sends a READ message of b about a payload that a has lent it, cut to `bytes`.
 * b itself stands still, and does not read the payload. */
static void say(pair_t *pair, uint8_t word, uint64_t token, size_t bytes)
{
    uint8_t body[TMSG_READ_ANSWER_BYTES];
    forged_t forged;

    body[0] = word;
    tmsg_put_le(body + 1, token, 8);
    forged_make(pair, (tmsg_preamble_t){.kind = TMSG_KIND_READ}, body, bytes,
                &forged);
    forged.way = BY_EAGER;
    forged_send_still(pair, &forged);
}

Test(cma_lies, odd_answers_are_skipped)
{
    tmsg_request_t *sent;
    uint64_t token;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    await_reading(&pair);
    sent = send_map(pair.to_b, sample_bytes(3, BYTES), 0);
    must_eq(pair.to_b->cma.lent.count, 1);
    token = pair.to_b->cma.tokens;
    say(&pair, TMSG_READ_WORD_DONE, token, 0);
    say(&pair, TMSG_READ_WORD_DONE, token, 1);
    say(&pair, TMSG_READ_WORD_DONE, token, TMSG_READ_ANSWER_BYTES - 1);
    say(&pair, TMSG_READ_WORD_REJECTED, token, 2);
    say(&pair, TMSG_READ_WORD_DONE, token + 1, TMSG_READ_ANSWER_BYTES);
    say(&pair, TMSG_READ_WORD_DONE, 0, TMSG_READ_ANSWER_BYTES);
    say(&pair, TMSG_READ_WORD_REJECTED + 1, token, TMSG_READ_ANSWER_BYTES);
    say(&pair, 255, token, TMSG_READ_ANSWER_BYTES);
    must_be(tmsg_request_test(sent), TMSG_IN_PROGRESS);
    must_eq(pair.to_b->cma.lent.count, 1);
    say(&pair, TMSG_READ_WORD_DONE, token, TMSG_READ_ANSWER_BYTES);
    must(tmsg_request_test(sent));
    must_eq(pair.to_b->cma.lent.count, 0);
    say(&pair, TMSG_READ_WORD_DONE, token, TMSG_READ_ANSWER_BYTES);
    say(&pair, TMSG_READ_WORD_REJECTED, token, TMSG_READ_ANSWER_BYTES);
    must(tmsg_endpoint_status(pair.to_b));
    tmsg_request_destroy(sent);
    tmsg_message_destroy(pair_take(&pair, &pair.b)); /* it had not looked */
    expect_goes_on(&pair);
    pair_drop(&pair);
}

/* A peer says that it reads, but shares no memory, or is not to read. */
static void not_lent(link_t link)
{
    tmsg_message_t *message;
    tmsg_request_t *sent;
    pair_t pair;

    without_reading();
    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    say(&pair, TMSG_READ_WORD_BEGINS, 0, 1);
    must_true(!endpoint_is_read(pair.to_b));
    sent = send_map(pair.to_b, sample_bytes(3, BYTES), 0);
    must_eq(pair.to_b->cma.lent.count, 0);
    message = pair_take(&pair, &pair.b);
    sample_check_bytes(3, BYTES, tmsg_message_map(message));
    tmsg_message_destroy(message);
    must(pair_finish(&pair, sent));
    pair_drop(&pair);
}

Test(cma_lies, nothing_is_lent_to_whom_it_is_not_to_be) { not_lent(LINK_SHM); }
Test(cma_lies, nothing_is_lent_over_tcp) { not_lent(LINK_TCP); }
