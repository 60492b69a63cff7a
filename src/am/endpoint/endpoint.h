/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/endpoint.h - one connection, from its first byte to its last.
 *
 * CONNECTING -> OPEN -> CLOSING -> ENDED, or straight to ENDED with an error.
 *
 * With a session that outlives its connection, AWAY comes between two
 * connections: see resume.h. An ended endpoint stays in its worker's table
 * until its handle has been given back and UCX has reported every operation on
 * it: only then is borrowed memory free. */
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
#include "am/shm/fastbox.h"
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
    TMSG_EP_AWAY = 4, /* the connection broke, and the endpoint gets another */
} tmsg_ep_state_t;

/* Holds a connect request, or its reply, that is being sent. Only wireup.c and
 * the files for blobs change it. */
typedef struct {
    tmsg_timer_t again;
    unsigned attempts;
    void *blob; /* payload of a connect request by blob, else NULL */
    size_t blob_bytes;
    /* Holds the proof of a peer by blob, which is at the end of the body. */
    uint8_t proof[TMSG_NONCE_BYTES + TMSG_PROOF_BYTES];
    size_t proof_bytes;
} tmsg_connect_request_t;

/* An endpoint remembers this many layouts that suit the peer. */
#define TMSG_MEASURED 16

/* The bound for which a queue drops messages. */
typedef enum {
    TMSG_QUEUE_DROP_MESSAGES = 0,
    TMSG_QUEUE_DROP_BYTES = 1,
    TMSG_QUEUE_DROP_AGE = 2,
    TMSG_QUEUE_DROPS = 3
} tmsg_queue_drop_t;

/* Bounds and counts the send queues of all channels together. */
typedef struct {
    tmsg_queue_params_t bounds; /* every field is set */
    uint64_t bytes;             /* bytes of tensors that wait */
    size_t answers;     /* waiting replies to calls, and ends of streams */
    size_t shares;      /* waiting messages of publishers */
    uint32_t under_way; /* messages in the window */
    tmsg_timer_t timer; /* for what may wait no longer */
    uint64_t rejected, blocked, dropped_oldest, dropped_newest, would_block;
    uint64_t drops[TMSG_QUEUE_DROPS]; /* of both kinds, by the reason */
} tmsg_queue_t;

typedef struct tmsg_ucxx tmsg_ucxx_t;
typedef struct tmsg_dialect tmsg_dialect_t;
struct tmsg_resume;

#define TMSG_LEASE_WORD_BYTES 16
#define TMSG_TRANSPORTS_BYTES 128

/* Belongs to the room send: no other room touches it. The fields that every
 * message looks at come last, beside the first fields of recv. */
typedef struct {
    unsigned fragments_in_ucx;
    /* Counts the fragments in UCX of messages whose fragments the peer has
     * asked for. */
    unsigned granted_in_ucx;
    uint64_t sent_in_fragments; /* messages with fragments or slices */
    /* fragments handed to UCX or to the bulk stream, in all */
    uint64_t fragments_handed;
    tmsg_schema_budget_t budget; /* bounds the layouts of all channels */
    uint64_t packed_bytes;       /* of messages that were packed as a whole */
    uint32_t next_message_id;
    /* sends in `fragments_queued` whose fragments the peer is to ask for */
    unsigned fragments_awaited;
    tmsg_list_t fragments_queued; /* sends that have fragments to hand to UCX */
} tmsg_endpoint_tx_t;

/* Belongs to the room recv. */
typedef struct {
    size_t aborts; /* aborts of messages yet to come, in all channels */
    /* map that the next message is received into; at the face */
    tmsg_posted_t posted;
    tmsg_list_t kept_fragments; /* fragments of the peer's messages; see
                                   fragments_in.c */
    uint32_t fragments_asked;   /* kept fragments that were asked for, in all */
    uint32_t fragments_came;    /* fragments that came of those asked for */
    /* fragments_came, when the next was last looked for */
    uint32_t fragments_seen;
    /* Counts messages with fragments by UCX that may not ask for memory yet, by
     * their state; see fetch_queue.h. */
    uint32_t with_fragments[TMSG_FETCH_EARLY + 1];
    tmsg_schema_budget_t budget; /* bounds the layouts of all channels */
    tmsg_due_t calls_due;        /* tells calls of the endpoint's end */
    /* Held until they were told: calls may go on by it. NULL: there is none. */
    tmsg_endpoint_t *calls_heir;
} tmsg_endpoint_rx_t;

