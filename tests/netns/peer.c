/* SPDX-License-Identifier: BSD-3-Clause */
/* One end of a connection between two hosts, told by its words what to do, and
 * saying on standard output what happens:
 *
 *   peer recv URL TIMEOUT_MS COMPUTE_MS
 *   peer serve URL TIMEOUT_MS COMPUTE_MS
 *   peer send URL TIMEOUT_MS COMPUTE_MS BYTES COUNT
 *   peer stream URL TIMEOUT_MS COMPUTE_MS BYTES COUNT
 *
 * The bytes of a message follow from its number, and the receiver checks each,
 * so that one that is lost, doubled or out of order ends it. A stream has
 * AHEAD messages under way, of every size up to BYTES; all are ACKED. Who
 * serves receives from one sender after the other, and says of each, when that
 * has ended and its endpoint is destroyed, what is left that was not there when
 * the first had: "kept DESCRIPTORS THREADS SEGMENTS BYTES".
 * COUNT 0 is for ever; after -COUNT messages the sender waits and does not
 * close. TIMEOUT_MS is how long the peer may be silent; -1 leaves the default.
 * COMPUTE_MS goes by after each message, without a call to the library. The
 * sender's buffer is overwritten whenever it has it back.
 * With TMSG_KEEP_MS in the environment both keep their session for so long
 * while the connection is broken, and the sender ends with how often it came
 * back. TMSG_DEVICES names the devices that UCX may use, TMSG_ADVERTISE is the
 * URL that the receiver says.
 *
 * Each says in the end what is left in it that was not there at first, when its
 * context is closed: "left DESCRIPTORS THREADS SEGMENTS BYTES". */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <tensormsg/tensormsg.h>

#include "support/held_resources.h"
#include "support/must.h"
#include "support/own_code_alloc.h"
#include "support/seeded_maps.h"

enum { BOUND_MS = 120000, AHEAD = 16 };

/* What the first connection of a process makes that stays for the next, at
 * most: the timer of UCX's keepalive, the thread of our context (am/heart.h),
 * a segment that UCX 1.22 takes its messages from, whatever they go by, and
 * records of ours that are used again (memory/spares.h). */
enum { DESCRIPTORS = 1, THREADS = 1, SEGMENTS = 1, BYTES = 16 << 10 };

typedef struct {
    tmsg_context_t *context;
    tmsg_worker_t *worker;
    int compute_ms;
    left_t before;
} side_t;

static void open_side(side_t *side, const char *timeout_ms,
                      const char *compute_ms)
{
    tmsg_context_params_t params = {.field_mask = 0};
    int timeout = atoi(timeout_ms);

    side->before = left_look(watched_alloc_bytes);
    if (timeout >= 0) {
        params.field_mask = TMSG_CONTEXT_PARAM_PEER_TIMEOUT;
        params.peer_timeout_ms = (uint32_t)timeout;
    }
    side->compute_ms = atoi(compute_ms);
    must(tmsg_context_create(&params, &side->context));
    must(tmsg_worker_create(side->context, NULL, &side->worker));
}

static void close_side(side_t *side)
{
    left_t now;
    char text[128];

    tmsg_worker_destroy(side->worker);
    tmsg_context_destroy(side->context);
    now = left_await(&side->before, watched_alloc_bytes, NULL, NULL);
    left_text(&side->before, &now, "left", text, sizeof(text));
    printf("%s\n", text);
}

static void say_end(tmsg_status_t status, const char *error)
{
    printf("end %s %s\n", tmsg_status_name(status), error);
}

/* Until the driver lets go: what the sender overwrote stays so. */
static void await_leave(void)
{
    char byte;

    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
}

static void say_transports(const tmsg_endpoint_t *endpoint)
{
    char *json, *from;

    must(tmsg_endpoint_describe(endpoint, &json));
    from = strstr(json, "\"transports\"");
    must_true(from != NULL);
    printf("%.*s\n", (int)strcspn(from, "\n"), from);
    tmsg_string_free(json);
}

