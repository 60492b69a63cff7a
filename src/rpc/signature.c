/* SPDX-License-Identifier: BSD-3-Clause */
/* Implements the life of a signature, and how it is made from its parts. */
#include "rpc/signature.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/map.h"
#include "core/utf8.h"

#define PREFIX "tensormsg." /* begins the library's own keys */

tmsg_status_t tmsg_signature_create(tmsg_signature_t **signature_p)
{
    tmsg_signature_t *signature = calloc(1, sizeof(*signature));

    if (signature == NULL) {
        return tmsg_error_memory("a signature");
    }
    tmsg_refs_init(&signature->refs, 1);
    for (int i = 0; i < 2; i++) {
        signature->sides[i].tensor_names.stride = sizeof(tmsg_want_tensor_t);
        signature->sides[i].meta_names.stride = sizeof(tmsg_want_meta_t);
    }
    *signature_p = signature;
    return TMSG_OK;
}

tmsg_signature_t *tmsg_signature_hold(const tmsg_signature_t *signature)
{
    tmsg_signature_t *held = (tmsg_signature_t *)(uintptr_t)signature;

    if (held != NULL) {
        tmsg_refs_take(&held->refs);
    }
    return held;
}

void tmsg_signature_destroy(tmsg_signature_t *signature)
{
    if (signature == NULL || !tmsg_refs_drop(&signature->refs)) {
        return;
    }
    for (int i = 0; i < 2; i++) {
        tmsg_want_side_t *side = &signature->sides[i];

        tmsg_index_free(&side->tensor_index);
        tmsg_index_free(&side->meta_index);
        free(side->tensors);
        free(side->metas);
    }
    tmsg_arena_free(&signature->arena);
    free(signature);
}

/* Copies a name into the arena of the signature, with a NUL behind it. Returns
 * NULL if there is no memory. */
static char *copy_name(tmsg_signature_t *signature, const char *name,
                       size_t bytes)
{
    char *text = tmsg_arena_alloc(&signature->arena, bytes + 1);

    if (text != NULL) {
        memcpy(text, name, bytes);
        text[bytes] = '\0';
    }
    return text;
}

int tmsg_signature_symbol(tmsg_signature_t *signature, const char *name,
                          size_t bytes)
{
    size_t i = 0;

    while (i < signature->symbol_count &&
           (strncmp(signature->symbols[i], name, bytes) != 0 ||
            signature->symbols[i][bytes] != '\0')) {
        i++;
    }
    if (i == TMSG_SIGNATURE_SYMBOLS_MAX) {
        return -1;
    }
    if (i == signature->symbol_count) {
        const char *symbol = copy_name(signature, name, bytes);

        if (symbol == NULL) {
            return -2;
        }
        signature->symbols[signature->symbol_count++] = symbol;
    }
    return (int)i;
}

const char *tmsg_signature_name_fault(const char *name, size_t bytes)
{
    return bytes == 0                          ? "is empty"
           : bytes > TMSG_NAME_BYTES_MAX       ? "has more than 4096 bytes"
           : memchr(name, '\0', bytes) != NULL ? "holds a NUL"
           : !tmsg_utf8_valid(name, bytes)     ? "is not UTF-8"
                                               : NULL;
}

const char *tmsg_signature_meta_fault(const tmsg_want_meta_t *want)
{
    int32_t reserved = tmsg_meta_reserved(want->key, want->key_bytes);
    bool prefixed = want->key_bytes >= strlen(PREFIX) &&
                    memcmp(want->key, PREFIX, strlen(PREFIX)) == 0;

    return prefixed && reserved == 0 ? "is not a key of the library"
           : reserved != 0 && want->type != 0 && want->type != reserved
               ? "is a key of another type"
               : NULL;
}

/* Makes room for one more item of `stride` bytes. Returns false, with an error
 * set, if there is no memory. */
static bool grow_items(void **items, size_t *room, size_t count, size_t stride)
{
    size_t wanted = *room == 0 ? 4 : *room * 2;
    void *grown;

    if (count < *room) {
        return true;
    }
    grown = reallocarray(*items, wanted, stride);
    if (grown == NULL) {
        tmsg_error_memory("a signature");
        return false;
    }
    *items = grown;
    *room = wanted;
    return true;
}

/* Checks whether a side takes one more item with that name. Errors:
 * ALREADY_EXISTS, LIMIT_EXCEEDED. */
static tmsg_status_t check_new(const tmsg_index_t *index,
                               const tmsg_names_t *names, const char *name,
                               size_t bytes, const char *what)
{
    if (tmsg_index_find(index, names, name, bytes) != TMSG_INDEX_NONE) {
        return tmsg_error_set(TMSG_ERR_ALREADY_EXISTS, "%s \"%s\" occurs twice",
                              what, tmsg_error_name(name, bytes).text);
    }
    return names->count < TMSG_SIGNATURE_ITEMS_MAX
               ? TMSG_OK
               : tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                                "a side has more than %d of these",
                                TMSG_SIGNATURE_ITEMS_MAX);
}

