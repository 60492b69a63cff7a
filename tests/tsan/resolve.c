/* SPDX-License-Identifier: BSD-3-Clause */
/* Lookups that are waited for, polled and abandoned at every stage while
 * their threads run. */
#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "am/net/resolve.h"

#define THREADS 4
#define ROUNDS 200

static atomic_uint started, finished;

/* Takes a different while each time, without a clock. */
static int lookup(const char *host, const char *service,
                  const struct addrinfo *hints, struct addrinfo **result)
{
    unsigned turns = atomic_fetch_add(&started, 1) % 8;
    int error;

    for (unsigned i = 0; i < turns * 4; i++) {
        sched_yield();
    }
    (void)host; /* no name is asked for: this must pass without a network */
    error = getaddrinfo("127.0.0.1", service, hints, result);
    atomic_fetch_add(&finished, 1);
    return error;
}

static void *use(void *arg)
{
    unsigned seed = *(unsigned *)arg;

    for (unsigned i = 0; i < ROUNDS; i++) {
        const tmsg_address_t *addresses;
        tmsg_resolve_t *resolve;
        tmsg_status_t status;
        size_t count;

        status = tmsg_resolve_start("good", 80, i % 2, &resolve);
        assert(status == TMSG_OK);
        switch ((i + seed) % 4) {
        case 0:
            break;
        case 1:
            status = tmsg_resolve_wait(resolve, -1);
            assert(status == TMSG_OK);
            break;
        case 2:
            while ((status = tmsg_resolve_take(resolve, &addresses, &count)) ==
                   TMSG_IN_PROGRESS) {
                sched_yield();
            }
            assert(status == TMSG_OK && count == 1);
            assert(addresses->sa.any.sa_family == AF_INET);
            break;
        default:
            sched_yield();
            break;
        }
        tmsg_resolve_abandon(resolve);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    unsigned seeds[THREADS];

    alarm(290);
    tmsg_resolve_set_lookup(lookup);
    for (unsigned i = 0; i < THREADS; i++) {
        int error;

        seeds[i] = i;
        error = pthread_create(&threads[i], NULL, use, &seeds[i]);
        assert(error == 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    while (atomic_load(&finished) < THREADS * ROUNDS) {
        sched_yield();
    }
    printf("%u lookups\n", atomic_load(&finished));
    return 0;
}
