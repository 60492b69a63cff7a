/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/staging/copy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am/staging/ipc_block.h"
#include "am/staging/pin.h"
#include "am/ucx/ucx.h"
#include "am/worker/staging.h"
#include "am/worker/worker.h"
#include "core/device.h"
#include "core/error.h"
#include "core/log.h"
#include "memory/domain.h"

/* A thread first sleeps this long before it asks again. Each further sleep is
 * twice as long. */
#define WAIT_LEAST_NS 50000
#define WAIT_MOST_NS 2000000
/* A thread that the driver wakes asks again after this time all the same: after
 * a failure the driver wakes nobody. */
#define WAIT_SIGNALED_NS 100000000

#define BLOCK_ALIGNMENT 256

void tmsg_soon(tmsg_worker_t *worker, tmsg_soon_t *call)
{
    if (call->list != &worker->stage.calls) {
        tmsg_soon_forget(call);
        call->list = &worker->stage.calls;
        tmsg_list_push(call->list, &call->node);
    }
}

void tmsg_soon_forget(tmsg_soon_t *call)
{
    if (call->list != NULL) {
        tmsg_list_remove(call->list, &call->node);
        call->list = NULL;
    }
}

void tmsg_copy_forget(tmsg_worker_t *worker, tmsg_copy_t *copy)
{
    if (!copy->listed) {
        return;
    }
    tmsg_list_remove(&worker->stage.copies, &copy->node);
    copy->listed = false;
    if (copy->event != NULL) {
        copy->domain->event_free(copy->domain->arg, copy->event);
        copy->event = NULL;
    }
}

static tmsg_status_t ask_copy(const tmsg_copy_t *copy)
{
    return copy->event == NULL
               ? TMSG_OK
               : copy->domain->event_query(copy->domain->arg, copy->event);
}

/* Asks for each copy once. copy->over() may take other copies out of the list,
 * or put some in. */
static unsigned ask_copies(tmsg_worker_t *worker)
{
    tmsg_list_t *copies = &worker->stage.copies;
    unsigned count = 0;

    for (size_t i = copies->count; i > 0 && copies->count > 0; i--) {
        tmsg_copy_t *copy = TMSG_CONTAINER_OF(copies->head, tmsg_copy_t, node);
        tmsg_status_t status = ask_copy(copy);

        if (status == TMSG_IN_PROGRESS) {
            tmsg_list_remove(copies, &copy->node);
            tmsg_list_push(copies, &copy->node);
            continue;
        }
        tmsg_copy_forget(worker, copy);
        copy->over(copy, status);
        count++;
    }
    return count;
}

unsigned tmsg_copies_poll(tmsg_worker_t *worker)
{
    tmsg_list_t *calls = &worker->stage.calls;
    unsigned count = ask_copies(worker);

    tmsg_pin_poll(worker);
    for (size_t i = calls->count; i > 0 && calls->count > 0; i--) {
        tmsg_soon_t *call = TMSG_CONTAINER_OF(calls->head, tmsg_soon_t, node);

        tmsg_soon_forget(call);
        call->run(call);
        count++;
    }
    if (count > 0) {
        worker->stage.wait_ns = 0;
    }
    return count;
}

static void wake_for_copies(tmsg_timer_t *timer) { (void)timer; }

/* Has the driver wake a thread that is about to sleep, when a copy is done.
 * Returns whether it does so for all copies. */
static bool have_signaled(tmsg_worker_t *worker)
{
    bool all = true;

    for (tmsg_node_t *node = worker->stage.copies.head; node != NULL;
         node = node->next) {
        tmsg_copy_t *copy = TMSG_CONTAINER_OF(node, tmsg_copy_t, node);

        if (!copy->signaled && copy->event != NULL &&
            copy->domain == &tmsg_domain_cuda) {
            copy->signaled =
                tmsg_cuda_signal(copy->event, worker->loop.event_fd);
        }
        all &= copy->signaled;
    }
    return all;
}

/* Returns whether a copy is done of which the driver may have told already, to
 * nobody: tmsg_loop_hear() came behind it. */
static bool is_any_done(tmsg_worker_t *worker)
{
    for (tmsg_node_t *node = worker->stage.copies.head; node != NULL;
         node = node->next) {
        const tmsg_copy_t *copy = TMSG_CONTAINER_OF(node, tmsg_copy_t, node);

        if (copy->signaled && ask_copy(copy) != TMSG_IN_PROGRESS) {
            return true;
        }
    }
    return false;
}

