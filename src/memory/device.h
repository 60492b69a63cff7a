/* SPDX-License-Identifier: BSD-3-Clause */
/* memory/device.h - which devices there are. sysfs knows them all by bus id and
 * where they sit; a driver that was opened adds what it alone knows. */
#ifndef TMSG_MEMORY_DEVICE_H
#define TMSG_MEMORY_DEVICE_H

#include <stdbool.h>

#include <tensormsg/devices.h>

/* A driver. Its devices are found by their bus ids among those of sysfs. */
typedef struct {
    /* Fills in device, kind, title, uuid, bus_id and numa_node of its device at
     * `position` and leaves alone what it does not know; false: it has no more.
     */
    bool (*at)(void *arg, size_t position, tmsg_device_info_t *info);
    void *arg;
} tmsg_device_source_t;

/* The drivers of the library, opened when they are asked: who knows more comes
 * later. */
#define TMSG_DEVICE_SOURCES 2
extern const tmsg_device_source_t tmsg_device_sources[TMSG_DEVICE_SOURCES];

struct tmsg_devices {
    tmsg_device_info_t *infos;
    size_t count;
    size_t room;
};

/* An info of which nothing is known. */
tmsg_device_info_t tmsg_device_unknown(int32_t kind);

/* Fills in devices that are all zero; on error they are so again. Errors:
 * NO_MEMORY. */
tmsg_status_t tmsg_devices_scan(tmsg_devices_t *devices, const char *sysfs,
                                const tmsg_device_source_t *sources,
                                size_t source_count);

/* A bus id as it stands in sysfs, "0000:33:00.0": in lower case, with a domain
 * of four digits, or of as many more as it needs. False: `text` is none. */
bool tmsg_device_bus_id(const char *text,
                        char bus_id[TMSG_DEVICE_BUS_ID_BYTES]);

#endif
