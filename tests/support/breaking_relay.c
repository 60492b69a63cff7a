/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/breaking_relay.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "support/must.h"
#include "support/peers.h"
#include "support/raw_bootstrap.h"

#define PAIRS_MOST 64
#define LOST_MOST 64

struct relay {
    char to[256];
    char url[256];
    int fd;
    int wake;
    pthread_t thread;
    pthread_mutex_t lock;
    bool shut;
    bool ending;
    unsigned count;
    const void *forged; /* NULL: none is */
    size_t forged_bytes;
    unsigned skips;
    int stalled; /* a pair that nothing is passed on of; -1: none */
    int pairs[PAIRS_MOST][2]; /* dialling, dialled; -1: free */
    int lost[LOST_MOST];
    unsigned lost_count;
};

static int listen_unix(char *url, size_t bytes)
{
    static unsigned count;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char name[32];

    snprintf(name, sizeof(name), "relay%u", count++);
    snprintf(url, bytes, "unix://%s", scratch_path(name));
    snprintf(address.sun_path, sizeof(address.sun_path), "%s",
             scratch_path(name));
    must_true(fd >= 0 &&
              bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0 &&
              listen(fd, 16) == 0);
    return fd;
}

static void drop(int *pair)
{
    close(pair[0]);
    close(pair[1]);
    pair[0] = pair[1] = -1;
}

/* Lock held. */
static void cut(relay_t *relay)
{
    for (int i = 0; i < PAIRS_MOST; i++) {
        if (relay->pairs[i][0] >= 0) {
            shutdown(relay->pairs[i][0], SHUT_RDWR);
            shutdown(relay->pairs[i][1], SHUT_RDWR);
        }
    }
}

/* Keeps a socket open to the end. */
static void keep_lost(relay_t *relay, int fd)
{
    must_true(relay->lost_count < LOST_MOST);
    relay->lost[relay->lost_count++] = fd;
}

static void take_one(relay_t *relay)
{
    int from = accept4(relay->fd, NULL, NULL, SOCK_CLOEXEC);
    int i = 0, to;

    must_true(from >= 0);
    if (!relay->shut && relay->forged != NULL && relay->skips-- == 0) {
        send(from, relay->forged, relay->forged_bytes, MSG_NOSIGNAL);
        relay->forged = NULL;
        keep_lost(relay, from);
        return;
    }
    to = relay->shut ? -1 : raw_try_dial(relay->to);
    if (to < 0) {
        close(from);
        return;
    }
    while (relay->pairs[i][0] >= 0) {
        must_true(++i < PAIRS_MOST);
    }
    relay->pairs[i][0] = from;
    relay->pairs[i][1] = to;
    relay->count++;
}

/* False: that end has said its last. Who does not listen any more may have said
 * something that is to be passed on. Nobody is waited for who does not read: it
 * may be driven by a thread that waits for the relay. */
static bool pass_on(int from, int to)
{
    struct pollfd other = {to, POLLOUT, 0};
    char bytes[16384];
    ssize_t got;

    if (poll(&other, 1, 0) == 0) {
        return true;
    }
    got = recv(from, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got > 0) {
        send(to, bytes, (size_t)got, MSG_NOSIGNAL);
    }
    return got > 0;
}

static void work(relay_t *relay, const struct pollfd *fds)
{
    for (int i = 0; i < PAIRS_MOST; i++) {
        int *pair = relay->pairs[i];
        bool stands = true;

        for (int way = 0; way < 2 && pair[0] >= 0; way++) {
            if (fds[2 * i + way].fd == pair[way] &&
                fds[2 * i + way].revents != 0) {
                stands &= pass_on(pair[way], pair[1 - way]);
            }
        }
        if (!stands) {
            drop(pair);
        }
    }
}

