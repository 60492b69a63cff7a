/* SPDX-License-Identifier: BSD-3-Clause */
/* values.h - adds values from the command line to a map. */
#ifndef TMSG_VALUES_H
#define TMSG_VALUES_H

#include "tool.h"

/* Adds an argument such as "name=file.npy", "file.npz", "x=[1,2,3]:float32" or
 * "t=0.5" to a map. Files are watched (fault.h). Returns false after a
 * complaint. */
bool values_add(tmsg_map_t *map, const char *word);

/* Adds "key=value" to the metadata. The value is true or false, an integer, a
 * number, or else text. A value in double quotes is always text. Returns false
 * after a complaint. */
bool values_add_meta(tmsg_map_t *map, const char *word);

#endif
