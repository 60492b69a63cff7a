/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/endpoint.h - one connection, from its first byte to its last.
 *
 * CONNECTING -> OPEN -> CLOSING -> ENDED, or straight to ENDED with an error.
 * With a session that outlives its connection AWAY is between: see resume.h.
 * An ended endpoint stays in its worker's table until UCX has reported every
 * operation on it, for only then is borrowed memory free, and until its handle
 * has been given back. */
#ifndef TMSG_AM_ENDPOINT_ENDPOINT_H
#define TMSG_AM_ENDPOINT_ENDPOINT_H

#include <stdatomic.h>
#include <stddef.h>

#include "am/boot/blob.h"
#include "am/endpoint/channel.h"
#include "am/endpoint/conn.h"
#include "am/endpoint/credit.h"
#include "am/endpoint/kinds.h"
#include "am/endpoint/measures.h"
#include "am/endpoint/op.h"
#include "am/endpoint/paths.h"
#include "am/shm/box.h"
#include "am/ucx/ucx_am.h"
#include "am/worker/request.h"
#include "am/worker/stats.h"
#include "core/error.h"
#include "core/refs.h"

typedef enum {
    TMSG_EP_CONNECTING = 0,
    TMSG_EP_OPEN = 1,
    TMSG_EP_CLOSING = 2, /* no new sends; what is under way goes on */
    TMSG_EP_ENDED = 3,
    TMSG_EP_AWAY = 4, /* the connection broke, and it gets another */
} tmsg_ep_state_t;

/* The first round of an attach; attach.c alone changes it. */
typedef struct {
    tmsg_timer_t again;
    unsigned attempts;
    void *blob; /* its payload, if it is one by blob */
    size_t blob_bytes;
    uint8_t proof[TMSG_NONCE_BYTES + TMSG_PROOF_BYTES]; /* of a peer by blob: at
                                                         * its body's end */
    size_t proof_bytes;
} tmsg_knock_t;

#define TMSG_MEASURED 16 /* layouts that are known to suit the peer */

/* The queues of all channels together. */
typedef struct {
    tmsg_queue_params_t bounds; /* all set */
    uint64_t bytes;             /* of tensors that wait */
    size_t answers;             /* that wait: of calls, and ends of streams */
    size_t shares;              /* that wait: of publishers */
    uint64_t rejected, blocked, dropped_oldest, dropped_newest, would_block;
} tmsg_queue_t;

typedef struct tmsg_ucxx tmsg_ucxx_t;
typedef struct tmsg_dialect tmsg_dialect_t;
struct tmsg_resume;

#define TMSG_LEASE_WORD_BYTES 16
#define TMSG_TRANSPORTS_BYTES 128

/* The room send's part of an endpoint: no other room touches it. What every
 * message looks at comes last, beside the first of recv's. */
typedef struct {
    unsigned parts_in_ucx;
    unsigned granted_in_ucx;     /* of these, of messages that it asked for */
    uint64_t sent_in_pieces;     /* messages with parts or slices */
    uint64_t parts_handed;       /* to UCX, in all */
    tmsg_schema_budget_t budget; /* of the layouts of all channels */
    uint32_t next_message_id;
    unsigned parts_awaited; /* of parting, those the peer is to ask for */
    tmsg_list_t parting;    /* sends, by what parts they have to hand over */
} tmsg_endpoint_tx_t;

/* The room recv's part. */
typedef struct {
    tmsg_list_t aborts;     /* of messages that have not come yet; abort.c */
    tmsg_post_t post;       /* what the next one is received into */
    unsigned parts_early;   /* messages with parts by UCX that are early, */
    unsigned parts_gapped;  /* or behind a gap: fetch_queue.h */
    uint64_t early_look;    /* the last in which one of these was early */
    tmsg_list_t kept_parts; /* of the peer's messages; see parts_in.c */
    uint32_t parts_asked;   /* for, of these, in all */
    uint32_t parts_came;    /* of those */
    uint32_t parts_seen;    /* to have come, when the next was looked for */
    tmsg_schema_budget_t budget; /* of the layouts of all channels */
    tmsg_due_t calls_due;        /* calls hear of its end */
} tmsg_endpoint_rx_t;

