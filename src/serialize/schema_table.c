/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "core/error.h"
#include "core/map.h"
#include "serialize/schema_match.h"
#include "serialize/schema_struct.h"
#include "serialize/writer.h"

#define STAMPS 64     /* entries of the table of stamps */
#define SEEN 64       /* hashes of layouts that are remembered */
#define PAUSE 256     /* messages without a definition after one was not kept */
#define IDLE_ROUNDS 4 /* messages per slot after which a layout is idle */
#define STEADY 16     /* messages in a row with equal extents */

typedef struct {
    tmsg_schema_t *schema; /* NULL if the slot is free */
    uint64_t hash;
    uint64_t serial;  /* number of the definition, unique in the table */
    uint64_t used_at; /* value of the table's clock at the latest use */
    uint8_t generation;
    bool waits; /* the peer's answer is outstanding */
} slot_t;

typedef struct {
    uint64_t stamp;
    uint64_t serial;
    uint32_t slot;
} stamp_t;

/* Holds the definition that the latest choice has made, if any. */
typedef struct {
    tmsg_schema_t *schema;
    uint64_t hash;
    uint64_t stamp;
    uint64_t spent; /* counter of `schema` until it is sent */
} next_t;

struct tmsg_schema_table {
    tmsg_schema_budget_t *budget;
    uint64_t clock; /* counts messages */
    uint64_t serial;
    uint32_t pause;
    uint32_t count;
    next_t next;
    uint64_t last_numbers; /* hash of the latest message's varying extents */
    uint32_t steady;       /* messages in a row with that hash */
    uint32_t seen_at;
    uint64_t seen[SEEN];
    stamp_t stamps[STAMPS];
    uint8_t numbers[TMSG_SCHEMA_VARYING_MAX * TMSG_PUT_NUMBER_MOST];
    slot_t slots[];
};

tmsg_status_t tmsg_schema_table_create(uint32_t slots,
                                       tmsg_schema_budget_t *budget,
                                       tmsg_schema_table_t **table_p)
{
    tmsg_schema_table_t *table =
        calloc(1, sizeof(*table) + slots * sizeof(table->slots[0]));

    if (table == NULL) {
        return tmsg_error_memory("the slots for schemas");
    }
    table->budget = budget;
    table->count = slots;
    for (uint32_t i = 0; i < slots; i++) {
        table->slots[i].generation =
            UINT8_MAX; /* the first definition gets 0 */
    }
    *table_p = table;
    return TMSG_OK;
}

static void forget_next(tmsg_schema_table_t *table)
{
    tmsg_schema_destroy(table->next.schema);
    table->next.schema = NULL;
}

void tmsg_schema_table_destroy(tmsg_schema_table_t *table)
{
    if (table == NULL) {
        return;
    }
    forget_next(table);
    for (uint32_t i = 0; i < table->count; i++) {
        tmsg_schema_destroy(table->slots[i].schema);
    }
    free(table);
}

/* Returns the slot in which a map of this stamp was found before, or NULL. The
 * result is also NULL if that slot has another definition since. */
static slot_t *recall(tmsg_schema_table_t *table, uint64_t stamp)
{
    const stamp_t *known = &table->stamps[stamp % STAMPS];
    slot_t *slot = &table->slots[known->slot];

    /* Stamps and serials are never 0, so an empty entry matches nothing. */
    if (known->stamp != stamp || slot->schema == NULL ||
        slot->serial != known->serial) {
        return NULL;
    }
    return slot;
}

static void remember(tmsg_schema_table_t *table, uint64_t stamp,
                     const slot_t *slot)
{
    table->stamps[stamp % STAMPS] =
        (stamp_t){stamp, slot->serial, (uint32_t)(slot - table->slots)};
}

/* Returns a hash of what a layout keeps while its extents vary: names, dtypes
 * and ndim. */
