/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/path/cma.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "am/endpoint/control.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/fail.h"
#include "am/endpoint/lease.h"
#include "am/endpoint/paths.h"
#include "am/path/ipc.h"
#include "am/ucx/reads.h"
#include "am/ucx/ucx_events.h"
#include "core/bytes.h"

/* PLACES_MOST and BYTES_MOST bound one call. Linux ends a call before 2 GiB,
 * which must not be taken for memory that ends there. */
#define PLACES_MOST 64
#define BYTES_MOST ((size_t)1 << 30)

static bool is_agreed(const tmsg_endpoint_t *endpoint)
{
    return endpoint->ucx->hello.features & endpoint->peer_hello.features &
               TMSG_FEATURE_READS &&
           tmsg_cma_is_wanted(&endpoint->ucx->keys);
}

void tmsg_cma_begin(tmsg_endpoint_t *endpoint)
{
    const char *unread;

    if (endpoint->transport != TMSG_TRANSPORT_SHM || !is_agreed(endpoint)) {
        return;
    }
    switch (tmsg_lease_look(endpoint)) {
    case TMSG_LEASE_READ:
        endpoint->cma.receives = true;
        tmsg_control_read(endpoint, TMSG_READ_WORD_BEGINS, 0);
        break;
    case TMSG_LEASE_UNREADABLE:
    case TMSG_LEASE_UNSURE:
        break;
    case TMSG_LEASE_GONE:
        /* What it sent before counts. */
        tmsg_ucx_events.drain(endpoint->ucx);
        unread = tmsg_lease_why_unread(endpoint);
        tmsg_endpoint_break(endpoint, TMSG_ERR_PEER_LOST,
                            unread == NULL
                                ? "the peer's lease is not where it says: the "
                                  "peer has ended, or lies"
                                : unread);
        break;
    }
}

const char *tmsg_cma_words(const tmsg_endpoint_t *endpoint, char *text,
                           size_t bytes)
{
    if (endpoint->cma.receives) {
        return "yes";
    }
    if (tmsg_lease_doubt(endpoint) == NULL) {
        return "none";
    }
    snprintf(text, bytes, "none: %s", tmsg_lease_doubt(endpoint));
    return text;
}

static void settle_read(tmsg_cma_out_t *out)
{
    if (out->list == NULL && !out->in_ucx) {
        out->over(out, out->status);
    }
}

static void enlist_read(tmsg_cma_out_t *out, tmsg_list_t *list)
{
    tmsg_list_push(list, &out->node);
    out->list = list;
}

static void take_back(tmsg_cma_out_t *out, tmsg_ucx_status_t status)
{
    tmsg_list_remove(out->list, &out->node);
    out->list = NULL;
    out->status = status;
}

static tmsg_cma_out_t *first_listed_read(const tmsg_list_t *list)
{
    return TMSG_CONTAINER_OF(list->head, tmsg_cma_out_t, node);
}

/* Notes that the active message has gone, or never will. */
static void note_handed(tmsg_cma_out_t *out, tmsg_ucx_status_t ucs)
{
    out->in_ucx = false;
    if (ucs != TMSG_UCX_OK && out->list != NULL) {
        take_back(out, ucs);
    }
    settle_read(out);
}

static void ucx_reported_read(void *request, tmsg_ucx_status_t ucs, void *arg)
{
    tmsg_ucx_request_free(request);
    note_handed(arg, ucs);
}

tmsg_ucx_status_t tmsg_cma_post_place(tmsg_endpoint_t *endpoint,
                                      const void *header, size_t header_bytes,
                                      const uint8_t *place, size_t place_bytes,
                                      tmsg_cma_out_t *out)
{
    const tmsg_ucx_send_t send = {
        .header = header,
        .header_bytes = header_bytes,
        .data = out->payload,
        .bytes = place_bytes + 8,
        .flags = TMSG_UCX_SEND_EAGER | TMSG_UCX_SEND_REPLY,
    };
    tmsg_ucx_status_t ucs;

    out->endpoint = endpoint;
    out->token = ++endpoint->cma.tokens;
    out->in_ucx = true;
    enlist_read(out, &endpoint->cma.lent);
    memcpy(out->payload, place, place_bytes);
    tmsg_put_le(out->payload + place_bytes, out->token, 8);
    ucs = tmsg_endpoint_send_am(endpoint, &send, ucx_reported_read, out);
    if (ucs == TMSG_UCX_IN_PROGRESS) {
        return TMSG_UCX_OK;
    }
    note_handed(out, ucs);
    return ucs;
}

