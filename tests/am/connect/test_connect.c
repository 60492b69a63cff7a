/* SPDX-License-Identifier: BSD-3-Clause */
/* Connecting and listening: what works, and which sockets are opened. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "am/listen/listener.h"
#include "am/net/resolve.h"
#include "support/peers.h"
#include "support/raw_bootstrap.h"
#include "support/seeded_maps.h"
#include "support/still_serves.h"

/* Connects, and returns the status and the error text. */
static tmsg_status_t outcome(side_t *side, const char *url, int timeout_ms,
                             char *words, size_t bytes)
{
    const tmsg_endpoint_params_t params = {
        .field_mask = TMSG_ENDPOINT_PARAM_CONNECT_TIMEOUT,
        .connect_timeout_ms = timeout_ms,
    };
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *ready;
    tmsg_status_t status;

    must(tmsg_endpoint_connect(side->worker, url, &params, &endpoint));
    must(tmsg_endpoint_ready(endpoint, &ready));
    status = side_wait(side, ready);
    snprintf(words, bytes, "%s", tmsg_request_error(ready));
    must_eq(tmsg_endpoint_status(endpoint), status);
    must_say(tmsg_endpoint_error(endpoint), words);
    tmsg_request_destroy(ready);
    tmsg_endpoint_destroy(endpoint);
    return status;
}

Test(connect, a_port_in_use_is_named)
{
    tmsg_listener_t *listener;
    side_t side;

    side_open(&side, NULL);
    side_listen(&side, "tcp://127.0.0.1:0");
    must_be(tmsg_listener_create(side.worker, tmsg_listener_url(side.listener),
                                 NULL, &listener),
            TMSG_ERR_ALREADY_EXISTS);
    must_say(tmsg_error_message(), tmsg_listener_url(side.listener));
    side_close(&side);
}

Test(connect, port_0_picks_a_free_port_and_says_which)
{
    side_t a, b;

    side_open(&a, NULL);
    side_open(&b, NULL);
    side_listen(&a, "tcp://127.0.0.1:0");
    side_listen(&b, "127.0.0.1:0");
    must_say(tmsg_listener_url(a.listener), "tcp://127.0.0.1:");
    cr_expect(
        not(zero(int, atoi(strrchr(tmsg_listener_url(a.listener), ':') + 1))));
    cr_expect(ne(str, (char *)(uintptr_t)tmsg_listener_url(a.listener),
                 (char *)(uintptr_t)tmsg_listener_url(b.listener)));
    side_serves(&b);
    side_close(&a);
    side_close(&b);
}

Test(connect, an_empty_host_is_loopback)
{
    side_t side;

    side_open(&side, NULL);
    side_listen(&side, "tcp://:0");
    must_say(tmsg_listener_url(side.listener), "tcp://127.0.0.1:");
    side_serves(&side);
    side_close(&side);
}

Test(connect, names_are_looked_up)
{
    char url[64];
    side_t side;

    side_open(&side, NULL);
    side_listen(&side, "tcp://localhost:0");
    snprintf(url, sizeof(url), "localhost%s",
             strrchr(tmsg_listener_url(side.listener), ':'));
    side_connect(&side, url);
    side_serves(&side);
    side_close(&side);
}

static side_t *looking_up;

/* Uses the worker for which a name is looked up. */
static int lookup_by_worker(const char *host, const char *service,
                            const struct addrinfo *hints,
                            struct addrinfo **result_p)
{
    (void)host;
    tmsg_worker_progress(looking_up->worker);
    return getaddrinfo("127.0.0.1", service, hints, result_p);
}

static void listen_in_a_callback(void *arg, tmsg_endpoint_t *endpoint)
{
    side_t *side = arg;
    tmsg_listener_t *listener;

    (void)endpoint;
    must_be(tmsg_listener_create(side->worker, "tcp://some.name:0", NULL,
                                 &listener),
            TMSG_ERR_WOULD_BLOCK);
    must_say(tmsg_error_message(), "some.name");
    must_be(
        tmsg_listener_create(side->worker, "blob://some.name", NULL, &listener),
        TMSG_ERR_WOULD_BLOCK);
    must(tmsg_listener_create(side->worker, "tcp://127.0.0.1:0", NULL,
                              &listener));
    side->accepts++;
}

