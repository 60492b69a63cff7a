/* SPDX-License-Identifier: BSD-3-Clause */
/* When the memory of a loan is free: after a cancel, a break, the end of a
 * connection, the death of a process; and what views outlive. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "am/endpoint/control.h"
#include "am/path/fastboxes.h"
#include "core/bytes.h"
#include "support/lent_maps.h"
#include "support/restarted.h"
#include "support/session_pair.h"
#include "test_loan_tools.h"

enum { MIB = 1 << 20 };

/* For pair_await(): the endpoint has no segment of its peer. */
static bool has_none_borrowed(void *arg)
{
    return tmsg_loans_borrowed_bytes(arg) == 0;
}

/* A canceled message that the peer has not taken is given back. */
Test(loan_ends, a_canceled_message_is_given_back)
{
    lent_t lent;

    lent_begin(&lent, MIB, TMSG_SEND_ACKED);
    lent_drive(&lent.pair, 1000);
    cr_expect_eq(lent.releases, 0);
    (void)tmsg_request_cancel(lent.request);
    must_be(pair_finish(&lent.pair, lent.request), TMSG_ERR_CANCELED);
    lent_end(&lent);
}

/* The connection is gone, the peer lives, and reads: nobody says that the
 * memory is free, until the worker ends. */
Test(loan_ends, views_outlive_the_connection)
{
    uint8_t *memory = lent_block(MIB);
    unsigned releases = 0;
    tmsg_message_t *message;
    tmsg_request_t *request;
    pair_t pair;

    lent_open(&pair, LINK_UNIX);
    request = lent_send(pair.to_a, lent_map(memory, MIB), 0, &releases);
    message = pair_take(&pair, &pair.a);
    must(pair_finish(&pair, request));
    tmsg_endpoint_destroy(pair.to_b);
    pair.to_b = NULL;
    (void)pair_end_of(&pair, pair.to_a);
    lent_drive(&pair, 1000);
    cr_expect_eq(releases, 0);
    lent_check(message, "x", 3, MIB);
    tmsg_message_destroy(message);
    lent_drive(&pair, 1000);
    cr_expect_eq(releases, 0);
    pair_drop(&pair);
    cr_expect_eq(releases, 1);
    must(tmsg_shareable_free(memory));
}

/* Borrows what comes, says so, and keeps it. */
static void keep(pipes_t *pipes, void *arg)
{
    char line[16];
    side_t side;

    (void)arg;
    side_open(&side, &lent_borrower);
    side_listen_link(&side, LINK_UNIX);
    line_put(pipes->out, tmsg_listener_url(side.listener));
    lent_check(side_take(&side), "x", 3, MIB);
    lent_check(side_take(&side), "x", 4, MIB);
    line_put(pipes->out, "borrows");
    line_get(pipes->in, line, sizeof(line)); /* for ever */
}

Test(loan_ends, of_a_borrower_that_is_killed_come_back)
{
    unsigned releases = 0, copied = 0;
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *request;
    char url[256], line[16];
    uint8_t *memory, *other = malloc(MIB);
    child_t child;
    side_t side;

    child_start(&child, keep, NULL);
    line_get(child.in, url, sizeof(url));
    memory = lent_block(MIB);
    memset(other, 4, MIB);
    side_open(&side, NULL);
    endpoint = side_connect(&side, url);
    request = lent_send(endpoint, lent_map(memory, MIB), 0, &releases);
    must(side_finish(&side, request));
    request = lent_send(endpoint, lent_map(other, MIB), 0, &copied);
    must(side_finish(&side, request));
    child_await(&side, &child);
    line_get(child.in, line, sizeof(line));
    cr_expect(tmsg_shareable_is_lent(memory));
    cr_expect_eq(releases, 0);
    tmsg_endpoint_destroy(endpoint);
    cr_expect_eq(side.worker->paths.lender->copies.count, 1);
    child_kill(&child);
    side_await(&side, lent_is_back, &releases, "a release");
    cr_expect(!tmsg_shareable_is_lent(memory));
    cr_expect_eq(side.worker->paths.lender->copies.count, 0);
    side_close(&side);
    must(tmsg_shareable_free(memory));
    free(other);
}

