/* SPDX-License-Identifier: BSD-3-Clause */
/* serialize/call.h - what the preamble of a CALL, or of a STREAM's message, has
 * beyond that of a map: docs/wire-format.md, "Calls" and "Streams". */
#ifndef TMSG_SERIALIZE_CALL_H
#define TMSG_SERIALIZE_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tensormsg/status.h>

#define TMSG_CALL_TEXT_MOST 199u /* so that a preamble's length is a byte */
#define TMSG_CALL_BYTES 56u      /* of its preamble, without the text */

typedef enum {
    TMSG_CALL_REQUEST = 1,
    TMSG_CALL_REPLY = 2,
    TMSG_STREAM_OPEN = 3,   /* the first of its opener's */
    TMSG_STREAM_ITEM = 4,   /* one of either side's */
    TMSG_STREAM_FINISH = 5, /* the last of either side's */
    TMSG_STREAM_END = 6,    /* the server's last, with how it ended */
    TMSG_STREAM_CANCEL = 7, /* its opener has let go of it */
    TMSG_STREAM_OVER = 8,   /* its server has */
} tmsg_call_type_t;

/* Those of the kind STREAM, and of the kind STREAM_OVER. */
static inline bool tmsg_call_is_stream(uint8_t type)
{
    return type >= TMSG_STREAM_OPEN && type <= TMSG_STREAM_END;
}

static inline bool tmsg_call_is_over(uint8_t type)
{
    return type == TMSG_STREAM_CANCEL || type == TMSG_STREAM_OVER;
}

/* Flags of a reply: no handler saw the request (of OVER, too); it may be made
 * again, whether one did or not. */
#define TMSG_CALL_NOT_RUN 0x01
#define TMSG_CALL_SAFE 0x02

typedef struct {
    uint8_t type;      /* tmsg_call_type_t */
    uint8_t flags;     /* TMSG_CALL_NOT_RUN, SAFE */
    uint16_t stream;   /* of CANCEL and OVER: the stream's channel */
    int32_t status;    /* of a reply, END, OVER: 0, or a failure */
    uint64_t id;       /* the caller's name for the call, or stream */
    uint64_t left_us;  /* of a request, OPEN: of its time; 0: no limit */
    int32_t code;      /* of a reply, END, OVER: the application's own */
    const char *text;  /* a method's name, or a failure's words; UTF-8 */
    size_t text_bytes; /* TMSG_CALL_TEXT_MOST at most */
} tmsg_call_head_t;

/* Bytes of a preamble with it. */
size_t tmsg_call_preamble_bytes(const tmsg_call_head_t *head);

/* Writes it into a preamble that tmsg_preamble_encode() has written, and its
 * length. */
void tmsg_call_encode(const tmsg_call_head_t *head, uint8_t *preamble);

/* Whether a preamble so written has the same type, flags, status and text; and
 * writes what may be another. */
bool tmsg_call_is_like(const uint8_t *preamble, const tmsg_call_head_t *head);
void tmsg_call_renumber(const tmsg_call_head_t *head, uint8_t *preamble);

/* Whether a header of so many bytes is another message like the one of the same
 * length that was decoded before: what they have in common is all but numbers,
 * time and code. Its own are in *head_p then, whose text is there. */
bool tmsg_call_repeats(const uint8_t *before, const uint8_t *header,
                       size_t bytes, uint32_t *message_id_p,
                       uint32_t *sequence_p, tmsg_call_head_t *head_p);

/* Reads it from a preamble of so many bytes, where the text stays; what is
 * behind it is skipped. Errors: MALFORMED, UNSUPPORTED (a type). */
tmsg_status_t tmsg_call_decode(const uint8_t *preamble, size_t bytes,
                               tmsg_call_head_t *head_p);

#endif
