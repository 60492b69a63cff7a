/* SPDX-License-Identifier: BSD-3-Clause */
/* support/own_allocator.h - an allocator as an application brings it. */
#ifndef TMSG_TESTS_OWN_ALLOCATOR_H
#define TMSG_TESTS_OWN_ALLOCATOR_H

#include <stdatomic.h>

#include <tensormsg/worker.h>

typedef struct {
    tmsg_status_t (*on_alloc)(void *arg); /* may refuse; NULL: gives it */
    void (*on_free)(void *arg);           /* once it is freed; or NULL */
    void *arg;
    atomic_int blocks; /* given, and not back */
    atomic_uint allocs;
} own_memory_t;

/* Dies when it is asked for what it cannot be, or gets back what is not its. */
tmsg_allocator_t own_memory_allocator(own_memory_t *memory);

#endif
