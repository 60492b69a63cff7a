/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* Headers that are almost a repeat: what becomes of each is what becomes of it
 * where there is nothing to repeat. And by a box it is the same, or the end. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>
#include <ucp/api/ucp.h>

#include "am/endpoint/endpoint.h"
#include "am/recv/repeat_in.h"
#include "support/peers.h"
#include "support/sample.h"

#define BYTES 64
#define AT_CHANNEL 6
#define AT_MESSAGE_ID 8
#define AT_SEQUENCE 16

/* What b sends past all that would check it. */
typedef struct {
    uint8_t header[TMSG_REPEAT_HEADER_BYTES + 1];
    size_t header_bytes;
    size_t payload_bytes;
} forged_t;

/* What a has made of it. */
typedef struct {
    tmsg_status_t status;
    uint64_t received, refused;
    size_t waiting;
} outcome_t;

static void turn(pair_t *pair, int times)
{
    for (int i = 0; i < times; i++) {
        tmsg_worker_progress(pair->a.worker);
        tmsg_worker_progress(pair->b.worker);
    }
}

static void drop_all(pair_t *pair)
{
    tmsg_message_t *message;

    while (tmsg_worker_recv(pair->a.worker, 0, &message) == TMSG_OK) {
        tmsg_message_destroy(message);
    }
}

static void warm_up(pair_t *pair)
{
    const sample_t sample = {.tensors = 1,
                             .shape = SAMPLE_VECTOR,
                             .elements = BYTES,
                             .dtype = 1,
                             .without_metadata = true};
    tmsg_map_t *map = sample_make(&sample);

    for (int i = 0; pair->to_b->stats.received_repeats < 3 ||
                    pair->to_a->boxes.out == NULL;
         i++) {
        must_true(i < 1000);
        must(tmsg_endpoint_send(pair->to_a, map, NULL, NULL));
        turn(pair, 10);
        drop_all(pair);
    }
    tmsg_map_destroy(map);
}

static void forge(const pair_t *pair, forged_t *forged)
{
    const tmsg_repeat_out_t *repeat = &pair->to_a->channels.zero.repeat_out;

    memset(forged, 0, sizeof(*forged));
    memcpy(forged->header, repeat->header, repeat->header_bytes);
    forged->header_bytes = repeat->header_bytes;
    forged->payload_bytes = repeat->payload_bytes;
}

static void put_forged(const pair_t *pair, const forged_t *forged)
{
    tmsg_box_t *box = pair->to_a->boxes.out;

    must_true(tmsg_box_has_room(box));
    memset(tmsg_box_begin(box, forged->header_bytes, 0), 0, BYTES);
    tmsg_box_write_header(box, forged->header);
    (void)tmsg_box_put(box, forged->payload_bytes, pair->to_a->boxes.sent);
}

static void send_forged(const pair_t *pair, const forged_t *forged)
{
    static const uint8_t payload[4096];
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
        .flags = UCP_AM_SEND_FLAG_EAGER,
    };
    ucs_status_ptr_t request = ucp_am_send_nbx(
        pair->to_a->ep, TMSG_AM_ID, forged->header, forged->header_bytes,
        payload, forged->payload_bytes, &param);

    if (UCS_PTR_IS_PTR(request)) {
        ucp_request_free(request);
    }
}

static outcome_t try(void (*spoil)(forged_t *forged, unsigned how),
                     unsigned how, bool repeats, bool boxed)
{
    forged_t forged;
    outcome_t outcome;
    uint64_t received;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    warm_up(&pair);
    if (!repeats) {
        tmsg_repeat_forget_in(&pair.to_b->channels.zero);
    }
    forge(&pair, &forged);
    tmsg_preamble_renumber(forged.header, 12345,
                           pair.to_a->channels.zero.tx_sequence);
    spoil(&forged, how);
    received = pair.to_b->stats.received_messages;
    if (boxed) {
        put_forged(&pair, &forged);
    } else {
        send_forged(&pair, &forged);
    }
    turn(&pair, 100);
    outcome = (outcome_t){
        .status = tmsg_endpoint_status(pair.to_b),
        .received = pair.to_b->stats.received_messages - received,
        .refused = pair.to_b->stats.refused_messages,
        .waiting = pair.to_b->channels.zero.rx != NULL,
    };
    drop_all(&pair);
    pair_drop(&pair);
    return outcome;
}

static void expect_same(outcome_t found, outcome_t known, unsigned how)
{
    cr_expect(eq(int, found.status, known.status), "%u", how);
    cr_expect(eq(u64, found.received, known.received), "%u", how);
    cr_expect(eq(u64, found.refused, known.refused), "%u", how);
    cr_expect(eq(sz, found.waiting, known.waiting), "%u", how);
}

/* What UCX may bring for others, or of other kinds, a box may not. */
static void expect_same_or_end(outcome_t found, outcome_t known, unsigned how)
{
    if (found.status == known.status) {
        expect_same(found, known, how);
    } else {
        cr_expect(eq(int, found.status, TMSG_ERR_MALFORMED), "%u", how);
        cr_expect(eq(int, known.status, TMSG_OK), "%u", how);
        cr_expect(eq(u64, found.received + known.received, 0), "%u", how);
    }
}

static outcome_t compare(void (*spoil)(forged_t *forged, unsigned how),
                         unsigned how)
{
    outcome_t known = try(spoil, how, false, false);
    outcome_t found = try(spoil, how, true, false);

    expect_same(found, known, how);
    expect_same_or_end(try(spoil, how, false, true), known, how);
    expect_same_or_end(try(spoil, how, true, true), known, how);
    return found;
}

