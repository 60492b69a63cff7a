/* SPDX-License-Identifier: BSD-3-Clause */
/* What mover.patch, scheme.patch and kind.patch add, at work in one process;
 * extend.py builds it with the patched library. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tensormsg/tensormsg.h>

#include "am/endpoint/echo.h"
#include "am/endpoint/endpoint.h"
#include "am/path/bulk.h"
#include "am/worker/worker.h"

#define BYTES ((size_t)8 << 20)

static unsigned long long moved;

/* "count: 8388632 bytes" is the mover's. */
static void note(void *arg, tmsg_log_level_t level, const char *line)
{
    const char *found = strstr(line, "count: ");

    (void)arg;
    (void)level;
    if (found != NULL) {
        moved = strtoull(found + strlen("count: "), NULL, 10);
    }
}

static void must(bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "not so: %s (%s)\n", what, tmsg_error_message());
        exit(1);
    }
}

static void check(tmsg_status_t status, const char *what)
{
    must(status == TMSG_OK, what);
}

static void turn(tmsg_worker_t *a, tmsg_worker_t *b)
{
    tmsg_worker_progress(a);
    tmsg_worker_progress(b);
}

static void send_large(tmsg_worker_t *a, tmsg_worker_t *b, tmsg_endpoint_t *to)
{
    uint8_t *bytes = malloc(BYTES);
    const int64_t shape[] = {BYTES};
    tmsg_tensor_t tensor = {
        .device = {.type = TMSG_DEVICE_CPU},
        .dtype = {.code = TMSG_DTYPE_UINT, .bits = 8, .lanes = 1},
        .ndim = 1,
        .shape = shape};
    tmsg_map_t *map;
    tmsg_message_t *message = NULL;

    must(bytes != NULL, "memory");
    memset(bytes, 7, BYTES);
    tensor.data = bytes;
    check(tmsg_map_create(&map), "a map");
    check(tmsg_map_add(map, "x", &tensor, NULL), "a tensor");
    check(tmsg_endpoint_send(to, map, NULL, NULL), "a send");
    while (message == NULL) {
        turn(a, b);
        (void)tmsg_worker_recv(b, 0, &message);
    }
    check(tmsg_map_find(tmsg_message_map(message), "x", &tensor), "its tensor");
    must(memcmp(tensor.data, bytes, BYTES) == 0, "its bytes");
    must(strcmp(tmsg_bulk_words(to), "count") == 0, "the mover's word");
    tmsg_message_destroy(message);
    tmsg_map_destroy(map);
    free(bytes);
}

static void ask_echo(tmsg_worker_t *a, tmsg_worker_t *b, tmsg_endpoint_t *to)
{
    tmsg_worker_lock(a);
    tmsg_echo_ask(to, "is anybody there");
    tmsg_worker_unlock(a);
    for (int i = 0; i < 100000 && tmsg_echo_heard()[0] == '\0'; i++) {
        turn(a, b);
    }
    must(strcmp(tmsg_echo_heard(), "is anybody there") == 0, "an echo");
}

static void dial_nobody(tmsg_worker_t *a)
{
    tmsg_endpoint_t *nobody;
    tmsg_listener_t *listener;
    tmsg_request_t *ready;

    check(tmsg_listener_create(a, "null:///x", NULL, &listener), "null://");
    must(strcmp(tmsg_listener_url(listener), "null:///x") == 0, "its URL");
    check(tmsg_endpoint_connect(a, "null:///x", NULL, &nobody), "a dial");
    check(tmsg_endpoint_ready(nobody, &ready), "a request");
    must(tmsg_request_wait(ready, 5000) == TMSG_ERR_UNREACHABLE, "its end");
    must(strstr(tmsg_error_message(), "null:///x: nobody is there") != NULL,
         "its words");
    tmsg_request_destroy(ready);
    tmsg_endpoint_destroy(nobody);
    tmsg_listener_destroy(listener);
}

int main(void)
{
    tmsg_context_t *context;
    tmsg_worker_t *a, *b;
    tmsg_listener_t *listener;
    tmsg_endpoint_t *to;

    tmsg_log_set(TMSG_LOG_INFO, note, NULL);
    check(tmsg_context_create(NULL, &context), "a context");
    check(tmsg_worker_create(context, NULL, &a), "a worker");
    check(tmsg_worker_create(context, NULL, &b), "a worker");
    check(tmsg_listener_create(b, "tcp://127.0.0.1:0", NULL, &listener),
          "a listener");
    check(tmsg_endpoint_connect(a, tmsg_listener_url(listener), NULL, &to),
          "an endpoint");
    send_large(a, b, to);
    ask_echo(a, b, to);
    dial_nobody(a);
    tmsg_worker_destroy(a);
    tmsg_worker_destroy(b);
    tmsg_context_destroy(context);
    must(moved > BYTES, "what the mover counted");
    printf(
        "a mover moved %llu bytes; an echo came back; nobody is at null://\n",
        moved);
}
