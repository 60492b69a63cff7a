/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads frames. What is read goes into one buffer of all pipes, and frames
 * are handled where they lie there; a large payload goes straight into its
 * place. Nothing that the peer says is believed. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am/pipe/pipe_struct.h"
#include "core/bytes.h"

#define PLACES 63 /* by one call, besides the buffer */
#define TURN_BYTES ((size_t)256 * 1024)
/* A payload of an EAGER up to this length is handled where it lies. */
#define INLINE_MOST ((size_t)8 * 1024)
/* While payloads come, the buffer takes only the next header and a little of
 * what is behind it: that has to be copied. */
#define BUFFER_AMID ((size_t)4 * 1024)
#define ALIGNMENT ((size_t)64)

_Static_assert(TMSG_PIPE_FRAME_BYTES + TMSG_PIPE_HEADER_MOST + INLINE_MOST <=
                   TMSG_PIPE_BUFFER_BYTES / 2,
               "what is kept leaves room to read on");

typedef struct {
    uint8_t type;
    size_t header_bytes;
    uint32_t id;
    uint64_t bytes;
} head_t;

static head_t decode_head(const uint8_t *at)
{
    return (head_t){.type = at[0],
                    .header_bytes = (size_t)tmsg_get_le(at + 2, 2),
                    .id = (uint32_t)tmsg_get_le(at + 4, 4),
                    .bytes = tmsg_get_le(at + 8, 8)};
}

static tmsg_pipe_offer_t *find_offer(const tmsg_pipe_t *pipe, uint32_t id)
{
    return id < pipe->offers_room ? pipe->offers[id] : NULL;
}

/* Returns what is wrong with an offer of that id, or NULL. */
static const char *judge_offer(const tmsg_pipe_t *pipe, const head_t *head)
{
    if (head->id >= TMSG_PIPE_OFFERS_MOST) {
        return "more offers than allowed";
    }
    if (find_offer(pipe, head->id) != NULL) {
        return "a second offer with the number of a pending one";
    }
    return head->bytes == 0 ? "an offer of nothing" : NULL;
}

/* Returns what is wrong with a piece of a payload, or NULL. */
static const char *judge_data(const tmsg_pipe_t *pipe, const head_t *head)
{
    const tmsg_pipe_offer_t *offer = find_offer(pipe, head->id);

    if (offer == NULL || !offer->told) {
        return "a payload that was not asked for";
    }
    if (head->type == TMSG_PIPE_FRAME_LOST) {
        return head->bytes == 0 ? NULL : "a lost payload of some length";
    }
    return head->bytes > 0 && head->bytes <= offer->place.left &&
                   head->bytes <= TMSG_PIPE_PIECE_MOST
               ? NULL
               : "a piece of a payload with an impossible length";
}

/* Returns what is wrong with a frame, or NULL. */
static const char *judge_head(const tmsg_pipe_t *pipe, const head_t *head,
                              uint8_t reserved)
{
    bool has_header = head->type == TMSG_PIPE_FRAME_EAGER ||
                      head->type == TMSG_PIPE_FRAME_OFFER;

    if (head->type < TMSG_PIPE_FRAME_EAGER ||
        head->type > TMSG_PIPE_FRAME_LOST || reserved != 0) {
        return "a frame of an unknown type";
    }
    if (has_header != (head->header_bytes > 0) ||
        head->header_bytes > TMSG_PIPE_HEADER_MOST) {
        return "a message header of an impossible length";
    }
    switch (head->type) {
    case TMSG_PIPE_FRAME_EAGER:
        return head->bytes <= TMSG_PIPE_EAGER_MOST && head->id == 0
                   ? NULL
                   : "a payload that should have been offered";
    case TMSG_PIPE_FRAME_OFFER:
        return judge_offer(pipe, head);
    case TMSG_PIPE_FRAME_GET:
    case TMSG_PIPE_FRAME_DROP:
        return head->bytes <= (head->type == TMSG_PIPE_FRAME_DROP)
                   ? NULL
                   : "a malformed answer";
    default:
        return judge_data(pipe, head);
    }
}

static void end_malformed(tmsg_pipe_t *pipe, const char *wrong)
{
    char why[160];

    snprintf(why, sizeof(why), "the stream of messages: %s", wrong);
    tmsg_pipe_end(pipe, TMSG_ERR_MALFORMED, why);
}

static void end_for_memory(tmsg_pipe_t *pipe)
{
    tmsg_pipe_end(pipe, TMSG_ERR_NO_MEMORY,
                  "no memory for a message that comes");
}

