/* SPDX-License-Identifier: BSD-3-Clause */
/* An admitted peer that lies in its active messages loses the message or the
 * connection. The process and other connections go on. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#include "am/connect/link.h"
#include "core/bytes.h"
#include "serialize/checksum.h"
#include "support/forged_messages.h"
#include "support/raw_bootstrap.h"
#include "support/seeded_maps.h"
#include "support/test_scale.h"

#define COUNT(rows) (sizeof(rows) / sizeof(rows[0]))

enum { KEYS_MAX = 20 };

static void a_map(const pair_t *pair, uint32_t number, forged_t *forged)
{
    (void)number;
    forged_make_map(pair, sample_bytes(1, 100), NULL, 100, forged);
}

/* Forges a map with a checksum, [algorithm, bin 8 of 8], at the end of its
 * body. */
static void a_summed_map(const pair_t *pair, uint32_t number, forged_t *forged)
{
    tmsg_body_extra_t extra = {0};
    uint8_t payload[100], value[8];

    (void)number;
    sample_fill(1, payload, sizeof(payload));
    must(tmsg_checksum_find(TMSG_CHECKSUM_XXH3, &extra.checksum));
    tmsg_put_le(value, extra.checksum->compute(payload, sizeof(payload)), 8);
    extra.checksums = value;
    forged_make_map(pair, sample_bytes(1, 100), &extra, 100, forged);
}

static void a_spoilt_payload(const pair_t *pair, uint32_t number,
                             forged_t *forged)
{
    a_summed_map(pair, number, forged);
    forged->payload[99] ^= 0x80;
}

static void another_checksum(const pair_t *pair, uint32_t number,
                             forged_t *forged)
{
    a_summed_map(pair, number, forged);
    forged->header[forged->header_bytes - 1] ^= 1;
}

static void an_unknown_checksum(const pair_t *pair, uint32_t number,
                                forged_t *forged)
{
    a_summed_map(pair, number, forged);
    forged->header[forged->header_bytes - 11] = 99;
}

static void a_short_checksum(const pair_t *pair, uint32_t number,
                             forged_t *forged)
{
    a_summed_map(pair, number, forged);
    forged->header[forged->header_bytes - 9] = 7;
    forged_set(forged, ADD(BODY_BYTES), -1);
}

static void a_body_of_noise(const pair_t *pair, uint32_t number,
                            forged_t *forged)
{
    a_map(pair, number, forged);
    sample_fill(3, forged->header + TMSG_PREAMBLE_BYTES,
                forged->header_bytes - TMSG_PREAMBLE_BYTES);
}

static void a_reference_to_no_schema(const pair_t *pair, uint32_t number,
                                     forged_t *forged)
{
    static const uint8_t body[] = {0x81, 0xff, 0x92, 3, 0}; /* {-1: [3, 0]} */

    (void)number;
    forged_make(
        pair,
        (tmsg_preamble_t){.kind = TMSG_KIND_MAP,
                          .sequence = pair->to_a->channels.zero.tx_sequence,
                          .payload_bytes = 100},
        body, sizeof(body), forged);
}

static void too_many_keys(const pair_t *pair, uint32_t number, forged_t *forged)
{
    tmsg_map_t *map = sample_bytes(1, 100);

    (void)number;
    for (int i = 0; i <= KEYS_MAX; i++) {
        char key[] = {(char)('a' + i), '\0'};

        must(tmsg_map_set_i64(map, key, i));
    }
    forged_make_map(pair, map, NULL, 100, forged);
}

static void strict_about_a_gpu(const pair_t *pair, uint32_t number,
                               forged_t *forged)
{
    const int64_t shape[] = {100};
    const tmsg_tensor_t tensor = {
        forged, {TMSG_DEVICE_CUDA, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape, NULL};
    tmsg_map_t *map;

    (void)number;
    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "gpu", &tensor, NULL));
    forged_make_map(pair, map, NULL, 100, forged);
    forged_set(forged, SAID_POLICY, TMSG_POLICY_STRICT);
}

