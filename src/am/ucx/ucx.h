/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/ucx.h - one UCX context with its worker. */
#ifndef TMSG_AM_UCX_UCX_H
#define TMSG_AM_UCX_UCX_H

#include <stdatomic.h>
#include <stdbool.h>

#include "am/boot/blob.h"
#include "am/net/loop.h"
#include "am/pipe/pipe.h"
#include "am/ucx/backing.h"
#include "am/ucx/config.h"
#include "am/ucx/ep_sockets.h"
#include "am/ucx/ucx_types.h"
#include "core/list.h"
#include "core/refs.h"
#include "memory/domain.h"

typedef struct tmsg_worker tmsg_worker_t;
typedef struct tmsg_probe tmsg_probe_t;
struct tmsg_lifted;

/* The id that all our active messages have. The kind in their preamble says
 * what they are. */
#define TMSG_AM_ID 0

/* The bytes that headers of our control messages may need. UCX aborts on a
 * header that is longer than its limit. */
#define TMSG_AM_HEADER_LEAST 512

#define TMSG_UCX_SPARES 64

/* A UCX worker that has met this many others makes way for a new one. */
#define TMSG_UCX_PEERS 4096

/* Counts the UCX endpoints to one peer; see ep_index.h. */
typedef struct {
    uint64_t id;   /* the peer's ucx_id */
    uint64_t uuid; /* UCX's own id of the same UCX worker; 0: unknown */
    uint32_t made; /* UCX endpoints made to it so far */
} tmsg_ucx_peer_t;

typedef struct {
    uint64_t peer;
    uint32_t number;
    tmsg_ucx_ep_t ep;
    tmsg_ep_sockets_t sockets;
} tmsg_ucx_spare_t;

/* A UCX context with its worker. A worker has one for each scope and role.
 * Dialling and dialled connections have different ones: if two workers dialled
 * each other over one UCX worker a side, UCX would join the two connections
 * into one. */
typedef struct tmsg_ucx {
    /* Next in its worker's list, or in a list of closed ones. */
    struct tmsg_ucx *next;
    tmsg_worker_t *worker; /* NULL while it is being closed */
    tmsg_loop_t *loop;     /* its worker's loop */
    tmsg_ucx_given_t given;
    bool suspect; /* its shared memory may be blocked */
    tmsg_ucx_scope_t scope;
    tmsg_lack_t lack;  /* why it has no shared memory, if scope.net_only */
    uint64_t apart_ns; /* when sharing memory last failed, if scope.net_only */
    bool dialling;
    tmsg_ucx_keys_t keys;
    /* NULL: it is UCX's. Otherwise `context` and `ucp` are NULL; see
     * ucx_pipe.h. */
    tmsg_pipes_t *pipes;
    tmsg_ucx_arrived_t handler; /* of `pipes` */
    tmsg_ucx_context_t context;
    tmsg_ucx_worker_t ucp;
    tmsg_source_t source; /* UCX's own epoll set, in the loop */
    int fd;
    tmsg_socket_sets_t sets;
    unsigned users; /* number of endpoints and listeners that use it */
    bool retired;   /* takes no new users, and is closed when none is left */
    tmsg_timer_t watch; /* runs if retired; see retire.c */
    tmsg_probe_t *probe;
    tmsg_list_t lingering; /* sockets; see linger.h */
    tmsg_list_t late;      /* sockets of `lingering` that have had their time */
    tmsg_timer_t linger;
    /* Until then peers that were given up may answer what UCX asked them. */
    uint64_t asked_ns;
    tmsg_backing_pool_t pool;
    /* Number of segments of `pool` that are kept; see segments.h. */
    uint64_t segments;
    uint64_t segments_most;
    bool shares; /* its address tells of more than the network */
    /* Its whole address, by which siblings.c knows it. */
    void *address;
    size_t address_bytes;
    /* What `address` tells of it (peer_address.h). NULL: it is not known how
     * this UCX packs that. */
    struct tmsg_own_address *own;
    bool full; /* the last result of tmsg_ucxx_is_full() */
    /* A peer of ucx:// may be far ahead of the application. */
    bool ahead;
    tmsg_ucx_listener_t cm_listener; /* UCX's, if it serves ucx:// */
    /* The listener that has `cm_listener`; NULL: callers are rejected. */
    struct tmsg_listener *keeper;
    /* Peers may write to its memory for ever: it is never closed. */
    bool abandoned;
    bool young; /* deferred.c: its peers have time left to hang up */
    /* UCX has not reported some operations, and nobody waits for that any more:
     * it is closed at once or never. */
    bool unreported;
    size_t max_am_header;
    /* Types of memory that UCX reads and writes, a bit for each. */
    uint64_t memory_types;
    bool numb; /* it is not armed any more; see tmsg_ucx_numb() */
    tmsg_ucx_peer_t *peers;
    size_t peer_count;
    size_t peer_capacity;
    tmsg_ucx_spare_t spares[TMSG_UCX_SPARES]; /* oldest first */
    size_t spare_count;
    tmsg_hello_t hello; /* this side's hello for connections over it */
    /* Number of its holders: its worker, messages that lie in its memory, and
     * pairs of siblings.h. */
    tmsg_refs_t holders;
    /* Next in the list of siblings.c, which alone changes it. */
    struct tmsg_ucx *next_known;
    /* One of its siblings has left; tmsg_siblings_tend() clears it. */
    atomic_bool sibling_gone;
    /* tmsg_siblings_tend() is to look again: a sibling that has left is still
     * needed, or UCX holds more to read. */
    bool waits;
    /* Payloads to be given back; see retained.h. */
    struct tmsg_lifted *_Atomic lifted;
    /* The reason why UCX does not use the scope's address; "": it does. */
    char elsewhere[320];
} tmsg_ucx_t;

