/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* Publishers and subscribers whose peers are restarted. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <time.h>

#include "am/publish/publisher.h"
#include "support/restarted.h"
#include "support/seeded_maps.h"

static void publish(tmsg_publisher_t *publisher, uint64_t seed)
{
    tmsg_map_t *map = sample_bytes(seed, 1000);

    must(tmsg_publisher_publish(publisher, map, NULL, NULL));
    tmsg_map_destroy(map);
}

/* A publisher that has dialled its viewer: the new one is its subscriber as the
 * old one was, and first gets what is kept. */
Test(restart_publisher, goes_on_to_a_new_viewer)
{
    const tmsg_publisher_params_t params = {
        .field_mask = TMSG_PUBLISHER_PARAM_KEEP, .keep = 2};
    restarted_t restarted = {.link = LINK_UNIX, .resume_ms = -1};
    tmsg_publisher_t *publisher;

    restarted_open(&restarted, DRIVE_POLLING);
    must(tmsg_publisher_create(restarted.client.worker, &params, &publisher));
    must(tmsg_publisher_add(publisher, restarted.endpoint, NULL));
    must_be(tmsg_publisher_add(publisher, restarted.endpoint, NULL),
            TMSG_ERR_ALREADY_EXISTS);
    for (uint64_t i = 0; i < 3; i++) {
        publish(publisher, i);
        restarted_take(&restarted, restarted.server.accepted, i);
    }
    for (uint64_t round = 1; round < 3; round++) {
        restarted_stop(&restarted);
        restarted_await_loss(&restarted);
        publish(publisher, 10 * round); /* which is kept, and waits */
        restarted.told.count = 0;
        restarted_start(&restarted);
        restarted_await_new(&restarted);
        restarted_take(&restarted, restarted.server.accepted,
                       round == 1 ? 2 : 11);
        restarted_take(&restarted, restarted.server.accepted, 10 * round);
        publish(publisher, 10 * round + 1);
        restarted_take(&restarted, restarted.server.accepted, 10 * round + 1);
        must_eq(tmsg_publisher_size(publisher), 1);
        must_be(tmsg_publisher_add(publisher, restarted.endpoint, NULL),
                TMSG_ERR_ALREADY_EXISTS);
    }
    must(tmsg_publisher_remove(publisher, restarted.endpoint));
    must_eq(tmsg_publisher_size(publisher), 0);
    tmsg_publisher_destroy(publisher);
    restarted_close(&restarted);
}

/* A publisher frees an endpoint that it owns, which has had several. */
Test(restart_publisher, owns_the_handle)
{
    const tmsg_subscriber_params_t owned = {.field_mask =
                                                TMSG_SUBSCRIBER_PARAM_FLAGS,
                                            .flags = TMSG_SUBSCRIBER_OWNED};
    restarted_t restarted = {.link = LINK_UNIX};
    tmsg_publisher_t *publisher;

    restarted_open(&restarted, DRIVE_POLLING);
    must(tmsg_publisher_create(restarted.client.worker, NULL, &publisher));
    must(tmsg_publisher_add(publisher, restarted.endpoint, &owned));
    restarted_stop(&restarted);
    restarted_start(&restarted);
    restarted_await_new(&restarted);
    publish(publisher, 1);
    restarted_take(&restarted, restarted.server.accepted, 1);
    tmsg_publisher_destroy(publisher);
    restarted.endpoint = NULL;
    restarted_close(&restarted);
}

typedef struct {
    restarted_t restarted;
    unsigned peers, losses;
} presence_t;

static void on_peer(void *arg, tmsg_endpoint_t *endpoint)
{
    presence_t *presence = arg;

    must_true(endpoint == presence->restarted.endpoint);
    presence->peers++;
}

static void on_lost(void *arg, tmsg_endpoint_t *endpoint, tmsg_status_t status,
                    const char *error)
{
    presence_t *presence = arg;

    must_true(endpoint == presence->restarted.endpoint);
    must_be(status, TMSG_ERR_CLOSED);
    must_true(error[0] != '\0');
    presence->losses++;
}

static bool is_lost(void *arg) { return ((presence_t *)arg)->losses > 0; }

/* It is there as long as its handle is, by which it is told. */
Test(restart_publisher, tells_of_the_handle)
{
    presence_t presence = {.restarted = {.link = LINK_UNIX}};
    const tmsg_publisher_params_t params = {.field_mask =
                                                TMSG_PUBLISHER_PARAM_ON_PEER,
                                            .on_peer = on_peer,
                                            .on_lost = on_lost,
                                            .on_peer_arg = &presence};
    restarted_t *restarted = &presence.restarted;
    tmsg_publisher_t *publisher;

    restarted_open(restarted, DRIVE_POLLING);
    must(tmsg_publisher_create(restarted->client.worker, &params, &publisher));
    must(tmsg_publisher_add(publisher, restarted->endpoint, NULL));
    restarted_stop(restarted);
    restarted_start(restarted);
    restarted_await_new(restarted);
    must_eq(presence.losses, 0);
    must(tmsg_endpoint_close(restarted->server.accepted, NULL));
    restarted_await(restarted, is_lost, &presence, "on_lost");
    must_eq(presence.peers, 1);
    tmsg_publisher_destroy(publisher);
    restarted_close(restarted);
}