static tmsg_pipe_status_t hand_over(tmsg_pipe_t *pipe,
                                    const tmsg_pipe_message_t *message)
{
    return pipe->pipes->arrived(pipe->pipes->arg, message);
}

static void get_written(tmsg_pipe_t *pipe, tmsg_pipe_out_t *out,
                        tmsg_pipe_status_t status)
{
    (void)pipe;
    TMSG_CONTAINER_OF(out, tmsg_pipe_offer_t, out)->told =
        status == TMSG_PIPE_OK;
}

static void drop_written(tmsg_pipe_t *pipe, tmsg_pipe_out_t *out,
                         tmsg_pipe_status_t status)
{
    (void)pipe;
    (void)status;
    free(TMSG_CONTAINER_OF(out, tmsg_pipe_offer_t, out));
}

static void answer_offer(tmsg_pipe_offer_t *offer, bool get, bool refused)
{
    tmsg_pipe_t *pipe = offer->pipe;

    offer->out.written = get ? get_written : drop_written;
    offer->asked = get;
    tmsg_pipe_fill_frame(offer->out.frame,
                         get ? TMSG_PIPE_FRAME_GET : TMSG_PIPE_FRAME_DROP, 0,
                         offer->id, refused);
    if (get) {
        pipe->gets++;
    } else { /* the peer may use the number again when it has read this */
        pipe->offers[offer->id] = NULL;
    }
    tmsg_pipe_put(pipe, &offer->out);
}

static void take_offer(tmsg_pipe_t *pipe, const head_t *head,
                       const uint8_t *header)
{
    tmsg_pipe_offer_t *offer = calloc(1, sizeof(*offer));
    const tmsg_pipe_message_t message = {.pipe = pipe,
                                         .header = header,
                                         .header_bytes = head->header_bytes,
                                         .bytes = (size_t)head->bytes,
                                         .offer = offer};
    tmsg_pipe_status_t status;

    if (offer == NULL ||
        !tmsg_pipe_grow(&pipe->offers, &pipe->offers_room, head->id)) {
        free(offer);
        end_for_memory(pipe);
        return;
    }
    offer->pipe = pipe;
    offer->id = head->id;
    offer->bytes = head->bytes;
    pipe->offers[head->id] = offer;
    status = hand_over(pipe, &message);
    if (status != TMSG_PIPE_IN_PROGRESS) {
        answer_offer(offer, false, status != TMSG_PIPE_OK);
    }
}

static void take_inline(tmsg_pipe_t *pipe, const head_t *head, uint8_t *header)
{
    const tmsg_pipe_message_t message = {
        .pipe = pipe,
        .header = header,
        .header_bytes = head->header_bytes,
        .data = head->bytes == 0 ? NULL : header + head->header_bytes,
        .bytes = (size_t)head->bytes,
        .fleeting = true};

    (void)hand_over(pipe, &message);
}

/* Begins to read the payload of an EAGER into memory of its own. */
static void begin_eager(tmsg_pipe_t *pipe, const head_t *head,
                        const uint8_t *header)
{
    tmsg_pipe_in_t *in = &pipe->in;
    size_t bytes = (size_t)head->bytes;

    if (in->header == NULL) {
        in->header = malloc(TMSG_PIPE_HEADER_MOST);
    }
    in->data = in->header == NULL
                   ? NULL
                   : aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) /
                                                  ALIGNMENT * ALIGNMENT);
    if (in->data == NULL) {
        end_for_memory(pipe);
        return;
    }
    memcpy(in->header, header, head->header_bytes);
    in->header_bytes = head->header_bytes;
    in->bytes = bytes;
    in->offer = NULL;
    in->into = &in->eager;
    in->left = bytes;
    tmsg_pieces_begin(&in->eager, in->data, 0, bytes);
}

static void end_eager(tmsg_pipe_t *pipe)
{
    tmsg_pipe_in_t *in = &pipe->in;
    uint8_t *data = in->data;
    const tmsg_pipe_message_t message = {.pipe = pipe,
                                         .header = in->header,
                                         .header_bytes = in->header_bytes,
                                         .data = data,
                                         .bytes = in->bytes};

    in->data = NULL;
    if (hand_over(pipe, &message) != TMSG_PIPE_IN_PROGRESS) {
        free(data);
    }
}

/* Ends an offer that was asked for. */
static void end_offer(tmsg_pipe_t *pipe, tmsg_pipe_offer_t *offer,
                      tmsg_pipe_status_t status)
{
    tmsg_pipe_received_t received = offer->received;
    size_t bytes = status == TMSG_PIPE_OK ? (size_t)offer->bytes : 0;
    void *arg = offer->arg;

    pipe->offers[offer->id] = NULL;
    pipe->gets--;
    free(offer);
    received(NULL, status, bytes, arg);
}