/* Lends a block and a copy. */
static void give(pipes_t *pipes, void *arg)
{
    uint8_t *copied = malloc(MIB);
    tmsg_endpoint_t *endpoint;
    char url[256], line[16];
    unsigned releases = 0;
    side_t side;

    (void)arg;
    memset(copied, 4, MIB);
    line_get(pipes->in, url, sizeof(url));
    side_open(&side, NULL);
    endpoint = side_connect(&side, url);
    must(side_finish(&side, lent_send(endpoint, lent_map(lent_block(MIB), MIB),
                                      0, &releases)));
    must(side_finish(&side,
                     lent_send(endpoint, lent_map(copied, MIB), 0, &releases)));
    line_get(pipes->in, line, sizeof(line)); /* for ever */
}

Test(loan_ends, views_outlive_their_owner)
{
    tmsg_message_t *messages[2];
    child_t child;
    side_t side;

    child_start(&child, give, NULL);
    side_open(&side, &lent_borrower);
    side_listen_link(&side, LINK_UNIX);
    line_put(child.out, tmsg_listener_url(side.listener));
    messages[0] = side_take(&side);
    messages[1] = side_take(&side);
    child_kill(&child);
    for (int i = 0; i < 2; i++) {
        cr_expect(tmsg_message_is_lent(messages[i]));
        lent_check(messages[i], "x", 3 + i, MIB);
    }
    side_close(&side);
    for (int i = 0; i < 2; i++) {
        lent_check(messages[i], "x", 3 + i, MIB);
        tmsg_message_destroy(messages[i]);
    }
}

/* A freed block is told, and its number is gone at the peer. */
Test(loan_ends, a_freed_block_is_gone_at_the_peer)
{
    unsigned releases = 0;
    pair_t pair;

    lent_open(&pair, LINK_UNIX);
    for (int i = 0; i < 3; i++) {
        uint8_t *memory = lent_block(MIB);
        tmsg_request_t *request =
            lent_send(pair.to_a, lent_map(memory, MIB), 0, &releases);
        tmsg_message_t *message = pair_take(&pair, &pair.a);

        must(pair_finish(&pair, request));
        must(tmsg_shareable_free(memory)); /* the view stays */
        lent_check(message, "x", 3, MIB);
        tmsg_message_destroy(message);
        pair_await(&pair, has_none_out, pair.to_a, "what was lent");
        cr_expect_eq(tmsg_loans_lent_bytes(pair.to_a), 0);
    }
    lent_drive(&pair, 1000);
    cr_expect_eq(tmsg_loans_borrowed_bytes(pair.to_b), 0);
    cr_expect_eq(releases, 3);
    pair_close(&pair);
}

/* It is told as soon as the peer reads again. */
Test(loan_ends, a_freed_block_is_told_later)
{
    uint8_t *memory = lent_block(MIB);
    unsigned releases = 0;
    tmsg_request_t *request;
    uint64_t most;
    pair_t pair;

    lent_open(&pair, LINK_UNIX);
    request = lent_send(pair.to_a, lent_map(memory, MIB), 0, &releases);
    tmsg_message_destroy(pair_take(&pair, &pair.a));
    must(pair_finish(&pair, request));
    pair_await(&pair, has_none_out, pair.to_a, "what was lent");
    must(tmsg_shareable_free(memory));
    tmsg_worker_lock(pair.b.worker);
    most = pair.to_a->link.stream.max_bytes;
    pair.to_a->link.stream.max_bytes = 0; /* as if much waited there */
    tmsg_loans_forget_freed(pair.to_a, NULL);
    cr_expect_eq(pair.to_a->paths.loans->offered_count, 1);
    pair.to_a->link.stream.max_bytes = most;
    tmsg_worker_unlock(pair.b.worker);
    pair_await(&pair, has_none_borrowed, pair.to_b, "that it is gone");
    cr_expect_eq(pair.to_a->paths.loans->offered_count, 0);
    pair_close(&pair);
}

/* Opens a session over which descriptors pass. */
static void open_session(joined_t *joined)
{
    const how_t how = {.link = LINK_UNIX, .a = lent_borrower, .direct = true};

    joined_open(joined, &how);
}

