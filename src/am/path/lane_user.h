/* SPDX-License-Identifier: BSD-3-Clause */
/* am/path/lane_user.h - whose parts a lane moves: a table, filled by
 * engine/engine.c, of what the sender and the receiver of messages do. The
 * worker's lock is held in all of them. */
#ifndef TMSG_AM_PATH_LANE_USER_H
#define TMSG_AM_PATH_LANE_USER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include <tensormsg/endpoint.h>
#include <tensormsg/message.h>

#include "am/endpoint/fragments.h"
#include "am/ucx/ucx_status.h"

/* What the header of a part says. */
typedef struct {
    uint16_t channel;
    uint32_t sequence; /* of its message */
    uint32_t number;
    uint64_t bytes;
} tmsg_lane_head_t;

/* Where a part goes; with message NULL it is thrown away. */
typedef struct {
    tmsg_message_t *message;
    void *data; /* with count > 1 a list of struct iovec */
    size_t count;
    struct iovec *list; /* to be freed when it has landed */
} tmsg_lane_place_t;

/* The room path calls these, with the worker's lock held and outside UCX. No
 * entry calls a function of the application. */
typedef struct {
    /* The lane can take another piece: which one is next? The piece is the
     * lane's until it is handed over. False: there is none. */
    bool (*next)(tmsg_endpoint_t *endpoint, tmsg_parts_piece_t *piece);
    /* The lane does not read the piece's memory any more. May end its send. */
    void (*handed)(const tmsg_parts_piece_t *piece, tmsg_ucx_status_t ucs);
    /* The piece's memory at `at` cannot be read: its message fails, with the
     * name of the tensor, and the piece is handed over. */
    void (*unreadable)(const tmsg_parts_piece_t *piece, const void *at);

    /* The header of a part has come: fills in where its bytes go. Returns what
     * is wrong with it; NULL: nothing is. */
    const char *(*place)(tmsg_endpoint_t *endpoint,
                         const tmsg_lane_head_t *head,
                         tmsg_lane_place_t *place);
    /* The part is there, or will never be whole. */
    void (*landed)(tmsg_message_t *message, tmsg_ucx_status_t ucs);
} tmsg_lane_user_t;

extern const tmsg_lane_user_t tmsg_lane_user;

#endif