/* A type of memory that has a name here, with UCX's number. Only numbers that
 * are the same in all versions of UCX are listed. */
typedef struct {
    const char *name;
    int type;
} tmsg_ucx_memory_type_t;

#define TMSG_UCX_MEMORY_TYPES 5
extern const tmsg_ucx_memory_type_t
    tmsg_ucx_memory_types[TMSG_UCX_MEMORY_TYPES];

/* Returns the types of memory that UCX reads and writes, a bit for each. If UCX
 * does not tell, returns the host's alone. */
uint64_t tmsg_ucx_memory(tmsg_ucx_context_t context);

/* Checks that `needed` descriptors are free, by duplicating `fd`, which is any
 * open one. If UCX runs out of descriptors while it opens, it aborts the
 * process; while it accepts, it closes its port for good. Errors:
 * LIMIT_EXCEEDED. */
tmsg_status_t tmsg_ucx_check_descriptors(int fd, size_t needed);

/* The owner of a UCX worker. */
typedef struct {
    tmsg_worker_t *worker; /* never dereferenced in this room */
    tmsg_loop_t *loop;
    /* Its texts are valid until the UCX worker is closed. */
    tmsg_ucx_given_t given;
} tmsg_ucx_owner_t;

/* Opens UCX for a scope. `hello` brings the machine's part, limits and credits;
 * UCX's part is filled in. Active messages go to `handler` with the new object
 * as its arg. Errors: INTERNAL, INVALID_PARAM (configuration), LIMIT_EXCEEDED
 * (descriptors), NO_MEMORY, UNSUPPORTED. */
tmsg_status_t tmsg_ucx_open(const tmsg_ucx_owner_t *owner,
                            const tmsg_ucx_scope_t *scope, bool dialling,
                            const tmsg_hello_t *hello,
                            tmsg_ucx_arrived_t handler, tmsg_ucx_t **ucx_p);

/* Returns whether a UCX worker that was opened without shared memory may be
 * opened with it now. If bytes were missing, this is so as soon as they are
 * free. Otherwise it may be tried once in 10 s: nothing tells when it would
 * succeed, and UCX complains each time. */
bool tmsg_ucx_may_share(const tmsg_ucx_t *ucx);

/* Notes that opening with shared memory was tried again, and failed. */
void tmsg_ucx_stays_apart(tmsg_ucx_t *ucx);

/* tmsg_ucx_close() is called when nobody works with the UCX worker any more.
 * UCX is closed when all peers have hung up (deferred.h), and the last
 * holder has called tmsg_ucx_let_go(): messages and siblings do so from any
 * thread. */
void tmsg_ucx_close(tmsg_ucx_t *ucx);
void tmsg_ucx_let_go(tmsg_ucx_t *ucx);

/* Returns a copy of the UCX worker's address: of the network alone, or with
 * shared memory. The caller frees it with tmsg_ucx_address_free(). Errors:
 * INTERNAL, NO_MEMORY. */
tmsg_status_t tmsg_ucx_address(const tmsg_ucx_t *ucx, bool net_only,
                               void **address_p, size_t *bytes_p);
void tmsg_ucx_address_free(void *address);

#define TMSG_UCX_MEMORY_CUDA 1 /* UCX's number for CUDA memory */

static inline bool tmsg_ucx_knows_cuda(const tmsg_ucx_t *ucx)
{
    return (ucx->memory_types & 1U << TMSG_UCX_MEMORY_CUDA) != 0;
}

/* A device has failed whose memory UCX has. UCX 1.22 ends the process if it
 * arms the transport of that memory, which it does by itself, too, when the
 * last endpoint there is closed. So from now on the UCX worker is not armed,
 * and its endpoints are not closed before it. It takes no new connections. */
void tmsg_ucx_numb(tmsg_ucx_t *ucx);

/* A UCX of this process knows CUDA, or may. */
extern _Atomic bool tmsg_ucx_beside_cuda;

/* While this thread calls a UCX that knows CUDA, it is in CUDA's relaxed mode:
 * what UCX asks the driver, and allocates for its own use, would invalidate the
 * capture of another thread. UCX does so for host memory, too, when it first
 * chooses how a message goes. tmsg_ucx_restore() gets what tmsg_ucx_relax()
 * returned. */
static inline int tmsg_ucx_relax(void)
{
    return atomic_load_explicit(&tmsg_ucx_beside_cuda, memory_order_relaxed)
               ? tmsg_cuda_relax()
               : -1;
}

static inline void tmsg_ucx_restore(int mode)
{
    if (mode >= 0) {
        tmsg_cuda_restore(mode);
    }
}

/* Makes UCX progress: UCX does what it has to do, and calls its callbacks.
 * Returns how much was done; 0: nothing. */
unsigned tmsg_ucx_progress(const tmsg_ucx_t *ucx);

/* Arms UCX: from now on it signals ucx->fd when there is something to do.
 * Errors: BUSY (there is now), INTERNAL. */
tmsg_status_t tmsg_ucx_arm(const tmsg_ucx_t *ucx);

#endif
