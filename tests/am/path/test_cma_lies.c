/* SPDX-License-Identifier: BSD-3-Clause */
/* A peer that was admitted and then lies about payloads that are read out of
 * its memory, or out of ours: it costs the message or the connection, never the
 * process, and nothing that was not sent is delivered. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

#include "am/endpoint/control.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/paths.h"
#include "am/path/cma.h"
#include "core/bytes.h"
#include "support/peers.h"
#include "support/sample.h"

enum { BYTES = 70000, CHUNK = 40000 };

static uint8_t memory[BYTES]; /* that the peer is said to read */

/* Sends bytes as an AM over b's endpoint, past all that checks them. */
static void post(pair_t *pair, const void *header, size_t header_bytes,
                 const void *payload, size_t payload_bytes, unsigned flags)
{
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                       .flags = flags};
    ucs_status_ptr_t request =
        ucp_am_send_nbx(pair->to_a->ep, TMSG_AM_ID, header, header_bytes,
                        payload, payload_bytes, &param);

    for (int i = 0; i < 200; i++) {
        tmsg_worker_progress(pair->a.worker);
    }
    if (UCS_PTR_IS_PTR(request)) {
        ucp_request_free(request); /* it goes on without us */
    }
}

/* A correct map message, or a part of one, to be spoilt. */
typedef struct {
    tmsg_preamble_t head;
    uint8_t header[600];
    size_t body_bytes;
    uint8_t payload[2 * TMSG_CMA_BYTES];
    size_t payload_bytes; /* really sent */
    unsigned flags;
} forged_t;

static void point_at(forged_t *forged, uint64_t address)
{
    tmsg_put_le(forged->payload, address, 8);
}

static forged_t forge(const pair_t *pair, const tmsg_split_t *split)
{
    const tmsg_body_extra_t extra = {.split = *split};
    tmsg_map_t *map = sample_bytes(1, BYTES);
    forged_t forged = {
        .head = {.kind = TMSG_KIND_MAP,
                 .flags = TMSG_HEADER_READ,
                 .message_id = 77,
                 .endpoint_id = pair->to_a->peer_id,
                 .sequence = pair->to_a->channels.zero.tx_sequence,
                 .payload_bytes = BYTES},
        .payload_bytes = TMSG_CMA_BYTES,
        .flags = UCP_AM_SEND_FLAG_EAGER};

    must(tmsg_body_encode(map, &extra, forged.header + TMSG_PREAMBLE_BYTES,
                          sizeof(forged.header) - TMSG_PREAMBLE_BYTES,
                          &forged.body_bytes));
    tmsg_map_destroy(map);
    forged.head.body_bytes = (uint32_t)forged.body_bytes;
    sample_fill(1, memory, BYTES);
    point_at(&forged, (uintptr_t)memory);
    tmsg_put_le(forged.payload + 8, 1, 8);
    return forged;
}

static void send_forged(pair_t *pair, forged_t *forged)
{
    tmsg_preamble_encode(&forged->head, forged->header);
    post(pair, forged->header, TMSG_PREAMBLE_BYTES + forged->body_bytes,
         forged->payload, forged->payload_bytes, forged->flags);
}

typedef enum { DELIVERED, REFUSED, ENDED, IGNORED } verdict_t;

/* What became of the message at a. */
static verdict_t verdict(pair_t *pair)
{
    tmsg_message_t *message = NULL;
    tmsg_tensor_t tensor;

    if (tmsg_worker_recv(pair->a.worker, 0, &message) == TMSG_OK) {
        must(tmsg_map_at(tmsg_message_map(message), 0, NULL, &tensor));
        must_eq(sample_compare(1, tensor.data, BYTES), BYTES);
        tmsg_message_destroy(message);
        return DELIVERED;
    }
    if (tmsg_endpoint_status(pair->to_b) < 0) {
        must_be(tmsg_endpoint_status(pair->to_b), TMSG_ERR_MALFORMED);
        return ENDED;
    }
    return pair->to_b->stats.refused_messages > 0 ? REFUSED : IGNORED;
}

static void nothing(forged_t *forged) { (void)forged; }
static void of_no_memory(forged_t *forged) { point_at(forged, 0); }
static void of_the_kernel(forged_t *forged) { point_at(forged, 1ull << 63); }

static void around_the_end(forged_t *forged)
{
    point_at(forged, UINT64_MAX - 100);
}

