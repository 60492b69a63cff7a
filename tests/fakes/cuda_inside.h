/* SPDX-License-Identifier: BSD-3-Clause */
/* fakes/cuda_inside.h - what the files of the driver that is none share. */
#ifndef TMSG_TESTS_FAKES_CUDA_INSIDE_H
#define TMSG_TESTS_FAKES_CUDA_INSIDE_H

#include "fakes/cuda.h"

/* What of the ABI there is: FAKE_CUDA_AGE is the version of CUDA. */
#ifndef FAKE_CUDA_AGE
#define FAKE_CUDA_AGE 13000
#endif

#define API __attribute__((visibility("default")))
#define FAKE_DEPTH 16

enum {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    ALREADY_REGISTERED = 712,
    NOT_REGISTERED = 713,
    NOT_SUPPORTED = 801,
    CONTEXT_DESTROYED = 709,
    CAPTURE_IMPLICIT = 906
};

typedef struct {
    int device;
    bool primary;
    bool reset; /* a primary one, and not retained since */
    unsigned resets;
} context_t;

extern context_t fake_primaries[FAKE_DEVICES];
extern _Thread_local context_t *fake_stack[FAKE_DEPTH];
extern _Thread_local int fake_depth;

/* Every call begins so. */
int fake_begin(const char *name, bool needs_context);

#define BEGIN(needs_context)                                                   \
    do {                                                                       \
        int begun = fake_begin(__func__, needs_context);                       \
        if (begun != OK) {                                                     \
            return begun;                                                      \
        }                                                                      \
    } while (0)
#define ANYWHERE BEGIN(false)
#define IN_CONTEXT BEGIN(true)

/* What a call does that threads of the global mode may not make while a stream
 * is captured: it invalidates the capture. */
void fake_unsafe(void);
void fake_capture(void *stream);
void fake_pinned_only(bool only);
bool fake_captured(void);

/* The device of the current context. */
int fake_current(void);
/* How each ends that has begun; one that was made to fail, and was done, ends
 * otherwise. */
int fake_end(int result);
/* The same where what earlier work did wrong is told late. */
int fake_end_late(void);
/* NULL: a fault. */
fake_stream_t *fake_stream_of(void *handle, const char *name);
bool fake_event_ok(void *event, const char *name);
bool fake_event_here(void *event, const char *name);

#endif