static uint64_t hash_of(const tmsg_map_t *map)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    uint64_t hash = 0;

    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        const tmsg_tensor_t *tensor = &entries[i].tensor;

        hash ^= (uint64_t)tensor->dtype.code << 56 |
                (uint64_t)tensor->dtype.bits << 48 |
                (uint64_t)tensor->dtype.lanes << 32 | (uint32_t)tensor->ndim;
        hash =
            XXH3_64bits_withSeed(entries[i].name, entries[i].name_bytes, hash);
    }
    return hash;
}

/* Returns the slot that holds the map's layout, or NULL. Prefers a slot in
 * which nothing varies. If the result is NULL, *alike_p is the first slot that
 * would hold the layout if the extents in *varying varied, or NULL. */
static slot_t *look_up_layout(tmsg_schema_table_t *table, const tmsg_map_t *map,
                              slot_t **alike_p, tmsg_varying_t *varying)
{
    tmsg_varying_t found;
    slot_t *same = NULL;

    *alike_p = NULL;
    varying->count = 0;
    for (uint32_t i = 0; i < table->count; i++) {
        slot_t *slot = &table->slots[i];
        tmsg_match_t match;

        if (slot->schema == NULL || slot->hash != table->next.hash) {
            continue;
        }
        match = tmsg_schema_match(slot->schema, map, &found);
        if (match == TMSG_MATCH_SAME && slot->schema->count == 0) {
            return slot;
        }
        if (match == TMSG_MATCH_SAME && same == NULL) {
            same = slot;
        }
        if (match == TMSG_MATCH_VARIES && *alike_p == NULL) {
            *alike_p = slot;
            *varying = found;
        }
    }
    return same;
}

/* Returns whether a layout came before, according to the latest SEEN hashes.
 * Remembers its hash. */
static bool seen_before(tmsg_schema_table_t *table, uint64_t hash)
{
    for (uint32_t i = 0; i < SEEN; i++) {
        if (table->seen[i] == hash) {
            return true;
        }
    }
    table->seen[table->seen_at++ % SEEN] = hash;
    return false;
}

static void use_slot(const tmsg_schema_table_t *table, const slot_t *slot,
                     tmsg_schema_use_t *use)
{
    use->slot = (uint8_t)(slot - table->slots);
    use->generation = slot->generation;
}

static uint64_t schema_use_bytes(const tmsg_schema_use_t *use)
{
    uint8_t head[TMSG_SCHEMA_HEAD_BYTES];

    return tmsg_schema_head(use, head) + use->numbers_bytes;
}

/* Gives *use the slot and its next generation. Returns whether the budget
 * allows that definition for a map that takes `bytes` bytes in full. */
static bool definition_fits(const tmsg_schema_table_t *table,
                            const slot_t *slot, uint64_t bytes,
                            tmsg_schema_use_t *use)
{
    const tmsg_schema_budget_t *budget = table->budget;
    uint64_t others =
        budget->used - (slot->schema == NULL ? 0 : slot->schema->body_bytes);

    use_slot(table, slot, use);
    use->generation++;
    return others <= budget->limit &&
           bytes + schema_use_bytes(use) <= budget->limit - others;
}

/* Returns a slot for a new layout, or NULL. A layout that came before may also
 * take an idle slot; any other layout takes only a free one. */
static slot_t *pick_slot(tmsg_schema_table_t *table, uint64_t bytes,
                         tmsg_schema_use_t use)
{
    uint64_t idle = (uint64_t)IDLE_ROUNDS * table->count;
    bool again = seen_before(table, table->next.hash);
    slot_t *best = NULL;

    for (uint32_t i = 0; i < table->count; i++) {
        slot_t *slot = &table->slots[i];
        bool may_go =
            slot->schema == NULL ||
            (again && !slot->waits && table->clock - slot->used_at > idle);

        if (may_go && (best == NULL || slot->used_at < best->used_at) &&
            definition_fits(table, slot, bytes, &use)) {
            best = slot;
        }
    }
    return best;
}

