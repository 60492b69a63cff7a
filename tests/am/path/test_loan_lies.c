/* SPDX-License-Identifier: BSD-3-Clause */
/* A peer that lies about what it lends, or gives back, loses the message or the
 * connection. */
#include <criterion/criterion.h>
#include <string.h>
#include <unistd.h>

#include "am/endpoint/link_ops.h"
#include "am/net/unwanted.h"
#include "am/path/loans_struct.h"
#include "core/bytes.h"
#include "support/forged_messages.h"
#include "support/lingering.h"
#include "support/seeded_maps.h"

#define COUNT(rows) (sizeof(rows) / sizeof(rows[0]))

enum { BYTES = 70000, ID = 77 };

static uint8_t *block;          /* b's, which a has as segment 1 */
static tmsg_lending_t *lending; /* of it */
static const char *why_not;

static bool is_back(void *arg)
{
    const tmsg_endpoint_t *endpoint = arg;

    return endpoint->paths.loans->out.count == 0;
}

static uint8_t *shareable_block(void)
{
    void *memory;

    must(tmsg_shareable_alloc(BYTES, NULL, &memory));
    return memory;
}

/* timeout_ms 0: none. */
static tmsg_request_t *lend(tmsg_endpoint_t *endpoint, tmsg_map_t *map,
                            int32_t timeout_ms)
{
    const tmsg_send_params_t params = {
        .field_mask = TMSG_SEND_PARAM_FLAGS |
                      (timeout_ms > 0 ? TMSG_SEND_PARAM_TIMEOUT : 0),
        .flags = TMSG_SEND_LEND,
        .timeout_ms = timeout_ms};
    tmsg_request_t *request;

    must(tmsg_endpoint_send(endpoint, map, &params, &request));
    tmsg_map_destroy(map);
    return request;
}

static tmsg_map_t *map_of_block(void)
{
    const int64_t shape[] = {BYTES};
    const tmsg_tensor_t tensor = {
        block, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape, NULL};
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "x", &tensor, NULL));
    return map;
}

static void take(pair_t *pair, tmsg_request_t *request, bool lent)
{
    tmsg_message_t *message = pair_take(pair, &pair->a);

    must_eq(tmsg_message_is_lent(message), lent);
    must(pair_finish(pair, request));
    tmsg_message_destroy(message);
}

/* Has a take segment 1. */
static void lend_block(pair_t *pair)
{
    tmsg_map_t *map;

    tmsg_lending_drop(lending); /* of the lie before */
    must_true(block == NULL || tmsg_shareable_free(block) == TMSG_OK);
    block = shareable_block();
    sample_fill(1, block, BYTES);
    map = map_of_block();
    lending = tmsg_lending_of(map, &why_not);
    must_true(lending != NULL);
    take(pair, lend(pair->to_a, map, 0), true);
    pair_await(pair, is_back, pair->to_a, "what was lent");
}

/* Forges a loan of `bytes` from `offset` on in a segment. b awaits it back. */
static void forge(const pair_t *pair, uint32_t segment, uint64_t offset,
                  size_t bytes, size_t places, forged_t *forged)
{
    const tmsg_lent_place_t where[] = {{segment, offset}, {segment, offset}};
    const tmsg_body_extra_t extra = {
        .lent = {.count = places, .places = where}};

    forged_make_map(pair, sample_bytes(1, bytes), &extra, 0, forged);
    forged_set(forged, SAID_FLAGS, TMSG_HEADER_LENT);
    must(tmsg_loan_begin(pair->to_a, ID, lending, NULL, 0));
}

/* Two tensors of so many bytes, which are the same ones. */
static void the_same_twice(const pair_t *pair, uint32_t number,
                           forged_t *forged)
{
    const int64_t shape[] = {number};
    const tmsg_tensor_t tensor = {
        block, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape, NULL};
    const tmsg_lent_place_t where[] = {{1, 0}, {1, 0}};
    const tmsg_body_extra_t extra = {.lent = {.count = 2, .places = where}};
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "x", &tensor, NULL));
    must(tmsg_map_add(map, "y", &tensor, NULL));
    forged_make_map(pair, map, &extra, 0, forged);
    forged_set(forged, SAID_FLAGS, TMSG_HEADER_LENT);
    must(tmsg_loan_begin(pair->to_a, ID, lending, NULL, 0));
}

