/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/ucx.h - one UCX context with its worker. */
#ifndef TMSG_AM_UCX_UCX_H
#define TMSG_AM_UCX_UCX_H

#include <stdatomic.h>
#include <stdbool.h>

#include "am/boot/blob.h"
#include "am/net/loop.h"
#include "am/ucx/backing.h"
#include "am/ucx/sockets.h"
#include "am/ucx/ucx_config.h"
#include "am/ucx/ucx_types.h"
#include "core/list.h"

typedef struct tmsg_worker tmsg_worker_t;
typedef struct tmsg_probe tmsg_probe_t;
struct tmsg_lifted;

/* The AM id that all our messages use; what they are is said by the kind in
 * their preamble. */
#define TMSG_AM_ID 0

/* What our control messages may take; UCX aborts on a longer header than its
 * limit. */
#define TMSG_AM_HEADER_LEAST 512

#define TMSG_UCX_SPARES 64

/* See pair.h. */
typedef struct {
    uint64_t id;   /* a peer's ucx_id */
    uint32_t made; /* UCX endpoints to it, so far */
} tmsg_ucx_peer_t;

typedef struct {
    uint64_t peer;
    uint32_t number;
    tmsg_ucx_ep_t ep;
    tmsg_sockets_t sockets;
} tmsg_ucx_spare_t;

/* A worker has one for each scope and role. Those that dial and those that are
 * dialled are kept apart: where two workers dial each other over one UCX
 * worker a side, UCX joins the two connections into one. */
typedef struct tmsg_ucx {
    struct tmsg_ucx *next; /* in its worker's list */
    tmsg_worker_t *worker; /* NULL: it is being closed */
    tmsg_loop_t *loop;     /* of that */
    tmsg_ucx_given_t given;
    bool suspect; /* its shared memory may be blocked */
    tmsg_ucx_scope_t scope;
    tmsg_lack_t lack;  /* where that is net_only: why, when it was opened */
    uint64_t apart_ns; /* or last tried to be with shared memory: when */
    bool dialling;
    tmsg_ucx_keys_t keys;
    tmsg_ucx_context_t context;
    tmsg_ucx_worker_t ucp;
    tmsg_source_t source; /* UCX's own epoll set, in the loop */
    int fd;
    tmsg_socket_sets_t sets;
    unsigned users;     /* endpoints and listeners */
    bool retired;       /* takes no new ones, and is closed without any */
    tmsg_timer_t watch; /* when retired; see retire.c */
    tmsg_probe_t *probe;
    tmsg_list_t lingering; /* see linger.h */
    tmsg_list_t late;      /* of these, which have had their time */
    tmsg_timer_t linger;
    tmsg_backing_pool_t pool;
    uint64_t segments; /* of it, that are kept; see segments.h */
    uint64_t segments_most;
    bool shares;              /* its address tells of more than the network */
    bool full;                /* see tmsg_ucxx_is_full() */
    tmsg_ucx_listener_t door; /* UCX's listener, of a ucx:// one */
    struct tmsg_listener *keeper; /* that; NULL: nobody is let in any more */
    bool forsaken; /* for ever its peers may write: it is never closed */
    bool owes;     /* reports for which nobody waits any more: nor is it closed
                    * but at once */
    size_t max_am_header;
    uint64_t memory_types; /* that UCX reads and writes, a bit for each */
    tmsg_ucx_peer_t *peers;
    size_t peer_count;
    size_t peer_capacity;
    tmsg_ucx_spare_t spares[TMSG_UCX_SPARES]; /* oldest first */
    size_t spare_count;
    tmsg_hello_t hello;  /* what we say of ourselves on it */
    atomic_uint holders; /* its worker, messages that lie in its memory, and
                          * pairs of kin.h */
    struct tmsg_ucx *next_known; /* kin.c alone changes it */
    atomic_bool bereaved; /* one of its kin has left: for tmsg_kin_tend() */
    bool waits;           /* likewise, for the end of what it has to do with one
                           */
    struct tmsg_lifted *_Atomic lifted; /* what is to be freed of that */
    char elsewhere[320]; /* not "": it lacks the address of its scope */
} tmsg_ucx_t;

/* The types of memory that have a name here, by UCX's numbers: those that are
 * the same in all its versions. */
typedef struct {
    const char *name;
    int type;
} tmsg_ucx_memory_type_t;

#define TMSG_UCX_MEMORY_TYPES 5
extern const tmsg_ucx_memory_type_t
    tmsg_ucx_memory_types[TMSG_UCX_MEMORY_TYPES];

/* The types of memory that UCX reads and writes, a bit for each; of what it
 * cannot tell, the host's alone. */
uint64_t tmsg_ucx_memory(tmsg_ucx_context_t context);

/* LIMIT_EXCEEDED unless `needed` descriptors are free; `fd` is any. UCX that
 * runs out while it opens aborts the process, and while it accepts closes its
 * port for good. */
tmsg_status_t tmsg_ucx_check_descriptors(int fd, size_t needed);

/* Whose a UCX worker is. */
typedef struct {
    tmsg_worker_t *worker; /* not looked into here */
    tmsg_loop_t *loop;
    tmsg_ucx_given_t given; /* what it points to stays until it is closed */
} tmsg_ucx_owner_t;

/* Opens UCX for a scope. `hello` brings the machine's part, limits and credits;
 * UCX's part is filled in. AMs go to `handler` with the new object as its arg.
 * Errors: INTERNAL, INVALID_PARAM (configuration), NO_MEMORY. */
tmsg_status_t tmsg_ucx_open(const tmsg_ucx_owner_t *owner,
                            const tmsg_ucx_scope_t *scope, bool dialling,
                            const tmsg_hello_t *hello,
                            tmsg_ucx_arrived_t handler, tmsg_ucx_t **ucx_p);

/* Whether one that was opened without shared memory may be opened with it now:
 * where bytes were missing, as soon as they are free; else once in 10 s, since
 * nothing tells, and UCX complains on standard output each time. */
bool tmsg_ucx_may_share(const tmsg_ucx_t *ucx);

/* That was tried, and failed. */
void tmsg_ucx_stays_apart(tmsg_ucx_t *ucx);

/* Nobody works with it any more. It is closed when the last message, and the
 * last of its kin, has let go of it, which they do from any thread; and when no
 * peer is late to hang up (park.h). */
void tmsg_ucx_close(tmsg_ucx_t *ucx);
void tmsg_ucx_let_go(tmsg_ucx_t *ucx);

/* The UCX worker's address, network alone or with shared memory. Freed with
 * tmsg_ucx_address_free(). Errors: INTERNAL. */
tmsg_status_t tmsg_ucx_address(const tmsg_ucx_t *ucx, bool net_only,
                               void **address_p, size_t *bytes_p);
void tmsg_ucx_address_free(void *address);

/* Does what UCX has to do, and calls whom it tells. Gives how much that was. */
unsigned tmsg_ucx_progress(const tmsg_ucx_t *ucx);

/* UCX signals ucx->fd when there is something to do. Errors: BUSY (there is
 * now), INTERNAL. */
tmsg_status_t tmsg_ucx_arm(const tmsg_ucx_t *ucx);

#endif
