/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>

#include "core/error.h"
#include "serialize/schema_struct.h"

typedef struct {
    tmsg_schema_t *schema; /* NULL if the slot is empty */
    uint8_t generation;
} slot_t;

struct tmsg_schema_store {
    tmsg_schema_budget_t *budget;
    uint32_t count;
    slot_t slots[];
};

tmsg_status_t tmsg_schema_store_create(uint32_t slots,
                                       tmsg_schema_budget_t *budget,
                                       tmsg_schema_store_t **store_p)
{
    tmsg_schema_store_t *store =
        calloc(1, sizeof(*store) + slots * sizeof(store->slots[0]));

    if (store == NULL) {
        return tmsg_error_memory("the slots for schemas");
    }
    store->budget = budget;
    store->count = slots;
    *store_p = store;
    return TMSG_OK;
}

void tmsg_schema_store_destroy(tmsg_schema_store_t *store)
{
    for (uint32_t i = 0; store != NULL && i < store->count; i++) {
        tmsg_schema_destroy(store->slots[i].schema);
    }
    free(store);
}

static bool fits_limit(uint64_t bytes, uint64_t used, uint64_t limit)
{
    return used <= limit && bytes <= limit - used;
}

/* Adds a schema to the total, if there is one. Returns false if the total now
 * exceeds its limit; the caller then destroys the schema. */
static bool join_total(tmsg_schema_total_t *total, tmsg_schema_t *schema)
{
    if (total == NULL) {
        return true;
    }
    schema->total = total; /* tmsg_schema_destroy() subtracts the bytes */
    return fits_limit(schema->body_bytes,
                      atomic_fetch_add(&total->used, schema->body_bytes),
                      total->limit);
}

tmsg_schema_t *tmsg_schema_store_prepare(tmsg_schema_store_t *store,
                                         const tmsg_map_t *map,
                                         const tmsg_schema_use_t *use,
                                         uint64_t body_bytes)
{
    tmsg_schema_t *schema;

    if (store == NULL || use->slot >= store->count ||
        !fits_limit(body_bytes, store->budget->pending, store->budget->limit) ||
        tmsg_schema_create(map, use, body_bytes, &store->budget->pending,
                           &schema) != TMSG_OK) {
        return NULL;
    }
    if (!join_total(store->budget->total, schema)) {
        tmsg_schema_destroy(schema);
        return NULL;
    }
    return schema;
}

bool tmsg_schema_store_take(tmsg_schema_store_t *store, uint8_t slot,
                            uint8_t generation, tmsg_schema_t *schema)
{
    slot_t *place;

    if (store == NULL || slot >= store->count) {
        tmsg_schema_destroy(schema);
        return false;
    }
    place = &store->slots[slot];
    tmsg_schema_destroy(place->schema);
    place->schema = NULL;
    if (schema == NULL) {
        return false;
    }
    if (!fits_limit(schema->body_bytes, store->budget->used,
                    store->budget->limit)) {
        tmsg_schema_destroy(schema);
        return false;
    }
    tmsg_schema_charge(schema, &store->budget->used);
    place->schema = schema;
    place->generation = generation;
    return true;
}

tmsg_status_t tmsg_schema_store_find(const tmsg_schema_store_t *store,
                                     const tmsg_schema_use_t *use,
                                     const tmsg_schema_t **schema_p)
{
    const slot_t *place = store != NULL && use->slot < store->count
                              ? &store->slots[use->slot]
                              : NULL;

    if (place == NULL || place->schema == NULL ||
        place->generation != use->generation) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "body: no schema is kept in slot %u, "
                              "generation %u",
                              use->slot, use->generation);
    }
    *schema_p = place->schema;
    return TMSG_OK;
}
