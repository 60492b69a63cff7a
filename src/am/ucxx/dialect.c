/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/ucxx/dialect.h"

#include "am/ucxx/ucxx.h"

const tmsg_dialect_t tmsg_dialect_ucxx = {
    .answers = false,
    .send_flags = TMSG_UCX_SEND_REPLY, /* UCXX knows the sender by it */
    .prepare = tmsg_ucxx_prepare,
    .failed = tmsg_ucxx_failed,
    .answer = tmsg_ucxx_answer,
    .credit = tmsg_ucxx_credit,
    .advance = tmsg_ucxx_advance,
    .close = tmsg_ucxx_close,
    .end = tmsg_ucxx_end,
};
