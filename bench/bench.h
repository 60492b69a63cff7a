/* SPDX-License-Identifier: BSD-3-Clause */
/* bench/bench.h - what is measured, and how one run of it goes. */
#ifndef TMSG_BENCH_H
#define TMSG_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/measure/workload.h"

typedef enum { BENCH_NOWHERE, BENCH_SHM, BENCH_TCP } bench_transport_t;

typedef enum {
    BENCH_LATENCY,
    BENCH_BANDWIDTH,
    BENCH_ALLOCATIONS,
    BENCH_UNDER_BULK, /* small calls while large maps flow; maps only */
    BENCH_UNARY,      /* a call and its reply, both the payload, over half a
                         ping-pong of maps; maps only */
    BENCH_FETCH,      /* a fetch of an offer of the payload, over such a call;
                         maps only */
    BENCH_CALLS,      /* of those, how many with `window` in flight */
    BENCH_SHARED      /* round trips of several pairs at once */
} bench_metric_t;

/* Where the two processes of a pair run. */
typedef enum {
    BENCH_APART,    /* each on a core of its own, where there are two */
    BENCH_ONE_CORE, /* both on the first core */
    BENCH_ANY_CORE  /* bound to none */
} bench_place_t;

/* What the kernel's scheduler tells the two processes of a pair apart by. */
typedef enum {
    BENCH_ALIKE,   /* nothing */
    BENCH_NICE,    /* the second has nice value 10 */
    BENCH_SESSION, /* each has a session, and so an autogroup, of its own */
    BENCH_CGROUP,  /* each has a cgroup of its own, version 1 */
    BENCH_FIFO     /* the first is SCHED_FIFO */
} bench_between_t;

/* Who moves the bytes: a tensormsg map, raw ucp_am with the payload laid out in
 * one of three ways, or another. */
typedef enum {
    BENCH_MAP,
    BENCH_CONTIGUOUS, /* it lies in one piece anyway */
    BENCH_IOV,        /* one scatter list of the tensors */
    BENCH_GATHER,     /* tensors copied together for every message */
    BENCH_LINES,      /* by lines of the cache that both see; latency only */
    BENCH_GRPC        /* all in one field of a message of gRPC's; calls only */
} bench_layout_t;

typedef enum {
    BENCH_OUR_SETTINGS, /* error mode PEER, our UCX keys */
    BENCH_BEST,         /* error mode NONE, our segment size */
    BENCH_UNTOUCHED     /* error mode NONE, UCX's own defaults */
} bench_settings_t;

typedef enum { BENCH_AUTO, BENCH_EAGER, BENCH_RNDV } bench_protocol_t;

typedef struct {
    bench_layout_t layout;
    bench_settings_t settings; /* raw ways only */
    bench_protocol_t protocol; /* raw ways only */
} bench_way_t;

typedef struct bench_side bench_side_t;
typedef struct bench_gate bench_gate_t;
typedef struct bench_run bench_run_t;

/* Connects one side of a run to the other, by the socket between them. */
typedef bench_side_t *(*bench_opener_t)(const bench_run_t *run, bool dialling,
                                        int socket);

/* One measurement: `blocks` times `rounds` round trips, or messages. */
struct bench_run {
    size_t tensors;      /* of one map, each of */
    size_t tensor_bytes; /* so many; unless there is a workload */
    const workload_t *workload;
    size_t row_bytes; /* > 0: it is one tensor of such rows, so far apart; */
    size_t gap_bytes; /* maps only, latency */
    bool keeps;       /* these gaps travel, too */
    bool by_stream;   /* the carrier, in the place of UCX; maps only */
    bool encrypted;   /* TCP only; the certificates are in `folder` */
    bench_transport_t transport;
    bench_metric_t metric;
    bench_way_t way;
    unsigned window; /* messages in flight, bandwidth; or calls */
    unsigned blocks;
    unsigned rounds;
    bool look;   /* at a word of each line of what comes */
    bool sleeps; /* a side that waits gives its processor up */
    bench_place_t place;
    bench_between_t between;
    unsigned pairs;     /* at once, SHARED only; */
    unsigned computing; /* beside so many processes that only compute */
    double seconds;     /* all of them together */
    bench_gate_t *gate; /* at which these pairs meet, */
    unsigned pair;      /* of which this is one */
    double block_s; /* > 0: so many rounds as take this long; workloads only */
    bench_opener_t open; /* of another way; NULL: as `way.layout` says */
    const char *folder;  /* for the sockets of such a way */
    bool has_threads;    /* of its own, which may use all cores */
};

