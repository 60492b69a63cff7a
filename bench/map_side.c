/* SPDX-License-Identifier: BSD-3-Clause */
/* A side that sends and receives tensormsg maps, as an application would: the
 * map is made once, its data borrowed, and progress polled. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tensormsg/tensormsg.h>

#include "side.h"

#define CONNECT_MS 10000
#define URL_BYTES 256
#define CALL_CHANNEL 1

typedef struct {
    bench_side_t side;
    tmsg_context_t *context;
    tmsg_worker_t *worker;
    tmsg_listener_t *listener;
    tmsg_endpoint_t *endpoint;
    tmsg_map_t **maps; /* of each payload */
    tmsg_map_t *answer;
    char answer_data[8];
    tmsg_map_t *call;
    char call_data[64];
    int64_t rows[2]; /* shape of the tensor that has rows apart */
    int64_t row_strides[2];
    uint32_t flags;  /* of sends */
    bool by_stream;  /* the carrier */
    tmsg_tls_t *tls; /* or NULL */
    bool serves;     /* calls, which it sends back */
    bool sleeps;
    tmsg_server_t *server; /* of BENCH_UNARY, BENCH_FETCH, BENCH_CALLS */
    tmsg_offer_t *offer;   /* of BENCH_FETCH; its content is changed only where
                              nobody fetches */
    tmsg_offer_key_t key;
} map_side_t;

static void done(void *arg, tmsg_status_t status, const char *error)
{
    bench_side_t *side = arg;

    side->in_flight--;
    if (status != TMSG_OK) {
        bench_die("tensormsg: a send failed: %s", error);
    }
}

static void send_map(map_side_t *self, tmsg_map_t *map)
{
    const tmsg_send_params_t params = {
        .field_mask = TMSG_SEND_PARAM_ON_DONE | TMSG_SEND_PARAM_FLAGS,
        .flags = self->flags,
        .on_done = done,
        .on_done_arg = &self->side,
    };

    self->side.in_flight++;
    bench_must(tmsg_endpoint_send(self->endpoint, map, &params, NULL));
}

static tmsg_map_t *next_map(map_side_t *self)
{
    tmsg_map_t *map = self->maps[self->side.turn];

    (void)bench_side_next(&self->side);
    return map;
}

static void send_payload(bench_side_t *side)
{
    map_side_t *self = (map_side_t *)side;

    send_map(self, next_map(self));
}

static void send_answer(bench_side_t *side)
{
    map_side_t *self = (map_side_t *)side;

    send_map(self, self->answer);
}

/* On a channel of its own, and not counted as in flight. */
static void send_call(bench_side_t *side)
{
    map_side_t *self = (map_side_t *)side;
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_CHANNEL,
                                       .channel = CALL_CHANNEL};

    bench_must(tmsg_endpoint_send(self->endpoint, self->call, &params, NULL));
}

static void progress(bench_side_t *side)
{
    map_side_t *self = (map_side_t *)side;

    if (self->sleeps) {
        bench_must(tmsg_worker_wait(self->worker, -1));
    } else {
        tmsg_worker_progress(self->worker);
    }
}

/* What lies between the rows may be anything. */
static void check_rows(const map_side_t *self, const tmsg_tensor_t *tensor)
{
    const uint8_t *wanted = bench_side_expected(&self->side)->data[0];
    int64_t stride =
        tensor->strides == NULL ? tensor->shape[1] : tensor->strides[0];
    bool keeps = (self->flags & TMSG_SEND_KEEP_STRIDES) != 0;

    if (tensor->ndim != 2 ||
        memcmp(tensor->shape, self->rows, sizeof(self->rows)) != 0 ||
        stride != (keeps ? self->row_strides[0] : self->rows[1])) {
        bench_die("tensormsg: the rows arrived with another shape or strides");
    }
    for (int64_t i = 0; i < self->rows[0]; i++) {
        if (memcmp((const uint8_t *)tensor->data + i * stride,
                   wanted + i * self->row_strides[0],
                   (size_t)self->rows[1]) != 0) {
            bench_die("tensormsg: row %lld is another", (long long)i);
        }
    }
}