static const lie_t lies[] = {
    LIE("nothing", DELIVERED, SAY(a_map)),
    LIE("by rendezvous", DELIVERED, SAY(a_map, {SENT_BY, BY_RENDEZVOUS})),
    LIE("a checksum", DELIVERED, SAY(a_summed_map)),
    LIE("payload not as summed", REFUSED_AS(TMSG_ERR_CORRUPT),
        SAY(a_spoilt_payload)),
    LIE("rendezvous not as summed", REFUSED_AS(TMSG_ERR_CORRUPT),
        SAY(a_spoilt_payload, {SENT_BY, BY_RENDEZVOUS})),
    LIE("checksum of another", REFUSED_AS(TMSG_ERR_CORRUPT),
        SAY(another_checksum)),
    LIE("unknown checksum", REFUSED_AS(TMSG_ERR_UNSUPPORTED),
        SAY(an_unknown_checksum)),
    LIE("checksum too short", REFUSED, SAY(a_short_checksum)),
    LIE("more announced", REFUSED, SAY(a_map, {SAID_PAYLOAD, 101})),
    LIE("less announced", REFUSED, SAY(a_map, {SAID_PAYLOAD, 99})),
    LIE("huge announced", REFUSED, SAY(a_map, {SAID_PAYLOAD, -1})),
    LIE("tensors larger", REFUSED, SAY(a_map, {PAYLOAD_BYTES, 50})),
    LIE("tensors smaller", REFUSED,
        SAY(a_map, {PAYLOAD_BYTES, 60000}, {SAID_FLAGS, TMSG_HEADER_CHARGED})),
    LIE("no payload", REFUSED, SAY(a_map, {SENT_PAYLOAD, 0})),
    LIE("short rendezvous", REFUSED,
        SAY(a_map, {SAID_PAYLOAD, 90}, {SENT_BY, BY_RENDEZVOUS})),
    LIE("long rendezvous", REFUSED,
        SAY(a_map, {SENT_PAYLOAD, 60000}, {SENT_BY, BY_RENDEZVOUS})),
    LIE("empty rendezvous", REFUSED,
        SAY(a_map, {SENT_PAYLOAD, 0}, {SENT_BY, BY_RENDEZVOUS})),
    LIE("body of noise", REFUSED, SAY(a_body_of_noise)),
    LIE("body cut", REFUSED, SAY(a_map, {ADD(BODY_BYTES), -10})),
    LIE("body beyond the header", ENDS("a body of"),
        SAY(a_map, {ADD(SAID_BODY), 1000})),
    LIE("spilled beyond the payload", ENDS("a body of"),
        SAY(a_map, {SAID_FLAGS, TMSG_HEADER_SPILLED},
            {SAID_BODY, INT64_C(1) << 30})),
    LIE("another channel", ENDS("not offered"), SAY(a_map, {SAID_CHANNEL, 64})),
    LIE("credit of another channel", ENDS("never used"),
        SAY(a_map, {SAID_KIND, TMSG_KIND_CREDIT}, {SAID_CHANNEL, 0xffff})),
    LIE("a policy that is none", ENDED_AS(TMSG_ERR_UNSUPPORTED),
        SAY(a_map, {SAID_POLICY, 7})),
    LIE("a flag that is none", ENDED_AS(TMSG_ERR_UNSUPPORTED),
        SAY(a_map, {SAID_FLAGS, 0x04})),
    LIE("a bye by message beside a socket", ENDS("by message"),
        SAY(a_map, {SAID_KIND, TMSG_KIND_BYE})),
    LIE("a fin by message beside a socket", ENDS("by message"),
        SAY(a_map, {SAID_KIND, TMSG_KIND_FIN})),
    LIE("spilled noise", REFUSED,
        SAY(a_map, {SAID_FLAGS, TMSG_HEADER_SPILLED | TMSG_HEADER_CHARGED},
            {SAID_BODY, 100}, {PAYLOAD_BYTES, 60000})),
    LIE("too many keys", REFUSED_AS(TMSG_ERR_LIMIT_EXCEEDED),
        SAY(too_many_keys)),
    LIE("strict about a GPU", REFUSED_AS(TMSG_ERR_REFUSED),
        SAY(strict_about_a_gpu)),
    LIE("strict by rendezvous", REFUSED_AS(TMSG_ERR_REFUSED),
        SAY(strict_about_a_gpu, {SENT_BY, BY_RENDEZVOUS})),
    LIE("another endpoint", IGNORED, SAY(a_map, {ADD(SAID_ENDPOINT), 0x12345})),
    LIE("unknown kind", IGNORED, SAY(a_map, {SAID_KIND, 200})),
    LIE("no kind", IGNORED, SAY(a_map, {SAID_KIND, 0})),
    LIE("wireup again", IGNORED, SAY(a_map, {SAID_KIND, TMSG_KIND_WIREUP})),
    LIE("wireup reply again", IGNORED,
        SAY(a_map, {SAID_KIND, TMSG_KIND_WIREUP_REPLY})),
    LIE("ack of nothing", IGNORED, SAY(a_map, {SAID_KIND, TMSG_KIND_ACK})),
    LIE("control by rendezvous", IGNORED,
        SAY(a_map, {SAID_KIND, TMSG_KIND_CREDIT}, {SENT_BY, BY_RENDEZVOUS})),
    LIE("credit never earned", ENDS("never sent"),
        SAY(a_map, {SAID_KIND, TMSG_KIND_CREDIT}, {SAID_SEQUENCE, 1 << 20})),
    LIE("a reference to no schema", ENDS("no schema is kept"),
        SAY(a_reference_to_no_schema)),
    LIE("an answer to no ping", ENDS("not sent"),
        SAY(a_map, {SAID_KIND, TMSG_KIND_PONG})),
    LIE("an answer to no schema", ENDS("not asked"),
        SAY(a_map, {SAID_KIND, TMSG_KIND_SCHEMA})),
    LIE("an answer without its end", ENDS("of 2 bytes"),
        SAY(a_map, {SAID_KIND, TMSG_KIND_SCHEMA}, {BODY_BYTES, 2})),
};

