/* SPDX-License-Identifier: BSD-3-Clause */
/* memory/device_table.h - reads device indices from JSON.
 * docs/reference/devices.md describes the format. */
#ifndef TMSG_MEMORY_DEVICE_TABLE_H
#define TMSG_MEMORY_DEVICE_TABLE_H

#include "memory/device.h"

/* Gives the devices the indices of a table. `table` is JSON text, or the name
 * of a JSON file. Errors: those of tmsg_devices_create(). After an error some
 * devices may already have new indices. */
tmsg_status_t tmsg_device_table_read(const char *table,
                                     tmsg_devices_t *devices);

#endif
