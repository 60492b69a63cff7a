/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/simulated_device.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define KIND (TMSG_STREAM_OTHER + 12)

static fake_stream_t *own[FAKE_DEVICES];

tmsg_device_t accelerator_device(int32_t id)
{
    return (tmsg_device_t){ACCELERATOR_DEVICE, id};
}

tmsg_stream_t accelerator_stream(int32_t id)
{
    return (tmsg_stream_t){
        KIND, (uint64_t)(uintptr_t)fake_stream_new(id, false, false, NULL)};
}

fake_stream_t *accelerator_inside(tmsg_stream_t stream)
{
    return (fake_stream_t *)((void *)(uintptr_t)stream.handle);
}

static int holds(void *arg, tmsg_device_t device)
{
    (void)arg;
    return device.type == ACCELERATOR_DEVICE;
}

static tmsg_status_t check_device(tmsg_device_t device)
{
    char words[64];

    if (device.id >= 0 && device.id < FAKE_DEVICES) {
        return TMSG_OK;
    }
    snprintf(words, sizeof(words), "there is no accelerator %d", device.id);
    return tmsg_domain_fail(TMSG_ERR_NOT_FOUND, words);
}

static fake_stream_t *own_of(int32_t id)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    fake_stream_t *stream;

    pthread_mutex_lock(&lock);
    if (own[id] == NULL) {
        own[id] = fake_stream_new(id, false, true, NULL);
    }
    stream = own[id];
    pthread_mutex_unlock(&lock);
    return stream;
}

/* The stream that is meant; its own where there is none. */
static tmsg_status_t enter(tmsg_device_t device, tmsg_stream_t stream,
                           fake_stream_t **stream_p)
{
    tmsg_status_t status = check_device(device);

    if (status != TMSG_OK) {
        return status;
    }
    if (stream.kind != TMSG_STREAM_NONE && stream.kind != KIND) {
        return tmsg_domain_fail(TMSG_ERR_INVALID_PARAM,
                                "not an accelerator's stream");
    }
    *stream_p =
        stream.kind == KIND ? accelerator_inside(stream) : own_of(device.id);
    return TMSG_OK;
}

static tmsg_status_t leave(tmsg_stream_t stream, fake_stream_t *inside)
{
    if (stream.kind == TMSG_STREAM_NONE) {
        fake_synchronize(inside);
    }
    return fake_fault() == NULL ? TMSG_OK
                                : tmsg_domain_fail(TMSG_ERR_IO, fake_fault());
}

static tmsg_status_t classify(void *arg, const void *data,
                              tmsg_memory_t *memory_p)
{
    fake_block_t block;

    (void)arg;
    if (!fake_find((uintptr_t)data, &block) || block.device < 0) {
        return TMSG_ERR_NOT_FOUND;
    }
    *memory_p =
        (tmsg_memory_t){accelerator_device(block.device), TMSG_MEMORY_DEVICE, 0,
                        (void *)(uintptr_t)block.base, block.bytes};
    return TMSG_OK;
}

static tmsg_status_t alloc(void *arg, tmsg_device_t device, uint64_t bytes,
                           uint64_t alignment, tmsg_stream_t stream,
                           void **data_p)
{
    fake_stream_t *inside;
    tmsg_status_t status = enter(device, stream, &inside);
    uintptr_t base;

    (void)arg;
    if (status != TMSG_OK) {
        return status;
    }
    base = fake_alloc(device.id, bytes, alignment, FAKE_PLAIN, NULL, inside);
    if (base == 0) {
        return tmsg_domain_fail(TMSG_ERR_NO_MEMORY, "the accelerator is full");
    }
    status = leave(stream, inside);
    if (status == TMSG_OK) {
        *data_p = (void *)(uintptr_t)base;
    }
    return status;
}

static void give_back(void *arg, tmsg_device_t device, void *data,
                      uint64_t bytes, tmsg_stream_t stream)
{
    fake_block_t block;
    fake_stream_t *inside;

    (void)arg;
    if (!fake_find((uintptr_t)data, &block) || block.bytes != bytes ||
        enter(device, stream, &inside) != TMSG_OK ||
        !fake_free((uintptr_t)data, inside)) {
        fake_fault_set("freed what was not given so");
        return;
    }
    leave(stream, inside);
}

