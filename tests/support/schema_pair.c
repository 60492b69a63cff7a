/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/schema_pair.h"

#include <stdlib.h>
#include <string.h>

#include "core/limits.h"
#include "core/map.h"
#include "support/must.h"

void schema_pair_open(schema_pair_t *pair, uint32_t slots, uint64_t tx_bytes,
                      uint64_t rx_bytes)
{
    memset(pair, 0, sizeof(*pair));
    pair->limits = tmsg_limits_usual();
    pair->tx.limit = tx_bytes;
    pair->rx.limit = rx_bytes;
    must(tmsg_schema_table_create(slots, &pair->tx, &pair->table));
    must(tmsg_schema_store_create(slots, &pair->rx, &pair->store));
}

static void forget(schema_pair_message_t *message)
{
    tmsg_map_destroy(message->wanted);
    tmsg_map_destroy(message->map);
    tmsg_schema_destroy(message->schema);
    free(message->body);
}

void schema_pair_close(schema_pair_t *pair)
{
    for (size_t i = 0; i < pair->count; i++) {
        forget(&pair->messages[i]);
    }
    tmsg_schema_table_destroy(pair->table);
    tmsg_schema_store_destroy(pair->store);
    must_eq(pair->tx.used, 0);
    must_eq(pair->rx.used, 0);
    must_eq(pair->rx.pending, 0);
}

/* In an allocation of exactly its size, for ASan's sake. */
static uint8_t *encode(const tmsg_map_t *map, const tmsg_body_extra_t *extra,
                       size_t bytes)
{
    uint8_t *body = malloc(bytes);
    size_t needed;

    must_true(body != NULL);
    must(tmsg_body_encode(map, extra, body, bytes, &needed));
    must_eq(needed, bytes);
    return body;
}

/* What a receiver without schemas would have of it. */
static tmsg_map_t *in_full(const tmsg_map_t *map, const tmsg_limits_t *limits)
{
    tmsg_map_t *copy;
    size_t bytes;
    uint8_t *body;

    must(tmsg_body_encode(map, NULL, NULL, 0, &bytes));
    body = encode(map, NULL, bytes);
    must(tmsg_map_create(&copy));
    must(tmsg_body_decode(body, bytes, limits, copy, NULL));
    free(body);
    return copy;
}

static void check_budgets(const schema_pair_t *pair)
{
    must_true(pair->tx.used <= pair->tx.limit);
    must_true(pair->rx.used <= pair->rx.limit);
    must_true(pair->rx.pending <= pair->rx.limit);
}

tmsg_schema_form_t schema_pair_send(schema_pair_t *pair, const tmsg_map_t *map)
{
    schema_pair_message_t *message = &pair->messages[pair->count];
    const tmsg_schema_use_t *use = &message->sent.schema;

    must_true(pair->count < SCHEMA_PAIR_WINDOW);
    memset(message, 0, sizeof(*message));
    must(tmsg_schema_table_choose(pair->table, map, &message->sent,
                                  &message->bytes));
    message->body = encode(map, &message->sent, message->bytes);
    tmsg_schema_table_sent(pair->table, use);
    message->wanted = in_full(map, &pair->limits);
    pair->count++;
    pair->whole += use->form == TMSG_SCHEMA_NONE;
    pair->defined += use->form == TMSG_SCHEMA_DEFINES;
    if (use->form == TMSG_SCHEMA_REFERS) {
        pair->referred++;
        if (message->bytes > pair->most_bytes) {
            pair->most_bytes = message->bytes;
        }
    }
    check_budgets(pair);
    return use->form;
}

static void compare_extents(const int64_t *extents, const int64_t *wanted,
                            int32_t ndim)
{
    for (int32_t i = 0; i < ndim; i++) {
        must_eq(extents[i], wanted[i]);
    }
}

static void compare_tensor(const tmsg_map_t *map, const tmsg_map_entry_t *entry,
                           const tmsg_map_entry_t *wanted)
{
    const tmsg_tensor_t *a = &entry->tensor, *b = &wanted->tensor;
    tmsg_tensor_t found;

    must_eq(entry->name_bytes, wanted->name_bytes);
    must_true(memcmp(entry->name, wanted->name, entry->name_bytes + 1) == 0);
    must_true(memcmp(&a->dtype, &b->dtype, sizeof(a->dtype)) == 0);
    must_eq(a->device.type, b->device.type);
    must_eq(a->device.id, b->device.id);
    must_eq(a->ndim, b->ndim);
    compare_extents(a->shape, b->shape, a->ndim);
    must_eq(a->strides != NULL, b->strides != NULL);
    if (a->strides != NULL) {
        compare_extents(a->strides, b->strides, a->ndim);
    }
    must_eq(entry->bytes, wanted->bytes);
    must_true(a->data == NULL && entry->release == NULL);
    must(tmsg_map_find(map, entry->name, &found));
    must_true(found.shape == a->shape);
}

