/* SPDX-License-Identifier: BSD-3-Clause */
/* Many endpoints at once on one worker, and more than there are descriptors
 * for. tests/soak/soak_many.c has 1,000. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "support/many_endpoints.h"
#include "support/own_code_alloc.h"
#include "support/seeded_maps.h"

#define BYTES_EACH_MAX (64 << 10)

static void fifty(link_t link)
{
    const many_t many = {.clients = 5,
                         .each = 10,
                         .rounds = 5,
                         .link = link,
                         .held = watched_alloc_bytes};
    many_result_t result;

    watched_alloc_start();
    many_run(&many, &result);
    printf("%s: %zu and %zu bytes an endpoint, %.0f messages/s\n",
           link_names[link], result.server_bytes, result.client_bytes,
           result.rate);
    cr_expect(ge(sz, result.server_bytes, 1000)); /* it was counted */
    cr_expect(ge(sz, result.client_bytes, 1000));
    cr_expect(le(sz, result.server_bytes, BYTES_EACH_MAX));
    cr_expect(le(sz, result.client_bytes, BYTES_EACH_MAX));
}

Test(many, fifty_endpoints_take_little_memory_tcp) { fifty(LINK_TCP); }
Test(many, fifty_endpoints_take_little_memory_shm) { fifty(LINK_SHM); }
Test(many, fifty_endpoints_take_little_memory_unix) { fifty(LINK_UNIX); }