/* Breaks the connection of a session, which soon has another one. */
static void break_session(pair_t *pair)
{
    must_eq(shutdown(pair->to_a->link.fd, SHUT_RDWR), 0);
    pair_await(pair, joined_is_away, pair->to_a, "a break");
}

/* Takes the next message, which is to be a loan of a MiB. */
static tmsg_message_t *take_lent(pair_t *pair, int value)
{
    tmsg_message_t *message = pair_take(pair, &pair->a);

    cr_expect(tmsg_message_is_lent(message));
    lent_check(message, "x", value, MIB);
    return message;
}

/* What is sent while a session is broken is lent by its next connection. What
 * was lent before stays. */
Test(loan_ends, a_session_lends_again)
{
    uint8_t *memory = lent_block(MIB), *copied = malloc(MIB);
    unsigned releases = 0, others = 0;
    tmsg_message_t *messages[3];
    tmsg_request_t *requests[3];
    joined_t joined;
    pair_t *pair = &joined.pair;

    memset(copied, 4, MIB);
    open_session(&joined);
    requests[0] = lent_send(pair->to_a, lent_map(memory, MIB), TMSG_SEND_ACKED,
                            &releases);
    messages[0] = take_lent(pair, 3);
    must(pair_finish(pair, requests[0]));
    break_session(pair);
    requests[1] = lent_send(pair->to_a, lent_map(memory, MIB), TMSG_SEND_ACKED,
                            &releases);
    requests[2] =
        lent_send(pair->to_a, lent_map(copied, MIB), TMSG_SEND_ACKED, &others);
    for (int i = 1; i < 3; i++) {
        messages[i] = take_lent(pair, 2 + i);
        must(pair_finish(pair, requests[i]));
    }
    must_eq(lent_count(pair), 3);
    lent_check(messages[0], "x", 3, MIB);
    for (int i = 0; i < 3; i++) {
        tmsg_message_destroy(messages[i]);
    }
    pair_await(pair, lent_is_back, &others, "a release of a copied map");
    pair_await(pair, lent_is_back, &releases, "a release");
    /* Nobody says that the first came back, whose connection is over. */
    joined_close(&joined);
    cr_expect_eq(releases, 2);
    free(copied);
    must(tmsg_shareable_free(memory));
}

/* So is what was posted before, and has not come. Each comes once. */
Test(loan_ends, a_session_lends_again_what_was_posted)
{
    enum { MESSAGES = 240 }; /* more than the way holds */
    uint8_t *memory = lent_block(MIB);
    unsigned releases = 0;
    tmsg_request_t *requests[MESSAGES];
    joined_t joined;
    pair_t *pair = &joined.pair;

    open_session(&joined);
    requests[0] = lent_send(pair->to_a, lent_map(memory, MIB), TMSG_SEND_ACKED,
                            &releases);
    tmsg_message_destroy(take_lent(pair, 3));
    must(pair_finish(pair, requests[0]));
    for (int i = 0; i < MESSAGES; i++) {
        requests[i] = lent_send(pair->to_a, lent_map(memory, MIB),
                                TMSG_SEND_ACKED, &releases);
    }
    while (lent_count(pair) < 1 + MESSAGES) { /* a reads nothing */
        (void)tmsg_worker_progress(pair->b.worker);
    }
    must_eq(shutdown(pair->to_a->link.fd, SHUT_RDWR), 0);
    while (!joined_is_away(pair->to_a)) {
        (void)tmsg_worker_progress(pair->b.worker);
    }
    for (int i = 0; i < MESSAGES; i++) {
        tmsg_message_t *message = pair_take(pair, &pair->a);

        must_eq(tmsg_message_is_lent(message), 1);
        must_eq(lent_data(message, "x")[MIB - 1], 3);
        must(pair_finish(pair, requests[i]));
        tmsg_message_destroy(message);
    }
    cr_expect(lent_count(pair) > 1 + MESSAGES);
    joined_drop(&joined);
    cr_expect_eq(releases, 1 + MESSAGES);
    must(tmsg_shareable_free(memory));
}