static void a_loan(const pair_t *pair, uint32_t number, forged_t *forged)
{
    (void)number;
    forge(pair, 1, 0, BYTES, 1, forged);
}

static void of_no_segment(const pair_t *pair, uint32_t number, forged_t *forged)
{
    forge(pair, number, 0, BYTES, 1, forged);
}

static void out_of_range(const pair_t *pair, uint32_t number, forged_t *forged)
{
    forge(pair, 1, number, BYTES, 1, forged);
}

static void around_the_end(const pair_t *pair, uint32_t number,
                           forged_t *forged)
{
    forge(pair, 1, INT64_MAX - number, BYTES, 1, forged);
}

static void unaligned(const pair_t *pair, uint32_t number, forged_t *forged)
{
    forge(pair, 1, number, 100, 1, forged);
}

static void of_two_places(const pair_t *pair, uint32_t number, forged_t *forged)
{
    (void)number;
    forge(pair, 1, 0, BYTES, 2, forged);
}

/* A map that is no loan, which its flag denies. */
static void a_map(const pair_t *pair, uint32_t number, forged_t *forged)
{
    (void)number;
    forged_make_map(pair, sample_bytes(1, 100), NULL, 100, forged);
    forged->way = BY_EAGER;
    must(tmsg_loan_begin(pair->to_a, ID, lending, NULL, 0));
}

static void frame(const pair_t *pair, uint8_t type, const void *data,
                  size_t bytes, forged_t *forged)
{
    forged_make(pair, (tmsg_preamble_t){.kind = type}, data, bytes, forged);
    forged->way = BY_FRAME;
}

/* A frame of a type with these numbers, of 4 or 8 bytes. */
static void numbers(const pair_t *pair, uint8_t type, uint64_t number,
                    size_t bytes, forged_t *forged)
{
    uint8_t data[16] = {0};

    tmsg_put_le(data, number, bytes < 8 ? bytes : 8);
    frame(pair, type, data, bytes, forged);
}

static void a_segment(const pair_t *pair, uint32_t number, forged_t *forged)
{
    numbers(pair, TMSG_FRAME_SEGMENT, number, 12, forged);
}

static void a_short_segment(const pair_t *pair, uint32_t number,
                            forged_t *forged)
{
    numbers(pair, TMSG_FRAME_SEGMENT, number, 8, forged);
}

static void taken(const pair_t *pair, uint32_t number, forged_t *forged)
{
    numbers(pair, TMSG_FRAME_SEGMENT_TAKEN, number, 4, forged);
}

static void refused(const pair_t *pair, uint32_t number, forged_t *forged)
{
    numbers(pair, TMSG_FRAME_SEGMENT_REFUSED, number, 4, forged);
}

static void back(const pair_t *pair, uint32_t number, forged_t *forged)
{
    numbers(pair, TMSG_FRAME_LOAN_BACK, number, 8, forged);
}

static void half_a_token(const pair_t *pair, uint32_t number, forged_t *forged)
{
    numbers(pair, TMSG_FRAME_LOAN_BACK, number, 4, forged);
}

static void gone(const pair_t *pair, uint32_t number, forged_t *forged)
{
    numbers(pair, TMSG_FRAME_SEGMENT_GONE, number, 4, forged);
}

