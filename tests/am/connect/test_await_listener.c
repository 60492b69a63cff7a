/* SPDX-License-Identifier: BSD-3-Clause */
/* TMSG_ENDPOINT_WAIT: an endpoint that dials before anybody listens. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "am/endpoint/endpoint.h"
#include "am/net/resolve.h"
#include "support/numbered_keys.h"
#include "support/peers.h"
#include "support/raw_bootstrap.h"
#include "support/seeded_maps.h"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

static tmsg_endpoint_params_t waiting(int timeout_ms)
{
    return (tmsg_endpoint_params_t){
        .field_mask =
            TMSG_ENDPOINT_PARAM_CONNECT_TIMEOUT | TMSG_ENDPOINT_PARAM_FLAGS,
        .connect_timeout_ms = timeout_ms,
        .flags = TMSG_ENDPOINT_WAIT,
    };
}

static tmsg_endpoint_t *dial(side_t *side, const char *url, int timeout_ms)
{
    const tmsg_endpoint_params_t params = waiting(timeout_ms);
    tmsg_endpoint_t *endpoint;

    must(tmsg_endpoint_connect(side->worker, url, &params, &endpoint));
    return endpoint;
}

static bool has_tried(void *arg)
{
    return ((tmsg_endpoint_t *)arg)->conn.awaited.attempts >= 3;
}

/* Writes the URL of a port that nobody listens on. */
static void free_port(char *url, size_t bytes)
{
    close(raw_listen(url, bytes));
}

/* Opens a socket file, which stays when the socket is closed. */
static int open_socket(const char *path)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    snprintf(un.sun_path, sizeof(un.sun_path), "%s", path);
    must_true(bind(fd, (const struct sockaddr *)&un, sizeof(un)) == 0);
    return fd;
}

/* a listens only when b has dialled in vain, and gets what b has sent. */
static void comes_later(const char *dialled, const char *listened,
                        int timeout_ms, const char *words)
{
    pair_t pair = {.to_a = NULL};
    tmsg_message_t *message;
    tmsg_request_t *sent;

    pair.sides[0] = &pair.a;
    pair.sides[1] = &pair.b;
    side_open(&pair.a, NULL);
    side_open(&pair.b, NULL);
    pair.to_a = dial(&pair.b, dialled, timeout_ms);
    sent = send_map(pair.to_a, sample_bytes(1, 1000), TMSG_SEND_ACKED);
    side_await(&pair.b, has_tried, pair.to_a, "some attempts");
    cr_expect(eq(int, tmsg_endpoint_status(pair.to_a), TMSG_IN_PROGRESS));
    must_say(tmsg_endpoint_error(pair.to_a), "nobody has listened for");
    must_say(tmsg_endpoint_error(pair.to_a), words);
    side_listen(&pair.a, listened);
    message = pair_take(&pair, &pair.a);
    sample_check_bytes(1, 1000, tmsg_message_map(message));
    tmsg_message_destroy(message);
    must(pair_finish(&pair, sent));
    cr_expect(eq(uint, pair.a.accepts, 1));
    cr_expect(eq(int, tmsg_endpoint_status(pair.to_a), TMSG_OK));
    must_true(tmsg_endpoint_error(pair.to_a)[0] == '\0');
    pair_drop(&pair);
}

Test(await_listener, at_a_port)
{
    char url[64];

    free_port(url, sizeof(url));
    comes_later(url, url, PEERS_BOUND_MS, "Connection refused");
}

Test(await_listener, without_limit)
{
    char url[64];

    free_port(url, sizeof(url));
    comes_later(url, url, -1, "Connection refused");
}

Test(await_listener, at_a_path_that_is_not_there)
{
    char url[256];

    snprintf(url, sizeof(url), "unix://%s", scratch_path("later"));
    comes_later(url, url, PEERS_BOUND_MS, "No such file");
}

Test(await_listener, at_a_path_that_was_left_behind)
{
    char url[256], path[200];

    snprintf(path, sizeof(path), "%s", scratch_path("stale"));
    snprintf(url, sizeof(url), "unix://%s", path);
    close(open_socket(path));
    comes_later(url, url, PEERS_BOUND_MS, "Connection refused");
}

static atomic_uint lookups;

/* Knows the name from the fourth time on. */
static int known_later(const char *host, const char *service,
                       const struct addrinfo *hints, struct addrinfo **result_p)
{
    (void)host;
    return atomic_fetch_add(&lookups, 1) < 3
               ? EAI_NONAME
               : getaddrinfo("127.0.0.1", service, hints, result_p);
}

Test(await_listener, of_a_name_that_is_not_known_yet)
{
    char url[64], named[64];

    free_port(url, sizeof(url));
    snprintf(named, sizeof(named), "tcp://a.server.yet.to.come%s",
             strrchr(url, ':'));
    tmsg_resolve_set_lookup(known_later);
    comes_later(named, url, PEERS_BOUND_MS, "");
    cr_expect(ge(uint, atomic_load(&lookups), 4));
    tmsg_resolve_set_lookup(NULL);
}

/* One that takes connections and closes them, as a proxy does whose own peer is
 * not there, or a process that ends. */
