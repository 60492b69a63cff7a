/* SPDX-License-Identifier: BSD-3-Clause */
/* bench/raw.h - UCX by itself, set up as a way says. Whatever fails ends the
 * process. */
#ifndef TMSG_BENCH_RAW_H
#define TMSG_BENCH_RAW_H

#include <ucp/api/ucp.h>

#include "bench.h"

#define BENCH_RAW_AM 0
#define BENCH_RAW_ADDRESS_BYTES_MAX (64u * 1024u)

typedef struct {
    bench_settings_t settings;
    ucp_context_h context;
    ucp_worker_h worker;
} bench_raw_t;

void bench_raw_must(ucs_status_t status, const char *what);

/* A worker on the loopback device, whose messages of BENCH_RAW_AM `arrived`
 * takes; one that sleeps may be waited for by ucp_worker_wait(). */
void bench_raw_start(bench_raw_t *raw, bench_settings_t settings, bool sleeps,
                     bench_transport_t transport,
                     ucp_am_recv_callback_t arrived, void *arg);

/* Tells the other side the worker's address. */
void bench_raw_tell(const bench_raw_t *raw, int socket);

ucp_ep_h bench_raw_connect(const bench_raw_t *raw, const void *address);

/* As the settings end one: ours at once, the others when all has gone. */
void bench_raw_disconnect(const bench_raw_t *raw, ucp_ep_h ep);

void bench_raw_stop(bench_raw_t *raw);

#endif
