/* SPDX-License-Identifier: BSD-3-Clause */
/* values.h - what is put into a map from the command line. */
#ifndef TMSG_VALUES_H
#define TMSG_VALUES_H

#include "tool.h"

/* "name=file.npy", "file.npz", "x=[1,2,3]:float32", "t=0.5": adds it to a map.
 * Files are watched (fault.h). False after a complaint. */
bool values_add(tmsg_map_t *map, const char *word);

/* "key=value" of the metadata: true and false, integers, numbers, else text. A
 * value in double quotes is text, whatever it is. False after a complaint. */
bool values_add_meta(tmsg_map_t *map, const char *word);

#endif
