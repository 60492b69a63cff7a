/* SPDX-License-Identifier: BSD-3-Clause */
/* What a fragment of C in the documents leans on, and runs in: test_docs.py
 * compiles this with it. There is a peer that sends back what it is sent, and
 * serves "infer" and "count". Ends with 0 where the fragment has done what it
 * says, as far as that is seen from here. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tensormsg/tensormsg.h>

enum { WAIT_MS = 20000 };

tmsg_call_t *call;
tmsg_context_t *context;
nfds_t count = 1;
tmsg_listener_params_t listening;
tmsg_endpoint_t *endpoint;
struct pollfd poll_fds[1], *fds = poll_fds;
float frame[16];
tmsg_listener_t *listener;
tmsg_map_t *map;
tmsg_message_t *message;
tmsg_call_params_t params;
tmsg_publisher_t *publisher;
tmsg_request_t *sent;
tmsg_server_t *server;
tmsg_status_t status;
tmsg_call_stream_t *stream;
tmsg_map_t *target;
int timeout_ms = WAIT_MS;
const char *url;
tmsg_worker_t *worker;

static int uses; /* of what a fragment hands to the reader's own functions */

void check(tmsg_status_t answer);
void begin(void);
void end(int used);
void handle(tmsg_message_t *got);
void infer(void *arg, tmsg_task_t *task);
tmsg_map_t *next_frame(void);
tmsg_map_t *predict(const tmsg_map_t *asked);
void reuse(float *data);
void use(const tmsg_map_t *got);
void use_endpoint(void (*function)(tmsg_endpoint_t *to));
void use_handler(void (*handler)(void *arg, tmsg_message_t *got));
void use_on_header(void (*on_header)(void *arg, tmsg_incoming_t *incoming));
void fragment(void);

void check(tmsg_status_t answer)
{
    if (answer < 0) {
        fprintf(stderr, "fragment: %s\n", tmsg_error_message());
        exit(1);
    }
}

static void finish(tmsg_request_t *request)
{
    check(tmsg_request_wait(request, WAIT_MS));
    tmsg_request_destroy(request);
}

/* To be sent, or received into. */
static tmsg_map_t *make_map(void)
{
    static float room[16];
    static const int64_t shape[] = {16};
    const tmsg_tensor_t tensor = {.data = room,
                                  .device = {.type = TMSG_DEVICE_CPU},
                                  .dtype = {TMSG_DTYPE_FLOAT, 32, 1},
                                  .ndim = 1,
                                  .shape = shape};
    tmsg_map_t *made;

    check(tmsg_map_create(&made));
    check(tmsg_map_add(made, "weights", &tensor, NULL));
    return made;
}

void infer(void *arg, tmsg_task_t *task)
{
    (void)arg;
    check(tmsg_task_reply(task, tmsg_task_map(task), NULL));
}

static void serve_stream(void *arg, tmsg_call_stream_t *opened)
{
    (void)arg;
    for (int i = 0; i < 3; i++) {
        check(tmsg_call_stream_send(opened, tmsg_call_stream_map(opened), NULL,
                                    NULL));
    }
    check(tmsg_call_stream_end(opened, TMSG_OK, 0, NULL, NULL));
}

static void send_back(void *arg, tmsg_message_t *got)
{
    (void)arg;
    check(tmsg_endpoint_send(tmsg_message_endpoint(got), tmsg_message_map(got),
                             NULL, NULL));
    tmsg_message_destroy(got);
}

/* A worker in a thread of its own, and where it listens. */
static tmsg_listener_t *listen_anywhere(tmsg_worker_params_t *how)
{
    tmsg_worker_t *made;
    tmsg_listener_t *at;

    how->field_mask |= TMSG_WORKER_PARAM_FLAGS;
    how->flags = TMSG_WORKER_THREAD;
    check(tmsg_worker_create(context, how, &made));
    if (endpoint == NULL) {
        const tmsg_offer_params_t weights = {
            .field_mask = TMSG_OFFER_PARAM_NAME | TMSG_OFFER_PARAM_VERSION,
            .name = "weights",
            .version = 1};
        tmsg_server_t *serving;
        tmsg_offer_t *offered;

        check(tmsg_server_create(made, NULL, &serving));
        check(tmsg_server_register(serving, "infer", infer, NULL, NULL));
        check(tmsg_server_register_stream(serving, "count", serve_stream, NULL,
                                          NULL));
        check(tmsg_offer_create(made, make_map(), &weights, &offered));
    }
    check(tmsg_listener_create(made, "tcp://127.0.0.1:0", NULL, &at));
    return at;
}

