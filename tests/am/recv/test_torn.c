/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: twice in soak */
/* A receiver hears late or not at all by the socket that the sender has given
 * the connection up and uses the memory that it sent from for something else.
 * By blob there is no socket, and the receiver reads the sender's memory:
 * without the lease of docs/wire/connection.md it delivers the second contents.
 * A proxy may be late; behind one the kernel does not say who the sender is,
 * and nothing is read out of its memory. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "support/breaking_relay.h"
#include "support/peers.h"
#include "support/session_pair.h"

enum { LARGE = 6 << 20, LARGES = 8, TIMEOUT_MS = 400 };

/* Every byte of a message must be 1, as it was when it was sent. */
static void check_untorn(const tmsg_message_t *message)
{
    tmsg_tensor_t tensor;
    const uint8_t *bytes;

    must(tmsg_map_find(tmsg_message_map(message), "data", &tensor));
    bytes = tensor.data;
    for (int64_t i = 0; i < tensor.shape[0]; i++) {
        must_eq(bytes[i], 1);
    }
}

static void receive_all(pipes_t *pipes, void *arg)
{
    const link_t *link = arg;
    const side_options_t options = {.peer_timeout_ms = TIMEOUT_MS};
    tmsg_message_t *message;
    side_t side;

    side_open(&side, *link == LINK_BLOB ? NULL : &options);
    side_listen_link(&side, *link);
    if (*link == LINK_BLOB) {
        blob_put(pipes->out, side.listener);
    } else {
        line_put(pipes->out, tmsg_listener_url(side.listener));
    }
    side_accept(&side);
    while (tmsg_endpoint_recv(side.accepted, PEERS_BOUND_MS, &message) ==
           TMSG_OK) {
        check_untorn(message);
        tmsg_message_destroy(message);
    }
    must_be(tmsg_endpoint_status(side.accepted), TMSG_ERR_PEER_LOST);
    side_close(&side);
}

/* A map that borrows the buffer. */
static tmsg_map_t *map_of(uint8_t *buffer, size_t bytes)
{
    const int64_t shape[] = {(int64_t)bytes};
    const tmsg_tensor_t tensor = {
        buffer, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape, NULL};
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "data", &tensor, NULL));
    return map;
}

static tmsg_endpoint_t *join(child_t *child, side_t *side, link_t link,
                             relay_t **relay_p)
{
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *ready;
    char url[256];

    *relay_p = NULL;
    if (link == LINK_BLOB) {
        endpoint = blob_connect(side, child->in);
        must(tmsg_endpoint_ready(endpoint, &ready));
        must(side_finish(side, ready));
        return endpoint;
    }
    line_get(child->in, url, sizeof(url));
    *relay_p = relay_open(url);
    return side_connect(side, relay_url(*relay_p));
}

/* The receiver stands still while much is sent to it. The sender gives it up
 * and writes over the memory that it got back; only then the receiver wakes.
 * Its socket does not tell of the end. */
static void give_up(link_t link, unsigned flags)
{
    uint8_t *buffer = malloc(LARGE);
    tmsg_request_t *sent[LARGES];
    tmsg_endpoint_t *endpoint;
    relay_t *relay;
    child_t child;
    side_t side;

    memset(buffer, 1, LARGE);
    child_start(&child, receive_all, &link);
    side_open(&side, NULL);
    endpoint = join(&child, &side, link, &relay);
    must(side_finish(&side,
                     send_map(endpoint, map_of(buffer, 10), TMSG_SEND_ACKED)));
    must_eq(kill(child.pid, SIGSTOP), 0);
    side_await(&side, child_is_stopped, &child, "the child's standstill");
    for (size_t i = 0; i < LARGES; i++) {
        sent[i] = send_map(endpoint, map_of(buffer, LARGE), flags);
    }
    if (relay != NULL) {
        relay_hold(relay);
    }
    tmsg_endpoint_destroy(endpoint);
    for (size_t i = 0; i < LARGES; i++) {
        must_be(side_finish(&side, sent[i]), TMSG_ERR_CANCELED);
    }
    memset(buffer, 2, LARGE); /* ours again */
    must_eq(kill(child.pid, SIGCONT), 0);
    child_join(&child);
    if (relay != NULL) {
        relay_let_go(relay);
        relay_close(relay);
    }
    side_close(&side);
    free(buffer);
}

Test(torn, is_nothing_where_a_proxy_is_late)
{
    give_up(LINK_SHM, 0);
    give_up(LINK_SHM, TMSG_SEND_ACKED);
}

Test(torn, is_nothing_where_a_proxy_is_late_unix)
{
    give_up(LINK_UNIX, 0);
    give_up(LINK_UNIX, TMSG_SEND_ACKED);
}

Test(torn, is_nothing_by_blob)
{
    give_up(LINK_BLOB, 0);
    give_up(LINK_BLOB, TMSG_SEND_ACKED);
}
