/* SPDX-License-Identifier: BSD-3-Clause */
#include "liar.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include "am/endpoint/endpoint.h"
#include "core/bytes.h"
#include "flipper.h"
#include "support/message_mutator.h"
#include "support/numbered_keys.h"
#include "support/seeded_maps.h"

enum {
    CONNECTIONS = 8, /* one after the other */
    ACTIONS = 100    /* in each, at most */
};

/* What the hostile process has in force; nobody else changes anything. */
static struct {
    mutator_t mutator;
    ucp_ep_h ep; /* NULL: nothing is changed */
    int fd;
} evil = {.fd = -1};

static void *next_of(const char *name)
{
    void *symbol = dlsym(RTLD_NEXT, name);

    must_true(symbol != NULL);
    return symbol;
}

typedef ucs_status_ptr_t (*send_fn)(ucp_ep_h, unsigned, const void *, size_t,
                                    const void *, size_t,
                                    const ucp_request_param_t *);

static send_fn real_send(void)
{
    static send_fn real;

    if (real == NULL) {
        *(void **)&real = next_of("ucp_am_send_nbx");
    }
    return real;
}

/* The payload in one piece, which the caller frees. */
static uint8_t *flatten(const void *buffer, size_t count,
                        const ucp_request_param_t *param, size_t *bytes_p)
{
    bool list = param->op_attr_mask & UCP_OP_ATTR_FIELD_DATATYPE &&
                param->datatype == ucp_dt_make_iov();
    const ucp_dt_iov_t *iov = buffer;
    size_t bytes = list ? 0 : count;
    uint8_t *data, *to;

    for (size_t i = 0; list && i < count; i++) {
        bytes += iov[i].length;
    }
    data = to = malloc(bytes + 1);
    must_true(data != NULL);
    if (!list && count > 0) {
        memcpy(to, buffer, count);
    }
    for (size_t i = 0; list && i < count; i++) {
        memcpy(to, iov[i].buffer, iov[i].length);
        to += iov[i].length;
    }
    *bytes_p = bytes;
    return data;
}

static void is_gone(void *request, ucs_status_t ucs, void *arg)
{
    (void)ucs;
    mutant_free(arg);
    free(arg);
    ucp_request_free(request);
}

static void send_mutant(ucp_ep_h ep, const mutant_t *mutant)
{
    mutant_t *kept = malloc(sizeof(*kept));
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE,
        .flags = mutant->flags,
        .memory_type = UCS_MEMORY_TYPE_HOST,
        .cb.send = is_gone,
        .user_data = kept};

    must_true(kept != NULL);
    *kept = *mutant;
    if (!UCS_PTR_IS_PTR(real_send()(ep, TMSG_AM_ID, kept->header,
                                    kept->header_bytes, kept->payload,
                                    kept->payload_bytes, &param))) {
        mutant_free(kept);
        free(kept);
    }
}

ucs_status_ptr_t ucp_am_send_nbx(ucp_ep_h ep, unsigned id, const void *header,
                                 size_t header_bytes, const void *buffer,
                                 size_t count, const ucp_request_param_t *param)
{
    mutant_t message = {.header = (uint8_t *)(uintptr_t)header,
                        .header_bytes = header_bytes,
                        .flags = param->flags};
    mutant_t out[MUTATOR_MOST];
    size_t sent;

    if (ep != evil.ep) {
        return real_send()(ep, id, header, header_bytes, buffer, count, param);
    }
    message.payload = flatten(buffer, count, param, &message.payload_bytes);
    if (mutator_spares(&evil.mutator, &message)) {
        free(message.payload);
        return real_send()(ep, id, header, header_bytes, buffer, count, param);
    }
    sent = mutator_run(&evil.mutator, &message, out);
    free(message.payload);
    for (size_t i = 0; i < sent; i++) {
        send_mutant(ep, &out[i]);
    }
    return NULL; /* it was sent at once, as the library knows */
}

