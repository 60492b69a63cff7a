/* SPDX-License-Identifier: BSD-3-Clause */
#include "reply.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/shown.h"
#include "show.h"
#include "store.h"

#define NAME_MOST_BYTES 240 /* of a tensor whose file is NAME.npy */

/* Tells whether `out` names a file. A folder may have the name ".npz". */
static bool is_file(const char *out, const char *ending)
{
    return ends_with(out, ending) && strcmp(out, ending) != 0;
}

/* Tells whether --out names one file for all tensors. */
static bool is_one_file(const char *out)
{
    return is_file(out, ".npz") || is_file(out, ".safetensors");
}

bool reply_check(const reply_options_t *options)
{
    return options->out == NULL || is_one_file(options->out) ||
           store_open_dir(options->out);
}

static bool save_map(const reply_options_t *options, const tmsg_map_t *map,
                     const char *path)
{
    const tmsg_file_save_params_t params = {
        .field_mask = TMSG_FILE_SAVE_PARAM_FLAGS,
        .flags = options->force ? TMSG_SAVE_OVERWRITE : 0,
    };
    tmsg_status_t status = tmsg_file_save(map, path, &params);

    if (status != TMSG_OK) {
        complain("%s%s", tmsg_error_message(),
                 status == TMSG_ERR_ALREADY_EXISTS ? " (--force replaces)"
                                                   : "");
    }
    return status == TMSG_OK;
}

static bool save_tensor(const reply_options_t *options, const char *name,
                        const tmsg_tensor_t *tensor)
{
    tmsg_map_t *one = NULL;
    char *path = NULL;
    const char *bad;
    bool saved = false;

    bad = tmsg_shown_bad_name(name, NAME_MOST_BYTES);
    if (bad != NULL) {
        complain(
            "the tensor '%s' is not kept: %s; --out FILE.safetensors takes "
            "any name",
            tmsg_shown_short(name).text, bad);
        return false;
    }
    if (tmsg_map_create(&one) != TMSG_OK ||
        tmsg_map_add(one, name, tensor, NULL) != TMSG_OK) {
        complain("%s", tmsg_error_message());
    } else if (asprintf(&path, "%s/%s.npy", options->out, name) < 0) {
        path = NULL;
        complain("out of memory");
    } else {
        saved = save_map(options, one, path);
    }
    free(path);
    tmsg_map_destroy(one);
    return saved;
}

static bool keep_reply(const reply_options_t *options, const tmsg_map_t *map)
{
    bool saved = true;

    if (is_one_file(options->out)) {
        return save_map(options, map, options->out);
    }
    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        const char *name;
        tmsg_tensor_t tensor;

        tmsg_map_at(map, i, &name, &tensor);
        saved = save_tensor(options, name, &tensor) && saved;
    }
    return saved;
}

static void print_meta(const tmsg_map_t *map)
{
    for (size_t i = 0; i < tmsg_map_meta_size(map); i++) {
        const char *key;
        tmsg_meta_t value;

        tmsg_map_meta_at(map, i, &key, &value);
        fputs("  @", stdout);
        put_text(stdout, key);
        switch (value.type) {
        case TMSG_META_TYPE_BOOL:
            printf("  bool  %s\n", value.boolean ? "true" : "false");
            break;
        case TMSG_META_TYPE_I64:
            printf("  i64  %" PRId64 "\n", value.i64);
            break;
        case TMSG_META_TYPE_F64:
            printf("  f64  %.17g\n", value.f64);
            break;
        case TMSG_META_TYPE_STRING:
            fputs("  string  ", stdout);
            put_text(stdout, value.data);
            putchar('\n');
            break;
        default:
            printf("  bytes  %zu of them\n", value.bytes);
        }
    }
}

static void print_reply_text(const tmsg_map_t *map, const digest_t *digest)
{
    char bytes[BYTES_TEXT];

    printf("reply: %zu tensor%s, %s\n", digest->tensors,
           plural(digest->tensors), format_bytes(digest->bytes, bytes));
    show_table(stdout, map, digest);
    print_meta(map);
}

