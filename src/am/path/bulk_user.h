/* SPDX-License-Identifier: BSD-3-Clause */
/* am/path/bulk_user.h - the table by which a bulk stream asks the sender and
 * the receiver of messages for the fragments that it moves. engine/engine.c
 * fills it. */
#ifndef TMSG_AM_PATH_BULK_USER_H
#define TMSG_AM_PATH_BULK_USER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include <tensormsg/endpoint.h>
#include <tensormsg/message.h>

#include "am/endpoint/fragments.h"
#include "am/ucx/ucx_status.h"

/* Holds what the header of a fragment says. */
typedef struct {
    uint16_t channel;
    uint32_t sequence; /* of its message */
    uint32_t number;
    uint64_t bytes;
} tmsg_bulk_head_t;

/* Says where a fragment goes. With message NULL the fragment is thrown away. */
typedef struct {
    tmsg_message_t *message;
    void *data; /* with count > 1 a list of struct iovec */
    size_t count;
    struct iovec *list; /* to be freed when it has landed */
} tmsg_bulk_place_t;

/* The room path calls these functions, with the worker's lock held and outside
 * UCX. No entry calls a function of the application. */
typedef struct {
    /* Gives the bulk stream the next fragment that the peer asked for. Its
     * memory stays as it is until handed() or unreadable(). Returns false if
     * there is none. */
    bool (*next)(tmsg_endpoint_t *endpoint, tmsg_fragment_t *fragment);
    /* Notes that the bulk stream does not read the fragment's memory any more.
     * May end the send of the fragment. */
    void (*handed)(const tmsg_fragment_t *fragment, tmsg_ucx_status_t ucs);
    /* Fails the message of a fragment whose memory at `at` cannot be read, if
     * it was not given up before; the error names the tensor. The fragment
     * counts as handed over. */
    void (*unreadable)(const tmsg_fragment_t *fragment, const void *at);

    /* Fills in where the bytes of a fragment go whose header has come. Returns
     * what is wrong with the header, or NULL. */
    const char *(*place)(tmsg_endpoint_t *endpoint,
                         const tmsg_bulk_head_t *head,
                         tmsg_bulk_place_t *place);
    /* Notes that the fragment is there, or will never be whole. */
    void (*landed)(tmsg_message_t *message, tmsg_ucx_status_t ucs);
} tmsg_bulk_user_t;

extern const tmsg_bulk_user_t tmsg_bulk_user;

#endif
