/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks whether a map has a signature. Nothing here allocates memory. What a
 * peer sent is walked over once at most; names are looked up in an index,
 * unless they are few. */
#include <inttypes.h>
#include <string.h>

#include "core/error.h"
#include "core/map.h"
#include "core/tensor.h"
#include "rpc/signature.h"

#define UNBOUND INT64_C(-1)
#define PREFIX "tensormsg."
#define FEW_KEYS 16 /* most keys that are searched one by one */

/* Holds the values of a signature's symbols while maps are checked. */
typedef struct {
    const tmsg_signature_t *signature;
    const char *does; /* "takes" or "gives"; verb in the errors */
    int64_t values[TMSG_SIGNATURE_SYMBOLS_MAX]; /* UNBOUND: no value yet */
    /* tensors that have set the values */
    const tmsg_want_tensor_t *by[TMSG_SIGNATURE_SYMBOLS_MAX];
} bound_t;

static void begin_check(bound_t *bound, const tmsg_signature_t *signature)
{
    bound->signature = signature;
    for (size_t i = 0; i < signature->symbol_count; i++) {
        bound->values[i] = UNBOUND;
    }
}

/* Writes the dtype and shape of a tensor into `text`. What does not fit ends in
 * "...". */
static void show_shape(const tmsg_tensor_t *tensor,
                       char text[TMSG_SIGNATURE_TYPE_TEXT])
{
    const size_t room = TMSG_SIGNATURE_TYPE_TEXT - sizeof("...");
    char *to = text;

    tmsg_dtype_format(tensor->dtype, text, TMSG_DTYPE_NAME_MAX);
    to += strlen(to);
    for (int32_t i = 0; i <= tensor->ndim; i++) {
        char extent[24];
        int bytes =
            i < tensor->ndim
                ? snprintf(extent, sizeof(extent), "%s%" PRId64,
                           i == 0 ? "[" : ",", tensor->shape[i])
                : snprintf(extent, sizeof(extent), "%s", i == 0 ? "[]" : "]");

        if ((size_t)(to - text) + (size_t)bytes > room) {
            strcpy(to, "...");
            return;
        }
        memcpy(to, extent, (size_t)bytes + 1);
        to += bytes;
    }
}

/* Sets the error that a tensor has another type than wanted, and returns
 * INVALID_PARAM. The error names `symbol`, which has another value in an
 * earlier tensor. -1: the error names no symbol. */
static tmsg_status_t mismatch_error(const bound_t *bound,
                                    const tmsg_want_tensor_t *want,
                                    const tmsg_tensor_t *tensor, int64_t symbol)
{
    char is[TMSG_SIGNATURE_TYPE_TEXT], wanted[TMSG_SIGNATURE_TYPE_TEXT];
    tmsg_error_name_t name = tmsg_error_name(want->name, want->name_bytes);
    const tmsg_want_tensor_t *by;

    show_shape(tensor, is);
    tmsg_signature_show_want(bound->signature, want, wanted);
    if (symbol < 0) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "\"%s\" is %s: the method %s %s", name.text, is,
                              bound->does, wanted);
    }
    by = bound->by[symbol];
    return tmsg_error_set(
        TMSG_ERR_INVALID_PARAM,
        "\"%s\" is %s: the method %s %s, and %.16s is %" PRId64 " in \"%.24s\"",
        name.text, is, bound->does, wanted, bound->signature->symbols[symbol],
        bound->values[symbol], tmsg_error_name(by->name, by->name_bytes).text);
}

/* Returns whether an extent is the wanted one. The first extent of a symbol
 * becomes the symbol's value. If `wanted` is a symbol, *symbol_p becomes its
 * number. */
static bool extent_fits(bound_t *bound, const tmsg_want_tensor_t *want,
                        int64_t wanted, int64_t extent, int64_t *symbol_p)
{
    int64_t symbol = TMSG_EXTENT_SYMBOL - wanted;

    if (wanted >= 0) {
        return wanted == extent;
    }
    if (symbol < 0) {
        return true;
    }
    if (bound->values[symbol] == UNBOUND) {
        bound->values[symbol] = extent;
        bound->by[symbol] = want;
    }
    *symbol_p = symbol;
    return bound->values[symbol] == extent;
}

