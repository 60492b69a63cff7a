/* SPDX-License-Identifier: BSD-3-Clause */
/* am/path/loans_struct.h - the records of loans, for the files loans*.c alone.
 */
#ifndef TMSG_AM_PATH_LOANS_STRUCT_H
#define TMSG_AM_PATH_LOANS_STRUCT_H

#include <pthread.h>
#include <stdatomic.h>

#include "am/path/loans.h"
#include "am/shm/lent.h"
#include "memory/shareable.h"

#define TMSG_SEGMENT_FRAME_BYTES 12 /* of TMSG_FRAME_SEGMENT */
#define TMSG_LOANS_WORDS_BYTES 160  /* of a refusal, or why nothing was lent */

/* A side borrows at most this many segments of a connection. */
#define TMSG_BORROWED_MOST 256

/* Bounds of the copies of a worker. Those that have more bytes, each, than all
 * others may have together are large. They have a bound of their own, and a
 * lone one may have more. */
#define TMSG_COPIES_MOST 64
#define TMSG_COPIES_BYTES_MOST (UINT64_C(1) << 30)
#define TMSG_LARGE_COPIES_BYTES_MOST (UINT64_C(4) << 30)

/* At most this many loans of a connection are out. A message beyond them goes
 * by the usual ways. */
#define TMSG_LOANS_MOST 4096

/* Those who may have a copy: a principal or, without a key, the peer's process
 * as the kernel confirms it. What a publisher sends to peers without keys may
 * be had by all processes of one user. */
typedef struct {
    char principal[TMSG_PRINCIPAL_BYTES]; /* "": without a key */
    uint32_t user;                        /* 1 + its number */
    uint32_t process;                     /* 0: it has no number here */
    uint64_t group;      /* the number of a publisher; 0: it is for one peer */
    uint64_t connection; /* its number, where a process has none */
} tmsg_audience_t;

/* A segment of the library's own, which tensors are copied into. It is used
 * again for the same audience alone: whoever had it may still read it. */
typedef struct tmsg_copy_segment {
    tmsg_node_t node; /* in the lender's copies */
    tmsg_shareable_t *segment;
    bool used;       /* a lending has it */
    bool spoiled;    /* it is never used again */
    bool fresh;      /* it was not used before */
    bool frozen;     /* it says for ever what it says now, and is in no list */
    bool sealed;     /* it is whole, and peers may have it */
    bool left;       /* a frozen one that no further loan will have */
    bool retired;    /* it goes when the last peer that was offered it knows */
    uint64_t filled; /* bytes that may not be zero; the rest are */
    tmsg_audience_t audience;
    uint64_t idle_since_ns;
} tmsg_copy_segment_t;

#define TMSG_NO_SEGMENT TMSG_LENDING_SEGMENTS

struct tmsg_lending {
    unsigned refs;
    tmsg_worker_t *worker; /* with `copy` */
    uint64_t stamp;        /* of its map: tmsg_map_stamp() */
    tmsg_copy_segment_t *copy;
    const char *why; /* why a copy is lent; NULL: no need to say */
    unsigned count;
    tmsg_shareable_t *segments[TMSG_LENDING_SEGMENTS];
    /* Of a copy that is being filled: what is to come, where its tensors end,
     * and where the bytes end that an earlier message has left. */
    tmsg_lending_fill_t fill;
    uint64_t end, dirty_end;
    size_t tensors;
    /* `segment` is an index of `segments`, or TMSG_NO_SEGMENT for a tensor
     * without bytes. */
    tmsg_lent_place_t places[];
};

struct tmsg_loan_hold {
    unsigned refs;
    tmsg_worker_t *worker;
    tmsg_due_t due;
    const tmsg_map_t *map; /* a reference is held; NULL: none */
    tmsg_release_fn on_release;
    void *arg;
};

struct tmsg_loan_out {
    tmsg_node_t node; /* in `out` of its connection, or among orphans */
    uint32_t token;
    tmsg_lending_t *lending;
    tmsg_loan_hold_t *hold;
};

typedef enum {
    TMSG_SEGMENT_OFFERED = 0,
    TMSG_SEGMENT_TAKEN = 1,
    TMSG_SEGMENT_REFUSED = 2,
} tmsg_segment_state_t;

/* A segment that the peer was offered. */
typedef struct {
    uint32_t number;
    tmsg_segment_state_t state;
    tmsg_shareable_t *segment; /* a reference is held */
    unsigned loans;            /* that are out */
    bool is_copy;              /* one of the library's own, of the pool */
    uint64_t used;             /* when it was last wanted, by `clock` */
    uint64_t offered_ns;
} tmsg_offered_t;