bool tmsg_copies_arm(tmsg_worker_t *worker)
{
    tmsg_staging_t *stage = &worker->stage;
    uint64_t wait = stage->wait_ns * 2;
    bool signaled;

    if (stage->calls.count > 0 || is_any_done(worker)) {
        return false;
    }
    if (stage->copies.count == 0) {
        tmsg_loop_clear_timer(&worker->loop, &stage->timer);
        return true;
    }
    signaled = have_signaled(worker);
    if (stage->timer.deadline_ns == 0 || stage->patient != signaled) {
        wait = wait < WAIT_LEAST_NS ? WAIT_LEAST_NS : wait;
        stage->wait_ns = wait > WAIT_MOST_NS ? WAIT_MOST_NS : wait;
        stage->patient = signaled;
        stage->timer.expired = wake_for_copies;
        tmsg_loop_set_alarm(&worker->loop, &stage->timer,
                            signaled ? WAIT_SIGNALED_NS : stage->wait_ns);
    }
    return true;
}

static void free_chunk(tmsg_chunks_t *chunks, tmsg_chunk_t *chunk)
{
    chunks->bytes -= chunk->capacity;
    tmsg_chunk_free(chunk);
}

static void empty_chunks(tmsg_chunks_t *chunks)
{
    tmsg_node_t *node;

    while ((node = tmsg_list_pop(&chunks->spare)) != NULL) {
        free_chunk(chunks, TMSG_CONTAINER_OF(node, tmsg_chunk_t, node));
    }
}

void tmsg_copies_close(tmsg_worker_t *worker)
{
    tmsg_loop_clear_timer(&worker->loop, &worker->stage.timer);
    tmsg_loop_clear_timer(&worker->loop, &worker->stage.health);
    tmsg_pin_close(worker);
    empty_chunks(&worker->stage.out);
    empty_chunks(&worker->stage.in);
    empty_chunks(&worker->stage.blocks);
    tmsg_ipc_blocks_close(worker);
}

void tmsg_copy_detour(tmsg_worker_t *worker, tmsg_detour_t reason,
                      const char *words)
{
    if (!(worker->stage.told & 1u << reason)) {
        worker->stage.told |= 1u << reason;
        tmsg_log(TMSG_LOG_WARN,
                 "a slow path: %s (said once; the counters of "
                 "the endpoints go on)",
                 words);
    }
}

static tmsg_status_t make_chunk(tmsg_worker_t *worker, tmsg_chunks_t *chunks,
                                const tmsg_domain_t *domain, uint64_t capacity,
                                tmsg_chunk_t **chunk_p)
{
    tmsg_chunk_t *chunk = calloc(1, sizeof(*chunk));
    void *data = NULL;

    if (chunk == NULL ||
        tmsg_host_alloc(capacity, 4096, worker->context->huge_page_bytes,
                        &data) != TMSG_OK) {
        free(chunk);
        return tmsg_error_memory("a buffer between host and device");
    }
    *chunk =
        (tmsg_chunk_t){.domain = domain, .data = data, .capacity = capacity};
    chunks->bytes += capacity;
    *chunk_p = chunk;
    return TMSG_OK;
}

static tmsg_chunk_t *find_spare(tmsg_chunks_t *chunks,
                                const tmsg_domain_t *domain)
{
    tmsg_node_t *node = chunks->spare.head;

    for (; node != NULL; node = node->next) {
        tmsg_chunk_t *chunk = TMSG_CONTAINER_OF(node, tmsg_chunk_t, node);

        if (chunk->domain == domain) {
            tmsg_list_remove(&chunks->spare, node);
            return chunk;
        }
    }
    return NULL;
}

tmsg_status_t tmsg_chunk_take(tmsg_worker_t *worker, tmsg_chunks_t *chunks,
                              const tmsg_domain_t *domain, uint64_t bytes,
                              tmsg_soon_t *call, tmsg_chunk_t **chunk_p)
{
    uint64_t capacity = bytes < TMSG_CHUNK_BYTES ? TMSG_CHUNK_BYTES : bytes;
    tmsg_chunk_t *chunk;

    tmsg_pin_poll(worker);
    chunk = capacity == TMSG_CHUNK_BYTES ? find_spare(chunks, domain) : NULL;
    if (chunk != NULL) {
        *chunk_p = chunk;
        return TMSG_OK;
    }
    while (chunks->bytes + capacity > TMSG_CHUNKS_BYTES &&
           chunks->spare.count > 0) {
        /* The spare chunks are another domain's, or too small. */
        free_chunk(chunks, TMSG_CONTAINER_OF(tmsg_list_pop(&chunks->spare),
                                             tmsg_chunk_t, node));
    }
    if (chunks->bytes + capacity <= TMSG_CHUNKS_BYTES || call == NULL ||
        chunks->bytes == 0) {
        return make_chunk(worker, chunks, domain, capacity, chunk_p);
    }
    if (call->list == NULL) {
        call->list = &chunks->waiting;
        tmsg_list_push(call->list, &call->node);
    }
    return TMSG_IN_PROGRESS;
}