/* A lookup of a name does not keep other threads from the worker. */
Test(connect, a_name_is_looked_up_without_the_workers_lock)
{
    static const char *const urls[] = {"tcp://some.name:0", "blob://some.name"};
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
                   .flags = TMSG_WORKER_SHARED}};
    side_t side;

    side_open(&side, &options);
    looking_up = &side;
    tmsg_resolve_set_lookup(lookup_by_worker);
    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
        side_listen(&side, urls[i]);
    }
    side_close(&side);
}

/* In a callback it would, so the call fails there. */
Test(connect, a_name_in_a_callback_would_block)
{
    side_t side;
    const tmsg_listener_params_t params = {
        .field_mask = TMSG_LISTENER_PARAM_ON_ACCEPT,
        .on_accept = listen_in_a_callback,
        .on_accept_arg = &side,
    };

    side_open(&side, NULL);
    must(tmsg_listener_create(side.worker, "tcp://127.0.0.1:0", &params,
                              &side.listener));
    side_dial(&side, &side);
    side_accept(&side);
    side_close(&side);
}

static bool has_ipv6(void)
{
    const struct sockaddr_in6 loopback = {.sin6_family = AF_INET6,
                                          .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    bool works = fd >= 0 && bind(fd, (const struct sockaddr *)&loopback,
                                 sizeof(loopback)) == 0;

    close(fd);
    return works;
}

Test(connect, ipv6_loopback_works)
{
    side_t side;

    if (!has_ipv6()) {
        cr_skip_test("no IPv6 on this machine");
    }
    side_open(&side, NULL);
    side_listen(&side, "tcp://[::1]:0");
    must_say(tmsg_listener_url(side.listener), "tcp://[::1]:");
    side_serves(&side);
    side_close(&side);
}

Test(connect, binding_beyond_loopback_needs_to_be_allowed)
{
    static const char *const urls[] = {"tcp://0.0.0.0:0", "tcp://[::]:0"};
    const tmsg_listener_params_t allowed = {
        .field_mask = TMSG_LISTENER_PARAM_ALLOW_UNAUTHENTICATED,
        .allow_unauthenticated = 1,
    };
    tmsg_listener_t *listener;
    side_t side;

    side_open(&side, NULL);
    for (size_t i = 0; i < 2; i++) {
        must_be(tmsg_listener_create(side.worker, urls[i], NULL, &listener),
                TMSG_ERR_INSECURE);
        must_say(tmsg_error_message(), urls[i]);
        must_say(tmsg_error_message(), "allow_unauthenticated");
        must(tmsg_listener_create(side.worker, urls[i], &allowed, &listener));
        tmsg_listener_destroy(listener);
    }
    must_be(
        tmsg_listener_create(side.worker, "blob://0.0.0.0", NULL, &listener),
        TMSG_ERR_INSECURE);
    side_close(&side);
}

Test(connect, an_unknown_host_is_not_found)
{
    char words[512];
    side_t side;

    side_open(&side, NULL);
    must_be(outcome(&side, "tcp://no-such-host.invalid:4000", 20000, words,
                    sizeof(words)),
            TMSG_ERR_NOT_FOUND);
    must_say(words, "no-such-host.invalid");
    side_close(&side);
}

Test(connect, nobody_listening_is_unreachable)
{
    char url[64], words[512];
    side_t side;
    int fd = raw_listen(url, sizeof(url));

    close(fd);
    side_open(&side, NULL);
    must_be(outcome(&side, url, 5000, words, sizeof(words)),
            TMSG_ERR_UNREACHABLE);
    must_say(words, url);
    must_be(outcome(&side, "unix:///tmp/tmsg-nobody-is-here", 5000, words,
                    sizeof(words)),
            TMSG_ERR_UNREACHABLE);
    must_say(words, "unix:///tmp/tmsg-nobody-is-here");
    side_close(&side);
}

Test(connect, malformed_urls_are_refused_by_name)
{
    static const char *const urls[] = {
        "",           "tcp://host",    "rdma://a:1", "tcp://a:65536",
        "unix://rel", "tcp://[::1:80", "blob://",    "tcp://a:1/x"};
    tmsg_endpoint_t *endpoint = NULL;
    side_t side;

    side_open(&side, NULL);
    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
        must_be(tmsg_endpoint_connect(side.worker, urls[i], NULL, &endpoint),
                TMSG_ERR_INVALID_PARAM);
        must_say(tmsg_error_message(), urls[i]);
        cr_expect(eq(ptr, endpoint, NULL));
    }
    side_close(&side);
}

