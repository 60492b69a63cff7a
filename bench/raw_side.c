/* SPDX-License-Identifier: BSD-3-Clause */
/* A side that moves the same bytes by ucp_am alone: the limit. An eager
 * payload counts where it lies, as nobody needs it longer; a rendezvous is
 * received into buffers that were made before. */
#include <stdlib.h>
#include <string.h>

#include "raw.h"
#include "side.h"

typedef struct raw_side raw_side_t;

/* Memory that a message occupies while UCX works on it. */
typedef struct {
    raw_side_t *self;
    bool busy;
    uint8_t *buffer;
} slot_t;

struct raw_side {
    bench_side_t side;
    bench_way_t way;
    bench_raw_t raw;
    ucp_ep_h ep;
    ucp_dt_iov_t **iov; /* of each payload */
    size_t largest;     /* payload, in bytes */
    bool sleeps;
    slot_t sending[BENCH_WINDOW_MAX];   /* buffers for BENCH_GATHER */
    slot_t receiving[BENCH_WINDOW_MAX]; /* for rendezvous; made when needed */
};

static slot_t *take_slot(raw_side_t *self, slot_t *slots)
{
    for (size_t i = 0; i < BENCH_WINDOW_MAX; i++) {
        if (!slots[i].busy) {
            slots[i].busy = true;
            slots[i].self = self;
            return &slots[i];
        }
    }
    bench_die("raw UCX: more messages at once than the window");
}

static uint8_t *slot_buffer(slot_t *slot)
{
    if (slot->buffer == NULL) {
        slot->buffer = bench_memory(slot->self->largest);
    }
    return slot->buffer;
}

static void arrived(raw_side_t *self, const uint8_t *data, size_t bytes)
{
    const bench_payload_t *payload = bench_side_expected(&self->side);

    self->side.received++;
    if (self->side.look) {
        bench_payload_look(data, bytes);
    }
    if (!self->side.check || bytes == 0) { /* an answer is empty */
        return;
    }
    if (bytes != payload->map->bytes) {
        bench_die("raw UCX: %zu bytes arrived", bytes);
    }
    for (size_t i = 0; i < payload->map->count; i++) {
        bench_payload_check(payload, i, data);
        data += payload->map->tensors[i].bytes;
    }
    self->side.checked++;
}

static void fetched(void *request, ucs_status_t status, size_t bytes, void *arg)
{
    slot_t *slot = arg;

    bench_raw_must(status, "a rendezvous");
    slot->busy = false;
    arrived(slot->self, slot->buffer, bytes);
    if (request != NULL) {
        ucp_request_free(request);
    }
}

static void fetch(raw_side_t *self, void *data, size_t bytes)
{
    slot_t *slot = take_slot(self, self->receiving);
    const ucp_request_param_t param = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
            UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_MEMORY_TYPE,
        .cb.recv_am = fetched,
        .user_data = slot,
        .datatype = ucp_dt_make_contig(1),
        .memory_type = UCS_MEMORY_TYPE_HOST,
    };
    ucs_status_ptr_t request = ucp_am_recv_data_nbx(
        self->raw.worker, data, slot_buffer(slot), bytes, &param);

    if (!UCS_PTR_IS_PTR(request)) {
        fetched(NULL, UCS_PTR_STATUS(request), bytes, slot);
    }
}

static ucs_status_t am_arrived(void *arg, const void *header,
                               size_t header_bytes, void *data, size_t bytes,
                               const ucp_am_recv_param_t *param)
{
    raw_side_t *self = arg;

    (void)header;
    (void)header_bytes;
    if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) {
        fetch(self, data, bytes);
    } else {
        arrived(self, data, bytes);
    }
    return UCS_OK;
}

static void sent(void *request, ucs_status_t status, void *arg)
{
    slot_t *slot = arg;

    bench_raw_must(status, "a send");
    slot->busy = false;
    slot->self->side.in_flight--;
    if (request != NULL) {
        ucp_request_free(request);
    }
}

static uint32_t protocol_flag(bench_protocol_t protocol)
{
    return protocol == BENCH_EAGER  ? UCP_AM_SEND_FLAG_EAGER
           : protocol == BENCH_RNDV ? UCP_AM_SEND_FLAG_RNDV
                                    : 0;
}