static void tell(link_t link)
{
    const telling_t telling = {
        .link = link,
        .a.limits = {.field_mask = TMSG_LIMIT_METADATA_KEYS,
                     .metadata_keys = KEYS_MAX}};

    tell_lies(&telling, lies, COUNT(lies));
}

Test(lies, each_costs_its_message_or_its_connection_shm) { tell(LINK_SHM); }
Test(lies, each_costs_its_message_or_its_connection_tcp) { tell(LINK_TCP); }

static void a_bye(const pair_t *pair, uint32_t number, forged_t *forged)
{
    forged_make_end(pair, TMSG_KIND_BYE, number, NULL, 0, forged);
}

static void a_fin(const pair_t *pair, uint32_t number, forged_t *forged)
{
    forged_make_end(pair, TMSG_KIND_FIN, number, NULL, 0, forged);
}

static void a_map_of_number(const pair_t *pair, uint32_t number,
                            forged_t *forged)
{
    a_map(pair, number, forged);
    forged_set(forged, SAID_SEQUENCE, number);
}

/* BYEs that cannot be true of a channel that has had one message. */
static const lie_t false_ends[] = {
    LIE("a bye that counts less than came", ENDS("an impossible count"),
        SAY_NTH(a_bye, 0)),
    LIE("a bye that counts less than nothing", ENDS("an impossible count"),
        SAY_NTH(a_bye, 0xfffffff0)),
    LIE("a bye beyond the window", ENDS("an impossible count"),
        SAY_NTH(a_bye, 5000)),
    LIE("two byes", ENDS("a second end"), SAY_NTH(a_bye, 20),
        SAY_NTH(a_bye, 21)),
    LIE("a fin out of turn", ENDS("confirms an end"), SAY_NTH(a_fin, 0)),
    LIE("a message after the bye", ENDS("after the last one"),
        SAY_NTH(a_bye, 2), SAY_NTH(a_map_of_number, 2)),
    LIE("a message before the bye", ENDS("before a message that came"),
        SAY_NTH(a_map_of_number, 3), SAY_NTH(a_bye, 2)),
    LIE("a bye up to a message that came", ENDS("an end before a message that"),
        SAY_NTH(a_map_of_number, 3), SAY_NTH(a_bye, 3)),
};

Test(lies, false_ends_end_the_connection)
{
    const telling_t telling = {.link = LINK_SHM, .prepare = expect_goes_on};

    tell_lies(&telling, false_ends, COUNT(false_ends));
}