/* Belongs to the room recv: the early messages that fill UCX's window, by turn.
 * The endpoint is in the worker's list while it has some. */
typedef struct {
    tmsg_list_t fills;
    tmsg_node_t queue;
} tmsg_endpoint_early_t;

/* Belongs to the engine: who is told what becomes of the endpoint. */
typedef struct {
    struct tmsg_event *ready; /* requests of tmsg_endpoint_ready() */
    struct tmsg_event *close;
    tmsg_op_t closing;     /* closes `ep` */
    tmsg_due_t closed_due; /* calls on_closed */
    tmsg_closed_fn on_closed;
    void *on_closed_arg;
} tmsg_endpoint_events_t;

/* Tells how long a listener is waited for that is not there yet. */
typedef struct {
    bool asked;           /* the application waits for it */
    bool endless;         /* without limit */
    unsigned attempts;    /* that met nobody */
    uint64_t since_ns;    /* when the first of them began */
    tmsg_status_t status; /* what the last one met */
    char why[160];
} tmsg_awaited_t;

/* Tells what the peer has said of the stream of messages; see
 * connect/counted.h. */
typedef struct {
    uint64_t written;  /* bytes that were written when it was asked */
    uint64_t read;     /* bytes that it has read, as it said last */
    uint64_t told_ns;  /* when that was; 0: never */
    uint64_t since_ns; /* since then it has said so; 0: it has read all */
    unsigned same;     /* how many times it has said so */
    bool asked;        /* it has not answered yet */
} tmsg_counted_t;

/* Belongs to the room connect: how the connection is made, and ended in
 * order. */
typedef struct {
    struct tmsg_peer_address *peer_address; /* checked */
    tmsg_connect_request_t connect_request;
    bool heard_connect; /* the request, or its reply, has come */
    bool began_wireup;  /* the dialling side has sent WIREUP */
    bool bye_sent;      /* our side sends no more messages */
    bool fin_received;  /* the peer has received all our messages */
    /* Counts how often UCX failed to connect and this side dialled anew. */
    uint8_t redials;
    /* Counts how often the peer had no place for this connection, and `again`
     * tells when it is dialled after that. */
    unsigned waits;
    tmsg_timer_t again;
    tmsg_awaited_t awaited;
    char redial_why[128];      /* why it dialled anew the first time */
    uint32_t subscribe;        /* TMSG_SUBSCRIBE_*, for our hello */
    uint32_t number;           /* endpoint index of `ep`; see ep_index.h */
    bool is_sibling;           /* peer_address is of this process */
    tmsg_ep_sockets_t sockets; /* TCP sockets below `ep` */
    struct tmsg_event *pings;
    uint8_t carrier; /* TMSG_CARRIER_* that this side asks for */
    bool pipes;      /* a pipe carries the messages: the stream carrier */
    struct tmsg_claim *claim; /* dials the pipe; NULL: none is dialled */
    bool claims;       /* the connection waits to be another one's pipe */
    uint32_t claimant; /* id of the connection that does so; 0: none */
    tmsg_counted_t counted;
} tmsg_endpoint_conn_t;

/* Belongs to the room path, besides the fast boxes. */
typedef struct {
    struct tmsg_bulk *bulk; /* NULL: none, or none yet; see bulk_why */
    /* Says why there is no bulk stream, if one might be expected. */
    char bulk_why[160];
    /* Tells that no ring could be made here, or opened by the peer. */
    bool ringless;
    bool ring_offered; /* the peer has told of its ring */
    bool shares;       /* a ring or fast box of the connection is in use */
    bool unsealed;     /* and one of them could not be sealed */
    /* The connection claimed to be the bulk stream of an endpoint that has
     * ended. */
    bool late_bulk;
    /* The socket is, or was to be, the bulk stream of another endpoint. */
    bool is_bulk;
    bool asks_loans;          /* this side has asked the peer for loans */
    struct tmsg_loans *loans; /* NULL: none of this connection yet */
    struct tmsg_ipc *ipc;     /* NULL: as well; see path/ipc.h */
} tmsg_endpoint_paths_t;

/* Belongs to this room. The table, the handle, messages and sends hold
 * references to the endpoint. */
typedef struct {
    tmsg_refs_t count;
    unsigned ahead; /* part of `count` that was taken in advance */
    bool listed;    /* the table has it: some may be taken in advance */
} tmsg_endpoint_refs_t;

