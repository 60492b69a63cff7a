/* SPDX-License-Identifier: BSD-3-Clause */
/* A bulk stream with several subflows: that it gets them, that messages come
 * whole by all of them, and how it ends. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "am/endpoint/endpoint.h"
#include "am/path/bulk_tcp.h"
#include "am/worker/worker.h"
#include "support/channels.h"
#include "support/large_messages.h"
#include "support/peers.h"
#include "support/seeded_maps.h"
#include "support/session_pair.h"

#define LARGE ((size_t)3 << 20)
#define HUGE ((size_t)20 << 20)
#define GIANT ((size_t)64 << 20)
#define SUBFLOWS 4

static void progress_both(pair_t *pair)
{
    tmsg_worker_progress(pair->a.worker);
    tmsg_worker_progress(pair->b.worker);
}

static bool both_are_wide(void *arg)
{
    const pair_t *pair = arg;

    return tmsg_bulk_subflows(pair->to_a) == SUBFLOWS &&
           tmsg_bulk_subflows(pair->to_b) == SUBFLOWS;
}

static bool both_stand(void *arg)
{
    const pair_t *pair = arg;

    return tmsg_bulk_sends(pair->to_a) && tmsg_bulk_sends(pair->to_b);
}

static void exchange_huge(pair_t *pair, uint64_t seed)
{
    tmsg_request_t *sent = send_on(pair->to_a, 0, sample_bytes(seed, HUGE), 0);

    large_take(pair, &pair->a, seed, HUGE);
    must(pair_finish(pair, sent));
}

static void open_narrow(pair_t *pair, drive_t drive)
{
    setenv("TENSORMSG_BULK_CONNECTIONS", "4", 1);
    pair_open(pair, LINK_TCP, drive, NULL, NULL);
    pair_await(pair, both_stand, pair, "a bulk stream");
}

/* The further subflows come when much has gone by the first. */
static void open_wide(pair_t *pair, drive_t drive)
{
    open_narrow(pair, drive);
    exchange_huge(pair, 1);
    pair_await(pair, both_are_wide, pair, "further subflows");
}

/* The side that was dialled sends while its peer dials the further ones: behind
 * its answer to a claim come fragments at once. */
static void widen_while_dialled_sends(drive_t drive)
{
    tmsg_request_t *sent;
    pair_t pair;

    open_narrow(&pair, drive);
    sent = send_on(pair.to_b, 0, sample_bytes(1, GIANT), TMSG_SEND_ACKED);
    large_take(&pair, &pair.b, 1, GIANT);
    must(pair_finish(&pair, sent));
    pair_await(&pair, both_are_wide, &pair, "further subflows");
    pair_close(&pair);
}

Test(subflows, are_had_while_the_dialled_side_sends)
{
    widen_while_dialled_sends(DRIVE_POLLING);
}

Test(subflows, are_had_while_the_dialled_side_sends_by_thread)
{
    widen_while_dialled_sends(DRIVE_THREAD);
}

static void expect_all_used(const tmsg_endpoint_t *endpoint, bool written)
{
    unsigned subflow = 0;

    for (const tmsg_bulk_t *bulk = endpoint->paths.bulk; bulk != NULL;
         bulk = bulk->next) {
        cr_expect(ge(u64, written ? bulk->written : bulk->read, 1),
                  "subflow %u", subflow++);
    }
}

static void carry(drive_t drive)
{
    pair_t pair;

    open_wide(&pair, drive);
    exchange_huge(&pair, 2);
    large_exchange(&pair);
    expect_all_used(pair.to_a, true);
    expect_all_used(pair.to_b, false);
    pair_close(&pair);
}

Test(subflows, all_carry_polling) { carry(DRIVE_POLLING); }
Test(subflows, all_carry_by_descriptor) { carry(DRIVE_FD); }
Test(subflows, all_carry_by_thread) { carry(DRIVE_THREAD); }

/* With one processor nobody helps, and the subflows take turns. */
Test(subflows, take_turns_on_one_processor)
{
    cpu_set_t allowed;

    must_true(sched_getaffinity(0, sizeof(allowed), &allowed) == 0);
    for (int cpu = 0, kept = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &allowed) && kept++ > 0) {
            CPU_CLR(cpu, &allowed);
        }
    }
    must_true(sched_setaffinity(0, sizeof(allowed), &allowed) == 0);
    carry(DRIVE_POLLING);
}