static void of_a_byte_less(forged_t *forged) { forged->payload_bytes--; }
static void of_a_byte_more(forged_t *forged) { forged->payload_bytes++; }
static void of_nothing(forged_t *forged) { forged->payload_bytes = 0; }
static void empty(forged_t *forged) { forged->head.payload_bytes = 0; }
static void longer(forged_t *forged) { forged->head.payload_bytes++; }

static void huge(forged_t *forged) { forged->head.payload_bytes = UINT64_MAX; }

static void by_rendezvous(forged_t *forged)
{
    forged->flags = UCP_AM_SEND_FLAG_RNDV;
}

static void spilled(forged_t *forged)
{
    forged->head.flags |= TMSG_HEADER_SPILLED;
}

static void charged(forged_t *forged)
{
    forged->head.flags |= TMSG_HEADER_CHARGED;
}

static void charged_too_much(forged_t *forged)
{
    charged(forged);
    huge(forged);
}

static void out_of_turn(forged_t *forged)
{
    forged->head.flags |= TMSG_HEADER_UNORDERED;
}

static void pulled(forged_t *forged)
{
    forged->head.flags |= TMSG_HEADER_PULLED;
}

static void credit(forged_t *forged) { forged->head.kind = TMSG_KIND_CREDIT; }
static void read_itself(forged_t *forged)
{
    forged->head.kind = TMSG_KIND_READ;
}

static void call(forged_t *forged) { forged->head.kind = TMSG_KIND_CALL; }

static const struct {
    const char *what;
    void (*spoil)(forged_t *forged);
    verdict_t wanted;
} lies[] = {
    {"nothing", nothing, DELIVERED},
    {"out of turn", out_of_turn, DELIVERED},
    {"charged", charged, DELIVERED},
    {"pulled", pulled, DELIVERED},
    {"of no memory", of_no_memory, REFUSED},
    {"of the kernel's memory", of_the_kernel, REFUSED},
    {"around the end of memory", around_the_end, REFUSED},
    {"longer than its tensors", longer, REFUSED},
    {"huge", huge, REFUSED},
    {"spilled noise", spilled, REFUSED},
    {"charged too much", charged_too_much, ENDED},
    {"a byte too few", of_a_byte_less, ENDED},
    {"a byte too many", of_a_byte_more, ENDED},
    {"no address", of_nothing, ENDED},
    {"an empty payload", empty, ENDED},
    {"by rendezvous", by_rendezvous, ENDED},
    {"a call on a channel of messages", call, ENDED},
    {"a word of credit", credit, IGNORED},
    {"a word of reading", read_itself, IGNORED},
};

/* The next message on the same connection arrives, read or not. */
static void expect_goes_on(pair_t *pair)
{
    static const size_t sizes[] = {3000, 100000};

    for (size_t i = 0; i < 2; i++) {
        tmsg_message_t *message;
        tmsg_request_t *sent =
            send_map(pair->to_a, sample_bytes(8, sizes[i]), TMSG_SEND_ACKED);

        message = pair_take(pair, &pair->a);
        sample_check_bytes(8, sizes[i], tmsg_message_map(message));
        tmsg_message_destroy(message);
        must(pair_finish(pair, sent));
    }
}

static void open_reading(pair_t *pair, link_t link)
{
    pair_open(pair, link, DRIVE_POLLING, NULL, NULL);
    pair_await(pair, endpoint_is_read, pair->to_a, "a peer that reads");
    pair_await(pair, endpoint_is_read, pair->to_b, "a peer that reads");
}

Test(cma_lies, each_costs_its_message_or_its_connection)
{
    static const tmsg_split_t whole;

    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        forged_t forged;
        verdict_t got;
        pair_t pair;

        open_reading(&pair, LINK_SHM);
        forged = forge(&pair, &whole);
        lies[i].spoil(&forged);
        send_forged(&pair, &forged);
        got = verdict(&pair);
        if (got != lies[i].wanted) {
            die("%s: verdict %d, not %d: %s", lies[i].what, got, lies[i].wanted,
                tmsg_endpoint_error(pair.to_b));
        }
        if (got == DELIVERED || got == REFUSED) {
            pair.to_a->channels.zero.tx_sequence++; /* it took a number */
        }
        if (got != ENDED) {
            expect_goes_on(&pair);
        }
        pair_drop(&pair);
    }
}

