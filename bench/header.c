/* SPDX-License-Identifier: BSD-3-Clause */
/* What a header costs, UCX aside. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tensormsg/tensormsg.h>

#include "bench.h"
#include "core/limits.h"
#include "core/map.h"
#include "header.h"
#include "serialize/schema.h"

#define BLOCKS 21
#define SLOTS 16
#define BODY_BYTES_MAX (64u * 1024u)
#define REPEAT_BYTES 64 /* of the header of a message like the last one */

/* Names and shapes like those of a model's weights. */
tmsg_map_t *bench_header_map(size_t tensors)
{
    static uint8_t data[4 * 3 * 16 * 16];
    const int64_t shape[] = {3, 16, 16};
    const tmsg_tensor_t tensor = {
        data, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_FLOAT, 32, 1}, 3, shape, NULL};
    tmsg_map_t *map;

    bench_must(tmsg_map_create(&map));
    for (size_t i = 0; i < tensors; i++) {
        char name[48];

        snprintf(name, sizeof(name), "layer%zu.conv.weight", i);
        bench_must(tmsg_map_add(map, name, &tensor, NULL));
    }
    return map;
}

/* Both ends of a channel, as far as headers go. */
typedef struct {
    tmsg_map_t *map;
    tmsg_schema_budget_t tx, rx;
    tmsg_schema_table_t *table;
    tmsg_schema_store_t *store;
    tmsg_limits_t limits;
    uint64_t stamp;             /* of the layout of what repeats */
    uint32_t number;            /* of the next message */
    tmsg_map_t *laid;           /* the map that a repeat is received as */
    bool back;                  /* whoever received that has given it back */
    uint8_t last[REPEAT_BYTES]; /* the header, as both ends have kept it */
    size_t last_bytes;
    uint8_t buffer[TMSG_PREAMBLE_BYTES + BODY_BYTES_MAX];
} ends_t;

static ends_t *open_ends(size_t tensors)
{
    ends_t *ends = calloc(1, sizeof(*ends));

    if (ends == NULL) {
        bench_die("header: no memory");
    }
    ends->map = bench_header_map(tensors);
    ends->tx.limit = ends->rx.limit = BODY_BYTES_MAX;
    ends->limits = tmsg_limits_usual();
    bench_must(tmsg_schema_table_create(SLOTS, &ends->tx, &ends->table));
    bench_must(tmsg_schema_store_create(SLOTS, &ends->rx, &ends->store));
    return ends;
}

static void close_ends(ends_t *ends)
{
    tmsg_schema_table_destroy(ends->table);
    tmsg_schema_store_destroy(ends->store);
    tmsg_map_destroy(ends->laid);
    tmsg_map_destroy(ends->map);
    free(ends);
}

/* As a send does it, in two passes. */
static size_t write_header(ends_t *ends, tmsg_body_extra_t *extra)
{
    tmsg_preamble_t head = {.kind = TMSG_PREAMBLE_MAP};
    size_t bytes;

    bench_must(tmsg_schema_table_choose(ends->table, ends->map, extra, &bytes));
    head.body_bytes = (uint32_t)bytes;
    bench_must(tmsg_body_encode(ends->map, extra,
                                ends->buffer + TMSG_PREAMBLE_BYTES,
                                BODY_BYTES_MAX, &bytes));
    tmsg_preamble_encode(&head, ends->buffer);
    return TMSG_PREAMBLE_BYTES + bytes;
}

/* As a receive does it; what is to be kept. */
static tmsg_schema_t *read_header(ends_t *ends, size_t bytes)
{
    tmsg_preamble_t head;
    tmsg_body_extra_t extra = {0};
    const tmsg_schema_t *schema;
    tmsg_schema_t *aside = NULL;
    tmsg_map_t *map;

    bench_must(tmsg_preamble_decode(ends->buffer, bytes, &head));
    bench_must(tmsg_map_create(&map));
    bench_must(tmsg_body_decode(ends->buffer + head.bytes, head.body_bytes,
                                &ends->limits, map, &extra));
    if (extra.schema.form == TMSG_SCHEMA_REFERS) {
        bench_must(tmsg_schema_store_find(ends->store, &extra.schema, &schema));
        bench_must(tmsg_schema_fill(schema, &extra.schema, map));
    } else {
        aside = tmsg_schema_store_prepare(ends->store, map, &extra.schema,
                                          head.body_bytes);
    }
    tmsg_map_destroy(map);
    return aside;
}