static void check(map_side_t *self, const tmsg_map_t *map)
{
    const bench_payload_t *payload = bench_side_expected(&self->side);
    const char *name;
    tmsg_tensor_t tensor;

    bench_must(tmsg_map_at(map, 0, &name, &tensor));
    if (strcmp(name, "answer") == 0) {
        return;
    }
    if (self->rows[0] > 0) {
        check_rows(self, &tensor);
        self->side.checked++;
        return;
    }
    if (tmsg_map_size(map) != payload->map->count) {
        bench_die("tensormsg: %zu tensors arrived, not %zu", tmsg_map_size(map),
                  payload->map->count);
    }
    for (size_t i = 0; i < payload->map->count; i++) {
        bench_must(tmsg_map_at(map, i, &name, &tensor));
        bench_payload_is(payload, i, name, strlen(name), tensor.dtype,
                         tensor.ndim, tensor.shape);
        bench_payload_check(payload, i, tensor.data);
    }
    self->side.checked++;
}

/* Not at an answer, which raw UCX sends empty. */
static void look(const map_side_t *self, const tmsg_map_t *map)
{
    const workload_map_t *like = bench_side_expected(&self->side)->map;

    if (!self->side.look || tmsg_map_size(map) != like->count) {
        return;
    }
    for (size_t i = 0; i < like->count; i++) {
        const char *name;
        tmsg_tensor_t tensor;

        bench_must(tmsg_map_at(map, i, &name, &tensor));
        bench_payload_look(tensor.data, like->tensors[i].bytes);
    }
}

static void arrived(void *arg, tmsg_message_t *message)
{
    map_side_t *self = arg;

    look(self, tmsg_message_map(message));
    if (self->side.check) {
        check(self, tmsg_message_map(message));
    }
    if (self->serves && tmsg_message_channel(message) == CALL_CHANNEL) {
        send_call(&self->side);
    }
    tmsg_message_destroy(message);
    self->side.received++;
}

static void replied(void *arg, tmsg_call_t *call)
{
    map_side_t *self = arg;

    if (tmsg_call_status(call) != TMSG_OK) {
        bench_die("tensormsg: a call failed: %s", tmsg_call_error(call));
    }
    if (self->side.check) {
        check(self, tmsg_call_reply(call));
    }
    self->side.received++;
}

static void send_unary(bench_side_t *side)
{
    map_side_t *self = (map_side_t *)side;
    const tmsg_call_params_t params = {
        .field_mask = TMSG_CALL_PARAM_ON_DONE,
        .on_done = replied,
        .on_done_arg = self,
    };

    bench_must(tmsg_endpoint_call(self->endpoint, "echo", next_map(self),
                                  &params, NULL));
}

static void send_fetch(bench_side_t *side)
{
    map_side_t *self = (map_side_t *)side;
    const tmsg_fetch_params_t params = {
        .field_mask = TMSG_FETCH_PARAM_ON_DONE,
        .on_done = replied,
        .on_done_arg = self,
    };

    bench_must(tmsg_endpoint_fetch(self->endpoint, &self->key, &params, NULL));
}

static void released(void *arg) { ((bench_side_t *)arg)->in_flight--; }

static void answer_unary(void *arg, tmsg_task_t *task)
{
    map_side_t *self = arg;
    const tmsg_reply_params_t params = {
        .field_mask = TMSG_REPLY_PARAM_ON_RELEASE,
        .on_release = released,
        .on_release_arg = &self->side,
    };

    if (self->side.check) {
        check(self, tmsg_task_map(task));
    }
    self->side.in_flight++;
    bench_must(tmsg_task_reply(task, next_map(self), &params));
    self->side.received++;
}

