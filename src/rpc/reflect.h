/* SPDX-License-Identifier: BSD-3-Clause */
/* rpc/reflect.h - the methods that every server has. */
#ifndef TMSG_RPC_REFLECT_H
#define TMSG_RPC_REFLECT_H

#include "rpc/server.h"

/* These keys are in the metadata that travels: docs/reference/calls.md, "What
 * travels". */
/* This prefix and a method's name make a key in the list of methods. The value
 * is a JSON object that describes the method. */
#define TMSG_REFLECT_METHOD "method/"
/* This key of a request names the method whose health is asked for. A request
 * without the key is for the whole server. */
#define TMSG_HEALTH_ASKED "method"
/* This key of the reply has the health, as tmsg_health_name() writes it. */
#define TMSG_HEALTH_TOLD "health"
/* This key of the reply has the other fields of tmsg_health_report_t, as
 * JSON. */
#define TMSG_HEALTH_LOAD "load"

/* Adds the library's own methods to a new server, except those that `flags`
 * (TMSG_SERVER_*) exclude. Takes the hub's lock. Errors: NO_MEMORY. */
tmsg_status_t tmsg_reflect_offer(tmsg_server_t *server, uint32_t flags);

/* Writes a report as it travels, as metadata. Errors: NO_MEMORY. */
tmsg_status_t tmsg_report_write(const tmsg_health_report_t *report,
                                tmsg_map_t *map);

/* Returns the health that a word from the wire names. Returns
 * TMSG_HEALTH_UNKNOWN if the word is not a known one. */
tmsg_health_t tmsg_health_of(const char *word);

#endif