static void compare_meta(const tmsg_map_meta_entry_t *entry,
                         const tmsg_map_meta_entry_t *wanted)
{
    must_eq(entry->key_bytes, wanted->key_bytes);
    must_true(memcmp(entry->key, wanted->key, entry->key_bytes) == 0);
    must_eq(entry->value.type, wanted->value.type);
    must_eq(entry->value.i64, wanted->value.i64);
    must_eq(entry->value.bytes, wanted->value.bytes);
}

void schema_pair_compare(const tmsg_map_t *map, const tmsg_map_t *wanted)
{
    must_eq(tmsg_map_size(map), tmsg_map_size(wanted));
    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        compare_tensor(map, &tmsg_map_entries(map)[i],
                       &tmsg_map_entries(wanted)[i]);
    }
    must_eq(tmsg_map_meta_size(map), tmsg_map_meta_size(wanted));
    for (size_t i = 0; i < tmsg_map_meta_size(map); i++) {
        compare_meta(&tmsg_map_meta_entries(map)[i],
                     &tmsg_map_meta_entries(wanted)[i]);
    }
}

void schema_pair_arrive(schema_pair_t *pair, size_t index)
{
    schema_pair_message_t *message = &pair->messages[index];
    tmsg_body_extra_t extra = {0};
    const tmsg_schema_use_t *use = &extra.schema;
    const tmsg_schema_t *schema;

    must_true(index < pair->count && !message->arrived);
    message->arrived = true;
    must(tmsg_map_create(&message->map));
    must(tmsg_body_decode(message->body, message->bytes, &pair->limits,
                          message->map, &extra));
    must_eq(use->form, message->sent.schema.form);
    if (use->form == TMSG_SCHEMA_DEFINES) {
        must_eq(use->slot, message->sent.schema.slot);
        must_eq(use->generation, message->sent.schema.generation);
        message->schema = tmsg_schema_store_prepare(pair->store, message->map,
                                                    use, message->bytes);
    } else if (use->form == TMSG_SCHEMA_REFERS) {
        must(tmsg_schema_store_find(pair->store, use, &schema));
        must(tmsg_schema_fill(schema, use, message->map));
    }
    schema_pair_compare(message->map, message->wanted);
    check_budgets(pair);
}

bool schema_pair_turn(schema_pair_t *pair)
{
    schema_pair_message_t message = pair->messages[0];
    const tmsg_schema_use_t *use = &message.sent.schema;

    if (pair->count == 0 || !message.arrived) {
        return false;
    }
    if (use->form == TMSG_SCHEMA_DEFINES) {
        size_t last = pair->answer_count++;

        must_true(last < SCHEMA_PAIR_WINDOW);
        pair->answers[last].slot = use->slot;
        pair->answers[last].generation = use->generation;
        pair->answers[last].kept = tmsg_schema_store_take(
            pair->store, use->slot, use->generation, message.schema);
        message.schema = NULL;
    }
    pair->count--;
    memmove(pair->messages, pair->messages + 1, pair->count * sizeof(message));
    schema_pair_compare(message.map, message.wanted);
    forget(&message);
    check_budgets(pair);
    return true;
}

bool schema_pair_answer(schema_pair_t *pair)
{
    if (pair->answer_count == 0) {
        return false;
    }
    must(tmsg_schema_table_answered(pair->table, pair->answers[0].slot,
                                    pair->answers[0].generation,
                                    pair->answers[0].kept));
    pair->answer_count--;
    memmove(pair->answers, pair->answers + 1,
            pair->answer_count * sizeof(pair->answers[0]));
    check_budgets(pair);
    return true;
}

void schema_pair_settle(schema_pair_t *pair)
{
    for (size_t i = 0; i < pair->count; i++) {
        if (!pair->messages[i].arrived) {
            schema_pair_arrive(pair, i);
        }
    }
    while (schema_pair_turn(pair)) {
    }
    while (schema_pair_answer(pair)) {
    }
    must_eq(pair->rx.used, pair->tx.used);
    must_eq(pair->rx.pending, 0);
}
