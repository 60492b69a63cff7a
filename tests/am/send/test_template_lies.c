/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* Headers that are almost those of a template message: what becomes of each is
 * what becomes of it at a receiver without a template. By a fast box it is the
 * same, or the end of the connection. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#include "am/recv/template_in.h"
#include "support/forged_messages.h"
#include "support/seeded_maps.h"

#define BYTES 64
#define AT_MESSAGE_ID 8

/* What a has made of it. */
typedef struct {
    tmsg_status_t status;
    uint64_t received, refused;
    size_t waiting;
} outcome_t;

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

    for (int i = 0; pair->to_b->stats.received_by_template < 3 ||
                    pair->to_a->fastboxes.out == NULL;
         i++) {
        must_true(i < 1000);
        must(tmsg_endpoint_send(pair->to_a, map, NULL, NULL));
        forged_settle(pair);
        drop_all(pair);
    }
    tmsg_map_destroy(map);
}

/* Forges the next message as b would send it by its template. */
static void forge(const pair_t *pair, forged_way_t way, forged_t *forged)
{
    const tmsg_template_out_t *template =
        &pair->to_a->channels.zero.template_out;

    memset(forged, 0, sizeof(*forged));
    memcpy(forged->header, template->header, template->header_bytes);
    forged->header_bytes = template->header_bytes;
    forged->payload_bytes = template->payload_bytes;
    forged->way = way;
    tmsg_preamble_renumber(forged->header, 12345,
                           pair->to_a->channels.zero.tx_sequence);
}

static outcome_t try(const forged_edit_t *edits, forged_way_t way, bool repeats)
{
    forged_t forged;
    outcome_t outcome;
    uint64_t received;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    warm_up(&pair);
    if (!repeats) {
        tmsg_template_forget_in(&pair.to_b->channels.zero);
    }
    forge(&pair, way, &forged);
    forged_edit(&forged, edits);
    received = pair.to_b->stats.received_messages;
    forged_send(&pair, &forged);
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

static void expect_same(outcome_t found, outcome_t known, int64_t how)
{
    cr_expect(eq(int, found.status, known.status), "%d", (int)how);
    cr_expect(eq(u64, found.received, known.received), "%d", (int)how);
    cr_expect(eq(u64, found.refused, known.refused), "%d", (int)how);
    cr_expect(eq(sz, found.waiting, known.waiting), "%d", (int)how);
}

/* UCX may bring messages for other endpoints, or of other kinds; a fast box may
 * not. */
static void expect_same_or_end(outcome_t found, outcome_t known, int64_t how)
{
    if (found.status == known.status) {
        expect_same(found, known, how);
    } else {
        cr_expect(eq(int, found.status, TMSG_ERR_MALFORMED), "%d", (int)how);
        cr_expect(eq(int, known.status, TMSG_OK), "%d", (int)how);
        cr_expect(eq(u64, found.received + known.received, 0), "%d", (int)how);
    }
}

static outcome_t compare(int field, int64_t value)
{
    const forged_edit_t edits[FORGED_EDITS] = {
        {field, value},
        /* Of a channel nothing was sent on. */
        {field == SAID_CHANNEL ? SAID_SEQUENCE : AS_MADE, 0}};
    outcome_t known = try(edits, BY_EAGER, false);
    outcome_t found = try(edits, BY_EAGER, true);

    expect_same(found, known, value);
    expect_same_or_end(try(edits, BY_FASTBOX, false), known, value);
    expect_same_or_end(try(edits, BY_FASTBOX, true), known, value);
    return found;
}

Test(template_lies, the_truth_is_delivered)
{
    outcome_t outcome = compare(AS_MADE, 0);

    must_eq(outcome.received, 1);
    must_eq(outcome.status, TMSG_OK);
}

/* Flips one bit of each byte of the header. All bytes but the message id's
 * matter. They are spread over several tests. */
static void flip_from(unsigned from, unsigned to, unsigned bit)
{
    for (unsigned i = from; i < to; i++) {
        outcome_t outcome = compare(FLIPPED, 8 * i + bit);

        if (i < AT_MESSAGE_ID || i >= AT_MESSAGE_ID + 4) {
            cr_expect(eq(u64, outcome.received, 0), "byte %u", i);
        }
    }
}

Test(template_lies, form_and_kind) { flip_from(0, 5, 0); }
Test(template_lies, channel_and_id) { flip_from(6, 16, 0); }
Test(template_lies, number_and_lengths) { flip_from(16, 32, 0); }
Test(template_lies, policy_and_body) { flip_from(33, 38, 0); }
Test(template_lies, form_and_kind_high) { flip_from(0, 5, 7); }
Test(template_lies, channel_and_id_high) { flip_from(6, 16, 7); }
Test(template_lies, number_and_lengths_high) { flip_from(16, 32, 7); }
Test(template_lies, policy_and_body_high) { flip_from(32, 38, 7); }

Test(template_lies, flags)
{
    for (unsigned bit = 0; bit < 8; bit++) {
        (void)compare(FLIPPED, 8 * 5 + bit);
    }
}

Test(template_lies, lengths_of_the_header)
{
    must_eq(compare(ADD(SENT_HEADER), -1).received, 0);
    must_eq(compare(ADD(SENT_HEADER), -6).received, 0);
    must_eq(compare(ADD(SENT_HEADER), -20).received, 0);
    must_eq(compare(ADD(SENT_HEADER), -36).received, 0);
    (void)compare(ADD(SENT_HEADER), 1); /* which the general way passes over */
}

Test(template_lies, lengths_of_the_payload)
{
    static const unsigned lengths[] = {0, 1, BYTES - 1, BYTES + 1, 512, 4096};

    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        must_eq(compare(SENT_PAYLOAD, lengths[i]).received, 0);
    }
}

Test(template_lies, numbers)
{
    must_eq(compare(ADD(SAID_SEQUENCE), 1).waiting, 1);
    must_eq(compare(ADD(SAID_SEQUENCE), 1000).status, TMSG_ERR_MALFORMED);
    must_eq(compare(ADD(SAID_SEQUENCE), -1).received, 0); /* it came before */
}

/* On a channel where nothing was defined, and on one that there is not. */
Test(template_lies, other_channels)
{
    must_eq(compare(SAID_CHANNEL, 1).received, 0);
    must_eq(compare(SAID_CHANNEL, 63).received, 0);
    must_eq(compare(SAID_CHANNEL, 64).received, 0);
    must_eq(compare(SAID_CHANNEL, UINT16_MAX).received, 0);
}

/* The application at a takes nothing, so that the window stays where it is. */
Test(template_lies, more_than_the_window)
{
    enum { DEPTH = 8 };
    const side_options_t narrow = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_QUEUE_DEPTH,
                   .queue_depth = DEPTH}};
    uint64_t repeats;
    forged_t forged;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &narrow, NULL);
    warm_up(&pair);
    forge(&pair, BY_EAGER, &forged);
    repeats = pair.to_b->stats.received_by_template;
    for (uint32_t i = 0; i <= DEPTH; i++) {
        forged_send(&pair, &forged);
        forged_set(&forged, ADD(SAID_SEQUENCE), 1);
    }
    repeats = pair.to_b->stats.received_by_template - repeats;
    cr_expect(repeats > 0 && repeats <= DEPTH, "%u", (unsigned)repeats);
    cr_expect(eq(int, tmsg_endpoint_status(pair.to_b), TMSG_ERR_MALFORMED));
    drop_all(&pair);
    pair_drop(&pair);
}
