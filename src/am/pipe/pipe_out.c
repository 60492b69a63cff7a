/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes frames. Small ones go first, and between two of their batches a piece
 * of a payload that was asked for. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am/pipe/pipe_struct.h"

#define PLACES 64 /* by one call */
#define TURN_BYTES ((size_t)256 * 1024)

/* Lists what is left of a frame, a bounded part of it. Returns the number of
 * places; 2 at least are there. */
static size_t list_frame(const tmsg_pipe_out_t *out, struct iovec *places,
                         size_t room)
{
    const size_t head = sizeof(out->frame);
    size_t done = out->head_done, count = 0;

    if (done < head) {
        places[count++] =
            (struct iovec){(void *)(uintptr_t)(out->frame + done), head - done};
        done = head;
    }
    if (done < head + out->header_bytes) {
        places[count++] =
            (struct iovec){(uint8_t *)(uintptr_t)out->header + (done - head),
                           head + out->header_bytes - done};
    }
    return count + tmsg_pieces_list(&out->payload, SIZE_MAX, places + count,
                                    room - count);
}

/* Counts bytes of a frame as written. Returns how many of `moved` are left. */
static size_t pass_frame(tmsg_pipe_out_t *out, size_t moved)
{
    size_t head = sizeof(out->frame) + out->header_bytes - out->head_done;
    size_t of_head = moved < head ? moved : head;
    size_t of_payload = moved - of_head;

    out->head_done += of_head;
    if (of_payload > out->payload.left) {
        of_payload = (size_t)out->payload.left;
    }
    tmsg_pieces_pass(&out->payload, of_payload);
    return moved - of_head - of_payload;
}

static bool is_written(const tmsg_pipe_out_t *out)
{
    return out->head_done == sizeof(out->frame) + out->header_bytes &&
           out->payload.left == 0;
}

/* Notes that nothing can be written any more. Reading goes on: it finds what
 * the peer said before. */
static void break_out(tmsg_pipe_t *pipe, const char *why)
{
    if (pipe->broken[0] == '\0') {
        snprintf(pipe->broken, sizeof(pipe->broken), "%s", why);
    }
    tmsg_pipe_wait(pipe, false);
    tmsg_pipe_stir(pipe);
}

/* Returns whether the socket has all that was written. If not, the loop tells
 * when it can have more. */
static bool settle(tmsg_pipe_t *pipe)
{
    if (pipe->io->flush == NULL || pipe->io->flush(pipe->io_arg)) {
        return true;
    }
    tmsg_pipe_wait(pipe, true);
    return false;
}

/* Returns the bytes that a call wrote; 0: none can be written now, or ever.
 * *unreadable_p: memory of this process cannot be read. */
static size_t call_write(tmsg_pipe_t *pipe, const struct iovec *places,
                         size_t count, bool *unreadable_p)
{
    ssize_t moved;

    *unreadable_p = false;
    if (pipe->broken[0] != '\0' || pipe->waits) {
        return 0;
    }
    moved = pipe->io->write(pipe->io_arg, places, count);
    if (moved >= 0) {
        pipe->moved.written += (size_t)moved;
        settle(pipe);
        return (size_t)moved;
    }
    if (errno == EFAULT) {
        *unreadable_p = true;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) {
        tmsg_pipe_wait(pipe, true);
    } else if (errno != EINTR) {
        break_out(pipe, strerror(errno));
    }
    return 0;
}

static bool is_between_frames(const tmsg_pipe_t *pipe)
{
    const tmsg_node_t *first = pipe->out.head;

    return pipe->piece.offered == NULL &&
           (first == NULL ||
            TMSG_CONTAINER_OF(pipe->out.head, tmsg_pipe_out_t, node)
                    ->head_done == 0);
}

/* Returns whether the next frame that is put may be written at once. */
static bool is_first(const tmsg_pipe_t *pipe)
{
    return pipe->out.count == 0 && is_between_frames(pipe) && !pipe->waits &&
           pipe->broken[0] == '\0';
}

void tmsg_pipe_put(tmsg_pipe_t *pipe, tmsg_pipe_out_t *out)
{
    struct iovec places[PLACES];
    bool unreadable;

    if (is_first(pipe)) {
        pass_frame(out,
                   call_write(pipe, places, list_frame(out, places, PLACES),
                              &unreadable));
        if (is_written(out)) {
            out->written(pipe, out, TMSG_PIPE_OK);
            return;
        }
    }
    tmsg_list_push(&pipe->out, &out->node);
    if (!pipe->waits) {
        tmsg_pipe_stir(pipe);
    }
}