/* 0: to no less than the system does. */
static void limit_descriptors(unsigned spare)
{
    struct rlimit limit;

    must_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur =
        spare == 0 ? limit.rlim_max : (rlim_t)count_descriptors() + spare;
    must_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

enum { SPARE = 24, TRIED = 60 };

typedef struct {
    link_t link;
    unsigned spare;
    bool at_server;
} shortage_t;

/* There and back by an endpoint. */
static void use(side_t *side, tmsg_endpoint_t *endpoint, uint64_t seed)
{
    tmsg_message_t *message;
    tmsg_request_t *sent =
        send_map(endpoint, sample_bytes(seed, 3000), TMSG_SEND_ACKED);

    must(side_finish(side, sent));
    must(tmsg_endpoint_recv(endpoint, PEERS_BOUND_MS, &message));
    sample_check_bytes(seed, 3000, tmsg_message_map(message));
    tmsg_message_destroy(message);
}

static tmsg_status_t connect_one(side_t *side, const char *url,
                                 tmsg_endpoint_t **endpoint_p)
{
    const tmsg_endpoint_params_t params = {
        .field_mask = TMSG_ENDPOINT_PARAM_CONNECT_TIMEOUT,
        .connect_timeout_ms = PEERS_CONNECT_MS};
    tmsg_request_t *ready;
    tmsg_status_t status =
        tmsg_endpoint_connect(side->worker, url, &params, endpoint_p);

    if (status == TMSG_OK) {
        must(tmsg_endpoint_ready(*endpoint_p, &ready));
        status = side_finish(side, ready);
        if (status != TMSG_OK) {
            tmsg_endpoint_destroy(*endpoint_p);
        }
    }
    return status;
}

/* Connects until that fails; says how, by the pipe. */
static void connect_until(pipes_t *pipes, void *arg)
{
    const shortage_t *shortage = arg;
    const side_options_t options = {.ucx_config = link_config(shortage->link)};
    tmsg_endpoint_t *endpoints[TRIED];
    tmsg_status_t status = TMSG_OK;
    unsigned count = 0;
    char url[256], line[1024];
    side_t side;

    line_get(pipes->in, url, sizeof(url));
    side_open(&side, &options);
    must(connect_one(&side, url, &endpoints[count++]));
    if (!shortage->at_server) {
        limit_descriptors(shortage->spare);
    }
    while (status == TMSG_OK && count < TRIED) {
        status = connect_one(&side, url, &endpoints[count]);
        count += status == TMSG_OK;
    }
    snprintf(line, sizeof(line), "%u %d %s", count, status,
             tmsg_error_message());
    for (unsigned i = 0; i < count; i++) {
        use(&side, endpoints[i], i);
    }
    for (unsigned i = 0; i < 5; i++) { /* makes room for another */
        tmsg_request_t *closed;

        must(tmsg_endpoint_close(endpoints[i], &closed));
        must(side_finish(&side, closed));
        tmsg_endpoint_destroy(endpoints[i]);
    }
    must(connect_one(&side, url, &endpoints[0]));
    use(&side, endpoints[0], 1000);
    line_put(pipes->out, line);
    side_close(&side);
}

typedef struct {
    side_t side;
    child_t child;
} server_t;

static bool answered_all(void *arg)
{
    server_t *server = arg;
    tmsg_message_t *message;
    struct pollfd fd = {server->child.in, POLLIN, 0};

    while (tmsg_worker_recv(server->side.worker, 0, &message) == TMSG_OK) {
        tmsg_endpoint_send(tmsg_message_endpoint(message),
                           tmsg_message_map(message), NULL, NULL);
        tmsg_message_destroy(message);
    }
    return poll(&fd, 1, 0) > 0;
}

static void ended(void *arg, tmsg_endpoint_t *endpoint, tmsg_status_t status,
                  const char *error)
{
    (void)arg;
    (void)status;
    (void)error;
    tmsg_endpoint_destroy(endpoint);
}

static void accepted(void *arg, tmsg_endpoint_t *endpoint)
{
    (void)arg;
    tmsg_endpoint_on_closed(endpoint, ended, NULL);
}

static void run_out(shortage_t *shortage, unsigned *count_p,
                    tmsg_status_t *status_p, char *words, size_t bytes)
{
    const side_options_t options = {.ucx_config = link_config(shortage->link)};
    const tmsg_listener_params_t params = {
        .field_mask = TMSG_LISTENER_PARAM_ON_ACCEPT, .on_accept = accepted};
    server_t server;
    int status;

    limit_descriptors(0);
    child_start(&server.child, connect_until, shortage);
    side_open(&server.side, &options);
    must(tmsg_listener_create(server.side.worker, "tcp://127.0.0.1:0", &params,
                              &server.side.listener));
    if (shortage->at_server) {
        limit_descriptors(shortage->spare);
    }
    line_put(server.child.out, tmsg_listener_url(server.side.listener));
    side_await(&server.side, answered_all, &server, "what the client says");
    line_get(server.child.in, words, bytes);
    must_eq(sscanf(words, "%u %d", count_p, &status), 2);
    *status_p = (tmsg_status_t)status;
    child_join(&server.child);
    side_close(&server.side);
}

/* Whatever is left when one more is tried: its own socket may find a
 * descriptor and UCX's none. */
static void client_runs_out(link_t link)
{
    for (unsigned spare = SPARE; spare < SPARE + 4; spare++) {
        shortage_t shortage = {link, spare, false};
        tmsg_status_t status;
        unsigned count;
        char words[1024];

        run_out(&shortage, &count, &status, words, sizeof(words));
        printf("%s, %u spare: %s\n", link_names[link], spare, words);
        cr_expect(ge(uint, count, 3));
        cr_expect(eq(int, status, TMSG_ERR_LIMIT_EXCEEDED));
        cr_expect(strstr(words, "RLIMIT_NOFILE") != NULL, "%s", words);
    }
}

Test(many, a_client_out_of_descriptors_says_so_and_goes_on_tcp)
{
    client_runs_out(LINK_TCP);
}

Test(many, a_client_out_of_descriptors_says_so_and_goes_on_shm)
{
    client_runs_out(LINK_SHM);
}

/* The client hears what its peer lacks. UCX would close its port for good where
 * it could not accept. */
static void server_runs_out(link_t link)
{
    for (unsigned spare = SPARE; spare < SPARE + 4; spare++) {
        shortage_t shortage = {link, spare, true};
        tmsg_status_t status;
        unsigned count;
        char words[1024];

        run_out(&shortage, &count, &status, words, sizeof(words));
        printf("%s, %u spare: %s\n", link_names[link], spare, words);
        cr_expect(ge(uint, count, 3));
        cr_expect(eq(int, status, TMSG_ERR_LIMIT_EXCEEDED));
        cr_expect(strstr(words, "by the peer") != NULL, "%s", words);
        cr_expect(strstr(words, "RLIMIT_NOFILE") != NULL, "%s", words);
    }
}

Test(many, a_server_out_of_descriptors_goes_on_tcp)
{
    server_runs_out(LINK_TCP);
}

Test(many, a_server_out_of_descriptors_goes_on_shm)
{
    server_runs_out(LINK_SHM);
}
