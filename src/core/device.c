/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/device.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"

static const struct {
    int32_t type;
    const char *name;
    bool has_addresses;
} named[] = {
    {TMSG_DEVICE_CPU, "cpu", true},
    {TMSG_DEVICE_CUDA, "cuda", true},
    {TMSG_DEVICE_CUDA_HOST, "cuda_host", true},
    {TMSG_DEVICE_OPENCL, "opencl", false},
    {TMSG_DEVICE_VULKAN, "vulkan", false},
    {TMSG_DEVICE_METAL, "metal", false},
    {TMSG_DEVICE_VPI, "vpi", false},
    {TMSG_DEVICE_ROCM, "rocm", true},
    {TMSG_DEVICE_ROCM_HOST, "rocm_host", true},
    {TMSG_DEVICE_EXT_DEV, "ext_dev", false},
    {TMSG_DEVICE_CUDA_MANAGED, "cuda_managed", true},
    {TMSG_DEVICE_ONEAPI, "oneapi", true},
    {TMSG_DEVICE_WEBGPU, "webgpu", false},
    {TMSG_DEVICE_HEXAGON, "hexagon", false},
    {TMSG_DEVICE_MAIA, "maia", false},
    {TMSG_DEVICE_TRN, "trn", false},
};

#define NAMED_COUNT (sizeof(named) / sizeof(named[0]))

static size_t find_device_type(int32_t type)
{
    size_t i = 0;

    while (i < NAMED_COUNT && named[i].type != type) {
        i++;
    }
    return i;
}

const char *tmsg_device_type_name(int32_t type)
{
    size_t i = find_device_type(type);

    return i < NAMED_COUNT ? named[i].name : NULL;
}

bool tmsg_device_has_addresses(int32_t type)
{
    size_t i = find_device_type(type);

    return i < NAMED_COUNT && named[i].has_addresses;
}

const char *tmsg_device_format(tmsg_device_t device, char *name,
                               size_t name_bytes)
{
    const char *type = tmsg_device_type_name(device.type);

    if (type != NULL) {
        snprintf(name, name_bytes, "%s:%" PRId32, type, device.id);
    } else {
        snprintf(name, name_bytes, "device(%" PRId32 "):%" PRId32, device.type,
                 device.id);
    }
    return name;
}

/* Parses what follows a device's name: ":7", or nothing. */
static bool parse_id(const char *text, int32_t *id_p)
{
    unsigned long id;
    char *end;

    if (*text == '\0') {
        *id_p = 0;
        return true;
    }
    if (text[0] != ':' || text[1] < '0' || text[1] > '9') {
        return false;
    }
    id = strtoul(text + 1, &end, 10);
    *id_p = (int32_t)id;
    return *end == '\0' && id <= INT32_MAX;
}

tmsg_status_t tmsg_device_parse(const char *name, tmsg_device_t *device_p)
{
    int32_t id;

    if (name == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "the device is NULL");
    }
    for (size_t i = 0; i < NAMED_COUNT; i++) {
        size_t length = strlen(named[i].name);

        if (strncmp(name, named[i].name, length) == 0 &&
            parse_id(name + length, &id)) {
            *device_p = (tmsg_device_t){named[i].type, id};
            return TMSG_OK;
        }
    }
    return tmsg_error_set(
        TMSG_ERR_INVALID_PARAM,
        "'%s' is not a device: write cpu, cuda or cuda:1, for example",
        tmsg_error_name(name, strlen(name)).text);
}