Test(lies, false_ends_end_the_connection_blob)
{
    const telling_t telling = {.link = LINK_BLOB, .prepare = expect_goes_on};

    tell_lies(&telling, false_ends, COUNT(false_ends));
}

/* Statuses that a peer may give for the failure of a message, and what they
 * become here. Its words reach a terminal as one line of text. */
static const struct {
    int32_t said;
    tmsg_status_t heard;
    const char *words, *read;
} answers[] = {
    {TMSG_OK, TMSG_OK, "", ""},
    {TMSG_ERR_NO_MEMORY, TMSG_ERR_NO_MEMORY, "for a reason", "for a reason"},
    {TMSG_ERR_INTERNAL, TMSG_ERR_INTERNAL, "for a reason", "for a reason"},
    {TMSG_ERR_CORRUPT, TMSG_ERR_CORRUPT, "for a reason", "for a reason"},
    {TMSG_ERR_CLOSED, TMSG_ERR_REFUSED, "for a reason", "for a reason"},
    {TMSG_IN_PROGRESS, TMSG_ERR_REFUSED, "for a reason", "for a reason"},
    {77, TMSG_ERR_REFUSED, "for a reason", "for a reason"},
    {-1000, TMSG_ERR_REFUSED, "for a reason", "for a reason"},
    {INT32_MIN, TMSG_ERR_REFUSED, "for a reason", "for a reason"},
    {TMSG_ERR_BUSY, TMSG_ERR_BUSY, "a\x1b[31m\nb\xff\xc3",
     "a\\x1b[31m\\x0ab\\xff\\xc3"},
};

/* An answer as the body of an ACK and the frame REFUSE have it. */
static size_t put_answer(size_t row, uint8_t *body)
{
    size_t bytes = strlen(answers[row].words);

    tmsg_put_le(body, (uint32_t)answers[row].said, 4);
    memcpy(body + 4, answers[row].words, bytes);
    return 4 + bytes;
}

Test(lies, odd_acknowledgements_are_refusals)
{
    for (size_t i = 0; i < COUNT(answers); i++) {
        tmsg_preamble_t head = {.kind = TMSG_KIND_ACK};
        uint8_t body[64];
        tmsg_request_t *sent;
        forged_t forged;
        pair_t pair;

        pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
        sent = send_map(pair.to_b, sample_bytes(1, 10), TMSG_SEND_ACKED);
        head.message_id = pair.to_b->tx.next_message_id - 1;
        forged_make(&pair, head, body, put_answer(i, body), &forged);
        forged_send(&pair, &forged);
        if (pair_wait(&pair, sent) != answers[i].heard) {
            die("%d: '%s'", answers[i].said, tmsg_request_error(sent));
        }
        if (answers[i].heard != TMSG_OK) {
            must_say(tmsg_request_error(sent), answers[i].read);
        }
        tmsg_request_destroy(sent);
        expect_goes_on(&pair);
        pair_drop(&pair);
    }
}

/* A refusal keeps the peer's words, and gets one of our statuses. */
Test(lies, odd_refusals_keep_their_words)
{
    for (size_t i = 0; i < COUNT(answers); i++) {
        uint8_t body[64];
        pair_t pair;

        pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
        raw_send_frame(pair.to_a->link.fd, TMSG_FRAME_REFUSE, body,
                       put_answer(i, body));
        must_be(pair_end_of(&pair, pair.to_b),
                answers[i].said == 0 ? TMSG_ERR_REFUSED : answers[i].heard);
        must_say(tmsg_endpoint_error(pair.to_b), answers[i].read);
        pair_drop(&pair);
    }
}

/* The true answer is not sent, because UCX might bring it first. */
Test(lies, an_answer_to_another_ping_does_not_end_this_one)
{
    tmsg_preamble_t head = {.kind = TMSG_KIND_PONG};
    tmsg_request_t *ping;
    forged_t forged;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    pair.to_b->ping_ns = 1; /* as if one were under way, which this joins */
    must(tmsg_endpoint_ping(pair.to_b, &ping));
    head.message_id = pair.to_b->ping_id + 1;
    forged_make(&pair, head, NULL, 0, &forged);
    forged_send(&pair, &forged);
    must_be(pair_finish(&pair, ping), TMSG_ERR_MALFORMED);
    pair_drop(&pair);
}

