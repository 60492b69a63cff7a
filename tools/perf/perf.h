/* SPDX-License-Identifier: BSD-3-Clause */
/* perf.h - the inside of `tensormsg perf`.
 *
 *   options.c      parses the arguments; options_check.c checks them
 *   sink.c         the receiving side; peer.c connects to it
 *   control.c      the calls between both sides
 *   sweep.c        goes through all measurements
 *   perf.c         goes through the transports
 *   load.c         creates the maps; run.c sends them
 *   rows.c         the results: table.c shows them
 *   tune.c         measures thresholds with the functions of stream.c
 *   config_file.c  writes the thresholds
 *
 * The folder ../measure has what bench/ uses as well. */
#ifndef TMSG_PERF_H
#define TMSG_PERF_H

#include <sys/types.h>

#include <cjson/cJSON.h>

#include "numbers.h"
#include "options.h"

#define PERF_RUNS_MOST 5 /* runs of --tune */
#define PERF_MEMORIES_MOST 8
#define PERF_WORKLOADS_MOST 16
#define PERF_IN_FLIGHT_MOST 4096
#define PERF_REPETITIONS_MOST 100

enum { PERF_LATENCY = 1 << 0, PERF_BANDWIDTH = 1 << 1, PERF_CALLS = 1 << 2 };

typedef struct {
    tmsg_device_t device;
    char name[24]; /* "host", "cuda", "cuda:1" */
} perf_memory_t;

/* Lists what is to be measured. Each item of a list is measured with each item
 * of the other lists. The maps come from `workloads`, or from `bytes` and
 * `tensors`. If all three are empty, sweep.c has usual maps. */
typedef struct {
    unsigned measures;   /* PERF_* bits; 0 means the default */
    numbers_t bytes;     /* bytes of each tensor; empty: 1024 */
    numbers_t tensors;   /* tensors of a map; empty: 8 */
    numbers_t in_flight; /* messages or calls at a time; empty: 8 */
    perf_memory_t memories[PERF_MEMORIES_MOST];
    size_t memory_count;
    const char *workloads[PERF_WORKLOADS_MOST]; /* workload files */
    size_t workload_count;
    uint64_t block_ns;  /* duration of one repetition */
    uint64_t warmup_ns; /* duration of the warm-up before the first one */
    uint64_t messages;  /* messages per repetition; 0: use block_ns */
    unsigned repetitions;
    bool phases; /* creates each map anew, and measures each phase */
    bool verify; /* compares all bytes of all maps, on both sides */
    bool sleep;  /* sleeps while nothing arrives */
} perf_plan_t;

typedef struct {
    connection_options_t connection; /* without a URL: to a child process */
    const char *over; /* "shm", "tcp", or both; NULL: what is available */
    const char *out;  /* file to write; NULL: standard output */
    perf_plan_t plan;
    unsigned count; /* senders to serve; 0: until a signal */
    bool tune;
    bool force;
    bool update;
    bool quick;
    bool json;
    bool csv;
} perf_options_t;

/* Reads the command line. A wrong command line ends the program with exit code
 * 2. */
void perf_options_read(int argc, char **argv, perf_options_t *options);

/* Returns text that tells which options do not go together, or NULL if all
 * do. */
const char *perf_options_check(const perf_options_t *options);

/* Sets the defaults of options that were not given. */
void perf_options_complete(perf_options_t *options);

/* Holds a connection to a sink. */
typedef struct {
    const perf_options_t *options;
    pid_t child; /* pid of the child process; 0: none */
    char url[256];
    tmsg_context_t *context;
    tmsg_worker_t *worker;
    tmsg_endpoint_t *endpoint;
    char transport[16];
    char transports[192];
    char why[160];
    char bulk[160]; /* text `bulk` of tmsg_endpoint_describe() */
    int code;       /* exit code if the connection could not be opened */
} perf_peer_t;

/* Chooses the way of a message, and its UCX protocol. */
typedef struct {
    int32_t way;      /* tmsg_way_kind_t */
    int32_t protocol; /* tmsg_protocol_t */
} perf_way_t;

/* Runs the receiving side. Returns an exit code. */
int perf_listen(const perf_options_t *options);

/* Connects to the URL of the options. Without a URL it starts a child process
 * and connects to it; `tls` then restricts UCX's transports on both sides
 * (NULL: the default). Returns false after a complaint. The caller calls
 * perf_peer_close() in any case. */
bool perf_peer_open(perf_peer_t *peer, const perf_options_t *options,
                    const char *tls);

/* Opens another connection to the sink of `first`. `thresholds`, such as
 * "shm.chunk_bytes=1048576", are added to those of the environment. Returns
 * false after a complaint; the caller calls perf_peer_close() in any case. */
bool perf_peer_again(perf_peer_t *peer, const perf_peer_t *first,
                     const char *thresholds);

void perf_peer_close(perf_peer_t *peer);

/* Opens a connection over each transport that the options allow, one after the
 * other, and calls `measure` for it. Stops if `measure` returns false. Returns
 * an exit code. */
typedef bool (*perf_measure_fn)(void *arg, perf_peer_t *peer);
int perf_each_transport(const perf_options_t *options, perf_measure_fn measure,
                        void *arg);

/* Ends the connection at once. Afterwards nothing reads the memory of a map any
 * more. */
void perf_peer_drop(perf_peer_t *peer);

/* Returns `bytes` of memory that all maps share, or NULL after a complaint. The
 * caller frees it with munmap(). */
void *perf_memory(size_t bytes);

/* Returns a map of uint8 tensors that lie one after the other in `memory`, or
 * NULL after a complaint. */
tmsg_map_t *perf_map(void *memory, size_t tensors, uint64_t bytes_each);

/* Sends the map again and again, a few at a time, for block_ns or a little
 * longer. Returns nanoseconds per message, or 0 after a complaint. */
double perf_stream(const perf_peer_t *peer, const tmsg_map_t *map,
                   perf_way_t way, uint64_t block_ns);

/* Returns the median. Sorts `values`. */
double perf_median(double *values, size_t count);

/* Measures the plan of the options over each transport, and prints the results.
 * Returns an exit code. */
int perf_sweep(const perf_options_t *options);

/* Drives a worker until it has handled something, which may be a sign of life
 * that the peer's library sends by itself. Returns TIMED_OUT if nothing came
 * for a while. With `poll` the function does not sleep as long as something may
 * come soon. *start_ns_p (or NULL) is the time of the call. */
tmsg_status_t perf_drive(tmsg_worker_t *worker, bool poll,
                         uint64_t *start_ns_p);

/* Measures each threshold of the peer's transport and puts it into the object
 * `thresholds`. Prints the results on `report`. Returns false after a
 * complaint; the connection has ended then. */
bool perf_tune(perf_peer_t *peer, cJSON *thresholds, FILE *report);

/* Tells, before anything is measured, whether --out may be written and, with
 * --update, be read. Returns false after a complaint. */
bool perf_file_check(const perf_options_t *options);

/* Tells whether a file can be created at `path`. Returns false after a
 * complaint. */
bool perf_folder_check(const char *path);

/* Writes the thresholds, an object for each transport, to the file of the
 * options. The file is written as a whole or not at all. Returns false after a
 * complaint. */
bool perf_file_write(const perf_options_t *options, const cJSON *thresholds);

#endif
