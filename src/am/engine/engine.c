/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/worker/engine.h"
#include "am/engine/dispatch.h"
#include "am/engine/endpoint.h"
#include "am/engine/endpoint_end.h"
#include "am/engine/endpoint_free.h"
#include "am/engine/progress.h"
#include "am/engine/worker.h"

const tmsg_engine_t tmsg_engine = {
    .step = tmsg_worker_step,
    .drain = tmsg_worker_drain,
    .arm = tmsg_progress_arm,
    .idle = tmsg_progress_is_idle,
    .finish = tmsg_worker_finish,
    .arrived = tmsg_kinds_arrived,
    .boxed = tmsg_kinds_boxed,
    .opened = tmsg_endpoint_opened,
    .end = tmsg_endpoint_end,
    .part = tmsg_endpoint_part,
    .release = tmsg_endpoint_release,
    .forget = tmsg_endpoint_forget,
    .free = tmsg_endpoint_free,
};
