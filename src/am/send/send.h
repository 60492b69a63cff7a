/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/send.h - a map on its way out. */
#ifndef TMSG_AM_SEND_SEND_H
#define TMSG_AM_SEND_SEND_H

#include "am/endpoint/consumer.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/measures.h"
#include "am/path/cma.h"
#include "am/send/plan.h"
#include "am/send/share.h"
#include "am/send/write_out.h"

/* As much as makes the record one that malloc() keeps at hand. */
#define TMSG_SEND_SMALL_HEADER 104
#define TMSG_SEND_SMALL_PAYLOAD 576

typedef struct tmsg_parts_out tmsg_parts_out_t;
typedef struct tmsg_stage_out tmsg_stage_out_t;

typedef struct tmsg_send {
    tmsg_request_t request; /* outlives its handle */
    tmsg_spare_t spare;
    tmsg_node_t node;       /* channel's queue, then endpoint's posted */
    tmsg_due_t map_due;     /* the end of a map that is nobody's */
    tmsg_due_t release_due; /* on_release */
    tmsg_timer_t timer;     /* of the whole operation; clear: it has no limit */
    tmsg_endpoint_t *endpoint;
    tmsg_channel_t *channel;
    const tmsg_map_t *map;
    uint32_t flags;
    int32_t policy;
    tmsg_wish_t wish;           /* how it is to travel */
    int32_t timeout_ms;         /* -1: none */
    uint64_t deadline_ns;       /* of the operation, with a timeout */
    tmsg_release_fn on_release; /* NULL: none, or it was called */
    void *on_release_arg;
    uint64_t queued_bytes; /* while it waits */
    uint32_t message_id;
    uint32_t sequence; /* once it is posted */
    bool again;        /* posted, and to go to UCX once more */
    uint64_t bytes;    /* of the payload, likewise */
    uint64_t begun_ns; /* 0: its time is not taken */
    bool told_done;
    uint8_t *header; /* UCX reads it until the send has ended */
    size_t header_bytes;
    tmsg_call_head_t call;     /* of a CALL; type 0: it is none */
    uint64_t call_deadline_ns; /* not 0: what its time left is counted from */
    bool queues;               /* beyond the bounds of its queue */
    bool last;                 /* nobody is told that it failed */
    char *call_text;           /* its text, where it is needed for longer */
    const tmsg_map_t *more;    /* metadata beside the map's, held; or NULL */
    bool spares_more;          /* it goes without, rather than not */
    tmsg_share_t *share;       /* with the other sends of the map, or NULL */
    tmsg_plan_t plan;
    tmsg_written_t written;  /* where that is of no map of the caller's */
    tmsg_map_t *kept;        /* its map with spans, that goes; NULL: none */
    uint64_t charge;         /* against the peer's window; see credit.h */
    tmsg_parts_out_t *parts; /* of large tensors; NULL: none */
    bool pulled;             /* these wait until the peer asks for them, */
    bool by_lane;            /* and are counted as going by the lane */
    tmsg_stage_out_t *stage; /* of device memory; NULL: none */
    uint32_t am_flags;       /* that the plan wants: TMSG_UCX_SEND_* */
    bool is_read;            /* the peer reads the plan's bytes itself */
    tmsg_cma_out_t read;
    tmsg_op_t op;
    bool holds_map; /* until its buffers are free */
    bool posted;    /* it has its number */
    bool answered;  /* the peer took it, or refused it */
    bool in_ucx;
    bool given_up; /* and `answer` is what it ends with, whatever comes */
    bool detached; /* its request has ended, UCX has not */
    bool unsure;   /* UCX failed at it, and the peer may still be reading */
    tmsg_ucx_status_t ucx_status;
    tmsg_status_t answer;
    char *answer_text; /* to a refusal; NULL: none, or no memory for it */
    /* The rest is zeroed with the record, these are not: which keeps it for the
     * next send, and header and payload of a small message. */
    tmsg_store_t *store;
    tmsg_parts_out_t *parts_kept; /* a record for the next one's parts */
    uint8_t small_header[TMSG_SEND_SMALL_HEADER];
    uint8_t small_payload[TMSG_SEND_SMALL_PAYLOAD];
} tmsg_send_t;

/* Ends a record that is kept. */
void tmsg_send_free_spare(tmsg_spare_t *spare);