static void *run(void *arg)
{
    relay_t *relay = arg;
    struct pollfd fds[2 * PAIRS_MOST + 2];
    eventfd_t word;

    pthread_mutex_lock(&relay->lock);
    while (!relay->ending) {
        for (int i = 0; i < 2 * PAIRS_MOST; i++) {
            int at = i / 2 == relay->stalled ? -1 : relay->pairs[i / 2][i % 2];

            fds[i] = (struct pollfd){at, POLLIN, 0};
        }
        fds[2 * PAIRS_MOST] = (struct pollfd){relay->fd, POLLIN, 0};
        fds[2 * PAIRS_MOST + 1] = (struct pollfd){relay->wake, POLLIN, 0};
        pthread_mutex_unlock(&relay->lock);
        poll(fds, 2 * PAIRS_MOST + 2, -1);
        pthread_mutex_lock(&relay->lock);
        work(relay, fds);
        if (fds[2 * PAIRS_MOST].revents != 0) {
            take_one(relay);
        }
        if (fds[2 * PAIRS_MOST + 1].revents != 0) {
            eventfd_read(relay->wake, &word);
        }
    }
    pthread_mutex_unlock(&relay->lock);
    return NULL;
}

relay_t *relay_open(const char *to)
{
    relay_t *relay = calloc(1, sizeof(*relay));

    must_true(relay != NULL);
    memset(relay->pairs, -1, sizeof(relay->pairs));
    snprintf(relay->to, sizeof(relay->to), "%s", to);
    relay->stalled = -1;
    relay->fd = strncmp(to, "unix://", 7) == 0
                    ? listen_unix(relay->url, sizeof(relay->url))
                    : raw_listen(relay->url, sizeof(relay->url));
    if (strncmp(to, "tls://", 6) == 0) {
        memcpy(relay->url, "tls", 3);
    }
    relay->wake = eventfd(0, EFD_CLOEXEC);
    must_true(relay->wake >= 0);
    pthread_mutex_init(&relay->lock, NULL);
    must_eq(pthread_create(&relay->thread, NULL, run, relay), 0);
    return relay;
}

void relay_close(relay_t *relay)
{
    pthread_mutex_lock(&relay->lock);
    relay->ending = true;
    pthread_mutex_unlock(&relay->lock);
    eventfd_write(relay->wake, 1);
    pthread_join(relay->thread, NULL);
    for (int i = 0; i < PAIRS_MOST; i++) {
        if (relay->pairs[i][0] >= 0) {
            drop(relay->pairs[i]);
        }
    }
    for (unsigned i = 0; i < relay->lost_count; i++) {
        close(relay->lost[i]);
    }
    close(relay->fd);
    close(relay->wake);
    pthread_mutex_destroy(&relay->lock);
    free(relay);
}

const char *relay_url(const relay_t *relay) { return relay->url; }

void relay_turn(relay_t *relay, const char *to)
{
    pthread_mutex_lock(&relay->lock);
    snprintf(relay->to, sizeof(relay->to), "%s", to);
    pthread_mutex_unlock(&relay->lock);
}

void relay_cut(relay_t *relay)
{
    pthread_mutex_lock(&relay->lock);
    cut(relay);
    pthread_mutex_unlock(&relay->lock);
}

void relay_lose(relay_t *relay)
{
    pthread_mutex_lock(&relay->lock);
    for (int i = 0; i < PAIRS_MOST; i++) {
        if (relay->pairs[i][0] >= 0) {
            keep_lost(relay, relay->pairs[i][1]);
            close(relay->pairs[i][0]);
            relay->pairs[i][0] = relay->pairs[i][1] = -1;
        }
    }
    pthread_mutex_unlock(&relay->lock);
    eventfd_write(relay->wake, 1);
}

void relay_hold(relay_t *relay) { pthread_mutex_lock(&relay->lock); }
void relay_let_go(relay_t *relay) { pthread_mutex_unlock(&relay->lock); }

void relay_stall(relay_t *relay, int at)
{
    pthread_mutex_lock(&relay->lock);
    relay->stalled = at;
    pthread_mutex_unlock(&relay->lock);
    eventfd_write(relay->wake, 1);
}

void relay_shut(relay_t *relay, bool shut)
{
    pthread_mutex_lock(&relay->lock);
    relay->shut = shut;
    if (shut) {
        cut(relay);
    }
    pthread_mutex_unlock(&relay->lock);
}

void relay_forge(relay_t *relay, unsigned skip, const void *data, size_t bytes)
{
    pthread_mutex_lock(&relay->lock);
    relay->forged = data;
    relay->forged_bytes = bytes;
    relay->skips = skip;
    pthread_mutex_unlock(&relay->lock);
}

unsigned relay_count(relay_t *relay)
{
    unsigned count;

    pthread_mutex_lock(&relay->lock);
    count = relay->count;
    pthread_mutex_unlock(&relay->lock);
    return count;
}
