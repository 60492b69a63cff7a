/* SPDX-License-Identifier: BSD-3-Clause */
/* support/simulated_device.h - memory of a device that is not there, as a
 * domain.
 *
 * The CPU dies of SIGSEGV where it touches such a pointer, and whoever forgets
 * to put work in order is told (fakes/machine.h). */
#ifndef TMSG_TESTS_SIMULATED_DEVICE_H
#define TMSG_TESTS_SIMULATED_DEVICE_H

#include <tensormsg/domain.h>

#include "fakes/machine.h"

#define ACCELERATOR_DEVICE 12 /* kDLExtDev */

extern const tmsg_domain_t accelerator;

tmsg_device_t accelerator_device(int32_t id);

/* A stream of the application's, which lasts as long as the process. */
tmsg_stream_t accelerator_stream(int32_t id);
fake_stream_t *accelerator_inside(tmsg_stream_t stream);

#endif
