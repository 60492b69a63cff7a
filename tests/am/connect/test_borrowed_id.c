/* SPDX-License-Identifier: BSD-3-Clause */
/* A peer that speaks under the id of another peer's endpoint. Nothing that it
 * says counts as the other's: no message of the other's fast box passes one
 * that UCX has yet to bring, and the other's connection lives on. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <ucp/api/ucp.h>

#include "am/endpoint/control.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/kinds.h"
#include "support/channels.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

enum { SMALL = 100, MEDIUM = 5000, FORGED = 20 };

/* A pair, of which a serves b, and a further peer. */
typedef struct {
    pair_t pair;
    tmsg_endpoint_t *forger; /* another connection of b's to a */
    tmsg_endpoint_t *by;     /* a's end of it */
} three_t;

/* Connects the forger. */
static void come(three_t *three)
{
    tmsg_request_t *ready;

    three->forger = side_dial(&three->pair.b, &three->pair.a);
    must(tmsg_endpoint_ready(three->forger, &ready));
    must(pair_finish(&three->pair, ready));
    three->by = three->pair.a.accepted;
    must_true(three->by != three->pair.to_b);
}

static void three_open(three_t *three, link_t link)
{
    pair_open(&three->pair, link, DRIVE_POLLING, NULL, NULL);
    come(three);
}

/* Sends a message under the id of b's connection, over the forger's. */
static void forge(three_t *three, uint8_t kind, unsigned flags)
{
    static uint8_t headers[FORGED][TMSG_PREAMBLE_BYTES + TMSG_TOKEN_BYTES + 8];
    static unsigned count;
    uint8_t *header = headers[count++ % FORGED];
    const tmsg_preamble_t head = {.kind = kind,
                                  .endpoint_id = three->pair.to_b->id,
                                  .body_bytes = TMSG_TOKEN_BYTES + 8};
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                       .flags = UCP_AM_SEND_FLAG_EAGER | flags};
    ucs_status_ptr_t request;

    tmsg_preamble_encode(&head, header);
    request = ucp_am_send_nbx(three->forger->ep, TMSG_AM_ID, header,
                              sizeof(headers[0]), NULL, 0, &param);
    must_true(!UCS_PTR_IS_ERR(request));
    if (UCS_PTR_IS_PTR(request)) {
        ucp_request_free(request);
    }
}

static void settle(three_t *three)
{
    for (int i = 0; i < 1000; i++) {
        tmsg_worker_progress(three->pair.b.worker);
        tmsg_worker_progress(three->pair.a.worker);
    }
}

static void give(three_t *three, uint16_t channel, uint64_t seed, size_t bytes)
{
    tmsg_request_destroy(
        send_on(three->pair.to_a, channel, sample_bytes(seed, bytes), 0));
}

static void take(three_t *three, uint64_t seed, size_t bytes)
{
    tmsg_message_t *message = pair_take(&three->pair, &three->pair.a);

    sample_check_bytes(seed, bytes, tmsg_message_map(message));
    tmsg_message_destroy(message);
}

static void still_serves(three_t *three)
{
    for (uint64_t i = 0; i < 40; i++) {
        give(three, 0, i, SMALL);
        take(three, i, SMALL);
    }
    must(tmsg_endpoint_status(three->pair.to_b));
    must(tmsg_endpoint_status(three->pair.to_a));
}

/* What is not told to come by any UCX endpoint is nobody's; whoever tells one
 * under another's id loses his connection. */
static void borrow(three_t *three, uint8_t kind, unsigned flags)
{
    uint32_t came;

    settle(three);
    came = three->pair.to_b->fastboxes.came;
    for (int i = 0; i < FORGED; i++) {
        forge(three, kind, flags);
    }
    settle(three);
    cr_expect(eq(u32, three->pair.to_b->fastboxes.came, came), "kind %u", kind);
    cr_expect(eq(int, tmsg_endpoint_status(three->by),
                 flags == 0 ? TMSG_OK : TMSG_ERR_MALFORMED),
              "kind %u", kind);
    still_serves(three);
}

static void borrow_all(link_t link, unsigned flags)
{
    static const uint8_t kinds[] = {
        TMSG_KIND_MAP,  TMSG_KIND_ACK,  TMSG_KIND_CREDIT,
        TMSG_KIND_PING, TMSG_KIND_RING, TMSG_KIND_CONNECT_REQUEST,
        TMSG_KIND_CALL, TMSG_KIND_BYE,  TMSG_KIND_CONNECT_REPLY};
    three_t three;

    three_open(&three, link);
    still_serves(&three);
    for (size_t i = 0; i < sizeof(kinds); i++) {
        borrow(&three, kinds[i], flags);
        if (flags != 0) {
            tmsg_endpoint_destroy(three.by);
            tmsg_endpoint_destroy(three.forger);
            come(&three);
        }
    }
    pair_drop(&three.pair);
}

Test(borrowed_id, of_nobody_changes_nothing) { borrow_all(LINK_SHM, 0); }
Test(borrowed_id, of_nobody_changes_nothing_tcp) { borrow_all(LINK_TCP, 0); }

Test(borrowed_id, costs_the_connection)
{
    borrow_all(LINK_SHM, UCP_AM_SEND_FLAG_REPLY);
}

Test(borrowed_id, costs_the_connection_tcp)
{
    borrow_all(LINK_TCP, UCP_AM_SEND_FLAG_REPLY);
}

/* A message of the fast box on channel 0 stays behind one that UCX has, on
 * channel 1: forged messages do not count for that. */
Test(borrowed_id, lets_no_message_of_a_fast_box_pass)
{
    three_t three;
    tmsg_message_t *message;
    uint64_t by_fastbox;

    three_open(&three, LINK_SHM);
    still_serves(&three);
    settle(&three);
    by_fastbox = three.pair.to_a->stats.sent_by_fastbox;
    forge(&three, TMSG_KIND_PING, 0); /* UCX has this, too */
    for (int i = 0; i < FORGED; i++) {
        forge(&three, TMSG_KIND_ACK, 0);
    }
    settle(&three);
    give(&three, 1, 1, MEDIUM);
    give(&three, 0, 2, SMALL);
    must_eq(three.pair.to_a->stats.sent_by_fastbox, by_fastbox + 1);
    {
        tmsg_fastbox_message_t fastboxed;

        must_eq(tmsg_fastbox_look(three.pair.to_b->fastboxes.in, &fastboxed),
                TMSG_FASTBOX_FULL);
        cr_expect(
            eq(u32, fastboxed.after, three.pair.to_b->fastboxes.came + 1));
    }
    for (int i = 0; i < 2; i++) {
        message = pair_take(&three.pair, &three.pair.a);
        tmsg_message_destroy(message);
    }
    pair_drop(&three.pair);
}
