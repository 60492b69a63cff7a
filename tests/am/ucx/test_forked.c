/* SPDX-License-Identifier: BSD-3-Clause */
/* Who forks while UCX is in use has children that are told so. */
#include <criterion/criterion.h>

#include "support/peers.h"
#include "support/seeded_maps.h"

/* With a context of its own: what a program tries that fears the parent's. */
static void be_refused(pipes_t *pipes, void *arg)
{
    const side_t *of_parent = arg;
    tmsg_listener_t *listener;
    tmsg_context_t *context;
    tmsg_worker_t *worker;

    (void)pipes;
    must(tmsg_context_create(NULL, &context));
    must_be(tmsg_worker_create(context, NULL, &worker), TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), "was forked");
    tmsg_context_destroy(context);
    must_be(tmsg_listener_create(of_parent->worker, "tcp://127.0.0.1:0", NULL,
                                 &listener),
            TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), "was forked");
}

Test(forked, a_child_of_one_that_is_connected_is_refused)
{
    tmsg_request_t *sent;
    child_t child;
    pair_t pair;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    child_start(&child, be_refused, &pair.a);
    child_join(&child);
    sent = send_map(pair.to_a, sample_bytes(1, 10), 0);
    tmsg_message_destroy(pair_take(&pair, &pair.a));
    must(pair_finish(&pair, sent));
    pair_close(&pair);
}

static void be_receiver(pipes_t *pipes, void *arg)
{
    side_t side;

    (void)arg;
    side_open(&side, NULL);
    side_listen_link(&side, LINK_UNIX);
    line_put(pipes->out, tmsg_listener_url(side.listener));
    tmsg_message_destroy(side_take(&side));
    side_close(&side);
}

/* The child waits for its first peer, which nobody hears without UCX's
 * thread. */
Test(forked, a_child_of_one_that_has_closed_is_as_any)
{
    tmsg_endpoint_t *endpoint;
    child_t child;
    char url[256];
    pair_t pair;
    side_t side;

    pair_open(&pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    pair_close(&pair);
    child_start(&child, be_receiver, NULL);
    line_get(child.in, url, sizeof(url));
    side_open(&side, NULL);
    endpoint = side_connect(&side, url);
    must(side_finish(&side, send_map(endpoint, sample_bytes(1, 10), 0)));
    child_join(&child);
    side_close(&side);
}