/* Loans whose connection has ended. The peer may still read them. */
typedef struct {
    tmsg_source_t source; /* the peer's process, which ends */
    tmsg_node_t node;
    tmsg_worker_t *worker;
    tmsg_list_t loans;
    int process;  /* -1: not known */
    uint32_t pid; /* its number */
} tmsg_orphans_t;

/* What a worker keeps of loans. */
typedef struct tmsg_lender {
    tmsg_worker_t *worker;
    uint64_t connections; /* that had loans so far */
    size_t borrowed;      /* loans of peers that are there */
    tmsg_list_t copies;
    uint64_t copies_bytes;
    uint64_t bytes_most, large_bytes_most; /* TMSG_*COPIES_BYTES_MOST */
    uint64_t fresh_ns;     /* when its share of fresh copies reaches today's */
    bool seals_none;       /* this kernel cannot seal copies */
    unsigned frozen_count; /* copies beside the list */
    uint64_t frozen_bytes;
    unsigned left_count; /* of these, that peers keep, and nobody else */
    uint64_t left_bytes;
    tmsg_list_t orphans;
    tmsg_timer_t tick;
    tmsg_source_t returned; /* loans were given back by other threads */
    struct tmsg_returns *returns;
} tmsg_lender_t;

/* A segment that this side borrows. Views of it may outlive the connection. */
typedef struct {
    tmsg_refs_t refs;
    uint32_t number;
    tmsg_borrowed_t borrowed;
} tmsg_borrowed_segment_t;

/* What the threads that give loans back share with the worker. */
typedef struct tmsg_returns {
    tmsg_refs_t refs;    /* of the worker and of each connection */
    atomic_bool waiting; /* some were given back */
    atomic_bool asleep;  /* the worker is to be woken for such */
    int fd;              /* an eventfd, to wake it */
} tmsg_returns_t;

/* The borrower's part of a connection. Loans hold references to it. */
typedef struct {
    tmsg_refs_t refs;
    pthread_mutex_t lock; /* protects the next three */
    bool over;
    tmsg_list_t returned; /* loans to be given back */
    tmsg_returns_t *returns;
    size_t loans; /* that are there, with these; under the worker's lock */
} tmsg_borrower_t;

struct tmsg_loan_in {
    tmsg_node_t node;
    tmsg_borrower_t *borrower;
    uint32_t token;
    unsigned count;
    tmsg_borrowed_segment_t *segments[TMSG_LENDING_SEGMENTS];
    const uint8_t **places; /* one a tensor */
};

/* What a connection keeps of loans. */
typedef struct tmsg_loans {
    /* The owner's part. */
    uint64_t number; /* of the connection, for its lender */
    tmsg_offered_t *offered;
    unsigned offered_count, offered_room;
    uint32_t last_number;
    uint64_t clock;
    tmsg_list_t out;
    int process;               /* pidfd of the peer; -1: none */
    uint32_t pid;              /* its number */
    bool watched;              /* there is one, or there will be none */
    tmsg_orphans_t *orphans;   /* for the loans that are out at the end */
    uint64_t refused_until_ns; /* the peer is not asked before */
    char
        why[TMSG_LOANS_WORDS_BYTES]; /* why the peer refused the last segment */
    char noted[TMSG_LOANS_WORDS_BYTES]; /* why the last message was not lent */
    const char *copied; /* why it was lent as a copy; NULL: no need to say */
    /* The borrower's part. */
    tmsg_borrower_t *borrower;
    tmsg_borrowed_segment_t **borrowed;
    unsigned borrowed_count;
    uint32_t borrowed_last; /* the last number that was offered */
    uint64_t borrowed_bytes;
    uint64_t searched_ns; /* when its share of searches reaches today's */
} tmsg_loans_t;

/* Returns the record of a worker or a connection, and makes it; NULL: no
 * memory. */
tmsg_lender_t *tmsg_lender_of(tmsg_worker_t *worker);
tmsg_loans_t *tmsg_loans_of(tmsg_endpoint_t *endpoint);

/* Has the timer look once a second at what may go. */
void tmsg_lender_tick(tmsg_lender_t *lender);

/* loans_held.c */
/* Has the kernel tell when the peer's process ends. While the connection stands
 * it is the one at the other end. */
void tmsg_loans_watch(tmsg_endpoint_t *endpoint);
/* Looks after the loans of a connection that has ended until the process that
 * has them ends, or the worker. A process has one record, and its loans are
 * added to it. */
