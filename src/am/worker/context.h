/* SPDX-License-Identifier: BSD-3-Clause */
/* am/worker/context.h - the inside of a context. */
#ifndef TMSG_AM_WORKER_CONTEXT_H
#define TMSG_AM_WORKER_CONTEXT_H

#include <stdatomic.h>

#include <tensormsg/context.h>
#include <tensormsg/devices.h>

#include "am/boot/hello.h"
#include "am/boot/keepalive.h"
#include "am/boot/key.h"
#include "am/ucx/config.h"
#include "am/worker/settings.h"
#include "am/worker/way.h"
#include "core/refs.h"
#include "memory/lines.h"

struct tmsg_context {
    tmsg_refs_t refs; /* one of the application, and one of each worker */
    tmsg_limits_t limits;
    char *ucx_config; /* NULL: the application set no UCX keys */
    tmsg_settings_t settings;
    uint32_t peer_timeout_ms;
    int32_t carrier; /* TMSG_CARRIER_* of connections that name none */
    /* Tells how many TCP connections this side dials for large payloads; 0: as
     * many as suit the processors. */
    uint32_t bulk_connections;
    uint32_t flags;
    /* Tells the smallest block that gets huge pages; see
     * docs/reference/configuration.md. */
    uint32_t huge_page_bytes;
    tmsg_devices_t *devices; /* numbered by the device table; NULL: no table */
    /* Holds the keys of all that name no keyring; NULL: no key. */
    tmsg_keyring_t *keyring;
    char *observers;        /* TENSORMSG_OBSERVERS; NULL: it is not set */
    tmsg_tuning_t tuning;   /* thresholds of the ways that messages travel */
    tmsg_trace_fn on_trace; /* NULL: nobody traces */
    void *on_trace_arg;
    tmsg_keepalive_t keepalive;
    tmsg_lines_t lines; /* of bells */
    uint8_t instance_id[TMSG_INSTANCE_BYTES];
};

void tmsg_context_hold(tmsg_context_t *context);

/* Returns the UCX keys that the application and the configuration file set. The
 * result points into the context and lives as long as it. */
tmsg_ucx_given_t tmsg_context_ucx(const tmsg_context_t *context);

/* Returns how long, in milliseconds, this side waits for a word of the peer. If
 * the context does not judge silence (peer_timeout_ms is 0), it is the
 * default. */
uint32_t tmsg_context_peer_timeout_ms(const tmsg_context_t *context);

/* Returns what the hellos of this context say about heartbeats: the interval in
 * milliseconds, 0 without a thread, or TMSG_HEARTBEAT_NEVER. */
uint32_t tmsg_context_heartbeat_ms(const tmsg_context_t *context);

#endif
