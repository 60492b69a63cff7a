/* SPDX-License-Identifier: BSD-3-Clause */
/* serialize/call.h - what the preamble of a CALL has beyond that of a map:
 * docs/wire-format.md, "Calls". */
#ifndef TMSG_SERIALIZE_CALL_H
#define TMSG_SERIALIZE_CALL_H

#include <stddef.h>
#include <stdint.h>

#include <tensormsg/status.h>

#define TMSG_CALL_TEXT_MOST 199u /* so that a preamble's length is a byte */
#define TMSG_CALL_BYTES 56u      /* of its preamble, without the text */

typedef enum {
    TMSG_CALL_REQUEST = 1,
    TMSG_CALL_REPLY = 2,
} tmsg_call_type_t;

#define TMSG_CALL_NOT_RUN 0x01 /* of a reply: no handler saw the request */

typedef struct {
    uint8_t type;      /* tmsg_call_type_t */
    uint8_t flags;     /* TMSG_CALL_NOT_RUN */
    int32_t status;    /* of a reply: 0, or a failure */
    uint64_t id;       /* the caller's name for the call */
    uint64_t left_us;  /* of a request: of its time; 0: it has no limit */
    int32_t code;      /* of a reply: the application's own */
    const char *text;  /* a method's name, or a failure's words; UTF-8 */
    size_t text_bytes; /* TMSG_CALL_TEXT_MOST at most */
} tmsg_call_head_t;

/* Bytes of a preamble with it. */
size_t tmsg_call_preamble_bytes(const tmsg_call_head_t *head);

/* Writes it into a preamble that tmsg_preamble_encode() has written, and its
 * length. */
void tmsg_call_encode(const tmsg_call_head_t *head, uint8_t *preamble);

/* Reads it from a preamble of so many bytes, where the text stays; what is
 * behind it is skipped. Errors: MALFORMED, UNSUPPORTED (a type). */
tmsg_status_t tmsg_call_decode(const uint8_t *preamble, size_t bytes,
                               tmsg_call_head_t *head_p);

#endif
