/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>

#include "am/boot/refusal.h"
#include "am/endpoint/control.h"
#include "am/endpoint/kinds.h"
#include "am/send/send.h"
#include "core/bytes.h"
#include "core/shown.h"

tmsg_ucx_status_t tmsg_ack_arrived(const tmsg_arrival_t *arrival)
{
    tmsg_endpoint_t *endpoint = tmsg_control_receiver(arrival);
    char why[TMSG_ACK_TEXT_MAX + 32];
    int32_t status;

    if (endpoint == NULL || arrival->head.body_bytes < 4) {
        return TMSG_UCX_OK;
    }
    status = (int32_t)tmsg_get_le(arrival->body, 4);
    tmsg_shown_format(why, sizeof(why), "refused by the receiver: %.*s",
                      (int)(arrival->head.body_bytes - 4),
                      (const char *)arrival->body + 4);
    tmsg_send_acknowledged(endpoint, arrival->head.message_id,
                           status == 0 ? TMSG_OK : tmsg_control_failure(status),
                           why);
    return TMSG_UCX_OK;
}
