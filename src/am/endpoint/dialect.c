/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/endpoint/dialect.h"

#include "am/connect/attach.h"
#include "am/connect/close.h"
#include "am/endpoint/control.h"
#include "am/ucxx/ucxx.h"

const tmsg_dialect_t tmsg_dialect_own = {
    .answers = true,
    .send_flags = 0,
    .prepare = tmsg_send_prepare,
    .answer = tmsg_control_ack,
    .credit = tmsg_control_credit,
    .advance = tmsg_attach_advance,
    .close = tmsg_close_advance,
    .end = tmsg_attach_end,
};

const tmsg_dialect_t tmsg_dialect_ucxx = {
    .answers = false,
    .send_flags = UCP_AM_SEND_FLAG_REPLY, /* by which UCXX knows the sender */
    .prepare = tmsg_ucxx_prepare,
    .failed = tmsg_ucxx_failed,
    .answer = tmsg_ucxx_answer,
    .credit = tmsg_ucxx_credit,
    .advance = tmsg_ucxx_advance,
    .close = tmsg_ucxx_close,
    .end = tmsg_ucxx_end,
};
