/* SPDX-License-Identifier: BSD-3-Clause */
/* am/worker/settings.h - the configuration file. Code and environment variables
 * override it. docs/reference/configuration.md describes the format. */
#ifndef TMSG_AM_WORKER_SETTINGS_H
#define TMSG_AM_WORKER_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include <tensormsg/limits.h>

/* Holds the values that a file sets. All zero bits: the file sets nothing. */
typedef struct {
    char *path;           /* name of the file; NULL: there is no file */
    tmsg_limits_t limits; /* the limits named by its field_mask */
    char *ucx;            /* "KEY=VALUE;KEY=VALUE"; NULL: none */
    char *thresholds;     /* text for tmsg_tuning_read(); NULL: none */
    bool has_peer_timeout;
    uint32_t peer_timeout_ms;
    bool no_thread;
    bool require_path;
    int32_t carrier;           /* TMSG_CARRIER_* */
    uint32_t bulk_connections; /* 0: as context.h has it */
    bool has_huge_pages;
    uint32_t huge_page_bytes;
} tmsg_settings_t;

#define TMSG_BULK_CONNECTIONS_MOST 4

#define TMSG_CARRIERS 3
extern const char *const tmsg_carrier_names[TMSG_CARRIERS];

/* Reads the name of a TMSG_CARRIER_*. False: it is none. */
bool tmsg_carrier_read(const char *name, int32_t *carrier_p);

/* Reads a configuration file. Its name is `path` or, if `path` is NULL, the
 * value of TENSORMSG_CONFIG. If neither is given, nothing is set. The function
 * checks the type of every value; the user of a value checks its range. On
 * error *settings is empty. Errors: NOT_FOUND, IO, NO_MEMORY, LIMIT_EXCEEDED
 * (more than 1 MiB), INVALID_PARAM (the format is wrong; the message names the
 * file and the key). */
tmsg_status_t tmsg_settings_read(const char *path, tmsg_settings_t *settings);

/* Frees what *settings points to, and empties it. */
void tmsg_settings_free(tmsg_settings_t *settings);

#endif