Test(connect, a_silent_listener_times_out)
{
    char url[64], words[512];
    side_t side;
    int fd = raw_listen(url, sizeof(url));

    side_open(&side, NULL);
    must_be(outcome(&side, url, 300, words, sizeof(words)), TMSG_ERR_TIMED_OUT);
    must_say(words, url);
    side_close(&side);
    close(fd);
}

Test(connect, a_stale_socket_file_is_replaced_and_a_live_one_kept)
{
    tmsg_listener_t *listener;
    char url[256], path[200];
    struct stat file;
    side_t side;

    snprintf(path, sizeof(path), "%s", scratch_path("sock"));
    snprintf(url, sizeof(url), "unix://%s", path);
    side_open(&side, NULL);
    side_listen(&side, url);
    must_be(tmsg_listener_create(side.worker, url, NULL, &listener),
            TMSG_ERR_ALREADY_EXISTS);
    must_say(tmsg_error_message(), path);
    side_serves(&side);
    tmsg_listener_destroy(side.listener);
    must_true(stat(path, &file) != 0);
    side_close(&side);

    must_eq(close(open(path, O_CREAT | O_WRONLY, 0600)), 0);
    side_open(&side, NULL);
    must_be(tmsg_listener_create(side.worker, url, NULL, &listener),
            TMSG_ERR_ALREADY_EXISTS);
    must_eq(unlink(path), 0);
    side_close(&side);
}

static void listen_and_die(pipes_t *pipes, void *arg)
{
    side_t side;

    side_open(&side, NULL);
    side_listen(&side, arg);
    line_put(pipes->out, "listening");
    for (;;) {
        pause();
    }
}

Test(connect, the_socket_file_of_a_killed_listener_is_replaced)
{
    char url[256], line[32];
    struct stat file;
    child_t child;
    side_t side;

    snprintf(url, sizeof(url), "unix://%s", scratch_path("killed"));
    child_start(&child, listen_and_die, url);
    line_get(child.in, line, sizeof(line));
    child_kill(&child);
    must_eq(stat(url + 7, &file), 0);
    side_open(&side, NULL);
    side_listen(&side, url);
    side_serves(&side);
    side_close(&side);
}

/* Returns whether a socket is one of this process's. */
static bool is_ours(unsigned long inode)
{
    for (int fd = 0; fd < 256; fd++) {
        struct stat file;

        if (fstat(fd, &file) == 0 && S_ISSOCK(file.st_mode) &&
            file.st_ino == inode) {
            return true;
        }
    }
    return false;
}

/* Returns how many ports this process listens on, with or without those of
 * loopback. */
static int count_ports(bool loopback_too)
{
    static const char *const tables[] = {"/proc/net/tcp", "/proc/net/tcp6"};
    int count = 0;

    for (size_t i = 0; i < 2; i++) {
        FILE *table = fopen(tables[i], "r");
        char line[512], address[64];
        unsigned state;
        unsigned long inode;

        while (table != NULL && fgets(line, sizeof(line), table) != NULL) {
            if (sscanf(line, "%*s %63s %*s %x %*s %*s %*s %*s %*s %lu", address,
                       &state, &inode) == 3 &&
                state == 10 && is_ours(inode)) {
                bool loopback = strncmp(address, "0100007F:", 9) == 0 ||
                                strncmp(address,
                                        "0000000000000000000000000100"
                                        "0000:",
                                        33) == 0;

                count += loopback_too || !loopback;
            }
        }
        if (table != NULL) {
            fclose(table);
        }
    }
    return count;
}

