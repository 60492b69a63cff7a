/* SPDX-License-Identifier: BSD-3-Clause */
/* Builds the maps that standard input describes and prints the header that
 * the library encodes for each, in hex. A line is one of
 *
 *     t NAME CODE BITS LANES DEVICE_TYPE DEVICE_ID NDIM SHAPE... [STRIDES...]
 *     m KEY b|i|f|s|x VALUE      a bool, i64, f64 (its bits), string or bytes
 *     .                          the map is complete
 *
 * with names, keys, strings and bytes in hex, "-" for none. With an argument,
 * whatever it is, the header has checksums, and the payload follows it. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tensormsg/tensormsg.h>

#include "am/endpoint/measures.h"
#include "am/send/plan.h"
#include "serialize/checksum.h"
#include "support/golden_listing.h"
#include "support/must.h"

/* The next word of the line. */
static const char *word(void)
{
    const char *text = strtok(NULL, " \n");

    assert(text != NULL);
    return text;
}

static int64_t number(void) { return strtoll(word(), NULL, 10); }

/* The next word's bytes, with a NUL after them. */
static char *hex(size_t *bytes_p)
{
    const char *text = word();
    uint8_t *bytes = golden_unhex(*text == '-' ? "" : text, bytes_p);
    char *copy = calloc(1, *bytes_p + 1);

    memcpy(copy, bytes, *bytes_p);
    free(bytes);
    return copy;
}

static bool read_extents(int64_t *extents, int32_t ndim)
{
    for (int32_t i = 0; i < ndim; i++) {
        const char *text = strtok(NULL, " \n");

        if (text == NULL) {
            return false;
        }
        extents[i] = strtoll(text, NULL, 10);
    }
    return ndim > 0;
}

/* Of every tensor; strides may go either way from its middle. */
static double memory[1 << 16];

static void add_tensor(tmsg_map_t *map)
{
    int64_t shape[64], strides[64];
    tmsg_tensor_t tensor = {.data = &memory[1 << 15], .shape = shape};
    size_t bytes;
    char *name = hex(&bytes);

    tensor.dtype.code = (uint8_t)number();
    tensor.dtype.bits = (uint8_t)number();
    tensor.dtype.lanes = (uint16_t)number();
    tensor.device.type = (int32_t)number();
    tensor.device.id = (int32_t)number();
    tensor.ndim = (int32_t)number();
    assert(tensor.ndim <= 64);
    read_extents(shape, tensor.ndim);
    tensor.strides = read_extents(strides, tensor.ndim) ? strides : NULL;
    must(tmsg_map_add(map, name, &tensor, NULL));
    free(name);
}

static void set_meta(tmsg_map_t *map)
{
    size_t key_bytes, bytes;
    char *key = hex(&key_bytes), *data = NULL;
    tmsg_meta_t value = {.type = TMSG_META_TYPE_BOOL};
    uint64_t bits;
    char type = *word();

    switch (type) {
    case 'b':
        value.boolean = number() != 0;
        break;
    case 'i':
        value.type = TMSG_META_TYPE_I64;
        value.i64 = number();
        break;
    case 'f':
        value.type = TMSG_META_TYPE_F64;
        bits = strtoull(word(), NULL, 16);
        memcpy(&value.f64, &bits, sizeof(bits));
        break;
    case 's':
    case 'x':
        value.type = type == 's' ? TMSG_META_TYPE_STRING : TMSG_META_TYPE_BYTES;
        data = hex(&bytes);
        value.data = data;
        value.bytes = bytes;
        break;
    default:
        abort();
    }
    must(tmsg_map_set_meta(map, key, &value));
    free(key);
    free(data);
}

static void print_hex(const void *bytes, size_t count)
{
    const uint8_t *at = bytes;

    for (size_t i = 0; i < count; i++) {
        printf("%02x", at[i]);
    }
}

static void print_payload(const tmsg_plan_t *plan)
{
    if (plan->iov_count == 0) {
        print_hex(plan->contiguous, plan->bytes);
    }
    for (size_t i = 0; i < plan->iov_count; i++) {
        print_hex(plan->iov[i].iov_base, plan->iov[i].iov_len);
    }
}

/* Header and payload, as a send has them. */
static void print_message(const tmsg_map_t *map)
{
    tmsg_preamble_t preamble = {.kind = TMSG_PREAMBLE_MAP};
    uint8_t *values = calloc(tmsg_map_size(map) + 1, 8), *header;
    tmsg_body_extra_t extra = {.checksums = values};
    tmsg_measures_t measures;
    const tmsg_payload_t payload = {.map = map,
                                    .measures = &measures,
                                    .extra = &extra,
                                    .checksums = values};
    tmsg_pool_t pool;
    tmsg_plan_t plan = {0};
    size_t needed;

    tmsg_pool_init(&pool, 0, 0);
    must(tmsg_checksum_find(TMSG_CHECKSUM_XXH3, &extra.checksum));
    must(tmsg_plan_measure(map, TMSG_WAY_NO_FRAGMENTS, 0, &measures));
    must(tmsg_plan_make(&payload, &pool, &plan));
    must(tmsg_body_encode(map, &extra, NULL, 0, &needed));
    header = malloc(TMSG_PREAMBLE_BYTES + needed);
    preamble.payload_bytes = plan.bytes;
    preamble.body_bytes = (uint32_t)needed;
    tmsg_preamble_encode(&preamble, header);
    must(tmsg_body_encode(map, &extra, header + TMSG_PREAMBLE_BYTES, needed,
                          &needed));
    print_hex(header, TMSG_PREAMBLE_BYTES + needed);
    putchar(' ');
    print_payload(&plan);
    putchar('\n');
    tmsg_plan_free(&plan, &pool);
    tmsg_pool_free(&pool);
    free(header);
    free(values);
}

static void print_header(const tmsg_map_t *map)
{
    tmsg_preamble_t preamble = {.kind = TMSG_PREAMBLE_MAP};
    tmsg_limits_t limits = {.field_mask = TMSG_LIMIT_ALL};
    uint8_t *header;
    size_t needed, again;

    must(tmsg_limits_default(&limits));
    must(tmsg_layout_bytes(map, &limits, &preamble.payload_bytes));
    must(tmsg_body_encode(map, NULL, NULL, 0, &needed));
    preamble.body_bytes = (uint32_t)needed;
    header = malloc(TMSG_PREAMBLE_BYTES + needed);
    must_true(header != NULL);
    tmsg_preamble_encode(&preamble, header);
    must(tmsg_body_encode(map, NULL, header + TMSG_PREAMBLE_BYTES, needed,
                          &again));
    must_eq(again, needed);
    print_hex(header, TMSG_PREAMBLE_BYTES + needed);
    putchar('\n');
    free(header);
}

int main(int argc, char **argv)
{
    void (*print)(const tmsg_map_t *map) =
        argc > 1 ? print_message : print_header;
    tmsg_map_t *map;
    char *line = NULL;
    size_t room = 0;

    (void)argv;
    for (size_t i = 0; i < sizeof(memory) / sizeof(memory[0]); i++) {
        memory[i] = (double)i;
    }
    must(tmsg_map_create(&map));
    while (getline(&line, &room, stdin) > 0) {
        switch (*strtok(line, " \n")) {
        case 't':
            add_tensor(map);
            break;
        case 'm':
            set_meta(map);
            break;
        default:
            print(map);
            must(tmsg_map_clear(map));
            break;
        }
    }
    free(line);
    tmsg_map_destroy(map);
    return 0;
}
