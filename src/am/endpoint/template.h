/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/template.h - the short way of a small message that is like the
 * last one of its channel.
 *
 * A loop sends one layout again and again. Both ends know its names, dtypes and
 * shapes by number, and only two numbers of the header are new. Each end of a
 * channel therefore keeps a template: the header of the last such message that
 * went the general way (prepare.c and send.c, receive.c and fetch.c), and what
 * was found out about it. A message that repeats it, a template message, takes
 * the short way, which finds out nothing anew. The sender sends the old header
 * with new numbers (send/template_out.c). The receiver takes a map that is laid
 * out already (recv/template_in.c). A call of the same method, or a reply to
 * one, can be a template message, too; it has numbers of its own besides.
 *
 * The short way is right because the general way looks at these things only:
 *
 *  - Bytes of the header. A template message has the same bytes except for the
 *    message id and the sequence, and a call's id, time and code, which the
 *    short way looks at. The length of the payload is the same. The map's
 *    layout is told from every other by its stamp.
 *  - Things that never change: the worker's parameters, the limits, the peer's
 *    hello. A session may get another hello, and never goes this way.
 *  - The schemas of the channel. A message that defines a schema, on its way
 *    out or in, makes that direction forget its template; so does the end of a
 *    connection.
 *  - Whether the message goes by UCX or by a fast box. The two keep the order
 *    of one queue (fastboxes.h). If one of them is full or wrong, the general
 *    way says so.
 *  - The state of endpoint and channel. may_go_by_template() and
 *    is_next_and_plain() say that nothing is queued, missing, closing or waited
 *    for. They must look at all state that changes. If one says no, the message
 *    goes the general way, which then says what is wrong, if something is.
 *  - What a payload of more than TMSG_TEMPLATE_SMALL bytes costs. Credit in
 *    bytes is charged and given back here as on the general way (credit.h).
 *    The receiver uses memory that each record keeps for the next message of
 *    the layout. It counts against held_bytes while a message lies in it, and
 *    is not used while another message waits for memory.
 *
 * So a peer is not trusted more than on the general way. What it sends is
 * compared, byte by byte, with what was checked before, and the window, the
 * order and the memory budget are checked each time. */
#ifndef TMSG_AM_ENDPOINT_TEMPLATE_H
#define TMSG_AM_ENDPOINT_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tensormsg/endpoint.h>

#include "am/endpoint/consumer.h"
#include "am/endpoint/kinds.h"
#include "am/endpoint/measures.h"
#include "core/map.h"
#include "serialize/header.h"

/* The header of a template message has at most this many bytes: a preamble,
 * perhaps the name of a method, and a body that refers to a schema. A place of
 * a fast box has room for it. */
#define TMSG_TEMPLATE_HEADER_BYTES 104

/* The payload of a template message has at most this many bytes, about as much
 * as a segment of UCX holds. */
#define TMSG_TEMPLATE_BYTES 8192

/* Payloads up to here cost no credit in bytes and lie in the records. */
#define TMSG_TEMPLATE_SMALL 512

/* A template message has at most this many tensors: the data of each begin at a
 * multiple of 16. */
#define TMSG_TEMPLATE_TENSORS (TMSG_TEMPLATE_BYTES / 16)

/* A record may keep this many bytes of a layout for the next message. */
#define TMSG_TEMPLATE_LAYOUT_BYTES 131072

/* This value says that several tensors have data, and are to be gathered. */
#define TMSG_TEMPLATE_LISTED UINT32_MAX

/* Tells where in the payload the data of a tensor go. */
typedef struct {
    uint16_t at;
    uint16_t bytes;
} tmsg_template_piece_t;

typedef struct {
    size_t header_bytes; /* 0: there is no template */
    uint64_t stamp;      /* stamp of the layout */
    uint64_t charge;     /* bytes against the peer's window */
    size_t payload_bytes;
    uint64_t number;     /* unique among the templates of the worker */
    uint32_t flags;      /* the application's flags, with which it went */
    uint32_t am_flags;   /* the flags for UCX, with which it went */
    uint32_t tensors;    /* tensors of the map */
    uint32_t only;       /* the one that has data, or TMSG_TEMPLATE_LISTED */
    bool has_gaps;       /* zeros lie between the tensors */
    bool is_call;        /* the message is a call, or a reply */
    bool is_for_fastbox; /* the message goes by a fast box, if there is one */
    uint8_t slot;        /* the slot in which the peer keeps the schema */
    uint8_t recent;      /* place in the worker's `recent`, if any */
    struct tmsg_send *ready; /* record of the next template message, or NULL */
    /* pieces of the tensors, with room for more */
    tmsg_template_piece_t *pieces;
    uint32_t piece_room;
    uint8_t header[TMSG_TEMPLATE_HEADER_BYTES];
} tmsg_template_out_t;

typedef struct {
    size_t header_bytes;      /* 0: there is no template */
    const tmsg_map_t *layout; /* layout of the message's schema */
    uint64_t noted;           /* bytes that such a message counts for */
    uint64_t room_bytes; /* part of `noted` for a payload that is not small */
    uint64_t charge;     /* bytes against this side's window */
    uint64_t number;     /* unique among the templates of the worker */
    uint8_t header[TMSG_TEMPLATE_HEADER_BYTES];
    tmsg_preamble_t head; /* `header`, decoded */
} tmsg_template_in_t;

typedef struct tmsg_channel tmsg_channel_t;

#endif