void tmsg_orphans_begin(tmsg_orphans_t *orphans);
/* Returns whether more loans of the connection could be looked after. */
bool tmsg_orphans_have_room(const tmsg_endpoint_t *endpoint);
/* What there is of copies, of those that are large or of the others. */
typedef struct {
    bool large;
    size_t count;
    uint64_t bytes;
} tmsg_copies_tally_t;

/* Adds the copies that the connection's peer keeps beside it. */
void tmsg_orphans_add_copies(const tmsg_endpoint_t *endpoint,
                             tmsg_copies_tally_t *tally);
void tmsg_orphans_end(tmsg_lender_t *lender);

/* loans_copies.c */
tmsg_copy_segment_t *tmsg_copies_take(tmsg_endpoint_t *endpoint, uint64_t bytes,
                                      uint64_t group, const char **why_p);
/* tmsg_copies_begin() begins to count such copies as one of `bytes` is.
 * tmsg_copies_add() counts one if it is such. tmsg_copies_have_room() returns
 * whether one of `bytes` more is within a part of the bounds, 1 for all of it,
 * or 2 for the half. */
tmsg_copies_tally_t tmsg_copies_begin(const tmsg_lender_t *lender,
                                      uint64_t bytes);
void tmsg_copies_add(const tmsg_lender_t *lender, tmsg_copies_tally_t *tally,
                     const tmsg_shareable_t *segment);
bool tmsg_copies_have_room(const tmsg_lender_t *lender,
                           const tmsg_copies_tally_t *tally, uint64_t bytes,
                           unsigned part);
/* Makes a copy that is to be frozen. */
tmsg_copy_segment_t *tmsg_copies_draft(tmsg_worker_t *worker, uint64_t bytes,
                                       const char **why_p);
/* No further loan will have a frozen copy. */
void tmsg_copies_leave(tmsg_worker_t *worker, tmsg_copy_segment_t *copy);
/* Returns whether the peer may be lent the copy that a lending has. */
bool tmsg_copies_may_have(tmsg_copy_segment_t *copy,
                          const tmsg_endpoint_t *endpoint);
void tmsg_copies_give(tmsg_worker_t *worker, tmsg_copy_segment_t *copy);
/* Seals a copy that was written for the first time. Errors: UNSUPPORTED, IO. */
tmsg_status_t tmsg_copies_seal(tmsg_worker_t *worker,
                               tmsg_copy_segment_t *copy);
/* Frees copies that lie idle for so long. */
void tmsg_copies_trim(tmsg_lender_t *lender, uint64_t idle_ns);
/* Frees those that nobody wants any more and no peer has to know of. */
void tmsg_copies_sweep(tmsg_worker_t *worker);

/* loans_out.c */
tmsg_status_t tmsg_loans_taken(tmsg_endpoint_t *endpoint, const uint8_t *data,
                               size_t bytes);
tmsg_status_t tmsg_loans_refused(tmsg_endpoint_t *endpoint, const uint8_t *data,
                                 size_t bytes);
tmsg_status_t tmsg_loans_back(tmsg_endpoint_t *endpoint, const uint8_t *data,
                              size_t bytes);
/* Tells the peer of segments that were freed or, with `segment`, of that one.
 */
void tmsg_loans_forget_freed(tmsg_endpoint_t *endpoint,
                             const tmsg_shareable_t *segment);
/* Sends that wait for an answer which does not come go by the usual ways. */
void tmsg_loans_look_late(tmsg_endpoint_t *endpoint);
bool tmsg_loans_has_taken(const tmsg_endpoint_t *endpoint,
                          const tmsg_shareable_t *segment);
void tmsg_loans_end_out(tmsg_endpoint_t *endpoint, tmsg_loans_t *loans);
void tmsg_loan_out_free(tmsg_loan_out_t *loan, bool in_order);

/* loans_in.c */
tmsg_status_t tmsg_loans_segment(tmsg_endpoint_t *endpoint, const uint8_t *data,
                                 size_t bytes, int fd);
tmsg_status_t tmsg_loans_gone(tmsg_endpoint_t *endpoint, const uint8_t *data,
                              size_t bytes);
/* `last`: by the socket alone, for the connection ends. */
void tmsg_loans_give_back(tmsg_endpoint_t *endpoint, bool last);
void tmsg_loans_end_in(tmsg_worker_t *worker, tmsg_loans_t *loans);
void tmsg_returns_drop(tmsg_returns_t *returns);

#endif
