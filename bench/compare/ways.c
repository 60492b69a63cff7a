/* SPDX-License-Identifier: BSD-3-Clause */
/* Who takes part, as far as it was found. */
#include <tensormsg/tensormsg.h>
#include <ucp/api/ucp.h>

#include "way.h"

const compare_way_t compare_ways[] = {
#ifdef COMPARE_UCXX /* a program of its own, for another UCX */
    {"tensormsg, UCXX's UCX", NULL, {.layout = BENCH_MAP}, NULL, false},
    {"raw ucp_am, UCXX's UCX",
     NULL,
     {.layout = BENCH_CONTIGUOUS},
     ucp_get_version_string,
     false},
    {"UCXX C++", compare_ucxx_open, {0}, compare_ucxx_version, false},
#else
    {"tensormsg", NULL, {.layout = BENCH_MAP}, tmsg_version, false},
    {"raw ucp_am",
     NULL,
     {.layout = BENCH_CONTIGUOUS},
     ucp_get_version_string,
     false},
    {"raw ucp_am iov", NULL, {.layout = BENCH_IOV}, NULL, false},
    {"socket", compare_socket_open, {0}, NULL, false},
#ifdef COMPARE_ZMQ
    {"ZeroMQ", compare_zmq_open, {0}, compare_zmq_version, true},
#endif
#ifdef COMPARE_NNG
    {"nng", compare_nng_open, {0}, compare_nng_version, true},
#endif
#ifdef COMPARE_GRPC
    {"gRPC C++", compare_grpc_open, {0}, compare_grpc_version, true},
#endif
#endif
    {0},
};
