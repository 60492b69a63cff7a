/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads give up peers of another process that do not hang up, while others
 * open and close UCX workers, and the program ends amid that. The peer hangs up
 * on some of them meanwhile. */
#include <pthread.h>
#include <string.h>

#include "support/peers.h"

enum { THREADS = 3, ROUNDS = 4 };

static void listen_idly(pipes_t *pipes, void *arg)
{
    char line[16];
    side_t side;

    (void)arg;
    side_open(&side, NULL);
    side_listen_link(&side, LINK_SHM);
    line_put(pipes->out, tmsg_listener_url(side.listener));
    for (int i = 0; side.accepts < THREADS * ROUNDS; i++) {
        side_accept(&side);
        if (i % 2 == 0) {
            tmsg_endpoint_destroy(side.accepted);
        }
    }
    line_get(pipes->in, line, sizeof(line)); /* moves nothing meanwhile */
    side_close(&side);
}

static void *give_up(void *url)
{
    side_t side;

    for (int i = 0; i < ROUNDS; i++) {
        side_open(&side, NULL);
        side_connect(&side, url);
        side_close(&side);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    char url[256];
    child_t child;

    child_start(&child, listen_idly, NULL);
    line_get(child.in, url, sizeof(url));
    for (int i = 0; i < THREADS; i++) {
        must_eq(pthread_create(&threads[i], NULL, give_up, url), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    line_put(child.out, "enough");
    child_join(&child);
    return 0;
}
