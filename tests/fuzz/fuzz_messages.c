/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz: slow */
/* Two sides that send, call and stream over a UCX that is none (fakes/ucx.h):
 * what they say arrives in any order, and changed, as the input says. Neither
 * crashes, waits for ever or keeps memory. What is said before the two are
 * connected is fuzz/handshake's and fuzz/admission's. An input is
 *
 *   [how][seed of the order][what, and what of it] ...
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "am/path/fastboxes.h"
#include "am/path/loans_struct.h"
#include "am/worker/budget.h"
#include "core/bytes.h"
#include "fakes/ucx.h"
#include "support/lent_maps.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

enum {
    BY_SHM = 1,   /* what UCX says that carries it */
    HOOKED = 2,   /* the side with hooks is tried */
    ONE_BULK = 4, /* the order is kept */
    MET = 8,      /* by a socket: what is large is lent, if by shared memory */
    HELD = 4 << 20,
    LONGEST = 1 << 20,
    ENDPOINT_AT = 12, /* in the preamble */
    LENT = 70000,     /* bytes of a loan */
    STEPS = 200,
    KEPT = 8,
    ROUNDS_MOST = 100000
};

/* Those who are tried, one of them with hooks, and who talks to them. */
static struct {
    side_t plain, hooked, met, other;
    tmsg_server_t *servers[3];
} all;

typedef struct {
    const uint8_t *at, *end;
} script_t;

static struct {
    script_t script;
    uint64_t order;
    side_t *tried;
    tmsg_endpoint_t *there, *here; /* the other's end, and that of the tried */
    tmsg_call_stream_t *stream;
    tmsg_message_t *kept[KEPT];
    tmsg_request_t *sent[KEPT];
    tmsg_map_t *into, *again;
    unsigned count;
    unsigned to_change; /* how many of the next messages */
} now;

static uint64_t take(void)
{
    return now.script.at < now.script.end ? *now.script.at++ : 0;
}

static uint64_t take_two(void)
{
    uint64_t low = take();

    return low | take() << 8;
}

static uint64_t choose(void *arg, uint64_t below)
{
    (void)arg;
    return sample_random(&now.order) % below;
}

static void resize(uint8_t **data, size_t *bytes, size_t wanted)
{
    *data = realloc(*data, wanted + 1);
    must_true(*data != NULL);
    if (wanted > *bytes) {
        memset(*data + *bytes, 0, wanted - *bytes);
    }
    *bytes = wanted;
}

static void overwrite(uint8_t *data, size_t bytes)
{
    uint64_t from = take_two(), count = take() % 16;

    for (uint64_t i = from; i < from + count && bytes > 0; i++) {
        data[i % bytes] = (uint8_t)take();
    }
}

/* A message of the input's own, for the endpoint that this one was for. */
static void replace(fake_am_t *am)
{
    uint8_t id[4] = {0};
    size_t bytes = take();

    if (am->header_bytes >= ENDPOINT_AT + sizeof(id)) {
        memcpy(id, am->header + ENDPOINT_AT, sizeof(id));
    }
    resize(&am->header, &am->header_bytes, bytes);
    for (size_t i = 0; i < bytes; i++) {
        am->header[i] = (uint8_t)take();
    }
    if (bytes >= ENDPOINT_AT + sizeof(id)) {
        memcpy(am->header + ENDPOINT_AT, id, sizeof(id));
    }
}

static void change_one(fake_am_t *am)
{
    switch (take() % 8) {
    case 0:
        overwrite(am->header, am->header_bytes);
        break;
    case 1:
        overwrite(am->payload, am->payload_bytes);
        break;
    case 2:
        resize(&am->header, &am->header_bytes, take());
        break;
    case 3:
        resize(&am->payload, &am->payload_bytes, take_two());
        break;
    case 4:
        am->rendezvous = !am->rendezvous;
        break;
    case 5:
        am->again = true;
        break;
    case 6:
        am->replies = !am->replies;
        break;
    default:
        replace(am);
    }
}

