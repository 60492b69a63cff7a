/* SPDX-License-Identifier: BSD-3-Clause */
/* am/worker/context.h - contexts as the room sees them. */
#ifndef TMSG_AM_WORKER_CONTEXT_H
#define TMSG_AM_WORKER_CONTEXT_H

#include <stdatomic.h>

#include <tensormsg/context.h>
#include <tensormsg/devices.h>

#include "am/boot/heart.h"
#include "am/boot/hello.h"
#include "am/boot/key.h"
#include "am/ucx/ucx_config.h"
#include "am/worker/settings.h"
#include "am/worker/way.h"
#include "core/refs.h"

struct tmsg_context {
    tmsg_refs_t refs; /* the application's and one a worker */
    tmsg_limits_t limits;
    char *ucx_config; /* NULL: none */
    tmsg_settings_t settings;
    uint32_t peer_timeout_ms;
    uint32_t flags;
    uint32_t huge_page_bytes; /* as docs/configuration.md has it */
    tmsg_devices_t *devices;  /* with the numbers of a table; NULL: no table */
    tmsg_keyring_t *keyring;  /* of all that name none; NULL: no key */
    tmsg_tuning_t tuning;     /* of the ways that messages travel */
    tmsg_trace_fn on_trace;   /* NULL: nobody wants to know */
    void *on_trace_arg;
    tmsg_heart_t heart;
    uint8_t instance_id[TMSG_INSTANCE_BYTES];
};

void tmsg_context_hold(tmsg_context_t *context);

/* What it says of UCX's keys; lives as long as the context. */
tmsg_ucx_given_t tmsg_context_ucx(const tmsg_context_t *context);

/* For the peer's word; a default where silence is not judged. */
uint32_t tmsg_context_patience_ms(const tmsg_context_t *context);

/* What its hellos say of heartbeats. */
uint32_t tmsg_context_heartbeat_ms(const tmsg_context_t *context);

#endif