/* Returns how often a thread of this process has gone to sleep. */
static long count_sleeps(void)
{
    struct rusage usage;

    must_true(getrusage(RUSAGE_SELF, &usage) == 0);
    return usage.ru_nvcsw;
}

Test(subflows, that_are_idle_wake_nobody)
{
    enum { TURNS = 200 };
    long before;
    pair_t pair;

    open_wide(&pair, DRIVE_POLLING);
    tmsg_bulk_stir(pair.to_a);
    tmsg_bulk_stir(pair.to_b);
    before = count_sleeps();
    for (int i = 0; i < TURNS; i++) {
        progress_both(&pair);
    }
    cr_expect(lt(long, count_sleeps() - before, TURNS / 10));
    pair_close(&pair);
}

Test(subflows, small_messages_pass)
{
    tmsg_request_t *sent;
    pair_t pair;

    open_wide(&pair, DRIVE_POLLING);
    sent = send_on(pair.to_a, 0, sample_bytes(1, HUGE), TMSG_SEND_ACKED);
    large_is_passed(&pair, sent, HUGE, 2);
    pair_close(&pair);
}

/* A message that is canceled on its way harms none behind it. */
Test(subflows, a_canceled_message_harms_no_other)
{
    tmsg_request_t *first, *second;
    pair_t pair;

    open_wide(&pair, DRIVE_POLLING);
    for (uint64_t round = 0; round < 4; round++) {
        uint64_t before = pair.to_a->paths.bulk->written;

        first = send_on(pair.to_a, 0, sample_bytes(7, HUGE), 0);
        second = send_on(pair.to_a, 0, sample_bytes(round, LARGE), 0);
        while (pair.to_a->paths.bulk->written < before + (round << 19)) {
            progress_both(&pair);
        }
        tmsg_request_cancel(first);
        cr_expect(eq(int, pair_finish(&pair, first), TMSG_ERR_CANCELED));
        large_take(&pair, &pair.a, round, LARGE);
        must(pair_finish(&pair, second));
    }
    pair_close(&pair);
}

static bool has_ended(void *request)
{
    tmsg_status_t status = tmsg_request_test(request);

    return status != TMSG_IN_PROGRESS && status != TMSG_CANCEL_PENDING;
}

/* The memory of several fragments vanishes while they are being written, each
 * by a subflow: the message fails alone, by the tensor's name. */