static bool change(void *arg, fake_am_t *am)
{
    (void)arg;
    if (now.to_change == 0) {
        return true;
    }
    now.to_change--;
    am->changed = true;
    for (uint64_t n = 1 + take() % 3; n > 0; n--) {
        change_one(am);
    }
    return take() % 8 != 1;
}

static void echo(void *arg, tmsg_task_t *task)
{
    (void)arg;
    tmsg_task_reply(task, tmsg_task_map(task), NULL);
}

static void read_stream(void *arg, tmsg_call_stream_t *stream)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                       .flags = TMSG_SEND_TRY};
    tmsg_message_t *message;
    tmsg_status_t status;

    (void)arg;
    while ((status = tmsg_call_stream_try_recv(stream, &message)) == TMSG_OK &&
           message != NULL) {
        tmsg_call_stream_send(stream, tmsg_message_map(message), &params, NULL);
        tmsg_message_destroy(message);
    }
    if (status == TMSG_OK) {
        tmsg_call_stream_end(stream, TMSG_OK, 0, NULL, NULL);
        tmsg_call_stream_destroy(stream);
    }
}

static void stream_over(void *arg, tmsg_call_stream_t *stream,
                        tmsg_status_t status)
{
    (void)arg;
    (void)status;
    tmsg_call_stream_destroy(stream);
}

static void talk(void *arg, tmsg_call_stream_t *stream)
{
    const tmsg_call_stream_events_t events = {
        .field_mask =
            TMSG_CALL_STREAM_EVENT_READABLE | TMSG_CALL_STREAM_EVENT_OVER,
        .on_readable = read_stream,
        .on_over = stream_over};

    (void)arg;
    tmsg_call_stream_keep(stream);
    must(tmsg_call_stream_set_events(stream, &events));
}

static void read_all(const tmsg_map_t *map)
{
    volatile uint8_t sum = 0;

    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        tmsg_tensor_t tensor;
        uint64_t bytes;

        must(tmsg_map_at(map, i, NULL, &tensor));
        must(tmsg_tensor_bytes(&tensor, &bytes));
        for (uint64_t j = 0; tensor.strides == NULL && j < bytes; j++) {
            sum ^= ((const uint8_t *)tensor.data)[j];
        }
    }
    (void)sum;
}

static void handle(void *arg, tmsg_message_t *message)
{
    (void)arg;
    read_all(tmsg_message_map(message));
    tmsg_message_destroy(message);
}

static void on_header(void *arg, tmsg_incoming_t *incoming)
{
    static uint8_t place[1 << 16];
    uint64_t bytes = tmsg_incoming_bytes(incoming);

    (void)arg;
    if (bytes % 16 == 5) {
        must(tmsg_incoming_refuse(incoming, TMSG_ERR_BUSY, "not this one"));
    } else if (bytes % 4 == 2) { /* or it does not fit */
        tmsg_incoming_place(incoming, 0, place, sizeof(place), NULL);
    }
}

static void on_refused(void *arg, tmsg_endpoint_t *endpoint, uint16_t channel,
                       uint32_t sequence, tmsg_status_t status,
                       const char *error)
{
    (void)arg;
    (void)endpoint;
    (void)channel;
    (void)sequence;
    must_true(status < 0 && error[0] != '\0');
}

static void open_tried(side_t *side, tmsg_server_t **server_p, bool hooks,
                       link_t link)
{
    side_options_t options = {
        .ucx_config = "TLS=posix,cma,self,tcp",
        .quiet = true,
        .limits = {.field_mask =
                       TMSG_LIMIT_HELD_BYTES | TMSG_LIMIT_MESSAGE_BYTES,
                   .held_bytes = HELD,
                   .message_bytes = LONGEST},
        .worker = {.field_mask = TMSG_WORKER_PARAM_ON_REFUSED |
                                 TMSG_WORKER_PARAM_QUEUE_DEPTH,
                   .queue_depth = 16,
                   .on_refused = on_refused}};

    if (hooks) {
        options.worker.field_mask |= TMSG_WORKER_PARAM_HANDLER |
                                     TMSG_WORKER_PARAM_ON_HEADER |
                                     TMSG_WORKER_PARAM_FLAGS;
        options.worker.handler = handle;
        options.worker.on_header = on_header;
        options.worker.flags = TMSG_WORKER_CAPTURE;
    }
    side_open(side, &options);
    must(tmsg_server_create(side->worker, NULL, server_p));
    must(tmsg_server_register(*server_p, "echo", echo, NULL, NULL));
    must(tmsg_server_register_stream(*server_p, "talk", talk, NULL, NULL));
    side_listen_link(side, link);
}

