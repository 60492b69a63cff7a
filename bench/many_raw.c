/* SPDX-License-Identifier: BSD-3-Clause */
/* The same bytes by ucp_am alone: each message one piece with a header as long
 * as ours, eagerly, and nothing that is said back. */
#include <string.h>

#include "many.h"
#include "raw.h"
#include "side.h"

#define HEADER_BYTES 41 /* of ours, once the layout is known: by strace(1) */

typedef struct {
    const bench_player_t *player;
    bench_raw_t raw;
    ucp_ep_h *eps; /* a client's */
    uint64_t received;
    unsigned in_flight;
} raws_t;

static ucs_status_t arrived(void *arg, const void *header, size_t header_bytes,
                            void *data, size_t bytes,
                            const ucp_am_recv_param_t *param)
{
    (void)header;
    (void)data;
    (void)param;
    if (header_bytes != HEADER_BYTES ||
        bytes != BENCH_SMALL_TENSORS * BENCH_SMALL_BYTES) {
        bench_die("raw UCX: %zu bytes arrived", bytes);
    }
    ((raws_t *)arg)->received++;
    return UCS_OK;
}

static void take_block(void *arg)
{
    raws_t *self = arg;
    uint64_t wanted = self->received + self->player->many->messages;

    while (self->received < wanted) {
        ucp_worker_progress(self->raw.worker);
    }
}

static void sent(void *request, ucs_status_t status, void *arg)
{
    bench_raw_must(status, "a send");
    ((raws_t *)arg)->in_flight--;
    ucp_request_free(request);
}

static void send_one(raws_t *self, ucp_ep_h ep)
{
    static uint8_t header[HEADER_BYTES];
    static uint8_t data[BENCH_SMALL_TENSORS * BENCH_SMALL_BYTES];
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE,
        .cb.send = sent,
        .user_data = self,
        .memory_type = UCS_MEMORY_TYPE_HOST,
        .flags = UCP_AM_SEND_FLAG_EAGER,
    };
    ucs_status_ptr_t request = ucp_am_send_nbx(
        ep, BENCH_RAW_AM, header, sizeof(header), data, sizeof(data), &param);

    if (UCS_PTR_IS_PTR(request)) {
        self->in_flight++;
    } else {
        bench_raw_must(UCS_PTR_STATUS(request), "a send");
    }
}

/* What UCX has in its own buffers yet goes, too, before the next block. */
static void flush(raws_t *self)
{
    const ucp_request_param_t param = {.op_attr_mask = 0};
    ucs_status_ptr_t request = ucp_worker_flush_nbx(self->raw.worker, &param);

    while (UCS_PTR_IS_PTR(request) &&
           ucp_request_check_status(request) == UCS_INPROGRESS) {
        ucp_worker_progress(self->raw.worker);
    }
    if (UCS_PTR_IS_PTR(request)) {
        ucp_request_free(request);
    }
}

/* In turn over all, and as many ahead as with maps: those that UCX has taken at
 * once count too, which a client that never progressed would not send. */
static void send_block(void *arg)
{
    raws_t *self = arg;
    const bench_many_t *many = self->player->many;
    unsigned messages = many->messages / many->clients;

    for (unsigned i = 0; i < messages; i++) {
        while (self->in_flight >= BENCH_MANY_AHEAD) {
            ucp_worker_progress(self->raw.worker);
        }
        if (i % BENCH_MANY_AHEAD == 0) {
            ucp_worker_progress(self->raw.worker);
        }
        send_one(self, self->eps[i % self->player->share]);
    }
    flush(self);
}

static void connect_all(raws_t *self)
{
    static uint8_t address[BENCH_RAW_ADDRESS_BYTES_MAX];
    unsigned share = self->player->share;

    self->eps = bench_memory(share * sizeof(*self->eps));
    bench_hear(self->player->socket, address, sizeof(address));
    for (unsigned i = 0; i < share; i++) {
        self->eps[i] = bench_raw_connect(&self->raw, address);
    }
}

void bench_many_play_raw(const bench_player_t *self)
{
    raws_t raws = {.player = self};

    bench_raw_start(&raws.raw, self->many->way.settings, false,
                    self->many->transport, arrived, &raws);
    if (self->serves) {
        bench_raw_tell(&raws.raw, self->socket);
    } else {
        connect_all(&raws);
    }
    bench_many_blocks(self, self->serves ? take_block : send_block, &raws);
}
