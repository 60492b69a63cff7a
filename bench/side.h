/* SPDX-License-Identifier: BSD-3-Clause */
/* bench/side.h - one end of a connection, whoever moves the bytes, so that one
 * and the same loop times them all. */
#ifndef TMSG_BENCH_SIDE_H
#define TMSG_BENCH_SIDE_H

#include <sys/types.h>

#include "bench.h"
#include "payload.h"

struct bench_side {
    workload_t plain;          /* what it sends, if no file says that */
    bench_payload_t *payloads; /* of the workload's maps, which send() sends */
    size_t payload_count;      /* in turn, and which arrivals must be */
    size_t payload_bytes;      /* of all */
    size_t turn;               /* which goes next */
    uint64_t received;         /* messages, whole */
    uint64_t awaited;          /* of these, by the loops so far */
    unsigned in_flight;        /* sends that still need their buffers */
    bool look;                 /* at each line of what arrives, by both ways */
    bool check;                /* compare what arrives with the payload */
    uint64_t checked;          /* payloads that were compared, and right */
    void (*send)(bench_side_t *side);
    void (*answer)(bench_side_t *side); /* a few bytes, "all arrived" */
    void (*call)(bench_side_t *side);   /* 64 B there, and at once back */
    void (*ask)(bench_side_t *side);    /* a call, whose reply is the payload */
    void (*fetch)(bench_side_t *side);  /* an offer, which is the payload */
    void (*progress)(bench_side_t *side);
    void (*close)(bench_side_t *side);
};

/* Makes the payloads of a run, and frees them. */
void bench_side_load(bench_side_t *side, const bench_run_t *run,
                     bool in_one_piece);
void bench_side_unload(bench_side_t *side);

/* The payload that goes now. */
const bench_payload_t *bench_side_next(bench_side_t *side);

/* Of those that are compared, the one that must arrive now. */
const bench_payload_t *bench_side_expected(const bench_side_t *side);

/* Connects two sides that have a socket between them. */
bench_side_t *bench_map_open(const bench_run_t *run, bool dialling, int socket);
bench_side_t *bench_raw_open(const bench_run_t *run, int socket);
bench_side_t *bench_lines_open(const bench_run_t *run, bool dialling,
                               int socket);

/* Files of one side: the CA of both, its own certificate, and the key. */
typedef struct {
    char ca[64], certificate[64], key[64];
} bench_certificates_t;

/* Where these are, or are to be. */
void bench_certificates(const char *folder, bool dialling,
                        bench_certificates_t *paths_p);

/* Plays this side's part of a run; the first side gets the sample. */
void bench_play(bench_side_t *side, const bench_run_t *run, bool first,
                int socket, bench_sample_t *sample_p);

/* The same for BENCH_UNDER_BULK. */
void bench_bulk_play(bench_side_t *side, const bench_run_t *run, bool first,
                     int socket, bench_sample_t *sample_p);

/* The same for BENCH_SHARED. */
void bench_shared_play(bench_side_t *side, const bench_run_t *run, bool first,
                       bench_sample_t *sample_p);

/* Sets this side apart from the other as the run says; after a run, what that
 * left. */
void bench_part(const bench_run_t *run, bool first);
void bench_join(const bench_run_t *run);

/* A run's two processes, started and not yet awaited. */
typedef struct {
    pid_t pids[2];
    int result; /* the first process's sample comes through it */
} bench_pair_t;

void bench_pair_start(const bench_run_t *run, bench_pair_t *pair_p);
bool bench_pair_end(bench_pair_t *pair, bench_sample_t *sample_p);

/* The same for BENCH_CALLS. */
void bench_calls_play(bench_side_t *side, const bench_run_t *run, bool first,
                      int socket, bench_sample_t *sample_p);

/* Progresses until so many more messages have come, or until no send needs its
 * buffers any more. */
void bench_await(bench_side_t *side, unsigned messages);
void bench_drain(bench_side_t *side);

/* Of a round trip each, the first side sends. */
void bench_ping_pong(bench_side_t *side, unsigned rounds, bool first);

/* Progresses until the other side has told something. */
void bench_serve(bench_side_t *side, int socket);

/* Returns when both sides have called it. */
void bench_meet(int socket);

/* A length and so many bytes, through the socket between both sides. */
void bench_tell(int socket, const void *data, size_t bytes);
size_t bench_hear(int socket, void *data, size_t most);

#endif
