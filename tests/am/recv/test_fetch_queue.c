/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* The order in which messages ask for memory. Here a message has no more than
 * its head and its place in the order. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "am/endpoint/endpoint.h"
#include "am/recv/fetch_queue.h"
#include "am/recv/receive.h"
#include "support/must.h"
#include "support/test_scale.h"

#define CHANNELS 2
#define MOST 4200
#define MUCH ((uint64_t)1 << 30) /* more than is to come at a time */

/* How the bytes of a message come. */
typedef enum {
    PLAIN,     /* with its head, or by rendezvous */
    FRAGMENTS, /* by UCX, which has room for some at a time */
    PULLED,    /* by the bulk stream, when it is asked for */
} way_t;

typedef struct {
    tmsg_worker_t worker;
    tmsg_endpoint_t endpoint;
    tmsg_channel_t channels[CHANNELS];
    tmsg_message_t messages[MOST];
    unsigned count;
} desk_t;

static desk_t *desk;
static int event_fd;

static void open_desk(void)
{
    event_fd = eventfd(0, EFD_NONBLOCK);
    desk = calloc(1, sizeof(*desk));
    must_true(desk != NULL);
    must(tmsg_budget_create(NULL, MUCH, event_fd, NULL, NULL, NULL,
                            &desk->worker.budget));
    desk->worker.queue_depth = 8;
    desk->endpoint.worker = &desk->worker;
    for (unsigned i = 0; i < CHANNELS; i++) {
        desk->channels[i].endpoint = &desk->endpoint;
    }
}

static void close_desk(void)
{
    tmsg_budget_drop(desk->worker.budget);
    free(desk);
    close(event_fd);
}

TestSuite(fetch_queue, .init = open_desk, .fini = close_desk);

/* Makes a message that has come, and asks for memory. */
static tmsg_message_t *come(unsigned channel, uint32_t sequence, way_t way,
                            uint8_t flags)
{
    tmsg_message_t *message = &desk->messages[desk->count++];

    message->endpoint = &desk->endpoint;
    message->channel = &desk->channels[channel];
    message->budget = desk->worker.budget;
    message->head.sequence = sequence;
    message->head.flags = flags | (way == PULLED ? TMSG_HEADER_PULLED : 0);
    message->fragments = way == PLAIN ? NULL : (tmsg_fragments_in_t *)desk;
    message->fragments_bytes = way == PLAIN ? 0 : MUCH;
    must_true(tmsg_message_file(message));
    tmsg_fetch_ask(message);
    tmsg_fetch_close_gap(message->channel);
    return message;
}

static tmsg_message_t *next(bool may_ask)
{
    tmsg_message_t *message = NULL;

    for (int turn = 0; turn < 2 && message == NULL; turn++) {
        tmsg_fetch_look(&desk->worker);
        message = tmsg_fetch_next(&desk->worker, may_ask);
    }
    return message;
}

Test(fetch_queue, nothing_asks_before_all_before_it_have_come)
{
    tmsg_message_t *third = come(0, 2, PLAIN, 0), *second, *first;

    cr_expect_null(next(true));
    cr_expect_not(tmsg_fetch_is_due(&desk->worker));
    second = come(0, 1, PLAIN, 0);
    cr_expect_null(next(true));
    first = come(0, 0, PLAIN, 0);
    cr_expect(tmsg_fetch_is_due(&desk->worker));
    cr_expect(eq(ptr, next(true), first));
    cr_expect(eq(ptr, next(true), second));
    cr_expect(eq(ptr, next(true), third));
    cr_expect_null(next(true));
}

/* A second gap closes before the messages behind the first have come. */
Test(fetch_queue, gaps_close_in_any_order)
{
    tmsg_message_t *fifth = come(0, 4, FRAGMENTS, 0),
                   *third = come(0, 2, FRAGMENTS, 0);
    tmsg_message_t *second = come(0, 1, PLAIN, 0), *fourth, *first;

    cr_expect_null(next(true));
    first = come(0, 0, PLAIN, 0);
    fourth = come(0, 3, FRAGMENTS, 0);
    cr_expect(eq(ptr, next(true), first));
    cr_expect(eq(ptr, next(true), second));
    cr_expect(eq(ptr, next(true), third));
    cr_expect(eq(ptr, next(true), fourth));
    cr_expect(eq(ptr, next(true), fifth));
}

Test(fetch_queue, what_waits_for_none_before_it_leaves_no_gap_when_it_is_gone)
{
    tmsg_channel_t *channel = &desk->channels[0];
    tmsg_message_t *second = come(0, 1, PLAIN, TMSG_HEADER_UNORDERED);
    tmsg_message_t *third, *first;

    cr_expect(eq(ptr, next(true), second));
    must_true(tmsg_channel_may_overtake(channel));
    channel->rx = second->next_in_order;
    tmsg_channel_overtake(channel, 1);
    third = come(0, 2, PLAIN, 0);
    cr_expect_null(next(true));
    first = come(0, 0, PLAIN, 0);
    cr_expect(eq(ptr, next(true), first));
    cr_expect(eq(ptr, next(true), third));
    free(channel->overtook);
}

Test(fetch_queue, a_gap_holds_up_its_channel_alone)
{
    tmsg_message_t *other;

    come(0, 1, PLAIN, 0);
    other = come(1, 0, PULLED, 0);
    cr_expect(eq(ptr, next(true), other));
    cr_expect_null(next(true));
}

/* Messages find room in UCX's window in the order of their heads. A message
 * that closes a gap comes before those that waited for it. */
