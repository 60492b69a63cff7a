/* SPDX-License-Identifier: BSD-3-Clause */
/* fakes/cuda.h - what a test may ask of the libcuda.so.1 that is none.
 *
 * It is built in several ages (fakes/CMakeLists.txt) and behaves as the
 * documents say that the driver does, where we need it, but strictly: a call
 * with no context current, on the wrong device, of what was freed, or of work
 * that is not in order (fakes/machine.h) fails and is a fault that stays.
 *
 * FAKE_CUDA_DEVICES: how many there are, 2 by default. FAKE_CUDA_COUNT: what
 * cuDeviceGetCount() says of them. FAKE_CUDA_INIT: what cuInit() says.
 * FAKE_CUDA_VERSION: what cuDriverGetVersion() says. FAKE_CUDA_MISSING: names
 * that cuGetProcAddress() does not know. FAKE_CUDA_POOLS 0: the devices have no
 * memory pools. FAKE_CUDA_OWN_POOLS 0: but for the default ones none can be
 * made. FAKE_CUDA_DOMAIN: of their bus ids, which NVML knows as well,
 * "0000" by default. FAKE_CUDA_PIN: what cuMemHostRegister() says.
 * FAKE_CUDA_MIG: each is a part of a GPU. */
#ifndef TMSG_TESTS_FAKES_CUDA_H
#define TMSG_TESTS_FAKES_CUDA_H

#include "fakes/machine.h"

/* What a call does that is made to fail: the documents of nearly all say that
 * they may answer with the failure of work before them. */
typedef enum {
    FAKE_REFUSED,    /* nothing */
    FAKE_DONE,       /* all that it is there for */
    FAKE_DONE_ALWAYS /* that, and all behind it fail like it */
} fake_failing_t;

typedef struct {
    /* The n-th call from now on, of any thread, answers `result`. 0: none. */
    void (*arm)(unsigned long n, int result, fake_failing_t how);
    /* Lets all succeed again; the name of the call that failed, or NULL. */
    const char *(*disarm)(void);
    unsigned long (*calls)(const char *name); /* of that function so far */

    const char *(*fault)(void);
    void (*fault_clear)(void);
    int (*blocks)(void);
    int (*events)(void);
    void (*peek)(void *to, uintptr_t from, size_t bytes);
    void (*poke)(uintptr_t to, const void *from, size_t bytes);
    void (*block)(void *stream);
    void (*unblock)(void *stream);
    void (*finish)(void); /* all work that waits for nothing of the program's */

    int (*primary_uses)(int device); /* how often it is retained */
    int (*depth)(void);              /* contexts on this thread's stack */
    /* As the application would: memory of that kind on a device. */
    uintptr_t (*alloc)(int device, size_t bytes, fake_kind_t kind);
    /* A stream of the device's primary context, which is in use from then on.
     */
    void *(*stream)(int device);
    /* Begins to capture a stream (NULL: ends that), in the global mode, and
     * returns whether the capture is not invalidated so far. */
    void (*capture)(void *stream);
    bool (*captured)(void);
    /* From now on a copy of pageable memory by a stream is a fault: it would be
     * done by the CPU within the call. */
    void (*pinned_only)(bool only);
    /* As by cudaDeviceReset(): the primary context is gone with all that was in
     * it, and is not active before it is retained once more. */
    void (*reset)(int device);
    /* A context of the application's own; it is not made current. */
    void *(*context)(int device);
    /* What a pool beside the default one keeps; 0: there is none. */
    uint64_t (*pool_keeps)(int device);
    /* From now on, until `false`, who registers host memory waits. */
    void (*hold_pins)(bool hold);
} fake_cuda_t;

/* Exported by the library. */
typedef const fake_cuda_t *(*fake_cuda_fn)(void);

#endif
