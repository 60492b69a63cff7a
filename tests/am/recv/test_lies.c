/* SPDX-License-Identifier: BSD-3-Clause */
/* A peer that was admitted and then lies in its active messages: it costs the
 * message or the connection, never the process, and nobody else. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

#include "am/endpoint/endpoint.h"
#include "core/bytes.h"
#include "serialize/checksum.h"
#include "support/peers.h"
#include "support/raw.h"
#include "support/sample.h"
#include "support/whole.h"

/* Sends bytes as an AM over b's endpoint, past all that checks them. */
static void send_raw(pair_t *pair, const void *header, size_t header_bytes,
                     const void *payload, size_t payload_bytes, unsigned flags)
{
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
        .flags = flags,
    };
    ucs_status_ptr_t request =
        ucp_am_send_nbx(pair->to_a->ep, TMSG_AM_ID, header, header_bytes,
                        payload, payload_bytes, &param);

    for (int i = 0; UCS_PTR_IS_PTR(request) && i < 100000 &&
                    ucp_request_check_status(request) == UCS_INPROGRESS;
         i++) {
        tmsg_worker_progress(pair->a.worker);
        tmsg_worker_progress(pair->b.worker);
    }
    if (UCS_PTR_IS_PTR(request)) {
        ucp_request_free(request);
    }
    for (int i = 0; i < 100; i++) {
        tmsg_worker_progress(pair->a.worker);
        tmsg_worker_progress(pair->b.worker);
    }
}

/* A correct map message, to be spoilt. */
typedef struct {
    tmsg_preamble_t head;
    uint8_t body[600];
    size_t body_bytes;
    uint8_t payload[70000];
    size_t payload_bytes; /* really sent */
    unsigned flags;
} forged_t;

/* Destroys the map. */
static void encode_map(forged_t *forged, tmsg_map_t *map,
                       const tmsg_body_extra_t *extra)
{
    must(tmsg_body_encode(map, extra, forged->body, sizeof(forged->body),
                          &forged->body_bytes));
    forged->head.body_bytes = (uint32_t)forged->body_bytes;
    tmsg_map_destroy(map);
}

static void encode_body(forged_t *forged, const tmsg_body_extra_t *extra)
{
    encode_map(forged, sample_bytes(1, 100), extra);
}

static void forge(const pair_t *pair, forged_t *forged)
{
    memset(forged, 0, sizeof(*forged));
    encode_body(forged, NULL);
    forged->head.kind = TMSG_KIND_MAP;
    forged->head.message_id = 77;
    forged->head.endpoint_id = pair->to_a->peer_id;
    forged->head.sequence = pair->to_a->channels.zero.tx_sequence;
    forged->head.payload_bytes = 100;
    forged->payload_bytes = 100;
    sample_fill(1, forged->payload, 100);
}

static void send_forged(pair_t *pair, const forged_t *forged)
{
    uint8_t header[TMSG_PREAMBLE_BYTES + sizeof(forged->body)];
    tmsg_preamble_t head = forged->head;

    if (head.kind == TMSG_KIND_MAP && forged->payload_bytes > 512 &&
        !(forged->flags & UCP_AM_SEND_FLAG_RNDV)) {
        head.flags |= TMSG_HEADER_CHARGED;
    }
    tmsg_preamble_encode(&head, header);
    memcpy(header + TMSG_PREAMBLE_BYTES, forged->body, forged->body_bytes);
    send_raw(pair, header, TMSG_PREAMBLE_BYTES + forged->body_bytes,
             forged->payload, forged->payload_bytes, forged->flags);
}

/* A third side is served still. */
static void expect_serves_others(pair_t *pair)
{
    tmsg_endpoint_t *other = side_dial(&pair->b, &pair->a);
    tmsg_message_t *message;

    tmsg_request_destroy(send_map(other, sample_bytes(9, 4000), 0));
    message = pair_take(pair, &pair->a);
    sample_check_bytes(9, 4000, tmsg_message_map(message));
    tmsg_message_destroy(message);
}

/* The next message on the same connection arrives, too. */
static void expect_goes_on(pair_t *pair)
{
    tmsg_message_t *message;

    tmsg_request_destroy(send_map(pair->to_a, sample_bytes(8, 3000), 0));
    message = pair_take(pair, &pair->a);
    must_true(tmsg_message_endpoint(message) == pair->to_b);
    sample_check_bytes(8, 3000, tmsg_message_map(message));
    tmsg_message_destroy(message);
}