/* Holds the transports of UCX that carry the endpoint. */
typedef struct {
    char transports[TMSG_TRANSPORTS_BYTES];
    bool asked; /* open, and its transports are yet to be asked */
} tmsg_endpoint_carried_t;

/* Holds the lease of each side; see lease.h. */
typedef struct {
    uint8_t word[TMSG_LEASE_WORD_BYTES]; /* the word that the peer reads */
    uint64_t peer_at; /* address of the peer's word; 0: none */
    /* Says why the process that the peer names is not believed to be the
     * peer's; NULL: it is, or nobody asked. */
    const char *doubt;
    /* Holds the value of the peer's word while its lease stands. */
    uint8_t peer_word[TMSG_LEASE_WORD_BYTES];
} tmsg_endpoint_lease_t;

/* UCX or the bulk stream lost the connection, and the socket has not said why
 * yet. */
typedef struct {
    tmsg_timer_t timer;
    char why[128];
} tmsg_endpoint_lost_t;

typedef struct {
    tmsg_node_t node; /* node of the worker's list */
    bool queued;
} tmsg_endpoint_chores_t;

/* Holds small messages that were made inside UCX. */
typedef struct {
    tmsg_list_t waiting;
    uint32_t in_ucx;
} tmsg_endpoint_controls_t;

struct tmsg_endpoint {
    /* The fields that every message looks at lie together, down to the first
     * counters. With a thousand endpoints they are not in the cache when a
     * message comes. */
    tmsg_worker_t *worker; /* dangles once life->over */
    tmsg_ucx_t *ucx;
    tmsg_ucx_ep_t ep; /* NULL: none, or closed */
    tmsg_life_t *life;
    /* The face is the endpoint whose handle the application has: this one, or
     * the first of those that have taken one another's place after restarts of
     * the peer. Of a face `now` is the latest of them, of others themselves. A
     * heir holds its face. See session/heir.h. */
    tmsg_endpoint_t *face;
    tmsg_endpoint_t *_Atomic now;
    tmsg_endpoint_refs_t refs;
    uint32_t id; /* our id; peers put it into their headers */
    tmsg_ep_state_t state;
    /* The endpoint is to end with this status; broken_why says why. */
    tmsg_status_t broken;
    bool handle;       /* the application or a listener owns it */
    bool close_wanted; /* the application asked for the orderly end */
    bool discards;     /* the application takes no more messages; at the face */
    /* The peer sends no message after the bye_sequence of each channel. */
    bool bye_received;
    bool peer_leaves; /* the peer's server shuts down, says its FIN */
    tmsg_endpoint_tx_t tx;
    tmsg_endpoint_rx_t rx;
    tmsg_credit_t credit;
    /* fast boxes for small messages over shared memory */
    tmsg_fastboxes_t fastboxes;
    tmsg_channels_t channels;
    tmsg_stats_t stats;

    const struct tmsg_dialect *dialect;
    tmsg_ucxx_t *ucxx; /* state of a ucx:// peer, else NULL */
    tmsg_due_t due;    /* runs the listener's on_accept, or its release */
    /* Points to what the endpoint is to the consumer of calls; NULL: nothing.
     * See calls.h. */
    void *calls_peer;
    const struct tmsg_calls_ops *calls_ops;
    tmsg_endpoint_events_t events;
    uint32_t peer_id;     /* the peer's id of the connection */
    tmsg_status_t status; /* why it ended */
    bool accepted;        /* a listener made it */
    bool told;            /* on_closed is queued or was called; at the face */
    tmsg_listener_t *keeper; /* the listener that owns it */
    char error[TMSG_ERROR_BYTES];
    /* Points to the peer's name, for readers in any thread. The name says where
     * the peer was looked for and, once the hello has come, who the peer is.
     * Each text is written before `peer` points to it, and never again. */
    const char *_Atomic peer;
    char peer_url[TMSG_URL_TEXT_BYTES];
    char peer_name[400];
    char why[160]; /* why shared memory is used, or not */
    tmsg_endpoint_carried_t carried;
    /* Tells what the transports amount to; known once the endpoint is open. */
    tmsg_transport_t transport;
    tmsg_cma_t cma;
    void *_Atomic user;