/* What was given back before the connection was ended at once counts. */
Test(loan_ends, what_was_given_back_before_the_end_counts)
{
    lent_t lent;

    lent_begin(&lent, MIB, 0);
    tmsg_message_destroy(pair_take(&lent.pair, &lent.pair.a));
    tmsg_endpoint_destroy(lent.pair.to_b);
    lent.pair.to_b = NULL;
    must(pair_finish(&lent.pair, lent.request));
    lent_end(&lent);
}

/* For pair_await(): a has a message that was not taken yet. */
static bool has_unread(void *arg)
{
    const tmsg_endpoint_t *endpoint = arg;

    return endpoint->ready.count > 0;
}

/* Nobody will read it any more. */
Test(loan_ends, what_was_not_read_before_the_end_goes_back)
{
    lent_t lent;

    lent_begin(&lent, MIB, 0);
    pair_await(&lent.pair, has_unread, lent.pair.to_b, "a message");
    tmsg_endpoint_destroy(lent.pair.to_b);
    lent.pair.to_b = NULL;
    must(pair_finish(&lent.pair, lent.request));
    lent_end(&lent);
}

/* What the borrower said lies in the owner's socket. */
Test(loan_ends, what_has_come_back_before_the_owners_end_counts)
{
    lent_t lent;

    lent_begin(&lent, MIB, TMSG_SEND_ACKED);
    tmsg_message_destroy(pair_take(&lent.pair, &lent.pair.a));
    for (int i = 0; i < 1000; i++) {
        tmsg_worker_progress(lent.pair.a.worker);
    }
    must_eq(lent.releases, 0);
    tmsg_endpoint_destroy(lent.pair.to_a);
    lent.pair.to_a = NULL;
    tmsg_request_destroy(lent.request);
    lent_end(&lent);
}

/* For pair_await(): the endpoint has a fast box for what it sends. */
static bool has_fastbox(void *arg)
{
    const tmsg_endpoint_t *endpoint = arg;

    return endpoint->fastboxes.out != NULL;
}

/* Sends messages until a has a fast box for what it sends. */
static void make_fastbox(pair_t *pair)
{
    enum { FEW = 16 };
    uint8_t byte = 1;

    for (int i = 0; i < FEW; i++) {
        tmsg_map_t *map = lent_map(&byte, 1);
        tmsg_request_t *request;

        must(tmsg_endpoint_send(pair->to_b, map, NULL, &request));
        tmsg_map_destroy(map);
        must(pair_finish(pair, request));
        tmsg_message_destroy(pair_take(pair, &pair->b));
    }
    pair_await(pair, has_fastbox, pair->to_b, "a fast box");
}

/* A side that polls gives back with its next step, and the owner hears of it
 * with its own: neither has to look at the socket. */
Test(loan_ends, come_back_by_the_fast_box)
{
    uint8_t *memory = lent_block(MIB);
    unsigned releases = 0;
    pair_t pair;

    lent_open(&pair, LINK_UNIX);
    make_fastbox(&pair);
    for (unsigned i = 0; i < 100; i++) {
        uint64_t by_fastbox = pair.to_b->stats.sent_by_fastbox;
        tmsg_request_t *request =
            lent_send(pair.to_a, lent_map(memory, MIB), 0, &releases);
        tmsg_message_t *message = pair_take(&pair, &pair.a);

        must(pair_finish(&pair, request));
        cr_expect(tmsg_shareable_is_lent(memory));
        tmsg_message_destroy(message);
        tmsg_worker_progress(pair.a.worker);
        tmsg_worker_progress(pair.b.worker);
        must_eq(releases, i + 1);
        cr_expect(!tmsg_shareable_is_lent(memory));
        cr_expect_eq(pair.to_b->stats.sent_by_fastbox, by_fastbox);
    }
    cr_expect_eq(pair.a.worker->seldom & TMSG_SELDOM_LOANS, 0);
    pair_close(&pair);
    must(tmsg_shareable_free(memory));
}

/* The owner that sends again looks there first, and so mostly needs one copy:
 * what goes by UCX before, such as credits, may not be there yet. */
