/* SPDX-License-Identifier: BSD-3-Clause */
/* on_header sees a message before its payload is taken. It gives tensors memory
 * of its own, or refuses the message. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

#include "support/peers.h"
#include "support/seeded_maps.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define TENSORS_MAX 3000
#define GUARD 64
#define GUARD_BYTE 0xa5

static const struct {
    const char *what;
    sample_t sample;
} payloads[] = {
    {"no tensor", {.seed = 1}},
    {"empty tensors", {.seed = 2, .tensors = 5, .shape = SAMPLE_EMPTY}},
    {"small", {.seed = 3, .tensors = 4, .shape = SAMPLE_VECTOR, .elements = 9}},
    {"gathered", {.seed = 4, .tensors = 64}},
    {"one piece",
     {.seed = 5, .tensors = 1, .shape = SAMPLE_VECTOR, .elements = 3 << 20}},
    {"a scatter list",
     {.seed = 6, .tensors = 7, .shape = SAMPLE_VECTOR, .elements = 300000}},
    {"spilled and gathered",
     {.seed = 7, .tensors = TENSORS_MAX, .name_bytes = 100}},
    {"spilled and scattered",
     {.seed = 8,
      .tensors = 60,
      .name_bytes = 2000,
      .shape = SAMPLE_VECTOR,
      .elements = 100000}},
};

/* Memory that is lent to the library, with a guard on either side. */
typedef struct {
    uint8_t *memory;
    size_t bytes;
    unsigned releases;
} loan_t;

static void lend(loan_t *loan, size_t bytes)
{
    must_true(loan->memory == NULL);
    loan->memory = aligned_alloc(64, (bytes + 2 * GUARD + 63) / 64 * 64);
    must_true(loan->memory != NULL);
    loan->bytes = bytes;
    loan->releases = 0;
    memset(loan->memory, GUARD_BYTE, bytes + 2 * GUARD);
}

static void take_back(void *arg)
{
    loan_t *loan = arg;

    for (size_t i = 0; i < GUARD; i++) {
        must_eq(loan->memory[i], GUARD_BYTE);
        must_eq(loan->memory[GUARD + loan->bytes + i], GUARD_BYTE);
    }
    loan->releases++;
    free(loan->memory);
    loan->memory = NULL;
}

/* What the callback does, and what it saw. */
typedef struct {
    pair_t pair;
    size_t every; /* places tensors 0, every, 2 * every...; 0: none */
    tmsg_status_t refusal;
    tmsg_status_t told; /* by on_refused, where that is another */
    const char *words;  /* likewise */
    unsigned calls;
    unsigned refusals;
    uint64_t bytes;
    loan_t loans[TENSORS_MAX];
} scene_t;

static size_t tensor_bytes(const tmsg_map_t *map, size_t i)
{
    tmsg_tensor_t tensor;
    uint64_t bytes;

    must(tmsg_map_at(map, i, NULL, &tensor));
    must(tmsg_tensor_bytes(&tensor, &bytes));
    return (size_t)bytes;
}

static void on_header(void *arg, tmsg_incoming_t *incoming)
{
    scene_t *scene = arg;
    const tmsg_map_t *map = tmsg_incoming_map(incoming);

    scene->calls++;
    scene->bytes = tmsg_incoming_bytes(incoming);
    must_true(tmsg_incoming_endpoint(incoming) == scene->pair.to_b);
    for (size_t i = 0; scene->every > 0 && i < tmsg_map_size(map);
         i += scene->every) {
        loan_t *loan = &scene->loans[i];
        const tmsg_map_add_params_t params = {.field_mask =
                                                  TMSG_MAP_ADD_PARAM_RELEASE,
                                              .release = take_back,
                                              .release_arg = loan};

        lend(loan, tensor_bytes(map, i));
        must(tmsg_incoming_place(incoming, i, loan->memory + GUARD, loan->bytes,
                                 &params));
    }
    if (scene->refusal != TMSG_OK) {
        must(tmsg_incoming_refuse(incoming, scene->refusal, "not today"));
    }
}

