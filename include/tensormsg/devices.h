/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/devices.h - the devices of this machine, and their numbers in a
 * device table.
 *
 * A list of devices is made once and does not change. See
 * docs/reference/devices.md.
 *
 *     tmsg_devices_create(NULL, &devices);
 *     for (size_t i = 0; i < tmsg_devices_size(devices); i++) {
 *         tmsg_devices_at(devices, i, &info);
 *     }
 *     tmsg_devices_destroy(devices);
 */
#ifndef TENSORMSG_DEVICES_H
#define TENSORMSG_DEVICES_H

#include <stddef.h>
#include <stdint.h>

#include <tensormsg/device.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    TMSG_DEVICE_KIND_HOST = 1,
    TMSG_DEVICE_KIND_CUDA = 2,
    TMSG_DEVICE_KIND_ROCM = 3,
    TMSG_DEVICE_KIND_GAUDI = 4
} tmsg_device_kind_t;

/* Lengths of the texts below, NUL included. */
enum {
    TMSG_DEVICE_TITLE_BYTES = 96,
    TMSG_DEVICE_UUID_BYTES = 48,
    TMSG_DEVICE_BUS_ID_BYTES = 20, /* a domain has up to 8 digits */
    TMSG_DEVICE_NIC_BYTES = 32
};

/* What distinguishes one device from another. An ordinal alone does not: it
 * changes with CUDA_VISIBLE_DEVICES and from process to process. A text that is
 * not known is "". */
typedef struct tmsg_device_info {
    tmsg_device_t device; /* its type in DLPack, EXT_DEV for gaudi; id -1: no
                           * driver has told its ordinal */
    int32_t kind;         /* tmsg_device_kind_t */
    int32_t index;        /* its number in the table; -1: it is not in it */
    int32_t module_id;    /* in Gaudi's table; else -1 */
    int32_t numa_node;    /* -1: not known */
    char title[TMSG_DEVICE_TITLE_BYTES];   /* "NVIDIA H100 80GB HBM3" */
    char uuid[TMSG_DEVICE_UUID_BYTES];     /* "GPU-8f2c..." */
    char bus_id[TMSG_DEVICE_BUS_ID_BYTES]; /* "0000:33:00.0" */
    char nic[TMSG_DEVICE_NIC_BYTES];       /* nearest, "mlx5_0" or "eth0" */
    uint64_t reserved[4]; /* 0; later versions have further fields there */
} tmsg_device_info_t;

/* Returns "host", "cuda", "rocm" or "gaudi"; "unknown" for other values. */
TMSG_API const char *tmsg_device_kind_name(int32_t kind);

/* The devices of this machine when the list was made, the host first, then by
 * bus id. It never changes. Any thread may read it. */
typedef struct tmsg_devices tmsg_devices_t;

enum {
    TMSG_DEVICES_PARAM_TABLE = 1 << 0,
    TMSG_DEVICES_PARAM_SYSFS = 1 << 1,
    TMSG_DEVICES_PARAM_FLAGS = 1 << 2
};

enum {
    /* No driver is asked: ordinals and UUIDs are not known, and nothing is
     * loaded. It is for a process whose children use CUDA after a fork(). */
    TMSG_DEVICES_NO_DRIVERS = 1 << 0
};

typedef struct tmsg_devices_params {
    uint64_t field_mask; /* TMSG_DEVICES_PARAM_*; unset: defaults */
    const char *table;   /* the name of a JSON file, or JSON itself, which
                          * begins with { or [. Default the variable
                          * TENSORMSG_DEVICE_TABLE, or no table; "" is no
                          * table */
    const char *sysfs;   /* where sysfs is; default "/sys" */
    uint32_t flags;      /* TMSG_DEVICES_*; default 0 */
} tmsg_devices_params_t;

/* Finds the devices, and reads the table if there is one. *params (NULL:
 * defaults) is not needed afterwards. The caller frees *devices_p with
 * tmsg_devices_destroy(). NVIDIA's libraries are loaded, if they are there, and
 * asked (cuInit(), nvmlInit()). No context is made on a device. From any
 * thread.
 * Errors:
 *   INVALID_PARAM - an unknown bit or flag; a table that is not as
 *     docs/reference/devices.md has it; an entry that is no device of this
 *     machine, or several, or one that another entry is. The error names the
 *     entry.
 *   NOT_FOUND - no such file
 *   IO - the file cannot be read
 *   LIMIT_EXCEEDED - a file over 1 MiB
 *   NO_MEMORY */
TMSG_API tmsg_status_t tmsg_devices_create(const tmsg_devices_params_t *params,
                                           tmsg_devices_t **devices_p);

/* Frees the list. NULL is allowed. */
TMSG_API void tmsg_devices_destroy(tmsg_devices_t *devices);

/* Return the number of devices (0 if devices is NULL), and give the one at
 * `position`.
 * Errors:
 *   NOT_FOUND - the position is out of range
 *   INVALID_PARAM - a pointer is NULL */
TMSG_API size_t tmsg_devices_size(const tmsg_devices_t *devices);
TMSG_API tmsg_status_t tmsg_devices_at(const tmsg_devices_t *devices,
                                       size_t position,
                                       tmsg_device_info_t *info_p);

/* Gives the device that the table calls `index`.
 * Errors:
 *   NOT_FOUND - no such entry, or no table
 *   INVALID_PARAM - a pointer is NULL */
TMSG_API tmsg_status_t tmsg_devices_find(const tmsg_devices_t *devices,
                                         uint32_t index,
                                         tmsg_device_info_t *info_p);

#ifdef __cplusplus
}
#endif

#endif
