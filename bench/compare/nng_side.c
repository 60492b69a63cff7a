/* SPDX-License-Identifier: BSD-3-Clause */
/* Maps as messages of nng, whose body is one piece: what is sent is copied into
 * it, what arrives is used where it lies. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <nng/nng.h>
#include <nng/protocol/pair0/pair.h>

#include "way.h"

typedef struct {
    compare_framed_t framed;
    nng_socket socket;
    nng_msg *message; /* that arrived last */
} nng_side_t;

static void must(int status, const char *what)
{
    if (status != 0) {
        bench_die("nng: %s: %s", what, nng_strerror(status));
    }
}

/* The head, which says itself where it ends, small tensors, large ones. */
static void send_payload(bench_side_t *side)
{
    nng_side_t *self = (nng_side_t *)side;
    const framing_out_t *out = compare_framed_next(&self->framed);
    nng_msg *message;
    uint8_t *end;

    must(nng_msg_alloc(&message, out->head.bytes + out->payload->map->bytes),
         "memory");
    end = nng_msg_body(message);
    memcpy(end, out->head.data, out->head.bytes);
    end += out->head.bytes;
    framing_gather(out, end);
    end += out->small_bytes;
    for (size_t i = 0; i < out->large_count; i++) {
        memcpy(end, out->large[i].data, out->large[i].bytes);
        end += out->large[i].bytes;
    }
    must(nng_sendmsg(self->socket, message, 0), "nng_sendmsg");
}

static void send_answer(bench_side_t *side)
{
    nng_msg *message;

    must(nng_msg_alloc(&message, 0), "memory");
    must(nng_sendmsg(((nng_side_t *)side)->socket, message, 0), "nng_sendmsg");
}

static void place(nng_side_t *self, const uint8_t *data, const uint8_t *end)
{
    framing_in_t *in = &self->framed.in;
    size_t next = 0;

    framing_place_small(in, data);
    data += in->small_bytes;
    while (data < end) {
        framing_place_large(in, &next, data);
        data += in->tensors[next - 1].bytes;
    }
}

static void progress(bench_side_t *side)
{
    nng_side_t *self = (nng_side_t *)side;
    const uint8_t *body;
    size_t bytes;

    nng_msg_free(self->message);
    self->message = NULL;
    must(nng_recvmsg(self->socket, &self->message, 0), "nng_recvmsg");
    body = nng_msg_body(self->message);
    bytes = nng_msg_len(self->message);
    if (bytes == 0) {
        compare_framed_answered(&self->framed);
        return;
    }
    place(self, body + framing_read(&self->framed.in, body, bytes),
          body + bytes);
    compare_framed_arrived(&self->framed);
}

static void close_side(bench_side_t *side)
{
    nng_side_t *self = (nng_side_t *)side;

    nng_msg_free(self->message);
    nng_close(self->socket);
    compare_framed_unload(&self->framed);
    free(self);
}

static void accept_one(nng_side_t *self, const bench_run_t *run, int socket)
{
    char place[256] = "tcp://127.0.0.1:0";
    nng_sockaddr address;
    nng_listener listener;

    if (run->transport == BENCH_SHM) {
        snprintf(place, sizeof(place), "ipc://%s/socket", run->folder);
    }
    must(nng_listen(self->socket, place, &listener, 0), place);
    if (run->transport == BENCH_TCP) {
        must(nng_listener_get_addr(listener, NNG_OPT_LOCADDR, &address),
             "the address");
        snprintf(place, sizeof(place), "tcp://127.0.0.1:%u",
                 (unsigned)ntohs(address.s_in.sa_port));
    }
    bench_tell(socket, place, strlen(place));
}

bench_side_t *compare_nng_open(const bench_run_t *run, bool dialling,
                               int socket)
{
    nng_side_t *self = bench_memory(sizeof(*self));

    self->framed.side.send = send_payload;
    self->framed.side.answer = send_answer;
    self->framed.side.progress = progress;
    self->framed.side.close = close_side;
    compare_framed_load(&self->framed, run);
    must(nng_pair0_open(&self->socket), "a socket");
    must(nng_socket_set_size(self->socket, NNG_OPT_RECVMAXSZ, 0), "no limit");
    must(nng_socket_set_int(self->socket, NNG_OPT_SENDBUF, BENCH_WINDOW_MAX),
         "a buffer");
    must(nng_socket_set_int(self->socket, NNG_OPT_RECVBUF, BENCH_WINDOW_MAX),
         "a buffer");
    if (dialling) {
        char place[256];

        place[bench_hear(socket, place, sizeof(place) - 1)] = '\0';
        must(nng_dial(self->socket, place, NULL, 0), place);
    } else {
        accept_one(self, run, socket);
    }
    return &self->framed.side;
}

const char *compare_nng_version(void) { return nng_version(); }
