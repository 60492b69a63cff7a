/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/packed.h - reads the worker address that UCX packs.
 *
 * The format is private to UCX, and this file knows that of UCX 1.13 to 1.22,
 * which has two versions (UCX_ADDRESS_VERSION):
 *
 *   v1: [version:4 flags:4]               v2: [version:4 release:4][flags:8]
 *   [uuid 8 bytes, if flagged][client id 8 bytes, if flagged]
 *   [name: length 1 byte, text, if flagged]
 *   0xff: there is nothing to connect to, or per device:
 *     [empty:1 memory domain:7][last:1 paths:1 system:1 address length:5]
 *     [paths 1 byte, if flagged][system device 1 byte, if flagged][address]
 *     unless empty, per transport on it:
 *       [checksum of its name 2 bytes]
 *       v1: [overhead f32][bandwidth f32][latency f32][priority:8 flags:24]
 *       v2: [overhead f8][bandwidth f8][latency f8][priority 1 byte]
 *           [segment / 64 2 bytes][flags 2 bytes]
 *       [last:1 endpoint address:1 address length:6][address]
 *
 * In v2 a length or domain that does not fit is all ones, and the next byte has
 * it. In v1 of UCX before 1.19 a domain has 5 bits, below two flags that nobody
 * reads. In v1 of UCX 1.16 and later the last device is empty, and its domain
 * is the release: the minor version modulo 16. UCX_UNIFIED_MODE packs something
 * else, which this file does not read. */
#ifndef TMSG_AM_UCX_PACKED_H
#define TMSG_AM_UCX_PACKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tensormsg/status.h>

/* UCX's bounds of transports on devices, of memory domains, and of bytes for
 * both kinds of address. */
#define TMSG_PACKED_MOST 128
#define TMSG_PACKED_DOMAINS 64

#define TMSG_PACKED_MINOR_FIRST 13
#define TMSG_PACKED_MINOR_LAST 22

/* Flags of the head. */
#define TMSG_PACKED_NAME 1u
#define TMSG_PACKED_UUID 2u
#define TMSG_PACKED_CLIENT_ID 4u
#define TMSG_PACKED_AM_ONLY 8u

#define TMSG_PACKED_NO_RELEASE UINT8_MAX
#define TMSG_PACKED_NO_SYSTEM UINT8_MAX
#define TMSG_PACKED_NO_SEGMENT UINT32_MAX

/* A transport on a device. */
typedef struct {
    uint16_t transport; /* checksum of its name */
    uint8_t device;     /* index in devices[] */
    uint8_t priority;
    uint8_t address_bytes;
    const uint8_t *address; /* points into the packed address */
    double overhead;        /* these three may be any value, even NaN */
    double bandwidth;
    double latency;
    uint32_t flags;   /* as packed; the two versions have different ones */
    uint32_t segment; /* longest message in bytes; v1 does not tell */
} tmsg_packed_entry_t;

typedef struct {
    uint8_t domain; /* index of its memory domain on that side */
    uint8_t paths;
    uint8_t system; /* number of a system device */
    uint8_t address_bytes;
    const uint8_t *address;
} tmsg_packed_device_t;

typedef struct {
    uint8_t version; /* 1 or 2 */
    uint8_t flags;
    uint8_t release; /* minor version modulo 16 */
    uint8_t name_bytes;
    const uint8_t *name;
    uint64_t uuid;
    size_t device_count;
    size_t entry_count;
    tmsg_packed_device_t devices[TMSG_PACKED_MOST];
    tmsg_packed_entry_t entries[TMSG_PACKED_MOST];
} tmsg_packed_t;

/* Reads a packed address that fills `bytes` exactly, as UCX 1.`minor` reads it.
 * It refuses what UCX never packs in a worker's address: endpoint addresses,
 * empty devices, values behind an extension that would have fitted without.
 * Errors: MALFORMED. *packed is undefined then. */
tmsg_status_t tmsg_packed_read(const void *address, size_t bytes,
                               unsigned minor, tmsg_packed_t *packed);

/* Returns the checksum by which UCX names a transport. */
uint16_t tmsg_packed_checksum(const char *name);

#endif