#define BENCH_WINDOW_MAX 16 /* bandwidth */
#define BENCH_CALLS_MS 50   /* a block of calls, whatever `rounds` says */

typedef struct {
    double value;        /* median of the blocks: s, bytes/s, calls/s; of
                            UNARY and FETCH the ratio; of SHARED round trips/s of all
                            pairs */
    double one_way;      /* of a map, s; UNARY; of a call there and back, s;
                            FETCH; and of the slowest pair the
                            median of SHARED */
    double p99;          /* of the slowest pair, one way, s; SHARED only */
    double idle, loaded; /* p99 of a call, s; UNDER_BULK only */
    double chunk;        /* what one takes at the maps' rate, s; the same */
    double allocations;  /* a message, ours; ALLOCATIONS only */
    double allocations_in_ucx; /* a message, in UCX's libraries */
} bench_sample_t;

/* Prints what went wrong and ends the process. */
__attribute__((noreturn, format(printf, 1, 2))) void
bench_die(const char *format, ...);

/* Ends the process with the thread's error, unless the status is TMSG_OK. */
void bench_must(tmsg_status_t status);

/* A map of 8 x 64 B, whose data stay. */
#define BENCH_SMALL_TENSORS 8
#define BENCH_SMALL_BYTES 64
tmsg_map_t *bench_small_map(void);

double bench_now(void); /* seconds, monotonic */
double bench_median(const double *values, size_t count); /* in any order */

const char *bench_transport_name(bench_transport_t transport);

/* "raw iov, eager, PEER": a way in words, into `text`. */
void bench_way_name(bench_way_t way, char *text, size_t bytes);

/* The program that BENCH_GRPC runs, or NULL: there is none. */
extern const char *bench_grpc_program;

/* Does one run in two fresh processes, each bound to a core of its own where
 * there are two. False: it failed, and the children said why. */
bool bench_pair_run(const bench_run_t *run, bench_sample_t *sample_p);

#define BENCH_PAIRS_MAX 16

/* A run of BENCH_SHARED: so many pairs of processes, each in lock step, timed
 * over the same seconds. */
bool bench_shared_run(const bench_run_t *run, bench_sample_t *sample_p);

/* Seconds of all cores since the machine started. */
typedef struct {
    double all;
    double busy;   /* with programs, ours included */
    double own;    /* with us and our children that have ended */
    double stolen; /* by the host of a virtual machine */
} bench_machine_t;

void bench_machine_look(bench_machine_t *machine);

/* Prints what share of it others took since then. */
void bench_machine_tell(const bench_machine_t *before);

/* A run of BENCH_GRPC, likewise, but bound to no core: it has threads. */
bool bench_grpc_run(const bench_run_t *run, bench_sample_t *sample_p);

/* Counting of heap allocations, by who called malloc. */
bool bench_counts_available(void);
void bench_counts_start(void);
void bench_counts_stop(unsigned long *elsewhere_p, unsigned long *in_ucx_p);
long bench_counts_held(void); /* bytes, ours */

/* So many endpoints at once on one worker, dialled by workers of `clients`
 * processes, and messages of 8 x 64 B that come over all of them in turn. */
#define BENCH_CLIENTS_MAX 16
#define BENCH_BLOCKS_MAX 64
typedef struct {
    bench_way_t way; /* BENCH_MAP, or any other: raw, and eager */
    bench_transport_t transport;
    unsigned clients;
    unsigned endpoints; /* of all clients together */
    unsigned blocks;
    unsigned messages; /* a block */
} bench_many_t;

typedef struct {
    double bytes_each; /* in our objects, an endpoint, the dearer side */
    double rate;       /* messages a second, median of the blocks */
} bench_many_sample_t;

void bench_many_run(const bench_many_t *many, bench_many_sample_t *sample_p);

/* Measures how a figure goes with a number: one of "tensors", "bytes",
 * "endpoints", "processes", or "all" of these; "bytes:64" is one point; or
 * "strides". Prints a JSON object a line as it goes. False: there is no such
 * series. */
bool bench_scale_run(const char *series, bool quick);

/* The core on which side n, 0 or 1, of a run is: of those that this process may
 * use the n-th, where there are two. -1: not known. */
int bench_core_of(int n);

/* Binds this process to that. */
void bench_bind_core(int n);

#endif
