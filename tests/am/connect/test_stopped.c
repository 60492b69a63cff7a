/* SPDX-License-Identifier: BSD-3-Clause */
/* A receiver stands still (SIGSTOP) while its sender goes on, gives up, or sees
 * it die: buffers come back, and the receiver delivers nothing that it reads
 * from them afterwards. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/peers.h"
#include "support/seeded_maps.h"

enum { LARGE = 6 << 20, LARGES = 8, MANY = 200 };

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
    tmsg_message_t *message;
    side_t side;

    side_open(&side, NULL);
    side_listen_link(&side, *(link_t *)arg);
    line_put(pipes->out, tmsg_listener_url(side.listener));
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

/* Connects to the child, sends it something, and stops it. */
static tmsg_endpoint_t *stop_receiver(child_t *child, side_t *side,
                                      uint8_t *buffer)
{
    tmsg_endpoint_t *endpoint;
    char url[256];

    line_get(child->in, url, sizeof(url));
    side_open(side, NULL);
    endpoint = side_connect(side, url);
    must(side_finish(side,
                     send_map(endpoint, map_of(buffer, 10), TMSG_SEND_ACKED)));
    must_eq(kill(child->pid, SIGSTOP), 0);
    side_await(side, child_is_stopped, child, "the child's standstill");
    return endpoint;
}

static void give_up(link_t link)
{
    uint8_t *buffer = malloc(LARGE);
    tmsg_request_t *sent[LARGES];
    tmsg_endpoint_t *endpoint;
    child_t child;
    side_t side;

    memset(buffer, 1, LARGE);
    child_start(&child, receive_all, &link);
    endpoint = stop_receiver(&child, &side, buffer);
    for (size_t i = 0; i < LARGES; i++) {
        sent[i] = send_map(endpoint, map_of(buffer, LARGE), 0);
    }
    tmsg_endpoint_destroy(endpoint);
    for (size_t i = 0; i < LARGES; i++) {
        must_be(side_finish(&side, sent[i]), TMSG_ERR_CANCELED);
    }
    memset(buffer, 2, LARGE); /* ours again */
    must_eq(kill(child.pid, SIGCONT), 0);
    child_join(&child);
    side_close(&side);
    free(buffer);
}

Test(stopped, what_was_given_up_meanwhile_is_not_delivered_changed)
{
    give_up(LINK_SHM);
    give_up(LINK_UNIX);
}

/* The same by TCP alone, whose payloads are copied on their way. */
Test(stopped, what_was_given_up_meanwhile_is_not_delivered_changed_tcp)
{
    setenv("UCX_TLS", "tcp,self", 1);
    /* Eager ones are over when the kernel has them. */
    setenv("TENSORMSG_THRESHOLDS", "tcp.eager_bytes=0", 1);
    give_up(LINK_SHM);
}

static bool has_no_connection(void *arg)
{
    struct sockaddr_storage peer;

    (void)arg;
    for (int fd = 0; fd < 1024; fd++) {
        socklen_t bytes = sizeof(peer);

        if (getpeername(fd, (struct sockaddr *)&peer, &bytes) == 0 &&
            peer.ss_family == AF_INET) {
            return false;
        }
    }
    return true;
}

/* No byte may pass any more, and the end of the connection must not come late,
 * when the peer wakes: UCX crashes on that if it still has something to send
 * (netns/hosts). */
Test(stopped, no_socket_leads_to_whom_was_given_up)
{
    const side_options_t options = {.peer_timeout_ms = 1500};
    const link_t link = LINK_SHM;
    uint8_t *buffer = malloc(LARGE);
    tmsg_request_t *sent[LARGES];
    tmsg_endpoint_t *endpoint;
    child_t child;
    side_t side;
    char url[256];

    setenv("UCX_TLS", "tcp,self", 1);
    memset(buffer, 1, LARGE);
    child_start(&child, receive_all, (void *)&link);
    line_get(child.in, url, sizeof(url));
    side_open(&side, &options);
    endpoint = side_connect(&side, url);
    must_true(!has_no_connection(NULL));
    for (size_t i = 0; i < LARGES; i++) {
        sent[i] = send_map(endpoint, map_of(buffer, LARGE), 0);
    }
    must(side_wait(&side, sent[0]));
    must_eq(kill(child.pid, SIGSTOP), 0);
    must_be(side_end_of(&side, endpoint), TMSG_ERR_PEER_LOST);
    side_await(&side, has_no_connection, NULL, "the end of the sockets");
    must_eq(kill(child.pid, SIGCONT), 0);
    child_join(&child);
    for (size_t i = 0; i < LARGES; i++) {
        tmsg_request_destroy(sent[i]);
    }
    side_close(&side);
    free(buffer);
}

/* UCX's queue to the peer is full when the peer dies: UCX waits for room in it
 * before it reports anything. */
static void kill_when_full(link_t link, bool destroy_worker)
{
    uint8_t *buffer = malloc(100000);
    tmsg_request_t *sent[MANY];
    tmsg_endpoint_t *endpoint;
    child_t child;
    side_t side;

    memset(buffer, 1, 100000);
    child_start(&child, receive_all, &link);
    endpoint = stop_receiver(&child, &side, buffer);
    for (size_t i = 0; i < MANY; i++) {
        sent[i] = send_map(endpoint, map_of(buffer, i % 2 ? 100 : 100000), 0);
    }
    child_kill(&child);
    if (destroy_worker) {
        side_close(&side);
    } else {
        must_be(side_end_of(&side, endpoint), TMSG_ERR_PEER_LOST);
    }
    for (size_t i = 0; i < MANY; i++) {
        tmsg_status_t status = destroy_worker ? tmsg_request_test(sent[i])
                                              : side_wait(&side, sent[i]);

        must_true(status == TMSG_OK || status == TMSG_ERR_PEER_LOST ||
                  (destroy_worker && status == TMSG_ERR_CANCELED));
        tmsg_request_destroy(sent[i]);
    }
    if (!destroy_worker) {
        side_close(&side);
    }
    free(buffer);
}

Test(stopped, a_full_queue_to_a_dead_peer_gives_its_buffers_back_shm)
{
    kill_when_full(LINK_SHM, false);
    kill_when_full(LINK_SHM, true);
}

Test(stopped, a_full_queue_to_a_dead_peer_gives_its_buffers_back_unix)
{
    kill_when_full(LINK_UNIX, false);
    kill_when_full(LINK_UNIX, true);
}

Test(stopped, a_full_queue_to_a_dead_peer_gives_its_buffers_back_tcp)
{
    setenv("UCX_TLS", "tcp,self", 1);
    kill_when_full(LINK_SHM, false);
    kill_when_full(LINK_SHM, true);
}
