/* SPDX-License-Identifier: BSD-3-Clause */
/* memory/device.h - lists the devices of the machine. sysfs lists all of them
 * with bus id and location. An opened driver adds what sysfs does not tell. */
#ifndef TMSG_MEMORY_DEVICE_H
#define TMSG_MEMORY_DEVICE_H

#include <stdbool.h>

#include <tensormsg/devices.h>

/* A source is a driver that lists devices. The scan matches its devices with
 * those of sysfs by bus id. */
typedef struct {
    /* Fills in device, kind, title, uuid, bus_id and numa_node of the driver's
     * device at `position`. Fields that the driver does not know stay as they
     * are. Returns false if there is no device at `position`. */
    bool (*at)(void *arg, size_t position, tmsg_device_info_t *info);
    void *arg;
} tmsg_device_source_t;

/* A scan opens these drivers of the library. A later driver overrides what an
 * earlier one told. */
#define TMSG_DEVICE_SOURCES 2
extern const tmsg_device_source_t tmsg_device_sources[TMSG_DEVICE_SOURCES];

struct tmsg_devices {
    tmsg_device_info_t *infos;
    size_t count;
    size_t room;
};

/* Returns an info with that kind, in which nothing else is known. */
tmsg_device_info_t tmsg_device_unknown(int32_t kind);

/* Fills in the list of devices, sorted: the host first, then by bus id. The
 * caller passes a zeroed structure, and frees `infos`. After an error the
 * structure is zero again. Errors: NO_MEMORY. */
tmsg_status_t tmsg_devices_scan(tmsg_devices_t *devices, const char *sysfs,
                                const tmsg_device_source_t *sources,
                                size_t source_count);

/* Writes a bus id in the form of sysfs, "0000:33:00.0": lower case, with a
 * domain of four digits or more. Returns false if `text` is not a bus id. */
bool tmsg_device_bus_id(const char *text,
                        char bus_id[TMSG_DEVICE_BUS_ID_BYTES]);

#endif