/* The engine's part: who hears of what becomes of it. */
typedef struct {
    struct tmsg_event *ready; /* requests of tmsg_endpoint_ready() */
    struct tmsg_event *close;
    tmsg_op_t closing;     /* ep, when it is being closed */
    tmsg_due_t closed_due; /* on_closed */
    tmsg_closed_fn on_closed;
    void *on_closed_arg;
} tmsg_endpoint_events_t;

/* The room connect's part: how the connection is made, and ended in order. */
typedef struct {
    void *peer_address;
    tmsg_knock_t knock;
    bool knocked;           /* the first round of the attach was heard */
    bool attaching;         /* the dialling side has begun the second */
    bool bye_sent;          /* we send no more messages */
    bool fin_received;      /* the peer has received all of ours */
    uint8_t redials;        /* of a connection that UCX did not make, */
    char redial_why[128];   /* and why, the first time */
    uint32_t subscribe;     /* TMSG_SUBSCRIBE_*, for our hello */
    uint32_t number;        /* of ep; see pair.h */
    tmsg_sockets_t sockets; /* below ep */
    struct tmsg_event *pings;
} tmsg_endpoint_conn_t;

/* The room path's part, beside the boxes. */
typedef struct {
    struct tmsg_lane *lane; /* NULL: none (yet), for the reason that */
    char lane_why[160];     /* is here, if one might be expected */
    bool ringless;          /* no ring could be made here, or opened there */
    bool ring_offered;      /* the peer has told of its own */
    bool late_lane;         /* it claimed to be that of one that is over */
    bool is_lane;           /* its socket is, or was to be, another's lane */
} tmsg_endpoint_paths_t;

/* This room's own parts. Who holds it: the table, the handle, messages, sends.
 */
typedef struct {
    tmsg_refs_t count;
    unsigned ahead; /* of these, had for what is still to come */
    bool listed;    /* in the table: it may have some ahead */
} tmsg_endpoint_refs_t;

/* What UCX carries it by. */
typedef struct {
    char transports[TMSG_TRANSPORTS_BYTES];
    bool asked; /* open, and it is yet to be said */
} tmsg_endpoint_carried_t;

/* See lease.h. */
typedef struct {
    uint8_t word[TMSG_LEASE_WORD_BYTES];      /* which the peer reads; */
    uint64_t peer_at;                         /* where its own is, */
    uint8_t peer_word[TMSG_LEASE_WORD_BYTES]; /* while it stands */
} tmsg_endpoint_lease_t;

/* UCX or the lane lost it, and the socket has not said why. */
typedef struct {
    tmsg_timer_t timer;
    char why[128];
} tmsg_endpoint_lost_t;

typedef struct {
    tmsg_node_t node; /* in its worker's list */
    bool queued;
} tmsg_endpoint_chores_t;

/* Small messages made inside UCX. */
typedef struct {
    tmsg_list_t waiting;
    uint32_t in_ucx;
} tmsg_endpoint_controls_t;

struct tmsg_endpoint {
    /* What every message looks at lies together, down to the first counters:
     * those of a thousand endpoints are not in the cache when it comes. */
    tmsg_worker_t *worker; /* dangles once life->over */
    tmsg_ucx_t *ucx;
    tmsg_ucx_ep_t ep; /* NULL: none, or closed */
    tmsg_life_t *life;
    tmsg_endpoint_refs_t refs;
    uint32_t id; /* ours: peers put it into their headers */
    tmsg_ep_state_t state;
    tmsg_status_t broken; /* it is to end with this; why is in broken_why */
    bool handle;          /* somebody owns it: application or listener */
    bool close_wanted;    /* the application asked for the orderly end */
    bool bye_received; /* nor does the peer, after its channels' bye_sequence */
    tmsg_endpoint_tx_t tx;
    tmsg_endpoint_rx_t rx;
    tmsg_credit_t credit;
    tmsg_boxes_t boxes; /* for small messages over shared memory */
    tmsg_channels_t channels;
    tmsg_stats_t stats;

