/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/boot/device_ids.h"

#include <stdio.h>
#include <string.h>

/* Returns whether a device is told to the peer. The host needs no number: its
 * tensors belong to the host everywhere. */
static bool is_told(const tmsg_device_info_t *info)
{
    return info->index >= 0 && info->device.id >= 0 &&
           info->kind != TMSG_DEVICE_KIND_HOST;
}

void tmsg_device_ids_tell(const tmsg_devices_t *devices, char *text,
                          size_t bytes)
{
    size_t used = 0;

    text[0] = '\0';
    for (size_t i = 0; i < tmsg_devices_size(devices); i++) {
        tmsg_device_info_t info;
        char one[48];
        size_t more;

        if (tmsg_devices_at(devices, i, &info) != TMSG_OK || !is_told(&info)) {
            continue;
        }
        more = (size_t)snprintf(one, sizeof(one), "%s%d=%d:%d",
                                used == 0 ? "" : ",", info.index,
                                info.device.type, info.device.id);
        if (used + more < bytes) {
            memcpy(text + used, one, more + 1);
            used += more;
        }
    }
}

/* Reads a decimal number and the character behind it. A number that a comma may
 * follow may also end the text. */
static bool read_device_number(const char **text, char behind,
                               int32_t *number_p)
{
    const char *at = *text;
    int64_t number = 0;

    while (*at >= '0' && *at <= '9' && number <= INT32_MAX) {
        number = number * 10 + (*at++ - '0');
    }
    if (at == *text || number > INT32_MAX ||
        (*at != behind && (behind != ',' || *at != '\0'))) {
        return false;
    }
    *number_p = (int32_t)number;
    *text = *at == '\0' ? at : at + 1;
    return true;
}

bool tmsg_device_ids_find(const char *text, tmsg_device_t device,
                          uint32_t *number_p)
{
    int32_t number, type, ordinal;

    while (*text != '\0') {
        if (!read_device_number(&text, '=', &number) ||
            !read_device_number(&text, ':', &type) ||
            !read_device_number(&text, ',', &ordinal)) {
            return false;
        }
        if (type == device.type && ordinal == device.id) {
            *number_p = (uint32_t)number;
            return true;
        }
    }
    return false;
}
