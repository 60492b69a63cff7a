/* SPDX-License-Identifier: BSD-3-Clause */
#include "memory/device_ipc.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/bytes.h"
#include "core/error.h"
#include "core/list.h"
#include "memory/aside.h"
#include "memory/cuda.h"
#include "memory/domain.h"

#define PROCESS_BYTES 16
#define HOLDERS 16
#define GROUP_BYTES 256
/* CUDA allocates so many bytes at a time, and another process that opens memory
 * sees all of them. */
#define UNIT_BYTES (UINT64_C(2) << 20)

/* A process that may have the memory open. */
typedef struct {
    pid_t pid;
    int process;   /* pidfd; -1: the kernel gives none */
    unsigned uses; /* 0: the place is free */
    unsigned left; /* uses whose end nobody will tell of */
} holder_t;

struct tmsg_ipc_memory {
    tmsg_node_t node;
    tmsg_aside_job_t job; /* frees it */
    const tmsg_domain_t *domain;
    tmsg_device_t device;
    void *data;
    uint32_t epoch; /* of the device; see tmsg_cuda_epoch() */
    tmsg_ipc_name_t name;
    unsigned refs; /* of this process; 0: it is kept for its holders */
    bool own;      /* it is the application's */
    atomic_bool given_up;
    holder_t holders[HOLDERS];
    char group[GROUP_BYTES];
};

typedef struct {
    tmsg_ipc_view_t view;
    tmsg_node_t node;
    tmsg_aside_job_t job; /* closes it */
    tmsg_ipc_name_t name;
    unsigned refs;
    tmsg_ipc_memory_t *memory; /* of this process; NULL: of another */
} view_t;

/* The driver frees and closes memory when all that its device does is done, and
 * a kernel of the application may wait for the caller. */
static tmsg_aside_t aside;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tmsg_list_t memories, views;
static uint8_t process_id[PROCESS_BYTES];
static uint64_t numbers;  /* 0: process_id is not known */
static atomic_uint owned; /* memories of the application */

static tmsg_ipc_memory_t *memory_of(tmsg_node_t *node)
{
    return TMSG_CONTAINER_OF(node, tmsg_ipc_memory_t, node);
}

static view_t *view_of(tmsg_node_t *node)
{
    return TMSG_CONTAINER_OF(node, view_t, node);
}

/* Returns whether a process has ended. */
static bool has_ended(const holder_t *holder)
{
    struct pollfd fd = {.fd = holder->process, .events = POLLIN};

    return holder->process >= 0 ? poll(&fd, 1, 0) == 1
                                : kill(holder->pid, 0) != 0 && errno == ESRCH;
}

static void drop_holder(holder_t *holder)
{
    if (holder->process >= 0) {
        close(holder->process);
    }
    *holder = (holder_t){.uses = 0};
}

static bool is_held(tmsg_ipc_memory_t *memory)
{
    bool held = memory->refs > 0;

    for (unsigned i = 0; i < HOLDERS; i++) {
        if (memory->holders[i].uses > 0 && has_ended(&memory->holders[i])) {
            drop_holder(&memory->holders[i]);
        }
        held |= memory->holders[i].uses > 0;
    }
    return held;
}

/* Takes the memories out that nobody holds any more. They are freed without the
 * lock, by free_list(). */
static tmsg_list_t take_unheld(void)
{
    tmsg_list_t unheld = {0};
    tmsg_node_t *node = memories.head;

    while (node != NULL) {
        tmsg_ipc_memory_t *memory = memory_of(node);

        node = node->next;
        if (!is_held(memory)) {
            tmsg_list_remove(&memories, &memory->node);
            tmsg_list_push(&unheld, &memory->node);
        }
    }
    return unheld;
}

bool tmsg_ipc_stands(const tmsg_ipc_memory_t *memory)
{
    return memory->epoch == tmsg_cuda_epoch(memory->device);
}

bool tmsg_ipc_settle(uint64_t ms) { return tmsg_aside_wait(&aside, ms); }

static void free_memory(tmsg_aside_job_t *job)
{
    tmsg_ipc_memory_t *memory = TMSG_CONTAINER_OF(job, tmsg_ipc_memory_t, job);

    if (tmsg_ipc_stands(memory)) {
        tmsg_cuda_ipc_free(memory->device, memory->data);
    }
    free(memory);
}

