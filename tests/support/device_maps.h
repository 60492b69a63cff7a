/* SPDX-License-Identifier: BSD-3-Clause */
/* support/device_maps.h - maps of host and device tensors, whose content says
 * which they are. The devices are those of support/simulated_devices.h. */
#ifndef TMSG_TESTS_DEVICE_MAPS_H
#define TMSG_TESTS_DEVICE_MAPS_H

#include <stddef.h>
#include <stdint.h>

#include <tensormsg/tensormsg.h>

#define ON_HOST (-1)

/* One tensor: of so many bytes, on that device or ON_HOST. */
typedef struct {
    int32_t device;
    size_t bytes;
    tmsg_stream_t stream; /* all zeros: none */
} device_tensor_t;

/* devices_begin() and devices_end(). */
void device_maps_begin(void);
void device_maps_end(void);

/* Memory of a device, filled with what `seed` says, or with nothing
 * (`seed` 0); freed with device_free(). */
void *device_alloc(int32_t device, size_t bytes, uint64_t seed);
void device_free(void *data);
/* How many were not freed yet, those that maps own among them. */
int device_held(void);

/* As sample_compare(). */
size_t device_compare(uint64_t seed, const void *data, size_t bytes);

/* The map, which owns its tensors; named "0", "1" and so on. */
tmsg_map_t *device_map(uint64_t seed, const device_tensor_t *tensors,
                       size_t count);
/* The same with other memory, which says nothing yet. */
tmsg_map_t *device_map_empty(const device_tensor_t *tensors, size_t count);

/* Dies unless the map has that content, on those devices. */
void device_map_check(uint64_t seed, const device_tensor_t *tensors,
                      size_t count, const tmsg_map_t *map);

#endif
