/* SPDX-License-Identifier: BSD-3-Clause */
/* A thousand strangers at a listener without a key, and an honest peer among
 * them. Whoever of them is turned away comes back at once. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "am/endpoint/endpoint.h"
#include "am/listen/places.h"
#include "am/ucx/deferred.h"
#include "am/ucx/linger.h"
#include "support/peers.h"
#include "support/raw_bootstrap.h"
#include "support/test_scale.h"

#define CROWD 1000
#define FRAME_HELLO 1
#define CROWD_COMES_MS 60000 /* on a machine that is busy with others */
#define DRIP_MS 20
/* Places, strangers that are waited for (ucx/linger.h), and UCX workers, of
 * which UCX 1.22 opens more descriptors. */
#define DESCRIPTORS_MOST (128 + 64 + 8 + 200)
#define DEAF_MOST 4000 /* of those who keep each socket */

typedef enum {
    IDLE,
    DRIP,       /* a byte of a hello now and then */
    HALF_FRAME, /* all of a hello but its last byte */
    GARBAGE,
    BENT_HELLO,
    RIGHT_HELLO, /* and then nothing more */
    DEAF,        /* the same, and its socket stays open for ever */
    WAYS
} way_t;

static const char *const way_names[WAYS] = {
    "idle",         "drip",          "half a frame", "garbage",
    "a bent hello", "a right hello", "deaf"};

typedef struct {
    int fd;
    size_t said;
} stranger_t;

typedef struct {
    way_t way;
    const char *url;
    size_t count;
    uint8_t words[8192]; /* magic and hello */
    size_t bytes;
    unsigned seed;
    int epoll;
    stranger_t strangers[CROWD];
} crowd_t;

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* What a stranger says first. */
static void speak(crowd_t *crowd, stranger_t *stranger)
{
    uint8_t bent[sizeof(crowd->words)];
    size_t bytes = crowd->bytes, place;

    memcpy(bent, crowd->words, bytes);
    switch (crowd->way) {
    case IDLE:
    case DRIP:
        return;
    case HALF_FRAME:
        bytes--;
        break;
    case GARBAGE:
        memset(bent, 'a' + rand_r(&crowd->seed) % 20, bytes);
        break;
    case BENT_HELLO:
        place = 13 + (size_t)rand_r(&crowd->seed) % (bytes - 13);
        bent[place] ^= (uint8_t)(1u << rand_r(&crowd->seed) % 8);
        break;
    default:
        break;
    }
    send(stranger->fd, bent, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void come(crowd_t *crowd, stranger_t *stranger)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = stranger};

    stranger->said = 0;
    do {
        stranger->fd = raw_try_dial(crowd->url);
    } while (stranger->fd < 0);
    must_eq(epoll_ctl(crowd->epoll, EPOLL_CTL_ADD, stranger->fd, &event), 0);
    speak(crowd, stranger);
}

static void drip(crowd_t *crowd)
{
    for (size_t i = 0; i < crowd->count; i++) {
        stranger_t *stranger = &crowd->strangers[i];

        send(stranger->fd, crowd->words + stranger->said, 1,
             MSG_NOSIGNAL | MSG_DONTWAIT);
        stranger->said = (stranger->said + 1) % crowd->bytes;
    }
}

/* A hello that a listener finds good: its own, as another process says it. */
static void overhear(crowd_t *crowd)
{
    raw_reader_t reader = {.fd = raw_dial(crowd->url)};
    const struct timespec pause = {.tv_nsec = 1000000};
    tmsg_hello_t hello;
    const char *frame;

    raw_hello(&hello);
    raw_send_magic(reader.fd);
    raw_send_hello(reader.fd, &hello);
    while (!raw_closed(&reader)) {
        nanosleep(&pause, NULL);
    }
    close(reader.fd);
    frame = raw_find_frame(&reader, FRAME_HELLO, 0);
    must_true(frame != NULL);
    must(tmsg_hello_decode(frame, raw_frame_bytes(&reader, FRAME_HELLO),
                           &hello));
    hello.pid = (uint32_t)getpid();
    memset(hello.instance_id, 7, sizeof(hello.instance_id));
    memcpy(crowd->words, "TMSGBOOT", 8);
    must(tmsg_hello_encode(&hello, crowd->words + 13, sizeof(crowd->words) - 13,
                           &crowd->bytes));
    crowd->words[8] = (uint8_t)crowd->bytes;
    crowd->words[9] = (uint8_t)(crowd->bytes >> 8);
    crowd->words[12] = FRAME_HELLO;
    crowd->bytes += 13;
}