static void free_list(tmsg_list_t *unheld)
{
    tmsg_node_t *node;

    while ((node = tmsg_list_pop(unheld)) != NULL) {
        tmsg_ipc_memory_t *memory = memory_of(node);

        memory->job.run = free_memory;
        tmsg_aside(&aside, &memory->job);
    }
}

static tmsg_status_t write_id(uint8_t *id)
{
    if (numbers == 0 &&
        getrandom(process_id, PROCESS_BYTES, 0) != (ssize_t)PROCESS_BYTES) {
        return tmsg_error_set(TMSG_ERR_IO, "getrandom: %s", strerror(errno));
    }
    memcpy(id, process_id, PROCESS_BYTES);
    tmsg_put_le(id + PROCESS_BYTES, ++numbers, 8);
    return TMSG_OK;
}

static tmsg_status_t make_memory(tmsg_ipc_memory_t *memory, uint64_t bytes)
{
    tmsg_device_identity_t identity;
    tmsg_cu_ipc_handle_t handle;
    tmsg_status_t status = tmsg_cuda_identify(NULL, memory->device, &identity);

    if (status == TMSG_OK && identity.uuid[0] == '\0') {
        status =
            tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                           "the CUDA driver does not report the device's UUID");
    }
    if (status == TMSG_OK && bytes > UINT64_MAX - UNIT_BYTES) {
        status = tmsg_error_memory("GPU memory that is shared");
    }
    bytes = (bytes + UNIT_BYTES - 1) / UNIT_BYTES * UNIT_BYTES;
    if (status == TMSG_OK) {
        memory->epoch = tmsg_cuda_epoch(memory->device);
        status =
            tmsg_cuda_ipc_alloc(memory->device, bytes, &handle, &memory->data);
    }
    if (status != TMSG_OK) {
        return status;
    }
    memory->name.bytes = bytes;
    memcpy(memory->name.handle, handle.bytes, TMSG_IPC_HANDLE_BYTES);
    snprintf(memory->name.uuid, sizeof(memory->name.uuid), "%s", identity.uuid);
    return TMSG_OK;
}

/* Lock held: takes a memory that is kept. Returns NULL if none fits. */
static tmsg_ipc_memory_t *take_kept(tmsg_device_t device, uint64_t bytes,
                                    const char *group)
{
    for (tmsg_node_t *node = memories.head; node != NULL; node = node->next) {
        tmsg_ipc_memory_t *memory = memory_of(node);

        if (memory->refs == 0 && !memory->own &&
            memory->device.id == device.id && memory->name.bytes == bytes &&
            strcmp(memory->group, group) == 0 && tmsg_ipc_stands(memory)) {
            memory->refs = 1;
            return memory;
        }
    }
    return NULL;
}

static tmsg_status_t alloc_memory(const tmsg_domain_t *domain,
                                  tmsg_device_t device, uint64_t bytes,
                                  const char *group, bool own,
                                  tmsg_ipc_memory_t **memory_p)
{
    tmsg_ipc_memory_t *memory;
    tmsg_list_t unheld;
    tmsg_status_t status;
    size_t count;

    if (domain != &tmsg_domain_cuda || device.type != TMSG_DEVICE_CUDA) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "memory of '%s', device type %d, is not shared "
                              "with other processes",
                              domain->name, device.type);
    }
    pthread_mutex_lock(&lock);
    memory = own ? NULL : take_kept(device, bytes, group);
    unheld = take_unheld();
    count = memories.count;
    pthread_mutex_unlock(&lock);
    free_list(&unheld);
    if (memory != NULL) {
        *memory_p = memory;
        return TMSG_OK;
    }
    if ((!own && count >= TMSG_IPC_MEMORIES_MOST) ||
        strlen(group) >= GROUP_BYTES) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "this process shares %zu pieces of GPU memory "
                              "already",
                              count);
    }
    memory = calloc(1, sizeof(*memory));
    if (memory == NULL) {
        return tmsg_error_memory("GPU memory that is shared");
    }
    memory->domain = domain;
    memory->device = device;
    memory->refs = 1;
    memory->own = own;
    memcpy(memory->group, group, strlen(group) + 1);
    status = make_memory(memory, bytes);
    if (status == TMSG_OK) {
        pthread_mutex_lock(&lock);
        status = write_id(memory->name.id);
        if (status == TMSG_OK) {
            tmsg_list_push(&memories, &memory->node);
            owned += own;
        }
        pthread_mutex_unlock(&lock);
        if (status != TMSG_OK) {
            tmsg_cuda_ipc_free(device, memory->data);
        }
    }
    if (status != TMSG_OK) {
        free(memory);
        return status;
    }
    *memory_p = memory;
    return TMSG_OK;
}

