/* SPDX-License-Identifier: BSD-3-Clause */
#include <pthread.h>
#include <stdlib.h>

#include "core/error.h"
#include "memory/cuda.h"

#define NO_TIMES 2 /* CU_EVENT_DISABLE_TIMING */

#define SPARES_MOST 64

/* Holds an event, and the context that it was created in. */
typedef struct event {
    struct event *next; /* of the spare ones */
    void *event;
    void *context;
    uint64_t id; /* of the context; 0: unknown */
    void *own;   /* the domain's own stream on which the event is, or NULL */
} event_t;

/* Events that are used again, the newest first. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static event_t *spares;
static unsigned spare_count;

static tmsg_cu_address_t address_of(const void *data)
{
    return (tmsg_cu_address_t)(uintptr_t)data;
}

static int holds_cuda(void *arg, tmsg_device_t device)
{
    (void)arg;
    return device.type == TMSG_DEVICE_CUDA ||
           device.type == TMSG_DEVICE_CUDA_MANAGED;
}

/* The driver tells by an address which memory it belongs to. Two of its
 * functions state which side is host memory; they are used if the direction is
 * known. */
typedef enum { IN, OUT, WITHIN } direction_t;

static const char *const copy_calls[] = {"cuMemcpyHtoDAsync",
                                         "cuMemcpyDtoHAsync", "cuMemcpyAsync"};

static int begin_copy(const tmsg_cuda_scope_t *scope, direction_t direction,
                      void *to, const void *from, size_t bytes)
{
    if (bytes == 0) {
        return TMSG_CU_SUCCESS;
    }
    switch (direction) {
    case IN:
        return scope->fn->cuMemcpyHtoDAsync(address_of(to), from, bytes,
                                            scope->stream);
    case OUT:
        return scope->fn->cuMemcpyDtoHAsync(to, address_of(from), bytes,
                                            scope->stream);
    default:
        return scope->fn->cuMemcpyAsync(address_of(to), address_of(from), bytes,
                                        scope->stream);
    }
}

/* A copy that failed may have been done all the same. If the stream is the
 * domain's own, no work of the application delays it. The function then waits,
 * so that the copy is over when the caller learns of the failure. */
static tmsg_status_t copy_by_driver(direction_t direction, tmsg_device_t device,
                                    void *to, const void *from, uint64_t bytes,
                                    tmsg_stream_t stream)
{
    tmsg_cuda_scope_t scope;
    tmsg_status_t status =
        tmsg_cuda_enter(device, stream, TMSG_CUDA_COPIES, &scope);
    int result;

    if (status != TMSG_OK) {
        return status;
    }
    result = begin_copy(&scope, direction, to, from, bytes);
    if (result != TMSG_CU_SUCCESS && tmsg_cuda_is_own(&scope)) {
        scope.own = true;
    }
    return tmsg_cuda_leave(&scope, result, copy_calls[direction]);
}

static tmsg_status_t cuda_copy_in(void *arg, tmsg_device_t device, void *to,
                                  const void *host, uint64_t bytes,
                                  tmsg_stream_t stream)
{
    (void)arg;
    return copy_by_driver(IN, device, to, host, bytes, stream);
}

static tmsg_status_t cuda_copy_out(void *arg, tmsg_device_t device, void *host,
                                   const void *from, uint64_t bytes,
                                   tmsg_stream_t stream)
{
    (void)arg;
    return copy_by_driver(OUT, device, host, from, bytes, stream);
}

static tmsg_status_t cuda_copy_within(void *arg, tmsg_device_t device, void *to,
                                      const void *from, uint64_t bytes,
                                      tmsg_stream_t stream)
{
    (void)arg;
    return copy_by_driver(WITHIN, device, to, from, bytes, stream);
}

#define BATCH_MOST 128

/* Begins copies that the driver is told of at once. The driver does not take
 * the legacy default stream for that; its handle is 1. */
static int begin_batch(const tmsg_cuda_scope_t *scope,
                       const tmsg_domain_copy_t *copies, size_t count)
{
    tmsg_cu_copy_attributes_t attributes = {.source_order =
                                                TMSG_CU_SOURCE_IN_STREAM_ORDER};
    tmsg_cu_address_t to[BATCH_MOST], from[BATCH_MOST];
    size_t bytes[BATCH_MOST], first = 0, failed;

    if (scope->fn->cuMemcpyBatchAsync == NULL || count < 2 ||
        scope->stream == (void *)1) {
        return TMSG_CU_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; i++) {
        to[i] = address_of(copies[i].to);
        from[i] = address_of(copies[i].from);
        bytes[i] = copies[i].bytes;
    }
    return scope->fn->cuMemcpyBatchAsync(to, from, bytes, count, &attributes,
                                         &first, 1, &failed, scope->stream);
}

