/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/conn.h - what an endpoint keeps of how its connection came about.
 */
#ifndef TMSG_AM_ENDPOINT_CONN_H
#define TMSG_AM_ENDPOINT_CONN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <tensormsg/listener.h>

#include "am/boot/frame.h"
#include "am/boot/heart.h"
#include "am/boot/key.h"
#include "am/boot/proof.h"
#include "am/endpoint/kinds.h"
#include "am/net/loop.h"
#include "am/net/resolve.h"
#include "am/net/url.h"
#include "am/worker/worker.h"

/* The types of frames on the socket of a connection. */
enum {
    TMSG_FRAME_HELLO = 1,
    TMSG_FRAME_REFUSE = 2,
    TMSG_FRAME_ADDRESS = 3,         /* 4 is that of heart.h */
    TMSG_FRAME_BYE = TMSG_KIND_BYE, /* number of the first message not sent */
    TMSG_FRAME_FIN = TMSG_KIND_FIN,
    TMSG_FRAME_RESUME = 8,
    TMSG_FRAME_RESUMED = 9,
    TMSG_FRAME_PROOF = 10,
    TMSG_FRAME_LANE = 11,
};

/* Of an endpoint; changed by link.c, link_dial.c and handshake.c alone, but
 * for listener and handshakes. All
 * that is not of one connection stays when it gets another (resume.h,
 * redial.h). */
typedef struct {
    tmsg_source_t source;
    tmsg_frame_stream_t stream;
    tmsg_pulse_t pulse; /* of the stream; silence.c alone changes it */
    int fd;             /* -1: none (yet, any more, or a blob's) */
    bool connected;
    bool hello_done;   /* the peer's hello was accepted */
    bool address_sent; /* it may have ours: it can write to our UCX */
    bool address_done; /* its worker address came */
    const char *apart; /* why this side rules shared memory out, whatever the
                        * peer is; NULL: it does not */
    bool net_only;
    bool explained; /* REFUSE was said or heard: both know why it ends */
    bool refused;   /* it was heard */
    bool unread;    /* frames may lie in the stream: for tmsg_link_read_on() */
    tmsg_url_t url;
    tmsg_resolve_t *resolve; /* dialling side */
    tmsg_source_t resolve_source;
    size_t next_address;
    tmsg_timer_t deadline; /* of connecting, in slices: of the one that runs */
    uint64_t since_ns;     /* its begin */
    uint64_t slice_ns;
    uint64_t slice_end_ns;
    unsigned slices;            /* with the one that runs */
    size_t handshake_bytes;     /* of a frame before admission; 0: as usual */
    tmsg_listener_t *listener;  /* dialled side, until connected */
    const uint32_t *handshakes; /* of that one, under way; while it is there */
} tmsg_link_t;

#define TMSG_HANDSHAKE_BYTES 4096 /* of a frame before admission, usually */

/* Why a peer did not get in, as its listener counts it. */
typedef enum {
    TMSG_TURNED_OTHERWISE = 0, /* see the endpoint's status */
    TMSG_TURNED_NO_KEY = 1,
    TMSG_TURNED_WRONG_KEY = 2,
    TMSG_TURNED_OLDER = 3, /* of a version without admission */
    TMSG_TURNED_TOO_MANY = 4,
    TMSG_TURNED_COUNT = 5
} tmsg_turned_t;

/* Of an endpoint. Keyring and principal stay with it, the rest is of one
 * connection. */
typedef struct {
    tmsg_keyring_t *keyring;       /* NULL: no key is asked for */
    const char *_Atomic principal; /* NULL: none (yet), or `name` */
    char name[TMSG_PRINCIPAL_BYTES];
    tmsg_turned_t turned;
    bool proved;   /* this side has sent its proof */
    bool admitted; /* so has the peer, and it is right */
    uint8_t mine[TMSG_HASH_BYTES], theirs[TMSG_HASH_BYTES]; /* of the hellos;
                                                             * by blob, the
                                                             * last proofs */
    uint8_t bound[TMSG_HASH_BYTES]; /* with the dialling side's proofs */
} tmsg_admit_t;

typedef struct {
    const tmsg_map_t *map;   /* held; NULL: none */
    tmsg_message_t *message; /* that UCX, or we, write into it */
    bool waiting;            /* a thread waits with it */
    bool foreign;            /* it has tensors in a device's memory */
    bool leaving;            /* `due` is queued */
    tmsg_due_t due;
} tmsg_post_t;

#endif