static void print_reply_json(const tmsg_call_t *call, const tmsg_map_t *map,
                             const digest_t *digest)
{
    tmsg_status_t status = tmsg_call_status(call);
    cJSON *event = event_new(status == TMSG_OK ? "reply" : "failed");

    if (status != TMSG_OK) {
        event_text(event, "status", tmsg_status_name(status));
        event_text(event, "error", tmsg_call_error(call));
        cJSON_AddNumberToObject(event, "code", tmsg_call_code(call));
        cJSON_AddBoolToObject(event, "may_have_run",
                              tmsg_call_may_have_run(call));
    }
    if (map != NULL) {
        event_map(event, map, digest);
    }
    event_print(event);
}

static void print_reply(const reply_options_t *options, const tmsg_call_t *call,
                        const tmsg_map_t *map)
{
    digest_t digest = {0};

    if (map != NULL && digest_map(map, true, &digest) != TMSG_OK) {
        digest_map(map, false, &digest);
    }
    if (options->json) {
        print_reply_json(call, map, &digest);
    } else if (map != NULL && tmsg_call_status(call) == TMSG_OK) {
        print_reply_text(map, &digest);
    }
    free(digest.sums);
}

bool reply_take(const reply_options_t *options, const tmsg_call_t *call)
{
    const tmsg_map_t *map = tmsg_call_reply(call);
    bool done = tmsg_call_status(call) == TMSG_OK;

    print_reply(options, call, map);
    if (!done) {
        complain("%s", tmsg_call_error(call));
        if (tmsg_call_code(call) != 0) {
            complain("the method's own code for that is %" PRId32,
                     tmsg_call_code(call));
        }
    }
    return !done || options->out == NULL || keep_reply(options, map);
}

static cJSON *method_json(const tmsg_method_info_t *info)
{
    cJSON *object = cJSON_CreateObject();
    tmsg_signature_t *signature = NULL;
    char *json = NULL;

    event_text(object, "name", info->name);
    event_text(object, "description", info->description);
    if (info->signature != NULL) {
        event_text(object, "signature", info->signature);
        if (tmsg_signature_parse(info->signature, &signature) == TMSG_OK &&
            tmsg_signature_to_json(signature, &json) == TMSG_OK) {
            cJSON_Minify(json);
            cJSON_AddRawToObject(object, "takes_and_gives", json);
        }
    }
    cJSON_AddBoolToObject(object, "stream", info->is_stream);
    cJSON_AddBoolToObject(object, "idempotent", info->is_idempotent);
    cJSON_AddBoolToObject(object, "principal", info->needs_principal);
    event_number(object, "concurrency", info->concurrency);
    event_number(object, "queue", info->queue);
    event_text(object, "health", tmsg_health_name((tmsg_health_t)info->health));
    tmsg_string_free(json);
    tmsg_signature_destroy(signature);
    return object;
}

static void print_method(const tmsg_method_info_t *info)
{
    put_text(stdout, info->name);
    fputs(info->is_stream ? " [stream]" : "", stdout);
    fputs(info->is_idempotent ? " [idempotent]" : "", stdout);
    fputs(info->needs_principal ? " [needs a principal]" : "", stdout);
    if (info->signature != NULL) {
        putchar(' ');
        put_text(stdout, info->signature);
    }
    putchar('\n');
    if (*info->description != '\0') {
        fputs("  ", stdout);
        put_text(stdout, info->description);
        putchar('\n');
    }
    if (info->health != TMSG_HEALTH_SERVING) {
        printf("  is %s\n", tmsg_health_name((tmsg_health_t)info->health));
    }
}

void reply_list(const reply_options_t *options, const tmsg_methods_t *methods)
{
    cJSON *event = options->json ? event_new("methods") : NULL;
    cJSON *array = cJSON_AddArrayToObject(event, "methods");

    for (size_t i = 0; i < tmsg_methods_size(methods); i++) {
        tmsg_method_info_t info;

        tmsg_methods_at(methods, i, &info);
        if (options->json) {
            cJSON_AddItemToArray(array, method_json(&info));
        } else {
            print_method(&info);
        }
    }
    if (options->json) {
        event_print(event);
    }
}