/* Counts bytes of a payload as read. */
static void pass_payload(tmsg_pipe_t *pipe, size_t moved)
{
    tmsg_pipe_in_t *in = &pipe->in;

    in->left -= moved;
    tmsg_pieces_pass(in->into, moved);
    if (in->left > 0) {
        return;
    }
    if (in->offer == NULL) {
        end_eager(pipe);
    } else if (in->into->left == 0) {
        end_offer(pipe, in->offer, TMSG_PIPE_OK);
    }
}

/* Copies the begin of a payload out of the buffer. Returns how much that is. */
static size_t copy_payload(tmsg_pipe_t *pipe, const uint8_t *from, size_t bytes)
{
    struct iovec places[PLACES];
    size_t most = bytes < pipe->in.left ? bytes : pipe->in.left;
    size_t count = tmsg_pieces_list(pipe->in.into, most, places, PLACES);
    size_t all = 0;

    for (size_t i = 0; i < count; i++) {
        memcpy(places[i].iov_base, from + all, places[i].iov_len);
        all += places[i].iov_len;
    }
    pass_payload(pipe, all);
    return all;
}

/* Returns how many bytes a frame needs before it can be handled. */
static size_t needed(const head_t *head)
{
    return TMSG_PIPE_FRAME_BYTES + head->header_bytes +
           (head->type == TMSG_PIPE_FRAME_EAGER && head->bytes <= INLINE_MOST
                ? (size_t)head->bytes
                : 0);
}

static void take_frame(tmsg_pipe_t *pipe, const head_t *head, uint8_t *header)
{
    tmsg_pipe_offer_t *offer;
    const char *wrong = NULL;

    switch (head->type) {
    case TMSG_PIPE_FRAME_EAGER:
        if (head->bytes <= INLINE_MOST) {
            take_inline(pipe, head, header);
        } else {
            begin_eager(pipe, head, header);
        }
        break;
    case TMSG_PIPE_FRAME_OFFER:
        take_offer(pipe, head, header);
        break;
    case TMSG_PIPE_FRAME_GET:
    case TMSG_PIPE_FRAME_DROP:
        wrong = tmsg_pipe_answered(pipe, head->id,
                                   head->type == TMSG_PIPE_FRAME_GET,
                                   head->bytes != 0);
        break;
    case TMSG_PIPE_FRAME_DATA:
        offer = find_offer(pipe, head->id);
        pipe->in.offer = offer;
        pipe->in.into = &offer->place;
        pipe->in.left = (size_t)head->bytes;
        break;
    default:
        end_offer(pipe, find_offer(pipe, head->id), TMSG_PIPE_UNREADABLE);
        break;
    }
    if (wrong != NULL) {
        end_malformed(pipe, wrong);
    }
}

/* Handles what lies in the buffer. Returns how many bytes it was. */
static size_t handle(tmsg_pipe_t *pipe, uint8_t *at, size_t bytes)
{
    size_t done = 0;

    while (done < bytes && !pipe->over) {
        const char *wrong;
        head_t head;

        if (pipe->in.left > 0) {
            done += copy_payload(pipe, at + done, bytes - done);
            continue;
        }
        if (bytes - done < TMSG_PIPE_FRAME_BYTES) {
            break;
        }
        head = decode_head(at + done);
        wrong = judge_head(pipe, &head, at[done + 1]);
        if (wrong != NULL) {
            end_malformed(pipe, wrong);
            break;
        }
        if (bytes - done < needed(&head)) {
            break;
        }
        take_frame(pipe, &head, at + done + TMSG_PIPE_FRAME_BYTES);
        done += needed(&head);
    }
    return done;
}

/* Keeps the begin of a frame until the rest comes. */
static void keep(tmsg_pipe_t *pipe, const uint8_t *from, size_t bytes)
{
    if (bytes > pipe->kept_room) {
        uint8_t *grown = realloc(pipe->kept, bytes);

        if (grown == NULL) {
            end_for_memory(pipe);
            return;
        }
        pipe->kept = grown;
        pipe->kept_room = bytes;
    }
    if (bytes > 0) {
        memcpy(pipe->kept, from, bytes);
    }
    pipe->kept_bytes = bytes;
}