static tmsg_status_t check_tensor(bound_t *bound,
                                  const tmsg_want_tensor_t *want,
                                  const tmsg_tensor_t *tensor)
{
    int32_t named = want->extent_count - (want->rest >= 0);
    int32_t more = tensor->ndim - named; /* dimensions that "..." stands for */

    if ((!want->any_dtype && !tmsg_dtype_is(want->dtype, tensor->dtype)) ||
        more < 0 || (more > 0 && want->rest < 0)) {
        return mismatch_error(bound, want, tensor, -1);
    }
    for (int32_t i = 0; i < named; i++) {
        bool behind = want->rest >= 0 && i >= want->rest;
        int64_t symbol = -1;

        if (!extent_fits(bound, want, want->extents[behind ? i + 1 : i],
                         tensor->shape[behind ? i + more : i], &symbol)) {
            return mismatch_error(bound, want, tensor, symbol);
        }
    }
    return TMSG_OK;
}

/* Sets the error that an item is missing, and returns INVALID_PARAM. */
static tmsg_status_t missing_error(const bound_t *bound, const char *kind,
                                   const char *name, size_t bytes,
                                   const char *wanted)
{
    return tmsg_error_set(
        TMSG_ERR_INVALID_PARAM, "%s\"%s\" is missing: the method %s %s", kind,
        tmsg_error_name(name, bytes).text, bound->does, wanted);
}

/* Sets the error that the signature has no such item, and returns
 * INVALID_PARAM. */
static tmsg_status_t unknown_error(const bound_t *bound, const char *kind,
                                   const char *name, size_t bytes)
{
    return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                          "%s\"%s\" is not among what the method %s", kind,
                          tmsg_error_name(name, bytes).text, bound->does);
}

/* Returns the position of a tensor in the map; TMSG_INDEX_NONE: there is none.
 * Looks first at `hint`, because most maps have the order of the signature. */
static size_t find_tensor(const tmsg_map_t *map, size_t count, size_t hint,
                          const tmsg_want_tensor_t *want)
{
    const tmsg_map_entry_t *entry =
        hint < count ? &tmsg_map_entries(map)[hint] : NULL;

    return entry != NULL && entry->name_bytes == want->name_bytes &&
                   memcmp(entry->name, want->name, want->name_bytes) == 0
               ? hint
               : tmsg_map_position(map, want->name, want->name_bytes);
}

static tmsg_status_t check_side_tensors(bound_t *bound,
                                        const tmsg_want_side_t *side,
                                        const tmsg_map_t *map)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    size_t count = tmsg_map_size(map), found = 0, hint = 0;

    for (size_t i = 0; i < side->tensor_names.count; i++) {
        const tmsg_want_tensor_t *want = &side->tensors[i];
        size_t place = find_tensor(map, count, hint, want);
        tmsg_status_t status = TMSG_OK;

        if (place < count) {
            status = check_tensor(bound, want, &entries[place].tensor);
            hint = place + 1;
            found++;
        } else if (!want->optional) {
            char wanted[TMSG_SIGNATURE_TYPE_TEXT];

            tmsg_signature_show_want(bound->signature, want, wanted);
            status =
                missing_error(bound, "", want->name, want->name_bytes, wanted);
        }
        if (status != TMSG_OK) {
            return status;
        }
    }
    for (size_t i = 0; !side->further && found < count && i < count; i++) {
        if (tmsg_index_find(&side->tensor_index, &side->tensor_names,
                            entries[i].name,
                            entries[i].name_bytes) == TMSG_INDEX_NONE) {
            return unknown_error(bound, "", entries[i].name,
                                 entries[i].name_bytes);
        }
    }
    return TMSG_OK;
}