/* A definition that is not counted as sent, so that the next is one, too. */
static void first(void *arg)
{
    ends_t *ends = arg;
    tmsg_body_extra_t extra = {0};
    size_t bytes = write_header(ends, &extra);

    if (extra.schema.form != TMSG_SCHEMA_DEFINES) {
        bench_die("header: no definition");
    }
    tmsg_schema_destroy(read_header(ends, bytes));
}

static void define(ends_t *ends)
{
    tmsg_body_extra_t extra = {0};
    size_t bytes = write_header(ends, &extra);
    tmsg_schema_t *schema = read_header(ends, bytes);

    tmsg_schema_table_sent(ends->table, &extra.schema);
    bench_must(tmsg_schema_table_answered(
        ends->table, extra.schema.slot, extra.schema.generation,
        tmsg_schema_store_take(ends->store, extra.schema.slot,
                               extra.schema.generation, schema)));
}

/* Of a layout that the peer knows. */
static void known(void *arg)
{
    ends_t *ends = arg;
    tmsg_body_extra_t extra = {0};
    size_t bytes = write_header(ends, &extra);

    if (extra.schema.form != TMSG_SCHEMA_REFERS) {
        bench_die("header: no reference");
    }
    (void)read_header(ends, bytes);
}

static void give_back(void *arg) { ((ends_t *)arg)->back = true; }

/* Of a message like the one before: both ends have its header, and the receiver
 * a map that is as that one was left. */
static void note_last(ends_t *ends)
{
    tmsg_body_extra_t extra = {0};
    const tmsg_schema_t *schema;

    ends->last_bytes = write_header(ends, &extra);
    if (extra.schema.form != TMSG_SCHEMA_REFERS ||
        ends->last_bytes > sizeof(ends->last)) {
        bench_die("header: it does not repeat");
    }
    memcpy(ends->last, ends->buffer, ends->last_bytes);
    ends->stamp = tmsg_map_stamp(ends->map);
    bench_must(tmsg_schema_store_find(ends->store, &extra.schema, &schema));
    bench_must(tmsg_map_create(&ends->laid));
    bench_must(tmsg_schema_fill(schema, &extra.schema, ends->laid));
}

static void steady(void *arg)
{
    ends_t *ends = arg;
    uint32_t id, message_id, sequence;
    uint16_t channel;

    if (tmsg_map_meta_size(ends->map) > 0 ||
        tmsg_map_stamp_known(ends->map) != ends->stamp) {
        bench_die("header: another layout");
    }
    memcpy(ends->buffer, ends->last, sizeof(ends->last));
    tmsg_preamble_renumber(ends->buffer, ends->number, ends->number);
    if (!tmsg_preamble_peek(ends->buffer, ends->last_bytes, &id, &channel) ||
        !tmsg_preamble_repeats(ends->last, ends->buffer, ends->last_bytes,
                               &message_id, &sequence) ||
        sequence != ends->number++) {
        bench_die("header: it is not like the last one");
    }
    tmsg_map_recycle_laid(ends->laid, give_back, ends);
    tmsg_map_destroy(ends->laid); /* as the application does */
    if (!ends->back) {
        bench_die("header: the map is gone");
    }
    ends->back = false;
}

double bench_header_time(void (*round)(void *arg), void *arg, unsigned rounds)
{
    double values[BLOCKS];

    round(arg);
    for (unsigned block = 0; block < BLOCKS; block++) {
        double begin = bench_now();

        for (unsigned i = 0; i < rounds; i++) {
            round(arg);
        }
        values[block] = (bench_now() - begin) * 1e9 / rounds;
    }
    return bench_median(values, BLOCKS);
}

static double measure(size_t tensors, unsigned rounds, bool is_known,
                      void (*round)(void *arg))
{
    ends_t *ends = open_ends(tensors);
    double ns;

    if (is_known) {
        define(ends);
        note_last(ends);
    }
    ns = bench_header_time(round, ends, rounds);
    close_ends(ends);
    return ns;
}

double bench_header_first(size_t tensors, unsigned rounds)
{
    return measure(tensors, rounds, false, first) / (double)tensors;
}

double bench_header_known(size_t tensors, unsigned rounds)
{
    return measure(tensors, rounds, true, known);
}

double bench_header_steady(size_t tensors, unsigned rounds)
{
    return measure(tensors, rounds, true, steady);
}