static tmsg_status_t copy(tmsg_device_t device, uintptr_t to, uintptr_t from,
                          uint64_t bytes, tmsg_stream_t stream)
{
    fake_stream_t *inside;
    tmsg_status_t status = enter(device, stream, &inside);

    if (status != TMSG_OK) {
        return status;
    }
    fake_copy(inside, to, from, bytes);
    return leave(stream, inside);
}

static tmsg_status_t copy_in(void *arg, tmsg_device_t device, void *to,
                             const void *host, uint64_t bytes,
                             tmsg_stream_t stream)
{
    (void)arg;
    return copy(device, (uintptr_t)to, (uintptr_t)host, bytes, stream);
}

static tmsg_status_t copy_out(void *arg, tmsg_device_t device, void *host,
                              const void *from, uint64_t bytes,
                              tmsg_stream_t stream)
{
    (void)arg;
    return copy(device, (uintptr_t)host, (uintptr_t)from, bytes, stream);
}

static tmsg_status_t own_stream(void *arg, tmsg_device_t device,
                                tmsg_stream_t *stream_p)
{
    tmsg_status_t status = check_device(device);

    (void)arg;
    if (status == TMSG_OK) {
        *stream_p =
            (tmsg_stream_t){KIND, (uint64_t)(uintptr_t)own_of(device.id)};
    }
    return status;
}

/* What is of a stream needs one. */
static tmsg_status_t enter_given(tmsg_device_t device, tmsg_stream_t stream,
                                 fake_stream_t **stream_p)
{
    if (stream.kind == TMSG_STREAM_NONE) {
        return tmsg_domain_fail(TMSG_ERR_INVALID_PARAM,
                                "an event needs a stream");
    }
    return enter(device, stream, stream_p);
}

static tmsg_status_t event_record(void *arg, tmsg_device_t device,
                                  tmsg_stream_t stream, void **event_p)
{
    fake_stream_t *inside = NULL;
    tmsg_status_t status = enter_given(device, stream, &inside);
    fake_event_t *event;

    (void)arg;
    if (status == TMSG_OK) {
        event = fake_event_new(device.id, NULL);
        fake_event_record(event, inside);
        *event_p = event;
    }
    return status;
}

static tmsg_status_t event_query(void *arg, void *event)
{
    (void)arg;
    if (fake_event_freed(event)) {
        fake_fault_set("an event was asked that is freed");
    }
    if (!fake_event_step(event)) {
        return TMSG_IN_PROGRESS;
    }
    return leave((tmsg_stream_t){KIND, 0}, NULL);
}

static tmsg_status_t event_wait(void *arg, tmsg_device_t device, void *event,
                                tmsg_stream_t stream)
{
    fake_stream_t *inside = NULL;
    tmsg_status_t status = enter_given(device, stream, &inside);

    (void)arg;
    if (status == TMSG_OK) {
        fake_event_wait(event, inside);
        status = leave(stream, inside);
    }
    return status;
}

static void event_free(void *arg, void *event)
{
    (void)arg;
    if (fake_event_freed(event)) {
        fake_fault_set("an event was freed twice");
    }
    fake_event_free(event);
}

static tmsg_status_t identify(void *arg, tmsg_device_t device,
                              tmsg_device_identity_t *identity_p)
{
    tmsg_device_identity_t identity = {.name = "Accelerator"};
    tmsg_status_t status = check_device(device);

    (void)arg;
    if (status == TMSG_OK) {
        snprintf(identity.uuid, sizeof(identity.uuid), "ACC-%d", device.id);
        *identity_p = identity;
    }
    return status;
}

const tmsg_domain_t accelerator = {
    .table_bytes = sizeof(accelerator),
    .name = "accelerator",
    .holds = holds,
    .classify = classify,
    .alloc = alloc,
    .free = give_back,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .copy_within = copy_in,
    .stream = own_stream,
    .event_record = event_record,
    .event_query = event_query,
    .event_wait = event_wait,
    .event_free = event_free,
    .identify = identify,
};
