/* SPDX-License-Identifier: BSD-3-Clause */
/* transfer.h - the control messages between `tensormsg send` and `tensormsg
 * recv`. They are maps without tensors; their metadata tell what they are.
 * docs/wire/transfer.md specifies them. */
#ifndef TMSG_TRANSFER_H
#define TMSG_TRANSFER_H

#include "tool.h"

#define TRANSFER_ALIVE_MS 1000 /* interval of ALIVE */

/* Announces the next map, and asks whether the receiver wants it. */
typedef struct {
    int64_t number; /* number of the file on its connection, from 1 */
    uint64_t bytes; /* bytes of all tensors of the file */
    const char *name;
    const char *format;
    const char *note; /* what loading changed in the file, or NULL */
    bool checked;     /* the sender offers a verdict after the map */
} transfer_offer_t;

typedef enum {
    TRANSFER_GO = 0,     /* the receiver wants the file */
    TRANSFER_ALIVE = 1,  /* the receiver is still working on the file */
    TRANSFER_DONE = 2,   /* the file is complete under its final name */
    TRANSFER_FAILED = 3, /* the file is not wanted, or was not kept */
} transfer_state_t;

typedef struct {
    int64_t number;
    transfer_state_t state;
    const char *file; /* DONE: the final name, or "" if the file was not kept */
    const char *error; /* FAILED: the reason */
    bool checked;      /* GO: the receiver keeps nothing before the verdict */
} transfer_reply_t;

/* Tells whether the file stayed the same while it was sent. */
typedef struct {
    int64_t number;
    const char *changed; /* how the file changed; NULL: not at all */
} transfer_verdict_t;

tmsg_status_t transfer_send_offer(tmsg_endpoint_t *endpoint,
                                  const transfer_offer_t *offer);

/* Sends a reply. `request_p` may be NULL. */
tmsg_status_t transfer_send_reply(tmsg_endpoint_t *endpoint,
                                  const transfer_reply_t *reply,
                                  tmsg_request_t **request_p);

tmsg_status_t transfer_send_verdict(tmsg_endpoint_t *endpoint,
                                    const transfer_verdict_t *verdict);

/* These functions read a control message. They return false if the map is
 * another one. The pointers in the result belong to the map. */
bool transfer_read_offer(const tmsg_map_t *map, transfer_offer_t *offer);
bool transfer_read_reply(const tmsg_map_t *map, transfer_reply_t *reply);
bool transfer_read_verdict(const tmsg_map_t *map, transfer_verdict_t *verdict);

/* Returns a text of a map's metadata. Returns NULL if the map has no such text
 * or the text contains a NUL. */
const char *transfer_text(const tmsg_map_t *map, const char *key);

#endif
