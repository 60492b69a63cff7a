/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/lent_maps.h"

#include <string.h>

#include "support/numbered_keys.h"
#include "support/session_pair.h"

const side_options_t lent_borrower = {
    .worker = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
               .flags = TMSG_WORKER_BORROW}};

void lent_open(pair_t *pair, link_t link)
{
    pair_open(pair, link, DRIVE_POLLING, &lent_borrower, NULL);
}

void lent_add(tmsg_map_t *map, const char *name, void *data, size_t count)
{
    const int64_t shape[] = {(int64_t)count};
    const tmsg_tensor_t tensor = {
        data, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape, NULL};

    must(tmsg_map_add(map, name, &tensor, NULL));
}

tmsg_map_t *lent_map(void *data, size_t count)
{
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    lent_add(map, "x", data, count);
    return map;
}

uint8_t *lent_block(size_t bytes)
{
    void *memory;

    must(tmsg_shareable_alloc(bytes, NULL, &memory));
    memset(memory, 3, bytes);
    return memory;
}

/* Counts calls of on_release. */
static void count_release(void *arg) { ++*(unsigned *)arg; }

tmsg_request_t *lent_send(tmsg_endpoint_t *endpoint, tmsg_map_t *map,
                          uint32_t flags, unsigned *releases)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS |
                                                     TMSG_SEND_PARAM_ON_RELEASE,
                                       .flags = flags | TMSG_SEND_LEND,
                                       .on_release = count_release,
                                       .on_release_arg = releases};
    tmsg_request_t *request;

    must(tmsg_endpoint_send(endpoint, map, &params, &request));
    tmsg_map_destroy(map);
    return request;
}

bool lent_is_back(void *arg) { return *(unsigned *)arg > 0; }

void lent_begin(lent_t *lent, size_t bytes, uint32_t flags)
{
    lent->memory = lent_block(bytes);
    lent->releases = 0;
    lent_open(&lent->pair, LINK_UNIX);
    lent->request = lent_send(lent->pair.to_a, lent_map(lent->memory, bytes),
                              flags, &lent->releases);
}

void lent_end(lent_t *lent)
{
    pair_await(&lent->pair, lent_is_back, &lent->releases, "a release");
    must_true(!tmsg_shareable_is_lent(lent->memory));
    if (lent->pair.to_a == NULL || lent->pair.to_b == NULL) {
        pair_drop(&lent->pair);
    } else {
        pair_close(&lent->pair);
    }
    must_eq(lent->releases, 1);
    must(tmsg_shareable_free(lent->memory));
}

const uint8_t *lent_data(const tmsg_message_t *message, const char *name)
{
    tmsg_tensor_t tensor;

    must(tmsg_map_find(tmsg_message_map(message), name, &tensor));
    return tensor.data;
}

static bool has_counted(void *arg)
{
    unsigned *left = arg;

    return (*left)-- == 0;
}

void lent_drive(pair_t *pair, unsigned rounds)
{
    pair_await(pair, has_counted, &rounds, "rounds");
}

long lent_count(const pair_t *pair)
{
    return described(pair->to_a, "sent_by_loan");
}

tmsg_message_t *lent_pass(pair_t *pair, tmsg_map_t *map, uint32_t flags)
{
    unsigned releases = 0;
    tmsg_request_t *request = lent_send(pair->to_a, map, flags, &releases);
    tmsg_message_t *message = pair_take(pair, &pair->a);

    must(pair_finish(pair, request));
    pair_await(pair, lent_is_back, &releases, "a release");
    return message;
}

void lent_check(const tmsg_message_t *message, const char *name, int value,
                size_t count)
{
    const uint8_t *data = lent_data(message, name);

    for (size_t i = 0; i < count; i++) {
        must_eq(data[i], value);
    }
}

void lent_must_say(const tmsg_endpoint_t *endpoint, const char *part)
{
    static const char key[] = "\"loans\":";
    char *json, *words;

    must(tmsg_endpoint_describe(endpoint, &json));
    words = strstr(json, key);
    must_true(words != NULL);
    words = strchr(words + strlen(key), '"') + 1;
    words[strcspn(words, "\"")] = '\0';
    must_say(words, part);
    tmsg_string_free(json);
}

void lent_join(side_t *side, side_t *owner, const char *name, uint8_t number,
               tmsg_endpoint_t **to_it)
{
    side_options_t options = lent_borrower;
    pair_t both = {.sides = {owner, side}};
    unsigned accepts = owner->accepts;
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *ready;

    options.keyring = name == NULL ? NULL : ring(name, number);
    side_open(side, &options);
    if (name != NULL) {
        tmsg_keyring_destroy(options.keyring);
    }
    endpoint = side_dial(side, owner);
    must(tmsg_endpoint_ready(endpoint, &ready));
    must(pair_finish(&both, ready));
    while (owner->accepts == accepts) {
        (void)tmsg_worker_progress(owner->worker);
    }
    *to_it = owner->accepted;
}
