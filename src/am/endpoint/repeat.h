/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/repeat.h - the short way of a small message that is like the last
 * one.
 *
 * A loop sends one layout for ever: names, dtypes and shapes are those that
 * both ends know by number, and of the header only two numbers are new. Each
 * end of a channel therefore remembers the last message of that kind that went
 * the general way (prepare.c and post.c, receive.c and fetch.c), and what it
 * came to. One that repeats it goes by this, with all that was found out left
 * out: what is sent is the old header with new numbers, and what arrives is
 * given a map that is laid out already. A call of the same method, or a reply
 * to one, is such a message, with numbers of its own beside.
 *
 * Why it is right. Whatever the general way looks at is one of these:
 *
 *  - bytes of the header. A repeat has the same ones, but for message id and
 *    sequence, and a call's id, time and code, which are looked at here; the
 *    length of the payload, which is
 *    the same; or the map's layout, which its stamp tells from every other.
 *  - what never changes: the worker's parameters, the limits, the peer's hello
 *    (a session, which may get another one, never goes this way).
 *  - the schemas of the channel. Whatever defines one, on its way out or in,
 *    forgets the repeat of that direction; so does the end of a connection.
 *  - whether it goes by UCX or by a box: that keeps the order of one queue
 *    (boxes.h), and what is full or wrong of either the general way says.
 *  - the state of endpoint and channel: then is_plain(), one in each direction,
 *    says that nothing is queued, missing, closing or waited for. It must ask
 *    for all that changes. If it says no the message goes the general way,
 *    which then says what is wrong, if something is.
 *  - what a payload of more than TMSG_REPEAT_SMALL bytes costs: credit in
 * bytes, which is charged and given back here as there (credit.h), and memory
 * of the receiver's, which each record keeps for the next message of the
 * layout. That counts against held_bytes while a message lies in it, and is not
 * had while another message waits for memory.
 *
 * So a peer is trusted with nothing more: what it sends is compared, byte by
 * byte, with what was checked before, and window, order and budget are asked
 * for each time. */
#ifndef TMSG_AM_ENDPOINT_REPEAT_H
#define TMSG_AM_ENDPOINT_REPEAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tensormsg/endpoint.h>

#include "am/endpoint/consumer.h"
#include "am/endpoint/kinds.h"
#include "am/endpoint/measures.h"
#include "core/map.h"
#include "serialize/header.h"

/* A preamble, with the name of a method perhaps, and a body that is a reference
 * to a schema. */
#define TMSG_REPEAT_HEADER_BYTES 104 /* no more than a box has for one */

/* Payloads up to here, about as much as a segment of UCX's holds. */
#define TMSG_REPEAT_BYTES 8192

/* Of these, those up to here cost no credit in bytes and lie in records. */
#define TMSG_REPEAT_SMALL 512

/* And of so many tensors at most: who has data begins at a multiple of 16. */
#define TMSG_REPEAT_TENSORS (TMSG_REPEAT_BYTES / 16)

/* What a record may keep of a layout, waiting for the next. */
#define TMSG_REPEAT_LAYOUT_BYTES 131072

#define TMSG_REPEAT_LISTED UINT32_MAX /* there are several to be gathered */

/* Where in the payload the data of a tensor go. */
typedef struct {
    uint16_t at;
    uint16_t bytes;
} tmsg_repeat_piece_t;

typedef struct {
    size_t header_bytes; /* 0: nothing may be repeated */
    uint64_t stamp;      /* of the layout */
    uint64_t charge;     /* against the peer's window */
    size_t payload_bytes;
    uint64_t number;         /* its worker has had no other with it */
    uint32_t flags;          /* of the application's, with which it went */
    uint32_t am_flags;       /* of UCX's, likewise */
    uint32_t tensors;        /* that there are */
    uint32_t only;           /* the one that has data; or TMSG_REPEAT_LISTED */
    bool has_gaps;           /* between them, which are zeros */
    bool is_call;            /* or a reply */
    bool is_boxed;           /* it goes by a box, where there is one */
    uint8_t slot;            /* which the peer keeps there */
    uint8_t recent;          /* its place among the worker's, if it has one */
    struct tmsg_send *ready; /* the record of the next one, or NULL */
    tmsg_repeat_piece_t *pieces; /* of the tensors, with room for more */
    uint32_t piece_room;
    uint8_t header[TMSG_REPEAT_HEADER_BYTES];
} tmsg_repeat_out_t;

typedef struct {
    size_t header_bytes;      /* 0: nothing may be repeated */
    const tmsg_map_t *layout; /* of the schema that it refers to */
    uint64_t noted;           /* what such a message counts for */
    uint64_t room_bytes;      /* of that, for a payload that is not small */
    uint64_t charge;          /* against the window that its sender has */
    uint64_t number;          /* its worker has had no other with it */
    uint8_t header[TMSG_REPEAT_HEADER_BYTES];
    tmsg_preamble_t head; /* the same, decoded */
} tmsg_repeat_in_t;

typedef struct tmsg_channel tmsg_channel_t;

#endif
