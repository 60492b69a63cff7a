/* SPDX-License-Identifier: BSD-3-Clause */
/* trace: writes what happens to each of some messages as a trace that
 * chrome://tracing and ui.perfetto.dev show: trace > trace.json */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <tensormsg/tensormsg.h>

enum { MESSAGES = 20 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void check(tmsg_status_t status)
{
    if (status != TMSG_OK) {
        fprintf(stderr, "trace: %s\n", tmsg_error_message());
        exit(1);
    }
}

/* Each message is a span of two sides: "b" begins one, "e" ends it, "n" marks a
 * step between. Both sides know it by its message id. */
static void write_step(void *arg, const tmsg_trace_event_t *event)
{
    static const struct {
        char phase;
        const char *name;
    } steps[] = {
        [TMSG_TRACE_SEND_QUEUED] = {'b', "send"},
        [TMSG_TRACE_SEND_POSTED] = {'n', "posted"},
        [TMSG_TRACE_SEND_DONE] = {'n', "done"},
        [TMSG_TRACE_SEND_ACKED] = {'e', "send"},
        [TMSG_TRACE_SEND_FAILED] = {'e', "send"},
        [TMSG_TRACE_RECV_ARRIVED] = {'b', "receive"},
        [TMSG_TRACE_RECV_FETCHED] = {'n', "fetched"},
        [TMSG_TRACE_RECV_DELIVERED] = {'n', "delivered"},
        [TMSG_TRACE_RECV_TAKEN] = {'e', "receive"},
        [TMSG_TRACE_RECV_REFUSED] = {'e', "receive"},
    };

    if (event->step >= sizeof(steps) / sizeof(steps[0]) ||
        steps[event->step].name == NULL) {
        return; /* a newer library's */
    }
    pthread_mutex_lock(&lock);
    printf(",\n{\"cat\": \"%s\", \"name\": \"%s\", \"ph\": \"%c\", "
           "\"id\": %u, \"pid\": %u, \"tid\": 0, \"ts\": %.3f, "
           "\"args\": {\"bytes\": %llu, \"sequence\": %u, \"status\": %d}}",
           (const char *)arg, steps[event->step].name, steps[event->step].phase,
           event->message_id, event->step >= TMSG_TRACE_RECV_ARRIVED,
           (double)event->time_ns / 1e3, (unsigned long long)event->bytes,
           event->sequence, event->status);
    pthread_mutex_unlock(&lock);
}

static tmsg_worker_t *make_worker(tmsg_context_t **context_p, const char *name)
{
    const tmsg_context_params_t traced = {
        .field_mask = TMSG_CONTEXT_PARAM_ON_TRACE,
        .on_trace = write_step,
        .on_trace_arg = (void *)(uintptr_t)name,
    };
    const tmsg_worker_params_t params = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
                                         .flags = TMSG_WORKER_THREAD};
    tmsg_worker_t *worker;

    check(tmsg_context_create(&traced, context_p));
    check(tmsg_worker_create(*context_p, &params, &worker));
    return worker;
}

static void send_one(tmsg_worker_t *receiver, tmsg_endpoint_t *to, float *data,
                     int64_t size)
{
    const tmsg_tensor_t tensor = {
        .data = data,
        .device = {.type = TMSG_DEVICE_CPU},
        .dtype = {.code = TMSG_DTYPE_FLOAT, .bits = 32, .lanes = 1},
        .ndim = 1,
        .shape = &size,
    };
    const tmsg_send_params_t acked = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                      .flags = TMSG_SEND_ACKED};
    tmsg_request_t *request;
    tmsg_message_t *message;
    tmsg_map_t *map;

    check(tmsg_map_create(&map));
    check(tmsg_map_add(map, "data", &tensor, NULL));
    check(tmsg_endpoint_send(to, map, &acked, &request));
    check(tmsg_worker_recv(receiver, 10000, &message));
    check(tmsg_request_wait(request, 10000));
    tmsg_message_destroy(message);
    tmsg_request_destroy(request);
    tmsg_map_destroy(map);
}

int main(void)
{
    static float data[1 << 20];
    tmsg_context_t *contexts[2];
    tmsg_worker_t *sender = make_worker(&contexts[0], "sender");
    tmsg_worker_t *receiver = make_worker(&contexts[1], "receiver");
    tmsg_listener_t *listener;
    tmsg_endpoint_t *to;

    check(tmsg_listener_create(receiver, "tcp://:0", NULL, &listener));
    check(
        tmsg_endpoint_connect(sender, tmsg_listener_url(listener), NULL, &to));
    printf("[{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": 0, "
           "\"args\": {\"name\": \"tensormsg\"}}");
    for (int i = 0; i < MESSAGES; i++) {
        send_one(receiver, to, data, 1 << i);
    }
    puts("]");
    tmsg_worker_destroy(sender);
    tmsg_worker_destroy(receiver);
    tmsg_context_destroy(contexts[0]);
    tmsg_context_destroy(contexts[1]);
    return 0;
}