    const struct tmsg_dialect *dialect;
    tmsg_ucxx_t *ucxx; /* of a ucx:// peer, else NULL */
    tmsg_due_t due;    /* of its listener: on_accept, or its release */
    void *calls_peer;  /* what it is to them; NULL: nothing. See calls.h */
    const struct tmsg_calls_ops *calls_ops;
    tmsg_endpoint_events_t events;
    uint32_t peer_id;        /* which it has for ours */
    tmsg_status_t status;    /* why it ended */
    bool accepted;           /* made by a listener */
    bool told;               /* on_closed is queued or was called */
    tmsg_listener_t *keeper; /* the listener that owns it */
    char error[TMSG_ERROR_BYTES];
    /* The peer's name, for readers in any thread: where it was looked for, and
     * from its hello on who it is. Either text is written before it is the
     * name, and never again. */
    const char *_Atomic peer;
    char peer_url[TMSG_URL_TEXT_BYTES];
    char peer_name[400];
    char why[160]; /* why shared memory is used, or not */
    tmsg_endpoint_carried_t carried;
    tmsg_carrier_t carrier; /* what that comes to; known once it is open */
    tmsg_cma_t cma;
    void *_Atomic user;

    tmsg_link_t link;
    tmsg_endpoint_conn_t conn;
    tmsg_endpoint_paths_t paths;
    bool dialling;
    uint8_t token[TMSG_TOKEN_BYTES]; /* the connection's secret */
    tmsg_endpoint_lease_t lease;
    tmsg_hello_t peer_hello;
    char devices[TMSG_DEVICES_BYTES]; /* to be used; "": as the address says */
    tmsg_ucx_ep_t reply_ep;           /* by which the peer's attach came */
    tmsg_list_t ops;                  /* that UCX has not reported */
    unsigned in_ucx; /* their number, and that of who needs its UCX worker */

    struct tmsg_resume *resume; /* NULL: no session is asked for */
    tmsg_endpoint_lost_t lost;
    tmsg_endpoint_chores_t chores;
    char broken_why[160];

    tmsg_measures_t measured[TMSG_MEASURED]; /* by stamp */
    tmsg_queue_t queue;
    tmsg_list_t pulled; /* sends, by what parts the lane is to hand over */
    tmsg_list_t posted; /* with UCX, or waiting for the peer's word */
    tmsg_endpoint_controls_t controls;
    tmsg_list_t ready; /* messages, by own_queue */

    struct tmsg_subscriber *subscriptions; /* of publishers to it */

    bool fin_sent; /* we have received all of the peer's */

    uint64_t ping_ns; /* when the one under way was sent; 0: none is */
    uint32_t ping_id;
    tmsg_admit_t admit;
};

_Static_assert(offsetof(tmsg_endpoint_t, tx.next_message_id) >= 64 &&
                   offsetof(tmsg_endpoint_t, rx.post.map) < 3 * 64 &&
                   offsetof(tmsg_endpoint_t, channels) < 9 * 64,
               "what every message looks at lies in few lines of the cache");

/* A request that only waits for something to happen to an endpoint. */
typedef struct tmsg_event {
    tmsg_request_t request;
    const tmsg_endpoint_t *endpoint; /* as long as it is in its list */
    struct tmsg_event **list;
    struct tmsg_event *next;
} tmsg_event_t;

/* UCX has taken an active message for it: each is counted, for a box says how
 * many have gone before what is in it. */
void tmsg_endpoint_sent_am(tmsg_endpoint_t *endpoint);

/* tmsg_ucx_am_send() by its UCX endpoint, which is counted. */
static inline tmsg_ucx_status_t
tmsg_endpoint_send_am(tmsg_endpoint_t *endpoint, const tmsg_ucx_send_t *send,
                      tmsg_ucx_sent_t sent, void *arg)
{
    tmsg_ucx_status_t ucs = tmsg_ucx_am_send(endpoint->ep, send, sent, arg);

    if (!tmsg_ucx_is_error(ucs)) {
        tmsg_endpoint_sent_am(endpoint);
    }
    return ucs;
}

/* Makes one in its worker's table, with a reference of the table and one of
 * the handle. Lock held. Errors: NO_MEMORY, LIMIT_EXCEEDED. */
tmsg_status_t tmsg_endpoint_create(tmsg_worker_t *worker,
                                   const tmsg_dialect_t *dialect,
                                   tmsg_endpoint_t **endpoint_p);

void tmsg_endpoint_hold(tmsg_endpoint_t *endpoint);
void tmsg_endpoint_drop(tmsg_endpoint_t *endpoint); /* from any thread */

/* The same with the worker's lock held, which mostly costs no atomic operation;
 * what the one took the others may drop. */
