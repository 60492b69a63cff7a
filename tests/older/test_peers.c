/* SPDX-License-Identifier: BSD-3-Clause */
/* Today's library and a peer of another age, in another process, over UCX: an
 * older one with the frozen codec, and one newer than anything there is. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "older/exchange.h"
#include "older/frozen.h"
#include "older/minimal.h"

typedef struct {
    const char *program;
    link_t link;
    bool peer_dials;
    const char *wire_version;
} how_t;

static void become_peer(pipes_t *pipes, void *arg)
{
    const how_t *how = arg;

    dup2(pipes->in, STDIN_FILENO);
    dup2(pipes->out, STDOUT_FILENO);
    execl(how->program, how->program, link_names[how->link], how->wire_version,
          (char *)NULL);
    die("%s does not start", how->program);
}

/* Starts the peer, tells it which of the two dials, and connects. */
static tmsg_endpoint_t *meet(const how_t *how, child_t *child, side_t *side)
{
    char url[256];

    child_start(child, become_peer, (void *)(uintptr_t)how);
    exchange_open(side, how->link);
    if (how->peer_dials) {
        side_listen_link(side, how->link);
        line_put(child->out, tmsg_listener_url(side->listener));
        return side_accept(side);
    }
    line_put(child->out, "listen");
    line_get(child->in, url, sizeof(url));
    return side_connect(side, url);
}

static const uint8_t *header_of(const tmsg_message_t *message, size_t *bytes_p)
{
    const void *header;

    must(tmsg_message_header(message, &header, bytes_p));
    return header;
}

/* Not a byte of the header but those of the minimal dialect. */
static void check_minimal(const tmsg_message_t *message)
{
    const tmsg_map_t *map = tmsg_message_map(message);
    size_t wanted = minimal_body(map, NULL), bytes;
    const uint8_t *header = header_of(message, &bytes);
    uint8_t *body = malloc(wanted);
    frozen_preamble_t preamble;

    cr_assert(eq(sz, bytes, FROZEN_PREAMBLE_BYTES + wanted));
    must_true(frozen_read_preamble(header, bytes, &preamble) == NULL);
    cr_assert(eq(u8, preamble.length, FROZEN_PREAMBLE_BYTES));
    cr_assert(eq(u8, preamble.flags, 0));
    minimal_body(map, body);
    must_true(memcmp(body, header + FROZEN_PREAMBLE_BYTES, wanted) == 0);
    free(body);
}

static void check_newer(const tmsg_message_t *message)
{
    size_t bytes;
    const uint8_t *header = header_of(message, &bytes);

    must_true(bytes > 40);
    cr_assert(eq(u8, header[3], 40)); /* the preamble's length */
    must_true(memmem(header, bytes, "from later", 10) != NULL);
}

static void exchange_one(side_t *side, tmsg_endpoint_t *endpoint,
                         const sample_t *sample, bool minimal)
{
    sample_t answer = exchange_answer(sample, minimal);
    tmsg_request_t *sent =
        send_map(endpoint, sample_make(sample), TMSG_SEND_ACKED);
    tmsg_message_t *message = side_take(side);

    sample_check(&answer, tmsg_message_map(message));
    (minimal ? check_minimal : check_newer)(message);
    tmsg_message_destroy(message);
    must(side_finish(side, sent));
}

/* An older one is sent nothing that it does not know of. */
static void expect_no_channels(tmsg_endpoint_t *endpoint)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_CHANNEL,
                                       .channel = 1};
    tmsg_map_t *map = sample_bytes(1, 100);

    must_be(tmsg_endpoint_send(endpoint, map, &params, NULL),
            TMSG_ERR_UNSUPPORTED);
    tmsg_map_destroy(map);
}

static void exchange_burst(side_t *side, tmsg_endpoint_t *endpoint,
                           bool minimal)
{
    for (uint64_t i = 0; i < EXCHANGE_BURST; i++) {
        tmsg_request_destroy(send_map(endpoint,
                                      sample_bytes(i, EXCHANGE_BURST_BYTES),
                                      minimal ? TMSG_SEND_UNORDERED : 0));
    }
    for (uint64_t i = 0; i < EXCHANGE_BURST; i++) {
        const sample_t answer = {
            .seed = i, .tensors = 2, .without_metadata = minimal};
        tmsg_message_t *message = side_take(side);

        sample_check(&answer, tmsg_message_map(message));
        tmsg_message_destroy(message);
    }
}

