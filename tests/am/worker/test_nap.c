/* SPDX-License-Identifier: BSD-3-Clause */
/* A wait that sleeps on its fast boxes for a moment: who ends that, and that
 * its sides may move from core to core meanwhile. That no message is lost by it
 * is test_fastbox's, too, whose workers nap. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include "am/endpoint/endpoint.h"
#include "am/net/loop.h"
#include "am/path/fastboxes.h"
#include "am/worker/engine.h"
#include "am/worker/nap.h"
#include "am/worker/worker.h"
#include "support/channels.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

#define FASTBOXES 3
#define LONG_NS 20000000000u /* a nap that only a call ends in this test */
#define SMALL 100
#define WAKES_AT 16 /* of a fast box: the sender wakes who naps */

/* The fast box by itself, of whose receiver a thread naps. */
typedef struct {
    tmsg_fastbox_t *from[FASTBOXES], *to[FASTBOXES];
    unsigned count;
    uint64_t ns;
    tmsg_status_t status;
} nap_t;

static void open_fastboxes(nap_t *nap, unsigned count)
{
    *nap = (nap_t){.count = count, .ns = LONG_NS};
    for (unsigned i = 0; i < count; i++) {
        must(tmsg_fastbox_create(&nap->from[i]));
        must(tmsg_fastbox_open(
            &(tmsg_segment_offer_t){
                .pid = getpid(),
                .fd = tmsg_fastbox_segment(nap->from[i])->fd,
                .mark = tmsg_fastbox_segment(nap->from[i])->memory},
            &nap->to[i]));
    }
}

static void close_fastboxes(nap_t *nap)
{
    for (unsigned i = 0; i < nap->count; i++) {
        tmsg_fastbox_free(nap->from[i]);
        tmsg_fastbox_free(nap->to[i]);
    }
}

static void *take_nap(void *arg)
{
    nap_t *nap = arg;
    tmsg_nap_t words = {.count = 0};

    for (unsigned i = 0; i < nap->count; i++) {
        tmsg_fastbox_nap_word(nap->to[i], &words);
    }
    nap->status = tmsg_fastbox_nap(&words, tmsg_now_ns() + nap->ns);
    for (unsigned i = 0; i < nap->count; i++) {
        tmsg_fastbox_nap_end(nap->to[i]);
    }
    return NULL;
}

static void put(tmsg_fastbox_t *fastbox)
{
    static const uint8_t header[32];

    (void)tmsg_fastbox_begin(fastbox, sizeof(header), 0);
    tmsg_fastbox_write_header(fastbox, header);
    must_true(!tmsg_fastbox_put(fastbox, 0, 0));
}

/* A thread naps on so many fast boxes until the last one's sender, say, ends
 * that; which comes before it falls asleep in some rounds. */
static void wake(unsigned count, void (*end)(tmsg_fastbox_t *fastbox),
                 bool receiver)
{
    nap_t nap;
    pthread_t thread;

    open_fastboxes(&nap, count);
    for (int round = 0; round < 20; round++) {
        for (unsigned i = 0; i < count; i++) {
            tmsg_fastbox_nap_begin(nap.to[i]);
        }
        must_eq(pthread_create(&thread, NULL, take_nap, &nap), 0);
        if (round % 2 == 0) {
            usleep(1000);
        }
        end(receiver ? nap.to[count - 1] : nap.from[count - 1]);
        must_eq(pthread_join(thread, NULL), 0);
        must_eq(nap.status, TMSG_OK);
    }
    close_fastboxes(&nap);
}

Test(nap, what_is_put_ends_it) { wake(1, put, false); }
Test(nap, what_goes_elsewhere_ends_it) { wake(1, tmsg_fastbox_call, false); }
Test(nap, another_thread_ends_it) { wake(1, tmsg_fastbox_rouse, true); }
Test(nap, any_of_several_fastboxes_ends_it) { wake(FASTBOXES, put, false); }

