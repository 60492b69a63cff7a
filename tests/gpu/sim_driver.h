/* SPDX-License-Identifier: BSD-3-Clause */
/* gpu/sim_driver.h - the simulated driver, as the application of a test has it.
 */
#ifndef TMSG_TESTS_GPU_SIM_DRIVER_H
#define TMSG_TESTS_GPU_SIM_DRIVER_H

#include "gpu/sim/sim.h"

/* A function of the driver, and the pointer to it that is set. */
typedef struct {
    const char *name;
    void *function_p;
} sim_symbol_t;

/* Opens the driver, and finds functions of it; the last one has no name. */
const sim_cuda_t *sim_open(const sim_symbol_t *symbols);

/* Makes the first device's primary context current on this thread. */
void sim_enter(void);

#endif
