/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/path/ipc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "am/endpoint/control.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/fail.h"
#include "am/endpoint/lease.h"
#include "am/endpoint/link_ops.h"
#include "am/endpoint/transport.h"
#include "am/path/ipc_wire.h"
#include "core/bytes.h"
#include "core/error.h"
#include "core/shown.h"

/* Of a connection, in each direction. */
#define BLOCKS_MOST 16

/* Memory that the application has freed is looked for so often. */
#define TICK_MS 1000

/* Whether memory is closed is looked at after 1 ms, 2 ms more, 4 ms more and so
 * on. FIN waits until all these up to LEAVE_LOOK_MS are over, a quarter of a
 * second. A connection that ends otherwise waits a moment. */
#define LOOK_FIRST_MS 1
#define LEAVE_LOOK_MS 128
#define LOOK_LAST_MS 512
#define MOMENT_MS 10

/* A process that does not say whether it has closed memory is looked at as
 * often, at last after so long, until it has ended. */
#define LENT_LOOK_MS 4096

typedef enum { ASKED, TAKEN, REFUSED, GONE } state_t;

typedef struct {
    tmsg_ipc_memory_t *memory; /* held */
    uint32_t number;
    state_t state;
    bool lent; /* the peer may have it open */
} offered_t;

typedef struct {
    uint32_t number;
    tmsg_ipc_view_t *view;
} opened_t;

/* What an endpoint keeps of device memory that one side opens of the other. */
struct tmsg_ipc {
    tmsg_endpoint_t *endpoint;
    tmsg_timer_t late; /* the peer has not answered for too long */
    tmsg_timer_t tick; /* tells of memory that the application has freed */
    tmsg_timer_t look; /* whether memory is closed */
    unsigned look_ms;
    offered_t offered[BLOCKS_MOST];
    unsigned offered_count;
    uint32_t numbers; /* of this side's offers */
    opened_t opened[BLOCKS_MOST];
    unsigned opened_count;
    uint32_t closing[BLOCKS_MOST]; /* numbers, of which the peer is to hear */
    unsigned closing_count;
    uint32_t last_number; /* of the peer's offers */
    unsigned held;        /* places that are yet to be copied from */
    char why[200];        /* why tensors do not go so; "": they do */
};

static struct tmsg_ipc *ipc_of(tmsg_endpoint_t *endpoint)
{
    struct tmsg_ipc *ipc = endpoint->paths.ipc;

    if (ipc == NULL) {
        ipc = calloc(1, sizeof(*ipc));
        if (ipc == NULL) {
            tmsg_error_memory("device memory that a peer opens");
            return NULL;
        }
        ipc->endpoint = endpoint;
        endpoint->paths.ipc = ipc;
    }
    return ipc;
}

/* Returns why no device memory may be offered to the peer, or taken from it, or
 * NULL. */
static const char *find_obstacle(const tmsg_endpoint_t *endpoint)
{
    if (!(endpoint->peer_hello.features & TMSG_FEATURE_DEVICE_IPC)) {
        return "the peer is of a version without it";
    }
    if (!tmsg_transport_may_find(endpoint, TMSG_FEATURE_DEVICE_IPC)) {
        return "the peer shares no memory with this process";
    }
    if (endpoint->peer_hello.uid != endpoint->ucx->hello.uid) {
        return "the peer is of another user";
    }
    /* Otherwise the peer may be of another process or user than it says. */
    return tmsg_lease_is_known(endpoint) ? tmsg_lease_doubt(endpoint)
                                         : "the peer grants no lease";
}

static tmsg_status_t put_frame(tmsg_endpoint_t *endpoint,
                               const tmsg_ipc_frame_t *frame)
{
    uint8_t data[TMSG_IPC_FRAME_BYTES + TMSG_IPC_WORDS_BYTES];
    size_t bytes = tmsg_ipc_frame_encode(frame, data);
    tmsg_status_t status =
        tmsg_link_ops.put(endpoint, TMSG_FRAME_DEVICE, data, bytes);

    if (status == TMSG_OK) {
        tmsg_control_ring(endpoint, TMSG_RING_WORD_LOOK);
    }
    return status;
}