/* What repeat_out.c needs of a send's beginning, each a step of it: a record
 * with nothing but its store set, NULL without memory; */
tmsg_send_t *tmsg_send_record(tmsg_store_t *store);

/* with a request that goes on; */
void tmsg_send_init_request(tmsg_send_t *send, tmsg_worker_t *worker);

/* zeroed, but for request, store and small memory; */
void tmsg_send_clear(tmsg_send_t *send);

/* holding endpoint and map, with a message id; */
void tmsg_send_take(tmsg_send_t *send, tmsg_endpoint_t *endpoint,
                    const tmsg_map_t *map);

/* with the channel's next number, and counted; */
void tmsg_send_count(tmsg_channel_t *channel, uint64_t bytes);

/* What is left of a call's time, which is never nothing; 0: it has no limit. */
uint64_t tmsg_send_left_us(uint64_t deadline_ns);

/* UCX's, which calls this when it has done with it. */
void tmsg_send_hand_over(tmsg_send_t *send);
void tmsg_send_ucx_reported(void *request, tmsg_ucx_status_t ucs, void *arg);

/* Lock held: tmsg_endpoint_send(), with what it shares with others, or NULL, or
 * what makes it a call, or NULL. */
tmsg_status_t tmsg_send_begin(tmsg_endpoint_t *endpoint, const tmsg_map_t *map,
                              const tmsg_send_params_t *params,
                              tmsg_share_t *share, const tmsg_call_send_t *call,
                              tmsg_request_t **request_p);

/* The map that goes, as far as it is not written out. */
const tmsg_map_t *tmsg_send_map(const tmsg_send_t *send);

/* Of one that has to wait, to an endpoint that is open: whether it is beyond a
 * limit of the peer's, as far as that is known before the header is made.
 * Errors: LIMIT_EXCEEDED. */
tmsg_status_t tmsg_send_foresee(const tmsg_send_t *send);

/* Turns the map into a header of ours and a plan for the payload. */
tmsg_status_t tmsg_send_prepare(tmsg_send_t *send);

/* Whether a prepared one is for a box, if there is one: what is asked for goes
 * as it is asked for. */
bool tmsg_send_is_for_box(const tmsg_send_t *send);

/* Hands a prepared send to UCX, or puts it into the box; from here on it has
 * its number. */
void tmsg_send_post(tmsg_send_t *send);

/* Counts one among those that go by the lane, or not. */
void tmsg_send_count_lane(tmsg_send_t *send, bool by_lane);

/* UCX has done with a posted send, or will never be. */
void tmsg_send_reported(tmsg_send_t *send, tmsg_ucx_status_t ucs);

/* The same of one of its parts. */
void tmsg_send_part_reported(tmsg_send_t *send, tmsg_ucx_status_t ucs);

/* What is written of it, and what goes beside the map, is not needed. */
void tmsg_send_drop_header(tmsg_send_t *send);
void tmsg_send_drop_more(tmsg_send_t *send);

/* The buffers are the caller's again: nothing that the peer reads of them from
 * now on counts, here or with it. A map that is nobody's any more goes
 * where the application's release functions may be called. */
void tmsg_send_give_back(tmsg_send_t *send);

/* Has on_release called, if there is one: nothing that the map borrows is read
 * any more. */
void tmsg_send_released(tmsg_send_t *send);

/* Ends a send that is in no list any more. */
void tmsg_send_end(tmsg_send_t *send, tmsg_status_t status, const char *error);

/* What became of a posted send is known, or is not to be known any more. */
void tmsg_send_settle(tmsg_send_t *send);

/* The endpoint has ended, and with it all that UCX does not hold. */
void tmsg_sends_end(tmsg_endpoint_t *endpoint);

/* Notes what became of a message; its send ends when it is settled. */
void tmsg_send_answer(tmsg_send_t *send, tmsg_status_t status,
                      const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A posted one by its message's id; or NULL. */
tmsg_send_t *tmsg_send_find(const tmsg_endpoint_t *endpoint,
                            uint32_t message_id);

/* The peer took a message, or refused it. */
void tmsg_send_acknowledged(tmsg_endpoint_t *endpoint, uint32_t message_id,
                            tmsg_status_t status, const char *error);

#endif