static void begin(void)
{
    const side_options_t options = {.ucx_config = "TLS=posix,cma,self,tcp",
                                    .quiet = true,
                                    .worker = lent_borrower.worker};

    setenv("TENSORMSG_THRESHOLDS",
           "shm.fragment_bytes=20000,shm.chunk_bytes=8000,shm.slice_bytes=9000,"
           "tcp.fragment_bytes=20000,tcp.chunk_bytes=8000,tcp.slice_bytes=9000,"
           "shm.gather_bytes=1000,tcp.gather_bytes=1000,shm.bulk_bytes=20000",
           1);
    open_tried(&all.plain, &all.servers[0], false, LINK_BLOB);
    open_tried(&all.hooked, &all.servers[1], true, LINK_BLOB);
    open_tried(&all.met, &all.servers[2], false, LINK_UNIX);
    side_open(&all.other, &options);
}

static void progress(void)
{
    now.tried->worker->pace.look = true;
    all.other.worker->pace.look = true;
    tmsg_worker_progress(now.tried->worker);
    tmsg_worker_progress(all.other.worker);
}

/* A blob goes with the UCX worker that a peer's death has cost. */
static void listen_anew(side_t *side)
{
    const void *blob;
    size_t bytes;

    if (side != &all.met &&
        tmsg_listener_blob(side->listener, &blob, &bytes) == TMSG_ERR_CLOSED) {
        tmsg_listener_destroy(side->listener);
        side_listen_link(side, LINK_BLOB);
    }
}

static void connect_both(void)
{
    unsigned before = now.tried->accepts, rounds = 0;

    listen_anew(now.tried);
    now.there = side_dial(&all.other, now.tried);
    while (tmsg_endpoint_status(now.there) == TMSG_IN_PROGRESS ||
           now.tried->accepts == before) {
        must_true(rounds++ < ROUNDS_MOST);
        progress();
    }
    must(tmsg_endpoint_status(now.there));
    now.here = now.tried->accepted;
}

static tmsg_map_t *make_map(void)
{
    uint64_t what = take();
    sample_t sample = {.seed = what / 8 % 4, .tensors = 1 + what / 32};

    switch (what % 8) {
    case 0:
        sample.tensors = 0;
        break;
    case 1:
        sample = sample_plain(sample.seed, 100 + take_two());
        break;
    case 2: /* its body is spilled */
        sample.tensors *= 4;
        sample.name_bytes = 4000;
        break;
    case 3:
        sample.name_bytes = 4000;
        sample.shape = SAMPLE_VECTOR;
        sample.elements = 700;
        break;
    case 4:
        sample.shape = SAMPLE_VECTOR;
        sample.elements = take_two();
        break;
    default:
        break;
    }
    return sample_make(&sample);
}

static tmsg_request_t **place_of_one(void)
{
    tmsg_request_t **place = &now.sent[now.count++ % KEPT];

    tmsg_request_destroy(*place);
    *place = NULL;
    return place;
}

static void send_one(tmsg_endpoint_t *endpoint)
{
    uint64_t how = take();
    const tmsg_send_params_t params = {
        .field_mask = TMSG_SEND_PARAM_FLAGS | TMSG_SEND_PARAM_CHANNEL |
                      TMSG_SEND_PARAM_WAY | TMSG_SEND_PARAM_POLICY,
        .flags = TMSG_SEND_TRY | (uint32_t)(how % 8),
        .channel = how / 8 % 4 == 3 ? 7 : 0,
        .way = how / 32 == 1 ? TMSG_WAY_FRAGMENTS : TMSG_WAY_AUTO,
        .protocol = how / 32 == 2   ? TMSG_PROTOCOL_RNDV
                    : how / 32 == 4 ? TMSG_PROTOCOL_EAGER
                                    : TMSG_PROTOCOL_AUTO,
        .policy =
            how / 32 == 3 ? TMSG_POLICY_STRICT : TMSG_POLICY_HOST_FALLBACK};
    tmsg_map_t *map = make_map();

    tmsg_endpoint_send(endpoint, map, &params, place_of_one());
    tmsg_map_destroy(map);
}

