/* SPDX-License-Identifier: BSD-3-Clause */
/* support/address_mutator.h - what a stranger may make of a worker address.
 * Everything follows from a seed. */
#ifndef TMSG_TESTS_ADDRESS_MUTATOR_H
#define TMSG_TESTS_ADDRESS_MUTATOR_H

#include <stddef.h>
#include <stdint.h>

#define ADDRESS_BYTES_MOST 4096

/* Changes an address in place, which has room for ADDRESS_BYTES_MOST. `minor`
 * is UCX's. Returns its new length. */
size_t address_mutate(uint8_t *address, size_t bytes, unsigned minor,
                      uint64_t seed);

#endif
