/* SPDX-License-Identifier: BSD-3-Clause */
/* am/staging/vital.h - finds out that a device has failed.
 *
 * A kernel that faults makes each later call of its driver fail. Copies of the
 * library end by that, but UCX takes the error for "not yet": what it has of
 * the device's memory never ends. So the devices of such work are asked every
 * 100 ms. */
#ifndef TMSG_AM_STAGING_VITAL_H
#define TMSG_AM_STAGING_VITAL_H

#include <stdbool.h>

#include <tensormsg/domain.h>

#include "am/worker/staging.h"

typedef struct tmsg_worker tmsg_worker_t;

/* Lock held, for all functions here.
 *
 * Has vital->ask called every 100 ms, until tmsg_vital_forget(). Both may be
 * called twice. */
void tmsg_vital_watch(tmsg_worker_t *worker, tmsg_vital_t *vital);
void tmsg_vital_forget(tmsg_worker_t *worker, tmsg_vital_t *vital);

/* Asks the devices whose memory UCX has, before UCX is armed: UCX 1.22 ends the
 * process if the driver fails then. */
void tmsg_vital_ask_direct(tmsg_worker_t *worker);

/* Returns TMSG_OK unless the device has failed. Otherwise sets an error with
 * the driver's words. Any other error than IO is none of the device's. */
tmsg_status_t tmsg_vital_device(const tmsg_domain_t *domain,
                                tmsg_device_t device);

#endif
