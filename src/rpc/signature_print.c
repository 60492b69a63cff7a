/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes a signature as text and as JSON. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "rpc/signature.h"
#include "serialize/json.h"

#define EXTENT_TEXT 80 /* room for any extent; a symbol has 64 bytes */

const char *tmsg_signature_meta_type(int32_t type)
{
    static const char *const names[] = {
        "*", "bool", "i64", "f64", "string", "bytes",
    };

    return names[type];
}

/* Returns the text of an extent, which may lie in `text`. */
static const char *extent_text(const tmsg_signature_t *signature,
                               int64_t extent, char text[EXTENT_TEXT])
{
    if (extent >= 0) {
        snprintf(text, EXTENT_TEXT, "%" PRId64, extent);
        return text;
    }
    return extent == TMSG_EXTENT_ANY ? "*"
           : extent == TMSG_EXTENT_REST
               ? "..."
               : signature->symbols[TMSG_EXTENT_SYMBOL - extent];
}

/* Returns the text of a dtype, which may lie in `text`. */
static const char *dtype_text(const tmsg_want_tensor_t *want,
                              char text[TMSG_DTYPE_NAME_MAX])
{
    return want->any_dtype
               ? "*"
               : tmsg_dtype_format(want->dtype, text, TMSG_DTYPE_NAME_MAX);
}

void tmsg_signature_show_want(const tmsg_signature_t *signature,
                              const tmsg_want_tensor_t *want,
                              char text[TMSG_SIGNATURE_TYPE_TEXT])
{
    const size_t room = TMSG_SIGNATURE_TYPE_TEXT - sizeof("...");
    char dtype[TMSG_DTYPE_NAME_MAX], extent[EXTENT_TEXT];
    char *to = text;

    to += snprintf(text, room, "%s[", dtype_text(want, dtype));
    for (int32_t i = 0; i < want->extent_count; i++) {
        const char *shown = extent_text(signature, want->extents[i], extent);

        if ((size_t)(to - text) + strlen(shown) + 2 > room) {
            strcpy(to, "...");
            return;
        }
        to += sprintf(to, "%s%s", i == 0 ? "" : ",", shown);
    }
    strcpy(to, "]");
}

/* Writes a name, with quotes if it needs them. A quoted name is written like a
 * string of JSON, but characters beyond ASCII stay as they are. */
static void put_name(FILE *stream, const char *name, size_t bytes)
{
    if (tmsg_signature_is_bare(name, bytes)) {
        fputs(name, stream);
        return;
    }
    putc('"', stream);
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)name[i];

        if (c == '"' || c == '\\') {
            fprintf(stream, "\\%c", c);
        } else if (c < 0x20 || c == 0x7f) {
            fprintf(stream, "\\u%04x", c);
        } else {
            putc(c, stream);
        }
    }
    putc('"', stream);
}

static void put_tensor(FILE *stream, const tmsg_signature_t *signature,
                       const tmsg_want_tensor_t *want)
{
    char dtype[TMSG_DTYPE_NAME_MAX], extent[EXTENT_TEXT];

    put_name(stream, want->name, want->name_bytes);
    fprintf(stream, "%s: %s[", want->optional ? "?" : "",
            dtype_text(want, dtype));
    for (int32_t i = 0; i < want->extent_count; i++) {
        fprintf(stream, "%s%s", i == 0 ? "" : ",",
                extent_text(signature, want->extents[i], extent));
    }
    putc(']', stream);
}

static void put_side(FILE *stream, const tmsg_signature_t *signature,
                     const tmsg_want_side_t *side)
{
    const char *between = "";

    putc('(', stream);
    for (size_t i = 0; i < side->tensor_names.count; i++) {
        fputs(between, stream);
        put_tensor(stream, signature, &side->tensors[i]);
        between = ", ";
    }
    for (size_t i = 0; i < side->meta_names.count; i++) {
        const tmsg_want_meta_t *want = &side->metas[i];

        fprintf(stream, "%s@", between);
        put_name(stream, want->key, want->key_bytes);
        fprintf(stream, "%s: %s", want->optional ? "?" : "",
                tmsg_signature_meta_type(want->type));
        between = ", ";
    }
    fprintf(stream, "%s)", !side->further ? "" : *between ? ", ..." : "...");
}

static bool is_anything(const tmsg_want_side_t *side)
{
    return side->further && side->tensor_names.count == 0 &&
           side->meta_names.count == 0;
}