static void post(raw_side_t *self, slot_t *slot, const void *data, size_t count,
                 bool iov, bench_protocol_t protocol)
{
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_DATATYPE |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FIELD_FLAGS,
        .cb.send = sent,
        .user_data = slot,
        .datatype = iov ? ucp_dt_make_iov() : ucp_dt_make_contig(1),
        .memory_type = UCS_MEMORY_TYPE_HOST,
        .flags = protocol_flag(protocol),
    };
    ucs_status_ptr_t request;

    self->side.in_flight++;
    request =
        ucp_am_send_nbx(self->ep, BENCH_RAW_AM, NULL, 0, data, count, &param);
    if (!UCS_PTR_IS_PTR(request)) {
        sent(NULL, UCS_PTR_STATUS(request), slot);
    }
}

static const uint8_t *gather(const bench_payload_t *payload, uint8_t *to)
{
    uint8_t *end = to;

    for (size_t i = 0; i < payload->map->count; i++) {
        memcpy(end, payload->data[i], payload->map->tensors[i].bytes);
        end += payload->map->tensors[i].bytes;
    }
    return to;
}

static void send_payload(bench_side_t *side)
{
    raw_side_t *self = (raw_side_t *)side;
    const ucp_dt_iov_t *iov = self->iov[side->turn];
    const bench_payload_t *payload = bench_side_next(side);
    slot_t *slot = take_slot(self, self->sending);

    switch (self->way.layout) {
    case BENCH_IOV:
        post(self, slot, iov, payload->map->count, true, self->way.protocol);
        break;
    case BENCH_GATHER:
        post(self, slot, gather(payload, slot_buffer(slot)),
             payload->map->bytes, false, self->way.protocol);
        break;
    case BENCH_CONTIGUOUS:
    case BENCH_MAP:
    case BENCH_LINES:
    case BENCH_GRPC:
        post(self, slot, payload->whole, payload->map->bytes, false,
             self->way.protocol);
        break;
    }
}

static void send_answer(bench_side_t *side)
{
    raw_side_t *self = (raw_side_t *)side;

    post(self, take_slot(self, self->sending), NULL, 0, false, BENCH_EAGER);
}

static void progress(bench_side_t *side)
{
    raw_side_t *self = (raw_side_t *)side;

    if (ucp_worker_progress(self->raw.worker) == 0 && self->sleeps) {
        bench_raw_must(ucp_worker_wait(self->raw.worker), "ucp_worker_wait");
    }
}

static ucp_dt_iov_t *make_iov(const bench_payload_t *payload)
{
    ucp_dt_iov_t *iov = bench_memory(payload->map->count * sizeof(*iov));

    for (size_t i = 0; i < payload->map->count; i++) {
        iov[i].buffer = payload->data[i];
        iov[i].length = payload->map->tensors[i].bytes;
    }
    return iov;
}

static void make_lists(raw_side_t *self)
{
    const bench_side_t *side = &self->side;

    self->iov = bench_memory(side->payload_count * sizeof(*self->iov));
    for (size_t i = 0; i < side->payload_count; i++) {
        size_t bytes = side->payloads[i].map->bytes;

        self->iov[i] = make_iov(&side->payloads[i]);
        self->largest = bytes > self->largest ? bytes : self->largest;
    }
}

static void close_raw_side(bench_side_t *side)
{
    raw_side_t *self = (raw_side_t *)side;

    bench_raw_disconnect(&self->raw, self->ep);
    bench_raw_stop(&self->raw);
    for (size_t i = 0; i < BENCH_WINDOW_MAX; i++) {
        free(self->sending[i].buffer);
        free(self->receiving[i].buffer);
    }
    for (size_t i = 0; i < side->payload_count; i++) {
        free(self->iov[i]);
    }
    free(self->iov);
    bench_side_unload(side);
    free(self);
}

bench_side_t *bench_raw_open(const bench_run_t *run, int socket)
{
    static uint8_t theirs[BENCH_RAW_ADDRESS_BYTES_MAX];
    raw_side_t *self = bench_memory(sizeof(*self));

    self->side.send = send_payload;
    self->side.answer = send_answer;
    self->side.progress = progress;
    self->side.close = close_raw_side;
    self->way = run->way;
    self->sleeps = run->sleeps;
    bench_side_load(&self->side, run, run->way.layout == BENCH_CONTIGUOUS);
    make_lists(self);
    bench_raw_start(&self->raw, run->way.settings, run->sleeps, run->transport,
                    am_arrived, self);
    bench_raw_tell(&self->raw, socket);
    bench_hear(socket, theirs, sizeof(theirs));
    self->ep = bench_raw_connect(&self->raw, theirs);
    return &self->side;
}
