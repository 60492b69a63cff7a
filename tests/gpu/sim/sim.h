/* SPDX-License-Identifier: BSD-3-Clause */
/* gpu/sim/sim.h - a simulated CUDA driver: libcuda.so.1 without a GPU.
 *
 * UCX's own CUDA transports (cuda_copy, cuda_ipc) move data on it between two
 * processes. Device memory lies in a memfd of the process. The addresses that
 * are handed out may not be touched by the CPU: the process dies of SIGSEGV.
 * Another process that opens an IPC handle maps the same memfd by
 * /proc/PID/fd.
 *
 * One thread executes the streams of a process. The order within a stream is
 * kept; streams are ordered against each other by events and by the legacy
 * default stream alone. Work is done later than the call that gave it; with
 * SIM_CUDA_DELAY_US it is done that much later, so that a missing
 * synchronization is seen.
 *
 * Each behaviour names what it follows: a function of CUDA's driver API
 * reference ("cuStreamDestroy()"), its section, or a line of UCX 1.22. Where
 * the documents are silent, gpu/probe.c asks a real driver the same question.
 *
 * Environment:
 *   SIM_CUDA_DEVICES     how many GPUs there are (default 1, at most 4)
 *   SIM_CUDA_MEMORY_MIB  memory of each (default 16384)
 *   SIM_CUDA_DELAY_US    how long work waits at least, once it has been given
 *   SIM_CUDA_COUNTS      a file in which all processes add up what they did
 *   SIM_CUDA_FAULT_AT    the n-th copy of a process faults, as a kernel would
 *   SIM_CUDA_NVLINKS     links of each GPU (default 0, as one GPU in a VM)
 *   SIM_CUDA_MISSING     names of functions that this driver does not have
 *   SIM_CUDA_NO_IPC      CUDA IPC is barred: "open" no handle can be opened,
 *                        anything else none can be made
 *   SIM_CUDA_NO_MEMOPS   no stream operation waits for a word or writes one
 *   SIM_CUDA_UNORDERED   what NICs write has to be flushed to be seen
 *   SIM_CUDA_PIN_WAITS   cuMemHostRegister() waits for all work of the device
 *   SIM_CUDA_STRICT      a host function needs a current context, too
 *
 * A program that loads the library may look up sim_cuda (sim_cuda_fn). */
#ifndef TMSG_TESTS_GPU_SIM_H
#define TMSG_TESTS_GPU_SIM_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* What is counted. The file SIM_CUDA_COUNTS is an array of these numbers, each
 * a uint64_t; counts.sh prints them with their names. `launches` are the calls
 * that give work to the device: a copy, a fill, a batch, a kernel. A copy is
 * `pageable` if its host side is not pinned, `ipc` if one side is the memory
 * of another process. `held_bytes` is what is allocated on the device now, and
 * `peak_bytes` the most of one process so far. `undefined` counts what CUDA's
 * documents call undefined behaviour: each is a defect of the program. */
#define SIM_COUNTS(COUNT)                                                      \
    COUNT(launches)                                                            \
    COUNT(copies_dtod)                                                         \
    COUNT(copies_dtoh)                                                         \
    COUNT(copies_htod)                                                         \
    COUNT(copies_pageable)                                                     \
    COUNT(copies_ipc)                                                          \
    COUNT(copies_bytes)                                                        \
    COUNT(batches)                                                             \
    COUNT(kernels)                                                             \
    COUNT(flushes)                                                             \
    COUNT(host_functions)                                                      \
    COUNT(events_created)                                                      \
    COUNT(events_recorded)                                                     \
    COUNT(events_queried)                                                      \
    COUNT(synchronized)                                                        \
    COUNT(allocs)                                                              \
    COUNT(allocs_pool)                                                         \
    COUNT(allocs_vmm)                                                          \
    COUNT(alloc_bytes)                                                         \
    COUNT(frees)                                                               \
    COUNT(pins)                                                                \
    COUNT(pinned_bytes)                                                        \
    COUNT(ipc_exported)                                                        \
    COUNT(ipc_opened)                                                          \
    COUNT(ipc_closed)                                                          \
    COUNT(freed_while_open)                                                    \
    COUNT(ipc_events_opened)                                                   \
    COUNT(held_bytes)                                                          \
    COUNT(peak_bytes)                                                          \
    COUNT(undefined)

typedef struct {
#define SIM_COUNT(name) _Atomic uint64_t name;
    SIM_COUNTS(SIM_COUNT)
#undef SIM_COUNT
} sim_counts_t;

/* What a kernel may do: it runs on the thread of the device. */
typedef void (*sim_kernel_fn)(void *arg);

typedef struct {
    sim_counts_t *counts; /* of all processes if SIM_CUDA_COUNTS is set */
    /* The following give work to a stream, and return a CUresult: a kernel,
     * one that waits until *go is not 0, one that reads an illegal address. */
    int (*launch)(sim_kernel_fn kernel, void *arg, void *stream);
    int (*hold)(const volatile int *go, void *stream);
    int (*fault)(void *stream);
    /* Where a kernel finds device memory; NULL: an illegal address. */
    void *(*reach)(uint64_t address, size_t bytes);
    /* Lets a program see and fill device memory, at once. Memory of a pool is
     * there when its stream has come to the allocation, for reach(), too. */
    int (*peek)(void *to, uint64_t from, size_t bytes);
    int (*poke)(uint64_t to, const void *from, size_t bytes);
    void (*set_delay)(unsigned delay_us); /* as SIM_CUDA_DELAY_US */
    /* The first undefined behaviour, in words; NULL: none. */
    const char *(*complaint)(void);
} sim_cuda_t;

typedef const sim_cuda_t *(*sim_cuda_fn)(void);

const sim_cuda_t *sim_cuda(void);

#endif
