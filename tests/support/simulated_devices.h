/* SPDX-License-Identifier: BSD-3-Clause */
/* support/simulated_devices.h - devices for tests of whatever moves their
 * memory: the accelerators of support/simulated_device.h or, where TEST_DEVICES
 * is "cuda", those of the libcuda.so.1 that is none (fakes/cuda.h), which the
 * loader finds first then. Of either there are four. */
#ifndef TMSG_TESTS_SIMULATED_DEVICES_H
#define TMSG_TESTS_SIMULATED_DEVICES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tensormsg/domain.h>

#include "fakes/cuda.h"

/* Makes them known to the library, once. */
void devices_begin(void);
/* Dies where memory or an event was left behind, or the CPU or the order of
 * work was at fault. */
void devices_end(void);

bool devices_are_cuda(void);
const tmsg_domain_t *device_domain(void);
tmsg_device_t device_at(int32_t id);

/* A stream of the application's, which lasts as long as the process. */
tmsg_stream_t device_stream(int32_t id);
/* A kernel that waits for the program, and its end. */
void device_block(tmsg_stream_t stream);
void device_unblock(tmsg_stream_t stream);
/* All that any stream holds is done. */
void devices_finish(void);

/* Lets a test see and fill device memory. */
void device_peek(void *to, const void *from, size_t bytes);
void device_poke(void *to, const void *from, size_t bytes);

/* The driver that is none; dies where that is not what the loader finds. */
const fake_cuda_t *devices_driver(void);

#endif