static tmsg_endpoint_t *dial(const tmsg_listener_t *at)
{
    tmsg_endpoint_t *made;
    tmsg_request_t *ready;

    check(tmsg_endpoint_connect(worker, tmsg_listener_url(at), NULL, &made));
    check(tmsg_endpoint_ready(made, &ready));
    finish(ready);
    return made;
}

void begin(void)
{
    tmsg_worker_params_t how = {.field_mask = TMSG_WORKER_PARAM_HANDLER,
                                .handler = send_back};
    const tmsg_context_params_t numbered = {
        .field_mask = TMSG_CONTEXT_PARAM_DEVICE_TABLE,
        .device_table = "{\"version\": 1, \"devices\": ["
                        "{\"index\": 0, \"kind\": \"host\"}]}"};
    const tmsg_worker_params_t shared = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
                                         .flags = TMSG_WORKER_SHARED};

    check(tmsg_context_create(&numbered, &context));
    check(tmsg_worker_create(context, &shared, &worker));
    endpoint = dial(listen_anywhere(&how));
    map = make_map();
    target = make_map();
    /* What comes back waits, where a fragment receives. */
    check(tmsg_endpoint_send(endpoint, map, NULL, &sent));
    fds[0] = (struct pollfd){.fd = tmsg_worker_fd(worker), .events = POLLIN};
}

void use(const tmsg_map_t *got) { uses += tmsg_map_size(got) == 1; }

void handle(tmsg_message_t *got)
{
    use(tmsg_message_map(got));
    end(1);
}

tmsg_map_t *next_frame(void)
{
    if (++uses == 4) {
        end(1);
    }
    return make_map();
}

tmsg_map_t *predict(const tmsg_map_t *asked)
{
    use(asked);
    return make_map();
}

void reuse(float *data)
{
    uses += data == frame && tmsg_request_test(sent) != TMSG_IN_PROGRESS;
}

void use_endpoint(void (*function)(tmsg_endpoint_t *to)) { function(endpoint); }

void use_handler(void (*handler)(void *arg, tmsg_message_t *got))
{
    tmsg_worker_params_t how = {.field_mask = TMSG_WORKER_PARAM_HANDLER,
                                .handler = handler};
    tmsg_endpoint_t *to = dial(listen_anywhere(&how));

    check(tmsg_endpoint_send(to, map, NULL, NULL));
    check(tmsg_endpoint_recv(to, WAIT_MS, &message));
    use(tmsg_message_map(message));
}

void use_on_header(void (*on_header)(void *arg, tmsg_incoming_t *incoming))
{
    tmsg_worker_params_t how = {.field_mask = TMSG_WORKER_PARAM_ON_HEADER |
                                              TMSG_WORKER_PARAM_HANDLER,
                                .on_header = on_header,
                                .on_header_arg = context,
                                .handler = send_back};

    endpoint = dial(listen_anywhere(&how));
    check(tmsg_endpoint_send(endpoint, map, NULL, NULL));
    check(tmsg_endpoint_recv(endpoint, WAIT_MS, &message));
    use(tmsg_message_map(message));
}

/* `used`: it hands something to the reader's functions. */
void end(int used)
{
    if (used && uses == 0) {
        fprintf(stderr, "fragment: nothing came to be used\n");
        exit(1);
    }
    exit(0);
}

int main(int argc, char **argv)
{
    url = argc > 1 ? argv[1] : "tcp://127.0.0.1:0";
    begin();
    fragment();
    end(0);
}
