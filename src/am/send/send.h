/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/send.h - the record of a map that is sent, and the steps of a send.
 * Lock held, for all functions here except tmsg_send_free_spare(). */
#ifndef TMSG_AM_SEND_SEND_H
#define TMSG_AM_SEND_SEND_H

#include "am/endpoint/consumer.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/measures.h"
#include "am/path/cma.h"
#include "am/send/broadcast.h"
#include "am/send/plan.h"
#include "am/send/shared_plan.h"

/* malloc() still keeps a freed record with buffers of these sizes at hand. */
#define TMSG_SEND_SMALL_HEADER 104
#define TMSG_SEND_SMALL_PAYLOAD 576

typedef struct tmsg_fragments_out tmsg_fragments_out_t;
typedef struct tmsg_stage_out tmsg_stage_out_t;

/* Says whether a send that UCX has not reported was given up; cancel.c. */
typedef enum {
    TMSG_GIVE_UP_NONE = 0,
    TMSG_GIVE_UP_PENDING, /* its request ends with `answer`, whatever comes */
    TMSG_GIVE_UP_ENDED,   /* its request has ended, UCX has not reported */
} tmsg_give_up_t;

typedef struct tmsg_send {
    tmsg_request_t request; /* outlives its handle */
    tmsg_spare_t spare;
    tmsg_node_t node;       /* in the queue of its channel, then in posted */
    tmsg_due_t map_due;     /* frees a map that nobody holds any more */
    tmsg_due_t release_due; /* calls on_release */
    tmsg_timer_t timer;     /* of the whole operation; clear: no limit */
    tmsg_endpoint_t *endpoint;
    tmsg_channel_t *channel;
    const tmsg_map_t *map;
    uint32_t flags;
    int32_t policy;
    tmsg_wish_t wish;           /* how the message is to travel */
    int32_t timeout_ms;         /* -1: none */
    uint64_t deadline_ns;       /* of the operation; 0: none */
    tmsg_release_fn on_release; /* NULL: none */
    void *on_release_arg;
    uint64_t queued_bytes; /* counted in the queue while it waits */
    uint64_t queued_ns;    /* since when it waits, where that is bounded */
    bool windowed;         /* it takes a place in the window of its queue */
    uint32_t message_id;
    uint32_t sequence; /* valid once it is posted */
    /* Posted on a connection that broke, and to go to UCX once more with the
     * same number; see again.h. */
    bool again;
    uint64_t bytes;    /* of the payload; valid once it is posted */
    uint64_t begun_ns; /* 0: its time is not taken */
    bool told_done;
    uint8_t *header; /* UCX reads it until the send has ended */
    size_t header_bytes;
    tmsg_call_head_t call;     /* of a call or stream; type 0: it is neither */
    uint64_t call_deadline_ns; /* when the call's time is over; 0: no limit */
    bool queues;               /* may exceed the bounds of its queue */
    bool last;                 /* nobody is told if it fails */
    bool reclaims;             /* owned memory counts as borrowed, too */
    char *call_text;           /* own copy of the call's text, or NULL */
    const tmsg_map_t *more;    /* metadata beside the map's, held; or NULL */
    bool spares_more;          /* goes without `more` rather than fail */
    /* what it has in common with other sends of the map, or NULL */
    tmsg_shared_plan_t *shared_plan;
    tmsg_plan_t plan;
    tmsg_written_t written; /* the map of the plan, where it was written out */
    tmsg_map_t *kept;      /* its map with spans, which goes instead; or NULL */
    uint64_t charge;       /* against the peer's window; see credit.h */
    uint64_t packed_bytes; /* counted in tx.packed_bytes; see pack.h */
    /* fragments of large tensors, and slices; NULL: there are none */
    tmsg_fragments_out_t *fragments;
    bool pulled;  /* the fragments wait until the peer asks for them */
    bool by_bulk; /* the send is counted as going by the bulk stream */
    tmsg_stage_out_t *stage; /* of device memory; NULL: none */
    struct tmsg_lend *lend;  /* with TMSG_SEND_LEND; NULL: none yet; lend.h */
    uint32_t am_flags;       /* TMSG_UCX_SEND_* that the plan wants */
    bool is_read;            /* the peer reads the plan's bytes itself */
    tmsg_cma_out_t read;
    tmsg_op_t op;
    bool holds_map; /* the map is held until its buffers are free */
    bool posted;    /* it has its sequence number */
    bool answered;  /* the peer took it, or refused it */
    bool in_ucx;
    tmsg_give_up_t given_up;
    bool unsure; /* UCX failed, and the peer may still be reading */
    tmsg_ucx_status_t ucx_status;
    tmsg_status_t answer;
    char *answer_text; /* of a refusal; NULL: none, or no memory for it */
    /* tmsg_send_clear() zeroes the fields from `spare` to here. The rest lives
     * on with the record, which the memory budget keeps for the next send. */
    tmsg_budget_t *budget;
    tmsg_fragments_out_t *fragments_kept; /* for the next send, or NULL */
    uint8_t small_header[TMSG_SEND_SMALL_HEADER];
    uint8_t small_payload[TMSG_SEND_SMALL_PAYLOAD];
} tmsg_send_t;

/* Frees a record that the memory budget keeps. Any thread. */
void tmsg_send_free_spare(tmsg_spare_t *spare);

