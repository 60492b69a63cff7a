/* SPDX-License-Identifier: BSD-3-Clause */
/* support/many_endpoints.h - many endpoints at once, from the workers of a few
 * client processes to one server worker in this one. */
#ifndef TMSG_TESTS_MANY_ENDPOINTS_H
#define TMSG_TESTS_MANY_ENDPOINTS_H

#include "support/peers.h"

#define MANY_CLIENTS_MAX 10

typedef struct {
    unsigned clients;
    unsigned each;   /* endpoints of a client */
    unsigned rounds; /* messages there and back, over every endpoint */
    link_t link;
    size_t (*held)(void); /* bytes of ours now in a process, or NULL */
} many_t;

typedef struct {
    size_t server_bytes; /* an endpoint */
    size_t client_bytes;
    double rate; /* messages a second, there and back */
} many_result_t;

/* Connects them all, then has each client send over all of its endpoints in
 * turn and compare what comes back by each, then close them in order. Dies
 * where anything is amiss, or left in a process at its end. To be called before
 * UCX is opened here. */
void many_run(const many_t *many, many_result_t *result_p);

#endif
