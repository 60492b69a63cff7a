/* SPDX-License-Identifier: BSD-3-Clause */
/* transfer.h - the words between `tensormsg send` and `tensormsg recv`, as
 * docs/transfer.md has them: maps without tensors, told by their metadata. */
#ifndef TMSG_TRANSFER_H
#define TMSG_TRANSFER_H

#include "tool.h"

#define TRANSFER_ALIVE_MS 1000 /* a working receiver says so this often */

/* "The next map is this file; do you want it?" */
typedef struct {
    int64_t number; /* of the file on its connection, from 1 */
    uint64_t bytes; /* of its tensors */
    const char *name;
    const char *format;
    const char *note; /* what loading it changed, or NULL */
    bool checked;     /* a verdict follows the map, to a receiver that waits */
} transfer_offer_t;

typedef enum {
    TRANSFER_GO = 0,     /* send it */
    TRANSFER_ALIVE = 1,  /* it is being received or written */
    TRANSFER_DONE = 2,   /* it is whole, under its final name */
    TRANSFER_FAILED = 3, /* it is not wanted, or could not be kept */
} transfer_state_t;

typedef struct {
    int64_t number;
    transfer_state_t state;
    const char *file;  /* DONE: the final name, or "" where none was kept */
    const char *error; /* FAILED: why */
    bool checked;      /* GO: it keeps nothing before the sender's verdict */
} transfer_reply_t;

/* "What you have of this file is what it was", or is not. */
typedef struct {
    int64_t number;
    const char *changed; /* how, in words; NULL: it stayed the same */
} transfer_verdict_t;

tmsg_status_t transfer_send_offer(tmsg_endpoint_t *endpoint,
                                  const transfer_offer_t *offer);

/* `request_p` may be NULL. */
tmsg_status_t transfer_send_reply(tmsg_endpoint_t *endpoint,
                                  const transfer_reply_t *reply,
                                  tmsg_request_t **request_p);

tmsg_status_t transfer_send_verdict(tmsg_endpoint_t *endpoint,
                                    const transfer_verdict_t *verdict);

/* False: it is some other map. What the fields point to belongs to the map. */
bool transfer_read_offer(const tmsg_map_t *map, transfer_offer_t *offer);
bool transfer_read_reply(const tmsg_map_t *map, transfer_reply_t *reply);
bool transfer_read_verdict(const tmsg_map_t *map, transfer_verdict_t *verdict);

/* Text of a map's metadata, NULL if it has none or it holds a NUL. */
const char *transfer_text(const tmsg_map_t *map, const char *key);

#endif
