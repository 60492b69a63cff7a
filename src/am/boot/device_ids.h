/* SPDX-License-Identifier: BSD-3-Clause */
/* am/boot/device_ids.h - devices by the numbers of two device tables. What the
 * sender calls by a number is what the receiver calls by the same number.
 *
 * A hello says for which devices its side has numbers, such as "0=2:1,7=2:0":
 * number 0 is the device of DLPack's type 2 and ordinal 1. */
#ifndef TMSG_AM_BOOT_DEVICE_IDS_H
#define TMSG_AM_BOOT_DEVICE_IDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tensormsg/devices.h>

/* Writes the devices that a driver shows here, as many as there is room for.
 * `devices` may be NULL. */
void tmsg_device_ids_tell(const tmsg_devices_t *devices, char *text,
                          size_t bytes);

/* Returns whether a peer has told a number for that device of its own. A
 * malformed text tells nothing from the fault on. */
bool tmsg_device_ids_find(const char *text, tmsg_device_t device,
                          uint32_t *number_p);

#endif