static bool is_sibling(const tmsg_endpoint_t *endpoint)
{
    return endpoint->peer_hello.pid == (uint32_t)getpid();
}

static void take_offer_back(const tmsg_endpoint_t *endpoint, offered_t *offered)
{
    if (offered->lent) {
        offered->lent = false;
        tmsg_ipc_returned(tmsg_ipc_name(offered->memory)->id,
                          (pid_t)endpoint->peer_hello.pid);
    }
}

static void answer_is_late(tmsg_timer_t *timer)
{
    struct tmsg_ipc *ipc = TMSG_CONTAINER_OF(timer, struct tmsg_ipc, late);

    for (unsigned i = 0; i < ipc->offered_count; i++) {
        if (ipc->offered[i].state == ASKED) {
            ipc->offered[i].state = REFUSED; /* it may open the memory yet */
            snprintf(ipc->why, sizeof(ipc->why),
                     "the peer did not say whether it opens device memory");
        }
    }
    tmsg_worker_chore(ipc->endpoint->worker, ipc->endpoint);
}

static void forget_offered(struct tmsg_ipc *ipc, offered_t *offered)
{
    tmsg_ipc_free(offered->memory);
    *offered = ipc->offered[--ipc->offered_count];
}

/* Tells the peer of memory that the application has freed. */
static void tell_of_freed(tmsg_timer_t *timer)
{
    struct tmsg_ipc *ipc = TMSG_CONTAINER_OF(timer, struct tmsg_ipc, tick);
    bool more = false;

    for (unsigned i = ipc->offered_count; i > 0; i--) {
        offered_t *offered = &ipc->offered[i - 1];
        const tmsg_ipc_frame_t frame = {.word = TMSG_IPC_GONE,
                                        .number = offered->number};

        if (!tmsg_ipc_is_own(offered->memory) || offered->state == ASKED ||
            !tmsg_ipc_is_given_up(offered->memory)) {
            more |= tmsg_ipc_is_own(offered->memory);
        } else if (offered->state == REFUSED) {
            forget_offered(ipc, offered);
        } else if (offered->state == TAKEN &&
                   put_frame(ipc->endpoint, &frame) == TMSG_OK) {
            offered->state = GONE;
        }
    }
    if (more) {
        tmsg_loop_set_timer(&ipc->endpoint->worker->loop, &ipc->tick, TICK_MS);
    }
}

static void set_timers(struct tmsg_ipc *ipc, bool own)
{
    tmsg_worker_t *worker = ipc->endpoint->worker;

    ipc->late.expired = answer_is_late;
    tmsg_loop_set_timer(&worker->loop, &ipc->late,
                        tmsg_context_peer_timeout_ms(worker->context));
    if (own && ipc->tick.deadline_ns == 0) {
        ipc->tick.expired = tell_of_freed;
        tmsg_loop_set_timer(&worker->loop, &ipc->tick, TICK_MS);
    }
}

static tmsg_status_t offer_memory(struct tmsg_ipc *ipc,
                                  tmsg_ipc_memory_t *memory)
{
    tmsg_endpoint_t *endpoint = ipc->endpoint;
    offered_t offered = {.memory = memory,
                         .number = ++ipc->numbers,
                         .state = ASKED,
                         .lent = !is_sibling(endpoint)};
    const tmsg_ipc_frame_t frame = {.word = TMSG_IPC_OFFER,
                                    .number = offered.number,
                                    .name = *tmsg_ipc_name(memory)};
    tmsg_status_t status = TMSG_OK;

    if (ipc->offered_count == BLOCKS_MOST) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "the peer was offered %d blocks already",
                              BLOCKS_MOST);
    }
    if (offered.lent) {
        status = tmsg_ipc_lend(memory, (pid_t)endpoint->peer_hello.pid);
    }
    if (status != TMSG_OK) {
        return status;
    }
    status = put_frame(endpoint, &frame);
    if (status != TMSG_OK) {
        take_offer_back(endpoint, &offered);
        return status;
    }
    tmsg_ipc_take(memory);
    ipc->offered[ipc->offered_count++] = offered;
    set_timers(ipc, tmsg_ipc_is_own(memory));
    return TMSG_IN_PROGRESS;
}