void tmsg_endpoint_borrow(tmsg_endpoint_t *endpoint);
void tmsg_endpoint_return(tmsg_endpoint_t *endpoint);

/* It leaves the table, and with it go the references that were had ahead. */
void tmsg_endpoint_unlist(tmsg_endpoint_t *endpoint);

/* The low bits of an id are its place in the table of its worker. */
#define TMSG_ENDPOINT_SLOT_BITS 20
#define TMSG_ENDPOINT_SLOT_MASK ((1u << TMSG_ENDPOINT_SLOT_BITS) - 1)

/* The endpoint that an id of ours names, or NULL. */
tmsg_endpoint_t *tmsg_endpoint_by_id(tmsg_worker_t *worker, uint32_t id);

/* Lock held: the next endpoint of a worker's table, from slot *i on, which
 * moves past it; with `ucx`, of those that use that UCX worker. NULL: there is
 * no other. Endpoints may leave the table between two calls. */
tmsg_endpoint_t *tmsg_endpoint_next(const tmsg_worker_t *worker,
                                    const tmsg_ucx_t *ucx, uint32_t *i);

/* Whether it has no connection (any more, or for the time being). */
static inline bool tmsg_endpoint_is_down(const tmsg_endpoint_t *endpoint)
{
    return endpoint->state == TMSG_EP_ENDED || endpoint->state == TMSG_EP_AWAY;
}

/* Lock held: no more sends; what is under way is finished. */
void tmsg_endpoint_close_begin(tmsg_endpoint_t *endpoint);

/* Lock held: the peer's name from now on; once. */
void tmsg_endpoint_name_peer(tmsg_endpoint_t *endpoint, const char *url);

/* A message may keep an endpoint beyond its worker: to be asked first. Errors:
 * CLOSED. */
tmsg_status_t tmsg_endpoint_check_worker(const tmsg_endpoint_t *endpoint);

/* Whether no small message passed it for a while, either way: a turn of what is
 * large may be long. */
bool tmsg_endpoint_is_alone(const tmsg_endpoint_t *endpoint,
                            tmsg_others_t *others);

/* Whether messages may be pulled. Errors: INVALID_PARAM (there is a handler),
 * CLOSED (its worker is gone). */
tmsg_status_t tmsg_endpoint_check_pull(const tmsg_endpoint_t *endpoint);

/* Gives it another id, so that nothing finds it by the one it had. */
void tmsg_endpoint_rename(tmsg_endpoint_t *endpoint);

/* Takes back one of in_ucx; the last one may free an ended endpoint. */
void tmsg_endpoint_reported(tmsg_endpoint_t *endpoint);

/* Adds a request to a list, with two references, so that it can end before its
 * handle is given out. Canceled, it ends alone and names the endpoint, which
 * may be NULL. Errors: NO_MEMORY. */
tmsg_status_t tmsg_events_add(tmsg_event_t **list, tmsg_worker_t *worker,
                              const tmsg_endpoint_t *endpoint,
                              tmsg_request_t **request_p);

/* Ends all events of a list. */
void tmsg_events_end(tmsg_event_t **list, tmsg_status_t status,
                     const char *error);

/* Whether what the peer says is to be believed: it has proved a key, or none is
 * asked for. */
bool tmsg_admit_is_over(const tmsg_endpoint_t *endpoint);

/* Whether UCX has an endpoint for a peer that is still to prove its key: one by
 * blob. */
bool tmsg_admit_is_half(const tmsg_endpoint_t *endpoint);

/* Whether it is on its way, so that a step may have become possible. */
bool tmsg_close_waits(const tmsg_endpoint_t *endpoint);

/* Whether the socket still stands; true where there never was one. */
bool tmsg_link_alive(const tmsg_endpoint_t *endpoint);

/* Lock held: has the endpoint's chores done by the next progress(), which takes
 * one after the other. */
void tmsg_worker_chore(tmsg_worker_t *worker, tmsg_endpoint_t *endpoint);
tmsg_endpoint_t *tmsg_worker_next_chore(tmsg_worker_t *worker);

/* Where the measures of a map that suits the peer are; of another map, if the
 * stamp is another. */
tmsg_measures_t *tmsg_send_measured(tmsg_endpoint_t *endpoint,
                                    const tmsg_map_t *map);

#endif