static void refer_to_slot(tmsg_schema_table_t *table, slot_t *slot,
                          const tmsg_map_t *map, tmsg_schema_use_t *use)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    const tmsg_schema_t *schema = slot->schema;
    uint8_t *to = table->numbers;

    for (uint32_t i = 0; i < schema->count; i++) {
        const tmsg_schema_place_t *place = &schema->places[i];

        tmsg_put_int64(&to, entries[place->tensor].tensor.shape[place->axis]);
    }
    use->form = TMSG_SCHEMA_REFERS;
    use_slot(table, slot, use);
    use->count = schema->count;
    use->numbers = table->numbers;
    use->numbers_bytes = (size_t)(to - table->numbers);
}

/* Counts messages in a row with equal varying extents. Returns true for every
 * STEADY-th of them. A layout in which these extents are fixed then costs both
 * ends less. */
static bool is_steady(tmsg_schema_table_t *table, const slot_t *slot,
                      const tmsg_schema_use_t *use)
{
    uint64_t hash;

    if (use->count == 0) {
        return false;
    }
    hash = XXH3_64bits_withSeed(use->numbers, use->numbers_bytes, slot->serial);
    table->steady = hash == table->last_numbers ? table->steady + 1 : 1;
    table->last_numbers = hash;
    return table->steady % STEADY == 0;
}

/* Returns a definition with these varying extents, whose slot and generation
 * are not set yet. */
static tmsg_schema_use_t make_definition(tmsg_schema_table_t *table,
                                         const tmsg_varying_t *varying)
{
    uint8_t *to = table->numbers;

    for (uint32_t i = 0; i < varying->count; i++) {
        tmsg_put_uint32(&to, varying->at[i]);
    }
    return (tmsg_schema_use_t){
        .form = TMSG_SCHEMA_DEFINES,
        .count = varying->count,
        .numbers = table->numbers,
        .numbers_bytes = (size_t)(to - table->numbers),
    };
}

/* Makes the definition of a map that takes `bytes` bytes in full. `alike` is
 * the slot to define again, or NULL. Returns the bytes that the definition
 * adds, or 0 if the map is sent in full without a definition. */
static size_t define_layout(tmsg_schema_table_t *table, const tmsg_map_t *map,
                            slot_t *alike, const tmsg_varying_t *varying,
                            size_t bytes, tmsg_schema_use_t *use)
{
    tmsg_schema_use_t made = make_definition(table, varying);
    slot_t *slot = alike;
    size_t more;

    if (table->pause > 0) {
        table->pause--;
        return 0;
    }
    if (slot == NULL) {
        slot = pick_slot(table, bytes, made);
    }
    if (slot == NULL || slot->waits ||
        !definition_fits(table, slot, bytes, &made)) {
        return 0;
    }
    more = schema_use_bytes(&made);
    if (tmsg_schema_create(map, &made, bytes + more, &table->next.spent,
                           &table->next.schema) != TMSG_OK) {
        return 0;
    }
    *use = made;
    return more;
}

/* Returns the slot that holds the map's layout, or NULL. If the result is NULL,
 * table->next, *alike_p and *varying have what define_layout() needs. */
static slot_t *find_slot(tmsg_schema_table_t *table, const tmsg_map_t *map,
                         slot_t **alike_p, tmsg_varying_t *varying)
{
    uint64_t stamp = tmsg_map_stamp(map);
    slot_t *slot = recall(table, stamp);

    if (slot != NULL) {
        return slot;
    }
    table->next.stamp = stamp;
    table->next.hash = hash_of(map);
    slot = look_up_layout(table, map, alike_p, varying);
    if (slot != NULL) {
        remember(table, stamp, slot);
    }
    return slot;
}

/* Defines a layout without varying extents for a map. `slot` holds the map's
 * layout with varying extents. If no definition can be made, the map is sent by
 * reference to `slot`. */