/* A loan to the other, from a copy of the library's. */
static void lend_one(void)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                       .flags = TMSG_SEND_LEND};
    tmsg_map_t *map = sample_bytes(take(), LENT);

    tmsg_endpoint_send(now.here, map, &params, place_of_one());
    tmsg_map_destroy(map);
}

/* LOAN_BACK by the fast box, of what is lent to the other: with flags, a
 * channel and lengths as the input says. */
static void give_back(void)
{
    uint8_t header[TMSG_PREAMBLE_BYTES + 16];
    const tmsg_loans_t *loans = now.here->paths.loans;
    uint64_t how = take(), more = take();
    tmsg_preamble_t head = {.kind = TMSG_KIND_LOAN_BACK,
                            .flags = (uint8_t)(how & 0xf),
                            .channel = how & 0x10 ? 7 : 0,
                            .endpoint_id = now.there->peer_id,
                            .body_bytes = (uint32_t)(8 * (1 + more)),
                            .payload_bytes = how & 0x20 ? UINT64_MAX : 64};
    tmsg_fastbox_t *fastbox = now.there->fastboxes.out;
    uint64_t token =
        loans == NULL || loans->out.head == NULL
            ? 0
            : TMSG_CONTAINER_OF(loans->out.head, tmsg_loan_out_t, node)->token;

    if (fastbox == NULL || !tmsg_fastbox_has_room(fastbox)) {
        return;
    }
    if (how & 0x40) {
        head.body_bytes = UINT32_MAX - 7;
    }
    tmsg_preamble_encode(&head, header);
    tmsg_put_le(header + TMSG_PREAMBLE_BYTES, token, 8);
    tmsg_put_le(header + TMSG_PREAMBLE_BYTES + 8, token, 8);
    (void)tmsg_fastbox_begin(fastbox, sizeof(header) - (how & 0x80 ? 8 : 0), 0);
    tmsg_fastbox_write_header(fastbox, header);
    tmsg_fastboxes_put(now.there, 0);
}

/* One layout, as in a loop. */
static void send_again(void)
{
    uint64_t count = 1 + take() % 8;

    if (now.again == NULL) {
        now.again = make_map();
    }
    for (uint64_t i = 0; i < count; i++) {
        tmsg_endpoint_send(now.there, now.again, NULL, place_of_one());
        for (int j = 0; j < 8; j++) {
            progress();
        }
    }
}

static void call_one(void)
{
    const tmsg_call_params_t params = {.field_mask = TMSG_CALL_PARAM_TIMEOUT,
                                       .timeout_ms = 10000};
    uint64_t how = take();
    tmsg_map_t *map = make_map();
    tmsg_call_t *call = NULL;

    if (tmsg_endpoint_call(now.there, how % 8 == 1 ? "nothing" : "echo", map,
                           &params, how % 2 == 0 ? &call : NULL) == TMSG_OK) {
        for (uint64_t i = how / 8; i > 0; i--) {
            progress();
        }
        tmsg_call_destroy(call);
    }
    tmsg_map_destroy(map);
}

static void stream_one(void)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                       .flags = TMSG_SEND_TRY};
    tmsg_map_t *map = make_map();
    uint64_t how = take() % 8;
    tmsg_message_t *message;

    if (now.stream == NULL) {
        tmsg_endpoint_open_stream(now.there, "talk", map, NULL, &now.stream);
    } else if (how == 0) {
        tmsg_call_stream_destroy(now.stream);
        now.stream = NULL;
    } else if (how == 1) {
        tmsg_call_stream_finish(now.stream);
    } else {
        tmsg_call_stream_send(now.stream, map, &params, NULL);
        if (tmsg_call_stream_try_recv(now.stream, &message) == TMSG_OK) {
            tmsg_message_destroy(message);
        }
    }
    tmsg_map_destroy(map);
}