static const lie_t lies[] = {
    LIE("nothing", DELIVERED, SAY(a_loan)),
    LIE("out of turn", DELIVERED,
        SAY(a_loan, {SAID_FLAGS, TMSG_HEADER_LENT | TMSG_HEADER_UNORDERED})),
    LIE("no segment", REFUSED, SAY_NTH(of_no_segment, 0)),
    LIE("an unknown segment", REFUSED, SAY_NTH(of_no_segment, 2)),
    LIE("a segment beyond all", REFUSED, SAY_NTH(of_no_segment, UINT32_MAX)),
    LIE("beyond the end", REFUSED, SAY_NTH(out_of_range, 64)),
    LIE("far beyond the end", REFUSED, SAY_NTH(out_of_range, 1u << 31)),
    LIE("around the end", REFUSED, SAY_NTH(around_the_end, 0)),
    LIE("around the end, aligned", REFUSED, SAY_NTH(around_the_end, 63)),
    LIE("not aligned", REFUSED, SAY_NTH(unaligned, 1)),
    LIE("nearly aligned", REFUSED, SAY_NTH(unaligned, 8)),
    LIE("half of the bytes, twice", DELIVERED,
        SAY_NTH(the_same_twice, BYTES / 2)),
    LIE("more bytes than there are", REFUSED,
        SAY_NTH(the_same_twice, BYTES / 2 + 1)),
    LIE("all of the bytes, twice", REFUSED, SAY_NTH(the_same_twice, BYTES)),
    LIE("two places for a tensor", REFUSED, SAY(of_two_places)),
    LIE("a loan that is none", REFUSED,
        SAY(a_map, {SAID_FLAGS, TMSG_HEADER_LENT})),
    LIE("a payload, too", REFUSED,
        SAY(a_loan, {SENT_PAYLOAD, 100}, {SAID_PAYLOAD, 100})),
    LIE("a body that is cut", REFUSED, SAY(a_loan, {ADD(BODY_BYTES), -1})),
    LIE("not to be given back", REFUSED, SAY(a_loan, {SAID_FLAGS, 0})),
    LIE("by rendezvous", ENDS("does not come with it"),
        SAY(a_loan, {SENT_PAYLOAD, 60000}, {SAID_PAYLOAD, 60000},
            {SENT_BY, BY_RENDEZVOUS})),
    LIE("a number twice", ENDS("without a number"), SAY_NTH(a_segment, 1)),
    LIE("number 0", ENDS("without a number"), SAY_NTH(a_segment, 0)),
    LIE("a short segment", ENDS("without a number"),
        SAY_NTH(a_short_segment, 2)),
    LIE("taken unasked", ENDS("was not offered"), SAY_NTH(taken, 1)),
    LIE("refused unasked", ENDS("was not offered"), SAY_NTH(refused, 1)),
    LIE("back unlent", ENDS("not lent"), SAY_NTH(back, 0)),
    LIE("half a token", ENDS("given back by 4"), SAY_NTH(half_a_token, 0)),
    LIE("an unknown segment is gone", ENDS("was not taken"), SAY_NTH(gone, 2)),
    LIE("a segment is gone twice", ENDS("was not taken"), SAY_NTH(gone, 1),
        SAY_NTH(gone, 1)),
    LIE("of a segment that is gone", REFUSED, SAY_NTH(gone, 1), SAY(a_loan)),
};

Test(loan_lies, each_costs_its_message_or_its_connection)
{
    const telling_t telling = {
        .link = LINK_UNIX,
        .a = {.worker = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
                         .flags = TMSG_WORKER_BORROW}},
        .prepare = lend_block};

    tell_lies(&telling, lies, COUNT(lies));
}

/* Such a side takes no segment, so that none of a peer's messages can name
 * one. */
static void unasked(const pair_t *pair, uint32_t number, forged_t *forged)
{
    const tmsg_lent_place_t where = {1, 0};
    const tmsg_body_extra_t extra = {.lent = {.count = 1, .places = &where}};

    (void)number;
    forged_make_map(pair, sample_bytes(1, 100), &extra, 0, forged);
    forged_set(forged, SAID_FLAGS, TMSG_HEADER_LENT);
}

Test(loan_lies, a_loan_to_a_side_that_does_not_borrow_ends_the_connection)
{
    const lie_t lie = LIE("a loan", ENDS("does not borrow"), SAY(unasked));

    for (link_t link = 0; link < LINKS; link++) {
        const telling_t telling = {.link = link};

        tell_lies(&telling, &lie, 1);
    }
}

