/* SPDX-License-Identifier: BSD-3-Clause */
/* serialize/call.h - encodes and decodes the preamble of a CALL and of a STREAM
 * message. Such a preamble has more fields than the preamble of a map.
 * docs/wire/wire-format.md, "Calls" and "Streams", has the format. */
#ifndef TMSG_SERIALIZE_CALL_H
#define TMSG_SERIALIZE_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tensormsg/status.h>

#define TMSG_CALL_TEXT_MOST 199u /* keeps a preamble's length below 256 */
#define TMSG_CALL_BYTES 56u      /* bytes of the preamble without its text */

typedef enum {
    TMSG_CALL_REQUEST = 1,
    TMSG_CALL_REPLY = 2,
    TMSG_STREAM_OPEN = 3,   /* first message that the opener sends */
    TMSG_STREAM_ITEM = 4,   /* item that either side sends */
    TMSG_STREAM_FINISH = 5, /* last item that a side sends */
    TMSG_STREAM_END = 6,    /* status, which the server sends last */
    TMSG_STREAM_CANCEL = 7, /* opener takes no further part in the stream */
    TMSG_STREAM_OVER = 8,   /* server ends the stream without END */
} tmsg_call_type_t;

/* The next two functions return whether a message of that type has the kind
 * STREAM, or the kind STREAM_OVER. */
static inline bool tmsg_call_is_stream(uint8_t type)
{
    return type >= TMSG_STREAM_OPEN && type <= TMSG_STREAM_END;
}

static inline bool tmsg_call_is_over(uint8_t type)
{
    return type == TMSG_STREAM_CANCEL || type == TMSG_STREAM_OVER;
}

/* These are the flags of a reply. NOT_RUN says that no handler saw the request;
 * OVER has this flag, too. SAFE says that the request may be made again,
 * whether or not a handler saw it. */
#define TMSG_CALL_NOT_RUN 0x01
#define TMSG_CALL_SAFE 0x02

/* This is a flag of a request. It says that the reply may be a loan. */
#define TMSG_CALL_ASKS_LOAN 0x04

typedef struct {
    uint8_t type;      /* tmsg_call_type_t */
    uint8_t flags;     /* TMSG_CALL_NOT_RUN, SAFE, ASKS_LOAN */
    uint16_t stream;   /* CANCEL and OVER: the stream's channel */
    int32_t status;    /* reply, END and OVER: 0 or a failure */
    uint64_t id;       /* caller's identifier of the call or stream */
    uint64_t left_us;  /* request and OPEN: time left; 0 means no limit */
    int32_t code;      /* reply, END and OVER: the application's own code */
    const char *text;  /* method name, or message of a failure; UTF-8 */
    size_t text_bytes; /* up to TMSG_CALL_TEXT_MOST */
} tmsg_call_head_t;

/* Returns the bytes of a preamble that includes *head. */
size_t tmsg_call_preamble_bytes(const tmsg_call_head_t *head);

/* Writes *head and the new preamble length into a preamble that
 * tmsg_preamble_encode() has written. */
void tmsg_call_encode(const tmsg_call_head_t *head, uint8_t *preamble);

/* tmsg_call_is_like() returns whether an encoded preamble has the type, flags,
 * status and text of *head. tmsg_call_renumber() writes the other fields of
 * *head into such a preamble: id, time, or code and stream. */
bool tmsg_call_is_like(const uint8_t *preamble, const tmsg_call_head_t *head);
void tmsg_call_renumber(const tmsg_call_head_t *head, uint8_t *preamble);

/* Returns whether `header` is like `before`, a header that was decoded
 * earlier. Both have `bytes` bytes, TMSG_CALL_BYTES or more. Like headers
 * agree in everything but message id, sequence, call id, time, code and
 * stream. If they agree, *head_p has the fields of `header`, and its text
 * points into `header`. */
bool tmsg_call_repeats(const uint8_t *before, const uint8_t *header,
                       size_t bytes, uint32_t *message_id_p,
                       uint32_t *sequence_p, tmsg_call_head_t *head_p);

/* Reads *head_p from a preamble of `bytes` bytes. Its text points into the
 * preamble. Bytes behind the text are skipped. Errors: MALFORMED, UNSUPPORTED
 * (a type). */
tmsg_status_t tmsg_call_decode(const uint8_t *preamble, size_t bytes,
                               tmsg_call_head_t *head_p);

#endif