static void nothing(forged_t *forged, unsigned how)
{
    (void)forged;
    (void)how;
}

Test(repeat_lies, the_truth_is_delivered)
{
    outcome_t outcome = compare(nothing, 0);

    must_eq(outcome.received, 1);
    must_eq(outcome.status, TMSG_OK);
}

/* One bit of each byte of the header, and another. */
static void flip_low(forged_t *forged, unsigned how)
{
    forged->header[how] ^= 0x01;
}

static void flip_high(forged_t *forged, unsigned how)
{
    forged->header[how] ^= 0x80;
}

/* All but the message's id, and not all of them in one test. */
static void flip_from(unsigned from, unsigned to,
                      void (*flip)(forged_t *forged, unsigned how))
{
    for (unsigned i = from; i < to; i++) {
        outcome_t outcome = compare(flip, i);

        if (i < AT_MESSAGE_ID || i >= AT_MESSAGE_ID + 4) {
            cr_expect(eq(u64, outcome.received, 0), "byte %u", i);
        }
    }
}

Test(repeat_lies, form_and_kind) { flip_from(0, 5, flip_low); }
Test(repeat_lies, channel_and_id) { flip_from(6, 16, flip_low); }
Test(repeat_lies, number_and_lengths) { flip_from(16, 32, flip_low); }
Test(repeat_lies, policy_and_body) { flip_from(33, 38, flip_low); }
Test(repeat_lies, form_and_kind_high) { flip_from(0, 5, flip_high); }
Test(repeat_lies, channel_and_id_high) { flip_from(6, 16, flip_high); }
Test(repeat_lies, number_and_lengths_high) { flip_from(16, 32, flip_high); }
Test(repeat_lies, policy_and_body_high) { flip_from(32, 38, flip_high); }

static void flag(forged_t *forged, unsigned how)
{
    forged->header[5] ^= (uint8_t)(1u << how);
}

Test(repeat_lies, flags)
{
    for (unsigned i = 0; i < 8; i++) {
        (void)compare(flag, i);
    }
}

static void shorten(forged_t *forged, unsigned how)
{
    forged->header_bytes -= how;
}

static void lengthen(forged_t *forged, unsigned how)
{
    forged->header_bytes += how;
}

Test(repeat_lies, lengths_of_the_header)
{
    must_eq(compare(shorten, 1).received, 0);
    must_eq(compare(shorten, 6).received, 0);
    must_eq(compare(shorten, 20).received, 0);
    must_eq(compare(shorten, 36).received, 0);
    (void)compare(lengthen, 1); /* which the general way passes over */
}

static void resize(forged_t *forged, unsigned how)
{
    forged->payload_bytes = how;
}

Test(repeat_lies, lengths_of_the_payload)
{
    static const unsigned lengths[] = {0, 1, BYTES - 1, BYTES + 1, 512, 4096};

    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        must_eq(compare(resize, lengths[i]).received, 0);
    }
}

/* By `how` ahead of its turn; a large one is behind. */
static void renumber(forged_t *forged, unsigned how)
{
    uint32_t sequence = (uint32_t)forged->header[AT_SEQUENCE] |
                        (uint32_t)forged->header[AT_SEQUENCE + 1] << 8;

    tmsg_preamble_renumber(forged->header, 12345, sequence + how);
}

Test(repeat_lies, numbers)
{
    must_eq(compare(renumber, 1).waiting, 1);
    must_eq(compare(renumber, 1000).status, TMSG_ERR_MALFORMED);
    must_eq(compare(renumber, UINT32_MAX).received, 0);
}

/* On a channel where nothing was defined, and on one that there is not. */
static void move(forged_t *forged, unsigned how)
{
    forged->header[AT_CHANNEL] = (uint8_t)how;
    forged->header[AT_CHANNEL + 1] = (uint8_t)(how >> 8);
    tmsg_preamble_renumber(forged->header, 12345, 0);
}

Test(repeat_lies, other_channels)
{
    must_eq(compare(move, 1).received, 0);
    must_eq(compare(move, 63).received, 0);
    must_eq(compare(move, 64).received, 0);
    must_eq(compare(move, UINT16_MAX).received, 0);
}

/* Nothing is taken at a, so that its window stays where it is. */
Test(repeat_lies, more_than_the_window)
{
    enum { DEPTH = 8 };
    const side_options_t narrow = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_QUEUE_DEPTH,
                   .queue_depth = DEPTH}};
    uint32_t sequence;
    uint64_t repeats;
    forged_t forged;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &narrow, NULL);
    warm_up(&pair);
    forge(&pair, &forged);
    sequence = pair.to_a->channels.zero.tx_sequence;
    repeats = pair.to_b->stats.received_repeats;
    for (uint32_t i = 0; i <= DEPTH; i++) {
        tmsg_preamble_renumber(forged.header, 12345, sequence + i);
        send_forged(&pair, &forged);
        turn(&pair, 10);
    }
    repeats = pair.to_b->stats.received_repeats - repeats;
    cr_expect(repeats > 0 && repeats <= DEPTH, "%u", (unsigned)repeats);
    cr_expect(eq(int, tmsg_endpoint_status(pair.to_b), TMSG_ERR_MALFORMED));
    drop_all(&pair);
    pair_drop(&pair);
}
