/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/recv/map_await.h"

#include <stdio.h>
#include <stdlib.h>

#include "am/staging/copy.h"
#include "core/device.h"
#include "core/error.h"
#include "memory/domain.h"

typedef struct {
    tmsg_copy_t copy;
    tmsg_map_await_t *await;
    tmsg_device_t device;
    tmsg_stream_t stream;
} awaited_t;

struct tmsg_map_await {
    tmsg_worker_t *worker;
    void (*over)(void *arg);
    void *arg;
    size_t left; /* streams that are not done */
    tmsg_status_t status;
    char why[TMSG_ERROR_BYTES];
    size_t count;
    awaited_t of[];
};

static void forget_streams(tmsg_map_await_t *await)
{
    for (size_t i = 0; i < await->count; i++) {
        tmsg_copy_forget(await->worker, &await->of[i].copy);
    }
    await->left = 0;
}

static void map_stream_done(tmsg_copy_t *copy, tmsg_status_t status)
{
    tmsg_map_await_t *await = TMSG_CONTAINER_OF(copy, awaited_t, copy)->await;

    await->left--;
    if (status != TMSG_OK) {
        await->status = status;
        snprintf(await->why, sizeof(await->why), "%s", tmsg_error_message());
        forget_streams(await);
    }
    if (await->left == 0 && await->over != NULL) {
        await->over(await->arg);
    }
}

static bool is_awaited(const tmsg_map_await_t *await,
                       const tmsg_map_entry_t *entry)
{
    for (size_t i = 0; i < await->count; i++) {
        const awaited_t *of = &await->of[i];

        if (of->stream.kind == entry->stream.kind &&
            of->stream.handle == entry->stream.handle &&
            tmsg_device_is(of->device, entry->tensor.device)) {
            return true;
        }
    }
    return false;
}

static tmsg_status_t await_one(tmsg_map_await_t *await,
                               const tmsg_map_entry_t *entry)
{
    awaited_t *of = &await->of[await->count];
    tmsg_status_t status;

    if (is_awaited(await, entry)) {
        return TMSG_OK;
    }
    *of = (awaited_t){.copy = {.over = map_stream_done},
                      .await = await,
                      .device = entry->tensor.device,
                      .stream = entry->stream};
    status =
        tmsg_copy_watch(await->worker, &of->copy, tmsg_domain_of(of->device),
                        of->device, of->stream);
    if (status != TMSG_OK) {
        return tmsg_error_set(
            status, "tensor '%s': %s",
            tmsg_error_name(entry->name, entry->name_bytes).text,
            tmsg_error_message());
    }
    await->count++;
    await->left++;
    return TMSG_OK;
}

static bool has_map_stream(const tmsg_map_entry_t *entry,
                           const tmsg_map_t *theirs)
{
    return entry->stream.kind != TMSG_STREAM_NONE && entry->bytes > 0 &&
           !tmsg_map_entry_is_on_host(entry) &&
           tmsg_map_position(theirs, entry->name, entry->name_bytes) <
               tmsg_map_size(theirs);
}

tmsg_status_t tmsg_map_await_begin(tmsg_worker_t *worker,
                                   const tmsg_map_t *theirs,
                                   const tmsg_map_t *ours,
                                   void (*over)(void *arg), void *arg,
                                   tmsg_map_await_t **await_p)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(ours);
    tmsg_map_await_t *await;
    tmsg_status_t status = TMSG_OK;
    size_t count = 0;

    for (size_t i = 0; i < tmsg_map_size(ours); i++) {
        count += has_map_stream(&entries[i], theirs);
    }
    *await_p = NULL;
    if (count == 0) {
        return TMSG_OK;
    }
    await = calloc(1, sizeof(*await) + count * sizeof(*await->of));
    if (await == NULL) {
        return tmsg_error_memory("a wait for streams");
    }
    await->worker = worker;
    await->over = over;
    await->arg = arg;
    for (size_t i = 0; i < tmsg_map_size(ours) && status == TMSG_OK; i++) {
        if (has_map_stream(&entries[i], theirs)) {
            status = await_one(await, &entries[i]);
        }
    }
    if (status != TMSG_OK) {
        (void)tmsg_map_await_end(await);
        return status;
    }
    *await_p = await;
    return TMSG_OK;
}

bool tmsg_map_await_is_over(const tmsg_map_await_t *await)
{
    return await == NULL || await->left == 0;
}

tmsg_status_t tmsg_map_await_end(tmsg_map_await_t *await)
{
    tmsg_status_t status = TMSG_OK;

    if (await != NULL) {
        status = await->status;
        if (status != TMSG_OK) {
            tmsg_error_set(status, "%s", await->why);
        }
        forget_streams(await);
        free(await);
    }
    return status;
}
