/* SPDX-License-Identifier: BSD-3-Clause */
/* Workers that several threads call: one with a thread of its own, one that
 * the callers drive. Threads send, receive, answer, release and end things all
 * at once. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/peers.h"
#include "support/seeded_maps.h"

enum { THREADS = 3, ROUNDS = 120, CONNECTS = 12 };

typedef struct {
    side_t *side;
    tmsg_endpoint_t *endpoint;
    unsigned number;
} job_t;

static atomic_uint sent_done, received;

static void count_done(void *arg, tmsg_status_t status, const char *error)
{
    (void)arg;
    must_say(error, "");
    must(status);
    atomic_fetch_add(&sent_done, 1);
}

static size_t size_of(unsigned round)
{
    static const size_t sizes[] = {10, 3000, 100, 200000};

    return sizes[round % 4];
}

static void *send_all(void *arg)
{
    const job_t *job = arg;
    const tmsg_send_params_t params = {
        .field_mask = TMSG_SEND_PARAM_FLAGS | TMSG_SEND_PARAM_ON_DONE,
        .flags = job->number % 2 ? TMSG_SEND_ACKED : 0,
        .on_done = count_done,
    };

    for (unsigned i = 0; i < ROUNDS; i++) {
        tmsg_map_t *map = sample_bytes(size_of(i), size_of(i));
        tmsg_request_t *request;

        must(tmsg_endpoint_send(job->endpoint, map, &params, &request));
        tmsg_map_destroy(map);
        if (i % 8 == 0) {
            must(tmsg_request_wait(request, PEERS_BOUND_MS));
        }
        tmsg_request_destroy(request);
    }
    return NULL;
}

static void *release(void *message)
{
    tmsg_message_destroy(message);
    return NULL;
}

/* Pulls until all have come; now and then another thread releases. */
static void *receive_all(void *arg)
{
    const job_t *job = arg;

    while (atomic_load(&received) < THREADS * ROUNDS) {
        tmsg_message_t *message;
        tmsg_status_t status =
            tmsg_worker_recv(job->side->worker, 20, &message);
        tmsg_tensor_t tensor;
        pthread_t thread;
        size_t bytes;

        if (status == TMSG_ERR_TIMED_OUT) {
            continue;
        }
        must(status);
        must(tmsg_map_at(tmsg_message_map(message), 0, NULL, &tensor));
        bytes = (size_t)tensor.shape[0];
        sample_check_bytes(bytes, bytes, tmsg_message_map(message));
        if (atomic_fetch_add(&received, 1) % 10 == 0) {
            must_eq(pthread_create(&thread, NULL, release, message), 0);
            must_eq(pthread_join(thread, NULL), 0);
        } else {
            tmsg_message_destroy(message);
        }
    }
    return NULL;
}

/* Meanwhile connections come and go on the same workers. */
static void *come_and_go(void *arg)
{
    const job_t *job = arg;
    const char *url = tmsg_listener_url(job->side->listener);

    for (unsigned i = 0; i < CONNECTS; i++) {
        tmsg_endpoint_t *endpoint;
        tmsg_request_t *request;

        must(tmsg_endpoint_connect(job->side->worker, url, NULL, &endpoint));
        must(tmsg_endpoint_ready(endpoint, &request));
        must(tmsg_request_wait(request, PEERS_BOUND_MS));
        tmsg_request_destroy(request);
        must_say(tmsg_endpoint_peer(endpoint), "pid");
        must(tmsg_endpoint_status(endpoint));
        if (i % 2) {
            must(tmsg_endpoint_close(endpoint, &request));
            must(tmsg_request_wait(request, PEERS_BOUND_MS));
            tmsg_request_destroy(request);
        }
        tmsg_endpoint_destroy(endpoint);
    }
    return NULL;
}

/* The receiving side and the sending side, each of its kind. */
static void run(drive_t drive, unsigned flags, const char *url)
{
    const side_options_t options = {
        .drive = drive,
        .worker = {.field_mask = TMSG_WORKER_PARAM_FLAGS, .flags = flags}};
    pthread_t senders[THREADS], receivers[2], visitor;
    job_t jobs[THREADS], receiving, visiting;
    tmsg_endpoint_t *endpoint;
    side_t a, b;

    atomic_store(&sent_done, 0);
    atomic_store(&received, 0);
    side_open(&a, &options);
    side_open(&b, &options);
    must(tmsg_listener_create(a.worker, url, NULL, &a.listener));
    must(tmsg_endpoint_connect(b.worker, tmsg_listener_url(a.listener), NULL,
                               &endpoint));
    receiving = (job_t){&a, NULL, 0};
    visiting = receiving;
    for (unsigned i = 0; i < 2; i++) {
        must_eq(pthread_create(&receivers[i], NULL, receive_all, &receiving),
                0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        jobs[i] = (job_t){&b, endpoint, i};
        must_eq(pthread_create(&senders[i], NULL, send_all, &jobs[i]), 0);
    }
    must_eq(pthread_create(&visitor, NULL, come_and_go, &visiting), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        must_eq(pthread_join(senders[i], NULL), 0);
    }
    while (atomic_load(&sent_done) < THREADS * ROUNDS) {
        tmsg_worker_wait(b.worker, 20);
    }
    must_eq(pthread_join(receivers[0], NULL), 0);
    must_eq(pthread_join(receivers[1], NULL), 0);
    must_eq(pthread_join(visitor, NULL), 0);
    must_eq(atomic_load(&received), THREADS * ROUNDS);
    tmsg_endpoint_destroy(endpoint);
    side_close(&b);
    side_close(&a);
}

int main(void)
{
    run(DRIVE_THREAD, 0, "tcp://:0");
    run(DRIVE_POLLING, TMSG_WORKER_SHARED, "tcp://:0");
    puts("ok");
    return 0;
}
