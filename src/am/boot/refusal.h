/* SPDX-License-Identifier: BSD-3-Clause */
/* am/boot/refusal.h - what one side tells the other when it refuses it. */
#ifndef TMSG_AM_BOOT_REFUSAL_H
#define TMSG_AM_BOOT_REFUSAL_H

#include <stddef.h>
#include <stdint.h>

#include <tensormsg/status.h>

/* A failure that a peer names: one that we know and that it can mean, else
 * REFUSED. */
tmsg_status_t tmsg_control_failure(int32_t status);

/* The peer's refusal, as an error of this side. */
tmsg_status_t tmsg_handshake_refused(const uint8_t *data, size_t bytes);

#endif
