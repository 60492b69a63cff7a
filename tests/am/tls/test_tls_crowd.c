/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* A thousand strangers in the middle of TLS handshakes, and an honest peer
 * among them. Whoever of them is turned away comes back at once. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <malloc.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "am/tls/secured.h"
#include "support/raw_bootstrap.h"
#include "support/test_scale.h"

enum { CROWD = 1000, HELD = 100, PASSING = 500 };

typedef enum { HALF_HELLO, HELLO, WAYS } way_t;

static const char *const way_names[WAYS] = {"half a ClientHello",
                                            "a ClientHello"};

/* Processor's time of this process. */
static double seconds(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* Writes what a client says first. */
static size_t client_hello(uint8_t *data, size_t room)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL *ssl = SSL_new(context);
    BIO *out = BIO_new(BIO_s_mem());
    int bytes;

    SSL_set_alpn_protos(ssl, (const unsigned char *)"\x0btensormsg/1", 12);
    SSL_set_min_proto_version(ssl, TLS1_3_VERSION);
    SSL_set_bio(ssl, BIO_new(BIO_s_mem()), out);
    SSL_connect(ssl);
    bytes = BIO_read(out, data, (int)room);
    must_true(bytes > 0);
    SSL_free(ssl);
    SSL_CTX_free(context);
    return (size_t)bytes;
}

typedef struct {
    char url[256];
    uint8_t words[2048];
    size_t bytes;
    int epoll;
    int fds[CROWD];
} crowd_t;

static void come(crowd_t *crowd, int *fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = fd};

    do {
        *fd = raw_try_dial(crowd->url);
    } while (*fd < 0);
    must_eq(epoll_ctl(crowd->epoll, EPOLL_CTL_ADD, *fd, &event), 0);
    send(*fd, crowd->words, crowd->bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Until it is killed. It says when all have come. */
static void be_crowd(pipes_t *pipes, void *arg)
{
    crowd_t *crowd = calloc(1, sizeof(*crowd));
    struct epoll_event events[64];
    char junk[4096];

    line_get(pipes->in, crowd->url, sizeof(crowd->url));
    crowd->epoll = epoll_create1(EPOLL_CLOEXEC);
    crowd->bytes = client_hello(crowd->words, sizeof(crowd->words));
    if (*(const way_t *)arg == HALF_HELLO) {
        crowd->bytes /= 2;
    }
    for (int i = 0; i < CROWD; i++) {
        come(crowd, &crowd->fds[i]);
    }
    line_put(pipes->out, "all have come");
    for (;;) {
        int ready = epoll_wait(crowd->epoll, events, 64, -1);

        for (int i = 0; i < ready; i++) {
            int *fd = events[i].data.ptr;
            ssize_t got = recv(*fd, junk, sizeof(junk), MSG_DONTWAIT);

            if (got == 0 || (got < 0 && errno != EAGAIN)) {
                close(*fd);
                come(crowd, fd);
            }
        }
    }
}

/* Dials as an honest peer. A sanitizer, or others that take the processors,
 * make each ClientHello of the crowd cost so much that a dial may meet its
 * timeout; one of a few does not. Returns the processor's seconds of the one
 * that got in.
 */
static double dial_honestly(secured_t *secured)
{
    char words[512];

    for (int i = 0; i < 5; i++) {
        double began = seconds();

        if (secured_try(&secured->pair,
                        tmsg_listener_url(secured->pair.a.listener),
                        secured->by[1], words, sizeof(words)) == TMSG_OK) {
            return seconds() - began;
        }
    }
    die("an honest peer: %s", words);
}

/* Returns in how many seconds of this process an honest peer gets in, at best
 * of two: where others take the processors, it takes longer by the clock. */
static double get_in(secured_t *secured)
{
    double first = dial_honestly(secured), second = dial_honestly(secured);

    return first < second ? first : second;
}

static void listen_to_crowds(secured_t *secured, by_t by)
{
    secured_prepare(secured, by, DRIVE_THREAD);
    secured_listen(&secured->pair.a, SECURED_URL, secured->by[0], 0);
    get_in(secured);
}

Test(tls_crowd, an_honest_peer_gets_in)
{
    child_t crowds[WAYS];
    way_t ways[WAYS];
    secured_t secured;
    char line[64];

    for (way_t way = HALF_HELLO; way < WAYS; way++) {
        ways[way] = way;
        child_start(&crowds[way], be_crowd, &ways[way]);
    }
    listen_to_crowds(&secured, BY_CERTS);
    for (way_t way = HALF_HELLO; way < WAYS; way++) {
        double took;

        line_put(crowds[way].out, tmsg_listener_url(secured.pair.a.listener));
        line_get(crowds[way].in, line, sizeof(line));
        took = get_in(&secured);
        printf("%s: %.3f s\n", way_names[way], took);
        if (!is_slow()) {
            cr_expect(le(dbl, took, 1.0));
        }
        child_kill(&crowds[way]);
    }
    secured_drop(&secured);
}

/* Memory that a stranger takes in the middle of its handshake. Whoever has no
 * key is refused by its ClientHello, and takes none. */
static void measure_place(const secured_t *secured, const uint8_t *words,
                          size_t bytes)
{
    size_t before = mallinfo2().uordblks;
    char answer[8192];
    int held[HELD];

    for (int i = 0; i < HELD; i++) {
        held[i] = raw_dial(tmsg_listener_url(secured->pair.a.listener));
        raw_send(held[i], words, bytes);
        must_true(recv(held[i], answer, sizeof(answer), 0) > 0);
    }
    printf("%zu bytes a place\n", (mallinfo2().uordblks - before) / HELD);
    for (int i = 0; i < HELD; i++) {
        close(held[i]);
    }
}

/* The few calls of the stranger count as well. */
static void measure_time(const secured_t *secured, const char *by,
                         const uint8_t *words, size_t bytes)
{
    double began = seconds();
    char answer[8192];

    for (int i = 0; i < PASSING; i++) {
        int fd = raw_dial(tmsg_listener_url(secured->pair.a.listener));

        raw_send(fd, words, bytes);
        must_true(recv(fd, answer, sizeof(answer), 0) > 0);
        close(fd);
    }
    printf("%.0f us a ClientHello of %zu bytes, with %s\n",
           (seconds() - began) / PASSING * 1e6, bytes, by);
}

/* For docs/understand/security.md. */
Test(tls_crowd, a_client_hello_has_a_price)
{
    uint8_t words[2048];
    size_t bytes = client_hello(words, sizeof(words));
    secured_t secured;

    listen_to_crowds(&secured, BY_CERTS);
    measure_place(&secured, words, bytes);
    measure_time(&secured, "certificates", words, bytes);
    secured_drop(&secured);
    listen_to_crowds(&secured, BY_KEYS);
    measure_time(&secured, "keys", words, bytes);
    secured_drop(&secured);
}
