/* SPDX-License-Identifier: BSD-3-Clause */
/* am/worker/settings.h - the configuration file, which stands behind code and
 * environment. The format is docs/configuration.md. */
#ifndef TMSG_AM_WORKER_SETTINGS_H
#define TMSG_AM_WORKER_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include <tensormsg/limits.h>

/* All zero bits: it sets nothing. */
typedef struct {
    char *path;           /* it was read from; NULL: there is none */
    tmsg_limits_t limits; /* those in its field_mask */
    char *ucx;            /* "KEY=VALUE;KEY=VALUE"; NULL: none */
    char *thresholds;     /* for tmsg_tuning_read(); NULL: none */
    bool has_peer_timeout;
    uint32_t peer_timeout_ms;
    bool no_thread;
    bool require_path;
    bool has_huge_pages;
    uint32_t huge_page_bytes;
} tmsg_settings_t;

/* Reads the file whose name is `path` or, where that is NULL, the value of
 * TENSORMSG_CONFIG; where neither is given nothing is set. Every value is
 * checked for its type; ranges are its user's. On error *settings is empty.
 * Errors: NOT_FOUND, IO, NO_MEMORY, LIMIT_EXCEEDED (1 MiB), INVALID_PARAM (not
 * the format; each names the file and the key). */
tmsg_status_t tmsg_settings_read(const char *path, tmsg_settings_t *settings);

/* Frees what it points to. */
void tmsg_settings_free(tmsg_settings_t *settings);

#endif