ssize_t send(int fd, const void *data, size_t bytes, int flags)
{
    static ssize_t (*real)(int, const void *, size_t, int);
    uint8_t copy[2048 + 64];

    if (real == NULL) {
        *(void **)&real = next_of("send");
    }
    if (fd == evil.fd && fd >= 0 && bytes <= sizeof(copy) - 64 &&
        sample_random(&evil.mutator.state) % 6 == 0) {
        memcpy(copy, data, bytes);
        real(fd, copy, mutator_bytes(&evil.mutator, copy, bytes), flags);
        return (ssize_t)bytes;
    }
    return real(fd, data, bytes, flags);
}

void liar_open_side(side_t *side, const liar_role_t *role,
                    const side_options_t *options)
{
    side_options_t made = {.ucx_config = NULL};

    if (options != NULL) {
        made = *options;
    }
    made.ucx_config = link_config(role->link);
    made.keyring = role->keyed ? ring("peer", 1) : NULL;
    side_open(side, &made);
    tmsg_keyring_destroy(made.keyring);
}

void door_put(int fd, const tmsg_listener_t *listener)
{
    const char *url = tmsg_listener_url(listener);

    line_put(fd, url);
    if (strncmp(url, "blob", 4) == 0) {
        blob_put(fd, listener);
    }
}

void door_get(int fd, door_t *door)
{
    char line[16];

    memset(door, 0, sizeof(*door));
    line_get(fd, door->url, sizeof(door->url));
    if (strncmp(door->url, "blob", 4) != 0) {
        return;
    }
    line_get(fd, line, sizeof(line));
    door->blob_bytes = strtoul(line, NULL, 10);
    must_true(door->blob_bytes <= sizeof(door->blob));
    for (size_t got = 0; got < door->blob_bytes;) {
        ssize_t n = read(fd, door->blob + got, door->blob_bytes - got);

        must_true(n > 0);
        got += (size_t)n;
    }
}

tmsg_endpoint_t *door_enter(const door_t *door, side_t *side,
                            const tmsg_endpoint_params_t *params)
{
    tmsg_endpoint_params_t patient = {.field_mask = 0};
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *ready;

    if (params != NULL) {
        patient = *params;
    }
    patient.field_mask |= TMSG_ENDPOINT_PARAM_CONNECT_TIMEOUT;
    patient.connect_timeout_ms = PEERS_CONNECT_MS;
    if (door->blob_bytes > 0) {
        must(tmsg_endpoint_connect_blob(side->worker, door->blob,
                                        door->blob_bytes, &patient, &endpoint));
    } else {
        must(tmsg_endpoint_connect(side->worker, door->url, &patient,
                                   &endpoint));
    }
    must(tmsg_endpoint_ready(endpoint, &ready));
    must(side_finish(side, ready));
    return endpoint;
}

typedef struct {
    side_t side;
    tmsg_endpoint_t *endpoint;
    tmsg_call_stream_t *stream;
    bool has_session, lies_in_frames;
    flipper_t *flipper; /* NULL: it lies in what it says */
    uint64_t *state;
} liar_t;

static uint64_t dice(liar_t *liar, uint64_t sides)
{
    return sample_random(liar->state) % sides;
}

static tmsg_map_t *make_map(liar_t *liar)
{
    sample_t sample = {.seed = dice(liar, 4), .tensors = 1 + dice(liar, 12)};

    switch (dice(liar, 8)) {
    case 0:
        return sample_bytes(sample.seed, 1 + dice(liar, 400000));
    case 1:
        return sample_bytes(sample.seed, (1 + dice(liar, 6)) << 20);
    case 2:
        sample.name_bytes = 300 + dice(liar, 3000); /* its body is spilled */
        break;
    case 3:
        sample.shape = SAMPLE_VECTOR;
        sample.elements = 1 + dice(liar, 3000);
        break;
    default:
        sample.tensors = 8; /* again and again, as in a loop */
        sample.seed = 1;
    }
    return sample_make(&sample);
}

