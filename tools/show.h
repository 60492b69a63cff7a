/* SPDX-License-Identifier: BSD-3-Clause */
/* show.h - prints tensor maps and connections, as text and as JSON. */
#ifndef TMSG_SHOW_H
#define TMSG_SHOW_H

#include <cjson/cJSON.h>

#include "tool.h"

/* Holds the size and the checksums of a map. `sums` has one XXH3-64 for each
 * tensor, over its elements in C order, whatever its strides. `sums` is NULL if
 * the caller did not ask for checksums. */
typedef struct {
    size_t tensors;
    uint64_t bytes;
    uint64_t *sums; /* the caller frees them with free() */
} digest_t;

/* Computes the digest of a map. Errors: NO_MEMORY, UNSUPPORTED (memory that the
 * CPU cannot read). */
tmsg_status_t digest_map(const tmsg_map_t *map, bool sums, digest_t *digest_p);

/* Prints a line for each tensor: name, dtype, shape, device, bytes,
 * checksum. */
void show_table(FILE *stream, const tmsg_map_t *map, const digest_t *digest);

/* Tells how the bytes of a connection travel, and why. */
typedef struct {
    char transports[160];
    char why[200];
    char bulk[200];   /* bulk stream: "stands", or why there is none */
    uint64_t by_bulk; /* messages by bulk stream, in both directions */
} route_t;

void look_up_route(const tmsg_endpoint_t *endpoint, route_t *route);

/* Prints the transports, such as "tcp/eth0". If the bulk stream was used,
 * prints "tcp/eth0 and its bulk stream". */
void put_transports(FILE *stream, const route_t *route);

/* Drives the worker until the connection's bulk stream stands or it is clear
 * that there will be none. Waits one second at most. The library dials a bulk
 * stream after everything else is ready. */
void await_bulk(tmsg_worker_t *worker, const tmsg_endpoint_t *endpoint);

/* These functions build an event of --json: one object on one line of standard
 * output. If memory runs out, items are NULL and the object is printed
 * incomplete. */
cJSON *event_new(const char *name);
void event_text(cJSON *event, const char *key, const char *text);
void event_number(cJSON *event, const char *key, uint64_t number);
void event_seconds(cJSON *event, const char *key, double seconds);
void event_map(cJSON *event, const tmsg_map_t *map, const digest_t *digest);
void event_print(cJSON *event); /* prints the event and frees it */

#endif