Test(nap, ends_by_itself)
{
    nap_t nap;

    for (unsigned count = 1; count <= FASTBOXES; count += FASTBOXES - 1) {
        open_fastboxes(&nap, count);
        nap.ns = 1000000;
        for (unsigned i = 0; i < count; i++) {
            tmsg_fastbox_nap_begin(nap.to[i]);
        }
        take_nap(&nap);
        cr_expect(eq(int, nap.status, TMSG_ERR_TIMED_OUT));
        close_fastboxes(&nap);
    }
}

Test(nap, nobody_is_woken_who_is_awake)
{
    nap_t nap;

    open_fastboxes(&nap, 1);
    put(nap.from[0]);
    tmsg_fastbox_nap_begin(nap.to[0]);
    tmsg_fastbox_nap_end(nap.to[0]);
    tmsg_fastbox_call(nap.from[0]);
    take_nap(&nap); /* was not announced */
    cr_expect(eq(int, nap.status, TMSG_OK));
    close_fastboxes(&nap);
}

Test(nap, a_sender_says_whether_it_wakes_and_where_it_runs)
{
    nap_t nap;
    uint32_t *wakes;

    open_fastboxes(&nap, 1);
    cr_expect(tmsg_fastbox_may_nap(nap.to[0]));
    cr_expect(eq(int, tmsg_fastbox_core(nap.to[0]), -1));
    put(nap.from[0]);
    cr_expect(ge(int, tmsg_fastbox_core(nap.to[0]), 0));
    wakes = (uint32_t *)(void *)(tmsg_fastbox_segment(nap.from[0])->memory +
                                 WAKES_AT);
    *wakes = 0;
    cr_expect(not(tmsg_fastbox_may_nap(nap.to[0])));
    close_fastboxes(&nap);
}

/* Two workers in lock step, each in a thread of its own. */
typedef struct {
    pair_t *pair;
    unsigned messages;
} echo_t;

static void give(tmsg_endpoint_t *endpoint, uint64_t seed)
{
    const sample_t sample = sample_plain(seed, SMALL);

    tmsg_request_destroy(send_on(endpoint, 0, sample_make(&sample), 0));
}

static void arrive(const side_t *side, uint64_t seed)
{
    const sample_t sample = sample_plain(seed, SMALL);
    tmsg_message_t *message;

    must(tmsg_worker_recv(side->worker, PEERS_BOUND_MS, &message));
    sample_check(&sample, tmsg_message_map(message));
    tmsg_message_destroy(message);
}

static void *echo(void *arg)
{
    const echo_t *echo = arg;

    for (unsigned i = 0; i < echo->messages; i++) {
        arrive(&echo->pair->a, i);
        give(echo->pair->to_b, i);
    }
    return NULL;
}

/* Fast boxes both ways, and nothing under way. */
static void open_warm(pair_t *pair)
{
    const side_options_t quiet = {.quiet = true};

    pair_open(pair, LINK_SHM, DRIVE_POLLING, &quiet, &quiet);
    for (uint64_t i = 0; pair->to_a->stats.sent_by_fastbox < 2 ||
                         pair->to_b->stats.sent_by_fastbox < 2;
         i++) {
        must_true(i < 1000);
        give(pair->to_a, i);
        tmsg_message_destroy(pair_take(pair, &pair->a));
        give(pair->to_b, i);
        tmsg_message_destroy(pair_take(pair, &pair->b));
    }
    pump(pair);
}

/* Whether somebody has ended a nap that the worker had begun. */
static bool is_called(const side_t *side)
{
    tmsg_nap_t words;

    tmsg_worker_nap_words(side->worker, &words);
    return tmsg_fastbox_nap(&words, tmsg_now_ns()) == TMSG_OK;
}

/* Of more eager messages than there is room for, some wait in UCX. */
static void overfill(pair_t *pair)
{
    for (uint64_t i = 0; pair->to_a->in_ucx == 0; i++) {
        const sample_t sample = sample_plain(i, 32768);

        must_true(i < 250);
        tmsg_request_destroy(send_on(pair->to_a, 0, sample_make(&sample), 0));
    }
}