tmsg_status_t tmsg_signature_put_tensor(tmsg_signature_t *signature,
                                        tmsg_signature_side_t which,
                                        const tmsg_want_tensor_t *want)
{
    tmsg_want_side_t *side = &signature->sides[which];
    tmsg_names_t *names = &side->tensor_names;
    size_t bytes = (size_t)want->extent_count * sizeof(*want->extents);
    void *items = side->tensors;
    char *name;
    int64_t *extents;
    tmsg_status_t status = check_new(&side->tensor_index, names, want->name,
                                     want->name_bytes, "tensor");

    if (status != TMSG_OK) {
        return status;
    }
    if (!grow_items(&items, &side->tensor_room, names->count, sizeof(*want))) {
        return TMSG_ERR_NO_MEMORY;
    }
    side->tensors = items;
    names->items = items;
    name = copy_name(signature, want->name, want->name_bytes);
    extents = tmsg_arena_alloc(&signature->arena, bytes + 1);
    if (name == NULL || extents == NULL) {
        return tmsg_error_memory("a signature");
    }
    memcpy(extents, want->extents, bytes);
    side->tensors[names->count] = *want;
    side->tensors[names->count].name = name;
    side->tensors[names->count].extents = extents;
    names->count++;
    status = tmsg_index_add(&side->tensor_index, names);
    if (status != TMSG_OK) {
        names->count--;
    }
    return status;
}

tmsg_status_t tmsg_signature_put_meta(tmsg_signature_t *signature,
                                      tmsg_signature_side_t which,
                                      const tmsg_want_meta_t *want)
{
    tmsg_want_side_t *side = &signature->sides[which];
    tmsg_names_t *names = &side->meta_names;
    void *items = side->metas;
    char *key;
    tmsg_status_t status = check_new(&side->meta_index, names, want->key,
                                     want->key_bytes, "metadata");

    if (status != TMSG_OK) {
        return status;
    }
    if (!grow_items(&items, &side->meta_room, names->count, sizeof(*want))) {
        return TMSG_ERR_NO_MEMORY;
    }
    side->metas = items;
    names->items = items;
    key = copy_name(signature, want->key, want->key_bytes);
    if (key == NULL) {
        return tmsg_error_memory("a signature");
    }
    side->metas[names->count] = *want;
    side->metas[names->count].key = key;
    names->count++;
    status = tmsg_index_add(&side->meta_index, names);
    if (status != TMSG_OK) {
        names->count--;
    }
    return status;
}

/* Checks the arguments that all functions that add an item have in common.
 * Errors: INVALID_PARAM, BUSY (a stream has the signature). */
static tmsg_status_t check_addition(const tmsg_signature_t *signature,
                                    tmsg_signature_side_t side,
                                    const char *name, uint32_t flags)
{
    const char *fault;

    if (signature == NULL || name == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "signature: a pointer is NULL");
    }
    if (!tmsg_refs_are(&signature->refs, 1)) {
        return tmsg_error_set(TMSG_ERR_BUSY,
                              "signature: a stream uses it: change it after "
                              "that stream was released");
    }
    if (side != TMSG_SIGNATURE_INPUTS && side != TMSG_SIGNATURE_OUTPUTS) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "signature: %d is not a side", (int)side);
    }
    if (flags & ~(uint32_t)TMSG_SIGNATURE_OPTIONAL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "signature: unknown flags 0x%x", flags);
    }
    fault = tmsg_signature_name_fault(name, strlen(name));
    return fault == NULL
               ? TMSG_OK
               : tmsg_error_set(
                     TMSG_ERR_INVALID_PARAM, "signature: the name \"%s\" %s",
                     tmsg_error_name(name, strlen(name)).text, fault);
}

tmsg_status_t tmsg_signature_add_tensor(tmsg_signature_t *signature,
                                        tmsg_signature_side_t side,
                                        const char *name, const char *type,
                                        uint32_t flags)
{
    int64_t extents[TMSG_SIGNATURE_EXTENTS];
    tmsg_want_tensor_t want = {.name = name};
    tmsg_status_t status = check_addition(signature, side, name, flags);
    size_t symbols;

    if (status == TMSG_OK && type == NULL) {
        status = tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                                "signature: the type is NULL");
    }
    if (status != TMSG_OK) {
        return status;
    }
    symbols = signature->symbol_count;
    status = tmsg_signature_read_type(signature, type, &want, extents);
    if (status == TMSG_OK) {
        want.name_bytes = strlen(name);
        want.optional = (flags & TMSG_SIGNATURE_OPTIONAL) != 0;
        status = tmsg_signature_put_tensor(signature, side, &want);
    }
    if (status != TMSG_OK) {
        signature->symbol_count = symbols;
    }
    return status;
}

tmsg_status_t tmsg_signature_add_meta(tmsg_signature_t *signature,
                                      tmsg_signature_side_t side,
                                      const char *key, int32_t type,
                                      uint32_t flags)
{
    tmsg_want_meta_t want = {.key = key, .type = type};
    const char *fault;
    tmsg_status_t status = check_addition(signature, side, key, flags);

    if (status != TMSG_OK) {
        return status;
    }
    if (type < 0 || type > TMSG_META_TYPE_BYTES) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "signature: %d is not a type of metadata", type);
    }
    want.key_bytes = strlen(key);
    want.optional = (flags & TMSG_SIGNATURE_OPTIONAL) != 0;
    fault = tmsg_signature_meta_fault(&want);
    if (fault != NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "signature: \"%s\" %s",
                              tmsg_error_name(key, want.key_bytes).text, fault);
    }
    return tmsg_signature_put_meta(signature, side, &want);
}

tmsg_status_t tmsg_signature_allow_further(tmsg_signature_t *signature,
                                           tmsg_signature_side_t side)
{
    tmsg_status_t status = check_addition(signature, side, "...", 0);

    if (status == TMSG_OK) {
        signature->sides[side].further = true;
    }
    return status;
}