static void never_called(void *arg, tmsg_task_t *task)
{
    (void)arg;
    (void)task;
    must_true(false);
}

/* A side that has asked for a loan has asked for a reply, not for requests. */
Test(loan_lies, a_request_as_a_loan_ends_the_connection)
{
    const tmsg_call_head_t call = {
        .type = TMSG_CALL_REQUEST, .id = 1, .text = "add", .text_bytes = 3};
    tmsg_preamble_t head = {.kind = TMSG_KIND_CALL,
                            .flags = TMSG_HEADER_LENT,
                            .channel = TMSG_CHANNEL_CALLS,
                            .message_id = ID};
    tmsg_server_t *server;
    tmsg_map_t *map;
    forged_t forged;
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    must(tmsg_server_create(pair.a.worker, NULL, &server));
    must(tmsg_server_register(server, "add", never_called, NULL, NULL));
    block = shareable_block();
    map = map_of_block();
    lending = tmsg_lending_of(map, &why_not);
    must_true(lending != NULL && tmsg_loans_of(pair.to_a) != NULL);
    must(tmsg_loan_begin(pair.to_a, ID, lending, NULL, 0));
    tmsg_loans_ask(pair.to_b);
    forged_make_call(&pair, &head, &call, &forged);
    forged_send(&pair, &forged);
    must_be(pair_end_of(&pair, pair.to_b), TMSG_ERR_MALFORMED);
    must_say(tmsg_endpoint_error(pair.to_b), "nobody has asked for");
    tmsg_server_destroy(server);
    pair_drop(&pair);
    tmsg_map_destroy(map);
}

/* A borrower gives a loan back twice. */
Test(loan_lies, a_loan_given_back_twice_ends_the_connection)
{
    const side_options_t borrows = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
                   .flags = TMSG_WORKER_BORROW}};
    uint8_t token[8] = {0};
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, &borrows, NULL);
    lend_block(&pair);
    must(tmsg_frame_queue(&pair.to_b->link.stream, TMSG_FRAME_LOAN_BACK, token,
                          sizeof(token)));
    must_be(pair_end_of(&pair, pair.to_a), TMSG_ERR_MALFORMED);
    must_say(tmsg_endpoint_error(pair.to_a), "is not lent");
    pair_drop(&pair);
}

/* A loan that is refused goes back at once: its turn may never come. */
Test(loan_lies, a_refused_loan_does_not_wait_for_its_turn)
{
    const side_options_t borrows = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
                   .flags = TMSG_WORKER_BORROW}};
    forged_t forged;
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, &borrows, NULL);
    lend_block(&pair);
    of_no_segment(&pair, 2, &forged);
    forged_set(&forged, ADD(SAID_SEQUENCE), 1); /* the one before is missing */
    must_eq(pair.to_a->paths.loans->out.count, 1);
    forged_send(&pair, &forged);
    pair_await(&pair, is_back, pair.to_a, "the refused loan");
    must_be(tmsg_endpoint_status(pair.to_a), TMSG_OK);
    pair_drop(&pair);
}

/* A file that is no memory costs its owner the segment, and where such files
 * cannot be closed, the connection. Nobody waits for them. */
Test(loan_lies, files_that_cannot_be_closed_end_the_connection, .timeout = 60)
{
    const side_options_t borrows = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
                   .flags = TMSG_WORKER_BORROW}};
    uint8_t segment[12] = {1};
    const char *why;
    pair_t pair, later;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, &borrows, NULL);
    must_true(tmsg_link_ops.passes(pair.to_a, &why));
    while (!tmsg_unwanted_is_full()) {
        tmsg_unwanted_close(lingering_socket());
    }
    must(tmsg_link_ops.put_fd(pair.to_a, TMSG_FRAME_SEGMENT, segment,
                              sizeof(segment), lingering_socket()));
    must_be(pair_end_of(&pair, pair.to_b), TMSG_ERR_MALFORMED);
    must_say(tmsg_endpoint_error(pair.to_b), "is not a file of memory");
    pair_drop(&pair);

    pair_open(&later, LINK_UNIX, DRIVE_POLLING, &borrows, NULL);
    must_true(!tmsg_link_ops.passes(later.to_a, &why));
    must_say(why, "cannot be closed");
    pair_close(&later);
}

