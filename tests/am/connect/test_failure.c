/* SPDX-License-Identifier: BSD-3-Clause */
/* Dead peers, limits, full queues, missing memory: an error that names the
 * cause and the peer comes in bounded time, and the process goes on. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <tensormsg/domain.h>

#include "core/map.h"
#include "support/own_allocator.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

#define NOTICE_MS 5000 /* within which a killed peer must be known */

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* The work in the middle of which a peer is killed. */
typedef enum { IDLE, SMALL, LARGE, WORKS } work_t;

#define LARGE_BYTES (96u << 20)

/* Sends that are posted before the kill. So many large ones take half a
 * second: however busy the machine, the kill finds the last of them under
 * way. Small ones may all have left. */
#define SMALL_SENDS 30
#define LARGE_SENDS 8

typedef struct {
    work_t work;
    link_t link;
    bool child_sends;
} scene_t;

/* Sends the scene's messages without end. */
static void keep_sending(side_t *side, tmsg_endpoint_t *endpoint,
                         tmsg_map_t *map)
{
    while (tmsg_endpoint_status(endpoint) >= 0) {
        tmsg_request_t *sent;

        if (tmsg_endpoint_send(endpoint, map, NULL, &sent) != TMSG_OK) {
            break;
        }
        side_wait(side, sent);
        tmsg_request_destroy(sent);
    }
}

static void keep_receiving(tmsg_endpoint_t *endpoint)
{
    tmsg_message_t *message;
    tmsg_status_t status = TMSG_OK;

    while (status == TMSG_OK || status == TMSG_ERR_TIMED_OUT) {
        status = tmsg_endpoint_recv(endpoint, 1000, &message);
        if (status == TMSG_OK) {
            tmsg_message_destroy(message);
        }
    }
}

/* The child that will be killed listens, tells the parent, and works. */
static void victim(pipes_t *pipes, void *arg)
{
    const scene_t *scene = arg;
    const side_options_t options = {.ucx_config = link_config(scene->link)};
    bool large = scene->work == LARGE && scene->child_sends;
    tmsg_map_t *map = sample_bytes(1, large ? LARGE_BYTES : 3000);
    tmsg_endpoint_t *endpoint;
    side_t side;

    side_open(&side, &options);
    side_listen_link(&side, scene->link);
    line_put(pipes->out, tmsg_listener_url(side.listener));
    endpoint = side_accept(&side);
    tmsg_message_destroy(side_take(&side));
    line_put(pipes->out, "working");
    if (scene->work != IDLE && scene->child_sends) {
        keep_sending(&side, endpoint, map);
    } else {
        keep_receiving(endpoint);
    }
    die("the victim outlived its peer");
}

/* The survivor must serve this child, the bystander, afterwards. */
static void bystander(pipes_t *pipes, void *arg)
{
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *closed;
    char url[256];
    side_t side;

    (void)arg;
    line_get(pipes->in, url, sizeof(url));
    side_open(&side, NULL);
    endpoint = side_connect(&side, url);
    for (uint64_t i = 0; i < 20; i++) {
        tmsg_request_destroy(
            send_map(endpoint, sample_bytes(i, i * 40000 + 1), 0));
    }
    must(tmsg_endpoint_close(endpoint, &closed));
    must(side_finish(&side, closed));
    side_close(&side);
}

static void serve_bystander(side_t *side, child_t *child)
{
    side_listen(side, "tcp://127.0.0.1:0");
    line_put(child->out, tmsg_listener_url(side->listener));
    for (uint64_t i = 0; i < 20; i++) {
        tmsg_message_t *message = side_take(side);

        sample_check_bytes(i, i * 40000 + 1, tmsg_message_map(message));
        tmsg_message_destroy(message);
    }
    must_be(side_end_of(side, side->accepted), TMSG_ERR_CLOSED);
    child_join(child);
}