static void take_at(tmsg_worker_t *worker)
{
    tmsg_message_t *message, **place = &now.kept[take() % KEPT];

    tmsg_message_destroy(*place);
    *place = NULL;
    if (tmsg_worker_recv(worker, 0, &message) == TMSG_OK) {
        read_all(tmsg_message_map(message));
        *place = message;
    }
}

static void take_into(void)
{
    tmsg_message_t *message;

    if (now.into == NULL) {
        now.into = make_map();
    }
    if (tmsg_endpoint_recv_into(now.here, now.into, 0, &message) == TMSG_OK) {
        read_all(tmsg_message_map(message));
        tmsg_message_destroy(message);
    }
}

static void cancel_one(void)
{
    tmsg_request_t *request = now.sent[take() % KEPT];

    if (request != NULL) {
        tmsg_request_cancel(request);
    }
}

static void ping(void)
{
    tmsg_request_t *request;

    if (tmsg_endpoint_ping(now.there, &request) == TMSG_OK) {
        tmsg_request_destroy(request);
    }
}

static void act(uint64_t what)
{
    switch (what % 16) {
    case 0:
    case 1:
        for (uint64_t i = take() % 64; i > 0; i--) {
            progress();
        }
        break;
    case 2:
    case 3:
        send_one(now.there);
        break;
    case 4:
        send_one(now.here);
        break;
    case 5:
        take_at(now.tried->worker);
        break;
    case 6:
        take_at(all.other.worker);
        break;
    case 7:
        call_one();
        break;
    case 8:
        stream_one();
        break;
    case 9:
        take_into();
        break;
    case 10:
        cancel_one();
        break;
    case 11:
        switch (what / 16 % 4) {
        case 1:
            lend_one();
            break;
        case 2:
            give_back();
            break;
        default:
            ping();
        }
        break;
    case 12:
        tmsg_endpoint_close(take() % 2 == 0 ? now.here : now.there, NULL);
        break;
    case 13:
        send_again();
        break;
    default:
        now.to_change += 1 + take() % 4;
    }
}

static bool is_idle(const side_t *side)
{
    for (uint32_t i = 0; i < side->worker->endpoint_slots; i++) {
        if (side->worker->endpoints[i] != NULL) {
            return false;
        }
    }
    return side->worker->due.count == 0;
}

static void expect_nothing_held(tmsg_budget_t *budget)
{
    must(tmsg_budget_reserve(budget, HELD));
    must(tmsg_budget_note(budget, TMSG_BUDGET_SLACK, false));
    tmsg_budget_forget(budget, TMSG_BUDGET_SLACK);
    tmsg_budget_discharge(budget, HELD);
}

/* Of all that was, nothing is left. */
static void finish(void)
{
    unsigned rounds = 0;

    now.to_change = 0;
    tmsg_call_stream_destroy(now.stream);
    for (int i = 0; i < KEPT; i++) {
        tmsg_request_destroy(now.sent[i]);
        tmsg_message_destroy(now.kept[i]);
    }
    tmsg_endpoint_destroy(now.there);
    tmsg_endpoint_destroy(now.here);
    tmsg_map_destroy(now.into);
    tmsg_map_destroy(now.again);
    while (fake_ucx_is_busy() || !is_idle(now.tried) || !is_idle(&all.other)) {
        must_true(rounds++ < ROUNDS_MOST);
        progress();
    }
    expect_nothing_held(now.tried->worker->budget);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t how;

    if (all.other.worker == NULL) {
        begin();
    }
    memset(&now, 0, sizeof(now));
    now.script = (script_t){data, data + size};
    how = take();
    now.order = 1 + take();
    now.tried = how & MET ? &all.met : how & HOOKED ? &all.hooked : &all.plain;
    fake_ucx = (fake_ucx_t){.choose = how & ONE_BULK ? NULL : choose,
                            .change = change,
                            .ahead = how & ONE_BULK ? 1 : 16,
                            .by_tcp = !(how & BY_SHM)};
    connect_both();
    for (int i = 0; i < STEPS && now.script.at < now.script.end; i++) {
        act(take());
    }
    finish();
    return 0;
}