/* What the driver did not take as a batch is copied one by one, also if it has
 * begun some of it: all of that is in the order of the stream. */
static tmsg_status_t cuda_copy_batch(void *arg, tmsg_device_t device, int out,
                                     const tmsg_domain_copy_t *copies,
                                     uint64_t count, tmsg_stream_t stream)
{
    direction_t direction = out ? OUT : IN;
    int result = TMSG_CU_SUCCESS;
    tmsg_cuda_scope_t scope;
    tmsg_status_t status =
        tmsg_cuda_enter(device, stream, TMSG_CUDA_COPIES, &scope);

    (void)arg;
    if (status != TMSG_OK) {
        return status;
    }
    for (uint64_t i = 0; i < count && result == TMSG_CU_SUCCESS;
         i += BATCH_MOST) {
        size_t left = count - i < BATCH_MOST ? count - i : BATCH_MOST;

        if (begin_batch(&scope, copies + i, left) == TMSG_CU_SUCCESS) {
            continue;
        }
        for (size_t j = 0; j < left && result == TMSG_CU_SUCCESS; j++) {
            const tmsg_domain_copy_t *copy = &copies[i + j];

            result = begin_copy(&scope, direction, copy->to, copy->from,
                                copy->bytes);
        }
    }
    if (result != TMSG_CU_SUCCESS && tmsg_cuda_is_own(&scope)) {
        scope.own = true;
    }
    return tmsg_cuda_leave(&scope, result, copy_calls[direction]);
}

static tmsg_status_t cuda_own_stream(void *arg, tmsg_device_t device,
                                     tmsg_stream_t *stream_p)
{
    static const tmsg_stream_t none;
    tmsg_cuda_scope_t scope;
    tmsg_status_t status =
        tmsg_cuda_enter(device, none, TMSG_CUDA_COPIES, &scope);

    (void)arg;
    if (status != TMSG_OK) {
        return status;
    }
    *stream_p =
        (tmsg_stream_t){TMSG_STREAM_CUDA, (uint64_t)(uintptr_t)scope.stream};
    scope.own = false;
    return tmsg_cuda_leave(&scope, TMSG_CU_SUCCESS, "");
}

static tmsg_status_t check_stream_given(tmsg_stream_t stream)
{
    if (stream.kind != TMSG_STREAM_NONE) {
        return TMSG_OK;
    }
    return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                          "an event needs a stream, and none was given");
}

/* Returns whether an event's context was destroyed, and the event with it. */
static bool is_event_gone(const event_t *event)
{
    uint64_t id = event->id == 0 ? 0
                                 : tmsg_cuda_context_id(&tmsg_cuda_driver()->fn,
                                                        event->context);

    return id != 0 && id != event->id;
}