/* Works with the victim, kills it in the middle, and waits for the error. */
static void survive(const scene_t *scene, side_t *side, child_t *child,
                    const char *url)
{
    tmsg_endpoint_t *endpoint = side_connect(side, url);
    tmsg_map_t *map = sample_bytes(
        1, scene->work == LARGE && !scene->child_sends ? LARGE_BYTES : 3000);
    tmsg_request_t *sent[SMALL_SENDS];
    size_t last = scene->work == LARGE ? LARGE_SENDS : SMALL_SENDS;
    tmsg_message_t *message;
    size_t count = 0;
    uint64_t killed;
    char line[32];

    tmsg_request_destroy(send_map(endpoint, sample_bytes(1, 10), 0));
    while (tmsg_endpoint_recv(endpoint, 0, &message) == TMSG_OK) {
        tmsg_message_destroy(message);
    }
    line_get(child->in, line, sizeof(line));
    if (scene->work != IDLE && scene->child_sends) {
        tmsg_message_destroy(side_take(side)); /* the next is under way */
    }
    if (scene->work != IDLE && !scene->child_sends) {
        for (; count < last; count++) {
            must(tmsg_endpoint_send(endpoint, map, NULL, &sent[count]));
        }
    }
    for (int i = 0; i < 2000; i++) {
        tmsg_worker_progress(side->worker);
    }
    kill(child->pid, SIGKILL);
    killed = now_ms();
    must_be(side_end_of(side, endpoint), TMSG_ERR_PEER_LOST);
    if (now_ms() - killed > NOTICE_MS) {
        die("noticed only after %d ms", (int)(now_ms() - killed));
    }
    must_say(tmsg_endpoint_error(endpoint), "pid ");
    must_say(tmsg_endpoint_error(endpoint), tmsg_endpoint_peer(endpoint));
    while (count > 0) {
        tmsg_status_t status = side_wait(side, sent[--count]);

        if (status != TMSG_OK || (scene->work == LARGE && count == last - 1)) {
            must_be(status, TMSG_ERR_PEER_LOST);
            must_say(tmsg_request_error(sent[count]), url);
            must_say(tmsg_request_error(sent[count]), "the connection broke");
        }
        tmsg_request_destroy(sent[count]);
    }
    while (tmsg_endpoint_recv(endpoint, 0, &message) == TMSG_OK) {
        tmsg_message_destroy(message);
    }
    must_be(tmsg_endpoint_recv(endpoint, 0, &message), TMSG_ERR_PEER_LOST);
    tmsg_endpoint_destroy(endpoint);
    tmsg_map_destroy(map);
}

static bool has_descriptors(void *most)
{
    return count_descriptors() <= *(const int *)most;
}

/* One side survives the death of several peers, and then serves another. */
static void kill_peer(work_t work, link_t link, bool child_sends)
{
    scene_t scene = {work, link, child_sends};
    const side_options_t options = {.ucx_config = link_config(link)};
    child_t victims[3], other;
    char url[256];
    int descriptors = 0;
    side_t side;

    for (size_t i = 0; i < 3; i++) {
        child_start(&victims[i], victim, &scene);
    }
    child_start(&other, bystander, NULL);
    side_open(&side, &options);
    for (size_t i = 0; i < 3; i++) {
        line_get(victims[i].in, url, sizeof(url));
        survive(&scene, &side, &victims[i], url);
        child_kill(&victims[i]);
        if (i == 0) {
            descriptors = count_descriptors();
        }
    }
    /* Each child that is gone took 3 of our own. The socket of a peer that is
     * given up lingers. */
    descriptors -= 2 * 3;
    side_await(&side, has_descriptors, &descriptors, "what the dead have left");
    serve_bystander(&side, &other);
    side_close(&side);
}

Test(failure, killed_idle_peers_are_noticed)
{
    kill_peer(IDLE, LINK_TCP, false);
    kill_peer(IDLE, LINK_SHM, false);
    kill_peer(IDLE, LINK_UNIX, false);
}