Test(connect, unix_opens_no_port)
{
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    cr_expect(eq(int, count_ports(true), 0));
    cr_expect(endpoint_uses(pair.to_a, "posix/"));
    cr_expect(not(endpoint_uses(pair.to_a, "tcp/")));
    pair_close(&pair);
}

Test(connect, a_loopback_listener_opens_loopback_ports_alone)
{
    static const link_t links[] = {LINK_TCP, LINK_SHM, LINK_BLOB};

    for (size_t i = 0; i < 3; i++) {
        pair_t pair;

        pair_open(&pair, links[i], DRIVE_POLLING, NULL, NULL);
        cr_expect(ge(int, count_ports(true), 1));
        cr_expect(eq(int, count_ports(false), 0));
        pair_close(&pair);
    }
}

Test(connect, a_worker_may_connect_to_itself)
{
    for (link_t link = 0; link < LINKS; link++) {
        const side_options_t options = {.ucx_config = link_config(link)};
        tmsg_endpoint_t *endpoint;
        tmsg_message_t *message;
        side_t side;

        side_open(&side, &options);
        side_listen_link(&side, link);
        endpoint = side_dial(&side, &side);
        tmsg_request_destroy(send_map(endpoint, sample_bytes(4, 300000), 0));
        message = side_take(&side);
        sample_check_bytes(4, 300000, tmsg_message_map(message));
        tmsg_message_destroy(message);
        side_close(&side);
    }
}

Test(connect, sends_before_the_connection_wait_for_it)
{
    for (link_t link = 0; link < LINKS; link++) {
        const side_options_t options = {.ucx_config = link_config(link)};
        pair_t pair = {.to_a = NULL};

        pair.sides[0] = &pair.a;
        pair.sides[1] = &pair.b;
        side_open(&pair.a, &options);
        side_open(&pair.b, &options);
        side_listen_link(&pair.a, link);
        pair.to_a = side_dial(&pair.b, &pair.a);
        for (uint64_t i = 0; i < 10; i++) {
            tmsg_request_destroy(send_map(pair.to_a, sample_bytes(i, 99), 0));
        }
        for (uint64_t i = 0; i < 10; i++) {
            tmsg_message_t *message = pair_take(&pair, &pair.a);

            sample_check_bytes(i, 99, tmsg_message_map(message));
            tmsg_message_destroy(message);
        }
        pair_drop(&pair);
    }
}

Test(connect, sends_on_a_connection_that_fails_fail_with_its_error)
{
    char url[64];
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *sent;
    tmsg_map_t *map;
    side_t side;
    int fd = raw_listen(url, sizeof(url));

    close(fd);
    side_open(&side, NULL);
    must(tmsg_endpoint_connect(side.worker, url, NULL, &endpoint));
    sent = send_map(endpoint, sample_bytes(1, 10), 0);
    must_be(side_wait(&side, sent), TMSG_ERR_UNREACHABLE);
    must_say(tmsg_request_error(sent), url);
    tmsg_request_destroy(sent);
    map = sample_bytes(1, 10);
    must_be(tmsg_endpoint_send(endpoint, map, NULL, &sent),
            TMSG_ERR_UNREACHABLE);
    must_say(tmsg_error_message(), url);
    tmsg_map_destroy(map);
    side_close(&side);
}

__attribute__((weak)) void __lsan_disable(void);
__attribute__((weak)) void __lsan_enable(void);

