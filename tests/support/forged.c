/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/forged.h"

#include <ucp/api/ucp.h>

void forged_encode(forged_t *forged)
{
    tmsg_preamble_encode(&forged->head, forged->header);
    forged->bytes = TMSG_PREAMBLE_BYTES;
    if (forged->head.kind != TMSG_KIND_MAP) {
        tmsg_call_encode(&forged->call, forged->header);
        forged->bytes = tmsg_call_preamble_bytes(&forged->call);
    }
    forged->header[forged->bytes++] = 0x80; /* an empty body */
}

void forged_send(pair_t *pair, const forged_t *forged)
{
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                       .flags = UCP_AM_SEND_FLAG_EAGER |
                                                UCP_AM_SEND_FLAG_REPLY};
    ucs_status_ptr_t request =
        ucp_am_send_nbx(pair->to_a->ep, TMSG_AM_ID, forged->header,
                        forged->bytes, NULL, 0, &param);

    must_true(!UCS_PTR_IS_ERR(request));
    for (int i = 0; i < 200; i++) {
        tmsg_worker_progress(pair->a.worker);
        tmsg_worker_progress(pair->b.worker);
    }
    if (UCS_PTR_IS_PTR(request)) {
        must_true(ucp_request_check_status(request) != UCS_INPROGRESS);
        ucp_request_free(request);
    }
}