static void end_out(tmsg_pipe_t *pipe, tmsg_pipe_out_t *out)
{
    tmsg_list_remove(&pipe->out, &out->node);
    out->written(pipe, out, TMSG_PIPE_OK);
}

static size_t write_frames(tmsg_pipe_t *pipe)
{
    struct iovec places[PLACES];
    size_t count = 0, moved, all;
    bool unreadable;

    for (tmsg_node_t *node = pipe->out.head; node != NULL && count + 2 < PLACES;
         node = node->next) {
        const tmsg_pipe_out_t *out =
            TMSG_CONTAINER_OF(node, tmsg_pipe_out_t, node);

        count += list_frame(out, places + count, PLACES - count);
    }
    all = count == 0 ? 0 : call_write(pipe, places, count, &unreadable);
    if (count > 0 && unreadable) {
        break_out(pipe, "memory of a message that was being sent cannot be "
                        "read");
    }
    moved = all;
    while (pipe->out.head != NULL) {
        tmsg_pipe_out_t *out =
            TMSG_CONTAINER_OF(pipe->out.head, tmsg_pipe_out_t, node);

        moved = pass_frame(out, moved);
        if (!is_written(out)) {
            break;
        }
        end_out(pipe, out);
        all += all == 0; /* something was done */
    }
    return all;
}

static void begin_piece(tmsg_pipe_t *pipe)
{
    tmsg_pipe_piece_t *piece = &pipe->piece;
    tmsg_pipe_offered_t *offered =
        TMSG_CONTAINER_OF(pipe->granted.head, tmsg_pipe_offered_t, out.node);
    uint64_t left = offered->payload.left;

    piece->offered = offered;
    piece->left =
        left < TMSG_PIPE_PIECE_MOST ? (size_t)left : TMSG_PIPE_PIECE_MOST;
    piece->frame_left = sizeof(piece->frame);
    piece->fills = false;
    tmsg_pipe_fill_frame(piece->frame, TMSG_PIPE_FRAME_DATA, 0, offered->id,
                         piece->left);
}

static void free_offered(tmsg_pipe_t *pipe, tmsg_pipe_offered_t *offered)
{
    pipe->offered[offered->id] = NULL;
    pipe->offered_count--;
    free(offered);
}

static void end_offered(tmsg_pipe_t *pipe, tmsg_pipe_offered_t *offered,
                        tmsg_pipe_status_t status)
{
    tmsg_pipe_sent_t sent = offered->out.sent;
    void *arg = offered->out.arg;

    free_offered(pipe, offered);
    sent(NULL, status, arg);
}

static void lost_written(tmsg_pipe_t *pipe, tmsg_pipe_out_t *out,
                         tmsg_pipe_status_t status)
{
    (void)status;
    end_offered(pipe, TMSG_CONTAINER_OF(out, tmsg_pipe_offered_t, out),
                TMSG_PIPE_UNREADABLE);
}

/* Tells the peer that the rest of a payload cannot be read. */
static void give_up_offered(tmsg_pipe_t *pipe, tmsg_pipe_offered_t *offered)
{
    tmsg_pipe_out_t *out = &offered->out;

    out->header_bytes = 0;
    out->head_done = 0;
    out->payload.left = 0;
    out->written = lost_written;
    tmsg_pipe_fill_frame(out->frame, TMSG_PIPE_FRAME_LOST, 0, offered->id, 0);
    tmsg_list_remove(&pipe->granted, &out->node);
    tmsg_list_push(&pipe->out, &out->node);
}

static void end_piece(tmsg_pipe_t *pipe)
{
    tmsg_pipe_offered_t *offered = pipe->piece.offered;

    pipe->piece.offered = NULL;
    if (pipe->piece.fills) {
        give_up_offered(pipe, offered);
        return;
    }
    tmsg_list_remove(&pipe->granted, &offered->out.node);
    if (offered->payload.left > 0) { /* others have their turn */
        tmsg_list_push(&pipe->granted, &offered->out.node);
    } else {
        end_offered(pipe, offered, TMSG_PIPE_OK);
    }
}