Test(failure, receivers_killed_amid_small_messages_are_noticed)
{
    kill_peer(SMALL, LINK_TCP, false);
    kill_peer(SMALL, LINK_SHM, false);
}

Test(failure, senders_killed_amid_small_messages_are_noticed)
{
    kill_peer(SMALL, LINK_TCP, true);
    kill_peer(SMALL, LINK_SHM, true);
}

Test(failure, receivers_killed_amid_a_rendezvous_are_noticed_tcp)
{
    kill_peer(LARGE, LINK_TCP, false);
}

Test(failure, receivers_killed_amid_a_rendezvous_are_noticed_shm)
{
    kill_peer(LARGE, LINK_SHM, false);
}

Test(failure, senders_killed_amid_a_rendezvous_are_noticed_tcp)
{
    kill_peer(LARGE, LINK_TCP, true);
}

Test(failure, senders_killed_amid_a_rendezvous_are_noticed_shm)
{
    kill_peer(LARGE, LINK_SHM, true);
}

/* Limits of the receiver: the sender learns which. */
typedef struct {
    const char *what;
    tmsg_limits_t limits;
    sample_t sample;
    const char *words;
} limit_t;

static const limit_t limits[] = {
    {"tensors",
     {.field_mask = TMSG_LIMIT_TENSORS, .tensors = 5},
     {.tensors = 6},
     "6 tensors"},
    {"ndim",
     {.field_mask = TMSG_LIMIT_NDIM, .ndim = 1},
     {.tensors = 1, .shape = SAMPLE_BLOCK},
     "ndim"},
    {"name",
     {.field_mask = TMSG_LIMIT_NAME_BYTES, .name_bytes = 100},
     {.tensors = 1, .name_bytes = 101},
     "name"},
    {"metadata",
     {.field_mask = TMSG_LIMIT_METADATA_BYTES, .metadata_bytes = 40},
     {.tensors = 1},
     "metadata"},
    {"metadata keys",
     {.field_mask = TMSG_LIMIT_METADATA_KEYS, .metadata_keys = 2},
     {.tensors = 1},
     "metadata keys"},
    {"header",
     {.field_mask = TMSG_LIMIT_HEADER_BYTES, .header_bytes = 5000},
     {.tensors = 10, .name_bytes = 500},
     "5000"},
    {"message",
     {.field_mask = TMSG_LIMIT_MESSAGE_BYTES, .message_bytes = 99999},
     {.tensors = 1, .shape = SAMPLE_VECTOR, .dtype = 11, .elements = 100000},
     "100000"},
};

static void exceed(const limit_t *row, link_t link, unsigned flags)
{
    static const sample_t fits = {.tensors = 0};
    const side_options_t options = {.limits = row->limits};
    tmsg_map_t *map = sample_make(&row->sample), *small;
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                       .flags = flags};
    tmsg_request_t *sent;
    tmsg_status_t status;
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, &options, NULL);
    status = tmsg_endpoint_send(pair.to_a, map, &params, &sent);
    if (status == TMSG_OK) {
        status = pair_wait(&pair, sent);
        if (status != TMSG_ERR_LIMIT_EXCEEDED) {
            die("limit of %s, flags %u: '%s'", row->what, flags,
                tmsg_status_name(status));
        }
        must_say(tmsg_request_error(sent), row->words);
        must_say(tmsg_request_error(sent), tmsg_endpoint_peer(pair.to_a));
        tmsg_request_destroy(sent);
    } else {
        must_be(status, TMSG_ERR_LIMIT_EXCEEDED);
        must_say(tmsg_error_message(), row->words);
        must_say(tmsg_error_message(), tmsg_endpoint_peer(pair.to_a));
    }
    tmsg_map_destroy(map);
    /* The connection goes on. */
    small = sample_make(&fits);
    must(tmsg_map_clear(small));
    sent = send_map(pair.to_a, small, flags);
    tmsg_message_destroy(pair_take(&pair, &pair.a));
    must(pair_finish(&pair, sent));
    pair_close(&pair);
}