static offered_t *find_offered(struct tmsg_ipc *ipc,
                               const tmsg_ipc_memory_t *memory)
{
    for (unsigned i = 0; i < ipc->offered_count; i++) {
        if (ipc->offered[i].memory == memory) {
            return &ipc->offered[i];
        }
    }
    return NULL;
}

static tmsg_status_t offer_once(struct tmsg_ipc *ipc, tmsg_ipc_memory_t *memory)
{
    const offered_t *offered = find_offered(ipc, memory);

    if (offered == NULL) {
        return offer_memory(ipc, memory);
    }
    return offered->state == TAKEN ? TMSG_OK
           : offered->state == ASKED
               ? TMSG_IN_PROGRESS
               : tmsg_error_set(TMSG_ERR_UNSUPPORTED, "%s", ipc->why);
}

/* Notes why tensors do not go by device memory. */
static tmsg_status_t note_ipc(struct tmsg_ipc *ipc, tmsg_status_t status)
{
    if (status != TMSG_OK && status != TMSG_IN_PROGRESS &&
        strcmp(ipc->why, tmsg_error_message()) != 0) {
        snprintf(ipc->why, sizeof(ipc->why), "%s", tmsg_error_message());
    }
    return status;
}

/* Returns what is known of the endpoint, if device memory may be offered. */
static tmsg_status_t begin_offer(tmsg_endpoint_t *endpoint,
                                 struct tmsg_ipc **ipc_p)
{
    const char *obstacle = find_obstacle(endpoint);

    *ipc_p = ipc_of(endpoint);
    if (*ipc_p == NULL) {
        return TMSG_ERR_NO_MEMORY;
    }
    return obstacle == NULL
               ? TMSG_OK
               : note_ipc(*ipc_p,
                          tmsg_error_set(TMSG_ERR_UNSUPPORTED, "%s", obstacle));
}

tmsg_status_t tmsg_ipc_ready(tmsg_endpoint_t *endpoint,
                             const tmsg_domain_t *domain, tmsg_device_t device,
                             tmsg_ipc_block_t **block_p)
{
    const char *principal = endpoint->admit.principal;
    struct tmsg_ipc *ipc;
    tmsg_status_t status = begin_offer(endpoint, &ipc);

    if (status != TMSG_OK) {
        return status;
    }
    status = tmsg_ipc_block_find(endpoint->worker, domain, device,
                                 principal == NULL ? "" : principal, block_p);
    return note_ipc(ipc, status == TMSG_OK ? offer_once(ipc, (*block_p)->memory)
                                           : status);
}

tmsg_status_t tmsg_ipc_offer(tmsg_endpoint_t *endpoint,
                             tmsg_ipc_memory_t *memory)
{
    struct tmsg_ipc *ipc;
    tmsg_status_t status = begin_offer(endpoint, &ipc);

    return status == TMSG_OK ? note_ipc(ipc, offer_once(ipc, memory)) : status;
}

static offered_t *find_asked(struct tmsg_ipc *ipc, uint32_t number)
{
    for (unsigned i = 0; ipc != NULL && i < ipc->offered_count; i++) {
        if (ipc->offered[i].number == number) {
            return &ipc->offered[i];
        }
    }
    return NULL;
}

static bool is_expected(const offered_t *offered, tmsg_ipc_word_t word)
{
    return offered != NULL &&
           (word == TMSG_IPC_CLOSED
                ? offered->state != ASKED
                : offered->state == ASKED || offered->state == REFUSED);
}

/* Takes what the peer says of memory that it was offered. An answer may come
 * when nobody waits for it any more. */