static size_t write_piece(tmsg_pipe_t *pipe)
{
    tmsg_pipe_piece_t *piece = &pipe->piece;
    tmsg_pieces_t *payload = &piece->offered->payload;
    struct iovec places[PLACES];
    size_t count = piece->frame_left > 0, moved, of_frame;
    bool unreadable;

    places[0] =
        (struct iovec){piece->frame + sizeof(piece->frame) - piece->frame_left,
                       piece->frame_left};
    count += piece->fills ? tmsg_pieces_list_zeros(piece->left, places + count,
                                                   PLACES - count)
                          : tmsg_pieces_list(payload, piece->left,
                                             places + count, PLACES - count);
    moved = call_write(pipe, places, count, &unreadable);
    if (unreadable) {
        piece->fills = true;
        return 1; /* it goes on */
    }
    of_frame = moved < piece->frame_left ? moved : piece->frame_left;
    piece->frame_left -= of_frame;
    piece->left -= moved - of_frame;
    if (!piece->fills) {
        tmsg_pieces_pass(payload, moved - of_frame);
    }
    if (piece->frame_left == 0 && piece->left == 0) {
        end_piece(pipe);
    }
    return moved;
}

bool tmsg_pipe_has_output(const tmsg_pipe_t *pipe)
{
    return !pipe->waits && pipe->broken[0] == '\0' &&
           (pipe->out.count > 0 || pipe->granted.count > 0);
}

size_t tmsg_pipe_write(tmsg_pipe_t *pipe)
{
    size_t all = 0, moved = settle(pipe);

    while (moved > 0 && all < TURN_BYTES && !pipe->over) {
        if (pipe->piece.offered == NULL && pipe->granted.count > 0 &&
            is_between_frames(pipe) &&
            (pipe->out.count == 0 || pipe->after_out)) {
            begin_piece(pipe);
        }
        pipe->after_out = pipe->piece.offered == NULL;
        moved = pipe->piece.offered != NULL ? write_piece(pipe)
                : pipe->out.count > 0       ? write_frames(pipe)
                                            : 0;
        all += moved;
    }
    return all;
}

static size_t send_bytes(const tmsg_pipe_send_t *send)
{
    const struct iovec *list = send->data;
    size_t bytes = 0;

    for (size_t i = 0; i < send->pieces; i++) {
        bytes += list[i].iov_len;
    }
    return send->pieces == 0 ? send->bytes : bytes;
}

static void message_written(tmsg_pipe_t *pipe, tmsg_pipe_out_t *out,
                            tmsg_pipe_status_t status)
{
    tmsg_pipe_sent_t sent = out->sent;
    void *arg = out->arg;

    (void)pipe;
    free(out);
    sent(NULL, status, arg);
}

static tmsg_pipe_status_t send_eager(tmsg_pipe_t *pipe,
                                     const tmsg_pipe_send_t *send, size_t bytes,
                                     tmsg_pipe_sent_t sent, void *arg)
{
    struct iovec places[PLACES];
    tmsg_pipe_out_t now = {.header = send->header,
                           .header_bytes = send->header_bytes,
                           .written = message_written,
                           .sent = sent,
                           .arg = arg};
    tmsg_pipe_out_t *out;
    bool unreadable;

    tmsg_pipe_fill_frame(now.frame, TMSG_PIPE_FRAME_EAGER, send->header_bytes,
                         0, bytes);
    tmsg_pieces_begin(&now.payload, send->data, send->pieces, bytes);
    if (is_first(pipe)) {
        pass_frame(&now,
                   call_write(pipe, places, list_frame(&now, places, PLACES),
                              &unreadable));
        if (unreadable) {
            return TMSG_PIPE_UNREADABLE;
        }
        if (is_written(&now)) {
            return TMSG_PIPE_OK;
        }
    }
    out = malloc(sizeof(*out));
    if (out == NULL) {
        if (now.head_done > 0) {
            break_out(pipe, "no memory for a message that was being sent");
        }
        return TMSG_PIPE_NO_MEMORY;
    }
    *out = now;
    if (now.payload.at == &now.payload.one) {
        out->payload.at = &out->payload.one;
    }
    tmsg_list_push(&pipe->out, &out->node);
    if (!pipe->waits) {
        tmsg_pipe_stir(pipe);
    }
    return TMSG_PIPE_IN_PROGRESS;
}

