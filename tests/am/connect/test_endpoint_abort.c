/* SPDX-License-Identifier: BSD-3-Clause */
/* tmsg_endpoint_abort(): an immediate end, with a text for the peer. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/peers.h"
#include "support/raw_bootstrap.h"
#include "support/seeded_maps.h"

typedef struct {
    unsigned calls;
    tmsg_status_t status;
    char error[300];
} end_t;

static void on_closed(void *arg, tmsg_endpoint_t *endpoint,
                      tmsg_status_t status, const char *error)
{
    end_t *end = arg;

    (void)endpoint;
    end->calls++;
    end->status = status;
    strncpy(end->error, error, sizeof(end->error) - 1);
}

static bool was_told(void *arg) { return ((end_t *)arg)->calls > 0; }

/* Large messages are under way in both directions, and the receivers have no
 * memory for them. */
static void tells(link_t link, drive_t drive, tmsg_status_t heard)
{
    const side_options_t narrow = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_QUEUE_DEPTH,
                   .queue_depth = 2}};
    tmsg_request_t *ours[4], *theirs[4];
    end_t told = {0}, untold = {0};
    pair_t pair;

    pair_open(&pair, link, drive, &narrow, &narrow);
    tmsg_endpoint_on_closed(pair.to_b, on_closed, &told);
    tmsg_endpoint_on_closed(pair.to_a, on_closed, &untold);
    for (uint64_t i = 0; i < 4; i++) {
        size_t bytes = i % 2 ? 100 : 3000000;

        ours[i] = send_map(pair.to_a, sample_bytes(i, bytes), TMSG_SEND_ACKED);
        theirs[i] =
            send_map(pair.to_b, sample_bytes(i, bytes), TMSG_SEND_ACKED);
    }
    must(tmsg_endpoint_abort(pair.to_a, TMSG_ERR_INSECURE, "not you"));
    must(tmsg_endpoint_abort(pair.to_a, TMSG_ERR_REFUSED, "again")); /* no */
    must_be(tmsg_endpoint_status(pair.to_a), TMSG_ERR_CANCELED);
    must_say(tmsg_endpoint_error(pair.to_a),
             "closed at once by this side: not you");
    must_be(tmsg_endpoint_send(pair.to_a, NULL, NULL, NULL), TMSG_ERR_CLOSED);
    pair_await(&pair, was_told, &told, "on_closed");
    must_be(told.status, heard);
    for (int i = 0; i < 4; i++) {
        must_be(pair_finish(&pair, ours[i]), TMSG_ERR_CANCELED);
        must_be(pair_finish(&pair, theirs[i]), heard);
    }
    if (heard == TMSG_ERR_INSECURE) {
        must_say(told.error, "refused by the peer: not you");
    }
    tmsg_endpoint_destroy(pair.to_a);
    pair_drop(&pair);
    must_eq(untold.calls, 0);
    must_eq(told.calls, 1);
}

Test(endpoint_abort, tells_the_peer_why_tcp)
{
    tells(LINK_TCP, DRIVE_POLLING, TMSG_ERR_INSECURE);
}
Test(endpoint_abort, tells_the_peer_why_shm)
{
    tells(LINK_SHM, DRIVE_POLLING, TMSG_ERR_INSECURE);
    tells(LINK_UNIX, DRIVE_FD, TMSG_ERR_INSECURE);
    tells(LINK_SHM, DRIVE_THREAD, TMSG_ERR_INSECURE);
}
Test(endpoint_abort, is_a_lost_peer_where_there_is_no_socket)
{
    tells(LINK_BLOB, DRIVE_POLLING, TMSG_ERR_PEER_LOST);
}

Test(endpoint_abort, ends_a_connect)
{
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *ready, *sent;
    char url[64];
    side_t side;

    raw_listen(url, sizeof(url));
    side_open(&side, NULL);
    must(tmsg_endpoint_connect(side.worker, url, NULL, &endpoint));
    must(tmsg_endpoint_ready(endpoint, &ready));
    sent = send_map(endpoint, sample_bytes(0, 100), 0);
    must(tmsg_endpoint_abort(endpoint, TMSG_ERR_REFUSED, "no"));
    must_be(side_finish(&side, ready), TMSG_ERR_CANCELED);
    must_be(side_finish(&side, sent), TMSG_ERR_CANCELED);
    side_close(&side);
}

Test(endpoint_abort, cuts_and_mends_its_words)
{
    char words[400], wanted[196];
    pair_t pair;

    memset(words, 'w', sizeof(words));
    words[3] = '\xff';
    words[4] = '\n';
    words[399] = '\0';
    memset(wanted, 'w', 195);
    memcpy(wanted + 3, "\\xff\\x0a", 8);
    wanted[195] = '\0';
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    must(tmsg_endpoint_abort(pair.to_b, TMSG_ERR_BUSY, words));
    must_be(pair_end_of(&pair, pair.to_a), TMSG_ERR_BUSY);
    must_say(tmsg_endpoint_error(pair.to_a), wanted);
    must_true(strstr(tmsg_endpoint_error(pair.to_a), "wwwwww\n") == NULL);
    pair_drop(&pair);
}

Test(endpoint_abort, takes_a_failure_and_words)
{
    static const tmsg_status_t none[] = {
        TMSG_OK,         TMSG_IN_PROGRESS, TMSG_CANCEL_PENDING,
        TMSG_ERR_CLOSED, TMSG_ERR_DROPPED, (tmsg_status_t)-1000};
    tmsg_message_t *message;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
        must_be(tmsg_endpoint_abort(pair.to_a, none[i], "why"),
                TMSG_ERR_INVALID_PARAM);
    }
    must_be(tmsg_endpoint_abort(pair.to_a, TMSG_ERR_REFUSED, NULL),
            TMSG_ERR_INVALID_PARAM);
    tmsg_request_destroy(send_map(pair.to_a, sample_bytes(1, 100), 0));
    message = pair_take(&pair, &pair.a);
    pair_close(&pair);
    must_be(tmsg_endpoint_abort(tmsg_message_endpoint(message),
                                TMSG_ERR_REFUSED, "why"),
            TMSG_ERR_CLOSED);
    tmsg_message_destroy(message);
}

static char heard[512];

static void hear(void *arg, tmsg_log_level_t level, const char *line)
{
    (void)arg;
    (void)level;
    if (strstr(line, "refused by the peer") != NULL) {
        snprintf(heard, sizeof(heard), "%s", line);
    }
}

static bool has_heard(void *arg)
{
    (void)arg;
    return heard[0] != '\0';
}

/* The listener has not answered yet. */
static void gives_up(link_t link)
{
    tmsg_endpoint_t *endpoint;
    side_t listening, side;

    heard[0] = '\0';
    tmsg_log_set(TMSG_LOG_INFO, hear, NULL);
    side_open(&listening, NULL);
    side_listen_link(&listening, link);
    side_open(&side, NULL);
    endpoint = side_dial(&side, &listening);
    for (int i = 0; i < 1000; i++) {
        tmsg_worker_progress(side.worker);
    }
    must_be(tmsg_endpoint_status(endpoint), TMSG_IN_PROGRESS);
    tmsg_endpoint_destroy(endpoint);
    side_await(&listening, has_heard, NULL, "the peer's words");
    must_say(heard, "it gave up connecting");
    side_close(&side);
    side_close(&listening);
    tmsg_log_set(TMSG_LOG_NONE, NULL, NULL);
}

Test(endpoint_abort, who_gives_up_connecting_says_so)
{
    gives_up(LINK_SHM);
    gives_up(LINK_UNIX);
}