static void serve_unary(map_side_t *self, bool dialling)
{
    self->side.ask = send_unary;
    if (!dialling) {
        bench_must(tmsg_server_create(self->worker, NULL, &self->server));
        bench_must(tmsg_server_register(self->server, "echo", answer_unary,
                                        self, NULL));
    }
}

/* Tells the other side the key of an offer, or hears it. */
static void exchange_key(map_side_t *self, bool dialling, int socket)
{
    self->side.fetch = send_fetch;
    if (dialling) {
        bench_hear(socket, self->key.bytes, sizeof(self->key.bytes));
        return;
    }
    bench_must(
        tmsg_offer_create(self->worker, self->maps[0], NULL, &self->offer));
    tmsg_offer_key(self->offer, &self->key);
    bench_tell(socket, self->key.bytes, sizeof(self->key.bytes));
}

static void accepted(void *arg, tmsg_endpoint_t *endpoint)
{
    ((map_side_t *)arg)->endpoint = endpoint;
}

static void add(tmsg_map_t *map, const char *name, void *data,
                const int64_t *bytes)
{
    const tmsg_tensor_t tensor = {
        data, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, bytes, NULL};

    bench_must(tmsg_map_add(map, name, &tensor, NULL));
}

/* The first tensor's memory as rows, so far apart. */
static void lay_rows(map_side_t *self, const bench_run_t *run)
{
    const size_t stride = run->row_bytes + run->gap_bytes;
    tmsg_tensor_t tensor = {.device = {TMSG_DEVICE_CPU, 0},
                            .dtype = {TMSG_DTYPE_UINT, 8, 1},
                            .ndim = 2,
                            .shape = self->rows,
                            .strides = self->row_strides};

    self->rows[0] = (int64_t)(self->side.payload_bytes / stride);
    self->rows[1] = (int64_t)run->row_bytes;
    self->row_strides[0] = (int64_t)stride;
    self->row_strides[1] = 1;
    self->flags = run->keeps ? TMSG_SEND_KEEP_STRIDES : 0;
    tensor.data = self->side.payloads[0].data[0];
    tmsg_map_destroy(self->maps[0]);
    bench_must(tmsg_map_create(&self->maps[0]));
    bench_must(tmsg_map_add(self->maps[0], "rows", &tensor, NULL));
}

static void make_maps(map_side_t *self)
{
    const bench_side_t *side = &self->side;
    const int64_t answer_bytes = sizeof(self->answer_data);
    const int64_t call_bytes = sizeof(self->call_data);

    self->maps = bench_memory(side->payload_count * sizeof(*self->maps));
    for (size_t i = 0; i < side->payload_count; i++) {
        self->maps[i] = bench_payload_map(&side->payloads[i]);
    }
    bench_must(tmsg_map_create(&self->answer));
    add(self->answer, "answer", self->answer_data, &answer_bytes);
    bench_must(tmsg_map_create(&self->call));
    add(self->call, "call", self->call_data, &call_bytes);
}

static void read_certificates(map_side_t *self, const bench_run_t *run,
                              bool dialling)
{
    bench_certificates_t paths;
    const tmsg_tls_params_t params = {
        .field_mask =
            TMSG_TLS_PARAM_CA | TMSG_TLS_PARAM_CERT | TMSG_TLS_PARAM_KEY,
        .ca = paths.ca,
        .cert = paths.certificate,
        .key = paths.key,
    };

    bench_certificates(run->folder, dialling, &paths);
    bench_must(tmsg_tls_create(&params, &self->tls));
}