tmsg_ucx_status_t tmsg_cma_post(tmsg_endpoint_t *endpoint, const void *header,
                                size_t header_bytes, const void *data,
                                tmsg_cma_out_t *out)
{
    uint8_t place[TMSG_CMA_BYTES - 8];

    tmsg_put_le(place, (uint64_t)(uintptr_t)data, 8);
    return tmsg_cma_post_place(endpoint, header, header_bytes, place,
                               sizeof(place), out);
}

void tmsg_cma_abandon(tmsg_cma_out_t *out)
{
    if (out->list != NULL) {
        take_back(out, TMSG_UCX_CANCELED);
    }
}

void tmsg_cma_end(tmsg_endpoint_t *endpoint)
{
    tmsg_cma_t *cma = &endpoint->cma;

    while (cma->lent.head != NULL) {
        tmsg_cma_out_t *out = first_listed_read(&cma->lent);

        take_back(out, TMSG_UCX_CANCELED);
        enlist_read(out, &cma->ended);
        tmsg_worker_chore(endpoint->worker, endpoint);
    }
    cma->sends = false;
    cma->receives = false;
}

void tmsg_cma_chores(tmsg_endpoint_t *endpoint)
{
    while (endpoint->cma.ended.head != NULL) {
        tmsg_cma_out_t *out = first_listed_read(&endpoint->cma.ended);

        take_back(out, TMSG_UCX_CANCELED);
        settle_read(out);
    }
}

bool tmsg_cma_arrival(tmsg_endpoint_t *endpoint, const tmsg_arrival_t *arrival,
                      tmsg_cma_in_t *in_p)
{
    if (!endpoint->cma.receives || arrival->rendezvous || arrival->by_fastbox ||
        arrival->data_bytes != TMSG_CMA_BYTES ||
        arrival->head.payload_bytes == 0) {
        tmsg_endpoint_break(endpoint, TMSG_ERR_MALFORMED,
                            "an impossible payload to read");
        return false;
    }
    *in_p = (tmsg_cma_in_t){
        .address = tmsg_get_le(arrival->data, 8),
        .token = tmsg_get_le((const uint8_t *)arrival->data + 8, 8)};
    return true;
}

/* Reads from the sender's memory some bytes of the payload and, behind the last
 * of them, the sender's word that they are still lent. */
static ssize_t read_some(const tmsg_endpoint_t *endpoint, uint64_t address,
                         struct iovec *here, size_t count, size_t bytes,
                         uint8_t *word)
{
    const struct iovec there[] = {{(void *)(uintptr_t)address, bytes},
                                  tmsg_lease_of_peer(endpoint)};

    here[count] = (struct iovec){word, TMSG_LEASE_WORD_BYTES};
    return process_vm_readv((pid_t)endpoint->peer_hello.pid, here, count + 1,
                            there, 2, 0);
}

/* Describes the pieces that are yet to be read, the first of them from `done`
 * bytes on. */
typedef struct {
    const struct iovec *piece, *end;
    size_t done;
} rest_t;

/* Lists what the next call reads in `places`, and passes it. Returns the number
 * of bytes. */
static size_t list_next(rest_t *rest, struct iovec *places, size_t *count_p)
{
    size_t count = 0, bytes = 0;

    while (rest->piece < rest->end && count < PLACES_MOST &&
           bytes < BYTES_MOST) {
        size_t left = rest->piece->iov_len - rest->done;
        size_t most = BYTES_MOST - bytes;
        size_t some = left < most ? left : most;

        places[count++] =
            (struct iovec){(uint8_t *)rest->piece->iov_base + rest->done, some};
        bytes += some;
        rest->piece += some == left;
        rest->done = some == left ? 0 : rest->done + some;
    }
    *count_p = count;
    return bytes;
}

