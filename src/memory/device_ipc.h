/* SPDX-License-Identifier: BSD-3-Clause */
/* memory/device_ipc.h - device memory of the library's own that other processes
 * of this machine open (CUDA IPC).
 *
 * A process allocates such memory and tells others its name. To open the memory
 * maps it there, for reading and writing. CUDA says that memory must not be
 * freed before the others have closed it, so the memory is kept until they have
 * said so, or have ended. Any thread may call these functions. */
#ifndef TMSG_MEMORY_DEVICE_IPC_H
#define TMSG_MEMORY_DEVICE_IPC_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <tensormsg/domain.h>

#define TMSG_IPC_ID_BYTES 24 /* 16 random bytes of the process, u64 number */
#define TMSG_IPC_HANDLE_BYTES 64
#define TMSG_IPC_UUID_BYTES 64 /* with the 0 at the end */

/* A process has so many of these memories at most, those that it keeps for
 * others among them, and opens so many of other processes. */
#define TMSG_IPC_MEMORIES_MOST 16
#define TMSG_IPC_VIEWS_MOST 64

/* What another process needs to open the memory. */
typedef struct {
    uint8_t id[TMSG_IPC_ID_BYTES]; /* never comes again */
    uint8_t handle[TMSG_IPC_HANDLE_BYTES];
    char uuid[TMSG_IPC_UUID_BYTES]; /* of the device */
    uint64_t bytes;
} tmsg_ipc_name_t;

typedef struct tmsg_ipc_memory tmsg_ipc_memory_t;

/* Allocates memory, or takes some that is kept and was only ever lent to
 * `group`. Errors: UNSUPPORTED (the domain or its driver has no such memory),
 * LIMIT_EXCEEDED, NO_MEMORY, IO. */
tmsg_status_t tmsg_ipc_alloc(const tmsg_domain_t *domain, tmsg_device_t device,
                             uint64_t bytes, const char *group,
                             tmsg_ipc_memory_t **memory_p);
void tmsg_ipc_free(tmsg_ipc_memory_t *memory);

/* Returns whether the memory is still there: it goes with its device's context
 * (cudaDeviceReset()). */
bool tmsg_ipc_stands(const tmsg_ipc_memory_t *memory);

/* Allocates memory of the application's (tmsg_shareable_alloc()), which begins
 * at *data_p. tmsg_ipc_give_up() has the application free it; false: no such
 * memory begins there. Errors: as tmsg_ipc_alloc(). */
tmsg_status_t tmsg_ipc_alloc_own(tmsg_device_t device, uint64_t bytes,
                                 void **data_p);
bool tmsg_ipc_give_up(const void *data);

/* Returns the application's memory in which all these bytes lie, with a
 * reference for the caller, or NULL. Where the application has none, this is
 * one load. */
tmsg_ipc_memory_t *tmsg_ipc_find(const void *data, uint64_t bytes);
void tmsg_ipc_take(tmsg_ipc_memory_t *memory); /* one more reference */

/* Returns whether memory is the application's, and whether it was given up. */
bool tmsg_ipc_is_own(const tmsg_ipc_memory_t *memory);
bool tmsg_ipc_is_given_up(const tmsg_ipc_memory_t *memory);

uint8_t *tmsg_ipc_data(const tmsg_ipc_memory_t *memory);
const tmsg_ipc_name_t *tmsg_ipc_name(const tmsg_ipc_memory_t *memory);

/* tmsg_ipc_lend() notes that a process is told the name, before it is told.
 * tmsg_ipc_returned() takes that back: the process has closed the memory with
 * this id, or has not opened it. What is never returned counts until the
 * process has ended. Errors: LIMIT_EXCEEDED, UNSUPPORTED (it has ended). */
tmsg_status_t tmsg_ipc_lend(tmsg_ipc_memory_t *memory, pid_t pid);
void tmsg_ipc_returned(const uint8_t *id, pid_t pid);

/* Notes that memory will not be returned: nobody hears the process any more.
 * tmsg_ipc_look() frees what is kept for processes that have ended; it returns
 * whether some of those is left, so that another look is worth while. */
void tmsg_ipc_leave_lent(tmsg_ipc_memory_t *memory, pid_t pid);
bool tmsg_ipc_look(void);

/* Memory of another process, as it lies here. Memory of this process is not
 * opened: the view has its address. */
typedef struct tmsg_ipc_view {
    const tmsg_domain_t *domain;
    tmsg_device_t device;
    const uint8_t *data;
    uint64_t bytes;
} tmsg_ipc_view_t;

/* Opens memory. Errors: NOT_FOUND (no such GPU here), UNSUPPORTED (the GPU is
 * not in use here, or its driver cannot), MALFORMED (the memory is not of so
 * many bytes), LIMIT_EXCEEDED, NO_MEMORY, IO. */
tmsg_status_t tmsg_ipc_open(const tmsg_ipc_name_t *name,
                            tmsg_ipc_view_t **view_p);
void tmsg_ipc_hold(tmsg_ipc_view_t *view);

/* Lets go of a view; the last one to do so has it closed. That is done beside
 * the caller, for the driver may wait for the device. */
void tmsg_ipc_close(tmsg_ipc_view_t *view);

/* For tests: how many memories and views there are. */
typedef struct {
    unsigned memories, kept, views;
} tmsg_ipc_counts_t;
tmsg_ipc_counts_t tmsg_ipc_count(void);

/* Waits until what is freed and closed beside its callers is, for `ms` at most.
 * Returns whether it is. */
bool tmsg_ipc_settle(uint64_t ms);

#endif