static event_t *take_spare(void *context, uint64_t id)
{
    event_t *found = NULL;

    pthread_mutex_lock(&lock);
    for (event_t **at = &spares; *at != NULL && found == NULL;) {
        if ((*at)->context == context && (*at)->id == id) {
            found = *at;
            *at = found->next;
            spare_count--;
        } else {
            at = &(*at)->next;
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static bool keep_spare(event_t *event)
{
    bool kept;

    pthread_mutex_lock(&lock);
    kept = spare_count < SPARES_MOST;
    if (kept) {
        event->next = spares;
        spares = event;
        spare_count++;
    }
    pthread_mutex_unlock(&lock);
    return kept;
}

static void destroy_event(event_t *event)
{
    tmsg_cuda_scope_t scope;

    if (!is_event_gone(event) &&
        tmsg_cuda_enter_context(event->context, &scope) == TMSG_OK) {
        tmsg_cuda_leave(&scope, scope.fn->cuEventDestroy(event->event),
                        "cuEventDestroy");
    }
    free(event);
}

void tmsg_cuda_forget_events(void)
{
    event_t *event;

    pthread_mutex_lock(&lock);
    event = spares;
    spares = NULL;
    spare_count = 0;
    pthread_mutex_unlock(&lock);
    while (event != NULL) {
        event_t *next = event->next;

        destroy_event(event);
        event = next;
    }
}

/* Takes a spare event of the scope's context, or makes one. NULL: *result_p is
 * the driver's error, or success if there is no memory. */
static event_t *get_event(const tmsg_cuda_scope_t *scope, int *result_p)
{
    uint64_t id = tmsg_cuda_context_id(scope->fn, scope->context);
    event_t *event = take_spare(scope->context, id);

    *result_p = TMSG_CU_SUCCESS;
    if (event != NULL) {
        return event;
    }
    event = malloc(sizeof(*event));
    if (event == NULL) {
        return NULL;
    }
    *event = (event_t){.context = scope->context, .id = id};
    *result_p = scope->fn->cuEventCreate(&event->event, NO_TIMES);
    if (*result_p != TMSG_CU_SUCCESS) {
        free(event);
        return NULL;
    }
    return event;
}

tmsg_status_t tmsg_cuda_event_record(void *arg, tmsg_device_t device,
                                     tmsg_stream_t stream, void **event_p)
{
    const char *call = "cuEventCreate";
    tmsg_cuda_scope_t scope;
    tmsg_status_t status = check_stream_given(stream);
    event_t *event;
    int result;

    (void)arg;
    if (status == TMSG_OK) {
        status = tmsg_cuda_enter(device, stream, TMSG_CUDA_COPIES, &scope);
    }
    if (status != TMSG_OK) {
        return status;
    }
    event = get_event(&scope, &result);
    if (event != NULL) {
        event->own = tmsg_cuda_is_own(&scope) ? scope.stream : NULL;
        result = scope.fn->cuEventRecord(event->event, scope.stream);
        call = "cuEventRecord";
        if (result != TMSG_CU_SUCCESS) {
            scope.fn->cuEventDestroy(event->event);
        }
    }
    status = tmsg_cuda_leave(&scope, result, call);
    if (status == TMSG_OK && event == NULL) {
        return tmsg_error_memory("an event");
    }
    if (status != TMSG_OK) {
        free(event);
        return status;
    }
    *event_p = event;
    return TMSG_OK;
}

/* After a failure the caller uses the host memory for something else, so no
 * copy of the domain may be under way there. The function waits for the
 * domain's own stream only; work of the application does not delay it. */
tmsg_status_t tmsg_cuda_event_query(void *arg, void *event)
{
    const event_t *of = event;
    tmsg_cuda_scope_t scope;
    tmsg_status_t status;
    int result;

    (void)arg;
    if (is_event_gone(of)) {
        return tmsg_error_set(TMSG_ERR_IO,
                              "the context of a CUDA stream was destroyed, as "
                              "by cudaDeviceReset(), before its work was done");
    }
    status = tmsg_cuda_enter_context(of->context, &scope);
    if (status != TMSG_OK) {
        return status;
    }
    result = scope.fn->cuEventQuery(of->event);
    if (result == TMSG_CU_NOT_READY) {
        tmsg_cuda_leave(&scope, TMSG_CU_SUCCESS, "");
        return TMSG_IN_PROGRESS;
    }
    if (result != TMSG_CU_SUCCESS && of->own != NULL) {
        tmsg_cuda_wait(scope.fn, of->own);
    }
    return tmsg_cuda_leave(&scope, result, "cuEventQuery");
}

bool tmsg_cuda_signal(const void *event, int event_fd)
{
    const event_t *of = event;
    tmsg_cuda_scope_t scope;
    bool rings;

    if (is_event_gone(of) ||
        tmsg_cuda_enter_context(of->context, &scope) != TMSG_OK) {
        return false;
    }
    rings = tmsg_cuda_ring(&scope, of->id, of->event, event_fd);
    tmsg_cuda_leave(&scope, TMSG_CU_SUCCESS, "");
    return rings;
}

tmsg_status_t tmsg_cuda_event_wait(void *arg, tmsg_device_t device, void *event,
                                   tmsg_stream_t stream)
{
    const event_t *of = event;
    tmsg_cuda_scope_t scope;
    tmsg_status_t status = check_stream_given(stream);

    (void)arg;
    if (status == TMSG_OK) {
        status = tmsg_cuda_enter(device, stream, TMSG_CUDA_COPIES, &scope);
    }
    if (status != TMSG_OK) {
        return status;
    }
    return tmsg_cuda_leave(
        &scope, scope.fn->cuStreamWaitEvent(scope.stream, of->event, 0),
        "cuStreamWaitEvent");
}

void tmsg_cuda_event_free(void *arg, void *event)
{
    (void)arg;
    if (tmsg_cuda_driver()->forked) {
        free(event);
        return;
    }
    if (is_event_gone(event) || !keep_spare(event)) {
        destroy_event(event);
    }
}

const tmsg_domain_t tmsg_domain_cuda = {
    .table_bytes = sizeof(tmsg_domain_t),
    .name = "cuda",
    .transport = "cuda",
    .holds = holds_cuda,
    .classify = tmsg_cuda_classify,
    .alloc = tmsg_cuda_alloc,
    .free = tmsg_cuda_free,
    .copy_in = cuda_copy_in,
    .copy_out = cuda_copy_out,
    .copy_within = cuda_copy_within,
    .stream = cuda_own_stream,
    .event_record = tmsg_cuda_event_record,
    .event_query = tmsg_cuda_event_query,
    .event_wait = tmsg_cuda_event_wait,
    .event_free = tmsg_cuda_event_free,
    .pin = tmsg_cuda_pin,
    .unpin = tmsg_cuda_unpin,
    .identify = tmsg_cuda_identify,
    .use = tmsg_cuda_use,
    .copy_batch = cuda_copy_batch,
};