/* One that has not said that it reads is sent nothing to read. */
static void unasked(link_t link)
{
    static const tmsg_split_t whole;
    forged_t forged;
    pair_t pair;

    without_reading();
    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    forged = forge(&pair, &whole);
    send_forged(&pair, &forged);
    must_eq((int)verdict(&pair), (int)ENDED);
    pair_drop(&pair);
}

Test(cma_lies, what_nobody_asked_for_ends_the_connection) { unasked(LINK_SHM); }

Test(cma_lies, what_nobody_asked_for_ends_the_connection_tcp)
{
    unasked(LINK_TCP);
}

/* A head without payload, whose one tensor is parts. */
static void post_head(pair_t *pair)
{
    const tmsg_split_t split = {.large = 1, .chunk = CHUNK};
    forged_t forged = forge(pair, &split);

    forged.head.flags = 0;
    forged.head.payload_bytes = 0;
    forged.payload_bytes = 0;
    send_forged(pair, &forged);
}

static void post_part(pair_t *pair, uint32_t number, uint64_t address,
                      size_t payload_bytes)
{
    static const tmsg_split_t whole;
    forged_t forged = forge(pair, &whole);

    forged.head.kind = TMSG_KIND_PART;
    forged.head.body_bytes = 4;
    forged.body_bytes = 4;
    forged.head.payload_bytes = number == 0 ? CHUNK : BYTES - CHUNK;
    forged.payload_bytes = payload_bytes;
    point_at(&forged, address);
    tmsg_put_le(forged.header + TMSG_PREAMBLE_BYTES, number, 4);
    send_forged(pair, &forged);
}

/* Parts as they may be, and then as they may not. */
static const struct {
    const char *what;
    uint64_t address; /* of the second; 0: where it is */
    size_t bytes;     /* of its payload */
    uint32_t number;
    verdict_t wanted;
} parts[] = {
    {"nothing", 0, TMSG_CMA_BYTES, 1, DELIVERED},
    {"of no memory", 1, TMSG_CMA_BYTES, 1, REFUSED},
    {"of the kernel's memory", 1ull << 63, TMSG_CMA_BYTES, 1, REFUSED},
    {"the same twice", 0, TMSG_CMA_BYTES, 0, ENDED},
    {"a byte too few", 0, TMSG_CMA_BYTES - 1, 1, ENDED},
    {"no address", 0, 0, 1, ENDED},
};

Test(cma_lies, parts)
{
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        uint64_t second = (uintptr_t)memory + CHUNK;
        verdict_t got;
        pair_t pair;

        open_reading(&pair, LINK_SHM);
        post_head(&pair);
        post_part(&pair, 0, (uintptr_t)memory, TMSG_CMA_BYTES);
        post_part(&pair, parts[i].number,
                  parts[i].address == 0 ? second : parts[i].address,
                  parts[i].bytes);
        got = verdict(&pair);
        if (got != parts[i].wanted) {
            die("%s: verdict %d, not %d: %s", parts[i].what, got,
                parts[i].wanted, tmsg_endpoint_error(pair.to_b));
        }
        if (got != ENDED) {
            pair.to_a->channels.zero.tx_sequence++;
            expect_goes_on(&pair);
        }
        pair_drop(&pair);
    }
}

/* What b says of payloads that a has lent it; `bytes` of it are said. */
static void say(pair_t *pair, uint8_t word, uint64_t token, uint32_t bytes)
{
    forged_t forged = {.head = {.kind = TMSG_KIND_READ,
                                .endpoint_id = pair->to_a->peer_id,
                                .body_bytes = bytes},
                       .body_bytes = bytes,
                       .flags = UCP_AM_SEND_FLAG_EAGER};

    forged.header[TMSG_PREAMBLE_BYTES] = word;
    tmsg_put_le(forged.header + TMSG_PREAMBLE_BYTES + 1, token, 8);
    send_forged(pair, &forged);
}

Test(cma_lies, odd_answers_are_skipped)
{
    tmsg_message_t *message;
    tmsg_request_t *sent;
    uint64_t token;
    pair_t pair;

    open_reading(&pair, LINK_SHM);
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
    message = pair_take(&pair, &pair.b); /* which had not even looked */
    tmsg_message_destroy(message);
    expect_goes_on(&pair);
    pair_drop(&pair);
}

/* Whoever says that it reads, and shares no memory, or is not to. */
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
