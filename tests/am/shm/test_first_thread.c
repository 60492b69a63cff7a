/* SPDX-License-Identifier: BSD-3-Clause */
/* A process whose first thread has ended, while another goes on: what does not
 * work there any more ends with the reason. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "am/shm/first_thread.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

static const char reason[] = "first thread of the process has ended";

/* What the child's other thread works with. */
static pipes_t child_pipes;
static side_t child_side;

static void await_end_of_first(void)
{
    for (int i = 0; i < PEERS_BOUND_MS; i++) {
        if (tmsg_first_thread_has_ended(getpid())) {
            return;
        }
        usleep(1000);
    }
    die("the first thread goes on");
}

/* Goes on in another thread, and ends the first. */
static void part(void *(*run)(void *arg))
{
    pthread_t thread;

    must_eq(pthread_create(&thread, NULL, run, NULL), 0);
    pthread_exit(NULL);
}

static void *open_late(void *arg)
{
    tmsg_endpoint_t *endpoint;
    tmsg_worker_t *worker;
    char url[256];

    await_end_of_first();
    must_be(tmsg_worker_create(child_side.context, NULL, &worker),
            TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), reason);
    line_get(child_pipes.in, url, sizeof(url));
    must(tmsg_endpoint_connect(child_side.worker, url, NULL, &endpoint));
    must_be(side_end_of(&child_side, endpoint), TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_endpoint_error(endpoint), reason);
    side_close(&child_side);
    _exit(0);
    return arg;
}

static void connect_without(pipes_t *pipes, void *arg)
{
    (void)arg;
    child_pipes = *pipes;
    side_open(&child_side, NULL);
    part(open_late);
}

static void be_refused(link_t link)
{
    child_t child;
    side_t side;

    child_start(&child, connect_without, NULL);
    side_open(&side, NULL);
    side_listen_link(&side, link);
    line_put(child.out, tmsg_listener_url(side.listener));
    child_await(&side, &child);
    child_join(&child);
    must_eq(atomic_load(&side.accepts), 0);
    side_close(&side);
}

Test(first_thread, without_it_ucx_says_why_it_does_not_start)
{
    be_refused(LINK_SHM);
    be_refused(LINK_UNIX);
}

static void *send_late(void *arg)
{
    tmsg_endpoint_t *endpoint = child_side.accepted;

    await_end_of_first();
    must_be(
        side_finish(&child_side, send_map(endpoint, sample_bytes(1, 4 << 20),
                                          TMSG_SEND_ACKED)),
        TMSG_ERR_PEER_LOST);
    must_say(tmsg_endpoint_error(endpoint), reason);
    side_close(&child_side);
    _exit(0);
    return arg;
}

static void send_without(pipes_t *pipes, void *arg)
{
    (void)arg;
    side_open(&child_side, NULL);
    side_listen_link(&child_side, LINK_UNIX);
    line_put(pipes->out, tmsg_listener_url(child_side.listener));
    side_accept(&child_side);
    part(send_late);
}

Test(first_thread, when_it_ends_a_send_says_why_its_memory_is_not_read)
{
    tmsg_endpoint_t *endpoint;
    char url[256];
    child_t child;
    side_t side;

    child_start(&child, send_without, NULL);
    line_get(child.in, url, sizeof(url));
    side_open(&side, NULL);
    endpoint = side_connect(&side, url);
    must_be(side_end_of(&side, endpoint), TMSG_ERR_PEER_LOST);
    must_say(tmsg_endpoint_error(endpoint), reason);
    child_join(&child);
    side_close(&side);
}

Test(first_thread, of_a_process_that_goes_on)
{
    must_true(!tmsg_first_thread_has_ended(getpid()));
    must_true(!tmsg_first_thread_has_ended(1));
}
