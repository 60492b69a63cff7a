/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/boot/refusal.h"

#include "core/bytes.h"
#include "core/error.h"

tmsg_status_t tmsg_control_failure(int32_t status)
{
    bool known = status < 0 && status >= TMSG_ERR_APPLICATION;

    /* CLOSED means the orderly end, which is told in another way. DROPPED is
     * told to nobody else. */
    known = known && status != TMSG_ERR_CLOSED && status != TMSG_ERR_DROPPED;
    return known ? (tmsg_status_t)status : TMSG_ERR_REFUSED;
}

tmsg_status_t tmsg_handshake_refused(const uint8_t *data, size_t bytes)
{
    tmsg_status_t status =
        bytes < 4 ? TMSG_ERR_REFUSED
                  : tmsg_control_failure((int32_t)tmsg_get_le(data, 4));

    return tmsg_error_set(status, "refused by the peer: %.*s",
                          bytes < 4 ? 0 : (int)(bytes - 4),
                          (const char *)data + 4);
}