/* One that takes nothing while it is away may be disconnected for that. */
Test(restart_publisher, gives_up_a_slow_viewer)
{
    const tmsg_subscriber_params_t few = {.field_mask =
                                              TMSG_SUBSCRIBER_PARAM_MESSAGES |
                                              TMSG_SUBSCRIBER_PARAM_SLOW,
                                          .messages = 2,
                                          .slow = TMSG_SLOW_DISCONNECT};
    restarted_t restarted = {.link = LINK_UNIX};
    tmsg_publisher_t *publisher;

    restarted_open(&restarted, DRIVE_POLLING);
    must(tmsg_publisher_create(restarted.client.worker, NULL, &publisher));
    must(tmsg_publisher_add(publisher, restarted.endpoint, &few));
    restarted_stop(&restarted);
    restarted_await_loss(&restarted);
    for (uint64_t i = 0; i < 3; i++) {
        must_be(tmsg_endpoint_status(restarted.endpoint), TMSG_IN_PROGRESS);
        publish(publisher, i);
    }
    must_be(tmsg_endpoint_status(restarted.endpoint), TMSG_ERR_LIMIT_EXCEEDED);
    must_say(tmsg_endpoint_error(restarted.endpoint), "too slow");
    must_eq(tmsg_publisher_size(publisher), 0);
    tmsg_publisher_destroy(publisher);
    restarted_close(&restarted);
}

/* Neither its age nor what is kept costs a message that waits for a new viewer,
 * where nothing is to be lost. */
Test(restart_publisher, loses_nothing_while_it_is_away)
{
    const tmsg_publisher_params_t params = {
        .field_mask = TMSG_PUBLISHER_PARAM_KEEP, .keep = 2};
    const tmsg_subscriber_params_t all = {.field_mask =
                                              TMSG_SUBSCRIBER_PARAM_MESSAGES |
                                              TMSG_SUBSCRIBER_PARAM_SLOW |
                                              TMSG_SUBSCRIBER_PARAM_MOST_MS,
                                          .messages = 1,
                                          .slow = TMSG_SLOW_WAIT,
                                          .most_ms = 1};
    restarted_t restarted = {.link = LINK_UNIX};
    tmsg_publisher_t *publisher;

    restarted_open(&restarted, DRIVE_POLLING);
    must(tmsg_publisher_create(restarted.client.worker, &params, &publisher));
    must(tmsg_publisher_add(publisher, restarted.endpoint, &all));
    publish(publisher, 0);
    restarted_take(&restarted, restarted.server.accepted, 0);
    restarted_stop(&restarted);
    restarted_await_loss(&restarted);
    publish(publisher, 1);
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    restarted_start(&restarted);
    restarted_await_new(&restarted);
    restarted_take(&restarted, restarted.server.accepted, 1);
    publish(publisher, 2);
    restarted_take(&restarted, restarted.server.accepted, 2);
    tmsg_publisher_destroy(publisher);
    restarted_close(&restarted);
}

/* What one process took for its messages says nothing of the next one. */
Test(restart_publisher, measures_a_new_viewer_afresh)
{
    restarted_t restarted = {.link = LINK_UNIX};
    tmsg_subscriber_t *subscriber;
    tmsg_publisher_t *publisher;

    restarted_open(&restarted, DRIVE_POLLING);
    must(tmsg_publisher_create(restarted.client.worker, NULL, &publisher));
    must(tmsg_publisher_add(publisher, restarted.endpoint, NULL));
    publish(publisher, 0);
    restarted_take(&restarted, restarted.server.accepted, 0);
    subscriber =
        TMSG_CONTAINER_OF(publisher->subscribers.head, tmsg_subscriber_t, node);
    subscriber->nearest_ns = 1;
    subscriber->overrun = true;
    restarted_stop(&restarted);
    restarted_start(&restarted);
    restarted_await_new(&restarted);
    must_true(subscriber->nearest_ns != 1);
    must_true(!subscriber->overrun);
    publish(publisher, 1);
    restarted_take(&restarted, restarted.server.accepted, 1);
    tmsg_publisher_destroy(publisher);
    restarted_close(&restarted);
}

static void serve(restarted_t *restarted)
{
    must(tmsg_publisher_create(restarted->server.worker, NULL,
                               (tmsg_publisher_t **)restarted->arg));
}

static void leave(restarted_t *restarted)
{
    tmsg_publisher_destroy(*(tmsg_publisher_t **)restarted->arg);
}

/* A viewer subscribes again as it did: it wants the newest alone. */
Test(restart_publisher, gets_its_viewer_again)
{
    tmsg_publisher_t *publisher = NULL;
    restarted_t restarted = {.link = LINK_UNIX,
                             .subscribe = TMSG_SUBSCRIBE_NEWEST,
                             .serve = serve,
                             .leave = leave,
                             .arg = &publisher};

    restarted_open(&restarted, DRIVE_POLLING);
    for (int round = 0; round < 2; round++) {
        must(tmsg_publisher_add(publisher, restarted.server.accepted, NULL));
        for (uint64_t i = 0; i < 5; i++) {
            publish(publisher, i);
        }
        restarted_take(&restarted, restarted.endpoint, 0);
        restarted_take(&restarted, restarted.endpoint, 4);
        if (round == 0) {
            restarted_stop(&restarted);
            restarted_start(&restarted);
            restarted_await_new(&restarted);
        }
    }
    restarted_close(&restarted);
}
