/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/connect/dialect.h"

#include "am/connect/close.h"
#include "am/connect/wireup.h"
#include "am/endpoint/control.h"
#include "am/send/send.h"

const tmsg_dialect_t tmsg_dialect_own = {
    .answers = true,
    .send_flags = TMSG_UCX_SEND_REPLY,
    .prepare = tmsg_send_prepare,
    .answer = tmsg_control_ack,
    .credit = tmsg_control_credit,
    .advance = tmsg_wireup_advance,
    .close = tmsg_close_advance,
    .end = tmsg_wireup_end,
};