/* Finds a free id. Returns whether there is one, and memory for it. */
static bool find_id(tmsg_pipe_t *pipe, uint32_t *id_p)
{
    uint32_t at = pipe->offered_next;

    if (pipe->offered_count >= TMSG_PIPE_OFFERS_MOST ||
        (pipe->offered_count >= pipe->offered_room &&
         !tmsg_pipe_grow(&pipe->offered, &pipe->offered_room,
                         pipe->offered_count))) {
        return false;
    }
    while (pipe->offered[at % pipe->offered_room] != NULL) {
        at++;
    }
    *id_p = at % pipe->offered_room;
    pipe->offered_next = *id_p + 1;
    return true;
}

static void offer_written(tmsg_pipe_t *pipe, tmsg_pipe_out_t *out,
                          tmsg_pipe_status_t status)
{
    (void)pipe;
    TMSG_CONTAINER_OF(out, tmsg_pipe_offered_t, out)->told =
        status == TMSG_PIPE_OK;
}

static tmsg_pipe_status_t send_offer(tmsg_pipe_t *pipe,
                                     const tmsg_pipe_send_t *send, size_t bytes,
                                     tmsg_pipe_sent_t sent, void *arg)
{
    tmsg_pipe_offered_t *offered = calloc(1, sizeof(*offered));
    uint32_t id;

    if (offered == NULL || !find_id(pipe, &id)) {
        free(offered);
        return TMSG_PIPE_NO_MEMORY;
    }
    pipe->offered[id] = offered;
    pipe->offered_count++;
    offered->id = id;
    offered->out.header = send->header;
    offered->out.header_bytes = send->header_bytes;
    offered->out.written = offer_written;
    offered->out.sent = sent;
    offered->out.arg = arg;
    tmsg_pieces_begin(&offered->payload, send->data, send->pieces, bytes);
    tmsg_pipe_fill_frame(offered->out.frame, TMSG_PIPE_FRAME_OFFER,
                         send->header_bytes, id, bytes);
    tmsg_pipe_put(pipe, &offered->out);
    return TMSG_PIPE_IN_PROGRESS;
}

tmsg_pipe_status_t tmsg_pipe_send(tmsg_pipe_t *pipe,
                                  const tmsg_pipe_send_t *send,
                                  tmsg_pipe_sent_t sent, void *arg)
{
    size_t bytes = send_bytes(send);
    size_t most = send->flags & TMSG_PIPE_EAGER ? TMSG_PIPE_EAGER_MOST
                                                : TMSG_PIPE_EAGER_USUAL;

    if (send->header_bytes == 0 || send->header_bytes > TMSG_PIPE_HEADER_MOST) {
        return TMSG_PIPE_INVALID_PARAM;
    }
    if (pipe->over || pipe->broken[0] != '\0') {
        return TMSG_PIPE_LOST;
    }
    return bytes > most || (bytes > 0 && send->flags & TMSG_PIPE_OFFERED)
               ? send_offer(pipe, send, bytes, sent, arg)
               : send_eager(pipe, send, bytes, sent, arg);
}

const char *tmsg_pipe_answered(tmsg_pipe_t *pipe, uint32_t id, bool get,
                               bool refused)
{
    tmsg_pipe_offered_t *offered =
        id < pipe->offered_room ? pipe->offered[id] : NULL;

    if (offered == NULL || !offered->told || offered->granted) {
        return "an answer to an offer that waits for none";
    }
    if (get) {
        offered->granted = true;
        tmsg_list_push(&pipe->granted, &offered->out.node);
        tmsg_pipe_stir(pipe);
    } else {
        end_offered(pipe, offered, refused ? TMSG_PIPE_REJECTED : TMSG_PIPE_OK);
    }
    return NULL;
}

void tmsg_pipe_cancel_out(tmsg_pipe_t *pipe)
{
    tmsg_node_t *node;

    while ((node = tmsg_list_pop(&pipe->out)) != NULL) {
        tmsg_pipe_out_t *out = TMSG_CONTAINER_OF(node, tmsg_pipe_out_t, node);

        out->written(pipe, out, TMSG_PIPE_CANCELED);
    }
    for (uint32_t id = 0; id < pipe->offered_room; id++) {
        if (pipe->offered[id] != NULL) {
            end_offered(pipe, pipe->offered[id], TMSG_PIPE_CANCELED);
        }
    }
    free(pipe->offered);
}
