/* SPDX-License-Identifier: BSD-3-Clause */
/* older/minimal.h - a map as the body of the minimal dialect. */
#ifndef TMSG_TESTS_OLDER_MINIMAL_H
#define TMSG_TESTS_OLDER_MINIMAL_H

#include <stddef.h>
#include <stdint.h>

#include <tensormsg/map.h>

/* `to` NULL only counts. Dies where the dialect cannot say it: order other
 * than C, a device. Metadata is left out. */
size_t minimal_body(const tmsg_map_t *map, uint8_t *to);

#endif