Test(loan_ends, copies_in_the_fast_box_are_used_again)
{
    uint8_t *memory = calloc(1, MIB);
    const uint8_t *last = NULL;
    unsigned again = 0;
    pair_t pair;

    lent_open(&pair, LINK_UNIX);
    make_fastbox(&pair);
    for (int i = 0; i < 40; i++) {
        tmsg_message_t *message = lent_pass(&pair, lent_map(memory, MIB), 0);

        cr_expect(tmsg_message_is_lent(message));
        again += lent_data(message, "x") == last;
        last = lent_data(message, "x");
        tmsg_message_destroy(message);
        tmsg_worker_progress(pair.a.worker);
    }
    cr_expect(again > 20, "%u times", again);
    pair_close(&pair);
    free(memory);
}

/* What the borrower said lies in the owner's fast box. */
Test(loan_ends, what_lies_in_the_fast_box_at_the_owners_end_counts)
{
    uint8_t *memory = lent_block(MIB);
    unsigned releases = 0;
    tmsg_request_t *request;
    pair_t pair;

    lent_open(&pair, LINK_UNIX);
    make_fastbox(&pair);
    request =
        lent_send(pair.to_a, lent_map(memory, MIB), TMSG_SEND_ACKED, &releases);
    tmsg_message_destroy(pair_take(&pair, &pair.a));
    tmsg_worker_progress(pair.a.worker);
    must_eq(releases, 0);
    tmsg_endpoint_destroy(pair.to_a);
    pair.to_a = NULL;
    tmsg_request_destroy(request);
    tmsg_worker_progress(pair.b.worker);
    cr_expect_eq(releases, 1);
    cr_expect(!tmsg_shareable_is_lent(memory));
    pair_drop(&pair);
    must(tmsg_shareable_free(memory));
}

/* Says LOAN_BACK of one message by a's fast box. */
static void put_back(pair_t *pair, tmsg_preamble_t head, uint64_t token)
{
    uint8_t header[TMSG_PREAMBLE_BYTES + 8];
    tmsg_fastbox_t *fastbox = pair->to_b->fastboxes.out;

    head.kind = TMSG_KIND_LOAN_BACK;
    head.endpoint_id = pair->to_b->peer_id;
    tmsg_preamble_encode(&head, header);
    tmsg_put_le(header + TMSG_PREAMBLE_BYTES, token, 8);
    must_true(tmsg_fastbox_has_room(fastbox));
    (void)tmsg_fastbox_begin(fastbox, sizeof(header), 0);
    tmsg_fastbox_write_header(fastbox, header);
    tmsg_fastboxes_put(pair->to_b, 0);
}

/* Says LOAN_BACK of a message that is not lent. */
static void give_none_back(pair_t *pair, bool by_fastbox)
{
    const tmsg_preamble_t head = {.endpoint_id = pair->to_b->peer_id,
                                  .body_bytes = 8};
    uint8_t token[8] = {0};

    if (by_fastbox) {
        put_back(pair, head, 0);
    } else {
        must(tmsg_control_post(pair->to_b, TMSG_KIND_LOAN_BACK, &head, token,
                               sizeof(token), NULL, 0));
    }
}

/* By UCX others can speak under the name of the peer: what comes so is not
 * heard. */
Test(loan_ends, of_a_message_that_is_not_lent)
{
    pair_t pair;

    lent_open(&pair, LINK_UNIX);
    make_fastbox(&pair);
    give_none_back(&pair, false);
    lent_drive(&pair, 1000);
    must_be(tmsg_endpoint_status(pair.to_a), TMSG_OK);
    give_none_back(&pair, true);
    must_be(pair_end_of(&pair, pair.to_a), TMSG_ERR_MALFORMED);
    must_say(tmsg_endpoint_error(pair.to_a), "is not lent");
    pair_drop(&pair);
}

/* LOAN_BACK of the one message that is lent, with a body that is said to lie
 * where it does not. The owner that sends again looks at it first, and does not
 * read past the header. Then it comes the usual way. */