Test(subflows, memory_that_vanishes_ends_its_message)
{
    const int64_t shape[] = {(int64_t)GIANT};
    pair_t pair;

    open_wide(&pair, DRIVE_POLLING);
    for (unsigned turns = 1; turns < 20; turns += 9) {
        unsigned char *data = mmap(NULL, GIANT, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        const tmsg_tensor_t tensor = {
            data, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape,
            NULL};
        uint64_t before = pair.to_a->stats.sent_fragment_bytes;
        tmsg_request_t *sent;
        tmsg_map_t *map;

        must_true(data != MAP_FAILED);
        memset(data, 1, GIANT);
        must(tmsg_map_create(&map));
        must(tmsg_map_add(map, "gone", &tensor, NULL));
        sent = send_on(pair.to_a, 0, map, 0);
        while (pair.to_a->stats.sent_fragment_bytes == before) {
            progress_both(&pair);
        }
        for (unsigned i = 0; i < turns; i++) {
            progress_both(&pair);
        }
        must_true(mprotect(data, GIANT, PROT_NONE) == 0);
        pair_await(&pair, has_ended, sent, "a send's end");
        cr_expect(eq(int, tmsg_request_test(sent), TMSG_ERR_IO));
        cr_expect(ne(ptr, strstr(tmsg_request_error(sent), "'gone'"), NULL),
                  "%s", tmsg_request_error(sent));
        tmsg_request_destroy(sent);
        must_true(munmap(data, GIANT) == 0);
        exchange_huge(&pair, turns);
    }
    pair_close(&pair);
}

static tmsg_bulk_t *last_of(const tmsg_endpoint_t *endpoint)
{
    tmsg_bulk_t *bulk = endpoint->paths.bulk;

    while (bulk->next != NULL) {
        bulk = bulk->next;
    }
    return bulk;
}

static void break_subflow(tmsg_bulk_t *bulk)
{
    shutdown(tmsg_bulk_tcp_of(bulk)->claim.fd, SHUT_RDWR);
}

/* Fragments may have gone with a subflow that breaks. */
static void lose_by_subflow(bool of_sender)
{
    tmsg_request_t *sent;
    pair_t pair;

    open_wide(&pair, DRIVE_POLLING);
    exchange_huge(&pair, 2);
    sent = send_on(pair.to_a, 0, sample_bytes(3, HUGE), TMSG_SEND_ACKED);
    break_subflow(last_of(of_sender ? pair.to_a : pair.to_b));
    cr_expect(eq(int, pair_finish(&pair, sent), TMSG_ERR_PEER_LOST));
    cr_expect(eq(int, pair_end_of(&pair, pair.to_a), TMSG_ERR_PEER_LOST));
    cr_expect(eq(int, pair_end_of(&pair, pair.to_b), TMSG_ERR_PEER_LOST));
    pair_drop(&pair);
}

Test(subflows, one_that_breaks_at_its_sender_ends_the_connection)
{
    lose_by_subflow(true);
}

Test(subflows, one_that_breaks_at_its_receiver_ends_the_connection)
{
    lose_by_subflow(false);
}

/* A session has as many subflows again, and no message is lost or doubled. */
Test(subflows, come_back_with_a_session)
{
    joined_t joined;
    tmsg_request_t *sent[4];

    setenv("TENSORMSG_BULK_CONNECTIONS", "4", 1);
    joined_open(&joined, &(how_t){.link = LINK_TCP});
    for (uint64_t round = 0; round < 2; round++) {
        pair_await(&joined.pair, both_stand, &joined.pair, "a bulk stream");
        exchange_huge(&joined.pair, 10 * round);
        pair_await(&joined.pair, both_are_wide, &joined.pair,
                   "further subflows");
        for (uint64_t i = 0; i < 4; i++) {
            sent[i] =
                send_on(joined.pair.to_a, 0, sample_bytes(10 * round + i, HUGE),
                        TMSG_SEND_ACKED);
        }
        for (unsigned i = 0; i < 90 * (round + 1); i++) {
            progress_both(&joined.pair);
        }
        joined_break(&joined);
        joined_mend(&joined);
        for (uint64_t i = 0; i < 4; i++) {
            large_take(&joined.pair, &joined.pair.a, 10 * round + i, HUGE);
            must(pair_finish(&joined.pair, sent[i]));
        }
    }
    joined_close(&joined);
}

/* By itself tcp:// has one, and an older peer is not asked for more. */
Test(subflows, are_one_where_no_more_are_wanted)
{
    pair_t pair;

    pair_open(&pair, LINK_TCP, DRIVE_POLLING, NULL, NULL);
    pair_await(&pair, both_stand, &pair, "a bulk stream");
    exchange_huge(&pair, 1);
    exchange_huge(&pair, 2);
    cr_expect(eq(int, (int)described(pair.to_a, "bulk_connections"), 1));
    pair_close(&pair);
}

Test(subflows, are_one_with_an_older_peer)
{
    pair_t pair;

    open_narrow(&pair, DRIVE_POLLING);
    pair.to_a->peer_hello.features &= ~TMSG_FEATURE_SUBFLOWS;
    exchange_huge(&pair, 1);
    exchange_huge(&pair, 2);
    cr_expect(eq(int, (int)described(pair.to_b, "bulk_connections"), 1));
    pair_close(&pair);
}

/* Whoever is turned away with a further subflow goes on with those that are
 * there. */
Test(subflows, that_cannot_be_had_cost_no_connection)
{
    pair_t pair;

    open_narrow(&pair, DRIVE_POLLING);
    tmsg_listener_destroy(pair.a.listener);
    pair.a.listener = NULL;
    exchange_huge(&pair, 1);
    exchange_huge(&pair, 2);
    cr_expect(eq(int, (int)described(pair.to_b, "bulk_connections"), 1));
    pair_close(&pair);
}