typedef enum { DELIVERED, REFUSED, ENDED, IGNORED } verdict_t;

/* What became of the message at a. */
static verdict_t verdict(pair_t *pair)
{
    uint64_t refused = pair->to_b->stats.refused_messages;
    tmsg_message_t *message = NULL;

    if (tmsg_worker_recv(pair->a.worker, 0, &message) == TMSG_OK) {
        tmsg_message_destroy(message);
        return DELIVERED;
    }
    switch (tmsg_endpoint_status(pair->to_b)) {
    case TMSG_ERR_MALFORMED:
    case TMSG_ERR_UNSUPPORTED:
        must_true(pair_end_of(pair, pair->to_a) < 0);
        return ENDED;
    default:
        break;
    }
    must(tmsg_endpoint_status(pair->to_b));
    return refused > 0 ? REFUSED : IGNORED;
}

typedef struct {
    const char *what;
    void (*spoil)(forged_t *forged);
    verdict_t wanted;
    tmsg_status_t told; /* to a's application, if it was refused */
} lie_t;

static void nothing(forged_t *forged) { (void)forged; }

static void more_announced(forged_t *forged)
{
    forged->head.payload_bytes = 101;
}

static void less_announced(forged_t *forged)
{
    forged->head.payload_bytes = 99;
}

static void huge_announced(forged_t *forged)
{
    forged->head.payload_bytes = UINT64_MAX;
}

static void tensors_larger(forged_t *forged)
{
    forged->head.payload_bytes = 50;
    forged->payload_bytes = 50;
}

static void tensors_smaller(forged_t *forged)
{
    forged->head.payload_bytes = 60000;
    forged->payload_bytes = 60000;
}

static void no_payload(forged_t *forged) { forged->payload_bytes = 0; }

static void by_rendezvous(forged_t *forged)
{
    forged->flags = UCP_AM_SEND_FLAG_RNDV;
}

static void short_rendezvous(forged_t *forged)
{
    forged->head.payload_bytes = 90;
    forged->flags = UCP_AM_SEND_FLAG_RNDV;
}

static void long_rendezvous(forged_t *forged)
{
    forged->payload_bytes = 60000;
    forged->flags = UCP_AM_SEND_FLAG_RNDV;
}

static void empty_rendezvous(forged_t *forged)
{
    forged->payload_bytes = 0;
    forged->flags = UCP_AM_SEND_FLAG_RNDV;
}

static void body_of_noise(forged_t *forged)
{
    sample_fill(3, forged->body, forged->body_bytes);
}

static void body_cut(forged_t *forged)
{
    forged->body_bytes -= 10;
    forged->head.body_bytes -= 10;
}

static void body_beyond(forged_t *forged) { forged->head.body_bytes += 1000; }

static void spilled_beyond(forged_t *forged)
{
    forged->head.flags = TMSG_HEADER_SPILLED;
    forged->head.body_bytes = 1u << 30;
}

static void spilled_noise(forged_t *forged)
{
    forged->head.flags = TMSG_HEADER_SPILLED;
    forged->head.body_bytes = 100;
    forged->head.payload_bytes = 60000;
    forged->payload_bytes = 60000;
}

static void other_endpoint(forged_t *forged)
{
    forged->head.endpoint_id ^= 0x12345;
}

static void unknown_kind(forged_t *forged) { forged->head.kind = 200; }
static void no_kind(forged_t *forged) { forged->head.kind = 0; }
static void attach_again(forged_t *forged)
{
    forged->head.kind = TMSG_KIND_ATTACH;
}

static void attached_again(forged_t *forged)
{
    forged->head.kind = TMSG_KIND_ATTACHED;
}

static void ack_of_nothing(forged_t *forged)
{
    forged->head.kind = TMSG_KIND_ACK;
}

static void control_by_rendezvous(forged_t *forged)
{
    forged->head.kind = TMSG_KIND_CREDIT;
    forged->flags = UCP_AM_SEND_FLAG_RNDV;
}

static void other_channel(forged_t *forged) { forged->head.channel = 64; }

static void credit_of_another_channel(forged_t *forged)
{
    forged->head.kind = TMSG_KIND_CREDIT;
    forged->head.channel = 0xffff;
}