static tmsg_status_t take_answer(tmsg_endpoint_t *endpoint,
                                 const tmsg_ipc_frame_t *frame)
{
    struct tmsg_ipc *ipc = endpoint->paths.ipc;
    offered_t *offered = find_asked(ipc, frame->number);

    if (!is_expected(offered, frame->word)) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "an answer about device memory that was not "
                              "offered");
    }
    tmsg_worker_chore(endpoint->worker, endpoint);
    if (frame->word == TMSG_IPC_TAKEN) {
        offered->state = offered->state == ASKED ? TAKEN : offered->state;
        return TMSG_OK;
    }
    take_offer_back(endpoint, offered);
    if (offered->state == GONE) {
        forget_offered(ipc, offered);
        return TMSG_OK;
    }
    offered->state = REFUSED;
    if (frame->word == TMSG_IPC_CLOSED) {
        snprintf(ipc->why, sizeof(ipc->why),
                 "the peer has closed the device memory");
    } else {
        tmsg_shown_format(ipc->why, sizeof(ipc->why),
                          "the peer does not open device memory: %.*s",
                          (int)frame->why_bytes, frame->why);
    }
    return TMSG_OK;
}

/* Opens memory that the peer offers. */
static tmsg_status_t open_offered(struct tmsg_ipc *ipc,
                                  const tmsg_ipc_frame_t *frame)
{
    tmsg_endpoint_t *endpoint = ipc->endpoint;
    const char *obstacle = find_obstacle(endpoint);
    opened_t *opened = &ipc->opened[ipc->opened_count];
    tmsg_status_t status;

    if (obstacle != NULL) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED, "%s", obstacle);
    }
    if (endpoint->worker->flags & TMSG_WORKER_HOST_ONLY) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "it takes memory of the host alone");
    }
    if (ipc->opened_count + ipc->closing_count == BLOCKS_MOST) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "%d blocks are open already", BLOCKS_MOST);
    }
    if (tmsg_lease_look(endpoint) != TMSG_LEASE_READ) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "it is not allowed to read the sender's process, "
                              "and would not notice its end in time");
    }
    status = tmsg_ipc_open(&frame->name, &opened->view);
    if (status == TMSG_OK) {
        opened->number = frame->number;
        ipc->opened_count++;
    }
    return status;
}

static tmsg_status_t take_offer(tmsg_endpoint_t *endpoint,
                                const tmsg_ipc_frame_t *frame)
{
    struct tmsg_ipc *ipc = ipc_of(endpoint);
    tmsg_ipc_frame_t answer = {.word = TMSG_IPC_TAKEN, .number = frame->number};

    if (ipc == NULL) {
        return TMSG_ERR_NO_MEMORY;
    }
    if (frame->number <= ipc->last_number) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "device memory without a number of its own");
    }
    ipc->last_number = frame->number;
    if (open_offered(ipc, frame) != TMSG_OK) {
        answer.word = TMSG_IPC_REFUSED;
        answer.why = tmsg_error_message();
        answer.why_bytes = strlen(answer.why);
    }
    return put_frame(endpoint, &answer);
}

static opened_t *find_opened(struct tmsg_ipc *ipc, uint64_t number)
{
    for (unsigned i = 0; ipc != NULL && i < ipc->opened_count; i++) {
        if (ipc->opened[i].number == number) {
            return &ipc->opened[i];
        }
    }
    return NULL;
}

/* Tells the peer what is closed. Returns whether all is. */
static bool tell_of_closed(struct tmsg_ipc *ipc, uint64_t ms)
{
    if (ipc->closing_count > 0 && !tmsg_ipc_settle(ms)) {
        return false;
    }
    while (ipc->closing_count > 0) {
        const tmsg_ipc_frame_t frame = {.word = TMSG_IPC_CLOSED,
                                        .number =
                                            ipc->closing[--ipc->closing_count]};

        if (ipc->endpoint->link.fd >= 0) {
            (void)put_frame(ipc->endpoint, &frame);
        }
    }
    return true;
}