tmsg_status_t tmsg_ipc_alloc(const tmsg_domain_t *domain, tmsg_device_t device,
                             uint64_t bytes, const char *group,
                             tmsg_ipc_memory_t **memory_p)
{
    return alloc_memory(domain, device, bytes, group, false, memory_p);
}

tmsg_status_t tmsg_ipc_alloc_own(tmsg_device_t device, uint64_t bytes,
                                 void **data_p)
{
    const tmsg_domain_t *domain;
    tmsg_ipc_memory_t *memory;
    tmsg_status_t status = tmsg_domain_find(device, &domain);

    if (status == TMSG_OK) {
        status = alloc_memory(domain, device, bytes, "", true, &memory);
    }
    if (status == TMSG_OK) {
        *data_p = memory->data;
    }
    return status;
}

static void drop_memory(tmsg_ipc_memory_t *memory)
{
    tmsg_list_t unheld;

    pthread_mutex_lock(&lock);
    memory->refs--;
    unheld = take_unheld();
    pthread_mutex_unlock(&lock);
    free_list(&unheld);
}

void tmsg_ipc_free(tmsg_ipc_memory_t *memory)
{
    if (memory != NULL) {
        drop_memory(memory);
    }
}

void tmsg_ipc_take(tmsg_ipc_memory_t *memory)
{
    pthread_mutex_lock(&lock);
    memory->refs++;
    pthread_mutex_unlock(&lock);
}

/* Lock held: returns the application's memory in which these bytes lie. */
static tmsg_ipc_memory_t *find_bytes(const uint8_t *data, uint64_t bytes)
{
    for (tmsg_node_t *node = memories.head; node != NULL; node = node->next) {
        tmsg_ipc_memory_t *memory = memory_of(node);
        const uint8_t *begin = memory->data;

        if (memory->own && !memory->given_up && data >= begin &&
            bytes <= memory->name.bytes &&
            (uint64_t)(data - begin) <= memory->name.bytes - bytes) {
            return memory;
        }
    }
    return NULL;
}

tmsg_ipc_memory_t *tmsg_ipc_find(const void *data, uint64_t bytes)
{
    tmsg_ipc_memory_t *memory;

    if (atomic_load_explicit(&owned, memory_order_relaxed) == 0) {
        return NULL;
    }
    pthread_mutex_lock(&lock);
    memory = find_bytes(data, bytes);
    if (memory != NULL) {
        memory->refs++;
    }
    pthread_mutex_unlock(&lock);
    return memory;
}

bool tmsg_ipc_give_up(const void *data)
{
    tmsg_ipc_memory_t *memory;

    pthread_mutex_lock(&lock);
    memory = find_bytes(data, 1);
    if (memory != NULL && memory->data == data) {
        memory->given_up = true;
        owned--;
    } else {
        memory = NULL;
    }
    pthread_mutex_unlock(&lock);
    if (memory != NULL) {
        drop_memory(memory);
    }
    return memory != NULL;
}

bool tmsg_ipc_is_own(const tmsg_ipc_memory_t *memory) { return memory->own; }

bool tmsg_ipc_is_given_up(const tmsg_ipc_memory_t *memory)
{
    return memory->given_up;
}

uint8_t *tmsg_ipc_data(const tmsg_ipc_memory_t *memory) { return memory->data; }

const tmsg_ipc_name_t *tmsg_ipc_name(const tmsg_ipc_memory_t *memory)
{
    return &memory->name;
}

static holder_t *find_holder(tmsg_ipc_memory_t *memory, pid_t pid)
{
    for (unsigned i = 0; i < HOLDERS; i++) {
        holder_t *holder = &memory->holders[i];

        if (holder->uses > 0 && holder->pid == pid && !has_ended(holder)) {
            return holder;
        }
    }
    return NULL;
}