/* 0: no session. */
static int keep_ms(void)
{
    const char *value = getenv("TMSG_KEEP_MS");

    return value == NULL ? 0 : atoi(value);
}

static const char *devices(void) { return getenv("TMSG_DEVICES"); }

static unsigned returns_of(const tmsg_endpoint_t *endpoint)
{
    unsigned count;
    char *json, *from;

    must(tmsg_endpoint_describe(endpoint, &json));
    from = strstr(json, "\"reconnected\"");
    must_true(from != NULL);
    must_eq(sscanf(from, "\"reconnected\": %u", &count), 1);
    tmsg_string_free(json);
    return count;
}

static void accepted(void *arg, tmsg_endpoint_t *endpoint)
{
    *(tmsg_endpoint_t **)arg = endpoint;
}

static void check(uint64_t seed, const tmsg_message_t *message)
{
    tmsg_tensor_t tensor;
    size_t bytes;

    must(tmsg_map_find(tmsg_message_map(message), "data", &tensor));
    bytes = (size_t)tensor.shape[0];
    must_eq(sample_compare(seed, tensor.data, bytes), bytes);
}

/* By URL, with endpoints into *endpoint_p. */
static void listen_at(const side_t *side, const char *url,
                      tmsg_endpoint_t **endpoint_p)
{
    const tmsg_listener_params_t params = {
        .field_mask = TMSG_LISTENER_PARAM_ON_ACCEPT |
                      TMSG_LISTENER_PARAM_ALLOW_UNAUTHENTICATED |
                      TMSG_LISTENER_PARAM_RESUME | TMSG_LISTENER_PARAM_DEVICES |
                      TMSG_LISTENER_PARAM_ADVERTISE,
        .on_accept = accepted,
        .on_accept_arg = endpoint_p,
        .allow_unauthenticated = 1,
        .advertise = getenv("TMSG_ADVERTISE"),
        .devices = devices(),
        .resume_ms = keep_ms()};
    tmsg_listener_t *listener;

    must(tmsg_listener_create(side->worker, url, &params, &listener));
    printf("%s\n", tmsg_listener_url(listener));
}

/* All messages, to the end. */
static void take_all(const side_t *side, tmsg_endpoint_t *endpoint)
{
    tmsg_message_t *message;
    tmsg_status_t status;
    uint64_t count = 0;

    say_transports(endpoint);
    while ((status = tmsg_endpoint_recv(endpoint, BOUND_MS, &message)) ==
           TMSG_OK) {
        check(++count, message);
        tmsg_message_destroy(message);
        printf("message %llu\n", (unsigned long long)count);
        poll(NULL, 0, side->compute_ms);
    }
    say_end(status, tmsg_error_message());
}

static int receive(char **words)
{
    tmsg_endpoint_t *endpoint = NULL;
    side_t side;

    open_side(&side, words[1], words[2]);
    listen_at(&side, words[0], &endpoint);
    while (endpoint == NULL) {
        must(tmsg_worker_wait(side.worker, BOUND_MS));
    }
    take_all(&side, endpoint);
    await_leave();
    close_side(&side);
    return 0;
}

/* Until a sender is there, or the driver lets go. */
static bool await_sender(const side_t *side, tmsg_endpoint_t **endpoint_p)
{
    struct pollfd fds[] = {{STDIN_FILENO, POLLIN, 0},
                           {tmsg_worker_fd(side->worker), POLLIN, 0}};

    while (*endpoint_p == NULL && (fds[0].revents & POLLHUP) == 0) {
        while (tmsg_worker_progress(side->worker) > 0) {
        }
        if (*endpoint_p == NULL && tmsg_worker_arm(side->worker) == TMSG_OK) {
            poll(fds, 2, BOUND_MS);
        }
    }
    return *endpoint_p != NULL;
}

static void drive(void *arg)
{
    const side_t *side = arg;
    tmsg_status_t status = tmsg_worker_wait(side->worker, 10);

    must_true(status == TMSG_OK || status == TMSG_ERR_TIMED_OUT);
}

