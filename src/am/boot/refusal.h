/* SPDX-License-Identifier: BSD-3-Clause */
/* am/boot/refusal.h - what one side tells the other when it refuses the
 * connection. */
#ifndef TMSG_AM_BOOT_REFUSAL_H
#define TMSG_AM_BOOT_REFUSAL_H

#include <stddef.h>
#include <stdint.h>

#include <tensormsg/status.h>

enum { TMSG_FRAME_REFUSE = 2 }; /* its type: endpoint/conn.h has the others */

/* Returns the failure that a peer names, if this side knows it and the peer can
 * mean it; otherwise REFUSED. */
tmsg_status_t tmsg_control_failure(int32_t status);

/* Sets and returns the peer's refusal as an error of this side. `data` is the
 * payload of REFUSE. */
tmsg_status_t tmsg_handshake_refused(const uint8_t *data, size_t bytes);

#endif