/* All that a process of strangers does, until it is killed: it says when all
 * have come. */
static void be_crowd(pipes_t *pipes, way_t way, bool returns)
{
    crowd_t *crowd = calloc(1, sizeof(*crowd));
    struct pollfd called = {pipes->in, POLLIN, 0};
    struct epoll_event events[64];
    uint64_t dripped_ms = 0;
    unsigned kept = 0;
    char url[256], junk[4096];

    crowd->way = way;
    crowd->count = is_slow() ? CROWD / 10 : CROWD;
    crowd->epoll = epoll_create1(EPOLL_CLOEXEC);
    must_eq(poll(&called, 1, -1), 1); /* its turn may be late */
    line_get(pipes->in, url, sizeof(url));
    crowd->url = url;
    overhear(crowd);
    for (size_t i = 0; i < crowd->count; i++) {
        come(crowd, &crowd->strangers[i]);
    }
    line_put(pipes->out, "all have come");
    for (;;) {
        int ready = epoll_wait(crowd->epoll, events, 64, DRIP_MS);

        for (int i = 0; i < ready; i++) {
            stranger_t *stranger = events[i].data.ptr;

            ssize_t got = recv(stranger->fd, junk, sizeof(junk), MSG_DONTWAIT);
            if (got == 0 || (got < 0 && errno != EAGAIN)) {
                epoll_ctl(crowd->epoll, EPOLL_CTL_DEL, stranger->fd, NULL);
                if (crowd->way != DEAF) {
                    close(stranger->fd);
                }
                stranger->fd = -1;
                if (returns && (crowd->way != DEAF || ++kept < DEAF_MOST)) {
                    come(crowd, stranger);
                }
            }
        }
        if (crowd->way == DRIP && now_ms() - dripped_ms >= DRIP_MS) {
            drip(crowd);
            dripped_ms = now_ms();
        }
    }
}

static void run_crowd(pipes_t *pipes, void *arg)
{
    be_crowd(pipes, *(const way_t *)arg, true);
}

static void run_sitters(pipes_t *pipes, void *arg)
{
    be_crowd(pipes, *(const way_t *)arg, false);
}

/* How long a thread of this process, whichever it is, has waited for a
 * processor that others had, by proc(5)'s schedstat; 0 where the kernel does
 * not count that. */
static uint64_t kept_waiting_ms(void)
{
    DIR *threads = opendir("/proc/self/task");
    unsigned long long most_ns = 0, ns;
    const struct dirent *thread;
    char path[300];
    FILE *file;

    must_true(threads != NULL);
    while ((thread = readdir(threads)) != NULL) {
        snprintf(path, sizeof(path), "/proc/self/task/%s/schedstat",
                 thread->d_name);
        file = fopen(path, "re");
        if (file != NULL) {
            if (fscanf(file, "%*u %llu", &ns) == 1 && ns > most_ns) {
                most_ns = ns;
            }
            fclose(file);
        }
    }
    closedir(threads);
    return most_ns / 1000000;
}

/* How long it takes an honest peer to get in: the least or the most of some
 * tries, in milliseconds. Of a try, half of which was a wait for a processor,
 * as beside other programs, there is one more: up to three times as many. */
typedef struct {
    uint64_t least, most;
} times_t;

static times_t get_in(side_t *honest, const char *url, int tries)
{
    times_t times = {.least = UINT64_MAX};
    int more = 3 * tries;

    for (int i = 0; i < tries; i++) {
        uint64_t waited_ms = kept_waiting_ms(), took_ms, began_ms = now_ms();

        tmsg_endpoint_destroy(side_connect(honest, url));
        took_ms = now_ms() - began_ms;
        times.least = took_ms < times.least ? took_ms : times.least;
        times.most = took_ms > times.most ? took_ms : times.most;
        if (kept_waiting_ms() > waited_ms + took_ms / 2 && more-- > 0) {
            i--;
        }
    }
    return times;
}

static void begin_crowd(child_t *crowd, const char *url)
{
    struct pollfd come = {crowd->in, POLLIN, 0};
    char line[64];

    line_put(crowd->out, url);
    must_eq(poll(&come, 1, CROWD_COMES_MS), 1);
    line_get(crowd->in, line, sizeof(line));
}

/* One crowd after the other, each in its own process and made before UCX is
 * opened here. */