static void on_refused(void *arg, tmsg_endpoint_t *endpoint, uint16_t channel,
                       uint32_t sequence, tmsg_status_t status,
                       const char *error)
{
    scene_t *scene = arg;

    (void)channel;
    (void)sequence;
    must_true(endpoint == scene->pair.to_b);
    must_be(status, scene->told != TMSG_OK ? scene->told : scene->refusal);
    must_say(error, scene->words != NULL ? scene->words : "not today");
    scene->refusals++;
}

static scene_t *open_scene(link_t link, drive_t drive, uint64_t held)
{
    scene_t *scene = calloc(1, sizeof(*scene));
    side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_ON_HEADER |
                                 TMSG_WORKER_PARAM_ON_REFUSED,
                   .on_header = on_header,
                   .on_header_arg = scene,
                   .on_refused = on_refused,
                   .on_refused_arg = scene}};

    must_true(scene != NULL);
    if (held > 0) {
        options.limits.field_mask = TMSG_LIMIT_HELD_BYTES;
        options.limits.held_bytes = held;
    }
    pair_open(&scene->pair, link, drive, &options, NULL);
    return scene;
}

static void close_scene(scene_t *scene)
{
    pair_close(&scene->pair);
    free(scene);
}

/* Each placed tensor is where it was placed, and nothing is given back before
 * the message is. */
static void expect_placed(scene_t *scene, tmsg_message_t *message)
{
    const tmsg_map_t *map = tmsg_message_map(message);
    size_t size = tmsg_map_size(map);

    for (size_t i = 0; i < size; i++) {
        tmsg_tensor_t tensor;
        bool placed = scene->every > 0 && i % scene->every == 0;

        must(tmsg_map_at(map, i, NULL, &tensor));
        if (placed) {
            must_true(tensor.data == scene->loans[i].memory + GUARD);
            must_eq(scene->loans[i].releases, 0);
        } else if (tensor_bytes(map, i) > 0) {
            must_eq((uintptr_t)tensor.data % 16, 0);
        }
    }
    tmsg_message_destroy(message);
    for (size_t i = 0; scene->every > 0 && i < size; i += scene->every) {
        must_eq(scene->loans[i].releases, 1);
    }
}

static void places(link_t link, drive_t drive, unsigned flags)
{
    static const size_t every[] = {0, 1, 2, 3};
    scene_t *scene = open_scene(link, drive, 0);

    for (size_t i = 0; i < COUNT(payloads); i++) {
        const sample_t *sample = &payloads[i].sample;
        tmsg_map_t *map = sample_make(sample);
        const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                           .flags = flags};

        for (size_t j = 0; j < COUNT(every); j++) {
            tmsg_request_t *sent;
            tmsg_message_t *message;

            scene->every = every[j];
            scene->calls = 0;
            must(tmsg_endpoint_send(scene->pair.to_a, map, &params, &sent));
            message = pair_take(&scene->pair, &scene->pair.a);
            must_eq(scene->calls, 1);
            sample_check(sample, tmsg_message_map(message));
            must(pair_finish(&scene->pair, sent));
            expect_placed(scene, message);
        }
        tmsg_map_destroy(map);
    }
    close_scene(scene);
}

Test(place, tensors_come_where_they_are_placed_shm)
{
    places(LINK_SHM, DRIVE_POLLING, 0);
}
Test(place, tensors_come_where_they_are_placed_tcp)
{
    places(LINK_TCP, DRIVE_THREAD, TMSG_SEND_VERIFY);
}

/* Each kind of payload is refused, and the message behind it arrives. */
static void refuses(link_t link)
{
    static const size_t bytes[] = {10, 3000, 200000, 7000000};

    for (size_t i = 0; i < COUNT(bytes); i++) {
        scene_t *scene = open_scene(link, DRIVE_POLLING, 0);
        tmsg_message_t *message;
        tmsg_request_t *sent;

        scene->every = 1;
        scene->refusal = TMSG_ERR_BUSY;
        sent = send_map(scene->pair.to_a, sample_bytes(1, bytes[i]),
                        TMSG_SEND_ACKED);
        must_be(pair_wait(&scene->pair, sent), TMSG_ERR_BUSY);
        must_say(tmsg_request_error(sent), "not today");
        must_say(tmsg_request_error(sent),
                 tmsg_endpoint_peer(scene->pair.to_a));
        tmsg_request_destroy(sent);
        scene->refusal = TMSG_OK;
        sent = send_map(scene->pair.to_a, sample_bytes(2, bytes[i]),
                        TMSG_SEND_ACKED);
        message = pair_take(&scene->pair, &scene->pair.a);
        sample_check_bytes(2, bytes[i], tmsg_message_map(message));
        tmsg_message_destroy(message);
        must(pair_finish(&scene->pair, sent));
        must_eq(scene->loans[0].releases, 1);
        must_true(scene->loans[0].memory == NULL);
        close_scene(scene);
    }
}