Test(nap, is_none_while_ucx_has_something_to_send)
{
    pair_t pair;

    open_warm(&pair);
    must_true(tmsg_fastboxes_are_quiet(pair.b.worker));
    must_true(tmsg_engine.idle(pair.b.worker));
    overfill(&pair);
    cr_expect(not(tmsg_fastboxes_are_quiet(pair.b.worker)));
    cr_expect(not(tmsg_engine.idle(pair.b.worker)));
    pair_drop(&pair);
}

Test(nap, what_ucx_sends_later_ends_it)
{
    pair_t pair;

    open_warm(&pair);
    overfill(&pair);
    for (int i = 0; i < 100; i++) {
        tmsg_worker_progress(pair.a.worker);
    }
    must_true(tmsg_worker_nap_begin(pair.a.worker));
    must_true(!is_called(&pair.a));
    tmsg_worker_progress(pair.b.worker);
    cr_expect(is_called(&pair.a));
    pair_drop(&pair);
}

/* Its sender has not heard yet that the fast box was taken. */
Test(nap, a_sender_ends_it_from_its_offer_on)
{
    const side_options_t quiet = {.quiet = true};
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &quiet, &quiet);
    for (uint64_t i = 0; pair.to_b->fastboxes.in == NULL; i++) {
        must_true(i < 100);
        give(pair.to_a, i);
        for (int j = 0; j < 20; j++) {
            tmsg_worker_progress(pair.a.worker);
        }
    }
    must_true(pair.to_a->fastboxes.out == NULL);
    must_true(tmsg_worker_nap_begin(pair.a.worker));
    must_true(!is_called(&pair.a));
    give(pair.to_a, 1);
    cr_expect(is_called(&pair.a));
    pair_drop(&pair);
}

/* The n-th core that this process may use, of two, or of one. */
static void bind_thread(pthread_t thread, unsigned n)
{
    cpu_set_t all, one;
    int cores[2] = {0, 0};
    unsigned count = 0;

    must_eq(sched_getaffinity(0, sizeof(all), &all), 0);
    for (int core = 0; core < CPU_SETSIZE && count < 2; core++) {
        if (CPU_ISSET(core, &all)) {
            cores[count++] = core;
        }
    }
    CPU_ZERO(&one);
    CPU_SET(cores[n % count], &one);
    must_eq(pthread_setaffinity_np(thread, sizeof(one), &one), 0);
}

static long switches(void)
{
    struct rusage usage;

    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw + usage.ru_nivcsw;
}

/* Which threads are where in each phase; all processors are found before. */
static const unsigned phases[][2] = {{0, 0}, {0, 1}, {1, 1}, {1, 0}, {0, 0}};
enum { PHASES = sizeof(phases) / sizeof(phases[0]), EACH = 2000 };

Test(nap, sides_may_move_from_core_to_core)
{
    const side_options_t quiet = {.quiet = true};
    pair_t pair;
    echo_t other = {&pair, PHASES * EACH};
    pthread_t thread, self = pthread_self();
    cpu_set_t all;

    must_eq(sched_getaffinity(0, sizeof(all), &all), 0);
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &quiet, &quiet);
    must_eq(pthread_create(&thread, NULL, echo, &other), 0);
    for (unsigned phase = 0; phase < PHASES; phase++) {
        long before;

        must_eq(pthread_setaffinity_np(self, sizeof(all), &all), 0);
        bind_thread(thread, phases[phase][0]);
        bind_thread(self, phases[phase][1]);
        before = switches();
        for (unsigned i = phase * EACH; i < (phase + 1) * EACH; i++) {
            give(pair.to_a, i);
            arrive(&pair.b, i);
        }
        if (phases[phase][0] == phases[phase][1]) { /* one there, one back */
            cr_expect(le(long, switches() - before, 4L * EACH));
        }
    }
    must_eq(pthread_join(thread, NULL), 0);
    cr_expect(ge(u64, pair.to_a->stats.sent_by_fastbox, PHASES * EACH / 2));
    pair_close(&pair);
}