Test(failure, every_limit_of_the_receiver_is_told_to_the_sender)
{
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        for (unsigned flags = 0; flags <= TMSG_SEND_ACKED; flags++) {
            exceed(&limits[i], LINK_SHM, flags);
            exceed(&limits[i], LINK_TCP, flags);
        }
    }
}

Test(failure, a_message_larger_than_held_bytes_is_refused)
{
    static const size_t bytes[] = {2000, 4000000};

    for (size_t i = 0; i < 2; i++) {
        const side_options_t options = {
            .limits = {.field_mask = TMSG_LIMIT_HELD_BYTES,
                       .held_bytes = bytes[i] - 1}};
        tmsg_request_t *sent;
        pair_t pair;

        pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, NULL);
        sent = send_map(pair.to_a, sample_bytes(1, bytes[i]), TMSG_SEND_ACKED);
        must_be(pair_wait(&pair, sent), TMSG_ERR_LIMIT_EXCEEDED);
        must_say(tmsg_request_error(sent), "held_bytes");
        tmsg_request_destroy(sent);
        sent = send_map(pair.to_a, sample_bytes(2, bytes[i] - 1), 0);
        tmsg_message_destroy(pair_take(&pair, &pair.a));
        must(pair_finish(&pair, sent));
        pair_close(&pair);
    }
}

/* Memory for one message at a time: the others wait their turn. */
static void one_at_a_time(drive_t drive, size_t bytes)
{
    enum { MESSAGES = 20 };
    const side_options_t options = {
        .limits = {.field_mask = TMSG_LIMIT_HELD_BYTES,
                   .held_bytes = bytes + bytes / 2}};
    tmsg_request_t *sent[MESSAGES];
    pair_t pair;

    pair_open(&pair, LINK_SHM, drive, &options, NULL);
    for (uint64_t i = 0; i < MESSAGES; i++) {
        sent[i] = send_map(pair.to_a, sample_bytes(i, bytes), TMSG_SEND_ACKED);
    }
    for (uint64_t i = 0; i < MESSAGES; i++) {
        tmsg_message_t *message = pair_take(&pair, &pair.a), *none;

        must_be(tmsg_worker_recv(pair.a.worker, 0, &none), TMSG_ERR_TIMED_OUT);
        sample_check_bytes(i, bytes, tmsg_message_map(message));
        tmsg_message_destroy(message);
        must(pair_finish(&pair, sent[i]));
    }
    pair_close(&pair);
}

Test(failure, messages_beyond_held_bytes_wait_for_memory)
{
    for (drive_t drive = 0; drive < DRIVES; drive++) {
        one_at_a_time(drive, 1000);
        one_at_a_time(drive, 1000000);
    }
}

/* An allocator that says no now and then. */
typedef struct {
    unsigned calls;
    tmsg_status_t refusal;
    const char *words; /* NULL: it leaves none */
} unwilling_t;

static tmsg_status_t refuse_at_times(void *arg)
{
    unwilling_t *unwilling = arg;

    if (unwilling->calls++ % 2 != 0) {
        return TMSG_OK;
    }
    return unwilling->words != NULL
               ? tmsg_domain_fail(unwilling->refusal, unwilling->words)
               : unwilling->refusal;
}

