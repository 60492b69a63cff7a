/* SPDX-License-Identifier: BSD-3-Clause */
/* perf.h - the inside of `tensormsg perf`. options.c has its arguments, sink.c
 * the side that receives, peer.c the connection to that, control.c what both
 * tell each other; sweep.c goes through what is to be measured, load.c makes
 * the maps, run.c sends them, table.c, rows.c and plot.c, by svg.c, show what
 * came of it. tune.c measures thresholds by the clock of stream.c, and
 * config_file.c writes them. What bench/ uses as well is in ../measure. */
#ifndef TMSG_PERF_H
#define TMSG_PERF_H

#include <sys/types.h>

#include <cjson/cJSON.h>

#include "numbers.h"
#include "options.h"

#define PERF_RUNS_MOST 5 /* that take turns */
#define PERF_MEMORIES_MOST 8
#define PERF_WORKLOADS_MOST 16
#define PERF_IN_FLIGHT_MOST 4096
#define PERF_REPETITIONS_MOST 100

enum { PERF_LATENCY = 1 << 0, PERF_BANDWIDTH = 1 << 1, PERF_CALLS = 1 << 2 };

typedef struct {
    tmsg_device_t device;
    char name[24]; /* "host", "cuda", "cuda:1" */
} perf_memory_t;

/* What is to be measured: each of these with each of the others. */
typedef struct {
    unsigned measures;   /* PERF_*; 0: what is usual, and so below */
    numbers_t bytes;     /* of a tensor; of what they are, none: */
    numbers_t tensors;   /* a few maps that show what there is to see */
    numbers_t in_flight; /* messages, or calls, at a time */
    perf_memory_t memories[PERF_MEMORIES_MOST];
    size_t memory_count;
    const char *workloads[PERF_WORKLOADS_MOST]; /* files */
    size_t workload_count;
    uint64_t block_ns;  /* of measuring, at a time */
    uint64_t warmup_ns; /* before that */
    uint64_t messages;  /* so many instead of block_ns; 0: not */
    unsigned repetitions;
    bool phases; /* makes each map anew, and tells what that and more took */
    bool verify; /* looks at every byte of every map, on each side */
    bool sleep;  /* where nothing comes */
} perf_plan_t;

typedef struct {
    connection_options_t connection; /* without a URL: to a process of ours */
    const char *over; /* "shm", "tcp", both, or NULL: what is there */
    const char *out;  /* the file to write; NULL: standard output */
    const char *plot; /* the picture to write, or NULL */
    perf_plan_t plan;
    unsigned count; /* senders to serve; 0: until a signal */
    bool tune;
    bool force;
    bool update;
    bool quick;
    bool json;
    bool csv;
} perf_options_t;

/* Reads the command line; what is wrong with it ends the program with 2. */
void perf_options_read(int argc, char **argv, perf_options_t *options);

/* What of it does not go together; NULL: all does. */
const char *perf_options_check(const perf_options_t *options);

/* Puts what is usual where nothing was said. */
void perf_options_complete(perf_options_t *options);

/* One connection to a sink. */
typedef struct {
    const perf_options_t *options;
    pid_t child; /* the sink, where it is ours; 0: none */
    char url[256];
    tmsg_context_t *context;
    tmsg_worker_t *worker;
    tmsg_endpoint_t *endpoint;
    char transport[16];
    char transports[192];
    char why[160];
    char bulk[160]; /* of tmsg_endpoint_describe() */
    int code;       /* where it could not be opened: the command's exit code */
} perf_peer_t;

/* How a message is to travel. */
typedef struct {
    int32_t way;      /* tmsg_way_kind_t */
    int32_t protocol; /* tmsg_protocol_t */
} perf_way_t;

/* The side that receives: exit code. */
int perf_listen(const perf_options_t *options);

/* Connects to the URL of the options or, if there is none, to a process of
 * ours, started for it. `tls` (NULL: what is usual) restricts UCX on both sides
 * then. False: it was said why. What was made is in *peer all the same. */
bool perf_peer_open(perf_peer_t *peer, const perf_options_t *options,
                    const char *tls);

/* One more connection to the sink of `first`, with other thresholds:
 * "shm.chunk_bytes=1048576". */
bool perf_peer_again(perf_peer_t *peer, const perf_peer_t *first,
                     const char *thresholds);

void perf_peer_close(perf_peer_t *peer);

/* Opens a connection over each transport that the options allow, one after the
 * other, and has it measured, until that says false. An exit code. */
typedef bool (*perf_measure_fn)(void *arg, perf_peer_t *peer);
int perf_each_transport(const perf_options_t *options, perf_measure_fn measure,
                        void *arg);

/* Ends the connection at once: no memory of a map is read any more. */
void perf_peer_drop(perf_peer_t *peer);

/* `bytes` of memory that all maps lie in; NULL: it was said why. */
void *perf_memory(size_t bytes);

/* A map of uint8 tensors one behind the other in `memory`; NULL: it was said
 * why. */
tmsg_map_t *perf_map(void *memory, size_t tensors, uint64_t bytes_each);

/* Sends the map again and again, a few at a time, for block_ns or a little
 * longer; nanoseconds a message. 0: it was said what failed. */
double perf_stream(const perf_peer_t *peer, const tmsg_map_t *map,
                   perf_way_t way, uint64_t block_ns);

/* The middle one, after which `values` are in order. */
double perf_median(double *values, size_t count);

/* Measures what the options say over each transport, and shows it. Returns an
 * exit code. */
int perf_sweep(const perf_options_t *options);

/* Drives a worker until something was handled, or for a while; TIMED_OUT:
 * nothing came. With `poll` it does so without sleeping, as long as something
 * may come soon. */
tmsg_status_t perf_drive(tmsg_worker_t *worker, bool poll);

/* Whether SIGINT or SIGTERM came since perf_catch_signals(). A second one ends
 * the program. */
void perf_catch_signals(void);
bool perf_stopped(void);

/* Measures each threshold of what carries the peer and puts it into
 * `thresholds`, an object; says on `report` what came of it. */
bool perf_tune(const perf_peer_t *peer, cJSON *thresholds, FILE *report);

/* Whether --out may be written and, with --update, read: before anything is
 * measured. False: it was said why. */
bool perf_file_check(const perf_options_t *options);

/* Whether a file can be made there. False: it was said why. */
bool perf_folder_check(const char *path);

/* Writes the thresholds, an object for each transport, where the options say:
 * all of the file, or nothing. False: it was said why. */
bool perf_file_write(const perf_options_t *options, const cJSON *thresholds);

#endif