static side_options_t of_depth(uint32_t depth)
{
    return (side_options_t){
        .worker = {.field_mask = TMSG_WORKER_PARAM_QUEUE_DEPTH,
                   .queue_depth = depth}};
}

Test(lies, a_sequence_that_comes_twice_ends_the_connection)
{
    forged_t forged;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    a_map(&pair, 0, &forged);
    forged_send(&pair, &forged);
    forged_send(&pair, &forged);
    must_be(pair_end_of(&pair, pair.to_b), TMSG_ERR_MALFORMED);
    must_say(tmsg_endpoint_error(pair.to_b), "twice");
    must_true(pair_end_of(&pair, pair.to_a) < 0);
    pair_drop(&pair);
}

/* UCX promises no order: a CREDIT that came before may have given more. */
Test(lies, credit_that_comes_late_takes_nothing_back)
{
    enum { DEPTH = 8 };
    const side_options_t options = of_depth(DEPTH);
    const tmsg_channel_t *channel;
    uint32_t window;
    forged_t forged;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, &options);
    channel = &pair.to_b->channels.zero;
    for (unsigned i = 0; i < 2 * DEPTH; i++) {
        tmsg_request_destroy(send_map(pair.to_b, sample_bytes(i, 10), 0));
        tmsg_message_destroy(pair_take(&pair, &pair.b));
    }
    window = channel->tx_window;
    must_true(window > DEPTH);
    forged_make(&pair, (tmsg_preamble_t){.kind = TMSG_KIND_CREDIT}, NULL, 0,
                &forged);
    forged_send(&pair, &forged);
    must_true(channel->tx_window >= window);
    expect_goes_on(&pair);
    pair_drop(&pair);
}

/* A conforming peer never has more than its window under way. */
Test(lies, messages_beyond_the_window_do_not_pile_up)
{
    enum { DEPTH = 4, SENT = 2000 };
    const side_options_t options = of_depth(DEPTH);
    tmsg_message_t *message;
    unsigned held = 0;
    forged_t forged;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, NULL);
    a_map(&pair, 0, &forged);
    for (int i = 0; i < SENT && tmsg_endpoint_status(pair.to_b) == TMSG_OK &&
                    tmsg_endpoint_status(pair.to_a) == TMSG_OK;
         i++) {
        forged_send(&pair, &forged);
        forged_set(&forged, ADD(SAID_SEQUENCE), 1);
    }
    while (tmsg_worker_recv(pair.a.worker, 0, &message) == TMSG_OK) {
        held++;
        tmsg_message_destroy(message);
    }
    cr_expect(le(uint, held, DEPTH));
    expect_serves_others(&pair);
    pair_drop(&pair);
}

Test(lies, headers_of_noise_are_ignored)
{
    uint64_t state = is_due(0) ? 20260101 : 20260102;
    const int rounds = whole_run() ? 3000 : 600;
    tmsg_message_t *message;
    forged_t forged;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (int i = 0; i < rounds; i++) {
        a_map(&pair, 0, &forged);
        forged.header_bytes = sample_random(&state) % 300;
        sample_fill(sample_random(&state), forged.header + (i % 2) * 33, 300);
        if (i % 2 == 1) { /* noise behind a good beginning */
            forged.header[4 + sample_random(&state) % 29] =
                (uint8_t)sample_random(&state);
        }
        sample_fill(sample_random(&state), forged.payload, 300);
        forged.payload_bytes = sample_random(&state) % 300;
        forged.way = i % 3 == 0 ? BY_RENDEZVOUS : BY_UCX;
        forged_send(&pair, &forged);
        while (tmsg_worker_recv(pair.a.worker, 0, &message) == TMSG_OK) {
            tmsg_message_destroy(message);
        }
        if (tmsg_endpoint_status(pair.to_b) < 0 ||
            tmsg_endpoint_status(pair.to_a) < 0) {
            pair_drop(&pair);
            pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
        }
    }
    expect_serves_others(&pair);
    pair_drop(&pair);
}