tmsg_status_t tmsg_signature_to_text(const tmsg_signature_t *signature,
                                     char **text_p)
{
    const tmsg_want_side_t *outputs;
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream;
    bool whole;

    if (signature == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "signature is NULL");
    }
    stream = open_memstream(&text, &bytes);
    if (stream == NULL) {
        return tmsg_error_memory("a signature's text");
    }
    outputs = &signature->sides[TMSG_SIGNATURE_OUTPUTS];
    put_side(stream, signature, &signature->sides[TMSG_SIGNATURE_INPUTS]);
    if (!is_anything(outputs)) {
        fputs(" -> ", stream);
        put_side(stream, signature, outputs);
    }
    whole = !ferror(stream);
    whole = fclose(stream) == 0 && whole;
    if (!whole || bytes > TMSG_SIGNATURE_TEXT_MAX) {
        free(text);
        return !whole ? tmsg_error_memory("a signature's text")
                      : tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                                       "signature: its text would have %zu "
                                       "bytes, %d at most",
                                       bytes, TMSG_SIGNATURE_TEXT_MAX);
    }
    *text_p = text;
    return TMSG_OK;
}

static cJSON *json_shape(const tmsg_signature_t *signature,
                         const tmsg_want_tensor_t *want)
{
    cJSON *array = cJSON_CreateArray();
    bool complete = array != NULL;

    for (int32_t i = 0; i < want->extent_count && complete; i++) {
        char text[EXTENT_TEXT];
        int64_t extent = want->extents[i];

        complete = tmsg_json_add(array, NULL,
                                 extent >= 0 ? tmsg_json_integer(extent)
                                             : cJSON_CreateString(extent_text(
                                                   signature, extent, text)));
    }
    if (!complete) {
        cJSON_Delete(array);
        return NULL;
    }
    return array;
}

static bool add_tensors(cJSON *object, const tmsg_signature_t *signature,
                        const tmsg_want_side_t *side)
{
    cJSON *array = cJSON_AddArrayToObject(object, "tensors");
    bool complete = array != NULL;

    for (size_t i = 0; i < side->tensor_names.count && complete; i++) {
        const tmsg_want_tensor_t *want = &side->tensors[i];
        char dtype[TMSG_DTYPE_NAME_MAX];
        cJSON *item = cJSON_CreateObject();

        complete =
            tmsg_json_add(array, NULL, item) &&
            tmsg_json_add(item, "name", cJSON_CreateString(want->name)) &&
            tmsg_json_add(item, "dtype",
                          cJSON_CreateString(dtype_text(want, dtype))) &&
            tmsg_json_add(item, "shape", json_shape(signature, want)) &&
            tmsg_json_add(item, "optional", cJSON_CreateBool(want->optional));
    }
    return complete;
}

static bool add_metadata(cJSON *object, const tmsg_want_side_t *side)
{
    cJSON *array = cJSON_AddArrayToObject(object, "metadata");
    bool complete = array != NULL;

    for (size_t i = 0; i < side->meta_names.count && complete; i++) {
        const tmsg_want_meta_t *want = &side->metas[i];
        cJSON *item = cJSON_CreateObject();

        complete =
            tmsg_json_add(array, NULL, item) &&
            tmsg_json_add(item, "key", cJSON_CreateString(want->key)) &&
            tmsg_json_add(
                item, "type",
                cJSON_CreateString(tmsg_signature_meta_type(want->type))) &&
            tmsg_json_add(item, "optional", cJSON_CreateBool(want->optional));
    }
    return complete;
}

static bool add_side(cJSON *object, const char *key,
                     const tmsg_signature_t *signature,
                     const tmsg_want_side_t *side)
{
    cJSON *item = cJSON_CreateObject();

    return tmsg_json_add(object, key, item) &&
           add_tensors(item, signature, side) && add_metadata(item, side) &&
           tmsg_json_add(item, "further", cJSON_CreateBool(side->further));
}

tmsg_status_t tmsg_signature_to_json(const tmsg_signature_t *signature,
                                     char **json_p)
{
    cJSON *object;
    bool complete;

    if (signature == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "signature is NULL");
    }
    object = cJSON_CreateObject();
    complete = object != NULL &&
               add_side(object, "inputs", signature,
                        &signature->sides[TMSG_SIGNATURE_INPUTS]) &&
               add_side(object, "outputs", signature,
                        &signature->sides[TMSG_SIGNATURE_OUTPUTS]);
    return tmsg_json_finish(object, complete, json_p);
}
