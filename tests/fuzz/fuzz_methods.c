/* SPDX-License-Identifier: BSD-3-Clause */
/* What a server says of one of its methods, which may be anything. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <tensormsg/tensormsg.h>

#include "rpc/reflect.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool holds)
{
    if (!holds) {
        abort();
    }
}

static void check(const tmsg_methods_t *methods)
{
    tmsg_signature_t *signature;
    tmsg_method_info_t info;

    expect(tmsg_methods_size(methods) == 1);
    expect(tmsg_methods_at(methods, 0, &info) == TMSG_OK);
    expect(strcmp(info.name, "m") == 0);
    expect(strlen(info.description) <= TMSG_METHOD_DESCRIPTION_MAX);
    if (info.signature != NULL) {
        expect(tmsg_signature_parse(info.signature, &signature) == TMSG_OK);
        tmsg_signature_destroy(signature);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const tmsg_meta_t said = {.type = TMSG_META_TYPE_STRING,
                              .data = size == 0 ? "" : (const char *)data,
                              .bytes = size};
    tmsg_methods_t *methods;
    tmsg_status_t status;
    tmsg_map_t *map;

    expect(tmsg_map_create(&map) == TMSG_OK);
    if (tmsg_map_set_meta(map, TMSG_REFLECT_METHOD "m", &said) == TMSG_OK) {
        status = tmsg_methods_read(map, &methods);
        expect(status == TMSG_OK || status == TMSG_ERR_MALFORMED);
        if (status == TMSG_OK) {
            check(methods);
            tmsg_methods_destroy(methods);
        }
    }
    tmsg_map_destroy(map);
    return 0;
}
