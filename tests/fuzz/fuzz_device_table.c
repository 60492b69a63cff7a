/* SPDX-License-Identifier: BSD-3-Clause */
/* Any text as a device table: it is refused, or every index is one device. */
#include <stdlib.h>
#include <string.h>

#include "memory/device_table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const bus_ids[] = {"", "0000:33:00.0", "0000:34:00.0",
                                          "0000:34:00.0", "0000:b3:00.0"};
    static const int32_t kinds[] = {1, 2, 3, 3, 4};
    tmsg_device_info_t infos[5], found;
    tmsg_devices_t devices = {infos, 5, 5};
    char *text;

    if (size == 0 || strchr("{[ \t\r\n", data[0]) == NULL || data[0] == '\0') {
        return 0; /* a file's name */
    }
    text = calloc(1, size + 1);
    if (text == NULL) {
        abort();
    }
    memcpy(text, data, size);
    for (size_t i = 0; i < 5; i++) {
        infos[i] = tmsg_device_unknown(kinds[i]);
        strcpy(infos[i].bus_id, bus_ids[i]);
        infos[i].uuid[0] = (char)('a' + i);
    }
    if (tmsg_device_table_read(text, &devices) == TMSG_OK) {
        for (size_t i = 0; i < 5; i++) {
            if (infos[i].index >= 0 &&
                (tmsg_devices_find(&devices, (uint32_t)infos[i].index,
                                   &found) != TMSG_OK ||
                 strcmp(found.uuid, infos[i].uuid) != 0)) {
                abort();
            }
        }
    }
    free(text);
    return 0;
}