static void unknown_policy(forged_t *forged) { forged->head.policy = 7; }
static void unknown_flag(forged_t *forged) { forged->head.flags = 0x04; }

static void schema_of_nothing(forged_t *forged)
{
    static const uint8_t body[] = {0x81, 0xff, 0x92, 3, 0}; /* {-1: [3, 0]} */

    memcpy(forged->body, body, sizeof(body));
    forged->body_bytes = sizeof(body);
    forged->head.body_bytes = sizeof(body);
}

static void answer_to_no_schema(forged_t *forged)
{
    forged->head.kind = TMSG_KIND_SCHEMA;
}

static void answer_cut(forged_t *forged)
{
    forged->head.kind = TMSG_KIND_SCHEMA;
    forged->body_bytes = 2;
    forged->head.body_bytes = 2;
}

static void bye_by_message(forged_t *forged)
{
    forged->head.kind = TMSG_KIND_BYE;
}

static void fin_by_message(forged_t *forged)
{
    forged->head.kind = TMSG_KIND_FIN;
}

static void pong_to_no_ping(forged_t *forged)
{
    forged->head.kind = TMSG_KIND_PONG;
}

static void credit_never_earned(forged_t *forged)
{
    forged->head.kind = TMSG_KIND_CREDIT;
    forged->head.sequence = 1u << 20;
}

/* With the checksum of the payload as it is now. */
static void add_checksum(forged_t *forged)
{
    tmsg_body_extra_t extra = {0};
    uint8_t value[8];

    must(tmsg_checksum_find(TMSG_CHECKSUM_XXH3, &extra.checksum));
    tmsg_put_le(value, extra.checksum->compute(forged->payload, 100), 8);
    extra.checksums = value;
    encode_body(forged, &extra);
}

static void payload_not_as_summed(forged_t *forged)
{
    add_checksum(forged);
    forged->payload[99] ^= 0x80;
}

static void rendezvous_not_as_summed(forged_t *forged)
{
    payload_not_as_summed(forged);
    forged->flags = UCP_AM_SEND_FLAG_RNDV;
}

static void checksum_of_another(forged_t *forged)
{
    add_checksum(forged);
    forged->body[forged->body_bytes - 1] ^= 1;
}

static void unknown_checksum(forged_t *forged)
{
    add_checksum(forged);
    forged->body[forged->body_bytes - 11] = 99; /* [algorithm, bin 8 of 8] */
}

static void checksum_too_short(forged_t *forged)
{
    add_checksum(forged);
    forged->body[forged->body_bytes - 9] = 7;
    forged->body_bytes--;
    forged->head.body_bytes--;
}

#define KEYS_MAX 20

static void too_many_keys(forged_t *forged)
{
    tmsg_map_t *map = sample_bytes(1, 100);

    for (int i = 0; i <= KEYS_MAX; i++) {
        char key[] = {(char)('a' + i), '\0'};

        must(tmsg_map_set_i64(map, key, i));
    }
    encode_map(forged, map, NULL);
}

static void strict_about_a_gpu(forged_t *forged)
{
    const int64_t shape[] = {100};
    const tmsg_tensor_t tensor = {
        forged, {TMSG_DEVICE_CUDA, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape, NULL};
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "gpu", &tensor, NULL));
    encode_map(forged, map, NULL);
    forged->head.policy = TMSG_POLICY_STRICT;
}

static void strict_by_rendezvous(forged_t *forged)
{
    strict_about_a_gpu(forged);
    forged->flags = UCP_AM_SEND_FLAG_RNDV;
}