/* For pair_await(): the endpoint's peer has no segment, and may get none. */
static bool has_none_offered(void *arg)
{
    const tmsg_endpoint_t *endpoint = arg;

    return endpoint->paths.loans->offered_count == 0;
}

static const side_options_t borrows = {
    .worker = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
               .flags = TMSG_WORKER_BORROW}};

/* What was offered keeps its memory until the peer answers. So it counts, and
 * is bounded. */
Test(loan_lies, a_borrower_that_does_not_answer_keeps_little)
{
    enum { MOST = 16 };
    const tmsg_lender_t *lender;
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, &borrows, NULL);
    for (unsigned i = 1; i <= MOST; i++) { /* a does nothing */
        must_be(
            side_finish(&pair.b, lend(pair.to_a, sample_bytes(i, BYTES), 1)),
            TMSG_ERR_TIMED_OUT);
        lender = pair.b.worker->paths.lender;
        tmsg_worker_lock(pair.b.worker);
        tmsg_copies_trim(pair.b.worker->paths.lender, 0); /* as it does later */
        tmsg_worker_unlock(pair.b.worker);
        must_eq(pair.to_a->paths.loans->offered_count, i);
        must_eq(lender->copies.count, i);
        must_eq(lender->copies_bytes, (uint64_t)i * BYTES);
    }
    take(&pair, lend(pair.to_a, sample_bytes(1, BYTES), 0), false);
    pair_await(&pair, has_none_offered, pair.to_a, "that all is forgotten");
    cr_expect_eq(lender->copies.count, 0);
    cr_expect_eq(lender->copies_bytes, 0);
    take(&pair, lend(pair.to_a, sample_bytes(1, BYTES), 0), true);
    pair_close(&pair);
}

/* A send without a timeout does not wait for ever. */
Test(loan_lies, a_borrower_that_never_answers_gets_copies)
{
    tmsg_request_t *request;
    tmsg_offered_t *offered;
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, &borrows, NULL);
    lend_block(&pair);
    offered = &pair.to_a->paths.loans->offered[0];
    offered->state = TMSG_SEGMENT_OFFERED; /* as if a had said nothing */
    offered->offered_ns = tmsg_now_ns();
    request = lend(pair.to_a, map_of_block(), 0);
    must_be(tmsg_request_test(request), TMSG_IN_PROGRESS);
    offered->offered_ns = 0;
    take(&pair, request, false);
    take(&pair, lend(pair.to_a, sample_bytes(1, BYTES), 0), false);
    cr_expect_eq(pair.to_a->paths.loans->offered_count, 1);
    cr_expect_eq(pair.b.worker->paths.lender->copies.count, 0);
    pair_drop(&pair);
}

/* Offers a, which alone is driven, a segment; fd < 0: without a descriptor. */
static void offer_segment(pair_t *pair, uint32_t number, uint64_t bytes, int fd)
{
    uint8_t segment[12];

    tmsg_put_le(segment, number, 4);
    tmsg_put_le(segment + 4, bytes, 8);
    must(fd < 0 ? tmsg_link_ops.put(pair->to_a, TMSG_FRAME_SEGMENT, segment,
                                    sizeof(segment))
                : tmsg_link_ops.put_fd(pair->to_a, TMSG_FRAME_SEGMENT, segment,
                                       sizeof(segment), fd));
}

static bool has_looked(const pair_t *pair, uint32_t number)
{
    const tmsg_loans_t *loans = pair->to_b->paths.loans;

    return loans != NULL && loans->borrowed_last >= number;
}

static void drive_a(const pair_t *pair, uint32_t number)
{
    while (!has_looked(pair, number)) {
        must_eq(pair->to_b->state, TMSG_EP_OPEN);
        tmsg_worker_progress(pair->a.worker);
    }
}

