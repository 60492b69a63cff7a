/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams and events of the simulated driver, and what is given to streams. */
#include "gpu/sim/inside.h"

#include <stdlib.h>
#include <sys/mman.h>

#define STREAM_MAGIC 0x53747265u
#define EVENT_MAGIC 0x45766e74u
#define NON_BLOCKING 1u /* CU_STREAM_NON_BLOCKING */
#define NO_TIMING 2u    /* CU_EVENT_DISABLE_TIMING */
#define INTERPROCESS 4u /* CU_EVENT_INTERPROCESS */
#define KEPT 1024       /* destroyed events, so that a later use is told */

/* "Stream synchronization behavior": CU_STREAM_LEGACY and CU_STREAM_PER_THREAD
 * are streams of the current context. */
static stream_t *default_stream(context_t *context, bool per_thread)
{
    static _Thread_local stream_t *own[DEVICES];
    stream_t **at = per_thread ? &own[context->device] : &context->legacy;

    if (*at == NULL || (*at)->context != context ||
        (*at)->context_id != context->id) {
        *at = sim_stream_new(context, per_thread, !per_thread);
    }
    return *at;
}

int sim_stream(void *handle, stream_t **stream_p)
{
    stream_t *stream = handle;
    context_t *current = sim_current();

    if (handle <= (void *)2) {
        stream = default_stream(current, handle == (void *)2);
        if (stream == NULL) {
            return OUT_OF_MEMORY;
        }
        stream->handle = handle;
    }
    if (stream->magic != STREAM_MAGIC || stream->dead) {
        return INVALID_HANDLE;
    }
    if (!sim_is_alive(stream->context, stream->context_id)) {
        return CONTEXT_IS_DESTROYED;
    }
    *stream_p = stream;
    return stream->context->sticky;
}

int sim_stream_for_work(void *handle, stream_t **stream_p, bool *node_p)
{
    int result = sim_stream(handle, stream_p);

    *node_p = false;
    if (result != OK) {
        return result;
    }
    if (sim_current() != NULL && (*stream_p)->context != sim_current()) {
        return INVALID_HANDLE;
    }
    if ((*stream_p)->capture != NULL) {
        if ((*stream_p)->capture->invalid) {
            return CAPTURE_INVALIDATED;
        }
        (*stream_p)->capture->nodes++;
        *node_p = true;
        return OK;
    }
    return (*stream_p)->legacy ? sim_check_legacy((*stream_p)->context) : OK;
}

static int create(void **handle, unsigned flags)
{
    stream_t *stream;

    IN_CONTEXT;
    if ((flags & ~NON_BLOCKING) != 0) {
        return INVALID_VALUE;
    }
    stream = sim_stream_new(sim_current(), flags == 0, false);
    *handle = stream;
    return stream == NULL ? OUT_OF_MEMORY : OK;
}

API int cuStreamCreate(void **stream, unsigned flags)
{
    return create(stream, flags);
}

API int cuStreamCreateWithPriority(void **stream, unsigned flags, int priority)
{
    (void)priority;
    return create(stream, flags);
}

/* "The function will return immediately and the resources associated with
 * hStream will be released automatically once the device has completed all
 * work in hStream." */
API int cuStreamDestroy_v2(void *handle)
{
    stream_t *stream = handle;

    ANYWHERE;
    if (handle <= (void *)2 || stream->magic != STREAM_MAGIC || stream->dead) {
        return INVALID_HANDLE;
    }
    stream->dead = true;
    return OK;
}

API int cuStreamGetCtx(void *handle, void **context)
{
    stream_t *stream = handle;

    ANYWHERE;
    if (handle <= (void *)2) {
        *context = sim_current();
        return *context == NULL ? INVALID_CONTEXT : OK;
    }
    if (stream->magic != STREAM_MAGIC || stream->dead) {
        return INVALID_HANDLE;
    }
    if (!sim_is_alive(stream->context, stream->context_id)) {
        return CONTEXT_IS_DESTROYED;
    }
    *context = stream->context;
    return OK;
}

