/* SPDX-License-Identifier: BSD-3-Clause */
/* Maps as multipart messages of ZeroMQ, one part a piece, sent and received
 * without a copy of ours (zmq_msg_init_data, zmq_msg_data), as its guide says.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zmq.h>

#include "way.h"

#define KEY_BYTES 41 /* of CURVE, as text (Z85) with its end */

typedef struct {
    compare_framed_t framed;
    void *context;
    void *socket;
    zmq_msg_t *parts; /* of the message that arrived last */
    size_t room;
} zmq_side_t;

static void must(bool right, const char *what)
{
    if (!right) {
        bench_die("ZeroMQ: %s: %s", what, zmq_strerror(zmq_errno()));
    }
}

static void send_part(zmq_side_t *self, zmq_msg_t *part, bool more)
{
    must(zmq_msg_send(part, self->socket, more ? ZMQ_SNDMORE : 0) >= 0,
         "zmq_msg_send");
}

static void send_piece(zmq_side_t *self, framing_piece_t piece, bool more)
{
    zmq_msg_t part;

    must(zmq_msg_init_data(&part, piece.data, piece.bytes, NULL, NULL) == 0,
         "a part");
    send_part(self, &part, more);
}

/* Head and large tensors go as they lie. */
static void send_payload(bench_side_t *side)
{
    zmq_side_t *self = (zmq_side_t *)side;
    const framing_out_t *out = compare_framed_next(&self->framed);

    zmq_msg_t small;

    send_piece(self, out->head, out->payload->map->bytes > 0);
    if (out->small_bytes > 0) {
        must(zmq_msg_init_size(&small, out->small_bytes) == 0, "a part");
        framing_gather(out, zmq_msg_data(&small));
        send_part(self, &small, out->large_count > 0);
    }
    for (size_t i = 0; i < out->large_count; i++) {
        send_piece(self, out->large[i], i + 1 < out->large_count);
    }
}

static void send_answer(bench_side_t *side)
{
    zmq_msg_t empty;

    zmq_msg_init(&empty);
    send_part((zmq_side_t *)side, &empty, false);
}

static void make_room(zmq_side_t *self, size_t count)
{
    if (count > self->room) {
        size_t room = count * 2;
        zmq_msg_t *parts = bench_memory(room * sizeof(*parts));

        for (size_t i = 0; i < room; i++) {
            zmq_msg_init(&parts[i]);
            if (i < self->room) {
                zmq_msg_move(&parts[i], &self->parts[i]);
            }
        }
        free(self->parts);
        self->parts = parts;
        self->room = room;
    }
}

static size_t receive(zmq_side_t *self)
{
    size_t count = 0;

    do {
        make_room(self, count + 1);
        must(zmq_msg_recv(&self->parts[count], self->socket, 0) >= 0,
             "zmq_msg_recv");
    } while (zmq_msg_more(&self->parts[count++]));
    return count;
}

static void place(zmq_side_t *self, size_t count)
{
    framing_in_t *in = &self->framed.in;
    size_t next = 0, part = 1;

    if (in->small_bytes > 0 && part < count) {
        framing_place_small(in, zmq_msg_data(&self->parts[part++]));
    }
    while (part < count) {
        framing_place_large(in, &next, zmq_msg_data(&self->parts[part++]));
    }
}

static void progress(bench_side_t *side)
{
    zmq_side_t *self = (zmq_side_t *)side;
    size_t count = receive(self);

    if (zmq_msg_size(&self->parts[0]) == 0) {
        compare_framed_answered(&self->framed);
        return;
    }
    framing_read(&self->framed.in, zmq_msg_data(&self->parts[0]),
                 zmq_msg_size(&self->parts[0]));
    place(self, count);
    compare_framed_arrived(&self->framed);
}

static void close_side(bench_side_t *side)
{
    zmq_side_t *self = (zmq_side_t *)side;

    for (size_t i = 0; i < self->room; i++) {
        zmq_msg_close(&self->parts[i]);
    }
    zmq_close(self->socket);
    zmq_ctx_term(self->context);
    free(self->parts);
    compare_framed_unload(&self->framed);
    free(self);
}

/* The listening side tells its public key; any key of the dialling side will
 * do, which matters to the handshake alone. */
static void encrypt(zmq_side_t *self, bool dialling, int socket)
{
    char public_key[KEY_BYTES], secret_key[KEY_BYTES], theirs[KEY_BYTES];
    int serves = 1;

    must(zmq_has("curve") == 1 &&
             zmq_curve_keypair(public_key, secret_key) == 0 &&
             zmq_setsockopt(self->socket, ZMQ_CURVE_SECRETKEY, secret_key,
                            KEY_BYTES) == 0,
         "CURVE");
    if (!dialling) {
        must(zmq_setsockopt(self->socket, ZMQ_CURVE_SERVER, &serves,
                            sizeof(serves)) == 0,
             "CURVE's listening side");
        bench_tell(socket, public_key, KEY_BYTES);
        return;
    }
    bench_hear(socket, theirs, KEY_BYTES);
    must(zmq_setsockopt(self->socket, ZMQ_CURVE_PUBLICKEY, public_key,
                        KEY_BYTES) == 0 &&
             zmq_setsockopt(self->socket, ZMQ_CURVE_SERVERKEY, theirs,
                            KEY_BYTES) == 0,
         "CURVE's dialling side");
}

static void meet(zmq_side_t *self, const bench_run_t *run, bool dialling,
                 int socket)
{
    char place[256] = "tcp://127.0.0.1:*";
    size_t bytes = sizeof(place);

    if (dialling) {
        place[bench_hear(socket, place, sizeof(place) - 1)] = '\0';
        must(zmq_connect(self->socket, place) == 0, place);
        return;
    }
    if (run->transport == BENCH_SHM) {
        snprintf(place, sizeof(place), "ipc://%s/socket", run->folder);
    }
    must(zmq_bind(self->socket, place) == 0, place);
    must(zmq_getsockopt(self->socket, ZMQ_LAST_ENDPOINT, place, &bytes) == 0,
         "the place");
    bench_tell(socket, place, bytes);
}

bench_side_t *compare_zmq_open(const bench_run_t *run, bool dialling,
                               int socket)
{
    zmq_side_t *self = bench_memory(sizeof(*self));
    int most = BENCH_WINDOW_MAX, linger = 0;

    self->framed.side.send = send_payload;
    self->framed.side.answer = send_answer;
    self->framed.side.progress = progress;
    self->framed.side.close = close_side;
    compare_framed_load(&self->framed, run);
    self->context = zmq_ctx_new();
    self->socket = zmq_socket(self->context, ZMQ_DEALER);
    must(self->socket != NULL, "a socket");
    zmq_setsockopt(self->socket, ZMQ_SNDHWM, &most, sizeof(most));
    zmq_setsockopt(self->socket, ZMQ_RCVHWM, &most, sizeof(most));
    zmq_setsockopt(self->socket, ZMQ_LINGER, &linger, sizeof(linger));
    if (run->encrypted) {
        encrypt(self, dialling, socket);
    }
    meet(self, run, dialling, socket);
    return &self->framed.side;
}

const char *compare_zmq_version(void)
{
    static char text[32];
    int major, minor, patch;

    zmq_version(&major, &minor, &patch);
    snprintf(text, sizeof(text), "%d.%d.%d", major, minor, patch);
    return text;
}