static void exchange(const how_t *how, bool minimal)
{
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *closed;
    tmsg_message_t *message;
    child_t child;
    side_t side;

    endpoint = meet(how, &child, &side);
    if (minimal) {
        expect_no_channels(endpoint);
    }
    for (size_t i = 0; i < exchange_count; i++) {
        exchange_one(&side, endpoint, &exchange_samples[i], minimal);
    }
    must(side_finish(&side,
                     send_map(endpoint, exchange_strided(), TMSG_SEND_ACKED)));
    exchange_burst(&side, endpoint, minimal);
    if (!minimal) { /* behind the one that is refused */
        message = side_take(&side);
        exchange_check_strided(tmsg_message_map(message));
        tmsg_message_destroy(message);
    }
    must(tmsg_endpoint_close(endpoint, &closed));
    must(side_finish(&side, closed));
    side_close(&side);
    child_join(&child);
}

static void exchange_with_older(link_t link, bool peer_dials)
{
    const how_t how = {OLDER_PEER, link, peer_dials, "0"};

    exchange(&how, true);
}

Test(peers, today_dials_an_older_one_tcp)
{
    exchange_with_older(LINK_TCP, false);
}

Test(peers, today_dials_an_older_one_shm)
{
    exchange_with_older(LINK_SHM, false);
}

Test(peers, today_dials_an_older_one_unix)
{
    exchange_with_older(LINK_UNIX, false);
}

Test(peers, an_older_one_dials_today_tcp)
{
    exchange_with_older(LINK_TCP, true);
}

Test(peers, an_older_one_dials_today_shm)
{
    exchange_with_older(LINK_SHM, true);
}

Test(peers, an_older_one_dials_today_unix)
{
    exchange_with_older(LINK_UNIX, true);
}

static void exchange_with_newer(link_t link, bool peer_dials)
{
    const how_t how = {NEWER_PEER, link, peer_dials, "0"};

    exchange(&how, false);
}

Test(peers, today_dials_a_newer_one_tcp)
{
    exchange_with_newer(LINK_TCP, false);
}

Test(peers, today_dials_a_newer_one_unix)
{
    exchange_with_newer(LINK_UNIX, false);
}

Test(peers, a_newer_one_dials_today_tcp)
{
    exchange_with_newer(LINK_TCP, true);
}

Test(peers, a_newer_one_dials_today_shm)
{
    exchange_with_newer(LINK_SHM, true);
}

static bool has_words(void *arg)
{
    struct pollfd fd = {((child_t *)arg)->in, POLLIN, 0};

    return poll(&fd, 1, 0) == 1;
}

Test(peers, one_of_wire_version_1_that_dials_is_told_both_versions)
{
    how_t how = {NEWER_PEER, LINK_TCP, true, "1"};
    char words[512];
    child_t child;
    side_t side;

    child_start(&child, become_peer, &how);
    exchange_open(&side, how.link);
    side_listen_link(&side, how.link);
    line_put(child.out, tmsg_listener_url(side.listener));
    side_await(&side, has_words, &child, "the peer's words");
    line_get(child.in, words, sizeof(words));
    must_say(words, "refused: ");
    must_say(words, "wire version 0");
    must_say(words, "this side 1");
    must_eq(side.accepts, 0);
    side_close(&side);
    child_join(&child);
}

Test(peers, one_of_wire_version_1_that_is_dialled_is_refused_by_both_versions)
{
    how_t how = {NEWER_PEER, LINK_TCP, false, "1"};
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *ready;
    char url[256];
    child_t child;
    side_t side;

    child_start(&child, become_peer, &how);
    exchange_open(&side, how.link);
    line_put(child.out, "listen");
    line_get(child.in, url, sizeof(url));
    must(tmsg_endpoint_connect(side.worker, url, NULL, &endpoint));
    must(tmsg_endpoint_ready(endpoint, &ready));
    must_be(side_wait(&side, ready), TMSG_ERR_INCOMPATIBLE);
    must_say(tmsg_request_error(ready), "wire version 1");
    must_say(tmsg_request_error(ready), "this side 0");
    tmsg_request_destroy(ready);
    side_close(&side);
    child_kill(&child);
}