static const lie_t lies[] = {
    {"nothing", nothing, DELIVERED, TMSG_OK},
    {"by rendezvous", by_rendezvous, DELIVERED, TMSG_OK},
    {"a checksum", add_checksum, DELIVERED, TMSG_OK},
    {"payload not as summed", payload_not_as_summed, REFUSED, TMSG_ERR_CORRUPT},
    {"rendezvous not as summed", rendezvous_not_as_summed, REFUSED,
     TMSG_ERR_CORRUPT},
    {"checksum of another", checksum_of_another, REFUSED, TMSG_ERR_CORRUPT},
    {"unknown checksum", unknown_checksum, REFUSED, TMSG_ERR_UNSUPPORTED},
    {"checksum too short", checksum_too_short, REFUSED, TMSG_ERR_MALFORMED},
    {"more announced", more_announced, REFUSED, TMSG_ERR_MALFORMED},
    {"less announced", less_announced, REFUSED, TMSG_ERR_MALFORMED},
    {"huge announced", huge_announced, REFUSED, TMSG_ERR_MALFORMED},
    {"tensors larger", tensors_larger, REFUSED, TMSG_ERR_MALFORMED},
    {"tensors smaller", tensors_smaller, REFUSED, TMSG_ERR_MALFORMED},
    {"no payload", no_payload, REFUSED, TMSG_ERR_MALFORMED},
    {"short rendezvous", short_rendezvous, REFUSED, TMSG_ERR_MALFORMED},
    {"long rendezvous", long_rendezvous, REFUSED, TMSG_ERR_MALFORMED},
    {"empty rendezvous", empty_rendezvous, REFUSED, TMSG_ERR_MALFORMED},
    {"body of noise", body_of_noise, REFUSED, TMSG_ERR_MALFORMED},
    {"body cut", body_cut, REFUSED, TMSG_ERR_MALFORMED},
    {"body beyond the header", body_beyond, ENDED, TMSG_OK},
    {"spilled beyond the payload", spilled_beyond, ENDED, TMSG_OK},
    {"another channel", other_channel, ENDED, TMSG_OK},
    {"credit of another channel", credit_of_another_channel, ENDED, TMSG_OK},
    {"a policy that is none", unknown_policy, ENDED, TMSG_OK},
    {"a flag that is none", unknown_flag, ENDED, TMSG_OK},
    {"a bye by message beside a socket", bye_by_message, ENDED, TMSG_OK},
    {"a fin by message beside a socket", fin_by_message, ENDED, TMSG_OK},
    {"spilled noise", spilled_noise, REFUSED, TMSG_ERR_MALFORMED},
    {"too many keys", too_many_keys, REFUSED, TMSG_ERR_LIMIT_EXCEEDED},
    {"strict about a GPU", strict_about_a_gpu, REFUSED, TMSG_ERR_REFUSED},
    {"the same by rendezvous", strict_by_rendezvous, REFUSED, TMSG_ERR_REFUSED},
    {"other endpoint", other_endpoint, IGNORED, TMSG_OK},
    {"unknown kind", unknown_kind, IGNORED, TMSG_OK},
    {"no kind", no_kind, IGNORED, TMSG_OK},
    {"attach again", attach_again, IGNORED, TMSG_OK},
    {"attached again", attached_again, IGNORED, TMSG_OK},
    {"ack of nothing", ack_of_nothing, IGNORED, TMSG_OK},
    {"control by rendezvous", control_by_rendezvous, IGNORED, TMSG_OK},
    {"credit never earned", credit_never_earned, ENDED, TMSG_OK},
    {"a reference to no schema", schema_of_nothing, ENDED, TMSG_OK},
    {"an answer to no ping", pong_to_no_ping, ENDED, TMSG_OK},
    {"an answer to no schema", answer_to_no_schema, ENDED, TMSG_OK},
    {"an answer without its end", answer_cut, ENDED, TMSG_OK},
};

/* What a's application hears of it. */
typedef struct {
    unsigned calls;
    tmsg_endpoint_t *endpoint;
    uint32_t sequence;
    tmsg_status_t status;
    bool explained;
} heard_t;

static void hear(void *arg, tmsg_endpoint_t *endpoint, uint16_t channel,
                 uint32_t sequence, tmsg_status_t status, const char *error)
{
    heard_t *heard = arg;

    (void)channel;
    heard->calls++;
    heard->endpoint = endpoint;
    heard->sequence = sequence;
    heard->status = status;
    heard->explained = strlen(error) > 10;
}

static void expect_heard(const pair_t *pair, const lie_t *lie,
                         const heard_t *heard)
{
    if (heard->calls != (lie->wanted == REFUSED) ||
        heard->status != lie->told) {
        die("%s: heard %u times, %s", lie->what, heard->calls,
            tmsg_status_name(heard->status));
    }
    if (heard->calls > 0) {
        must_true(heard->endpoint == pair->to_b && heard->explained);
        must_eq(heard->sequence, pair->to_a->channels.zero.tx_sequence);
    }
}