static tmsg_status_t make_block(tmsg_worker_t *worker,
                                const tmsg_domain_t *domain,
                                tmsg_device_t device, tmsg_chunk_t **chunk_p)
{
    static const tmsg_stream_t none;
    tmsg_chunk_t *chunk = calloc(1, sizeof(*chunk));
    void *data;
    tmsg_status_t status =
        chunk == NULL ? tmsg_error_memory("a block on a device")
                      : domain->alloc(domain->arg, device, TMSG_BLOCK_BYTES,
                                      BLOCK_ALIGNMENT, none, &data);

    if (status != TMSG_OK) {
        free(chunk);
        return status;
    }
    *chunk = (tmsg_chunk_t){.domain = domain,
                            .data = data,
                            .capacity = TMSG_BLOCK_BYTES,
                            .on_device = true,
                            .device = device};
    worker->stage.blocks.bytes += TMSG_BLOCK_BYTES;
    *chunk_p = chunk;
    return TMSG_OK;
}

static tmsg_chunk_t *find_spare_block(tmsg_chunks_t *blocks,
                                      tmsg_device_t device)
{
    for (tmsg_node_t *node = blocks->spare.head; node != NULL;
         node = node->next) {
        tmsg_chunk_t *chunk = TMSG_CONTAINER_OF(node, tmsg_chunk_t, node);

        if (tmsg_device_is(chunk->device, device)) {
            tmsg_list_remove(&blocks->spare, node);
            return chunk;
        }
    }
    return NULL;
}

tmsg_status_t tmsg_block_take(tmsg_worker_t *worker,
                              const tmsg_domain_t *domain, tmsg_device_t device,
                              tmsg_soon_t *call, tmsg_chunk_t **chunk_p)
{
    tmsg_chunks_t *blocks = &worker->stage.blocks;
    tmsg_chunk_t *chunk = find_spare_block(blocks, device);

    if (chunk != NULL) {
        *chunk_p = chunk;
        return TMSG_OK;
    }
    if (blocks->bytes == TMSG_BLOCKS_BYTES && blocks->spare.count > 0) {
        free_chunk(blocks, TMSG_CONTAINER_OF(tmsg_list_pop(&blocks->spare),
                                             tmsg_chunk_t, node));
    }
    if (blocks->bytes < TMSG_BLOCKS_BYTES || call == NULL) {
        return make_block(worker, domain, device, chunk_p);
    }
    if (call->list == NULL) {
        call->list = &blocks->waiting;
        tmsg_list_push(call->list, &call->node);
    }
    return TMSG_IN_PROGRESS;
}

static bool is_worth_keeping(const tmsg_chunks_t *chunks,
                             const tmsg_chunk_t *chunk)
{
    return chunk->on_device ? chunks->bytes <= TMSG_BLOCKS_BYTES
                            : chunk->capacity == TMSG_CHUNK_BYTES &&
                                  chunks->bytes <= TMSG_CHUNKS_BYTES;
}

void tmsg_chunk_give(tmsg_worker_t *worker, tmsg_chunks_t *chunks,
                     tmsg_chunk_t *chunk)
{
    if (chunk->ipc != NULL) {
        tmsg_ipc_slot_give(chunk);
        return;
    }
    chunks = chunk->on_device ? &worker->stage.blocks : chunks;
    if (!is_worth_keeping(chunks, chunk)) {
        free_chunk(chunks, chunk);
    } else if (chunks->waiting.count > 0 ||
               !tmsg_pin_begin(worker, chunks, chunk)) {
        tmsg_list_insert(&chunks->spare, NULL, &chunk->node);
    }
    while (chunks->waiting.count > 0) {
        tmsg_soon(worker,
                  TMSG_CONTAINER_OF(chunks->waiting.head, tmsg_soon_t, node));
    }
}

tmsg_status_t tmsg_copy_stream(const tmsg_domain_t *domain,
                               tmsg_device_t device, tmsg_stream_t *stream_p)
{
    *stream_p = (tmsg_stream_t){0};
    return domain->stream == NULL
               ? TMSG_OK
               : domain->stream(domain->arg, device, stream_p);
}

