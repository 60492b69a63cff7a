/* SPDX-License-Identifier: BSD-3-Clause */
/* Who takes part, as far as it was found. */
#include <tensormsg/tensormsg.h>
#include <ucp/api/ucp.h>

#include "way.h"

const compare_way_t compare_ways[] = {
#ifdef COMPARE_UCXX /* a program of its own, for another UCX */
    {"tensormsg, UCXX's UCX", .way = {.layout = BENCH_MAP},
     .over = COMPARE_CLEAR},
    {"raw ucp_am, UCXX's UCX", .way = {.layout = BENCH_CONTIGUOUS},
     .version = ucp_get_version_string, .over = COMPARE_CLEAR},
    {"UCXX C++", .open = compare_ucxx_open, .version = compare_ucxx_version,
     .over = COMPARE_CLEAR},
#else
    {"tensormsg", .way = {.layout = BENCH_MAP}, .version = tmsg_version,
#ifdef COMPARE_TLS
     .over = COMPARE_CLEAR | COMPARE_ENCRYPTED
#else
     .over = COMPARE_CLEAR
#endif
    },
#ifdef COMPARE_TLS
    {"tensormsg, call", .way = {.layout = BENCH_MAP}, .calls = true,
     .over = COMPARE_ENCRYPTED},
#endif
    {"tensormsg, stream", .way = {.layout = BENCH_MAP}, .by_stream = true,
     .over = COMPARE_TCP},
    {"raw ucp_am", .way = {.layout = BENCH_CONTIGUOUS},
     .version = ucp_get_version_string, .over = COMPARE_CLEAR},
    {"raw ucp_am iov", .way = {.layout = BENCH_IOV}, .over = COMPARE_CLEAR},
    {"socket", .open = compare_socket_open, .over = COMPARE_CLEAR},
#ifdef COMPARE_OPENSSL
    {"OpenSSL", .open = compare_openssl_open,
     .version = compare_openssl_version, .over = COMPARE_ENCRYPTED},
#endif
#ifdef COMPARE_ZMQ
    {"ZeroMQ", .open = compare_zmq_open, .version = compare_zmq_version,
     .has_threads = true, .over = COMPARE_CLEAR},
    {"CurveZMQ", .open = compare_zmq_open, .has_threads = true,
     .over = COMPARE_ENCRYPTED},
#endif
#ifdef COMPARE_NNG
    {"nng", .open = compare_nng_open, .version = compare_nng_version,
     .has_threads = true, .over = COMPARE_CLEAR},
#endif
#ifdef COMPARE_GRPC
    {"gRPC C++", .open = compare_grpc_open, .version = compare_grpc_version,
     .has_threads = true,
#ifdef COMPARE_OPENSSL
     .over = COMPARE_CLEAR | COMPARE_ENCRYPTED
#else
     .over = COMPARE_CLEAR
#endif
    },
#endif
#endif
    {0},
};
