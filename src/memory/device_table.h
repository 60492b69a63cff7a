/* SPDX-License-Identifier: BSD-3-Clause */
/* memory/device_table.h - numbers for devices, read from JSON. The format is in
 * docs/devices.md. */
#ifndef TMSG_MEMORY_DEVICE_TABLE_H
#define TMSG_MEMORY_DEVICE_TABLE_H

#include "memory/device.h"

/* Gives the devices the indices of a table: `table` is JSON, or the name of a
 * file of it. Errors: those of tmsg_devices_create(); indices may be given
 * then. */
tmsg_status_t tmsg_device_table_read(const char *table,
                                     tmsg_devices_t *devices);

#endif
