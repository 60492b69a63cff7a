/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* ucx:// with every allocation of ours, and cJSON's, failing in turn: each
 * round works all the same or says that memory was missing, and afterwards a
 * new connection carries and nothing is left behind. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#include "support/own_code_alloc.h"
#include "support/peers.h"

#define CONNECT_MS 5000

TestSuite(ucxx_alloc, .init = watched_alloc_start);

static uint8_t bytes[300000];

typedef struct {
    pair_t pair;
    int64_t count; /* of bytes sent */
    tmsg_request_t *sent;
    tmsg_message_t *message;
    char words[8192]; /* of every error and warning */
} round_t;

static void note(void *arg, tmsg_log_level_t level, const char *line)
{
    round_t *round = arg;
    size_t used = strlen(round->words);

    (void)level;
    snprintf(round->words + used, sizeof(round->words) - used, "%s\n", line);
}

static bool has_words(const round_t *round)
{
    return strstr(round->words, "memory") != NULL;
}

static bool worked(round_t *round, tmsg_status_t status)
{
    if (status != TMSG_OK) {
        must_be(status, TMSG_ERR_NO_MEMORY);
        note(round, TMSG_LOG_WARN, tmsg_error_message());
    }
    return status == TMSG_OK;
}

static bool is_settled(void *arg)
{
    round_t *round = arg;
    tmsg_status_t status = tmsg_endpoint_status(round->pair.to_a);

    if (round->message == NULL) {
        (void)tmsg_worker_recv(round->pair.a.worker, 0, &round->message);
    }
    return status < 0 || (tmsg_request_test(round->sent) != TMSG_IN_PROGRESS &&
                          (round->message != NULL || has_words(round)));
}

/* Listens, connects and sends; whether all of it worked. */
static bool play(round_t *round)
{
    const tmsg_endpoint_params_t params = {
        .field_mask = TMSG_ENDPOINT_PARAM_CONNECT_TIMEOUT,
        .connect_timeout_ms = CONNECT_MS};
    const tmsg_tensor_t tensor = {.data = bytes,
                                  .device = {TMSG_DEVICE_CPU, 0},
                                  .ndim = 1,
                                  .dtype = {TMSG_DTYPE_UINT, 8, 1},
                                  .shape = &round->count};
    pair_t *pair = &round->pair;
    tmsg_map_t *map = NULL;
    bool ok =
        worked(round, tmsg_listener_create(pair->a.worker, "ucx://127.0.0.1:0",
                                           NULL, &pair->a.listener)) &&
        worked(round, tmsg_endpoint_connect(pair->b.worker,
                                            tmsg_listener_url(pair->a.listener),
                                            &params, &pair->to_a)) &&
        worked(round, tmsg_map_create(&map)) &&
        worked(round, tmsg_map_add(map, "x", &tensor, NULL)) &&
        worked(round, tmsg_endpoint_send(pair->to_a, map, NULL, &round->sent));

    if (ok) {
        pair_await(pair, is_settled, round, "the end of a round");
        note(round, TMSG_LOG_WARN, tmsg_endpoint_error(pair->to_a));
        note(round, TMSG_LOG_WARN, tmsg_request_error(round->sent));
        ok =
            round->message != NULL && tmsg_request_test(round->sent) == TMSG_OK;
    }
    tmsg_map_destroy(map);
    return ok;
}

static void close_round(round_t *round)
{
    tmsg_message_destroy(round->message);
    tmsg_request_destroy(round->sent);
    tmsg_endpoint_destroy(round->pair.to_a);
    tmsg_listener_destroy(round->pair.a.listener);
    round->pair.to_a = NULL;
    round->pair.a.listener = NULL;
    round->message = NULL;
    round->sent = NULL;
}

/* Whether there is an n-th allocation to fail. */
static bool fail_nth(int64_t count, unsigned long n, unsigned long *errors)
{
    round_t round = {.count = count};
    pair_t *pair = &round.pair;
    size_t live = watched_alloc_live();
    uintptr_t failed;
    bool ok;

    side_open(&pair->a, NULL);
    side_open(&pair->b, NULL);
    pair->sides[0] = &pair->a;
    pair->sides[1] = &pair->b;
    tmsg_log_set(TMSG_LOG_WARN, note, &round);
    watched_alloc_arm(n);
    ok = play(&round);
    failed = watched_alloc_disarm();
    if (!ok && (failed == 0 || !has_words(&round))) {
        die("allocation %lu, at %#zx: no word of memory in\n%s", n, failed,
            round.words);
    }
    *errors += !ok;
    close_round(&round);
    round.words[0] = '\0';
    must_true(play(&round)); /* both go on as if nothing had been */
    close_round(&round);
    tmsg_log_set(TMSG_LOG_NONE, NULL, NULL);
    side_close(&pair->b);
    side_close(&pair->a);
    if (watched_alloc_live() != live) {
        watched_alloc_report();
        die("allocation %lu, at %#zx: %zu are left, %zu were there", n, failed,
            watched_alloc_live(), live);
    }
    return failed != 0;
}

static void fail_each(int64_t count)
{
    unsigned long n = 0, errors = 0;

    fail_nth(count, 0, &errors); /* what is made once and kept for ever */
    must_eq(errors, 0);
    while (fail_nth(count, ++n, &errors)) {
    }
    must_true(errors > 0);
    fprintf(stderr, "%lld bytes: %lu allocations, %lu errors\n",
            (long long)count, n - 1, errors);
}

Test(ucxx_alloc, an_eager_message) { fail_each(100); }

Test(ucxx_alloc, a_rendezvous) { fail_each(sizeof(bytes)); }