Test(loan_ends, of_a_body_that_does_not_lie_in_the_header)
{
    static const tmsg_preamble_t heads[] = {
        {.flags = TMSG_HEADER_SPILLED, .body_bytes = 8, .payload_bytes = 64},
        {.flags = TMSG_HEADER_SPILLED,
         .body_bytes = UINT32_MAX - 7,
         .payload_bytes = UINT64_MAX},
        {.flags = TMSG_HEADER_READ, .body_bytes = 8, .payload_bytes = 64},
        {.channel = 1, .body_bytes = 8},
    };
    enum { HEADS = sizeof(heads) / sizeof(heads[0]) };
    uint8_t *memory = lent_block(MIB);
    unsigned releases = 0;
    tmsg_message_t *message;
    tmsg_request_t *request;
    tmsg_loans_t *loans;
    uint32_t token;
    pair_t pair;

    lent_open(&pair, LINK_UNIX);
    make_fastbox(&pair);
    request = lent_send(pair.to_a, lent_map(memory, MIB), 0, &releases);
    message = pair_take(&pair, &pair.a);
    must(pair_finish(&pair, request));
    loans = pair.to_a->paths.loans;
    must_eq(loans->out.count, 1);
    token = TMSG_CONTAINER_OF(loans->out.head, tmsg_loan_out_t, node)->token;
    for (int i = 0; i < HEADS; i++) {
        lent_drive(&pair, 1000);
        must_be(tmsg_endpoint_status(pair.to_a), TMSG_OK);
        put_back(&pair, heads[i], token);
        tmsg_loans_hear(pair.to_a);
        cr_expect_eq(loans->out.count, 1, "row %d", i);
    }
    must_be(pair_end_of(&pair, pair.to_a), TMSG_ERR_MALFORMED);
    must_say(tmsg_endpoint_error(pair.to_a), "that has no channel");
    cr_expect_eq(releases, 0);
    tmsg_message_destroy(message);
    pair_drop(&pair);
    cr_expect_eq(releases, 1);
    must(tmsg_shareable_free(memory));
}

/* The same where the owner ends the connection, and looks for what lies there.
 */
Test(loan_ends, of_such_a_body_at_the_owners_end)
{
    const tmsg_preamble_t head = {.flags = TMSG_HEADER_SPILLED,
                                  .body_bytes = UINT32_MAX - 7,
                                  .payload_bytes = UINT64_MAX};
    uint8_t *memory = lent_block(MIB);
    unsigned releases = 0;
    tmsg_message_t *message;
    tmsg_request_t *request;
    uint32_t token;
    pair_t pair;

    lent_open(&pair, LINK_UNIX);
    make_fastbox(&pair);
    request = lent_send(pair.to_a, lent_map(memory, MIB), 0, &releases);
    message = pair_take(&pair, &pair.a);
    must(pair_finish(&pair, request));
    lent_drive(&pair, 1000);
    token = TMSG_CONTAINER_OF(pair.to_a->paths.loans->out.head, tmsg_loan_out_t,
                              node)
                ->token;
    put_back(&pair, head, token);
    tmsg_endpoint_destroy(pair.to_a);
    pair.to_a = NULL;
    tmsg_worker_progress(pair.b.worker);
    cr_expect_eq(releases, 0);
    tmsg_message_destroy(message);
    pair_drop(&pair);
    cr_expect_eq(releases, 1);
    must(tmsg_shareable_free(memory));
}

/* For restarted_await(): the client has a message. */
static bool is_readable(void *arg)
{
    const restarted_t *restarted = arg;

    return tmsg_endpoint_readable(restarted->endpoint) == 1;
}

/* The peer was restarted, and has lent since then. A handle that is given back
 * gives back what its application has not read. */
Test(loan_ends, what_was_not_read_of_a_new_session_goes_back)
{
    restarted_t restarted = {.link = LINK_UNIX,
                             .client_options = lent_borrower};
    uint8_t *memory = lent_block(MIB);
    unsigned releases = 0;
    tmsg_request_t *request;

    restarted_open(&restarted, DRIVE_POLLING);
    restarted_stop(&restarted);
    restarted_await_loss(&restarted);
    restarted_start(&restarted);
    restarted_await_new(&restarted);
    request = lent_send(restarted.server.accepted, lent_map(memory, MIB), 0,
                        &releases);
    restarted_await(&restarted, is_readable, &restarted, "a message");
    must(restarted_finish(&restarted, request));
    must_true(tmsg_shareable_is_lent(memory));
    tmsg_endpoint_destroy(restarted.endpoint);
    restarted.endpoint = NULL;
    restarted_await(&restarted, lent_is_back, &releases, "a release");
    cr_expect(!tmsg_shareable_is_lent(memory));
    restarted_close(&restarted);
    must(tmsg_shareable_free(memory));
}