/* The sender hears the allocator's words, eagerly and by rendezvous. */
static void refuse_by_allocator(link_t link, size_t bytes,
                                tmsg_status_t refusal, const char *words,
                                unsigned flags)
{
    unwilling_t unwilling = {.refusal = refusal, .words = words};
    own_memory_t memory = {.on_alloc = refuse_at_times, .arg = &unwilling};
    const tmsg_allocator_t allocator = own_memory_allocator(&memory);
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_ALLOCATOR,
                   .allocator = &allocator}};
    tmsg_message_t *message;
    tmsg_request_t *sent;
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, &options, NULL);
    for (uint64_t i = 0; i < 3; i++) {
        sent = send_map(pair.to_a, sample_bytes(i, bytes), flags);
        if (flags & TMSG_SEND_ACKED) {
            must_be(pair_wait(&pair, sent), refusal);
            must_say(tmsg_request_error(sent), unwilling.words != NULL
                                                   ? unwilling.words
                                                   : tmsg_status_name(refusal));
        }
        tmsg_request_destroy(sent);
        sent = send_map(pair.to_a, sample_bytes(~i, bytes), flags);
        message = pair_take(&pair, &pair.a);
        sample_check_bytes(~i, bytes, tmsg_message_map(message));
        tmsg_message_destroy(message);
        must(pair_finish(&pair, sent));
    }
    pair_close(&pair);
}

Test(failure, an_allocators_refusal_is_told_to_the_sender)
{
    static const tmsg_status_t refusals[] = {
        TMSG_ERR_NO_MEMORY, TMSG_ERR_LIMIT_EXCEEDED, TMSG_ERR_BUSY};

    for (size_t i = 0; i < 3; i++) {
        for (link_t link = 0; link < LINKS; link++) {
            refuse_by_allocator(link, 2000, refusals[i], NULL, TMSG_SEND_ACKED);
            refuse_by_allocator(link, 3000000, refusals[i], "the pool is dry",
                                TMSG_SEND_ACKED);
            refuse_by_allocator(link, 3000000, refusals[i], NULL, 0);
        }
    }
}

/* With a queue of one, a receiver that takes nothing stops its sender. */
static void backpressure(link_t link, drive_t drive)
{
    enum { MESSAGES = 50 };
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_QUEUE_DEPTH,
                   .queue_depth = 1}};
    tmsg_request_t *sent[MESSAGES];
    unsigned pending = 0;
    pair_t pair;

    pair_open(&pair, link, drive, &options, NULL);
    for (uint64_t i = 0; i < MESSAGES; i++) {
        sent[i] = send_map(pair.to_a, sample_bytes(i, 500), 0);
    }
    must(pair_wait(&pair, sent[0]));
    for (int i = 0; i < 200 && drive == DRIVE_POLLING; i++) {
        tmsg_worker_progress(pair.a.worker);
        tmsg_worker_progress(pair.b.worker);
    }
    for (size_t i = 0; i < MESSAGES; i++) {
        pending += tmsg_request_test(sent[i]) == TMSG_IN_PROGRESS;
    }
    cr_expect(eq(uint, pending, MESSAGES - 1));
    for (uint64_t i = 0; i < MESSAGES; i++) {
        tmsg_message_t *message = pair_take(&pair, &pair.a);

        sample_check_bytes(i, 500, tmsg_message_map(message));
        tmsg_message_destroy(message);
        must(pair_finish(&pair, sent[i]));
    }
    pair_close(&pair);
}

Test(failure, a_full_queue_makes_the_sender_wait_and_loses_nothing)
{
    for (link_t link = 0; link < LINKS; link++) {
        for (drive_t drive = 0; drive < DRIVES; drive++) {
            backpressure(link, drive);
        }
    }
}

Test(failure, acked_sends_end_when_the_application_has_taken_them)
{
    for (link_t link = 0; link < LINKS; link++) {
        tmsg_request_t *plain, *acked;
        tmsg_message_t *message;
        pair_t pair;

        pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
        acked = send_map(pair.to_a, sample_bytes(1, 100), TMSG_SEND_ACKED);
        plain = send_map(pair.to_a, sample_bytes(2, 100), 0);
        must(pair_finish(&pair, plain));
        for (int i = 0; i < 1000; i++) {
            tmsg_worker_progress(pair.a.worker);
            tmsg_worker_progress(pair.b.worker);
        }
        must_be(tmsg_request_test(acked), TMSG_IN_PROGRESS);
        message = pair_take(&pair, &pair.a);
        must(pair_finish(&pair, acked));
        tmsg_message_destroy(message);
        tmsg_message_destroy(pair_take(&pair, &pair.a));
        pair_close(&pair);
    }
}