Test(connect, a_blob_of_a_listener_that_is_gone_fails_in_time)
{
    const tmsg_endpoint_params_t params = {
        .field_mask = TMSG_ENDPOINT_PARAM_CONNECT_TIMEOUT,
        .connect_timeout_ms = 500,
    };
    tmsg_endpoint_t *endpoint;
    uint8_t copy[4096];
    const void *blob;
    size_t bytes;
    side_t a, b;

    side_open(&a, NULL);
    side_open(&b, NULL);
    side_listen(&a, "blob://");
    must(tmsg_listener_blob(a.listener, &blob, &bytes));
    must_true(bytes <= sizeof(copy));
    memcpy(copy, blob, bytes);
    tmsg_listener_destroy(a.listener);
    if (tmsg_endpoint_connect_blob(b.worker, copy, bytes, &params, &endpoint) ==
        TMSG_OK) {
        must_true(side_end_of(&b, endpoint) < 0);
    }
    side_close(&a);
    /* UCX 1.13 leaks what it made for a segment that it could not attach. */
    if (__lsan_disable != NULL) {
        __lsan_disable();
    }
    if (tmsg_endpoint_connect_blob(b.worker, copy, bytes, &params, &endpoint) ==
        TMSG_OK) {
        must_true(side_end_of(&b, endpoint) < 0);
    }
    if (__lsan_enable != NULL) {
        __lsan_enable();
    }
    side_close(&b);
}

Test(connect, only_a_blob_listener_has_a_blob)
{
    const void *blob;
    size_t bytes;
    side_t side;

    side_open(&side, NULL);
    side_listen(&side, "tcp://:0");
    must_be(tmsg_listener_blob(side.listener, &blob, &bytes),
            TMSG_ERR_INVALID_PARAM);
    side_close(&side);
}

/* Takes every descriptor there is. */
static size_t exhaust(int *fds, size_t most)
{
    struct rlimit limit;
    size_t used = 0;

    must_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = (rlim_t)count_descriptors() + 70;
    must_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    while (used < most && (fds[used] = open("/dev/null", O_RDONLY)) >= 0) {
        used++;
    }
    must_eq(errno, EMFILE);
    return used;
}

Test(connect, running_out_of_descriptors_is_said_and_survived)
{
    raw_reader_t reader = {.bytes = 0};
    tmsg_endpoint_t *endpoint;
    tmsg_worker_t *worker;
    int fds[200];
    size_t used;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    reader.fd = raw_dial(tmsg_listener_url(pair.a.listener));
    raw_send(reader.fd, "garbage", 7);
    used = exhaust(fds, 200);
    must_be(tmsg_endpoint_connect(pair.b.worker,
                                  tmsg_listener_url(pair.a.listener), NULL,
                                  &endpoint),
            TMSG_ERR_LIMIT_EXCEEDED);
    must_be(tmsg_worker_create(pair.a.context, NULL, &worker),
            TMSG_ERR_LIMIT_EXCEEDED);
    for (int i = 0; i < 10000; i++) {
        tmsg_worker_progress(pair.a.worker);
    }
    while (used > 0) {
        close(fds[--used]);
    }
    /* A peer that came meanwhile waited in the kernel's queue. */
    pair_await(&pair, raw_closed, &reader, "a connection that waited");
    close(reader.fd);
    endpoint = side_dial(&pair.b, &pair.a);
    tmsg_request_destroy(send_map(endpoint, sample_bytes(1, 10), 0));
    tmsg_message_destroy(pair_take(&pair, &pair.a));
    pair_close(&pair);
}

/* UCX takes some 25 descriptors, and aborts when there are none left. */
Test(connect, too_few_descriptors_for_ucx_are_said_in_words)
{
    for (size_t left = 1; left < 60; left += 7) {
        tmsg_listener_t *listener;
        tmsg_status_t status;
        int fds[200];
        size_t used;
        side_t side;

        side_open(&side, NULL);
        used = exhaust(fds, 200);
        for (size_t i = 0; i < left && used > 0; i++) {
            close(fds[--used]);
        }
        status = tmsg_listener_create(side.worker, "tcp://127.0.0.1:0", NULL,
                                      &listener);
        if (status != TMSG_OK) {
            must_be(status, TMSG_ERR_LIMIT_EXCEEDED);
        }
        while (used > 0) {
            close(fds[--used]);
        }
        side_close(&side);
    }
}