static void in_order_of_heads(way_t way, uint8_t flags)
{
    tmsg_message_t *second = come(0, 1, FRAGMENTS, 0), *first;
    tmsg_message_t *other = come(1, 0, FRAGMENTS, 0);
    tmsg_message_t *behind = come(1, 1, PULLED, 0);
    tmsg_message_t *unordered = come(1, 2, FRAGMENTS, TMSG_HEADER_UNORDERED);
    tmsg_message_t *plain = come(1, 3, PLAIN, TMSG_HEADER_UNORDERED);

    cr_expect(eq(ptr, next(true), plain));
    cr_expect_null(next(true));
    cr_expect_not(tmsg_fetch_is_due(&desk->worker));
    first = come(0, 0, way, flags);
    cr_expect(eq(ptr, next(true), first));
    cr_expect(eq(ptr, next(true), second));
    cr_expect(eq(ptr, next(true), other));
    cr_expect(eq(ptr, next(true), behind));
    cr_expect(eq(ptr, next(true), unordered));
    cr_expect_null(next(true));
    cr_expect(eq(sz, desk->endpoint.rx.with_fragments[TMSG_FETCH_EARLY], 0));
    cr_expect(eq(sz, desk->endpoint.rx.with_fragments[TMSG_FETCH_GAPPED], 0));
}

Test(fetch_queue, what_has_fragments_waits_for_what_has_fragments)
{
    in_order_of_heads(PULLED, 0);
}

Test(fetch_queue, what_closes_a_gap_comes_in_the_place_of_what_waited)
{
    in_order_of_heads(FRAGMENTS, 0);
}

Test(fetch_queue, so_does_what_is_unordered)
{
    in_order_of_heads(FRAGMENTS, TMSG_HEADER_UNORDERED);
}

/* No more is asked for while the bulk stream still has as many bytes to bring
 * as tmsg_bulk_ahead() says. */
Test(fetch_queue, what_comes_by_the_bulk_stream_waits_for_what_is_to_come_by_it)
{
    tmsg_message_t *third = come(0, 2, PULLED, 0);
    tmsg_message_t *second = come(0, 1, PULLED, 0);
    tmsg_message_t *first = come(0, 0, PULLED, 0);

    cr_expect(eq(ptr, next(true), first));
    /* Of the two one is due, and all of it is to come. */
    tmsg_fetch_look(&desk->worker);
    cr_expect(eq(ptr, tmsg_fetch_next(&desk->worker, true), second));
    cr_expect_null(tmsg_fetch_next(&desk->worker, true));
    cr_expect(eq(ptr, next(true), third));
}

/* A message that found no memory stays the first of those that ask. */
Test(fetch_queue, who_starves_holds_up_none_that_needs_no_memory)
{
    tmsg_message_t *starving = come(0, 0, PLAIN, 0);
    tmsg_message_t *behind = come(1, 0, PLAIN, 0);
    tmsg_message_t *given_up = come(1, 1, PLAIN, 0);

    cr_expect(eq(ptr, next(true), starving));
    tmsg_fetch_leave(given_up);
    tmsg_fetch_go_on(given_up); /* as by another thread, meanwhile */
    tmsg_fetch_put_back(starving);
    cr_expect(eq(ptr, next(false), given_up));
    cr_expect_null(next(false));
    cr_expect(eq(ptr, next(true), starving));
    cr_expect(eq(ptr, next(true), behind));
    cr_expect_null(next(true));
}

/* A look asks the first early message of each channel, however many wait. */
static void expect_short_looks(void)
{
    tmsg_fetch_queue_t *queue = &desk->worker.fetch;

    for (int i = 0; i < 100; i++) {
        uint64_t before = queue->asked;

        tmsg_fetch_look(&desk->worker);
        cr_expect_not(tmsg_fetch_is_due(&desk->worker));
        cr_expect(le(u64, queue->asked - before, 2 * (CHANNELS + 1)));
    }
}

/* Thousands of messages wait for one of another channel that has not come. */
static void make_thousands_wait(way_t odd, uint8_t odd_flags, way_t even)
{
    const unsigned count = is_slow() ? 512 : 4096;

    desk->worker.queue_depth = MOST;
    come(0, 1, FRAGMENTS, 0);
    come(1, 0, FRAGMENTS, 0);
    for (unsigned i = 1; i < count; i++) {
        come(1, i, i % 2 == 0 ? even : odd, i % 2 == 0 ? 0 : odd_flags);
    }
    cr_expect_null(next(true));
    cr_expect(eq(sz, desk->worker.fetch.in[TMSG_FETCH_EARLY].count, count));
    expect_short_looks();
    come(0, 0, PLAIN, 0);
    for (unsigned i = 0; i < count + 2; i++) {
        tmsg_message_t *message = next(true);

        cr_assert(ne(ptr, message, NULL), "%u", i);
        cr_expect(eq(u32, message->head.sequence, i < 2 ? i : i - 2), "%u", i);
    }
    cr_expect_null(next(true));
    cr_expect_null(desk->worker.fetch.early_channels.head);
    cr_expect_null(desk->worker.fetch.early_endpoints.head);
}

Test(fetch_queue, thousands_that_are_behind_are_not_looked_at)
{
    make_thousands_wait(PULLED, 0, PLAIN);
}

Test(fetch_queue, thousands_that_fill_the_window_are_not_looked_at)
{
    make_thousands_wait(FRAGMENTS, TMSG_HEADER_UNORDERED, FRAGMENTS);
}