    tmsg_link_t link;
    tmsg_endpoint_conn_t conn;
    tmsg_endpoint_place_t place;
    tmsg_endpoint_paths_t paths;
    bool dialling;
    uint8_t token[TMSG_TOKEN_BYTES]; /* the connection's secret */
    tmsg_endpoint_lease_t lease;
    tmsg_hello_t peer_hello;
    uint64_t peer_memory; /* UCX's types of memory, a bit each, that it has */
    /* Lists the devices to be used; "": those of the address. */
    char devices[TMSG_DEVICES_BYTES];
    /* Points to the UCX endpoint by which the peer's wireup came. */
    tmsg_ucx_ep_t reply_ep;
    tmsg_list_t ops; /* operations that UCX has not reported */
    /* Counts the operations in `ops`, and others that need the UCX worker. */
    unsigned in_ucx;

    struct tmsg_resume *resume; /* NULL: no session is asked for */
    tmsg_endpoint_lost_t lost;
    tmsg_endpoint_chores_t chores;
    char broken_why[160];

    tmsg_measures_t measured[TMSG_MEASURED]; /* measures by stamp */
    tmsg_queue_t queue;
    /* sends whose fragments the bulk stream is to hand over */
    tmsg_list_t pulled;
    tmsg_list_t posted; /* sends in UCX, or waiting for the peer's answer */
    tmsg_endpoint_controls_t controls;
    /* messages to be pulled, linked by own_queue; at the face */
    tmsg_list_t ready;
    tmsg_list_t awaiting; /* CALLs that wait for streams; at the face */
    tmsg_endpoint_early_t early;

    /* Lists subscriptions of this peer to publishers. */
    struct tmsg_subscriber *subscriptions;

    bool fin_sent; /* our side has received all the peer's messages */

    /* Tells when the ping under way was sent; 0: none is. */
    uint64_t ping_ns;
    uint32_t ping_id;
    tmsg_admit_t admit;
};

_Static_assert(offsetof(tmsg_endpoint_t, tx.next_message_id) >= 64 &&
                   offsetof(tmsg_endpoint_t, rx.posted.map) < 3 * 64 &&
                   offsetof(tmsg_endpoint_t, channels) < 9 * 64,
               "what every message looks at lies in few lines of the cache");

/* Waits for something to happen to an endpoint, and does nothing else. */
typedef struct tmsg_event {
    tmsg_request_t request;
    const tmsg_endpoint_t *endpoint; /* valid while the event is in its list */
    struct tmsg_event **list;
    struct tmsg_event *next;
} tmsg_event_t;

/* Counts an active message that UCX has taken for the endpoint. A fast box
 * tells with each message how many active messages went before it. */
void tmsg_endpoint_sent_am(tmsg_endpoint_t *endpoint);

/* Calls tmsg_ucx_am_send() with the endpoint's UCX endpoint, and counts the
 * message. */
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

/* Makes an endpoint in the table of its worker. The table has a reference and
 * the handle has one. Lock held. Errors: NO_MEMORY, LIMIT_EXCEEDED. */
tmsg_status_t tmsg_endpoint_create(tmsg_worker_t *worker,
                                   const tmsg_dialect_t *dialect,
                                   tmsg_endpoint_t **endpoint_p);

void tmsg_endpoint_hold(tmsg_endpoint_t *endpoint);
void tmsg_endpoint_drop(tmsg_endpoint_t *endpoint); /* any thread may drop */

/* These two work as tmsg_endpoint_hold() and tmsg_endpoint_drop(), with the
 * worker's lock held and mostly without an atomic operation. A reference that
 * one pair took, the other pair may drop. */
void tmsg_endpoint_borrow(tmsg_endpoint_t *endpoint);
void tmsg_endpoint_return(tmsg_endpoint_t *endpoint);

/* Takes the endpoint out of the table, with the references that were taken in
 * advance. */
void tmsg_endpoint_unlist(tmsg_endpoint_t *endpoint);

/* The low bits of an id are the endpoint's slot in the table of its worker. */
#define TMSG_ENDPOINT_SLOT_BITS 20
#define TMSG_ENDPOINT_SLOT_MASK ((1u << TMSG_ENDPOINT_SLOT_BITS) - 1)

/* Returns the endpoint that an id of this side names, or NULL. */
tmsg_endpoint_t *tmsg_endpoint_by_id(tmsg_worker_t *worker, uint32_t id);

/* Returns the next endpoint of a worker's table from slot *i on, and moves *i
 * past it. With `ucx` it looks only at endpoints that use that UCX worker.
 * NULL: there is no other. Endpoints may leave the table between two calls.
 * Lock held. */