static tmsg_ucx_status_t read_pieces(const tmsg_endpoint_t *endpoint,
                                     uint64_t address,
                                     const struct iovec *pieces, size_t count,
                                     size_t *read_p)
{
    rest_t rest = {.piece = pieces, .end = pieces + count};
    struct iovec places[PLACES_MOST + 1];
    uint8_t word[TMSG_LEASE_WORD_BYTES];
    bool lent = true;

    *read_p = 0;
    while (rest.piece < rest.end) {
        size_t some, bytes = list_next(&rest, places, &some);
        ssize_t got =
            read_some(endpoint, address + *read_p, places, some, bytes, word);

        if (got < 0 && errno != EFAULT) {
            return errno == ESRCH ? TMSG_UCX_CANCELED : TMSG_UCX_IO_ERROR;
        }
        *read_p += got < 0 ? 0 : (size_t)got < bytes ? (size_t)got : bytes;
        if (got < 0 || (size_t)got < bytes) {
            return TMSG_UCX_INVALID_ADDR;
        }
        lent = (size_t)got == bytes + sizeof(word) &&
               tmsg_lease_is_word(endpoint, word);
    }
    return lent ? TMSG_UCX_OK : TMSG_UCX_CANCELED;
}

tmsg_ucx_status_t tmsg_cma_read(tmsg_endpoint_t *endpoint,
                                const tmsg_cma_in_t *in,
                                const struct iovec *pieces, size_t count,
                                size_t *read_p)
{
    tmsg_ucx_status_t ucs =
        read_pieces(endpoint, in->address, pieces, count, read_p);

    if (ucs == TMSG_UCX_INVALID_ADDR &&
        tmsg_lease_look(endpoint) != TMSG_LEASE_READ) {
        /* The peer's lease is not there any more, either. */
        ucs = TMSG_UCX_CANCELED;
    }
    tmsg_cma_drop(endpoint, in, ucs != TMSG_UCX_OK);
    return ucs;
}

const char *tmsg_cma_blame(const tmsg_endpoint_t *endpoint,
                           const tmsg_cma_in_t *in, size_t read)
{
    uint8_t byte;
    const struct iovec here = {&byte, 1};
    const struct iovec there = {(void *)(uintptr_t)(in->address + read), 1};

    return process_vm_readv((pid_t)endpoint->peer_hello.pid, &here, 1, &there,
                            1, 0) == 1
               ? "the memory that it is received into cannot be written"
               : "its memory cannot be read in the sender";
}

const void *tmsg_cma_place(const struct iovec *pieces, size_t read)
{
    while (read >= pieces->iov_len) {
        read -= (pieces++)->iov_len;
    }
    return (const uint8_t *)pieces->iov_base + read;
}

void tmsg_cma_drop(tmsg_endpoint_t *endpoint, const tmsg_cma_in_t *in,
                   bool rejected)
{
    if (in->view != NULL) {
        tmsg_ipc_release(endpoint, in->view);
    }
    if (!tmsg_endpoint_is_down(endpoint)) {
        tmsg_control_read(
            endpoint, rejected ? TMSG_READ_WORD_REJECTED : TMSG_READ_WORD_DONE,
            in->token);
    }
}

static tmsg_cma_out_t *find_lent(const tmsg_endpoint_t *endpoint,
                                 uint64_t token)
{
    for (tmsg_node_t *node = endpoint->cma.lent.head; node != NULL;
         node = node->next) {
        tmsg_cma_out_t *out = TMSG_CONTAINER_OF(node, tmsg_cma_out_t, node);

        if (out->token == token) {
            return out;
        }
    }
    return NULL;
}

tmsg_ucx_status_t tmsg_read_arrived(const tmsg_arrival_t *arrival)
{
    tmsg_endpoint_t *endpoint = tmsg_control_receiver(arrival);
    tmsg_cma_out_t *out;
    uint8_t word;

    if (endpoint == NULL || arrival->head.body_bytes < 1) {
        return TMSG_UCX_OK;
    }
    word = arrival->body[0];
    if (word == TMSG_READ_WORD_BEGINS) {
        endpoint->cma.sends = is_agreed(endpoint);
        return TMSG_UCX_OK;
    }
    if ((word != TMSG_READ_WORD_DONE && word != TMSG_READ_WORD_REJECTED) ||
        arrival->head.body_bytes < TMSG_READ_ANSWER_BYTES) {
        return TMSG_UCX_OK;
    }
    out = find_lent(endpoint, tmsg_get_le(arrival->body + 1, 8));
    /* A payload may have been given up meanwhile. */
    if (out != NULL) {
        tmsg_endpoint_hold(endpoint);
        take_back(out, word == TMSG_READ_WORD_DONE ? TMSG_UCX_OK
                                                   : TMSG_UCX_REJECTED);
        settle_read(out);
        tmsg_endpoint_drop(endpoint);
    }
    return TMSG_UCX_OK;
}
