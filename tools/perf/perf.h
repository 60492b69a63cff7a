/* SPDX-License-Identifier: BSD-3-Clause */
/* perf.h - the inside of `tensormsg perf`. perf.c has its arguments, sink.c the
 * side that receives, peer.c the connection to that, stream.c the clock,
 * table.c and tune.c what is measured, config_file.c the configuration file. */
#ifndef TMSG_PERF_H
#define TMSG_PERF_H

#include <sys/types.h>

#include <cjson/cJSON.h>

#include "tool.h"

/* Metadata of a map that the sink is to send back. */
#define PERF_ECHO "perf.echo"

#define PERF_RUNS_MOST 5 /* that take turns */

typedef struct {
    const char *url;  /* of a `perf --listen`; NULL: a process of our own */
    const char *over; /* "shm", "tcp" or NULL: both, or what is there */
    const char *listen;
    const char *key; /* file of keys, or NULL */
    const char *out; /* the file to write; NULL: standard output */
    int timeout_ms;  /* for connecting, and for each message */
    unsigned count;  /* senders to serve; 0: until a signal */
    bool tune;
    bool force;
    bool update;
    bool quick;
    bool json;
    bool allow_unauthenticated;
} perf_options_t;

/* One connection to a sink. */
typedef struct {
    const perf_options_t *options;
    pid_t child; /* the sink, where it is ours; 0: none */
    char url[256];
    tmsg_context_t *context;
    tmsg_worker_t *worker;
    tmsg_endpoint_t *endpoint;
    char carrier[16];
    char transports[192];
    char why[160];
    int code; /* where it could not be opened: the command's exit code */
} perf_peer_t;

/* How a message is to travel. */
typedef struct {
    int32_t way;      /* tmsg_way_kind_t */
    int32_t protocol; /* tmsg_protocol_t */
} perf_way_t;

/* The side that receives: exit code. */
int perf_listen(const perf_options_t *options);

/* Connects to options->url or, where that is NULL, to a process of our own,
 * started for it. `tls` (NULL: what is usual) restricts UCX on both sides then.
 * False: it was said why. What was made is in *peer all the same. */
bool perf_peer_open(perf_peer_t *peer, const perf_options_t *options,
                    const char *tls);

/* One more connection to the sink of `first`, with other thresholds:
 * "shm.chunk_bytes=1048576". */
bool perf_peer_again(perf_peer_t *peer, const perf_peer_t *first,
                     const char *thresholds);

void perf_peer_close(perf_peer_t *peer);

/* `bytes` of memory that all maps lie in; NULL: it was said why. */
void *perf_memory(size_t bytes);

/* A map of uint8 tensors one behind the other in `memory`; NULL: it was said
 * why. */
tmsg_map_t *perf_map(void *memory, size_t tensors, uint64_t bytes_each,
                     bool echo);

/* Sends the map again and again, a few at a time, for block_ns or a little
 * longer; nanoseconds a message. 0: it was said what failed. */
double perf_stream(const perf_peer_t *peer, const tmsg_map_t *map,
                   perf_way_t way, uint64_t block_ns);

/* The same of half a round trip, one at a time. */
double perf_round_trip(const perf_peer_t *peer, const tmsg_map_t *map,
                       uint64_t block_ns);

/* The middle one, after which `values` are in order. */
double perf_median(double *values, size_t count);

/* Measures a few maps: prints a line each or, with `rows`, adds an object. */
bool perf_table(const perf_peer_t *peer, cJSON *rows);

/* Measures each threshold of what carries the peer and puts it into
 * `thresholds`, an object; says on `report` what came of it. */
bool perf_tune(const perf_peer_t *peer, cJSON *thresholds, FILE *report);

/* Whether --out may be written and, with --update, read: before anything is
 * measured. False: it was said why. */
bool perf_file_check(const perf_options_t *options);

/* Writes the thresholds, an object for each carrier, where the options say:
 * all of the file, or nothing. False: it was said why. */
bool perf_file_write(const perf_options_t *options, const cJSON *thresholds);

#endif