static void say_map(liar_t *liar)
{
    static const unsigned flags[] = {0, 0, TMSG_SEND_ACKED, TMSG_SEND_UNORDERED,
                                     TMSG_SEND_VERIFY};
    const tmsg_send_params_t params = {
        .field_mask = TMSG_SEND_PARAM_FLAGS | TMSG_SEND_PARAM_CHANNEL |
                      TMSG_SEND_PARAM_TIMEOUT,
        .flags = TMSG_SEND_TRY | flags[dice(liar, 5)],
        .channel = (uint16_t)(dice(liar, 3) == 0 ? dice(liar, 64) : 0),
        .timeout_ms = dice(liar, 8) == 0 ? 1 : -1};
    tmsg_map_t *map = make_map(liar);
    tmsg_request_t *sent;

    if (tmsg_endpoint_send(liar->endpoint, map, &params, &sent) == TMSG_OK) {
        if (dice(liar, 16) == 0) {
            tmsg_request_cancel(sent);
        }
        tmsg_request_destroy(sent);
    }
    tmsg_map_destroy(map);
}

static void say_call(liar_t *liar)
{
    const tmsg_call_params_t params = {.field_mask = TMSG_CALL_PARAM_TIMEOUT,
                                       .timeout_ms =
                                           1 + (int32_t)dice(liar, 2000)};
    const char *method = dice(liar, 6) == 0 ? "nothing" : "echo";
    tmsg_map_t *map = make_map(liar);
    tmsg_call_t *call = NULL;

    if (tmsg_endpoint_call(liar->endpoint, method, map, &params,
                           dice(liar, 2) == 0 ? &call : NULL) == TMSG_OK) {
        tmsg_call_destroy(call); /* which gives it up */
    }
    tmsg_map_destroy(map);
}

static void say_stream(liar_t *liar)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                       .flags = TMSG_SEND_TRY};
    tmsg_map_t *map = make_map(liar);
    tmsg_message_t *message;

    if (liar->stream == NULL) {
        tmsg_endpoint_open_stream(liar->endpoint, "talk", map, NULL,
                                  &liar->stream);
    } else if (dice(liar, 8) == 0) {
        tmsg_call_stream_destroy(liar->stream);
        liar->stream = NULL;
    } else {
        tmsg_call_stream_send(liar->stream, map, &params, NULL);
        if (dice(liar, 8) == 0) {
            tmsg_call_stream_finish(liar->stream);
        }
        if (tmsg_call_stream_try_recv(liar->stream, &message) == TMSG_OK) {
            tmsg_message_destroy(message);
        }
    }
    tmsg_map_destroy(map);
}

static void say_ping(liar_t *liar)
{
    tmsg_request_t *request;

    if (tmsg_endpoint_ping(liar->endpoint, &request) == TMSG_OK) {
        tmsg_request_destroy(request);
    }
}

/* With a session it comes back, and more frames are said. */
static void say_frame(liar_t *liar)
{
    uint8_t type, frame[TMSG_FRAME_HEADER_BYTES + 1024];
    size_t bytes = mutator_frame(&evil.mutator, &type,
                                 frame + TMSG_FRAME_HEADER_BYTES, 1024);

    if (evil.fd >= 0 && liar->has_session && dice(liar, 2) == 0) {
        shutdown(evil.fd, SHUT_RDWR);
    } else if (evil.fd >= 0 && dice(liar, 3) == 0) {
        tmsg_put_le(frame, bytes, 4);
        frame[4] = type;
        send(evil.fd, frame, TMSG_FRAME_HEADER_BYTES + bytes,
             MSG_NOSIGNAL | MSG_DONTWAIT);
    }
}