/* Who serves. */
static side_t server;

static size_t bytes_but_of_the_pool(void)
{
    size_t pool = left_pool_bytes(server.worker);

    return watched_alloc_bytes() - pool;
}

static void serve_one(tmsg_endpoint_t *endpoint, left_t *before, bool is_first)
{
    char text[128];
    left_t now;

    take_all(&server, endpoint);
    tmsg_endpoint_destroy(endpoint);
    now = left_await(before, bytes_but_of_the_pool, drive, &server);
    left_text(before, &now, "kept", text, sizeof(text));
    if (is_first) {
        *before = now;
    }
    printf("%s\n", text);
}

static int serve(char **words)
{
    tmsg_endpoint_t *endpoint = NULL;
    bool is_first = true;
    left_t before;

    open_side(&server, words[1], words[2]);
    listen_at(&server, words[0], &endpoint);
    before = left_look(bytes_but_of_the_pool);
    before.descriptors += DESCRIPTORS;
    before.threads += THREADS;
    before.segments += SEGMENTS;
    before.bytes += BYTES;
    while (await_sender(&server, &endpoint)) {
        tmsg_endpoint_t *served = endpoint;

        endpoint = NULL;
        serve_one(served, &before, is_first);
        is_first = false;
    }
    close_side(&server);
    return 0;
}

static tmsg_status_t start_one(tmsg_endpoint_t *endpoint, uint8_t *buffer,
                               size_t bytes, tmsg_request_t **request_p)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                       .flags = TMSG_SEND_ACKED};
    const int64_t shape[] = {(int64_t)bytes};
    const tmsg_tensor_t tensor = {
        buffer, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape, NULL};
    tmsg_status_t status;
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "data", &tensor, NULL));
    status = tmsg_endpoint_send(endpoint, map, &params, request_p);
    tmsg_map_destroy(map);
    return status;
}

static tmsg_status_t wait_for(tmsg_request_t *request)
{
    tmsg_status_t status = tmsg_request_wait(request, BOUND_MS);

    tmsg_request_destroy(request);
    return status;
}

/* One message out of the buffer, to its acknowledgement. */
static tmsg_status_t send_one(tmsg_endpoint_t *endpoint, uint8_t *buffer,
                              size_t bytes)
{
    tmsg_request_t *request;
    tmsg_status_t status = start_one(endpoint, buffer, bytes, &request);

    return status == TMSG_OK ? wait_for(request) : status;
}

/* Closes in order, or waits for another end. */
static tmsg_status_t finish(tmsg_endpoint_t *endpoint, bool closes)
{
    tmsg_message_t *message;
    tmsg_request_t *request;

    if (!closes) {
        return tmsg_endpoint_recv(endpoint, BOUND_MS, &message);
    }
    must(tmsg_endpoint_close(endpoint, &request));
    return wait_for(request);
}

static tmsg_status_t send_in_turn(side_t *side, tmsg_endpoint_t *endpoint,
                                  size_t bytes, long count)
{
    uint8_t *buffer = malloc(bytes);
    tmsg_status_t status = TMSG_OK;

    must_true(buffer != NULL);
    for (long i = 1; status == TMSG_OK && (count == 0 || i <= labs(count));
         i++) {
        sample_fill((uint64_t)i, buffer, bytes);
        status = send_one(endpoint, buffer, bytes);
        memset(buffer, 0, bytes);
        if (status == TMSG_OK) {
            printf("message %ld\n", i);
            poll(NULL, 0, side->compute_ms);
        }
    }
    free(buffer);
    return status;
}

/* A message that is under way, and its buffer. */
typedef struct {
    long number; /* 0: none */
    tmsg_request_t *request;
    uint8_t *buffer;
    size_t bytes;
} bulk_t;

static tmsg_status_t settle(bulk_t *bulk)
{
    tmsg_status_t status = TMSG_OK;

    if (bulk->number != 0) {
        status = wait_for(bulk->request);
        memset(bulk->buffer, 0, bulk->bytes);
        if (status == TMSG_OK) {
            printf("message %ld\n", bulk->number);
        }
        bulk->number = 0;
    }
    return status;
}