Test(failure, a_wait_that_times_out_ends_only_the_wait)
{
    tmsg_request_t *acked;
    tmsg_message_t *message;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    acked = send_map(pair.to_a, sample_bytes(1, 100), TMSG_SEND_ACKED);
    must_be(tmsg_request_wait(acked, 20), TMSG_ERR_TIMED_OUT);
    must_say(tmsg_error_message(), "the operation did not end in 20 ms");
    must_be(tmsg_request_test(acked), TMSG_IN_PROGRESS);
    must_be(tmsg_worker_recv(pair.b.worker, 20, &message), TMSG_ERR_TIMED_OUT);
    must_say(tmsg_error_message(), "no message from any peer in 20 ms");
    while (tmsg_worker_wait(pair.b.worker, 20) == TMSG_OK) {
    } /* credits, keepalives */
    must_be(tmsg_worker_wait(pair.b.worker, 0), TMSG_ERR_TIMED_OUT);
    tmsg_message_destroy(pair_take(&pair, &pair.a));
    must(pair_finish(&pair, acked));
    pair_close(&pair);
}

/* The application does not pull: the peer takes one message, and the rest waits
 * at the sender. */
Test(failure, what_waits_is_counted)
{
    const side_options_t a = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_QUEUE_DEPTH,
                   .queue_depth = 1}};
    tmsg_request_t *sent[3];
    tmsg_message_t *message;
    char *json;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &a, NULL);
    for (uint64_t i = 0; i < 3; i++) {
        sent[i] = send_map(pair.to_a, sample_bytes(i, 100), 0);
    }
    must(pair_finish(&pair, sent[0]));
    must_be(tmsg_endpoint_recv(pair.to_a, 1, &message), TMSG_ERR_TIMED_OUT);
    must_say(tmsg_error_message(), "no message from ");
    must_say(tmsg_error_message(), tmsg_endpoint_peer(pair.to_a));
    must(tmsg_endpoint_describe(pair.to_a, &json));
    must_say(json, "\"waiting_messages\":\t2,");
    tmsg_string_free(json);
    for (int i = 0; i < 3; i++) {
        tmsg_message_destroy(pair_take(&pair, &pair.a));
    }
    must(pair_finish(&pair, sent[1]));
    must(pair_finish(&pair, sent[2]));
    must(tmsg_endpoint_describe(pair.to_a, &json));
    must_say(json, "\"waiting_messages\":\t0,");
    tmsg_string_free(json);
    pair_close(&pair);
}

/* Maps that could not be made by the public functions are refused by name. */
Test(failure, memory_of_devices_that_this_build_does_not_know_is_refused)
{
    tmsg_map_t *map = sample_bytes(1, 10);
    const tmsg_device_t unknown = {1000, 0};
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    tmsg_map_set_device(map, 0, unknown);
    must_be(tmsg_endpoint_send(pair.to_a, map, NULL, NULL),
            TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), "weights 0");
    tmsg_map_destroy(map);
    pair_close(&pair);
}