static void act(liar_t *liar)
{
    uint64_t what = dice(liar, 40);
    tmsg_message_t *message;

    if (what < 20) {
        say_map(liar);
    } else if (what < 27) {
        say_call(liar);
    } else if (what < 36) {
        say_stream(liar);
    } else if (what < 38) {
        say_ping(liar);
    } else {
        say_frame(liar);
    }
    for (uint64_t i = dice(liar, 30); i > 0; i--) {
        tmsg_worker_progress(liar->side.worker);
    }
    if (tmsg_worker_recv(liar->side.worker, 0, &message) == TMSG_OK) {
        tmsg_message_destroy(message);
    }
}

/* Once it is admitted, and each time that it was again. */
static void begin_to_lie(const liar_t *liar)
{
    const tmsg_endpoint_t *endpoint = liar->endpoint;

    if (liar->flipper != NULL) {
        flipper_watch(liar->flipper, endpoint);
        return;
    }
    evil.ep = endpoint->state == TMSG_EP_OPEN ? endpoint->ep : NULL;
    evil.fd = liar->lies_in_frames ? endpoint->link.fd : -1;
    evil.mutator.endpoint_id = endpoint->peer_id;
    if (endpoint->ucx != NULL) {
        evil.mutator.header_most = endpoint->ucx->max_am_header;
    }
}

static void visit(const door_t *door, const liar_role_t *role, uint64_t *state)
{
    const tmsg_endpoint_params_t resumed = {
        .field_mask = TMSG_ENDPOINT_PARAM_RECONNECT | TMSG_ENDPOINT_PARAM_FLAGS,
        .reconnect = {1, 20, LIAR_RESUME_MS},
        .flags = TMSG_ENDPOINT_SAME_PROCESS};
    liar_t liar = {.state = state};
    tmsg_request_t *closed;
    flipper_t flipper;

    liar.has_session = dice(&liar, 3) == 0 && role->link != LINK_BLOB;
    liar.lies_in_frames = dice(&liar, 3) == 0;
    liar_open_side(&liar.side, role, NULL);
    liar.endpoint =
        door_enter(door, &liar.side, liar.has_session ? &resumed : NULL);
    evil.mutator.state = sample_random(state);
    evil.mutator.one_in = 1u << (1 + 2 * dice(&liar, 4));
    if (role->in_memory) {
        flipper_start(&flipper, sample_random(state));
        liar.flipper = &flipper;
    }
    for (int i = 0; i < ACTIONS && tmsg_endpoint_status(liar.endpoint) >= 0;
         i++) {
        begin_to_lie(&liar);
        act(&liar);
    }
    if (dice(&liar, 2) == 0 &&
        tmsg_endpoint_close(liar.endpoint, &closed) == TMSG_OK) {
        for (int i = 0; i < 500; i++) {
            begin_to_lie(&liar);
            tmsg_worker_progress(liar.side.worker);
        }
        tmsg_request_destroy(closed);
    }
    evil.ep = NULL;
    evil.fd = -1;
    if (role->in_memory) {
        evil.mutator.changed += flipper_stop(&flipper);
    }
    /* Who leaves a blob's listener without a word may take it along, which is
     * told there and no finding (docs/wire/connection.md). */
    if (dice(&liar, 4) > 0 || role->link == LINK_BLOB) {
        tmsg_call_stream_destroy(liar.stream);
        side_close(&liar.side);
    } /* else it is still there when the process ends */
}

void liar_run(pipes_t *pipes, void *arg)
{
    const liar_role_t *role = arg;
    uint64_t state = role->seed;
    struct pollfd told = {pipes->in, POLLIN, 0};
    char line[32];
    door_t door;

    poll(&told, 1, -1); /* others have their turns first */
    door_get(pipes->in, &door);
    for (int i = 0; i < CONNECTIONS; i++) {
        visit(&door, role, &state);
    }
    snprintf(line, sizeof(line), "%" PRIu64, evil.mutator.changed);
    line_put(pipes->out, line);
}