static tmsg_status_t send_bulk(tmsg_endpoint_t *endpoint, bulk_t *bulk, long i,
                               size_t bytes)
{
    uint64_t state = (uint64_t)i;
    tmsg_status_t status = settle(bulk);

    if (status != TMSG_OK) {
        return status;
    }
    bulk->bytes = sample_random(&state) % (bytes + 1);
    sample_fill((uint64_t)i, bulk->buffer, bulk->bytes);
    status = start_one(endpoint, bulk->buffer, bulk->bytes, &bulk->request);
    bulk->number = status == TMSG_OK ? i : 0;
    return status;
}

static tmsg_status_t stream(side_t *side, tmsg_endpoint_t *endpoint,
                            size_t bytes, long count)
{
    static bulk_t lanes[AHEAD];
    tmsg_status_t status = TMSG_OK, settled;
    long i;

    (void)side;
    for (i = 0; i < AHEAD; i++) {
        lanes[i].buffer = malloc(bytes);
        must_true(lanes[i].buffer != NULL);
    }
    for (i = 1; status == TMSG_OK && (count == 0 || i <= labs(count)); i++) {
        status = send_bulk(endpoint, &lanes[i % AHEAD], i, bytes);
    }
    for (long last = i + AHEAD; i < last; i++) {
        settled = settle(&lanes[i % AHEAD]);
        status = status == TMSG_OK ? settled : status;
        free(lanes[i % AHEAD].buffer);
    }
    return status;
}

typedef tmsg_status_t (*send_fn)(side_t *side, tmsg_endpoint_t *endpoint,
                                 size_t bytes, long count);

static void send_all(side_t *side, tmsg_endpoint_t *endpoint, send_fn send,
                     size_t bytes, long count)
{
    tmsg_status_t status = send(side, endpoint, bytes, count);
    char words[32] = "";

    if (status == TMSG_OK && keep_ms() > 0) {
        snprintf(words, sizeof(words), "reconnected %u", returns_of(endpoint));
    }
    if (status == TMSG_OK) {
        status = finish(endpoint, count > 0);
    }
    say_end(status, status == TMSG_OK ? words : tmsg_error_message());
    await_leave();
}

static int send_messages(char **words, send_fn send)
{
    const tmsg_endpoint_params_t params = {
        .field_mask = TMSG_ENDPOINT_PARAM_DEVICES |
                      (keep_ms() > 0 ? TMSG_ENDPOINT_PARAM_RECONNECT : 0),
        .devices = devices(),
        .reconnect = {.most_backoff_ms = 500, .give_up_ms = keep_ms()}};
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *request;
    tmsg_status_t status;
    side_t side;

    open_side(&side, words[1], words[2]);
    must(tmsg_endpoint_connect(side.worker, words[0], &params, &endpoint));
    must(tmsg_endpoint_ready(endpoint, &request));
    status = wait_for(request);
    if (status == TMSG_OK) {
        say_transports(endpoint);
        send_all(&side, endpoint, send, strtoul(words[3], NULL, 10),
                 strtol(words[4], NULL, 10));
    } else {
        say_end(status, tmsg_error_message());
        await_leave();
    }
    close_side(&side);
    return 0;
}

int main(int count, char **words)
{
    watched_alloc_start();
    setvbuf(stdout, NULL, _IOLBF, 0);
    alarm(600);
    if (count == 5 && strcmp(words[1], "recv") == 0) {
        return receive(words + 2);
    }
    if (count == 5 && strcmp(words[1], "serve") == 0) {
        return serve(words + 2);
    }
    if (count == 7 && strcmp(words[1], "send") == 0) {
        return send_messages(words + 2, send_in_turn);
    }
    if (count == 7 && strcmp(words[1], "stream") == 0) {
        return send_messages(words + 2, stream);
    }
    return 2;
}