/* Fills the queue of a listener that takes nothing. */
static void fill_queue(const side_t *side, int *fds, size_t most)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t count = 0;
    int failed;

    snprintf(address.sun_path, sizeof(address.sun_path), "%s",
             tmsg_listener_url(side->listener) + strlen("unix://"));
    must_eq(listen(side->listener->sock.fd, 1), 0); /* a short queue */
    do {
        must_true(count < most);
        fds[count] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
        failed = connect(fds[count], (const struct sockaddr *)&address,
                         sizeof(address));
        count += failed == 0;
    } while (failed == 0);
    must_eq(errno, EAGAIN);
    close(fds[count]);
    while (count < most) {
        fds[count++] = -1;
    }
}

static bool endpoint_stands(void *endpoint)
{
    return tmsg_endpoint_status(endpoint) == TMSG_OK;
}

Test(connect, a_full_queue_is_waited_for)
{
    tmsg_endpoint_t *endpoint;
    char words[300];
    int fds[8];
    pair_t pair;

    side_open(&pair.a, NULL);
    side_listen_link(&pair.a, LINK_UNIX);
    side_open(&pair.b, NULL);
    pair.sides[0] = &pair.a;
    pair.sides[1] = &pair.b;
    fill_queue(&pair.a, fds, 8);
    must_be(outcome(&pair.b, tmsg_listener_url(pair.a.listener), 100, words,
                    sizeof(words)),
            TMSG_ERR_TIMED_OUT);
    must_say(words, "queue was full");
    endpoint = side_dial(&pair.b, &pair.a);
    tmsg_worker_progress(pair.b.worker);
    must_be(tmsg_endpoint_status(endpoint), TMSG_IN_PROGRESS);
    for (int i = 0; i < 8; i++) {
        close(fds[i]);
    }
    pair_await(&pair, endpoint_stands, endpoint, "a connection");
    side_close(&pair.b);
    side_close(&pair.a);
}

/* Behind the first address nobody answers. */
static int two_addresses(const char *host, const char *service,
                         const struct addrinfo *hints,
                         struct addrinfo **result_p)
{
    int error = getaddrinfo("127.0.0.2", service, hints, result_p);

    (void)host;
    must_true(error == 0 && (*result_p)->ai_next == NULL);
    return getaddrinfo("127.0.0.1", service, hints, &(*result_p)->ai_next);
}

static int dial_silence(uint16_t port)
{
    const struct sockaddr_in at = {.sin_family = AF_INET,
                                   .sin_port = htons(port),
                                   .sin_addr.s_addr = htonl(0x7f000002)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    must_eq(connect(fd, (const struct sockaddr *)&at, sizeof(at)), 0);
    return fd;
}

/* Its queue has room for one. */
static int listen_silently(uint16_t port)
{
    const struct sockaddr_in at = {.sin_family = AF_INET,
                                   .sin_port = htons(port),
                                   .sin_addr.s_addr = htonl(0x7f000002)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    must_eq(bind(fd, (const struct sockaddr *)&at, sizeof(at)), 0);
    must_eq(listen(fd, 0), 0);
    return fd;
}

Test(connect, to_the_address_that_answers)
{
    const tmsg_endpoint_params_t params = {
        .field_mask = TMSG_ENDPOINT_PARAM_CONNECT_TIMEOUT,
        .connect_timeout_ms = 6000};
    tmsg_request_t *ready;
    int silent, first;
    tmsg_url_t url;
    char named[64];
    pair_t pair;

    memset(&pair, 0, sizeof(pair));
    pair.sides[0] = &pair.a;
    pair.sides[1] = &pair.b;
    side_open(&pair.a, NULL);
    side_open(&pair.b, NULL);
    side_listen(&pair.a, "tcp://127.0.0.1:0");
    must(tmsg_url_parse(tmsg_listener_url(pair.a.listener), &url));
    silent = listen_silently(url.port);
    first = dial_silence(url.port);
    snprintf(named, sizeof(named), "tcp://two.addresses:%u", url.port);
    tmsg_resolve_set_lookup(two_addresses);
    must(tmsg_endpoint_connect(pair.b.worker, named, &params, &pair.to_a));
    must(tmsg_endpoint_ready(pair.to_a, &ready));
    must(pair_finish(&pair, ready));
    tmsg_resolve_set_lookup(NULL);
    pair_drop(&pair);
    close(first);
    close(silent);
}
