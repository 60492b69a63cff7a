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
        bytes != BENCH_MANY_TENSORS * BENCH_MANY_TENSOR_BYTES) {
        bench_die("raw UCX: %zu bytes arrived", bytes);
    }
    ((raws_t *)arg)->received++;
    return UCS_OK;
}

static void serve(raws_t *self)
{
    const bench_many_t *many = self->player->many;
    double rates[BENCH_BLOCKS_MAX];

    bench_raw_tell(&self->raw, self->player->socket);
    for (unsigned i = 0; i <= many->blocks; i++) {
        uint64_t wanted = self->received + many->messages;
        double begin;

        bench_many_meet(self->player);
        begin = bench_now();
        while (self->received < wanted) {
            ucp_worker_progress(self->raw.worker);
        }
        if (i > 0) { /* else the warm-up */
            rates[i - 1] = many->messages / (bench_now() - begin);
        }
    }
    bench_many_tell(self->player, rates, 0);
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
    static uint8_t data[BENCH_MANY_TENSORS * BENCH_MANY_TENSOR_BYTES];
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
static void send_block(raws_t *self, const ucp_ep_h *eps)
{
    const bench_many_t *many = self->player->many;
    unsigned messages = many->messages / many->clients;

    for (unsigned i = 0; i < messages; i++) {
        while (self->in_flight >= BENCH_MANY_AHEAD) {
            ucp_worker_progress(self->raw.worker);
        }
        if (i % BENCH_MANY_AHEAD == 0) {
            ucp_worker_progress(self->raw.worker);
        }
        send_one(self, eps[i % self->player->share]);
    }
    flush(self);
}

static void be_client(raws_t *self)
{
    static uint8_t address[BENCH_RAW_ADDRESS_BYTES_MAX];
    unsigned share = self->player->share;
    ucp_ep_h *eps = bench_memory(share * sizeof(*eps));

    bench_hear(self->player->socket, address, sizeof(address));
    for (unsigned i = 0; i < share; i++) {
        eps[i] = bench_raw_connect(&self->raw, address);
    }
    for (unsigned i = 0; i <= self->player->many->blocks; i++) {
        bench_many_meet(self->player);
        send_block(self, eps);
    }
    bench_many_tell(self->player, NULL, 0);
}

void bench_many_play_raw(const bench_player_t *self, bool serving)
{
    raws_t raws = {.player = self};

    bench_raw_start(&raws.raw, self->many->way.settings, false,
                    self->many->transport, arrived, &raws);
    if (serving) {
        serve(&raws);
    } else {
        be_client(&raws);
    }
}
