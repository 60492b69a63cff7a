/* SPDX-License-Identifier: BSD-3-Clause */
/* bench/compare/way.h - who takes part: one side each, as in ../side.h. */
#ifndef TMSG_BENCH_WAY_H
#define TMSG_BENCH_WAY_H

#include "../side.h"
#include "framing.h"

typedef struct {
    const char *name;
    bench_opener_t open;
    bench_way_t way;              /* of raw UCX */
    bool by_stream;               /* ours */
    bool calls;                   /* ours: calls, and their replies */
    const char *(*version)(void); /* of the library; may be NULL */
    bool has_threads;             /* of its own, which may use all cores */
    unsigned over;                /* COMPARE_*, those that it knows */
} compare_way_t;

/* What the bytes go over. */
enum {
    COMPARE_SHM = 1 << 0,
    COMPARE_TCP = 1 << 1,
    COMPARE_CLEAR = COMPARE_SHM | COMPARE_TCP,
    COMPARE_ENCRYPTED = 1 << 2 /* TCP, with a key or certificate of each side */
};

/* Those of this program; the last has no name. */
extern const compare_way_t compare_ways[];

/* Sides that wait in progress() for the next message, whole. */
bench_side_t *compare_socket_open(const bench_run_t *run, bool dialling,
                                  int socket);
bench_side_t *compare_openssl_open(const bench_run_t *run, bool dialling,
                                   int socket);
bench_side_t *compare_zmq_open(const bench_run_t *run, bool dialling,
                               int socket);
bench_side_t *compare_nng_open(const bench_run_t *run, bool dialling,
                               int socket);
bench_side_t *compare_grpc_open(const bench_run_t *run, bool dialling,
                                int socket);
bench_side_t *compare_ucxx_open(const bench_run_t *run, bool dialling,
                                int socket);

/* Of all that use OpenSSL. */
#define COMPARE_CIPHER "TLS_AES_128_GCM_SHA256"

/* Makes the files of bench_certificates(), of both sides, anew, and has OpenSSL
 * use that cipher in this process and its children, whatever library asks. */
void compare_certificates_make(const char *folder);
void compare_certificates_remove(const char *folder);

const char *compare_openssl_version(void);
const char *compare_zmq_version(void);
const char *compare_nng_version(void);
const char *compare_grpc_version(void);
const char *compare_ucxx_version(void);

/* What these have in common: a side and what it sends and receives. */
typedef struct {
    bench_side_t side;
    framing_out_t *outs; /* of each payload */
    framing_in_t in;
} compare_framed_t;

void compare_framed_load(compare_framed_t *framed, const bench_run_t *run);
void compare_framed_unload(compare_framed_t *framed);

/* What goes now. */
const framing_out_t *compare_framed_next(compare_framed_t *framed);

/* A message is there, whole, and where its tensors lie is known; or it was an
 * answer. */
void compare_framed_arrived(compare_framed_t *framed);
void compare_framed_answered(compare_framed_t *framed);

#endif