static void look_at_closing(tmsg_timer_t *timer)
{
    struct tmsg_ipc *ipc = TMSG_CONTAINER_OF(timer, struct tmsg_ipc, look);

    if (!tell_of_closed(ipc, 0)) {
        if (ipc->look_ms < LOOK_LAST_MS) {
            ipc->look_ms *= 2;
        }
        tmsg_loop_set_timer(&ipc->endpoint->worker->loop, timer, ipc->look_ms);
    }
    tmsg_worker_chore(ipc->endpoint->worker, ipc->endpoint);
}

static void close_view(struct tmsg_ipc *ipc, opened_t *opened)
{
    tmsg_ipc_close(opened->view);
    ipc->closing[ipc->closing_count++] = opened->number;
    *opened = ipc->opened[--ipc->opened_count];
    ipc->look_ms = LOOK_FIRST_MS;
    ipc->look.expired = look_at_closing;
    tmsg_loop_set_timer(&ipc->endpoint->worker->loop, &ipc->look,
                        LOOK_FIRST_MS);
}

/* Closes memory that its owner does not use any more: no place in it is to be
 * copied. The owner hears of it when it is done. */
static tmsg_status_t close_opened(tmsg_endpoint_t *endpoint, uint32_t number)
{
    opened_t *opened = find_opened(endpoint->paths.ipc, number);

    if (opened == NULL) {
        return tmsg_error_set(
            TMSG_ERR_MALFORMED,
            "the peer withdraws device memory that was not taken");
    }
    close_view(endpoint->paths.ipc, opened);
    return TMSG_OK;
}

tmsg_status_t tmsg_ipc_frame(tmsg_endpoint_t *endpoint, const uint8_t *data,
                             size_t bytes)
{
    tmsg_ipc_frame_t frame;
    tmsg_status_t status = tmsg_ipc_frame_decode(data, bytes, &frame);

    if (status != TMSG_OK) {
        return status;
    }
    switch (frame.word) {
    case TMSG_IPC_OFFER:
        return take_offer(endpoint, &frame);
    case TMSG_IPC_GONE:
        return close_opened(endpoint, frame.number);
    default:
        return take_answer(endpoint, &frame);
    }
}

tmsg_ucx_status_t tmsg_ipc_post(tmsg_endpoint_t *endpoint, const void *header,
                                size_t header_bytes,
                                const tmsg_ipc_memory_t *memory,
                                const uint8_t *data, tmsg_cma_out_t *out)
{
    const offered_t *offered = find_offered(endpoint->paths.ipc, memory);
    uint8_t place[TMSG_IPC_PLACE_BYTES];

    tmsg_put_le(place, offered->number, 8);
    tmsg_put_le(place + 8, (uint64_t)(data - tmsg_ipc_data(memory)), 8);
    return tmsg_cma_post_place(endpoint, header, header_bytes, place,
                               sizeof(place), out);
}

bool tmsg_ipc_is_place(const tmsg_arrival_t *arrival)
{
    return arrival->data_bytes == TMSG_IPC_PLACE_BYTES + 8;
}

bool tmsg_ipc_arrival(tmsg_endpoint_t *endpoint, const tmsg_arrival_t *arrival,
                      tmsg_cma_in_t *in_p)
{
    const uint8_t *data = arrival->data;
    uint64_t bytes = arrival->head.payload_bytes;
    uint64_t offset = tmsg_get_le(data + 8, 8);
    const opened_t *opened =
        find_opened(endpoint->paths.ipc, tmsg_get_le(data, 8));

    if (arrival->head.kind != TMSG_KIND_FRAGMENT || arrival->rendezvous ||
        arrival->by_fastbox || opened == NULL || bytes == 0 ||
        offset > opened->view->bytes || bytes > opened->view->bytes - offset) {
        tmsg_endpoint_break(endpoint, TMSG_ERR_MALFORMED,
                            "a place in device memory that is not there");
        return false;
    }
    tmsg_ipc_hold(opened->view);
    endpoint->paths.ipc->held++;
    *in_p = (tmsg_cma_in_t){.address = offset,
                            .token = tmsg_get_le(data + 16, 8),
                            .view = opened->view};
    return true;
}

