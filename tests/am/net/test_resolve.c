/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "am/net/resolve.h"
#include "am/net/url.h"
#include "support/failing_alloc.h"

#define BOUND_MS 10000

static bool is_readable(int fd)
{
    struct pollfd poller = {.fd = fd, .events = POLLIN};

    return poll(&poller, 1, 0) == 1;
}

static const char *text_of(const tmsg_address_t *address)
{
    static char text[TMSG_URL_TEXT_BYTES];

    return tmsg_url_format_sockaddr(&address->sa.any, address->bytes, text,
                                    sizeof(text));
}

/* Stands for a name server that answers when the test lets it. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t change;
    bool open;
    int error; /* what to answer; 0: the addresses of `numeric` */
    int finished;
} server = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0, 0};

static int slow_lookup(const char *host, const char *service,
                       const struct addrinfo *hints, struct addrinfo **result)
{
    int error;

    (void)host;
    pthread_mutex_lock(&server.lock);
    while (!server.open) {
        pthread_cond_wait(&server.change, &server.lock);
    }
    error = server.error;
    pthread_mutex_unlock(&server.lock);
    if (error == 0) {
        error = getaddrinfo("127.0.0.1", service, hints, result);
    }
    errno = EIO;
    pthread_mutex_lock(&server.lock);
    server.finished++;
    pthread_cond_broadcast(&server.change);
    pthread_mutex_unlock(&server.lock);
    return error;
}

static void open_server(int error)
{
    pthread_mutex_lock(&server.lock);
    server.open = true;
    server.error = error;
    pthread_cond_broadcast(&server.change);
    pthread_mutex_unlock(&server.lock);
}

static void wait_finished(int count)
{
    pthread_mutex_lock(&server.lock);
    while (server.finished < count) {
        pthread_cond_wait(&server.change, &server.lock);
    }
    pthread_mutex_unlock(&server.lock);
}

static const struct {
    const char *host, *text;
} numeric[] = {{"127.0.0.1", "tcp://127.0.0.1:4000"},
               {"::1", "tcp://[::1]:4000"},
               {"fe80::1%lo", "tcp://[fe80::1%lo]:4000"},
               {"0.0.0.0", "tcp://0.0.0.0:4000"},
               {"", "tcp://127.0.0.1:4000"}};

Test(resolve, gives_numeric_addresses_at_once)
{
    tmsg_resolve_set_lookup(slow_lookup); /* which would never answer */
    for (size_t i = 0; i < sizeof(numeric) / sizeof(numeric[0]); i++) {
        const tmsg_address_t *addresses;
        tmsg_resolve_t *resolve;
        size_t count;

        cr_assert(eq(int,
                     tmsg_resolve_start(numeric[i].host, 4000, i % 2, &resolve),
                     TMSG_OK));
        cr_expect(is_readable(tmsg_resolve_fd(resolve)));
        cr_assert(
            eq(int, tmsg_resolve_take(resolve, &addresses, &count), TMSG_OK));
        cr_assert(eq(sz, count, 1));
        cr_expect_str_eq(text_of(addresses), numeric[i].text);
        tmsg_resolve_abandon(resolve);
    }
}

Test(resolve, finds_localhost)
{
    const tmsg_address_t *addresses;
    tmsg_resolve_t *resolve;
    size_t count;

    cr_assert(
        eq(int, tmsg_resolve_start("localhost", 7, true, &resolve), TMSG_OK));
    cr_assert(eq(int, tmsg_resolve_wait(resolve, BOUND_MS), TMSG_OK));
    cr_assert(eq(int, tmsg_resolve_take(resolve, &addresses, &count), TMSG_OK));
    cr_expect_str_eq(text_of(addresses), "tcp://127.0.0.1:7");
    tmsg_resolve_abandon(resolve);
}

Test(resolve, names_the_device_that_is_missing)
{
    const tmsg_address_t *addresses;
    tmsg_resolve_t *resolve;
    size_t count;

    cr_assert(eq(int, tmsg_resolve_start("fe80::1%none0", 7, false, &resolve),
                 TMSG_OK));
    tmsg_resolve_wait(resolve, BOUND_MS);
    cr_expect(eq(int, tmsg_resolve_take(resolve, &addresses, &count),
                 TMSG_ERR_NOT_FOUND));
    cr_expect_str_eq(tmsg_error_message(),
                     "host 'fe80::1%none0' not found: this host has no network "
                     "device 'none0'");
    tmsg_resolve_abandon(resolve);
}

static int two_families(const char *host, const char *service,
                        const struct addrinfo *hints, struct addrinfo **result)
{
    int error = getaddrinfo("::1", service, hints, result);

    (void)host;
    return error != 0
               ? error
               : getaddrinfo("127.0.0.1", service, hints, &(*result)->ai_next);
}

