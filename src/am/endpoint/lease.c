/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/endpoint/lease.h"

#include <errno.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/uio.h>

#include "am/endpoint/endpoint.h"
#include "am/endpoint/fail.h"
#include "am/shm/first_thread.h"
#include "am/ucx/reads.h"
#include "am/ucx/ucx.h"
#include "core/bytes.h"
#include "core/error.h"

bool tmsg_lease_is_known(const tmsg_endpoint_t *endpoint)
{
    return endpoint->ucx->hello.features & endpoint->peer_hello.features &
           TMSG_FEATURE_LEASE;
}

/* Each connection gets a word of its own: an endpoint may use the same memory
 * again, and a word there must not speak for the connection before. */
tmsg_status_t tmsg_lease_grant(tmsg_endpoint_t *endpoint, uint8_t *told)
{
    uint64_t address =
        endpoint->link.net_only ? 0 : (uint64_t)(uintptr_t)endpoint->lease.word;

    if (address != 0 && tmsg_cma_is_wanted(&endpoint->ucx->keys)) {
        tmsg_cma_let_in();
    }
    if (getrandom(endpoint->lease.word, TMSG_LEASE_WORD_BYTES, 0) !=
        TMSG_LEASE_WORD_BYTES) {
        return tmsg_error_errno(TMSG_ERR_IO, "getrandom");
    }
    tmsg_put_le(told, address, 8);
    memcpy(told + 8, endpoint->lease.word, TMSG_LEASE_WORD_BYTES);
    return TMSG_OK;
}

void tmsg_lease_take(tmsg_endpoint_t *endpoint, const uint8_t *told,
                     const char *doubt)
{
    bool may_read = !endpoint->link.net_only && doubt == NULL;

    endpoint->lease.doubt = endpoint->link.net_only ? NULL : doubt;
    endpoint->lease.peer_at = may_read ? tmsg_get_le(told, 8) : 0;
    memcpy(endpoint->lease.peer_word, told + 8, TMSG_LEASE_WORD_BYTES);
}

void tmsg_lease_forget(tmsg_endpoint_t *endpoint)
{
    endpoint->lease.peer_at = 0;
    endpoint->lease.doubt = NULL;
}

const char *tmsg_lease_doubt(const tmsg_endpoint_t *endpoint)
{
    return endpoint->lease.doubt;
}

struct iovec tmsg_lease_of_peer(const tmsg_endpoint_t *endpoint)
{
    return (struct iovec){(void *)(uintptr_t)endpoint->lease.peer_at,
                          TMSG_LEASE_WORD_BYTES};
}

void tmsg_lease_withdraw(tmsg_endpoint_t *endpoint)
{
    sodium_memzero(endpoint->lease.word, sizeof(endpoint->lease.word));
    /* The fence keeps the change before what comes now. */
    atomic_thread_fence(memory_order_seq_cst);
}

bool tmsg_lease_is_unsure(tmsg_ucx_status_t ucs)
{
    return ucs != TMSG_UCX_OK && ucs != TMSG_UCX_REJECTED;
}

void tmsg_lease_reported(tmsg_endpoint_t *endpoint, tmsg_ucx_status_t ucs)
{
    if (tmsg_lease_is_unsure(ucs)) {
        tmsg_lease_forfeit(endpoint, ucs);
    }
}

/* If the connection is lost, UCX tells the endpoint as well, which gives the
 * socket time for the peer's last words. */
void tmsg_lease_forfeit(tmsg_endpoint_t *endpoint, tmsg_ucx_status_t ucs)
{
    char why[160];

    tmsg_lease_withdraw(endpoint);
    if (!tmsg_endpoint_is_down(endpoint) && !tmsg_ucx_is_loss(ucs)) {
        snprintf(why, sizeof(why),
                 "UCX failed at a message that the peer may still be reading: "
                 "%s",
                 tmsg_ucx_status_words(ucs));
        tmsg_endpoint_break(endpoint, TMSG_ERR_PEER_LOST, why);
    }
}

bool tmsg_lease_is_word(const tmsg_endpoint_t *endpoint, const uint8_t *read)
{
    return sodium_memcmp(read, endpoint->lease.peer_word,
                         TMSG_LEASE_WORD_BYTES) == 0;
}

static ssize_t read_word(const tmsg_endpoint_t *endpoint,
                         uint8_t read[TMSG_LEASE_WORD_BYTES])
{
    const struct iovec here = {read, TMSG_LEASE_WORD_BYTES};
    const struct iovec there = tmsg_lease_of_peer(endpoint);

    return process_vm_readv((pid_t)endpoint->peer_hello.pid, &here, 1, &there,
                            1, 0);
}

tmsg_lease_look_t tmsg_lease_look(const tmsg_endpoint_t *endpoint)
{
    uint8_t read[TMSG_LEASE_WORD_BYTES];
    ssize_t got;

    if (endpoint->lease.peer_at == 0) {
        return TMSG_LEASE_UNREADABLE;
    }
    /* The fence keeps the read after what came before. */
    atomic_thread_fence(memory_order_seq_cst);
    got = read_word(endpoint, read);
    if (got < 0 && (errno == EPERM || errno == ENOSYS)) {
        return TMSG_LEASE_UNREADABLE;
    }
    if (got < 0 && errno != EFAULT && errno != ESRCH) {
        return TMSG_LEASE_UNSURE;
    }
    return got == TMSG_LEASE_WORD_BYTES && tmsg_lease_is_word(endpoint, read)
               ? TMSG_LEASE_READ
               : TMSG_LEASE_GONE;
}

const char *tmsg_lease_why_unread(const tmsg_endpoint_t *endpoint)
{
    return tmsg_link_alive(endpoint) &&
                   tmsg_first_thread_has_ended((pid_t)endpoint->peer_hello.pid)
               ? "the peer's memory cannot be read: " TMSG_FIRST_THREAD_WORDS
               : NULL;
}

bool tmsg_lease_stands(const tmsg_endpoint_t *endpoint)
{
    tmsg_lease_look_t look;

    if (endpoint->transport == TMSG_TRANSPORT_TCP) {
        return true;
    }
    look = tmsg_lease_look(endpoint);
    return look == TMSG_LEASE_READ || look == TMSG_LEASE_UNREADABLE;
}