bool tmsg_ipc_is_open(const tmsg_endpoint_t *endpoint)
{
    return endpoint->paths.ipc != NULL && endpoint->paths.ipc->opened_count > 0;
}

void tmsg_ipc_release(tmsg_endpoint_t *endpoint, tmsg_ipc_view_t *view)
{
    tmsg_ipc_close(view);
    if (endpoint->paths.ipc != NULL) {
        endpoint->paths.ipc->held--;
    }
}

/* Closes all. What is still copied from is open until then, and the owner hears
 * of nothing. */
static void close_all(struct tmsg_ipc *ipc)
{
    while (ipc->opened_count > 0) {
        close_view(ipc, &ipc->opened[0]);
    }
    if (ipc->held > 0) {
        ipc->closing_count = 0;
    }
}

bool tmsg_ipc_leave(tmsg_endpoint_t *endpoint)
{
    struct tmsg_ipc *ipc = endpoint->paths.ipc;

    if (ipc == NULL) {
        return true;
    }
    close_all(ipc);
    return ipc->look_ms > LEAVE_LOOK_MS || tell_of_closed(ipc, 0);
}

void tmsg_ipc_last(tmsg_endpoint_t *endpoint)
{
    struct tmsg_ipc *ipc = endpoint->paths.ipc;

    if (ipc != NULL) {
        close_all(ipc);
        (void)tell_of_closed(ipc, MOMENT_MS);
    }
}

static void look_at_lent(tmsg_timer_t *timer)
{
    tmsg_worker_t *worker =
        TMSG_CONTAINER_OF(timer, tmsg_worker_t, paths.ipc_look);
    unsigned *ms = &worker->paths.ipc_look_ms;

    if (tmsg_ipc_look()) {
        *ms = *ms < LENT_LOOK_MS ? *ms * 2 : *ms;
        tmsg_loop_set_timer(&worker->loop, timer, *ms);
    }
}

/* Forgets an offer of which the peer says nothing any more. A process that is
 * killed closes its sockets before it has ended. */
static void leave_offered(struct tmsg_ipc *ipc, offered_t *offered)
{
    tmsg_worker_t *worker = ipc->endpoint->worker;

    if (offered->lent) {
        tmsg_ipc_leave_lent(offered->memory,
                            (pid_t)ipc->endpoint->peer_hello.pid);
        worker->paths.ipc_look.expired = look_at_lent;
        worker->paths.ipc_look_ms = LOOK_FIRST_MS;
        tmsg_loop_set_timer(&worker->loop, &worker->paths.ipc_look,
                            LOOK_FIRST_MS);
    }
    forget_offered(ipc, offered);
}

void tmsg_ipc_end(tmsg_endpoint_t *endpoint)
{
    struct tmsg_ipc *ipc = endpoint->paths.ipc;

    if (ipc != NULL) {
        while (ipc->offered_count > 0) {
            leave_offered(ipc, &ipc->offered[0]);
        }
        tmsg_loop_clear_timer(&endpoint->worker->loop, &ipc->late);
        tmsg_loop_clear_timer(&endpoint->worker->loop, &ipc->tick);
        tmsg_loop_clear_timer(&endpoint->worker->loop, &ipc->look);
        free(ipc);
        endpoint->paths.ipc = NULL;
    }
}

const char *tmsg_ipc_words(const tmsg_endpoint_t *endpoint, char *text,
                           size_t bytes)
{
    const struct tmsg_ipc *ipc = endpoint->paths.ipc;

    if (ipc == NULL || (ipc->why[0] == '\0' && ipc->opened_count == 0 &&
                        ipc->offered_count == 0)) {
        return "none";
    }
    if (ipc->why[0] == '\0') {
        return "yes";
    }
    snprintf(text, bytes, "none: %s", ipc->why);
    return text;
}