Test(failure, unknown_bits_and_flags_are_refused)
{
    const tmsg_send_params_t bits = {.field_mask = 1ull << 40};
    const tmsg_send_params_t flags = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                      .flags = 1u << 30};
    const tmsg_send_params_t policy = {.field_mask = TMSG_SEND_PARAM_POLICY,
                                       .policy = 7};
    const tmsg_worker_params_t worker = {.field_mask = 1ull << 40};
    const tmsg_worker_params_t depth = {
        .field_mask = TMSG_WORKER_PARAM_QUEUE_DEPTH, .queue_depth = 0};
    const tmsg_endpoint_params_t timeout = {
        .field_mask = TMSG_ENDPOINT_PARAM_CONNECT_TIMEOUT,
        .connect_timeout_ms = 0};
    tmsg_map_t *map = sample_bytes(1, 10);
    tmsg_endpoint_t *endpoint;
    tmsg_worker_t *none;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    must_be(tmsg_endpoint_send(pair.to_a, map, &bits, NULL),
            TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_endpoint_send(pair.to_a, map, &flags, NULL),
            TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_endpoint_send(pair.to_a, map, &policy, NULL),
            TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_endpoint_send(pair.to_a, NULL, NULL, NULL),
            TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_worker_create(pair.a.context, &worker, &none),
            TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_worker_create(pair.a.context, &depth, &none),
            TMSG_ERR_INVALID_PARAM);
    must_be(
        tmsg_endpoint_connect(pair.b.worker, "tcp://:1", &timeout, &endpoint),
        TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_endpoint_connect(pair.b.worker, NULL, NULL, &endpoint),
            TMSG_ERR_INVALID_PARAM);
    tmsg_map_destroy(map);
    pair_close(&pair);
}

/* Memory that params point to is copied; NULL there means the default. */
Test(failure, what_params_point_to_is_taken_at_once)
{
    tmsg_limits_t given = {.field_mask = TMSG_LIMIT_NDIM, .ndim = 7};
    tmsg_context_params_t of_context = {.field_mask = TMSG_CONTEXT_PARAM_LIMITS,
                                        .limits = &given};
    own_memory_t memory = {.on_alloc = NULL};
    tmsg_allocator_t half = {.alloc = own_memory_allocator(&memory).alloc};
    tmsg_worker_params_t of_worker = {.field_mask = TMSG_WORKER_PARAM_ALLOCATOR,
                                      .allocator = &half};
    tmsg_context_t *context, *usual;
    tmsg_worker_t *worker = NULL;
    char *json;

    must(tmsg_context_create(&of_context, &context));
    given.ndim = 9;
    must(tmsg_context_describe(context, &json));
    must_say(json, "\"ndim\":\t7");
    tmsg_string_free(json);
    of_context.limits = NULL;
    must(tmsg_context_create(&of_context, &usual));
    must_be(tmsg_worker_create(context, &of_worker, &worker),
            TMSG_ERR_INVALID_PARAM);
    cr_expect_null(worker);
    of_worker.allocator = NULL;
    must(tmsg_worker_create(context, &of_worker, &worker));
    tmsg_worker_destroy(worker);
    tmsg_context_destroy(usual);
    tmsg_context_destroy(context);
}

/* Some of the messages under way are refused: only those are lost, and the
 * order of the rest is kept. */
Test(failure, one_refused_message_costs_itself_alone)
{
    const side_options_t options = {
        .limits = {.field_mask = TMSG_LIMIT_HELD_BYTES, .held_bytes = 3000000}};
    tmsg_request_t *sent[9];
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, NULL);
    for (uint64_t i = 0; i < 9; i++) {
        sent[i] = send_map(pair.to_a,
                           sample_bytes(i, i % 3 == 1 ? 4000000 : 700 * i + 1),
                           TMSG_SEND_ACKED);
    }
    for (uint64_t i = 0; i < 9; i++) {
        tmsg_message_t *message;

        if (i % 3 == 1) {
            continue;
        }
        message = pair_take(&pair, &pair.a);
        sample_check_bytes(i, 700 * i + 1, tmsg_message_map(message));
        tmsg_message_destroy(message);
    }
    for (uint64_t i = 0; i < 9; i++) {
        must_be(pair_finish(&pair, sent[i]),
                i % 3 == 1 ? TMSG_ERR_LIMIT_EXCEEDED : TMSG_OK);
    }
    pair_close(&pair);
}
