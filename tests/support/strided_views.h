/* SPDX-License-Identifier: BSD-3-Clause */
/* support/strided_views.h - tensors that are views into one buffer of int32,
 * every element of which is its own index. */
#ifndef TMSG_TESTS_STRIDED_VIEWS_H
#define TMSG_TESTS_STRIDED_VIEWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tensormsg/map.h>

typedef struct {
    const char *name;
    int64_t first; /* element of the buffer */
    int32_t ndim;
    int64_t shape[3];
    int64_t strides[3];
    int64_t travels; /* elements, as the test has it */
} view_t;

tmsg_tensor_t view_tensor(const view_t *view);
tmsg_map_t *views_map(const view_t *first, size_t count);

/* Dies unless it has the shape of the view and each of its elements, wherever
 * they lie. */
void view_check(const view_t *view, const tmsg_tensor_t *tensor);

/* `many` are the first `of` of `views`, over and over, each under a name of its
 * own of 199 characters, which are kept: once a process. */
void views_repeat(view_t *many, size_t count, const view_t *views, size_t of);

/* A map of memory for them without gaps, in C order or Fortran's. `place` may
 * have it otherwise, or be NULL. */
tmsg_map_t *views_room(const view_t *first, size_t count, bool fortran,
                       void (*place)(const view_t *view,
                                     tmsg_tensor_t *tensor));

#endif