/* To look at a file takes time, and to map it room. */
Test(loan_lies, one_file_is_not_borrowed_again_and_again, .timeout = 60)
{
    tmsg_shareable_t *segments[4];
    tmsg_loans_t *loans;
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, &borrows, NULL);
    for (unsigned i = 0; i < 4; i++) {
        must(tmsg_shareable_create(BYTES, &segments[i]));
    }
    offer_segment(&pair, 1, BYTES, tmsg_shareable_fd(segments[0]));
    offer_segment(&pair, 2, BYTES, tmsg_shareable_fd(segments[0]));
    offer_segment(&pair, 3, BYTES, tmsg_shareable_fd(segments[1]));
    drive_a(&pair, 3);
    loans = pair.to_b->paths.loans;
    must_eq(loans->borrowed_count, 2);
    must_eq(loans->borrowed[1]->number, 3);

    must_true(loans->searched_ns > 0);
    loans->searched_ns = tmsg_now_ns() + 60 * UINT64_C(1000000000);
    offer_segment(&pair, 4, BYTES, tmsg_shareable_fd(segments[2]));
    drive_a(&pair, 4);
    must_eq(loans->borrowed_count, 2);
    loans->searched_ns = 0;
    offer_segment(&pair, 5, BYTES, tmsg_shareable_fd(segments[2]));
    offer_segment(&pair, 6, UINT64_C(100) << 30, -1);
    offer_segment(&pair, 7, BYTES, tmsg_shareable_fd(segments[3]));
    drive_a(&pair, 7);
    must_eq(loans->borrowed_count, 3); /* the seventh came too soon */
    for (unsigned i = 0; i < 4; i++) {
        tmsg_shareable_drop(segments[i]);
    }
    pair_drop(&pair);
}

/* Those who wait for the worker wait for one large file, not for all. */
Test(loan_lies, a_round_has_one_large_segment, .timeout = 60)
{
    enum { FRAMES = 10 };
    uint32_t last = 0, most = 0;
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, &borrows, NULL);
    for (uint32_t i = 1; i <= FRAMES; i++) {
        offer_segment(&pair, i, UINT64_C(1) << 30, -1);
    }
    while (last < FRAMES) {
        uint32_t before = last;

        must_eq(pair.to_b->state, TMSG_EP_OPEN);
        tmsg_worker_progress(pair.a.worker);
        last = pair.to_b->paths.loans == NULL
                   ? 0
                   : pair.to_b->paths.loans->borrowed_last;
        most = last - before > most ? last - before : most;
    }
    must_true(most <= 2);
    pair_drop(&pair);
}

/* A loan that waits for an earlier message goes back when the connection
 * ends. */
Test(loan_lies, what_came_out_of_turn_goes_back_at_the_end)
{
    forged_t forged;
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, &borrows, NULL);
    lend_block(&pair);
    a_loan(&pair, 0, &forged);
    forged_set(&forged, ADD(SAID_SEQUENCE), 1);
    forged_send(&pair, &forged);
    must_true(pair.to_b->channels.zero.rx != NULL);
    must_true(tmsg_shareable_is_lent(block));
    tmsg_endpoint_destroy(pair.to_b);
    pair.to_b = NULL;
    must_be(pair_end_of(&pair, pair.to_a), TMSG_ERR_PEER_LOST);
    must_true(!tmsg_shareable_is_lent(block));
    pair_drop(&pair);
}

/* The kernel closes what lies in a socket with it, and waits. */
Test(loan_lies, a_file_that_was_not_read_keeps_nobody_waiting, .timeout = 60)
{
    int fd = lingering_socket();
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, &borrows, NULL);
    offer_segment(&pair, 1, BYTES, fd);
    close(fd); /* it is on its way */
    tmsg_endpoint_destroy(pair.to_b);
    pair.to_b = NULL;
    (void)pair_end_of(&pair, pair.to_a);
    pair_drop(&pair);
}