tmsg_endpoint_t *tmsg_endpoint_next(const tmsg_worker_t *worker,
                                    const tmsg_ucx_t *ucx, uint32_t *i);

/* Returns whether the endpoint has no connection any more, or for the time
 * being. */
static inline bool tmsg_endpoint_is_down(const tmsg_endpoint_t *endpoint)
{
    return endpoint->state == TMSG_EP_ENDED || endpoint->state == TMSG_EP_AWAY;
}

/* Returns the endpoint that stands for the handle of the application, or of a
 * listener, at this time. Lock held, unless the worker is not shared. */
static inline tmsg_endpoint_t *
tmsg_endpoint_now(const tmsg_endpoint_t *endpoint)
{
    return atomic_load_explicit(&endpoint->now, memory_order_relaxed);
}

/* The same, for any of those that have stood for the handle. Lock held. */
static inline tmsg_endpoint_t *
tmsg_endpoint_heir(const tmsg_endpoint_t *endpoint)
{
    return tmsg_endpoint_now(endpoint->face);
}

/* Begins an orderly end: nothing new is sent, and what is under way is
 * finished. Lock held. */
void tmsg_endpoint_close_begin(tmsg_endpoint_t *endpoint);

/* Sets the peer's final name. Called once. Lock held. */
void tmsg_endpoint_name_peer(tmsg_endpoint_t *endpoint, const char *url);

/* Checks that the worker is still there: a message may keep an endpoint longer
 * than its worker. Errors: CLOSED. */
tmsg_status_t tmsg_endpoint_check_worker(const tmsg_endpoint_t *endpoint);

/* Returns whether no small message passed the endpoint for a while, either way.
 * If so, large payloads may have long turns. */
bool tmsg_endpoint_is_alone(const tmsg_endpoint_t *endpoint,
                            tmsg_others_t *others);

/* Checks whether messages may be pulled. Errors: INVALID_PARAM (there is a
 * handler), CLOSED (the worker is gone). */
tmsg_status_t tmsg_endpoint_check_pull(const tmsg_endpoint_t *endpoint);

/* Gives the endpoint another id, so that nothing finds it by its old one. */
void tmsg_endpoint_rename(tmsg_endpoint_t *endpoint);

/* Counts one operation of in_ucx as reported. The last one may free an ended
 * endpoint. */
void tmsg_endpoint_reported(tmsg_endpoint_t *endpoint);

/* Adds a request to a list. It has two references, so that it can end before
 * its handle is given out. If it is canceled, only the request ends; its error
 * names the endpoint, which may be NULL. Errors: NO_MEMORY. */
tmsg_status_t tmsg_events_add(tmsg_event_t **list, tmsg_worker_t *worker,
                              const tmsg_endpoint_t *endpoint,
                              tmsg_request_t **request_p);

/* Ends all events of a list. */
void tmsg_events_end(tmsg_event_t **list, tmsg_status_t status,
                     const char *error);

/* Returns whether a proof is asked for, by a key or by TLS. */
bool tmsg_admit_is_asked(const tmsg_endpoint_t *endpoint);

/* Returns whether the peer is to be believed: it has proved who it is, or no
 * proof is asked for. */
bool tmsg_admit_is_over(const tmsg_endpoint_t *endpoint);

/* Returns whether the peer is still to prove its key. By blob, UCX has an
 * endpoint for such a peer. */
bool tmsg_admit_is_half(const tmsg_endpoint_t *endpoint);

/* Returns whether the endpoint is closing, so that a step may have become
 * possible. */
bool tmsg_close_waits(const tmsg_endpoint_t *endpoint);

/* Returns whether the socket still stands; true if there never was one. */
bool tmsg_link_alive(const tmsg_endpoint_t *endpoint);

/* tmsg_worker_chore() has the next progress() do the endpoint's chores.
 * tmsg_worker_next_chore() takes the first endpoint that has chores off the
 * list. Lock held. */
void tmsg_worker_chore(tmsg_worker_t *worker, tmsg_endpoint_t *endpoint);
tmsg_endpoint_t *tmsg_worker_next_chore(tmsg_worker_t *worker);

/* Returns where the measures of a map are that suits the peer. If their stamp
 * is another, they are of another map. */
tmsg_measures_t *tmsg_send_measured(tmsg_endpoint_t *endpoint,
                                    const tmsg_map_t *map);

#endif
