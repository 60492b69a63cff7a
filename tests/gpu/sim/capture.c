/* SPDX-License-Identifier: BSD-3-Clause */
/* Stream capture: what is given to a stream becomes a graph, and is not done.
 * See cuStreamBeginCapture() and cuThreadExchangeStreamCaptureMode(). */
#include "gpu/sim/inside.h"

#include <stdlib.h>

enum { GLOBAL = 0, THREAD_LOCAL = 1, RELAXED = 2 };

static capture_t *captures; /* all that were begun, the newest first */
static _Thread_local int mode;

void sim_invalidate(capture_t *capture) { capture->invalid = true; }

/* "GLOBAL: if the local thread has an ongoing capture sequence that was not
 * initiated with RELAXED, or if any other thread has a concurrent capture
 * sequence initiated with GLOBAL, this thread is prohibited from potentially
 * unsafe API calls. THREAD_LOCAL: concurrent capture sequences in other threads
 * are ignored." Such a call also invalidates the capture: PyTorch saw its
 * captures end so by cuEventQuery() of another thread. */
static bool conflicts(const capture_t *capture)
{
    bool own = pthread_equal(capture->thread, pthread_self()) != 0;

    if (capture->ended || mode == RELAXED) {
        return false;
    }
    return own ? capture->mode != RELAXED
               : mode == GLOBAL && capture->mode == GLOBAL;
}

int sim_unsafe(void)
{
    int result = OK;

    for (capture_t *each = captures; each != NULL; each = each->next) {
        if (conflicts(each)) {
            sim_invalidate(each);
            result = CAPTURE_UNSUPPORTED;
        }
    }
    return result;
}

/* The legacy stream would wait for a blocking stream that is captured:
 * CUDA_ERROR_STREAM_CAPTURE_IMPLICIT. */
int sim_check_legacy(context_t *context)
{
    for (capture_t *each = captures; each != NULL; each = each->next) {
        if (!each->ended && each->origin->blocking &&
            each->origin->context == context) {
            sim_invalidate(each);
            return CAPTURE_IMPLICIT;
        }
    }
    return OK;
}

/* A graph, executable or not: its nodes, in an order in which they may be
 * executed. */
typedef struct {
    op_t *first, *last;
} graph_t;

static void append(op_t **first, op_t **last, const op_t *from)
{
    op_t *op = malloc(sizeof(*op));

    if (op == NULL) {
        abort();
    }
    *op = *from;
    op->next = NULL;
    *(*last == NULL ? first : &(*last)->next) = op;
    *last = op;
}

void sim_give_work(stream_t *stream, bool node, const op_t *op)
{
    if (node) {
        append(&stream->capture->first, &stream->capture->last, op);
    } else {
        sim_submit(stream, op);
    }
}

static graph_t *copy_graph(const op_t *first)
{
    graph_t *graph = calloc(1, sizeof(*graph));

    for (const op_t *op = first; graph != NULL && op != NULL; op = op->next) {
        append(&graph->first, &graph->last, op);
    }
    return graph;
}

static int free_graph(graph_t *graph)
{
    ANYWHERE;
    if (graph == NULL) {
        return INVALID_VALUE;
    }
    while (graph->first != NULL) {
        op_t *next = graph->first->next;

        free(graph->first);
        graph->first = next;
    }
    free(graph);
    return OK;
}

API int cuThreadExchangeStreamCaptureMode(int *wanted)
{
    int before = mode;

    ANYWHERE;
    if (*wanted < GLOBAL || *wanted > RELAXED) {
        return INVALID_VALUE;
    }
    mode = *wanted;
    *wanted = before;
    return OK;
}

/* "Capture may not be initiated if hStream is CU_STREAM_LEGACY." */
API int cuStreamBeginCapture_v2(void *handle, int wanted)
{
    capture_t *capture;
    stream_t *stream;
    int result;

    IN_CONTEXT;
    result = sim_stream(handle, &stream);
    if (result != OK) {
        return result;
    }
    if (stream->legacy) {
        return CAPTURE_UNSUPPORTED;
    }
    if (stream->capture != NULL || wanted < GLOBAL || wanted > RELAXED) {
        return INVALID_VALUE;
    }
    capture = calloc(1, sizeof(*capture));
    if (capture == NULL) {
        return OUT_OF_MEMORY;
    }
    *capture = (capture_t){.origin = stream,
                           .mode = wanted,
                           .thread = pthread_self(),
                           .next = captures};
    captures = capture;
    stream->capture = capture;
    return OK;
}

/* "If the mode is not RELAXED, cuStreamEndCapture() must be called from the
 * same thread"; an invalidated capture gives no graph. */
API int cuStreamEndCapture(void *handle, void **graph)
{
    capture_t *capture;
    stream_t *stream;
    int result;

    IN_CONTEXT;
    result = sim_stream(handle, &stream);
    if (result != OK) {
        return result;
    }
    capture = stream->capture;
    *graph = NULL;
    if (capture == NULL) {
        return INVALID_VALUE;
    }
    if (capture->origin != stream) {
        sim_invalidate(capture);
        return CAPTURE_UNMATCHED;
    }
    if (capture->mode != RELAXED &&
        !pthread_equal(capture->thread, pthread_self())) {
        return CAPTURE_WRONG_THREAD;
    }
    capture->ended = true;
    sim_end_capture(capture);
    if (capture->invalid) {
        return CAPTURE_INVALIDATED;
    }
    *graph = copy_graph(capture->first);
    return *graph == NULL ? OUT_OF_MEMORY : OK;
}

API int cuGraphDestroy(void *graph) { return free_graph(graph); }

/* "Instantiates graph as an executable graph", which is one of its own. */
API int cuGraphInstantiateWithFlags(void **exec, void *graph, uint64_t flags)
{
    ANYWHERE;
    if (graph == NULL || flags != 0) {
        return INVALID_VALUE;
    }
    *exec = copy_graph(((const graph_t *)graph)->first);
    return *exec == NULL ? OUT_OF_MEMORY : OK;
}

API int cuGraphExecDestroy(void *exec) { return free_graph(exec); }

/* "Executes hGraphExec in hStream." What was captured by several streams is
 * done in the order of its capture. */
API int cuGraphLaunch(void *exec, void *handle)
{
    stream_t *stream;
    bool node;
    int result;

    IN_CONTEXT;
    if (exec == NULL) {
        return INVALID_VALUE;
    }
    COUNT(launches);
    result = sim_stream_for_work(handle, &stream, &node);
    for (const op_t *op = ((const graph_t *)exec)->first;
         result == OK && op != NULL; op = op->next) {
        sim_give_work(stream, node, op);
    }
    return result;
}

/* "If called on the legacy stream while a blocking stream of the context is
 * captured, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT is returned"; it invalidates
 * nothing. */
API int cuStreamIsCapturing(void *handle, int *status)
{
    enum { NONE, ACTIVE, INVALIDATED };
    stream_t *stream;
    int result;

    IN_CONTEXT;
    result = sim_stream(handle, &stream);
    if (result != OK) {
        return result;
    }
    for (capture_t *each = captures; stream->legacy && each != NULL;
         each = each->next) {
        if (!each->ended && each->origin->blocking &&
            each->origin->context == stream->context) {
            return CAPTURE_IMPLICIT;
        }
    }
    *status = stream->capture == NULL    ? NONE
              : stream->capture->invalid ? INVALIDATED
                                         : ACTIVE;
    return OK;
}