/* A stream that is captured has nothing that could be waited for
 * (cuStreamBeginCapture(): CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED). */
static int prepare_to_ask(void *handle, stream_t **stream_p)
{
    int result = sim_stream(handle, stream_p);

    if (result == OK && (*stream_p)->capture != NULL) {
        sim_invalidate((*stream_p)->capture);
        result = CAPTURE_UNSUPPORTED;
    }
    return result == OK ? sim_unsafe() : result;
}

API int cuStreamSynchronize(void *handle)
{
    stream_t *stream;
    int result;

    IN_CONTEXT;
    result = prepare_to_ask(handle, &stream);
    COUNT(synchronized);
    return result == OK ? sim_wait(stream) : result;
}

API int cuStreamQuery(void *handle)
{
    stream_t *stream;
    int result;

    IN_CONTEXT;
    result = prepare_to_ask(handle, &stream);
    return result != OK ? result : sim_idle(stream) ? OK : NOT_READY;
}

/* A host function of a stream that has a handle. The documents name
 * CUDA_ERROR_INVALID_CONTEXT among the answers, and UCX 1.22 gives one where no
 * context is current (cuda_iface.c, uct_cuda_base_iface_event_fd_arm()): the
 * stream's own context counts then, but with SIM_CUDA_STRICT. */
static int give_function(void *handle, const op_t *op)
{
    stream_t *stream;
    bool node;
    int result;

    if (sim_current() == NULL &&
        (handle <= (void *)2 || getenv("SIM_CUDA_STRICT") != NULL)) {
        return INVALID_CONTEXT;
    }
    COUNT(host_functions);
    result = sim_stream_for_work(handle, &stream, &node);
    if (result == OK) {
        sim_give_work(stream, node, op);
    }
    return result;
}

/* Within the function no CUDA is called; see tell() of engine.c. */
API int cuLaunchHostFunc(void *stream, void (*function)(void *), void *arg)
{
    ANYWHERE;
    return give_function(stream,
                         &(op_t){.work = CALL, .kernel = function, .arg = arg});
}

API int cuStreamAddCallback(void *stream, void (*function)(void *, int, void *),
                            void *arg, unsigned flags)
{
    ANYWHERE;
    if (flags != 0) {
        return INVALID_VALUE;
    }
    return give_function(stream,
                         &(op_t){.work = TELL, .tell = function, .arg = arg});
}

/* Events. */

static int events; /* that were not destroyed */

int sim_events(void) { return events; }

event_t *sim_event_new(unsigned flags)
{
    event_t *event = calloc(1, sizeof(*event));

    if (event != NULL) {
        events++;
        *event = (event_t){.magic = EVENT_MAGIC,
                           .context = sim_current(),
                           .context_id = sim_current()->id,
                           .flags = flags};
    }
    return event;
}

API int cuEventCreate(void **handle, unsigned flags)
{
    static uint32_t next; /* slot of an interprocess event */
    shared_t *shared;
    event_t *event;
    int fd;

    IN_CONTEXT;
    if ((flags & INTERPROCESS) != 0 && (flags & NO_TIMING) == 0) {
        return INVALID_VALUE; /* "CU_EVENT_DISABLE_TIMING must be set" */
    }
    event = sim_event_new(flags);
    if (event == NULL) {
        return OUT_OF_MEMORY;
    }
    if ((flags & INTERPROCESS) != 0) {
        shared = sim_shared(&fd);
        event->shared = &shared->events[next++ % SHARED_EVENTS];
        *event->shared = (shared_event_t){.recorded = 0};
    }
    COUNT(events_created);
    *handle = event;
    return OK;
}

/* OK, or why that event cannot be used. */
int sim_check_event(const event_t *event)
{
    if (event == NULL || event->magic != EVENT_MAGIC || event->dead) {
        return INVALID_HANDLE;
    }
    return sim_is_alive(event->context, event->context_id)
               ? event->context->sticky
               : CONTEXT_IS_DESTROYED;
}