/* template_out.c begins a send by these steps. tmsg_send_record() returns a
 * record of which only the memory budget is set; NULL without memory. */
tmsg_send_t *tmsg_send_record(tmsg_budget_t *budget);

/* Gives the record a request that has not ended. */
void tmsg_send_init_request(tmsg_send_t *send, tmsg_worker_t *worker);

/* Zeroes the record, but for its request, its memory budget and what follows
 * that. */
void tmsg_send_clear(tmsg_send_t *send);

/* Makes the send hold endpoint and map, and gives it a message id. */
void tmsg_send_take(tmsg_send_t *send, tmsg_endpoint_t *endpoint,
                    const tmsg_map_t *map);

/* Counts a message of `bytes`, and moves the channel on to its next sequence
 * number. */
void tmsg_send_count(tmsg_channel_t *channel, uint64_t bytes);

/* Returns the microseconds that are left of a call's time, at least 1; 0 if it
 * has no limit. */
uint64_t tmsg_send_left_us(uint64_t deadline_ns);

/* tmsg_send_hand_over() makes the send UCX's. UCX calls
 * tmsg_send_ucx_reported() when it has done with the send. */
void tmsg_send_hand_over(tmsg_send_t *send);
void tmsg_send_ucx_reported(void *request, tmsg_ucx_status_t ucs, void *arg);

/* Checks the parameters of a send that comes later; they may be NULL. Errors:
 * INVALID_PARAM. */
tmsg_status_t tmsg_send_check_params(const tmsg_send_params_t *params);

/* Begins a send, as tmsg_endpoint_send() does. `shared_plan` is what the send
 * has in common with others, or NULL. `call` makes it a call, or is NULL. Lock
 * held; it is let go while the queue blocks. */
tmsg_status_t tmsg_send_begin(tmsg_endpoint_t *endpoint, const tmsg_map_t *map,
                              const tmsg_send_params_t *params,
                              tmsg_shared_plan_t *shared_plan,
                              const tmsg_call_send_t *call,
                              tmsg_request_t **request_p);

/* Returns the map that goes: the one with spans, if there is one, else the
 * caller's. A map that was written out for the peer is not considered. */
const tmsg_map_t *tmsg_send_map(const tmsg_send_t *send);

/* Checks a send that has to wait, on an open endpoint, against the peer's
 * limits, as far as they can be checked before the header is made. Errors:
 * LIMIT_EXCEEDED. */
tmsg_status_t tmsg_send_foresee(const tmsg_send_t *send);

/* Turns the map into a header of our wire format and a plan for the payload.
 * Returns IN_PROGRESS if the send has to wait and be prepared again. */
tmsg_status_t tmsg_send_prepare(tmsg_send_t *send);

/* Returns whether a prepared send is for a fast box, if there is one. Sends for
 * which a way or protocol was asked go by that instead. */
bool tmsg_send_is_for_fastbox(const tmsg_send_t *send);

/* Hands a prepared send to UCX, or puts it into the fast box. From here on the
 * send has its sequence number. */
void tmsg_send_post(tmsg_send_t *send);

/* Counts the send among those that go by the bulk stream, or takes it out of
 * that count. */
void tmsg_send_count_bulk(tmsg_send_t *send, bool by_bulk);

/* Notes that UCX has done with a posted send, or will never report it. */
void tmsg_send_reported(tmsg_send_t *send, tmsg_ucx_status_t ucs);

/* Notes that UCX or the bulk stream has done with one of the send's fragments.
 */
void tmsg_send_fragment_reported(tmsg_send_t *send, tmsg_ucx_status_t ucs);

/* tmsg_send_drop_header() frees the header. tmsg_send_drop_more() drops the
 * metadata that goes beside the map. */
void tmsg_send_drop_header(tmsg_send_t *send);
void tmsg_send_drop_more(tmsg_send_t *send);

/* Gives the buffers back to the caller. Whatever the peer reads of them from
 * now on does not count, here or at the peer. A map that nobody holds any more
 * is freed where the application's release functions may be called. */
void tmsg_send_give_back(tmsg_send_t *send);

/* Has on_release called, if there is one: nothing that the map borrows is read
 * any more. */
void tmsg_send_released(tmsg_send_t *send);

/* Tells the call or the stream whose message it is that it failed. */
void tmsg_send_tell_failed(tmsg_send_t *send, tmsg_status_t status,
                           const char *error);

/* Ends a send that is in no list any more. */
void tmsg_send_end(tmsg_send_t *send, tmsg_status_t status, const char *error);

/* Ends a posted send if its outcome is known, or can no longer become known.
 * Called whenever UCX or the peer has reported something of the send. */
void tmsg_send_settle(tmsg_send_t *send);

/* Ends the sends of an endpoint that has ended, but for those that UCX still
 * holds. */
void tmsg_sends_end(tmsg_endpoint_t *endpoint);

/* Notes what became of a message. Its send ends when it is settled. */
void tmsg_send_answer(tmsg_send_t *send, tmsg_status_t status,
                      const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns the posted send of a message id, or NULL. */
tmsg_send_t *tmsg_send_find(const tmsg_endpoint_t *endpoint,
                            uint32_t message_id);

/* Notes that the peer took a message, or refused it. */
void tmsg_send_acknowledged(tmsg_endpoint_t *endpoint, uint32_t message_id,
                            tmsg_status_t status, const char *error);

#endif