static void tell_lies(link_t link)
{
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        forged_t *forged = malloc(sizeof(*forged));
        heard_t heard = {0};
        const side_options_t options = {
            .limits = {.field_mask = TMSG_LIMIT_METADATA_KEYS,
                       .metadata_keys = KEYS_MAX},
            .worker = {.field_mask = TMSG_WORKER_PARAM_ON_REFUSED,
                       .on_refused = hear,
                       .on_refused_arg = &heard}};
        verdict_t got;
        pair_t pair;

        pair_open(&pair, link, DRIVE_POLLING, &options, NULL);
        forge(&pair, forged);
        lies[i].spoil(forged);
        send_forged(&pair, forged);
        got = verdict(&pair);
        if (got != lies[i].wanted) {
            die("%s: verdict %d, not %d", lies[i].what, got, lies[i].wanted);
        }
        expect_heard(&pair, &lies[i], &heard);
        if (got == DELIVERED || got == REFUSED) {
            pair.to_a->channels.zero.tx_sequence++; /* it took a number */
        }
        if (got != ENDED) {
            expect_goes_on(&pair);
        }
        expect_serves_others(&pair);
        pair_drop(&pair);
        free(forged);
    }
}

/* Ends that cannot be, by frame where there is a socket and else by message.
 * Each row says them in its order. */
typedef struct {
    const char *what;
    struct {
        uint8_t kind;
        uint32_t sequence;
    } said[2];
} false_end_t;

static const false_end_t false_ends[] = {
    {"a bye that counts less than came", {{TMSG_KIND_BYE, 0}}},
    {"a bye that counts less than nothing", {{TMSG_KIND_BYE, 0xfffffff0}}},
    {"a bye beyond the window", {{TMSG_KIND_BYE, 5000}}},
    {"two byes", {{TMSG_KIND_BYE, 20}, {TMSG_KIND_BYE, 21}}},
    {"a fin out of turn", {{TMSG_KIND_FIN, 0}}},
    {"a message after the bye", {{TMSG_KIND_BYE, 2}, {TMSG_KIND_MAP, 2}}},
    {"a message before the bye", {{TMSG_KIND_MAP, 3}, {TMSG_KIND_BYE, 2}}},
};

static void say(pair_t *pair, uint8_t kind, uint32_t sequence)
{
    forged_t *forged = malloc(sizeof(*forged));
    uint8_t number[4];

    if (kind != TMSG_KIND_MAP && pair->to_a->link.fd >= 0) {
        tmsg_put_le(number, sequence, 4);
        raw_send_frame(pair->to_a->link.fd, kind, number, sizeof(number));
    } else {
        forge(pair, forged);
        forged->head.kind = kind;
        forged->head.sequence = sequence;
        send_forged(pair, forged);
    }
    free(forged);
}

static void tell_false_ends(link_t link)
{
    for (size_t i = 0; i < sizeof(false_ends) / sizeof(false_ends[0]); i++) {
        const false_end_t *end = &false_ends[i];
        pair_t pair;

        pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
        expect_goes_on(&pair);
        for (size_t j = 0; j < 2 && end->said[j].kind != 0; j++) {
            say(&pair, end->said[j].kind, end->said[j].sequence);
        }
        if (pair_end_of(&pair, pair.to_b) != TMSG_ERR_MALFORMED) {
            die("%s: '%s'", end->what, tmsg_endpoint_error(pair.to_b));
        }
        if (link != LINK_BLOB) {
            must_be(pair_end_of(&pair, pair.to_a), TMSG_ERR_MALFORMED);
            must_say(tmsg_endpoint_error(pair.to_a), "refused by the peer");
        }
        expect_serves_others(&pair);
        pair_drop(&pair);
    }
}

Test(lies, false_ends_end_the_connection) { tell_false_ends(LINK_SHM); }
Test(lies, false_ends_end_the_connection_blob) { tell_false_ends(LINK_BLOB); }

static bool is_one_ahead(void *arg)
{
    return ((pair_t *)arg)->to_b->channels.zero.rx != NULL;
}

