/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/staging/vital.h"

#include "am/staging/copy.h"
#include "am/worker/worker.h"
#include "core/error.h"

#define ASK_EVERY_MS 100

static void set_timer(tmsg_worker_t *worker);

/* vital->ask() may take others out of the list. */
static void ask_all(tmsg_worker_t *worker, bool direct_alone)
{
    tmsg_list_t *vitals = &worker->stage.vitals;

    for (size_t i = vitals->count; i > 0 && vitals->count > 0; i--) {
        tmsg_vital_t *vital =
            TMSG_CONTAINER_OF(tmsg_list_pop(vitals), tmsg_vital_t, node);

        tmsg_list_push(vitals, &vital->node);
        if (vital->direct > 0 || !direct_alone) {
            vital->ask(vital);
        }
    }
}

void tmsg_vital_ask_direct(tmsg_worker_t *worker) { ask_all(worker, true); }

static void ask_again(tmsg_timer_t *timer)
{
    tmsg_worker_t *worker =
        TMSG_CONTAINER_OF(timer, tmsg_worker_t, stage.health);

    ask_all(worker, false);
    if (worker->stage.vitals.count > 0) {
        set_timer(worker);
    }
}

static void set_timer(tmsg_worker_t *worker)
{
    worker->stage.health.expired = ask_again;
    tmsg_loop_set_timer(&worker->loop, &worker->stage.health, ASK_EVERY_MS);
}

void tmsg_vital_watch(tmsg_worker_t *worker, tmsg_vital_t *vital)
{
    if (vital->listed) {
        return;
    }
    vital->listed = true;
    tmsg_list_push(&worker->stage.vitals, &vital->node);
    if (worker->stage.health.deadline_ns == 0) {
        set_timer(worker);
    }
}

void tmsg_vital_forget(tmsg_worker_t *worker, tmsg_vital_t *vital)
{
    if (vital->listed) {
        vital->listed = false;
        tmsg_list_remove(&worker->stage.vitals, &vital->node);
    }
}

/* The work that is asked for is none: an event on the library's own stream. */
static tmsg_status_t ask_device(const tmsg_domain_t *domain,
                                tmsg_device_t device)
{
    tmsg_stream_t stream;
    tmsg_status_t status = tmsg_copy_stream(domain, device, &stream);
    void *event;

    if (status != TMSG_OK || stream.kind == TMSG_STREAM_NONE) {
        return status;
    }
    status = domain->event_record(domain->arg, device, stream, &event);
    if (status == TMSG_OK) {
        status = domain->event_query(domain->arg, event);
        domain->event_free(domain->arg, event);
    }
    return status;
}

/* Only an error that stays is the device's. */
tmsg_status_t tmsg_vital_device(const tmsg_domain_t *domain,
                                tmsg_device_t device)
{
    if (domain->event_record == NULL ||
        ask_device(domain, device) != TMSG_ERR_IO ||
        ask_device(domain, device) != TMSG_ERR_IO) {
        return TMSG_OK;
    }
    return tmsg_error_set(TMSG_ERR_IO, "device %d of '%s' has failed: %s",
                          device.id, domain->name, tmsg_error_message());
}