tmsg_status_t tmsg_copy_watch(tmsg_worker_t *worker, tmsg_copy_t *copy,
                              const tmsg_domain_t *domain, tmsg_device_t device,
                              tmsg_stream_t stream)
{
    tmsg_status_t status = TMSG_OK;

    copy->domain = domain;
    copy->event = NULL;
    copy->signaled = false;
    if (stream.kind != TMSG_STREAM_NONE && domain->event_record == NULL) {
        return tmsg_error_set(
            TMSG_ERR_INVALID_PARAM,
            "memory of '%s' has no streams, but one of kind %d was given",
            domain->name, stream.kind);
    }
    if (stream.kind != TMSG_STREAM_NONE) {
        status =
            domain->event_record(domain->arg, device, stream, &copy->event);
    }
    if (status == TMSG_OK) {
        copy->listed = true;
        tmsg_list_push(&worker->stage.copies, &copy->node);
    }
    return status;
}

/* If the driver gives no event for the copy that it was told to make, a second
 * copy without a stream follows. Both are done when that one is. */
tmsg_status_t tmsg_copy_in(tmsg_worker_t *worker, tmsg_copy_t *copy,
                           const tmsg_domain_t *domain, tmsg_device_t device,
                           void *to, const void *host, uint64_t bytes)
{
    static const tmsg_stream_t none;
    tmsg_stream_t stream;
    tmsg_status_t status = tmsg_copy_stream(domain, device, &stream);

    if (status == TMSG_OK) {
        status = domain->copy_in(domain->arg, device, to, host, bytes, stream);
    }
    if (status == TMSG_OK) {
        status = tmsg_copy_watch(worker, copy, domain, device, stream);
        if (status != TMSG_OK) {
            status =
                domain->copy_in(domain->arg, device, to, host, bytes, none);
            if (status == TMSG_OK) {
                return tmsg_copy_watch(worker, copy, domain, device, none);
            }
        }
    }
    return status;
}

static tmsg_status_t begin_copy_from(const tmsg_ipc_view_t *view,
                                     const tmsg_domain_t *domain,
                                     tmsg_device_t device, void *to,
                                     const void *from, uint64_t bytes,
                                     tmsg_stream_t stream)
{
    if (domain == &tmsg_domain_host) {
        return view->domain->copy_out(view->domain->arg, device, to, from,
                                      bytes, stream);
    }
    return domain->copy_within(domain->arg, device, to, from, bytes, stream);
}

tmsg_status_t tmsg_copy_from(tmsg_worker_t *worker, tmsg_copy_t *copy,
                             const tmsg_ipc_view_t *view, uint64_t offset,
                             const tmsg_domain_t *domain, tmsg_device_t device,
                             void *to, uint64_t bytes)
{
    static const tmsg_stream_t none;
    const tmsg_domain_t *by = view->domain;
    const void *from = view->data + offset;
    tmsg_stream_t stream;
    tmsg_status_t status;

    if (domain != by && domain != &tmsg_domain_host) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "memory of '%s' is not copied to that of '%s'",
                              by->name, domain->name);
    }
    device = domain == by ? device : view->device;
    status = tmsg_copy_stream(by, device, &stream);
    if (status == TMSG_OK) {
        status = begin_copy_from(view, domain, device, to, from, bytes, stream);
    }
    if (status == TMSG_OK) {
        status = tmsg_copy_watch(worker, copy, by, device, stream);
        if (status != TMSG_OK) {
            status =
                begin_copy_from(view, domain, device, to, from, bytes, none);
            if (status == TMSG_OK) {
                return tmsg_copy_watch(worker, copy, by, device, none);
            }
        }
    }
    return status;
}

/* Returns UCX's name for the memory. CUDA memory that moves to whoever touches
 * it is a type of its own. */
static const char *transport_of(const tmsg_domain_t *domain,
                                tmsg_device_t device)
{
    return device.type == TMSG_DEVICE_CUDA_MANAGED &&
                   strcmp(domain->transport, "cuda") == 0
               ? "cuda-managed"
               : domain->transport;
}

bool tmsg_ucx_reaches(const tmsg_ucx_t *ucx, const tmsg_domain_t *domain,
                      tmsg_device_t device, int *memory_type_p)
{
    const char *name =
        domain->transport == NULL ? NULL : transport_of(domain, device);

    for (size_t i = 0; name != NULL && i < TMSG_UCX_MEMORY_TYPES; i++) {
        const tmsg_ucx_memory_type_t *type = &tmsg_ucx_memory_types[i];

        if (strcmp(name, type->name) == 0) {
            *memory_type_p = type->type;
            return ucx != NULL && ucx->memory_types & 1ULL << type->type;
        }
    }
    return false;
}