/* Stores the value of a key. Returns false if the map does not have the key. */
static bool find_meta(const tmsg_map_t *map, const tmsg_want_meta_t *want,
                      tmsg_meta_t *value_p)
{
    const tmsg_map_meta_entry_t *keys = tmsg_map_meta_entries(map);
    size_t count = tmsg_map_meta_size(map);

    if (count > FEW_KEYS) {
        return tmsg_map_get_meta(map, want->key, value_p) == TMSG_OK;
    }
    for (size_t i = 0; i < count; i++) {
        if (keys[i].key_bytes == want->key_bytes &&
            memcmp(keys[i].key, want->key, want->key_bytes) == 0) {
            *value_p = keys[i].value;
            return true;
        }
    }
    return false;
}

static tmsg_status_t check_meta(const bound_t *bound,
                                const tmsg_want_meta_t *want,
                                const tmsg_map_t *map)
{
    tmsg_meta_t value;

    if (!find_meta(map, want, &value)) {
        return want->optional
                   ? TMSG_OK
                   : missing_error(bound, "metadata ", want->key,
                                   want->key_bytes,
                                   tmsg_signature_meta_type(want->type));
    }
    if (want->type == 0 || want->type == value.type) {
        return TMSG_OK;
    }
    return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                          "metadata \"%s\" is %s: the method %s %s",
                          tmsg_error_name(want->key, want->key_bytes).text,
                          tmsg_signature_meta_type(value.type), bound->does,
                          tmsg_signature_meta_type(want->type));
}

/* Returns whether a key is one of the library's own. */
static bool is_reserved(const tmsg_map_meta_entry_t *key)
{
    return key->key_bytes >= strlen(PREFIX) &&
           memcmp(key->key, PREFIX, strlen(PREFIX)) == 0;
}

static tmsg_status_t check_metas(const bound_t *bound,
                                 const tmsg_want_side_t *side,
                                 const tmsg_map_t *map)
{
    const tmsg_map_meta_entry_t *keys = tmsg_map_meta_entries(map);
    size_t count = tmsg_map_meta_size(map);

    for (size_t i = 0; i < side->meta_names.count; i++) {
        tmsg_status_t status = check_meta(bound, &side->metas[i], map);

        if (status != TMSG_OK) {
            return status;
        }
    }
    for (size_t i = 0; !side->further && i < count; i++) {
        if (!is_reserved(&keys[i]) &&
            tmsg_index_find(&side->meta_index, &side->meta_names, keys[i].key,
                            keys[i].key_bytes) == TMSG_INDEX_NONE) {
            return unknown_error(bound, "metadata ", keys[i].key,
                                 keys[i].key_bytes);
        }
    }
    return TMSG_OK;
}

static tmsg_status_t check_side(bound_t *bound, tmsg_signature_side_t which,
                                const tmsg_map_t *map)
{
    const tmsg_want_side_t *side = &bound->signature->sides[which];
    tmsg_status_t status;

    bound->does = which == TMSG_SIGNATURE_INPUTS ? "takes" : "gives";
    status = check_side_tensors(bound, side, map);
    return status == TMSG_OK ? check_metas(bound, side, map) : status;
}

tmsg_status_t tmsg_signature_check_inputs(const tmsg_signature_t *signature,
                                          const tmsg_map_t *map)
{
    bound_t bound;

    if (signature == NULL || map == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "signature: a pointer is NULL");
    }
    begin_check(&bound, signature);
    return check_side(&bound, TMSG_SIGNATURE_INPUTS, map);
}

tmsg_status_t tmsg_signature_check_outputs(const tmsg_signature_t *signature,
                                           const tmsg_map_t *inputs,
                                           const tmsg_map_t *map)
{
    bound_t bound;
    tmsg_status_t status = TMSG_OK;

    if (signature == NULL || map == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "signature: a pointer is NULL");
    }
    begin_check(&bound, signature);
    if (inputs != NULL && signature->symbol_count > 0) {
        status = check_side(&bound, TMSG_SIGNATURE_INPUTS, inputs);
    }
    return status == TMSG_OK ? check_side(&bound, TMSG_SIGNATURE_OUTPUTS, map)
                             : status;
}
