/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/endpoint/transport.h"

#include <stdio.h>
#include <string.h>

#include "am/endpoint/log.h"
#include "am/ucx/ucx_ep.h"

/* UCX's names of these transports begin like this. */
static const char *const shared[] = {"posix", "sysv", "xpmem", "cma", NULL};
static const char *const rdma[] = {"rc_", "dc_", "ud_", NULL};

static bool has_any(const char *transports, const char *const *names)
{
    for (; *names != NULL; names++) {
        if (strstr(transports, *names) != NULL) {
            return true;
        }
    }
    return false;
}

bool tmsg_transport_shares(const char *transports)
{
    return has_any(transports, shared);
}

/* Until the endpoint is open its transports are not known: then it may be. */
bool tmsg_transport_is_shared(const tmsg_endpoint_t *endpoint)
{
    return (endpoint->ep != NULL || endpoint->link.address_sent) &&
           !endpoint->link.net_only && endpoint->ucx->shares &&
           (endpoint->carried.transports[0] == '\0' ||
            tmsg_transport_shares(endpoint->carried.transports));
}

/* A socket is needed, because otherwise nobody would tell a side that waits for
 * bytes in the shared memory that its sender is gone. A side that is offered
 * memory may not know its transport yet: memory that it can open is shared. */
bool tmsg_transport_may_find(const tmsg_endpoint_t *endpoint, uint32_t feature)
{
    return endpoint->ucx != NULL && endpoint->link.fd >= 0 &&
           (endpoint->transport == TMSG_TRANSPORT_SHM ||
            endpoint->transport == TMSG_TRANSPORT_UNKNOWN) &&
           endpoint->ucx->hello.features & endpoint->peer_hello.features &
               feature;
}

tmsg_transport_t tmsg_transport_of(const char *transports)
{
    if (tmsg_transport_shares(transports)) {
        return TMSG_TRANSPORT_SHM;
    }
    if (has_any(transports, rdma)) {
        return TMSG_TRANSPORT_RDMA;
    }
    if (strcmp(transports, "stream/unix") == 0) {
        return TMSG_TRANSPORT_SHM; /* the rings and fast boxes of the library */
    }
    return strstr(transports, "tcp") != NULL ||
                   strcmp(transports, "stream/tls") == 0
               ? TMSG_TRANSPORT_TCP
               : TMSG_TRANSPORT_UNKNOWN;
}

/* An unknown transport may be TCP. */
bool tmsg_transport_wants_own(const tmsg_endpoint_t *endpoint)
{
    return endpoint->transport == TMSG_TRANSPORT_TCP ||
           endpoint->transport == TMSG_TRANSPORT_UNKNOWN;
}

/* Says why shared memory does not carry the endpoint, if it was possible. */
static void explain_network(tmsg_endpoint_t *endpoint)
{
    const tmsg_ucx_key_t *tls =
        tmsg_ucx_config_key(&endpoint->ucx->keys, "UCX_TLS");

    if (endpoint->ucx->pipes != NULL || endpoint->link.net_only ||
        endpoint->carried.transports[0] == '\0' ||
        tmsg_transport_shares(endpoint->carried.transports)) {
        return;
    }
    if (tls != NULL && tls->origin != TMSG_ORIGIN_DEFAULT) {
        snprintf(endpoint->why, sizeof(endpoint->why),
                 "same machine, but UCX_TLS=%.100s (%s)", tls->value,
                 tmsg_ucx_origin_name(tls->origin));
    } else {
        snprintf(endpoint->why, sizeof(endpoint->why),
                 "same machine, but UCX found no shared memory to use "
                 "(UCX_TLS of the peer, /dev/shm)");
    }
}

void tmsg_transport_list(const tmsg_endpoint_t *endpoint, char *text,
                         size_t bytes)
{
    size_t used;

    snprintf(text, bytes, "%s", endpoint->carried.transports);
    if (endpoint->ep == NULL) {
        return;
    }
    tmsg_ucx_transports(endpoint->ep, text, bytes);
    used = strlen(text);
    if (tmsg_cma_sends(endpoint)) {
        snprintf(text + used, bytes - used, ", cma");
    }
}

void tmsg_transport_ask(tmsg_endpoint_t *endpoint)
{
    endpoint->carried.asked = true;
}

bool tmsg_transport_is_asked(const tmsg_endpoint_t *endpoint)
{
    return endpoint->carried.asked && endpoint->ep != NULL;
}

void tmsg_transport_forget(tmsg_endpoint_t *endpoint)
{
    endpoint->carried.asked = false;
    endpoint->carried.transports[0] = '\0';
    endpoint->transport = TMSG_TRANSPORT_UNKNOWN;
}

void tmsg_transport_explain(tmsg_endpoint_t *endpoint)
{
    endpoint->carried.asked = false;
    tmsg_ucx_transports(endpoint->ep, endpoint->carried.transports,
                        sizeof(endpoint->carried.transports));
    endpoint->transport = tmsg_transport_of(endpoint->carried.transports);
    explain_network(endpoint);
    tmsg_endpoint_log(endpoint, TMSG_LOG_CONNECTED_KIND, TMSG_LOG_INFO,
                      "connected by %s (%s)", endpoint->carried.transports,
                      endpoint->why);
}

/* A peer that shares no memory gets nothing to read, whatever it says. */
bool tmsg_cma_sends(const tmsg_endpoint_t *endpoint)
{
    return endpoint->cma.sends && endpoint->transport == TMSG_TRANSPORT_SHM;
}

bool tmsg_transport_takes_segment(const tmsg_endpoint_t *endpoint,
                                  bool rendezvous, size_t bytes)
{
    return endpoint->transport == TMSG_TRANSPORT_SHM &&
           endpoint->ucx->pipes == NULL &&
           (rendezvous || bytes <= endpoint->ucx->hello.posix_seg);
}