/* "The function will return immediately" even if work is not done. No context
 * need be current, as for cuStreamDestroy(): UCX checks that the context of
 * its own events and streams is the same, and pushes none (cuda_iface.c,
 * uct_cuda_base_event_desc_cleanup()). */
API int cuEventDestroy_v2(void *handle)
{
    static event_t *first, *last;
    static unsigned kept;
    event_t *event = handle;
    int result;

    ANYWHERE;
    result = sim_check_event(event);
    if (result != OK) {
        return result;
    }
    events--;
    event->dead = true;
    event->next = NULL;
    if (last == NULL) {
        first = event;
    } else {
        last->next = event;
    }
    last = event;
    kept++;
    if (kept > KEPT && first->refs == 0) {
        event = first;
        first = first->next;
        kept--;
        event->magic = 0;
        if (event->opened != NULL) {
            munmap(event->opened, sizeof(shared_t));
        }
        free(event);
    }
    return OK;
}

/* "The event and stream must be from the same context." */
API int cuEventRecord(void *handle, void *stream_handle)
{
    event_t *event = handle;
    stream_t *stream;
    bool node;
    int result;

    IN_CONTEXT;
    result = sim_check_event(event);
    if (result == OK) {
        result = sim_stream_for_work(stream_handle, &stream, &node);
    }
    if (result != OK) {
        return result;
    }
    if (event->context != stream->context) {
        return INVALID_HANDLE;
    }
    COUNT(events_recorded);
    event->capture = stream->capture;
    if (node) {
        return OK;
    }
    if (event->shared != NULL) {
        event->recorded = atomic_fetch_add(&event->shared->recorded, 1) + 1;
    } else {
        event->recorded++;
    }
    sim_submit(
        stream,
        &(op_t){.work = RECORD, .event = event, .ticket = event->recorded});
    return OK;
}

/* "If cuEventRecord() has not been called on hEvent, CUDA_SUCCESS is
 * returned." No context need be current: UCX 1.22 asks from the thread that
 * progresses it, and pushes none (cuda_iface.c,
 * uct_cuda_base_progress_event_queue()). */
API int cuEventQuery(void *handle)
{
    event_t *event = handle;
    int result;

    ANYWHERE;
    COUNT(events_queried);
    result = sim_check_event(event);
    if (result == OK && event->capture != NULL) {
        sim_invalidate(event->capture);
        result = CAPTURED_EVENT;
    }
    if (result == OK) {
        result = sim_unsafe();
    }
    if (result != OK) {
        return result;
    }
    return sim_event_done(event, sim_event_recorded(event)) ? OK : NOT_READY;
}

API int cuEventSynchronize(void *handle)
{
    event_t *event = handle;
    uint64_t ticket;
    int result;

    ANYWHERE;
    COUNT(synchronized);
    result = sim_check_event(event);
    if (result == OK && event->capture != NULL) {
        sim_invalidate(event->capture);
        result = CAPTURED_EVENT;
    }
    if (result == OK) {
        result = sim_unsafe();
    }
    ticket = result == OK ? sim_event_recorded(event) : 0;
    while (result == OK && !sim_event_done(event, ticket)) {
        sim_pause();
        result = sim_check_event(event);
    }
    return result;
}

/* "Makes all future work submitted to hStream wait for all work captured in
 * hEvent." The event may be of another context. A stream that waits for an
 * event of a capture is captured, too. */
API int cuStreamWaitEvent(void *handle, void *event_handle, unsigned flags)
{
    event_t *event = event_handle;
    stream_t *stream;
    bool node;
    int result;

    IN_CONTEXT;
    result = flags > 1 ? INVALID_VALUE : sim_check_event(event);
    if (result == OK) {
        result = sim_stream_for_work(handle, &stream, &node);
    }
    if (result != OK || node) {
        return result;
    }
    if (event->capture != NULL) {
        if (stream->legacy) {
            return CAPTURE_IMPLICIT;
        }
        stream->capture = event->capture;
        return OK;
    }
    sim_submit(stream, &(op_t){.work = WAIT,
                               .event = event,
                               .ticket = sim_event_recorded(event)});
    return OK;
}