Test(place, a_refusal_reaches_the_sender_shm) { refuses(LINK_SHM); }
Test(place, a_refusal_reaches_the_sender_tcp) { refuses(LINK_TCP); }

static bool refused(void *arg) { return ((scene_t *)arg)->refusals > 0; }

Test(place, a_refusal_is_told_here_in_its_turn)
{
    scene_t *scene = open_scene(LINK_SHM, DRIVE_POLLING, 0);

    scene->refusal = TMSG_ERR_UNSUPPORTED;
    tmsg_request_destroy(
        send_map(scene->pair.to_a, sample_bytes(1, 3000000), 0));
    pair_await(&scene->pair, refused, scene, "on_refused");
    must_eq(scene->calls, 1);
    scene->refusal = TMSG_OK;
    close_scene(scene);
}

/* A message whose spilled body came with the payload can still be refused. */
Test(place, a_refusal_of_what_was_fetched_already)
{
    const sample_t *sample = &payloads[COUNT(payloads) - 1].sample;
    scene_t *scene = open_scene(LINK_SHM, DRIVE_POLLING, 0);
    tmsg_request_t *sent;

    scene->every = 2;
    scene->refusal = TMSG_ERR_REFUSED;
    sent = send_map(scene->pair.to_a, sample_make(sample), TMSG_SEND_ACKED);
    must_be(pair_wait(&scene->pair, sent), TMSG_ERR_REFUSED);
    must_say(tmsg_request_error(sent), "not today");
    tmsg_request_destroy(sent);
    pair_await(&scene->pair, refused, scene, "on_refused");
    scene->refusal = TMSG_OK;
    close_scene(scene);
}

/* Placed tensors need none of the library's memory. */
Test(place, memory_of_ones_own_does_not_count)
{
    static const size_t bytes = 3000000;
    scene_t *scene = open_scene(LINK_SHM, DRIVE_POLLING, 100000);
    tmsg_message_t *message;
    tmsg_request_t *sent;

    scene->every = 1;
    sent = send_map(scene->pair.to_a, sample_bytes(1, bytes), 0);
    message = pair_take(&scene->pair, &scene->pair.a);
    sample_check_bytes(1, bytes, tmsg_message_map(message));
    must_eq(scene->bytes, bytes);
    tmsg_message_destroy(message);
    must(pair_finish(&scene->pair, sent));
    scene->every = 0;
    scene->words = "held_bytes";
    scene->told = TMSG_ERR_LIMIT_EXCEEDED;
    sent = send_map(scene->pair.to_a, sample_bytes(1, bytes), TMSG_SEND_ACKED);
    must_be(pair_wait(&scene->pair, sent), TMSG_ERR_LIMIT_EXCEEDED);
    must_say(tmsg_request_error(sent), "held_bytes");
    tmsg_request_destroy(sent);
    close_scene(scene);
}

/* If a message is sent on, its memory is lent until that send has ended. */
Test(place, a_message_is_sent_on)
{
    static const size_t bytes = 3000000;
    scene_t *scene = open_scene(LINK_SHM, DRIVE_POLLING, 0);
    tmsg_message_t *message;
    tmsg_request_t *sent, *back;

    scene->every = 1;
    sent = send_map(scene->pair.to_a, sample_bytes(1, bytes), 0);
    message = pair_take(&scene->pair, &scene->pair.a);
    must(tmsg_endpoint_send(scene->pair.to_b, tmsg_message_map(message), NULL,
                            &back));
    tmsg_message_destroy(message);
    must_eq(scene->loans[0].releases, 0);
    message = pair_take(&scene->pair, &scene->pair.b);
    sample_check_bytes(1, bytes, tmsg_message_map(message));
    tmsg_message_destroy(message);
    must(pair_finish(&scene->pair, back));
    must(pair_finish(&scene->pair, sent));
    must_eq(scene->loans[0].releases, 1);
    close_scene(scene);
}

