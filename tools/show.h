/* SPDX-License-Identifier: BSD-3-Clause */
/* show.h - tensor maps and connections, in words and as JSON. */
#ifndef TMSG_SHOW_H
#define TMSG_SHOW_H

#include <cjson/cJSON.h>

#include "tool.h"

/* What a map amounts to. `sums` has one XXH3-64 a tensor, of its elements in C
 * order, whatever its strides; NULL if they were not asked for. */
typedef struct {
    size_t tensors;
    uint64_t bytes;
    uint64_t *sums; /* freed with free() */
} digest_t;

/* Errors: NO_MEMORY, UNSUPPORTED (memory that the CPU cannot read). */
tmsg_status_t digest_map(const tmsg_map_t *map, bool sums, digest_t *digest_p);

/* A line a tensor: name, dtype, shape, device, bytes, checksum. */
void show_table(FILE *stream, const tmsg_map_t *map, const digest_t *digest);

/* How a connection's bytes travel, and why. */
typedef struct {
    char transports[160];
    char why[200];
    char bulk[200];   /* of docs/transfer-ways.md: "stands", or why not */
    uint64_t by_bulk; /* messages that took it so far, of both directions */
} route_t;

void look_up_route(const tmsg_endpoint_t *endpoint, route_t *route);

/* "tcp/eth0", or "tcp/eth0 and its bulk stream", where that was used. */
void put_transports(FILE *stream, const route_t *route);

/* Drives the worker until the connection's bulk stream stands or there will be
 * none, a second at most: it is dialled when all else is ready. */
void await_bulk(tmsg_worker_t *worker, const tmsg_endpoint_t *endpoint);

/* An event of --json: one object on one line of standard output. NULL items
 * mean that memory ran out, which shows as an incomplete object. */
cJSON *event_new(const char *name);
void event_text(cJSON *event, const char *key, const char *text);
void event_number(cJSON *event, const char *key, uint64_t number);
void event_seconds(cJSON *event, const char *key, double seconds);
void event_map(cJSON *event, const tmsg_map_t *map, const digest_t *digest);
void event_print(cJSON *event); /* and frees it */

#endif
