/* SPDX-License-Identifier: BSD-3-Clause */
/* support/forged_messages.h - messages and frames that b of a pair sends to a
 * past all checks of the library, and what becomes of them. Tests of peers that
 * lie are tables of rows over it. */
#ifndef TMSG_TESTS_FORGED_MESSAGES_H
#define TMSG_TESTS_FORGED_MESSAGES_H

#include "am/endpoint/endpoint.h"
#include "serialize/call.h"
#include "support/peers.h"

typedef enum {
    BY_UCX = 0, /* an active message, eager or by rendezvous as UCX chooses */
    BY_EAGER,
    BY_RENDEZVOUS,
    BY_FASTBOX, /* the fast box */
    BY_FRAME,   /* a frame of the bootstrap socket: its type is the kind, its
                 * payload the body and the payload behind one another */
    BY_BULK,    /* the bulk stream of TCP: header and payload as they are */
} forged_way_t;

enum { FORGED_HEADER_MOST = 600, FORGED_PAYLOAD_MOST = 70000 };

/* A message. What its header says and what is sent are set apart. */
typedef struct {
    forged_way_t way;
    uint8_t header[FORGED_HEADER_MOST]; /* preamble and body, encoded */
    size_t header_bytes;
    uint8_t payload[FORGED_PAYLOAD_MOST];
    size_t payload_bytes;
} forged_t;

/* Makes a correct message: `head` gets the length of the body and a's number of
 * the connection. Its payload is as long as `head` says, of sample_fill(1). */
void forged_make(const pair_t *pair, tmsg_preamble_t head, const void *body,
                 size_t body_bytes, forged_t *forged);

/* The next map of channel 0, which is destroyed; `extra` may be NULL. */
void forged_make_map(const pair_t *pair, tmsg_map_t *map,
                     const tmsg_body_extra_t *extra, uint64_t payload_bytes,
                     forged_t *forged);

/* The same of a kind about calls and streams; its body is empty. */
void forged_make_call(const pair_t *pair, const tmsg_preamble_t *head,
                      const tmsg_call_head_t *call, forged_t *forged);

/* BYE or FIN for channel 0, by frame where there is a socket and else by
 * message. `list` counts the messages of other channels. */
void forged_make_end(const pair_t *pair, uint8_t kind, uint32_t sequence,
                     const void *list, size_t list_bytes, forged_t *forged);

/* What a row may change in a correct message. */
typedef enum {
    AS_MADE = 0, /* nothing; ends a list */
    /* What the preamble says. */
    SAID_LENGTH, /* of the preamble itself */
    SAID_KIND,
    SAID_FLAGS,
    SAID_CHANNEL,
    SAID_ID,
    SAID_ENDPOINT,
    SAID_SEQUENCE,
    SAID_BODY,
    SAID_PAYLOAD,
    SAID_POLICY,
    /* What the preamble of a call or a stream says. */
    SAID_CALL_TYPE,
    SAID_CALL_FLAGS,
    SAID_CALL_TEXT, /* its length */
    SAID_CALL_STATUS,
    SAID_CALL_ID,
    SAID_CALL_LEFT_US,
    SAID_CALL_STREAM,
    SAID_FRAGMENT, /* in the body of a fragment: its number */
    SAID_ADDRESS,  /* in the payload that tells where to read */
    /* What is sent. */
    SENT_HEADER,  /* bytes */
    SENT_PAYLOAD, /* bytes */
    SENT_BY,      /* forged_way_t */
    FLIPPED,      /* a bit of the header, counted from its first byte's low */
    /* Both. */
    BODY_BYTES,
    PAYLOAD_BYTES,
    FORGED_FIELDS
} forged_field_t;

#define ADD(field) ((field) | 0x100) /* to what is there */

typedef struct {
    int field; /* forged_field_t, or ADD() of one */
    int64_t value;
} forged_edit_t;

#define FORGED_EDITS 4

void forged_set(forged_t *forged, int field, int64_t value);
void forged_edit(forged_t *forged, const forged_edit_t *edits);

/* Hands it over. forged_send() then drives both sides long enough for a to look
 * at it; forged_send_still() drives a alone, so that b answers nothing. */
void forged_put(pair_t *pair, const forged_t *forged);
void forged_send(pair_t *pair, const forged_t *forged);
void forged_send_still(pair_t *pair, const forged_t *forged);
void forged_settle(pair_t *pair);

/* One message of a row. `forge` makes the correct one; what `number` means is
 * its own matter, such as the number of a fragment. */
typedef struct {
    void (*forge)(const pair_t *pair, uint32_t number, forged_t *forged);
    uint32_t number;
    forged_edit_t edits[FORGED_EDITS];
    unsigned times; /* so many, with consecutive numbers; 0: one */
} said_t;

typedef enum {
    DELIVERED = 1, /* a has the map, whose bytes are sample_fill(1) */
    REFUSED,       /* a's application is told so, with `status` */
    ENDED,         /* both sides of the connection end, with `status` */
    IGNORED        /* nothing happens */
} verdict_t;

#define SAID_MOST 4

typedef struct {
    const char *what;
    said_t said[SAID_MOST];
    verdict_t wanted;
    tmsg_status_t status; /* 0: MALFORMED */
    const char *words;    /* of the refusal or of a's end; NULL: any */
} lie_t;

/* A row: SAY(a_map, {SAID_PAYLOAD, 101}) is a message of a_map() that is
 * edited. SAY_NTH has its number, SAY_EACH the first number and how many. */
#define SAY(forge_, ...)                                                       \
    {                                                                          \
        .forge = (forge_), .edits = { __VA_ARGS__ }                            \
    }
#define SAY_NTH(forge_, number_, ...)                                          \
    {                                                                          \
        .forge = (forge_), .number = (number_), .edits = { __VA_ARGS__ }       \
    }
#define SAY_EACH(forge_, number_, times_, ...)                                 \
    {                                                                          \
        .forge = (forge_), .number = (number_), .times = (times_), .edits = {  \
            __VA_ARGS__                                                        \
        }                                                                      \
    }
#define LIE(what_, wanted_, ...)                                               \
    {                                                                          \
        .what = (what_), .wanted = wanted_, .said = { __VA_ARGS__ }            \
    }
#define REFUSED_AS(status_) REFUSED, .status = (status_)
#define ENDED_AS(status_) ENDED, .status = (status_)
#define ENDS(words_) ENDED, .words = (words_)

typedef struct {
    link_t link;
    side_options_t a, b;
    void (*prepare)(pair_t *pair); /* before the first message; NULL: none */
} telling_t;

/* Tells each lie to a on a connection of its own, and dies with the row's name
 * if the outcome differs. It checks that the next maps arrive unless the
 * connection has ended, and that a serves other connections. */
void tell_lies(const telling_t *telling, const lie_t *lies, size_t count);

/* A map goes over the connection and arrives. */
void expect_goes_on(pair_t *pair);

/* A map arrives by another connection of b's. */
void expect_serves_others(pair_t *pair);

#endif