static holder_t *add_holder(tmsg_ipc_memory_t *memory, pid_t pid)
{
    for (unsigned i = 0; i < HOLDERS; i++) {
        holder_t *holder = &memory->holders[i];

        if (holder->uses > 0 && has_ended(holder)) {
            drop_holder(holder);
        }
        if (holder->uses == 0) {
            *holder = (holder_t){
                .pid = pid, .process = (int)syscall(SYS_pidfd_open, pid, 0)};
            return holder;
        }
    }
    return NULL;
}

tmsg_status_t tmsg_ipc_lend(tmsg_ipc_memory_t *memory, pid_t pid)
{
    tmsg_status_t status = TMSG_OK;
    holder_t *holder;

    pthread_mutex_lock(&lock);
    holder = find_holder(memory, pid);
    if (holder == NULL) {
        holder = add_holder(memory, pid);
    }
    if (holder == NULL) {
        status =
            tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                           "%d processes have this GPU memory open", HOLDERS);
    } else if (holder->uses == 0 && has_ended(holder)) {
        drop_holder(holder);
        status = tmsg_error_set(TMSG_ERR_UNSUPPORTED, "process %d has ended",
                                (int)pid);
    } else {
        holder->uses++;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

void tmsg_ipc_leave_lent(tmsg_ipc_memory_t *memory, pid_t pid)
{
    holder_t *holder;

    pthread_mutex_lock(&lock);
    holder = find_holder(memory, pid);
    if (holder != NULL) {
        holder->left++;
    }
    pthread_mutex_unlock(&lock);
}

bool tmsg_ipc_look(void)
{
    bool left = false;
    tmsg_list_t unheld;

    pthread_mutex_lock(&lock);
    unheld = take_unheld();
    for (tmsg_node_t *node = memories.head; node != NULL; node = node->next) {
        for (unsigned i = 0; i < HOLDERS; i++) {
            left |= memory_of(node)->holders[i].left > 0;
        }
    }
    pthread_mutex_unlock(&lock);
    free_list(&unheld);
    return left;
}

/* Lock held. */
static tmsg_ipc_memory_t *find_own(const uint8_t *id)
{
    for (tmsg_node_t *node = memories.head; node != NULL; node = node->next) {
        tmsg_ipc_memory_t *memory = memory_of(node);

        if (memcmp(memory->name.id, id, TMSG_IPC_ID_BYTES) == 0) {
            return memory;
        }
    }
    return NULL;
}

void tmsg_ipc_returned(const uint8_t *id, pid_t pid)
{
    tmsg_ipc_memory_t *memory;
    holder_t *holder;
    tmsg_list_t unheld;

    pthread_mutex_lock(&lock);
    memory = find_own(id);
    holder = memory == NULL ? NULL : find_holder(memory, pid);
    if (holder != NULL && --holder->uses == 0) {
        drop_holder(holder);
    }
    unheld = take_unheld();
    pthread_mutex_unlock(&lock);
    free_list(&unheld);
}

/* An id tells nothing of who says it, and others can be guessed from one. The
 * handle is known to those who may open the memory. */
static bool is_same(const tmsg_ipc_name_t *one, const tmsg_ipc_name_t *other)
{
    return memcmp(one->id, other->id, TMSG_IPC_ID_BYTES) == 0 &&
           memcmp(one->handle, other->handle, TMSG_IPC_HANDLE_BYTES) == 0 &&
           strcmp(one->uuid, other->uuid) == 0;
}

/* Lock held. */
static view_t *find_view(const tmsg_ipc_name_t *name)
{
    for (tmsg_node_t *node = views.head; node != NULL; node = node->next) {
        view_t *view = view_of(node);

        if (is_same(&view->name, name)) {
            return view;
        }
    }
    return NULL;
}

/* Lock held: CUDA refuses to open memory of the same process. */
static tmsg_status_t open_own(tmsg_ipc_memory_t *memory,
                              const tmsg_ipc_name_t *name, view_t *view)
{
    if (!is_same(&memory->name, name)) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "the GPU memory of that id is this process's, "
                              "and has another handle");
    }
    if (memory->name.bytes != name->bytes) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "the GPU memory has %llu bytes, not %llu",
                              (unsigned long long)memory->name.bytes,
                              (unsigned long long)name->bytes);
    }
    memory->refs++;
    view->memory = memory;
    view->view.device = memory->device;
    view->view.data = memory->data;
    return TMSG_OK;
}

