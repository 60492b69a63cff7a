/* SPDX-License-Identifier: BSD-3-Clause */
/* am/boot/numbers.h - devices by the numbers of two device tables: what the
 * sender's calls by a number is here what the receiver's calls so. A hello says
 * which devices its side has numbers for, "0=2:1,7=2:0": number 0 is what
 * DLPack has as type 2, ordinal 1. */
#ifndef TMSG_AM_BOOT_NUMBERS_H
#define TMSG_AM_BOOT_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tensormsg/devices.h>

/* Those that a driver shows here, as many as there is room for. `devices` may
 * be NULL. */
void tmsg_numbers_tell(const tmsg_devices_t *devices, char *text, size_t bytes);

/* Whether a peer has told a number for that device of its. What is no such text
 * is as if it were not there. */
bool tmsg_numbers_find(const char *text, tmsg_device_t device,
                       uint32_t *number_p);

#endif
