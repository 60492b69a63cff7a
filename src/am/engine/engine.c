/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/worker/engine.h"
#include "am/endpoint/fail.h"
#include "am/endpoint/scheme.h"
#include "am/engine/dispatch.h"
#include "am/engine/endpoint.h"
#include "am/engine/endpoint_end.h"
#include "am/engine/endpoint_free.h"
#include "am/engine/progress.h"
#include "am/engine/retire.h"
#include "am/engine/worker.h"
#include "am/path/bulk_user.h"
#include "am/recv/fragments_bulk.h"
#include "am/send/fragments.h"
#include "am/ucx/ucx_events.h"

const tmsg_engine_t tmsg_engine = {
    .step = tmsg_worker_step,
    .arm = tmsg_progress_arm,
    .idle = tmsg_progress_is_idle,
    .finish = tmsg_worker_finish,
    .arrived = tmsg_kinds_arrived,
    .opened = tmsg_endpoint_opened,
    .end = tmsg_endpoint_end,
    .detach = tmsg_endpoint_detach,
    .release = tmsg_endpoint_release,
    .forget = tmsg_endpoint_forget,
    .free = tmsg_endpoint_free,
};

static void lose_ucx_ep(tmsg_ucx_t *ucx, tmsg_ucx_ep_t ep,
                        tmsg_ucx_status_t status)
{
    tmsg_endpoint_t *endpoint;
    uint32_t i = 0;

    while ((endpoint = tmsg_endpoint_next(ucx->worker, ucx, &i)) != NULL) {
        if (endpoint->ep == ep) {
            tmsg_endpoint_lose(endpoint, status);
        }
    }
}

static void end_stream(tmsg_ucx_t *ucx, tmsg_ucx_ep_t ep, tmsg_status_t status,
                       const char *why)
{
    tmsg_endpoint_t *endpoint;
    uint32_t i = 0;

    while ((endpoint = tmsg_endpoint_next(ucx->worker, ucx, &i)) != NULL) {
        if (endpoint->ep != ep) {
            continue;
        }
        if (status == TMSG_ERR_PEER_LOST) {
            tmsg_endpoint_lose_stream(endpoint, why);
        } else {
            tmsg_endpoint_break(endpoint, status, why);
        }
    }
}

const tmsg_ucx_events_t tmsg_ucx_events = {
    .lost = lose_ucx_ep,
    .ended = end_stream,
    .drain = tmsg_worker_drain,
    .doubt = tmsg_ucx_doubt,
    .supersede = tmsg_ucx_supersede,
    .sweep = tmsg_worker_close_retired,
};

const tmsg_bulk_user_t tmsg_bulk_user = {
    .next = tmsg_fragments_next,
    .handed = tmsg_fragments_handed,
    .unreadable = tmsg_fragments_unreadable,
    .place = tmsg_fragments_bulk_place,
    .landed = tmsg_fragments_bulk_landed,
};

#define SCHEME_ADDRESS(NAME, name, form) &tmsg_scheme_##name,

const tmsg_scheme_t *const tmsg_schemes[TMSG_URL_KINDS] = {
    TMSG_SCHEMES(SCHEME_ADDRESS)};