Test(await_listener, that_hangs_up_at_first)
{
    tmsg_endpoint_t *endpoint;
    char url[64];
    side_t side;
    int peer, fd = raw_listen(url, sizeof(url));

    must_true(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    side_open(&side, NULL);
    endpoint = dial(&side, url, PEERS_BOUND_MS);
    while (!has_tried(endpoint)) {
        tmsg_worker_wait(side.worker, 1);
        while ((peer = accept(fd, NULL, NULL)) >= 0) {
            close(peer);
        }
    }
    must_say(tmsg_endpoint_error(endpoint), "the connection broke");
    close(fd);
    side_listen(&side, url);
    side_accept(&side);
    side_close(&side);
}

/* One that ends before this side has said its first word. */
Test(await_listener, that_has_gone_when_it_is_spoken_to)
{
    char url[256], path[200];
    side_t side;
    int fd;

    snprintf(path, sizeof(path), "%s", scratch_path("going"));
    snprintf(url, sizeof(url), "unix://%s", path);
    fd = open_socket(path);
    must_true(listen(fd, 1) == 0);
    side_open(&side, NULL);
    dial(&side, url, PEERS_BOUND_MS);
    close(accept(fd, NULL, NULL));
    close(fd);
    tmsg_worker_progress(side.worker);
    side_listen(&side, url);
    side_accept(&side);
    side_close(&side);
}

static tmsg_status_t end_of(side_t *side, tmsg_endpoint_t *endpoint)
{
    tmsg_request_t *ready;

    must(tmsg_endpoint_ready(endpoint, &ready));
    return side_finish(side, ready);
}

Test(await_listener, in_vain)
{
    char url[64];
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *sent;
    side_t side;

    free_port(url, sizeof(url));
    side_open(&side, NULL);
    endpoint = dial(&side, url, 100);
    sent = send_map(endpoint, sample_bytes(1, 10), 0);
    must_be(end_of(&side, endpoint), TMSG_ERR_UNREACHABLE);
    must_say(tmsg_endpoint_error(endpoint), "nobody listened for 0.");
    must_say(tmsg_endpoint_error(endpoint), url);
    must_say(tmsg_endpoint_error(endpoint), "Connection refused");
    must_be(side_finish(&side, sent), TMSG_ERR_UNREACHABLE);

    endpoint = dial(&side, "tcp://no-such-host.invalid:4000", 500);
    must_be(end_of(&side, endpoint), TMSG_ERR_NOT_FOUND);
    must_say(tmsg_endpoint_error(endpoint), "nobody listened for ");
    must_say(tmsg_endpoint_error(endpoint), "no-such-host.invalid");
    side_close(&side);
}

/* Somebody listens, and says why not. */
Test(await_listener, does_not_outwait_a_refusal)
{
    tmsg_keyring_t *a = ring("alice", 1), *b = ring("alice", 2);
    const side_options_t server = {.keyring = a}, client = {.keyring = b};
    pair_t pair = {.to_a = NULL};

    pair.sides[0] = &pair.a;
    pair.sides[1] = &pair.b;
    side_open(&pair.a, &server);
    side_open(&pair.b, &client);
    side_listen(&pair.a, "tcp://127.0.0.1:0");
    for (int i = 0; i < 2; i++) {
        pair.to_a = dial(&pair.b, tmsg_listener_url(pair.a.listener),
                         i == 0 ? PEERS_BOUND_MS : -1);
        must_be(pair_end_of(&pair, pair.to_a), TMSG_ERR_REFUSED);
        cr_expect(
            eq(ptr, strstr(tmsg_endpoint_error(pair.to_a), "nobody"), NULL));
        tmsg_endpoint_destroy(pair.to_a);
    }
    tmsg_keyring_destroy(a);
    tmsg_keyring_destroy(b);
    pair_drop(&pair);
}

/* Somebody listens whose places are all taken, or who does not answer. */
Test(await_listener, that_does_not_answer)
{
    char url[64];
    tmsg_endpoint_t *endpoint;
    side_t side;
    int fd = raw_listen(url, sizeof(url));

    side_open(&side, NULL);
    endpoint = dial(&side, url, 300);
    must_be(end_of(&side, endpoint), TMSG_ERR_TIMED_OUT);
    must_say(tmsg_endpoint_error(endpoint), "the handshake was not finished");
    side_close(&side);
    close(fd);
}

/* Given up while it waits, in each of its states. */
Test(await_listener, is_given_up)
{
    char url[64];
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *sent;
    side_t side;

    free_port(url, sizeof(url));
    side_open(&side, NULL);
    for (unsigned i = 0; i < 8; i++) {
        endpoint = dial(&side, url, i % 2 == 0 ? -1 : PEERS_BOUND_MS);
        sent = send_map(endpoint, sample_bytes(1, 10), 0);
        for (unsigned j = 0; j < i; j++) {
            tmsg_worker_wait(side.worker, 3);
            tmsg_worker_progress(side.worker);
        }
        tmsg_endpoint_destroy(endpoint);
        must_be(side_finish(&side, sent), TMSG_ERR_CANCELED);
    }
    dial(&side, url, -1); /* goes with its worker */
    side_close(&side);
}

Test(await_listener, is_for_those_that_are_dialled_by_a_socket)
{
    tmsg_endpoint_params_t params = waiting(-1);
    tmsg_endpoint_t *endpoint = NULL;
    const void *blob;
    size_t bytes;
    side_t side;

    side_open(&side, NULL);
    must_be(tmsg_endpoint_connect(side.worker, "ucx://127.0.0.1:1", &params,
                                  &endpoint),
            TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), "ucx://");
    side_listen(&side, "blob://");
    must(tmsg_listener_blob(side.listener, &blob, &bytes));
    must_be(tmsg_endpoint_connect_blob(side.worker, blob, bytes, &params,
                                       &endpoint),
            TMSG_ERR_UNSUPPORTED);
    params.flags = TMSG_ENDPOINT_WAIT | UINT32_C(1) << 31;
    must_be(
        tmsg_endpoint_connect(side.worker, "127.0.0.1:1", &params, &endpoint),
        TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "flags 0x80000001");
    params.flags = 0;
    must_be(
        tmsg_endpoint_connect(side.worker, "127.0.0.1:1", &params, &endpoint),
        TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "-1 is not positive");
    side_close(&side);
}