/* A process that connects anew and keeps all it gets takes one record. */
Test(loan_ends, a_process_that_keeps_all_has_one_record)
{
    enum { TIMES = 3 };
    uint8_t *memory = lent_block(MIB);
    tmsg_message_t *messages[TIMES + 1];
    tmsg_endpoint_t *to[TIMES + 1];
    side_t owner, sides[TIMES + 1];
    tmsg_orphans_t *orphans = NULL;
    unsigned releases = 0;

    side_open(&owner, NULL);
    side_listen_link(&owner, LINK_UNIX);
    for (int i = 0; i <= TIMES; i++) {
        pair_t both = {.sides = {&owner, &sides[i]}};
        tmsg_request_t *request;

        lent_join(&sides[i], &owner, NULL, 0, &to[i]);
        if (i == TIMES) { /* as if it kept more than may be */
            orphans->loans.count = TMSG_LOANS_MOST;
        }
        request = lent_send(to[i], lent_map(memory, MIB), 0, &releases);
        messages[i] = pair_take(&both, &sides[i]);
        must(pair_finish(&both, request));
        cr_expect_eq(tmsg_message_is_lent(messages[i]), i < TIMES);
        if (i == TIMES) {
            lent_must_say(to[i], "was not given back");
            orphans->loans.count = TIMES;
        }
        tmsg_endpoint_destroy(to[i]);
        must_eq(owner.worker->paths.lender->orphans.count, 1);
        orphans = TMSG_CONTAINER_OF(owner.worker->paths.lender->orphans.head,
                                    tmsg_orphans_t, node);
        cr_expect_eq(orphans->loans.count, i < TIMES ? i + 1 : TIMES);
        cr_expect(orphans->process >= 0);
    }
    cr_expect_eq(releases, 1);
    for (int i = 0; i <= TIMES; i++) {
        lent_check(messages[i], "x", 3, MIB);
        tmsg_message_destroy(messages[i]);
        side_close(&sides[i]);
    }
    side_close(&owner);
    cr_expect_eq(releases, TIMES + 1);
    must(tmsg_shareable_free(memory));
}

/* For pair_await(): the kernel tells of the end of the peer's process. */
static bool is_watched(void *arg)
{
    const tmsg_endpoint_t *endpoint = arg;

    return endpoint->paths.loans->process >= 0;
}

/* A lack of descriptors does not last. */
Test(loan_ends, the_peers_process_is_watched_later)
{
    struct rlimit few, usual;
    tmsg_message_t *message;
    tmsg_loans_t *loans;
    lent_t lent;

    lent_begin(&lent, MIB, 0);
    tmsg_message_destroy(pair_take(&lent.pair, &lent.pair.a));
    must(pair_finish(&lent.pair, lent.request));
    pair_await(&lent.pair, lent_is_back, &lent.releases, "a release");
    lent.releases = 0;
    loans = lent.pair.to_a->paths.loans;
    must_true(loans->watched && loans->process >= 0);
    close(loans->process);
    loans->process = -1;
    loans->watched = false;
    getrlimit(RLIMIT_NOFILE, &usual);
    few = usual;
    few.rlim_cur = 3;
    must_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    tmsg_request_destroy(lent_send(lent.pair.to_a, lent_map(lent.memory, MIB),
                                   0, &lent.releases));
    cr_expect_eq(loans->out.count, 1);
    cr_expect(!loans->watched);
    must_eq(setrlimit(RLIMIT_NOFILE, &usual), 0);
    pair_await(&lent.pair, is_watched, lent.pair.to_a, "a watch");
    message = pair_take(&lent.pair, &lent.pair.a);
    tmsg_message_destroy(message);
    lent_end(&lent);
}