/* An end that was taken is followed by b's own, which is refused as well. */
Test(lies, an_end_that_counts_up_to_a_message_that_came)
{
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    say(&pair, TMSG_KIND_MAP, 2);
    pair_await(&pair, is_one_ahead, &pair, "a message ahead of its turn");
    say(&pair, TMSG_KIND_BYE, 2);
    must_be(pair_end_of(&pair, pair.to_b), TMSG_ERR_MALFORMED);
    must_say(tmsg_endpoint_error(pair.to_b), "an end before a message that");
    pair_drop(&pair);
}

/* What a peer may call the failure of a message, and what becomes of it. */
static const struct {
    int32_t said;
    tmsg_status_t heard;
} answers[] = {
    {TMSG_OK, TMSG_OK},
    {TMSG_ERR_NO_MEMORY, TMSG_ERR_NO_MEMORY},
    {TMSG_ERR_INTERNAL, TMSG_ERR_INTERNAL},
    {TMSG_ERR_CORRUPT, TMSG_ERR_CORRUPT},
    {TMSG_ERR_CLOSED, TMSG_ERR_REFUSED},
    {TMSG_IN_PROGRESS, TMSG_ERR_REFUSED},
    {77, TMSG_ERR_REFUSED},
    {-1000, TMSG_ERR_REFUSED},
    {INT32_MIN, TMSG_ERR_REFUSED},
};

Test(lies, odd_acknowledgements_are_refusals)
{
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        forged_t *forged = malloc(sizeof(*forged));
        tmsg_request_t *sent;
        pair_t pair;

        pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
        sent = send_map(pair.to_b, sample_bytes(1, 10), TMSG_SEND_ACKED);
        forge(&pair, forged);
        forged->head.kind = TMSG_KIND_ACK;
        forged->head.message_id = pair.to_b->tx.next_message_id - 1;
        forged->head.body_bytes = 4;
        forged->body_bytes = 4;
        forged->head.payload_bytes = 0;
        forged->payload_bytes = 0;
        tmsg_put_le(forged->body, (uint32_t)answers[i].said, 4);
        send_forged(&pair, forged);
        if (pair_wait(&pair, sent) != answers[i].heard) {
            die("%d: '%s'", answers[i].said, tmsg_request_error(sent));
        }
        tmsg_request_destroy(sent);
        expect_goes_on(&pair);
        pair_drop(&pair);
        free(forged);
    }
}

/* The true answer does not come: UCX might bring it first. */
Test(lies, an_answer_to_another_ping_does_not_end_this_one)
{
    forged_t *forged = malloc(sizeof(*forged));
    tmsg_request_t *ping;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    pair.to_b->ping_ns = 1; /* as if one were under way, which this joins */
    must(tmsg_endpoint_ping(pair.to_b, &ping));
    forge(&pair, forged);
    forged->head.kind = TMSG_KIND_PONG;
    forged->head.message_id = pair.to_b->ping_id + 1;
    send_forged(&pair, forged);
    must_be(pair_finish(&pair, ping), TMSG_ERR_MALFORMED);
    pair_drop(&pair);
    free(forged);
}

/* Whoever reads them has a terminal, and one line for them. */
Test(lies, words_of_a_peer_are_one_line_of_text)
{
    static const char words[] = "a\x1b[31m\nb\xff\xc3";
    forged_t *forged = malloc(sizeof(*forged));
    tmsg_request_t *sent;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    sent = send_map(pair.to_b, sample_bytes(1, 10), TMSG_SEND_ACKED);
    forge(&pair, forged);
    forged->head.kind = TMSG_KIND_ACK;
    forged->head.message_id = pair.to_b->tx.next_message_id - 1;
    forged->body_bytes = 4 + sizeof(words) - 1;
    forged->head.body_bytes = (uint32_t)forged->body_bytes;
    forged->head.payload_bytes = 0;
    forged->payload_bytes = 0;
    tmsg_put_le(forged->body, (uint32_t)TMSG_ERR_BUSY, 4);
    memcpy(forged->body + 4, words, sizeof(words) - 1);
    send_forged(&pair, forged);
    must_be(pair_wait(&pair, sent), TMSG_ERR_BUSY);
    must_say(tmsg_request_error(sent), "refused by the receiver: a?[31m?b??");
    tmsg_request_destroy(sent);
    pair_drop(&pair);
    free(forged);
}