static void dial(map_side_t *self, int socket)
{
    const tmsg_endpoint_params_t params = {
        .field_mask = (self->by_stream ? TMSG_ENDPOINT_PARAM_CARRIER : 0) |
                      (self->tls != NULL ? TMSG_ENDPOINT_PARAM_TLS : 0),
        .carrier = TMSG_CARRIER_STREAM,
        .tls = self->tls,
    };
    char url[URL_BYTES] = "";
    tmsg_request_t *ready;

    bench_hear(socket, url, sizeof(url) - 1);
    bench_must(
        tmsg_endpoint_connect(self->worker, url, &params, &self->endpoint));
    bench_must(tmsg_endpoint_ready(self->endpoint, &ready));
    bench_must(tmsg_request_wait(ready, CONNECT_MS));
    tmsg_request_destroy(ready);
}

static void listen_for_one(map_side_t *self, int socket)
{
    const tmsg_listener_params_t params = {
        .field_mask = TMSG_LISTENER_PARAM_ON_ACCEPT |
                      (self->by_stream ? TMSG_LISTENER_PARAM_CARRIER : 0) |
                      (self->tls != NULL ? TMSG_LISTENER_PARAM_TLS : 0),
        .on_accept = accepted,
        .on_accept_arg = self,
        .carrier = TMSG_CARRIER_STREAM,
        .tls = self->tls,
    };
    const char *url =
        self->tls != NULL ? "tls://127.0.0.1:0" : "tcp://127.0.0.1:0";

    bench_must(
        tmsg_listener_create(self->worker, url, &params, &self->listener));
    url = tmsg_listener_url(self->listener);
    bench_tell(socket, url, strlen(url));
    while (self->endpoint == NULL) {
        bench_must(tmsg_worker_wait(self->worker, CONNECT_MS));
    }
}

static void close_map_side(bench_side_t *side)
{
    map_side_t *self = (map_side_t *)side;

    tmsg_offer_destroy(self->offer);
    tmsg_server_destroy(self->server);
    tmsg_worker_destroy(self->worker);
    tmsg_tls_destroy(self->tls);
    tmsg_context_destroy(self->context);
    for (size_t i = 0; i < side->payload_count; i++) {
        tmsg_map_destroy(self->maps[i]);
    }
    free(self->maps);
    tmsg_map_destroy(self->answer);
    tmsg_map_destroy(self->call);
    bench_side_unload(side);
    free(self);
}

bench_side_t *bench_map_open(const bench_run_t *run, bool dialling, int socket)
{
    map_side_t *self = bench_memory(sizeof(*self));
    const tmsg_context_params_t context_params = {
        .field_mask = TMSG_CONTEXT_PARAM_UCX_CONFIG,
        .ucx_config =
            run->transport == BENCH_TCP ? "TLS=tcp,self" : "TLS=posix,cma,self",
    };
    const tmsg_worker_params_t worker_params = {
        .field_mask = TMSG_WORKER_PARAM_HANDLER,
        .handler = arrived,
        .handler_arg = self,
    };
    bench_run_t sends;

    self->side.send = send_payload;
    self->side.answer = send_answer;
    self->side.call = send_call;
    self->by_stream = run->by_stream;
    self->sleeps = run->sleeps;
    self->serves = run->metric == BENCH_UNDER_BULK && !dialling;
    self->side.progress = progress;
    self->side.close = close_map_side;
    sends = *run;
    sends.tensor_bytes = self->serves ? 1 : run->tensor_bytes;
    bench_side_load(&self->side, &sends, false);
    make_maps(self);
    if (run->row_bytes > 0) {
        lay_rows(self, run);
    }
    if (run->encrypted) {
        read_certificates(self, run, dialling);
    }
    bench_must(tmsg_context_create(&context_params, &self->context));
    bench_must(
        tmsg_worker_create(self->context, &worker_params, &self->worker));
    if (run->metric == BENCH_UNARY || run->metric == BENCH_FETCH ||
        run->metric == BENCH_CALLS) {
        serve_unary(self, dialling);
    }
    if (dialling) {
        dial(self, socket);
    } else {
        listen_for_one(self, socket);
    }
    if (run->metric == BENCH_FETCH) {
        exchange_key(self, dialling, socket);
    }
    return &self->side;
}