Test(resolve, keeps_the_order_unless_it_is_for_listening)
{
    static const char *const expected[2][2] = {
        {"tcp://[::1]:80", "tcp://127.0.0.1:80"},
        {"tcp://127.0.0.1:80", "tcp://[::1]:80"}};

    tmsg_resolve_set_lookup(two_families);
    for (int passive = 0; passive < 2; passive++) {
        const tmsg_address_t *addresses;
        tmsg_resolve_t *resolve;
        size_t count;

        cr_assert(
            eq(int, tmsg_resolve_start("two", 80, passive, &resolve), TMSG_OK));
        cr_assert(eq(int, tmsg_resolve_wait(resolve, BOUND_MS), TMSG_OK));
        cr_assert(
            eq(int, tmsg_resolve_take(resolve, &addresses, &count), TMSG_OK));
        cr_assert(eq(sz, count, 2));
        cr_expect_str_eq(text_of(&addresses[0]), expected[passive][0]);
        cr_expect_str_eq(text_of(&addresses[1]), expected[passive][1]);
        tmsg_resolve_abandon(resolve);
    }
}

Test(resolve, is_in_progress_until_the_answer_is_there)
{
    const tmsg_address_t *addresses;
    tmsg_resolve_t *resolve;
    size_t count;

    tmsg_resolve_set_lookup(slow_lookup);
    cr_assert(
        eq(int, tmsg_resolve_start("slow", 80, false, &resolve), TMSG_OK));
    cr_expect(not(is_readable(tmsg_resolve_fd(resolve))));
    cr_expect(eq(int, tmsg_resolve_take(resolve, &addresses, &count),
                 TMSG_IN_PROGRESS));
    cr_expect(eq(int, tmsg_resolve_wait(resolve, 0), TMSG_ERR_TIMED_OUT));
    cr_expect_str_eq(tmsg_error_message(),
                     "host 'slow': no answer within 0 ms");
    cr_expect(eq(int, tmsg_resolve_wait(resolve, 20), TMSG_ERR_TIMED_OUT));
    open_server(0);
    cr_expect(eq(int, tmsg_resolve_wait(resolve, -1), TMSG_OK));
    cr_expect(is_readable(tmsg_resolve_fd(resolve)));
    for (int i = 0; i < 2; i++) {
        cr_assert(
            eq(int, tmsg_resolve_take(resolve, &addresses, &count), TMSG_OK));
        cr_expect_str_eq(text_of(addresses), "tcp://127.0.0.1:80");
    }
    tmsg_resolve_abandon(resolve);
}

static const struct {
    int error;
    tmsg_status_t status;
    const char *message;
} failures[] = {
    {EAI_NONAME, TMSG_ERR_NOT_FOUND,
     "host 'x' not found: Name or service not known"},
    {EAI_AGAIN, TMSG_ERR_NOT_FOUND,
     "host 'x' not found: Temporary failure in name resolution"},
    {EAI_MEMORY, TMSG_ERR_NO_MEMORY, "no memory for looking up a host"},
    {EAI_SYSTEM, TMSG_ERR_IO, "looking up host 'x': Input/output error"},
};

Test(resolve, says_why_a_host_is_not_found)
{
    tmsg_resolve_set_lookup(slow_lookup);
    for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
        const tmsg_address_t *addresses = NULL;
        tmsg_resolve_t *resolve;
        size_t count;

        open_server(failures[i].error);
        cr_assert(
            eq(int, tmsg_resolve_start("x", 80, false, &resolve), TMSG_OK));
        cr_expect(
            eq(int, tmsg_resolve_wait(resolve, BOUND_MS), failures[i].status));
        cr_expect_str_eq(tmsg_error_message(), failures[i].message);
        cr_expect(eq(int, tmsg_resolve_take(resolve, &addresses, &count),
                     failures[i].status));
        cr_expect(addresses == NULL);
        tmsg_resolve_abandon(resolve);
    }
}

Test(resolve, is_abandoned_without_waiting)
{
    tmsg_resolve_t *resolve;
    int fd;

    tmsg_resolve_set_lookup(slow_lookup);
    cr_assert(
        eq(int, tmsg_resolve_start("slow", 80, false, &resolve), TMSG_OK));
    fd = tmsg_resolve_fd(resolve);
    tmsg_resolve_abandon(resolve); /* the server is still closed */
    cr_expect(fcntl(fd, F_GETFD) == -1, "the descriptor is still open");
    open_server(0);
    wait_finished(1);
    tmsg_resolve_abandon(NULL);
}

Test(resolve, says_that_there_are_no_descriptors_left)
{
    struct rlimit limit;
    tmsg_resolve_t *resolve;

    cr_assert(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = (rlim_t)dup(0);
    close((int)limit.rlim_cur);
    cr_assert(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    cr_expect(eq(int, tmsg_resolve_start("127.0.0.1", 80, false, &resolve),
                 TMSG_ERR_LIMIT_EXCEEDED));
}

Test(resolve, leaves_nothing_behind_when_an_allocation_fails)
{
    tmsg_status_t status = TMSG_ERR_NO_MEMORY;
    bool failed = true;

    for (unsigned long n = 1; failed; n++) {
        tmsg_resolve_t *resolve = NULL;
        const tmsg_address_t *addresses;
        size_t count;

        failing_alloc_arm(n);
        status = tmsg_resolve_start("127.0.0.1", 80, false, &resolve);
        if (status == TMSG_OK) {
            status = tmsg_resolve_take(resolve, &addresses, &count);
        }
        failed = failing_alloc_disarm();
        cr_expect(eq(int, status, failed ? TMSG_ERR_NO_MEMORY : TMSG_OK));
        tmsg_resolve_abandon(resolve);
    }
    cr_expect(eq(int, status, TMSG_OK));
}
