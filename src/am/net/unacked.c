/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/net/unacked.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "am/net/loop.h"

#ifndef TCP_RTO_MAX_MS
#define TCP_RTO_MAX_MS 44
#endif
#define RTO_MAX_LEAST_MS 1000u /* the least that Linux allows */
#define RTO_MAX_MOST_MS 120000u
#define TRIES_A_TIMEOUT 4

#define NS_PER_MS UINT64_C(1000000)

/* Returns whether data was sent again twice, or a third probe was sent: one
 * probe may be lost, and the next be on its way just now. */
static bool was_sent_again(const struct tcp_info *info)
{
    return info->tcpi_retransmits > 1 || info->tcpi_probes > 2;
}

/* After an idle hour the latest acknowledgement is an hour old, and says
 * nothing of what was sent just now. An acknowledgement of nothing new is an
 * answer only where the peer's window is closed. Elsewhere it comes with what
 * the peer sends, or sends again because it does not hear us either. Linux
 * tells of the window from 5.4 on; before, the window counts as closed. */
void tmsg_unacked_judge(tmsg_unacked_t *unacked, const struct tcp_info *info,
                        uint64_t now_ns)
{
    uint64_t heard_ns = info->tcpi_last_ack_recv * NS_PER_MS;
    uint64_t sent_ns = info->tcpi_last_data_sent * NS_PER_MS;
    uint64_t waited_ns = heard_ns < sent_ns ? heard_ns : sent_ns;

    if (info->tcpi_unacked == 0 && info->tcpi_probes == 0) {
        *unacked = (tmsg_unacked_t){0};
        return;
    }
    if (unacked->since_ns == 0 || unacked->bytes != info->tcpi_bytes_acked) {
        unacked->since_ns = waited_ns < now_ns ? now_ns - waited_ns : 1;
        unacked->bytes = info->tcpi_bytes_acked;
    }
    waited_ns = now_ns - unacked->since_ns;
    unacked->ns =
        info->tcpi_snd_wnd > 0 || waited_ns < heard_ns ? waited_ns : heard_ns;
    unacked->again = was_sent_again(info);
}

void tmsg_unacked_look(tmsg_unacked_t *unacked, int fd)
{
    struct tcp_info info = {0};
    socklen_t bytes = sizeof(info);

    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) {
        info = (struct tcp_info){0};
    }
    tmsg_unacked_judge(unacked, &info, tmsg_now_ns());
}

void tmsg_unacked_hasten(int fd, uint32_t timeout_ms)
{
    uint32_t ms = timeout_ms / TRIES_A_TIMEOUT;
    int most;

    ms = ms < RTO_MAX_LEAST_MS  ? RTO_MAX_LEAST_MS
         : ms > RTO_MAX_MOST_MS ? RTO_MAX_MOST_MS
                                : ms;
    most = (int)ms;
    setsockopt(fd, IPPROTO_TCP, TCP_RTO_MAX_MS, &most, sizeof(most));
}
