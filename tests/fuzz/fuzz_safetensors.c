/* SPDX-License-Identifier: BSD-3-Clause */
#include <cjson/cJSON.h>

#include "file_target.h"
#include "serialize/file_json.h"

#define PREFIX_BYTES 8

static void expect(bool holds)
{
    if (!holds) {
        abort();
    }
}

static void expect_string(const tmsg_file_json_t *json, const char *text)
{
    size_t bytes = tmsg_file_json_string_bytes(json);
    char *copy = malloc(bytes + 1);

    expect(copy != NULL && bytes == strlen(text));
    tmsg_file_json_copy_string(json, copy);
    expect(strcmp(copy, text) == 0 && tmsg_file_json_string_is(json, text));
    free(copy);
}

static void expect_same(const tmsg_file_json_t *json, const cJSON *tree)
{
    tmsg_file_json_walk_t walk = tmsg_file_json_walk(json);
    const cJSON *child = tree->child;
    int64_t extent;

    switch (tmsg_file_json_type(json)) {
    case '"':
        expect(cJSON_IsString(tree));
        expect_string(json, tree->valuestring);
        return;
    case 'i':
        expect(cJSON_IsNumber(tree));
        if (tmsg_file_json_read_extent(json, &extent)) {
            expect((double)extent == tree->valuedouble);
        }
        return;
    default:
        expect(cJSON_IsObject(tree) == (*json->text == '{'));
    }
    for (; tmsg_file_json_next(&walk); child = child->next) {
        expect(child != NULL);
        if (cJSON_IsObject(tree)) {
            expect_string(&walk.key, child->string);
        }
        expect_same(&walk.value, child);
    }
    expect(child == NULL);
}

/* cJSON must find the same values in a header. */
static void compare(const char *text, size_t bytes)
{
    const tmsg_file_where_t where = {.path = "fuzz"};
    tmsg_file_json_t root;
    cJSON *tree;

    if (tmsg_file_json_scan(&where, text, bytes, &root) != TMSG_OK) {
        return;
    }
    tree = cJSON_ParseWithLengthOpts(text, bytes, NULL, 0);
    expect(tree != NULL);
    expect_same(&root, tree);
    cJSON_Delete(tree);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    load_and_read(TMSG_FILE_SAFETENSORS, data, size);
    if (size > PREFIX_BYTES) {
        char *text = malloc(size - PREFIX_BYTES); /* of just its size */

        expect(text != NULL);
        memcpy(text, data + PREFIX_BYTES, size - PREFIX_BYTES);
        compare(text, size - PREFIX_BYTES);
        free(text);
    }
    return 0;
}