static void ask_wrongly(void *arg, tmsg_incoming_t *incoming)
{
    static uint8_t room[1000];
    const tmsg_map_add_params_t unknown = {.field_mask = 1 << 5};
    unsigned *calls = arg;

    must_be(tmsg_incoming_place(incoming, 1, room, sizeof(room), NULL),
            TMSG_ERR_NOT_FOUND);
    must_say(tmsg_error_message(), "tensor index 1 is out of range");
    must_be(tmsg_incoming_place(incoming, 0, NULL, sizeof(room), NULL),
            TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_incoming_place(incoming, 0, room, 999, NULL),
            TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), ": 1000 bytes do not fit into 999");
    must_be(tmsg_incoming_place(incoming, 0, room, sizeof(room), &unknown),
            TMSG_ERR_INVALID_PARAM);
    must(tmsg_incoming_place(incoming, 0, room, sizeof(room), NULL));
    must_be(tmsg_incoming_place(incoming, 0, room, sizeof(room), NULL),
            TMSG_ERR_ALREADY_EXISTS);
    must_be(tmsg_incoming_refuse(incoming, TMSG_OK, ""),
            TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_incoming_refuse(incoming, TMSG_ERR_CLOSED, ""),
            TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_incoming_refuse(incoming, TMSG_ERR_BUSY, NULL),
            TMSG_ERR_INVALID_PARAM);
    ++*calls;
}

Test(place, what_is_wrong_is_said)
{
    unsigned calls = 0;
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_ON_HEADER,
                   .on_header = ask_wrongly,
                   .on_header_arg = &calls}};
    tmsg_message_t *message;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, NULL);
    tmsg_request_destroy(send_map(pair.to_a, sample_bytes(1, 1000), 0));
    message = pair_take(&pair, &pair.a);
    sample_check_bytes(1, 1000, tmsg_message_map(message));
    tmsg_message_destroy(message);
    must_eq(calls, 1);
    pair_close(&pair);
}

/* The callback may call the library, and destroy the message's endpoint. */
static void call_and_destroy(void *arg, tmsg_incoming_t *incoming)
{
    scene_t *scene = arg;
    loan_t *loan = &scene->loans[0];
    const tmsg_map_add_params_t params = {.field_mask =
                                              TMSG_MAP_ADD_PARAM_RELEASE,
                                          .release = take_back,
                                          .release_arg = loan};
    tmsg_message_t *message;
    char *json;

    lend(loan, tensor_bytes(tmsg_incoming_map(incoming), 0));
    must(tmsg_incoming_place(incoming, 0, loan->memory + GUARD, loan->bytes,
                             &params));
    must(tmsg_endpoint_describe(scene->pair.to_b, &json));
    tmsg_string_free(json);
    must_be(tmsg_worker_recv(scene->pair.a.worker, 1000, &message),
            TMSG_ERR_WOULD_BLOCK);
    tmsg_endpoint_destroy(scene->pair.to_b);
    scene->pair.to_b = NULL;
    scene->calls++;
}

static bool released(void *arg) { return ((loan_t *)arg)->releases > 0; }

static void ends_in_the_callback(link_t link, size_t bytes)
{
    scene_t *scene = calloc(1, sizeof(*scene));
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_ON_HEADER,
                   .on_header = call_and_destroy,
                   .on_header_arg = scene}};

    must_true(scene != NULL);
    pair_open(&scene->pair, link, DRIVE_POLLING, &options, NULL);
    tmsg_request_destroy(send_map(scene->pair.to_a, sample_bytes(1, bytes), 0));
    pair_await(&scene->pair, released, &scene->loans[0], "the release");
    must_be(pair_end_of(&scene->pair, scene->pair.to_a), TMSG_ERR_PEER_LOST);
    must_eq(scene->calls, 1);
    pair_drop(&scene->pair);
    free(scene);
}

Test(place, the_endpoint_may_end_in_the_callback)
{
    ends_in_the_callback(LINK_SHM, 10);
    ends_in_the_callback(LINK_SHM, 3000000);
    ends_in_the_callback(LINK_TCP, 3000);
    ends_in_the_callback(LINK_TCP, 3000000);
}