static tmsg_status_t open_other(const tmsg_ipc_name_t *name, view_t *view)
{
    tmsg_cu_ipc_handle_t handle;
    tmsg_status_t status;
    void *data;

    if (!tmsg_cuda_is_loaded()) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "the process does not use CUDA");
    }
    status = tmsg_cuda_find_uuid(name->uuid, &view->view.device);
    memcpy(handle.bytes, name->handle, sizeof(handle.bytes));
    if (status == TMSG_OK) {
        status =
            tmsg_cuda_ipc_open(view->view.device, &handle, name->bytes, &data);
    }
    if (status == TMSG_OK) {
        view->view.data = data;
    }
    return status;
}

/* Lock held. */
static tmsg_status_t make_view(const tmsg_ipc_name_t *name, view_t **view_p)
{
    tmsg_ipc_memory_t *own = find_own(name->id);
    tmsg_status_t status;
    view_t *view;

    if (views.count >= TMSG_IPC_VIEWS_MOST) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "%d pieces of other processes' GPU memory are "
                              "open here",
                              TMSG_IPC_VIEWS_MOST);
    }
    view = calloc(1, sizeof(*view));
    if (view == NULL) {
        return tmsg_error_memory("GPU memory of another process");
    }
    status = own != NULL ? open_own(own, name, view) : open_other(name, view);
    if (status != TMSG_OK) {
        free(view);
        return status;
    }
    view->view.domain = &tmsg_domain_cuda;
    view->view.bytes = name->bytes;
    view->name = *name;
    tmsg_list_push(&views, &view->node);
    *view_p = view;
    return TMSG_OK;
}

tmsg_status_t tmsg_ipc_open(const tmsg_ipc_name_t *name,
                            tmsg_ipc_view_t **view_p)
{
    tmsg_status_t status = TMSG_OK;
    view_t *view;

    pthread_mutex_lock(&lock);
    view = find_view(name);
    if (view == NULL) {
        status = make_view(name, &view);
    } else if (view->view.bytes != name->bytes) {
        status = tmsg_error_set(TMSG_ERR_MALFORMED,
                                "GPU memory that is open here has %llu bytes, "
                                "not %llu",
                                (unsigned long long)view->view.bytes,
                                (unsigned long long)name->bytes);
    }
    if (status == TMSG_OK) {
        view->refs++;
        *view_p = &view->view;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

static view_t *whole_view(tmsg_ipc_view_t *view)
{
    return TMSG_CONTAINER_OF(view, view_t, view);
}

void tmsg_ipc_hold(tmsg_ipc_view_t *view)
{
    pthread_mutex_lock(&lock);
    whole_view(view)->refs++;
    pthread_mutex_unlock(&lock);
}

static void close_view(tmsg_aside_job_t *job)
{
    view_t *view = TMSG_CONTAINER_OF(job, view_t, job);

    tmsg_cuda_ipc_close(view->view.device, (void *)(uintptr_t)view->view.data);
    free(view);
}

void tmsg_ipc_close(tmsg_ipc_view_t *view)
{
    view_t *whole = whole_view(view);
    bool last;

    pthread_mutex_lock(&lock);
    last = --whole->refs == 0;
    if (last) {
        tmsg_list_remove(&views, &whole->node);
    }
    pthread_mutex_unlock(&lock);
    if (last && whole->memory == NULL) {
        whole->job.run = close_view;
        tmsg_aside(&aside, &whole->job);
    } else if (last) {
        drop_memory(whole->memory);
        free(whole);
    }
}

tmsg_ipc_counts_t tmsg_ipc_count(void)
{
    tmsg_ipc_counts_t counts = {0};

    pthread_mutex_lock(&lock);
    counts.memories = (unsigned)memories.count;
    counts.views = (unsigned)views.count;
    for (tmsg_node_t *node = memories.head; node != NULL; node = node->next) {
        counts.kept += memory_of(node)->refs == 0;
    }
    pthread_mutex_unlock(&lock);
    return counts;
}