static tmsg_status_t define_own(tmsg_schema_table_t *table,
                                const tmsg_map_t *map, slot_t *slot,
                                tmsg_body_extra_t *extra, size_t *needed_p)
{
    static const tmsg_varying_t none;
    size_t more;
    tmsg_status_t status;

    extra->schema = (tmsg_schema_use_t){0};
    status = tmsg_body_encode(map, extra, NULL, 0, needed_p);
    if (status != TMSG_OK) {
        return status;
    }
    table->next.stamp = tmsg_map_stamp(map);
    table->next.hash = hash_of(map);
    more = define_layout(table, map, NULL, &none, *needed_p, &extra->schema);
    if (more > 0) {
        *needed_p += more;
        return TMSG_OK;
    }
    refer_to_slot(table, slot, map, &extra->schema);
    return tmsg_body_encode(map, extra, NULL, 0, needed_p);
}

tmsg_status_t tmsg_schema_table_choose(tmsg_schema_table_t *table,
                                       const tmsg_map_t *map,
                                       tmsg_body_extra_t *extra,
                                       size_t *needed_p)
{
    tmsg_varying_t varying; /* `= {0}` would clear a kilobyte */
    slot_t *slot, *alike;
    size_t needed;
    tmsg_status_t status;

    extra->schema = (tmsg_schema_use_t){0};
    if (table == NULL || tmsg_map_size(map) == 0) {
        return tmsg_body_encode(map, extra, NULL, 0, needed_p);
    }
    forget_next(table);
    table->clock++;
    slot = find_slot(table, map, &alike, &varying);
    if (slot != NULL) {
        slot->used_at = table->clock;
        if (!slot->waits) {
            refer_to_slot(table, slot, map, &extra->schema);
            if (is_steady(table, slot, &extra->schema)) {
                return define_own(table, map, slot, extra, needed_p);
            }
        }
    }
    status = tmsg_body_encode(map, extra, NULL, 0, &needed);
    if (status != TMSG_OK) {
        return status;
    }
    if (slot == NULL) {
        needed +=
            define_layout(table, map, alike, &varying, needed, &extra->schema);
    }
    *needed_p = needed;
    return TMSG_OK;
}

void tmsg_schema_table_sent(tmsg_schema_table_t *table,
                            const tmsg_schema_use_t *use)
{
    slot_t *slot;

    if (use->form != TMSG_SCHEMA_DEFINES) {
        return;
    }
    slot = &table->slots[use->slot];
    tmsg_schema_destroy(slot->schema);
    slot->schema = table->next.schema;
    table->next.schema = NULL;
    tmsg_schema_charge(slot->schema, &table->budget->used);
    slot->hash = table->next.hash;
    slot->serial = ++table->serial;
    slot->used_at = table->clock;
    slot->generation = use->generation;
    slot->waits = true;
    remember(table, table->next.stamp, slot);
}

void tmsg_schema_table_used(tmsg_schema_table_t *table, uint8_t slot)
{
    table->slots[slot].used_at = ++table->clock;
}

const tmsg_map_t *tmsg_schema_table_layout(const tmsg_schema_table_t *table,
                                           uint8_t slot)
{
    return table->slots[slot].schema->layout;
}

tmsg_status_t tmsg_schema_table_answered(tmsg_schema_table_t *table,
                                         uint8_t slot, uint8_t generation,
                                         bool kept)
{
    slot_t *asked =
        table != NULL && slot < table->count ? &table->slots[slot] : NULL;

    if (asked == NULL || !asked->waits || asked->generation != generation) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "schema: an answer to slot %u, generation %u, "
                              "which was not asked",
                              slot, generation);
    }
    asked->waits = false;
    if (!kept) {
        tmsg_schema_destroy(asked->schema);
        asked->schema = NULL;
        asked->used_at = 0; /* a free one is taken first */
        table->pause = PAUSE;
    }
    return TMSG_OK;
}
