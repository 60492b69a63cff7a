/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/conn.h - what an endpoint keeps of how its connection was
 * made. */
#ifndef TMSG_AM_ENDPOINT_CONN_H
#define TMSG_AM_ENDPOINT_CONN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <tensormsg/listener.h>
#include <tensormsg/tls.h>

#include "am/boot/frame.h"
#include "am/boot/keepalive.h"
#include "am/boot/key.h"
#include "am/boot/proof.h"
#include "am/boot/refusal.h"
#include "am/endpoint/kinds.h"
#include "am/net/loop.h"
#include "am/net/resolve.h"
#include "am/net/url.h"
#include "am/worker/worker.h"

/* Lists the types of frames on the socket of a connection. */
enum {
    TMSG_FRAME_HELLO = 1,
    TMSG_FRAME_ADDRESS = 3,         /* 4 is the heartbeat of keepalive.h */
    TMSG_FRAME_BYE = TMSG_KIND_BYE, /* number of the first message not sent */
    TMSG_FRAME_FIN = TMSG_KIND_FIN,
    TMSG_FRAME_RESUME = 8,
    TMSG_FRAME_RESUMED = 9,
    TMSG_FRAME_PROOF = 10,
    TMSG_FRAME_BULK = 11,
    TMSG_FRAME_RING = 12, /* offers a ring or a fast box, with its descriptor */
    /* The frames of loans, for tmsg_loan_frame(). SEGMENT has a descriptor. */
    TMSG_FRAME_SEGMENT = 13,
    TMSG_FRAME_SEGMENT_TAKEN = 14,
    TMSG_FRAME_SEGMENT_REFUSED = 15,
    TMSG_FRAME_LOAN_BACK = 16,
    TMSG_FRAME_SEGMENT_GONE = 17,
    TMSG_FRAME_CARRIER = 18,
    TMSG_FRAME_COUNT = 19, /* asks for COUNTED; connect/counted.h */
    TMSG_FRAME_COUNTED = 20,
    TMSG_FRAME_DEVICE = 21, /* device memory that one side opens of the other */
};

/* Handshakes of a listener that are under way by a stream, and those of them
 * that wait for it: they have said all that they have to say. */
typedef struct {
    uint32_t all, awaited;
} tmsg_stream_counts_t;

/* Describes the socket of an endpoint's connection. Only link.c, dial.c,
 * handshake.c and carrier.c change it, except `listener`, `wanting_ucx` and
 * `streams`. When the endpoint gets another connection (resume.h, redial.h),
 * what does not belong to one connection stays. */
typedef struct {
    tmsg_source_t source;
    tmsg_frame_stream_t stream;
    tmsg_pulse_t
        pulse; /* heartbeats of the stream; only liveness.c changes it */
    int fd;    /* -1: none yet, none any more, or a blob's */
    bool connected;
    bool hung_up;      /* its end was read, and is about to be told */
    bool hello_done;   /* the peer's hello was accepted */
    uint64_t hello_ns; /* when that was */
    /* The peer may have our address: it can write to our UCX worker. */
    bool address_sent;
    bool address_done; /* the peer's worker address came */
    /* Says why no descriptor may go or come by the socket; NULL: they may.
     * Known once address_done. */
    const char *passes_none;
    uint64_t address_ns; /* when that was */
    /* The peer has come to a listener and has not sent its address. */
    bool strange;
    /* Says why this side rules out shared memory, whoever the peer is; NULL: it
     * does not. */
    const char *apart;
    bool net_only;
    /* REFUSE was sent or received: both sides know why the connection ends. */
    bool explained;
    bool refused; /* REFUSE was received */
    /* Frames may lie in the stream, for tmsg_link_read_on(). */
    bool unread;
    tmsg_url_t url;
    tmsg_resolve_t *resolve; /* dialling side */
    tmsg_source_t resolve_source;
    size_t next_address;
    tmsg_timer_t queue;    /* dials again: the listener's queue was full */
    unsigned queue_ms;     /* time to wait before that; 0: it was not full */
    tmsg_timer_t deadline; /* ends the current slice of the time to connect */
    uint64_t since_ns;     /* when connecting began */
    uint64_t slice_ns;
    uint64_t slice_end_ns;
    unsigned slices; /* slices left, with the current one */
    /* Bounds a frame before admission, in bytes; 0: TMSG_HANDSHAKE_BYTES. */
    size_t handshake_bytes;
    tmsg_listener_t *listener; /* dialled side, until connected */
    /* Points to the listener's number of handshakes under way that will need
     * UCX; NULL once the listener is gone. */
    uint32_t *wanting_ucx;
    bool wants_ucx;                  /* this one is counted there */
    tmsg_stream_counts_t *streams;   /* likewise */
    bool is_stream, awaits_a_stream; /* this one is counted there, as what */
} tmsg_link_t;

/* Belongs to the room listen: the place of an accepted connection among those
 * of its listener that are in their handshake; and the listener that tells of
 * the peer (presence.h). */
typedef struct {
    tmsg_node_t node;
    struct tmsg_origin *origin; /* NULL: not known */
    bool taken;
    tmsg_listener_t *teller; /* NULL: nobody is to be told, or not any more */
    tmsg_node_t told_node;   /* node of the teller's list */
    tmsg_due_t peer_due;     /* calls on_peer */
    tmsg_due_t lost_due;     /* calls on_lost */
} tmsg_endpoint_place_t;

/* A frame before admission has at most this many bytes by default. */
#define TMSG_HANDSHAKE_BYTES 4096

/* Tells why a peer did not get in. Its listener counts these. */
typedef enum {
    TMSG_TURNED_OTHERWISE = 0, /* the endpoint's status tells */
    TMSG_TURNED_NO_KEY = 1,
    TMSG_TURNED_WRONG_KEY = 2,
    TMSG_TURNED_OLDER = 3, /* wire version without admission */
    TMSG_TURNED_TOO_MANY = 4,
    TMSG_TURNED_COUNT = 5
} tmsg_turned_t;

/* Holds what an endpoint needs to prove and check keys. Keyring and principal
 * stay with the endpoint; the rest belongs to one connection. */
typedef struct {
    tmsg_keyring_t *keyring; /* NULL: no key is asked for, or TLS does */
    tmsg_tls_t *tls;         /* NULL: TLS proves nothing */
    /* Points to `name`; NULL: none, or none yet. */
    const char *_Atomic principal;
    char name[TMSG_PRINCIPAL_BYTES];
    tmsg_turned_t turned;
    bool proved;   /* our proof was sent */
    bool admitted; /* the peer's proof came, and is right */
    /* Hold the hashes of the two hellos; by blob, of the last proofs. */
    uint8_t mine[TMSG_HASH_BYTES], theirs[TMSG_HASH_BYTES];
    /* Holds the hash of the hellos and the dialling side's proofs. */
    uint8_t bound[TMSG_HASH_BYTES];
} tmsg_admit_t;

typedef struct {
    const tmsg_map_t *map; /* a reference is held; NULL: none */
    /* Points to the message that UCX, or this side, writes into the map. */
    tmsg_message_t *message;
    bool waiting; /* a thread waits with this map */
    bool foreign; /* the map has tensors in a device's memory */
    bool leaving; /* `due` is queued */
    tmsg_due_t due;
} tmsg_posted_t;

#endif
