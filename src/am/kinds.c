/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/kinds.h"

#include "am/attach.h"
#include "am/control.h"
#include "am/receive.h"
#include "am/retire.h"
#include "core/error.h"
#include "core/log.h"

typedef ucs_status_t (*handler_t)(const tmsg_arrival_t *arrival);

static const handler_t handlers[TMSG_KIND_COUNT] = {
    [TMSG_KIND_MAP] = tmsg_map_arrived,
    [TMSG_KIND_ATTACH] = tmsg_attach_arrived,
    [TMSG_KIND_ATTACHED] = tmsg_attached_arrived,
    [TMSG_KIND_ACK] = tmsg_ack_arrived,
    [TMSG_KIND_CREDIT] = tmsg_credit_arrived,
    [TMSG_KIND_BYE] = tmsg_bye_arrived,
    [TMSG_KIND_FIN] = tmsg_fin_arrived,
    [TMSG_KIND_PROBE] = tmsg_probe_arrived,
    [TMSG_KIND_KNOCK] = tmsg_knock_arrived,
    [TMSG_KIND_KNOCKED] = tmsg_knocked_arrived,
};

/* Only a rendezvous may be answered with an error: UCX aborts on one from an
 * eager callback. */
static ucs_status_t ignore(const tmsg_arrival_t *arrival, const char *why)
{
    tmsg_log(TMSG_LOG_WARN, "an active message is ignored: %s", why);
    return arrival->rendezvous ? UCS_ERR_REJECTED : UCS_OK;
}

ucs_status_t tmsg_kinds_arrived(void *arg, const void *header,
                                size_t header_bytes, void *data,
                                size_t data_bytes,
                                const ucp_am_recv_param_t *param)
{
    tmsg_arrival_t arrival = {
        .ucx = arg,
        .data = data,
        .data_bytes = data_bytes,
        .rendezvous = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0,
    };
    tmsg_status_t status =
        tmsg_preamble_decode(header, header_bytes, &arrival.head);

    if (status != TMSG_OK) {
        return ignore(&arrival, tmsg_error_message());
    }
    if (param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) {
        arrival.reply_ep = param->reply_ep;
    }
    arrival.body = (const uint8_t *)header + arrival.head.bytes;
    if (arrival.head.kind >= TMSG_KIND_COUNT ||
        handlers[arrival.head.kind] == NULL) {
        return ignore(&arrival, "unknown kind");
    }
    if (arrival.head.kind != TMSG_KIND_MAP &&
        (arrival.rendezvous ||
         (arrival.head.flags & TMSG_HEADER_SPILLED) != 0)) {
        return ignore(&arrival, "a control message by rendezvous");
    }
    return handlers[arrival.head.kind](&arrival);
}