static void expect_served(link_t link)
{
    child_t crowds[WAYS];
    way_t ways[WAYS];
    side_t server, honest;
    const char *url;
    int before;

    for (way_t way = 0; way < WAYS; way++) {
        ways[way] = way;
        child_start(&crowds[way], run_crowd, &ways[way]);
    }
    side_open(&server, &(side_options_t){.drive = DRIVE_THREAD});
    side_listen_link(&server, link);
    url = tmsg_listener_url(server.listener);
    side_open(&honest, NULL);
    get_in(&honest, url, 1);
    before = count_descriptors();
    for (way_t way = 0; way < WAYS; way++) {
        if (is_due(way + (size_t)link)) {
            times_t times;

            begin_crowd(&crowds[way], url);
            times = get_in(&honest, url, 2);
            printf("%s, %s: %llu ms, %llu ms\n", link_names[link],
                   way_names[way], (unsigned long long)times.least,
                   (unsigned long long)times.most);
            if (!is_slow()) {
                cr_expect(le(ullong, times.least, 1000));
            }
            cr_expect(le(int, count_descriptors(), before + DESCRIPTORS_MOST));
        }
        child_kill(&crowds[way]);
    }
    side_close(&honest);
    side_close(&server);
}

Test(crowd, an_honest_peer_gets_in_by_tcp) { expect_served(LINK_SHM); }
Test(crowd, an_honest_peer_gets_in_by_unix) { expect_served(LINK_UNIX); }

static tmsg_endpoint_t *place_one(tmsg_listener_t *listener, bool address_done,
                                  uint64_t ms)
{
    tmsg_endpoint_t *endpoint = calloc(1, sizeof(*endpoint));

    endpoint->link.url.kind = TMSG_URL_TCP;
    endpoint->link.hello_done = true;
    endpoint->link.hello_ns = ms * 1000000;
    endpoint->link.address_done = address_done;
    endpoint->link.address_ns = ms * 1000000;
    tmsg_places_take(listener, endpoint, -1);
    return endpoint;
}

/* A right address may name a port that does not answer. */
Test(crowd, without_keys_who_has_sent_an_address_makes_way_last)
{
    tmsg_listener_t listener = {.max_handshakes = 3};
    tmsg_endpoint_t *first = place_one(&listener, true, 1000);
    tmsg_endpoint_t *second = place_one(&listener, true, 1010);
    tmsg_endpoint_t *spoken = place_one(&listener, false, 1400);
    uint64_t wait_ns = 0;

    cr_expect(tmsg_places_choose(&listener, 1499000000, &wait_ns) == spoken);
    cr_expect(tmsg_places_choose(&listener, 1501000000, &wait_ns) == spoken);
    tmsg_places_leave(&listener, spoken);
    cr_expect(tmsg_places_choose(&listener, 1499000000, &wait_ns) == NULL);
    cr_expect(eq(ullong, wait_ns, 1000000));
    cr_expect(tmsg_places_choose(&listener, 1501000000, &wait_ns) == first);
    tmsg_places_leave(&listener, first);
    cr_expect(tmsg_places_choose(&listener, 1511000000, &wait_ns) == second);
    cr_expect(tmsg_places_may_go(second));
    tmsg_places_leave(&listener, second);
    free(first);
    free(second);
    free(spoken);
}

/* Strangers who sit on their places, and do not come back when they are turned
 * away, cost an honest peer no time. */
Test(crowd, who_only_sits_there_costs_no_time)
{
    static way_t ways[] = {HALF_FRAME, RIGHT_HELLO, DEAF};
    child_t crowds[3];
    side_t server, honest;
    times_t alone, beside;
    const char *url;

    for (size_t i = 0; i < 3; i++) {
        child_start(&crowds[i], run_sitters, &ways[i]);
    }
    side_open(&server, &(side_options_t){.drive = DRIVE_THREAD});
    side_listen_link(&server, LINK_SHM);
    url = tmsg_listener_url(server.listener);
    side_open(&honest, NULL);
    get_in(&honest, url, 1); /* UCX is open */
    alone = get_in(&honest, url, 5);
    for (size_t i = 0; i < 3; i++) {
        begin_crowd(&crowds[i], url);
    }
    beside = get_in(&honest, url, 5);
    printf("%llu ms alone, %llu ms beside\n", (unsigned long long)alone.least,
           (unsigned long long)beside.least);
    if (!is_slow()) {
        cr_expect(le(ullong, beside.least, 2 * alone.least + 30));
    }
    side_close(&honest);
    /* Those who hold a place, and keep their sockets, are strangers still. */
    tmsg_listener_destroy(server.listener);
    side_close(&server);
    while (tmsg_deferred_is_waiting()) {
        poll(NULL, 0, 10);
    }
    must_eq(tmsg_linger_count_late(), 0);
    for (size_t i = 0; i < 3; i++) {
        child_kill(&crowds[i]);
    }
}