static void judge_end(tmsg_pipe_t *pipe, ssize_t moved, int error)
{
    char why[160];

    if (moved == 0) {
        snprintf(why, sizeof(why), "the peer closed the stream of messages");
    } else if (error == EPROTO && pipe->io->failed != NULL) {
        pipe->io->failed(pipe->io_arg);
        snprintf(why, sizeof(why), "the stream of messages broke: %s",
                 tmsg_error_message());
    } else if (error != EAGAIN && error != EWOULDBLOCK && error != EINTR) {
        snprintf(why, sizeof(why), "the stream of messages broke: %s",
                 strerror(error));
    } else if (pipe->broken[0] != '\0') {
        snprintf(why, sizeof(why), "the stream of messages broke: %s",
                 pipe->broken);
    } else {
        return;
    }
    tmsg_pipe_end(pipe, TMSG_ERR_PEER_LOST, why);
}

/* Makes one call. Returns how many bytes it read; *more_p: there may be more.
 * If nothing can be written any more it reads on up to where nothing more can
 * be read: the pipe ends there, and the socket may not tell of that. */
static size_t read_once(tmsg_pipe_t *pipe, bool *more_p)
{
    struct iovec places[PLACES + 1];
    uint8_t *buffer = pipe->pipes->buffer;
    bool amid = pipe->in.left > 0 || pipe->gets > 0;
    size_t kept = pipe->kept_bytes, place = 0, here, done, count, room;
    ssize_t moved;
    int error;

    if (kept > 0) {
        memcpy(buffer, pipe->kept, kept);
        pipe->kept_bytes = 0;
    }
    count = pipe->in.left == 0 ? 0
                               : tmsg_pieces_list(pipe->in.into, pipe->in.left,
                                                  places, PLACES);
    for (size_t i = 0; i < count; i++) {
        place += places[i].iov_len;
    }
    room = place < pipe->in.left ? 0
           : amid                ? BUFFER_AMID
                                 : TMSG_PIPE_BUFFER_BYTES - kept;
    if (room > 0) {
        places[count++] = (struct iovec){buffer + kept, room};
    }
    moved = pipe->io->read(pipe->io_arg, places, count);
    error = errno;
    *more_p =
        moved > 0 && ((size_t)moved == place + room || pipe->broken[0] != '\0');
    pipe->moved.read += moved > 0 ? (size_t)moved : 0;
    here = moved > (ssize_t)place ? (size_t)moved - place : 0;
    if (place > 0 && moved > 0) {
        pass_payload(pipe, (size_t)moved - here);
    }
    done = handle(pipe, buffer, kept + here);
    if (!pipe->over) {
        keep(pipe, buffer + done, kept + here - done);
    }
    if (moved <= 0 && !pipe->over) {
        judge_end(pipe, moved, error);
    }
    return moved > 0 ? (size_t)moved : 0;
}

size_t tmsg_pipe_read(tmsg_pipe_t *pipe, bool *more_p)
{
    size_t all = 0;

    do {
        all += read_once(pipe, more_p);
    } while (*more_p && all < TURN_BYTES && !pipe->over);
    return all;
}

tmsg_pipe_status_t tmsg_pipe_fetch(tmsg_pipe_offer_t *offer, void *data,
                                   size_t bytes, size_t pieces,
                                   tmsg_pipe_received_t received, void *arg)
{
    const struct iovec *list = data;
    size_t room = pieces == 0 ? bytes : 0;

    for (size_t i = 0; i < pieces; i++) {
        room += list[i].iov_len;
    }
    if (offer->pipe == NULL || room < offer->bytes) {
        bool closed = offer->pipe == NULL;

        tmsg_pipe_drop(offer);
        return closed ? TMSG_PIPE_CANCELED : TMSG_PIPE_INVALID_PARAM;
    }
    offer->received = received;
    offer->arg = arg;
    tmsg_pieces_begin(&offer->place, data, pieces, offer->bytes);
    answer_offer(offer, true, false);
    return TMSG_PIPE_IN_PROGRESS;
}

void tmsg_pipe_drop(tmsg_pipe_offer_t *offer)
{
    if (offer->pipe == NULL) {
        free(offer);
    } else {
        answer_offer(offer, false, false);
    }
}

void tmsg_pipe_leave_offers(tmsg_pipe_t *pipe)
{
    for (uint32_t id = 0; id < pipe->offers_room; id++) {
        tmsg_pipe_offer_t *offer = pipe->offers[id];

        if (offer != NULL && !offer->asked) {
            offer->pipe = NULL;
            pipe->offers[id] = NULL;
        }
    }
}

void tmsg_pipe_cancel_in(tmsg_pipe_t *pipe)
{
    for (uint32_t id = 0; id < pipe->offers_room; id++) {
        if (pipe->offers[id] != NULL) {
            end_offer(pipe, pipe->offers[id], TMSG_PIPE_CANCELED);
        }
    }
    free(pipe->offers);
    free(pipe->in.data);
    free(pipe->in.header);
}