/* The words of a refusal are the peer's, its status one of ours. */
Test(lies, odd_refusals_keep_their_words)
{
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        uint8_t refusal[] = "....for a reason";
        pair_t pair;

        pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
        tmsg_put_le(refusal, (uint32_t)answers[i].said, 4);
        raw_send_frame(pair.to_a->link.fd, 2, refusal, sizeof(refusal) - 1);
        must_be(pair_end_of(&pair, pair.to_b),
                answers[i].said == 0 ? TMSG_ERR_REFUSED : answers[i].heard);
        must_say(tmsg_endpoint_error(pair.to_b), "for a reason");
        pair_drop(&pair);
    }
}

Test(lies, each_costs_its_message_or_its_connection_shm)
{
    tell_lies(LINK_SHM);
}

Test(lies, each_costs_its_message_or_its_connection_tcp)
{
    tell_lies(LINK_TCP);
}

Test(lies, a_sequence_that_comes_twice_ends_the_connection)
{
    forged_t *forged = malloc(sizeof(*forged));
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    forge(&pair, forged);
    send_forged(&pair, forged);
    send_forged(&pair, forged);
    must_be(pair_end_of(&pair, pair.to_b), TMSG_ERR_MALFORMED);
    must_say(tmsg_endpoint_error(pair.to_b), "twice");
    must_true(pair_end_of(&pair, pair.to_a) < 0);
    pair_drop(&pair);
    free(forged);
}

/* UCX promises no order: a later word may have said more. */
Test(lies, credit_that_comes_late_takes_nothing_back)
{
    enum { DEPTH = 8 };
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_QUEUE_DEPTH,
                   .queue_depth = DEPTH}};
    forged_t *forged = malloc(sizeof(*forged));
    const tmsg_channel_t *channel;
    uint32_t window;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, &options);
    channel = &pair.to_b->channels.zero;
    for (unsigned i = 0; i < 2 * DEPTH; i++) {
        tmsg_request_destroy(send_map(pair.to_b, sample_bytes(i, 10), 0));
        tmsg_message_destroy(pair_take(&pair, &pair.b));
    }
    window = channel->tx_window;
    must_true(window > DEPTH);
    forge(&pair, forged);
    forged->head.kind = TMSG_KIND_CREDIT;
    forged->head.sequence = 0;
    send_forged(&pair, forged);
    must_true(channel->tx_window >= window);
    expect_goes_on(&pair);
    pair_drop(&pair);
    free(forged);
}

/* A conforming peer never has more than its window under way. */
Test(lies, messages_beyond_the_window_do_not_pile_up)
{
    enum { DEPTH = 4, SENT = 2000 };
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_QUEUE_DEPTH,
                   .queue_depth = DEPTH}};
    forged_t *forged = malloc(sizeof(*forged));
    tmsg_message_t *message;
    unsigned held = 0;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, NULL);
    forge(&pair, forged);
    for (int i = 0; i < SENT && tmsg_endpoint_status(pair.to_b) == TMSG_OK &&
                    tmsg_endpoint_status(pair.to_a) == TMSG_OK;
         i++) {
        send_forged(&pair, forged);
        forged->head.sequence++;
    }
    while (tmsg_worker_recv(pair.a.worker, 0, &message) == TMSG_OK) {
        held++;
        tmsg_message_destroy(message);
    }
    cr_expect(le(uint, held, DEPTH));
    expect_serves_others(&pair);
    pair_drop(&pair);
    free(forged);
}

Test(lies, headers_of_noise_are_ignored)
{
    uint64_t state = is_due(0) ? 20260101 : 20260102;
    uint8_t header[300], payload[300];
    const int rounds = whole_run() ? 3000 : 600;
    tmsg_message_t *message;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (int i = 0; i < rounds; i++) {
        size_t header_bytes = sample_random(&state) % sizeof(header);

        sample_fill(sample_random(&state), header, sizeof(header));
        sample_fill(sample_random(&state), payload, sizeof(payload));
        if (i % 2 == 1) { /* noise behind a good beginning */
            forged_t forged;

            forge(&pair, &forged);
            tmsg_preamble_encode(&forged.head, header);
            header[4 + sample_random(&state) % 29] =
                (uint8_t)sample_random(&state);
        }
        send_raw(&pair, header, header_bytes, payload,
                 sample_random(&state) % sizeof(payload),
                 i % 3 == 0 ? UCP_AM_SEND_FLAG_RNDV : 0);
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
