/* SPDX-License-Identifier: BSD-3-Clause */
#include "fakes/ucx.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

#include "core/list.h"
#include "support/must.h"

#define EAGER_MOST 8192 /* what is longer goes by rendezvous, unless asked */
#define GARBAGE 0xdb

fake_ucx_t fake_ucx;

typedef struct worker worker_t;

/* How many endpoints one worker has made to another, which may be gone. */
typedef struct {
    tmsg_node_t node;
    uint64_t to; /* its id */
    unsigned count;
} made_t;

struct worker {
    tmsg_node_t node;
    uint64_t id; /* no other ever has it, unlike its address */
    ucp_worker_h ucp;
    ucp_am_recv_callback_t handler;
    void *arg;
    size_t header_most;
    tmsg_list_t events;
    tmsg_list_t made;
};

typedef struct {
    tmsg_node_t node;
    worker_t *worker;
    size_t bytes;
    uint8_t data[];
} address_t;

/* UCX's ucp_ep_h. The n-th from one worker to another and the n-th the other
 * way are the two ends of one connection. */
typedef struct {
    tmsg_node_t node;
    worker_t *from, *to; /* NULL: it is gone */
    unsigned number;
    bool made; /* by its worker, not by a message that asked for a reply */
    bool closed;
    bool failing, failed; /* its worker is to hear of the other's end; has */
    bool over;            /* nobody knows of it any more */
    ucp_err_handler_t on_failed;
} end_t;

/* What ucp_*_nbx() gave, to be freed when it is both over and given back. */
typedef struct {
    ucp_send_nbx_callback_t sent;
    ucp_am_recv_data_nbx_callback_t received;
    void *arg;
    bool over, given_back;
} fake_request_t;

/* Where bytes are: one piece is a list of one. */
typedef struct {
    ucp_dt_iov_t *of;
    size_t count;
    size_t bytes;
} pieces_t;

typedef struct {
    tmsg_node_t node;
    end_t *by;
    const void *header; /* the sender's, until it is reported */
    size_t header_bytes;
    pieces_t from; /* likewise */
    bool copied;   /* these are its own */
    bool rendezvous, replies;
    bool lost; /* it arrives nowhere; its sender hears when it closes */
    fake_request_t *request; /* the sender's; NULL: it was told already */
    worker_t *at;            /* who has it */
    pieces_t into;           /* of a fetch */
    fake_request_t *fetch;
} message_t;

typedef enum { ARRIVES, IS_SENT, IS_FETCHED, IS_CLOSED, FAILS } kind_t;

typedef struct {
    tmsg_node_t node;
    kind_t kind;
    message_t *message;
    end_t *end;
    fake_request_t *request;
    ucs_status_t status;
} event_t;

/* What an eager message's receiver keeps. */
typedef struct {
    tmsg_node_t node;
    void *data;
    worker_t *at;
} kept_t;

static tmsg_list_t workers, addresses, ends, messages, kept;
static uint64_t last_id; /* of a worker */

static uint64_t choose(uint64_t below)
{
    return fake_ucx.choose == NULL || below < 2
               ? 0
               : fake_ucx.choose(fake_ucx.arg, below);
}

static void *take(size_t bytes)
{
    void *data = calloc(1, bytes);

    must_true(data != NULL);
    return data;
}

static void *next_of(const char *name)
{
    void *symbol = dlsym(RTLD_NEXT, name);

    must_true(symbol != NULL);
    return symbol;
}

#define REAL(type, name)                                                       \
    static type real;                                                          \
    if (real == NULL) {                                                        \
        *(void **)&real = next_of(#name);                                      \
    }

static worker_t *worker_of(ucp_worker_h ucp)
{
    worker_t *worker;

    for (tmsg_node_t *node = workers.head; node != NULL; node = node->next) {
        worker = TMSG_CONTAINER_OF(node, worker_t, node);
        if (worker->ucp == ucp) {
            return worker;
        }
    }
    worker = take(sizeof(*worker));
    worker->id = ++last_id;
    worker->ucp = ucp;
    tmsg_list_push(&workers, &worker->node);
    return worker;
}

static event_t *happens(worker_t *at, kind_t kind, ucs_status_t status)
{
    event_t *event = take(sizeof(*event));

    event->kind = kind;
    event->status = status;
    tmsg_list_push(&at->events, &event->node);
    return event;
}

bool fake_ucx_is_busy(void)
{
    for (tmsg_node_t *node = workers.head; node != NULL; node = node->next) {
        if (TMSG_CONTAINER_OF(node, worker_t, node)->events.count > 0) {
            return true;
        }
    }
    return false;
}

static fake_request_t *request_of(const ucp_request_param_t *param)
{
    fake_request_t *request = take(sizeof(*request));

    if (param->op_attr_mask & UCP_OP_ATTR_FIELD_CALLBACK) {
        request->sent = param->cb.send;
        request->received = param->cb.recv_am;
        request->arg = param->op_attr_mask & UCP_OP_ATTR_FIELD_USER_DATA
                           ? param->user_data
                           : NULL;
    }
    return request;
}

static void report(fake_request_t *request, ucs_status_t status, bool received,
                   size_t bytes)
{
    fake_ucx.reported++;
    request->over = true;
    if (request->given_back || request->sent == NULL) {
        if (request->given_back) {
            free(request);
        }
    } else if (received) {
        request->received(request, status, bytes, request->arg);
    } else {
        request->sent(request, status, request->arg);
    }
}

void ucp_request_free(void *handle)
{
    fake_request_t *request = handle;

    must_true(!request->given_back);
    request->given_back = true;
    if (request->over) {
        free(request);
    }
}

static pieces_t pieces_of(const void *buffer, size_t count,
                          const ucp_request_param_t *param)
{
    bool list = param->op_attr_mask & UCP_OP_ATTR_FIELD_DATATYPE &&
                param->datatype == ucp_dt_make_iov();
    const ucp_dt_iov_t one = {(void *)(uintptr_t)buffer, count};
    pieces_t pieces = {.count = list ? count : 1};

    /* UCX forgets the datatype where it may not end at once. */
    must_true(!list || !(param->op_attr_mask & UCP_OP_ATTR_FLAG_NO_IMM_CMPL));
    pieces.of = take((pieces.count + 1) * sizeof(*pieces.of));
    memcpy(pieces.of, list ? buffer : &one, pieces.count * sizeof(*pieces.of));
    for (size_t i = 0; i < pieces.count; i++) {
        pieces.bytes += pieces.of[i].length;
    }
    return pieces;
}

static void move(void *to, const void *from, size_t bytes)
{
    if (fake_ucx.move == NULL) {
        memcpy(to, from, bytes);
    } else {
        fake_ucx.move(to, from, bytes);
    }
}

static uint8_t *gather(const pieces_t *pieces)
{
    uint8_t *data = take(pieces->bytes + 1), *to = data;

    for (size_t i = 0; i < pieces->count; i++) {
        if (pieces->of[i].length > 0) {
            move(to, pieces->of[i].buffer, pieces->of[i].length);
            to += pieces->of[i].length;
        }
    }
    return data;
}

static void scatter(const pieces_t *pieces, const uint8_t *data, size_t bytes)
{
    for (size_t i = 0; i < pieces->count && bytes > 0; i++) {
        size_t part =
            bytes < pieces->of[i].length ? bytes : pieces->of[i].length;

        move(pieces->of[i].buffer, data, part);
        data += part;
        bytes -= part;
    }
    must_eq(bytes, 0);
}

/* From here on nothing of the sender's is read. */
static void copy(message_t *message)
{
    uint8_t *header, *data;

    if (message->copied) {
        return;
    }
    header = take(message->header_bytes + 1);
    data = gather(&message->from);
    memcpy(header, message->header, message->header_bytes);
    message->header = header;
    free(message->from.of);
    message->from.of = take(sizeof(*message->from.of));
    message->from.of[0] = (ucp_dt_iov_t){data, message->from.bytes};
    message->from.count = 1;
    message->copied = true;
}

static void forget(message_t *message)
{
    if (message->copied) {
        free((void *)(uintptr_t)message->header);
        free(message->from.of[0].buffer);
    }
    free(message->from.of);
    free(message->into.of);
    tmsg_list_remove(&messages, &message->node);
    free(message);
}

/* To its sender, who may use its memory for something else then. */
static void tell_sender(message_t *message, ucs_status_t status)
{
    event_t *event;

    if (message->request == NULL) {
        return;
    }
    if (message->by->from == NULL) {
        free(message->request);
    } else {
        event = happens(message->by->from, IS_SENT, status);
        event->request = message->request;
    }
    message->request = NULL;
}

static void end_message(message_t *message, ucs_status_t status)
{
    tell_sender(message, status);
    forget(message);
}

static end_t *find_end(const worker_t *from, const worker_t *to,
                       unsigned number)
{
    for (tmsg_node_t *node = ends.head; node != NULL; node = node->next) {
        end_t *end = TMSG_CONTAINER_OF(node, end_t, node);

        if (end->from == from && end->to == to && end->number == number) {
            return end;
        }
    }
    return NULL;
}

/* NULL: there is none yet, or its worker is gone. */
static end_t *other_of(const end_t *end)
{
    return end->from == NULL || end->to == NULL
               ? NULL
               : find_end(end->to, end->from, end->number);
}

static end_t *get_end(worker_t *from, worker_t *to, unsigned number)
{
    end_t *end = find_end(from, to, number);

    if (end == NULL) {
        end = take(sizeof(*end));
        end->from = from;
        end->to = to;
        end->number = number;
        tmsg_list_push(&ends, &end->node);
    }
    return end;
}

static unsigned next_number(worker_t *from, const worker_t *to)
{
    made_t *made;

    for (tmsg_node_t *node = from->made.head; node != NULL; node = node->next) {
        made = TMSG_CONTAINER_OF(node, made_t, node);
        if (made->to == to->id) {
            return made->count++;
        }
    }
    made = take(sizeof(*made));
    made->to = to->id;
    tmsg_list_push(&from->made, &made->node);
    return made->count++;
}

static void fail(end_t *end)
{
    if (end != NULL && end->made && !end->closed && !end->failing) {
        end->failing = true;
        happens(end->from, FAILS, UCS_ERR_CONNECTION_RESET)->end = end;
    }
}

/* Compares up to the first difference: how long `data` is nobody says, and the
 * addresses of two workers differ in their first bytes. */
static bool begins_with(const uint8_t *data, const address_t *known)
{
    size_t i = 0;

    while (i < known->bytes && data[i] == known->data[i]) {
        i++;
    }
    return i == known->bytes;
}

static worker_t *find_address(const ucp_address_t *address)
{
    for (tmsg_node_t *node = addresses.head; node != NULL; node = node->next) {
        const address_t *known = TMSG_CONTAINER_OF(node, address_t, node);

        if (begins_with((const uint8_t *)address, known)) {
            return known->worker;
        }
    }
    return NULL;
}

ucs_status_t ucp_ep_create(ucp_worker_h ucp, const ucp_ep_params_t *params,
                           ucp_ep_h *ep_p)
{
    worker_t *to = find_address(params->address);
    worker_t *from = worker_of(ucp);
    const end_t *other;
    end_t *end;

    if (to == NULL) {
        return UCS_ERR_UNREACHABLE;
    }
    end = get_end(from, to, next_number(from, to));
    end->made = true;
    if (params->field_mask & UCP_EP_PARAM_FIELD_ERR_HANDLER) {
        end->on_failed = params->err_handler;
    }
    other = other_of(end);
    if (other != NULL && other->closed) {
        fail(end);
    }
    *ep_p = (ucp_ep_h)(void *)end;
    return UCS_OK;
}

ucs_status_t ucp_context_query(ucp_context_h ucp, ucp_context_attr_t *attr)
{
    typedef ucs_status_t (*query_fn)(ucp_context_h, ucp_context_attr_t *);
    REAL(query_fn, ucp_context_query)
    ucs_status_t status = real(ucp, attr);

    attr->memory_types |= fake_ucx.memory_types;
    return status;
}

static bool is_known(const worker_t *worker, const ucp_worker_attr_t *attr)
{
    for (tmsg_node_t *node = addresses.head; node != NULL; node = node->next) {
        const address_t *known = TMSG_CONTAINER_OF(node, address_t, node);

        if (known->worker == worker && known->bytes == attr->address_length &&
            memcmp(known->data, attr->address, known->bytes) == 0) {
            return true;
        }
    }
    return false;
}

ucs_status_t ucp_worker_query(ucp_worker_h ucp, ucp_worker_attr_t *attr)
{
    typedef ucs_status_t (*query_fn)(ucp_worker_h, ucp_worker_attr_t *);
    REAL(query_fn, ucp_worker_query)
    ucs_status_t status = real(ucp, attr);
    address_t *address;

    if (status == UCS_OK && attr->field_mask & UCP_WORKER_ATTR_FIELD_ADDRESS &&
        !is_known(worker_of(ucp), attr)) {
        address = take(sizeof(*address) + attr->address_length);
        address->worker = worker_of(ucp);
        address->bytes = attr->address_length;
        memcpy(address->data, attr->address, address->bytes);
        tmsg_list_push(&addresses, &address->node);
    }
    if (status == UCS_OK &&
        attr->field_mask & UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER) {
        worker_of(ucp)->header_most = attr->max_am_header;
    }
    return status;
}

ucs_status_t ucp_worker_set_am_recv_handler(ucp_worker_h ucp,
                                            const ucp_am_handler_param_t *param)
{
    worker_t *worker = worker_of(ucp);

    worker->handler = param->cb;
    worker->arg = param->arg;
    return UCS_OK;
}

static void lose(message_t *message)
{
    message->lost = true;
    if (message->request == NULL) {
        forget(message);
    }
}

/* A side that has closed the connection, or whose worker is gone. */
static bool is_deaf(const end_t *end)
{
    const end_t *other = end->to == NULL ? NULL : other_of(end);

    return end->to == NULL || (other != NULL && other->closed);
}

static bool is_rendezvous(unsigned flags, size_t bytes)
{
    if (flags & (UCP_AM_SEND_FLAG_EAGER | UCP_AM_SEND_FLAG_RNDV)) {
        return (flags & UCP_AM_SEND_FLAG_RNDV) != 0;
    }
    return bytes > EAGER_MOST || (bytes > 0 && choose(4) == 1);
}

ucs_status_ptr_t ucp_am_send_nbx(ucp_ep_h ep, unsigned id, const void *header,
                                 size_t header_bytes, const void *buffer,
                                 size_t count, const ucp_request_param_t *param)
{
    end_t *end = (end_t *)(void *)ep;
    bool at_once = param->op_attr_mask & UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL;
    unsigned flags =
        param->op_attr_mask & UCP_OP_ATTR_FIELD_FLAGS ? param->flags : 0;
    fake_request_t *request;
    message_t *message;

    must_eq(id, 0);
    must_true(!end->closed && header_bytes <= end->from->header_most);
    must_true(param->op_attr_mask & UCP_OP_ATTR_FIELD_MEMORY_TYPE);
    if (end->failed) {
        return UCS_STATUS_PTR(UCS_ERR_CONNECTION_RESET);
    }
    if (at_once && choose(8) == 1) {
        return UCS_STATUS_PTR(UCS_ERR_NO_RESOURCE);
    }
    message = take(sizeof(*message));
    tmsg_list_push(&messages, &message->node);
    message->by = end;
    message->header = header;
    message->header_bytes = header_bytes;
    message->from = pieces_of(buffer, count, param);
    message->rendezvous = is_rendezvous(flags, message->from.bytes);
    message->replies = (flags & UCP_AM_SEND_FLAG_REPLY) != 0;
    if (!message->rendezvous && (at_once || choose(2) == 0)) {
        copy(message);
    } else {
        must_true(!at_once);
        message->request = request_of(param);
    }
    request = message->request;
    if (is_deaf(end)) {
        lose(message);
    } else {
        happens(end->to, ARRIVES, UCS_OK)->message = message;
    }
    return request;
}

static bool is_late(const end_t *end)
{
    return end->closed || end->from == NULL;
}

/* What a fetch finds where its sender has gone away: nothing or, in memory that
 * it reads by itself, what is there by then, which UCX takes for the message.
 */
/* Several in a row are a peer whose memory cannot be read, and which is told
 * so: some succeed between two. */
static bool fails_to_fetch(void)
{
    if (fake_ucx.failing == 0 || fake_ucx.fetched++ < fake_ucx.failing / 2 ||
        choose(fake_ucx.failing / 2) != 1) {
        return false;
    }
    fake_ucx.fetched = 0;
    return true;
}

static ucs_status_t fetch(message_t *message)
{
    uint8_t *data;
    size_t bytes = message->from.bytes;
    ucs_status_t status = UCS_OK;

    if (is_late(message->by) && !message->copied) {
        if (fake_ucx.by_tcp || choose(2) == 0) {
            return UCS_ERR_CONNECTION_RESET;
        }
        data = take(bytes + 1);
        memset(data, GARBAGE, bytes);
    } else {
        data = gather(&message->from);
        if (fails_to_fetch()) {
            status = UCS_ERR_IO_ERROR;
            fake_ucx.failed++;
        }
    }
    if (status == UCS_OK) {
        scatter(&message->into, data, bytes);
    }
    free(data);
    return status;
}

ucs_status_ptr_t ucp_am_recv_data_nbx(ucp_worker_h ucp, void *desc,
                                      void *buffer, size_t count,
                                      const ucp_request_param_t *param)
{
    message_t *message = desc;
    event_t *event;

    must_true(message->rendezvous && message->fetch == NULL);
    must_true(message->at == worker_of(ucp));
    message->into = pieces_of(buffer, count, param);
    must_true(message->into.bytes >= message->from.bytes); /* or UCX aborts */
    if (choose(4) == 1) {
        ucs_status_t status = fetch(message);

        end_message(message, status);
        return UCS_STATUS_PTR(status);
    }
    message->fetch = request_of(param);
    fake_ucx.fetching++;
    if (fake_ucx.fetching > fake_ucx.most_fetching) {
        fake_ucx.most_fetching = fake_ucx.fetching;
    }
    event = happens(message->at, IS_FETCHED, UCS_OK);
    event->message = message;
    return message->fetch;
}

void ucp_am_data_release(ucp_worker_h ucp, void *data)
{
    for (tmsg_node_t *node = kept.head; node != NULL; node = node->next) {
        kept_t *one = TMSG_CONTAINER_OF(node, kept_t, node);

        if (one->data == data) {
            tmsg_list_remove(&kept, node);
            free(one);
            free(data);
            return;
        }
    }
    must_true(((message_t *)data)->at == worker_of(ucp));
    end_message(data, UCS_OK); /* as UCX tells its sender */
}

static void keep(void *data, worker_t *at)
{
    kept_t *one = take(sizeof(*one));

    one->data = data;
    one->at = at;
    tmsg_list_push(&kept, &one->node);
}

/* Of what its receiver does with a message now, or keeps. */
static void deliver(worker_t *at, message_t *message, fake_am_t *am)
{
    end_t *reply = other_of(message->by);
    ucp_am_recv_param_t param = {.recv_attr = message->rendezvous
                                                  ? UCP_AM_RECV_ATTR_FLAG_RNDV
                                                  : UCP_AM_RECV_ATTR_FLAG_DATA};
    bool rendezvous = message->rendezvous;
    ucs_status_t status;

    if (am->replies) {
        if (reply == NULL) {
            reply = get_end(at, message->by->from, message->by->number);
        }
        param.recv_attr |= UCP_AM_RECV_ATTR_FIELD_REPLY_EP;
        param.reply_ep = (ucp_ep_h)(void *)reply;
    }
    fake_ucx.arrived++;
    fake_ucx.rendezvous += rendezvous;
    if (rendezvous) {
        message->at = at;
        status = at->handler(at->arg, am->header, am->header_bytes, message,
                             am->payload_bytes, &param);
        if (status != UCS_INPROGRESS && status != UCS_OK) {
            end_message(message, status);
        } else if (status == UCS_OK && message->fetch == NULL) {
            end_message(message, UCS_OK);
        }
        return;
    }
    keep(am->payload, at);
    status = at->handler(at->arg, am->header, am->header_bytes, am->payload,
                         am->payload_bytes, &param);
    must_true(status == UCS_OK || status == UCS_INPROGRESS);
    if (status == UCS_OK) {
        ucp_am_data_release(at->ucp, am->payload);
    }
    end_message(message, UCS_OK);
}

/* Exactly so many bytes, aligned as the library asked for. */
static uint8_t *exactly(const void *data, size_t bytes)
{
    void *made = NULL;

    must_eq(posix_memalign(&made, 64, bytes), 0);
    if (bytes > 0) {
        memcpy(made, data, bytes);
    }
    return made;
}

/* What it was, to come again. */
static void repeat(worker_t *at, const message_t *message)
{
    message_t *again = take(sizeof(*again));

    *again = *message;
    again->request = NULL;
    again->from.of = take((again->from.count + 1) * sizeof(*again->from.of));
    memcpy(again->from.of, message->from.of,
           again->from.count * sizeof(*again->from.of));
    tmsg_list_push(&messages, &again->node);
    again->copied = false;
    copy(again);
    happens(at, ARRIVES, UCS_OK)->message = again;
}

/* False: it does not arrive. From here on a changed one is what it is now. */
static bool change(worker_t *at, message_t *message, fake_am_t *am)
{
    bool arrives;

    if (fake_ucx.change == NULL) {
        return true;
    }
    am->payload = gather(&message->from);
    arrives = fake_ucx.change(fake_ucx.arg, am);
    if (am->again) {
        repeat(at, message);
    }
    if (am->changed) {
        copy(message);
        free(message->from.of[0].buffer);
        message->from.of[0] = (ucp_dt_iov_t){am->payload, am->payload_bytes};
        message->from.bytes = am->payload_bytes;
        message->rendezvous = am->rendezvous;
    } else {
        free(am->payload);
    }
    am->payload = NULL;
    return arrives;
}

static void arrive(worker_t *at, message_t *message)
{
    fake_am_t am = {.header = exactly(message->header, message->header_bytes),
                    .header_bytes = message->header_bytes,
                    .payload_bytes = message->from.bytes,
                    .rendezvous = message->rendezvous,
                    .replies = message->replies};

    if (message->by->from == NULL || !change(at, message, &am)) {
        end_message(message, UCS_OK);
    } else {
        if (!message->rendezvous) {
            uint8_t *data = gather(&message->from);

            am.payload = exactly(data, am.payload_bytes);
            free(data);
        }
        deliver(at, message, &am);
    }
    free(am.header);
}

static void report_fetch(message_t *message)
{
    fake_request_t *request = message->fetch;
    ucs_status_t status = fetch(message);
    size_t bytes = message->from.bytes;

    fake_ucx.fetching--;
    end_message(message, status);
    report(request, status, true, bytes);
}

static bool is_over(const end_t *end)
{
    return end == NULL || end->from == NULL || end->closed || !end->made;
}

/* Whether something that is still to happen comes from an end, or is for it. */
static bool is_awaited(const end_t *end)
{
    bool found = end->failing && !end->failed;

    for (tmsg_node_t *of = messages.head; of != NULL && !found; of = of->next) {
        found = TMSG_CONTAINER_OF(of, message_t, node)->by == end;
    }
    return found;
}

/* Frees the ends of connections that are over on both sides. */
static void sweep(void)
{
    tmsg_node_t *next, *node;

    for (node = ends.head; node != NULL; node = next) {
        end_t *end = TMSG_CONTAINER_OF(node, end_t, node);

        next = node->next;
        end->over = is_over(end) && is_over(other_of(end)) && !is_awaited(end);
    }
    for (node = ends.head; node != NULL; node = next) {
        end_t *end = TMSG_CONTAINER_OF(node, end_t, node);

        next = node->next;
        if (end->over) {
            tmsg_list_remove(&ends, node);
            free(end);
        }
    }
}

static void happen(worker_t *at, event_t *event)
{
    switch (event->kind) {
    case ARRIVES:
        arrive(at, event->message);
        break;
    case IS_FETCHED:
        report_fetch(event->message);
        break;
    case FAILS:
        event->end->failed = true;
        if (!event->end->closed && event->end->on_failed.cb != NULL) {
            event->end->on_failed.cb(event->end->on_failed.arg,
                                     (ucp_ep_h)(void *)event->end,
                                     event->status);
        }
        break;
    case IS_CLOSED:
        report(event->request, event->status, false, 0);
        sweep();
        break;
    default:
        report(event->request, event->status, false, 0);
    }
    free(event);
}

/* That a connection has failed is said behind what came by it. */
static event_t *before(const worker_t *at, event_t *event)
{
    const end_t *other = event->kind == FAILS ? other_of(event->end) : NULL;

    for (tmsg_node_t *node = at->events.head; node != NULL && other != NULL;
         node = node->next) {
        event_t *arrival = TMSG_CONTAINER_OF(node, event_t, node);

        if (arrival->kind == ARRIVES && arrival->message->by == other) {
            return arrival;
        }
    }
    return event;
}

unsigned ucp_worker_progress(ucp_worker_h ucp)
{
    worker_t *worker = worker_of(ucp);
    size_t count = worker->events.count;
    size_t nth = choose(fake_ucx.ahead < count ? fake_ucx.ahead : count);
    tmsg_node_t *node = worker->events.head;
    event_t *event;

    if (node == NULL) {
        return 0;
    }
    fake_ucx.overtook += nth > 0;
    for (; nth > 0; nth--) {
        node = node->next;
    }
    event = before(worker, TMSG_CONTAINER_OF(node, event_t, node));
    tmsg_list_remove(&worker->events, &event->node);
    happen(worker, event);
    return 1;
}

ucs_status_t ucp_worker_arm(ucp_worker_h ucp)
{
    return worker_of(ucp)->events.count > 0 ? UCS_ERR_BUSY : UCS_OK;
}

/* Its worker may use what it has lent for something else, once it was told.
 * What UCX has copied may still arrive. */
static void cancel(const end_t *end)
{
    tmsg_node_t *next;

    for (tmsg_node_t *node = messages.head; node != NULL; node = next) {
        message_t *message = TMSG_CONTAINER_OF(node, message_t, node);

        next = node->next;
        if (message->by != end) {
            continue;
        }
        if (!message->rendezvous && !message->lost && choose(2) == 1) {
            copy(message);
        }
        tell_sender(message, UCS_ERR_CANCELED);
        if (message->lost) {
            forget(message);
        }
    }
}

/* What is on its way from an end; `copied`: that as well. */
static void drop_arrivals(worker_t *at, const end_t *by, bool copied)
{
    tmsg_node_t *next;

    for (tmsg_node_t *node = at->events.head; node != NULL; node = next) {
        event_t *event = TMSG_CONTAINER_OF(node, event_t, node);

        next = node->next;
        if (event->kind == ARRIVES && event->message->by == by &&
            (copied || !event->message->copied)) {
            tmsg_list_remove(&at->events, node);
            lose(event->message);
            free(event);
        }
    }
}

ucs_status_ptr_t ucp_ep_close_nbx(ucp_ep_h ep, const ucp_request_param_t *param)
{
    end_t *end = (end_t *)(void *)ep;
    end_t *other = other_of(end);
    fake_request_t *request;

    must_true(!end->closed);
    must_true(param->flags & UCP_EP_CLOSE_FLAG_FORCE);
    end->closed = true;
    cancel(end);
    if (end->to != NULL) {
        drop_arrivals(end->to, end, false);
    }
    if (other != NULL) { /* nobody hears what it still says */
        drop_arrivals(end->from, other, true);
    }
    fail(other);
    if (choose(4) == 1) {
        return NULL;
    }
    request = request_of(param);
    happens(end->from, IS_CLOSED, UCS_OK)->request = request;
    return request;
}

void ucp_ep_print_info(ucp_ep_h ep, FILE *stream)
{
    (void)ep;
    fprintf(stream, "# lane[0]: 0:%s md[0] -> md[0]\n",
            fake_ucx.by_tcp ? "tcp/lo" : "posix/memory");
}

static void drop_ends(const worker_t *worker)
{
    for (tmsg_node_t *node = ends.head; node != NULL; node = node->next) {
        end_t *end = TMSG_CONTAINER_OF(node, end_t, node);

        if (end->from == worker) {
            end_t *other = other_of(end);

            end->closed = true;
            cancel(end);
            if (end->to != NULL) {
                drop_arrivals(end->to, end, false);
            }
            fail(other);
        }
    }
    for (tmsg_node_t *node = ends.head; node != NULL; node = node->next) {
        end_t *end = TMSG_CONTAINER_OF(node, end_t, node);

        end->from = end->from == worker ? NULL : end->from;
        end->to = end->to == worker ? NULL : end->to;
    }
}

/* What its user keeps is UCX's, and goes with it. */
static void drop_kept(const worker_t *worker)
{
    tmsg_node_t *next;

    for (tmsg_node_t *node = kept.head; node != NULL; node = next) {
        kept_t *one = TMSG_CONTAINER_OF(node, kept_t, node);

        next = node->next;
        if (one->at == worker) {
            tmsg_list_remove(&kept, node);
            free(one->data);
            free(one);
        }
    }
    for (tmsg_node_t *node = messages.head; node != NULL; node = next) {
        message_t *message = TMSG_CONTAINER_OF(node, message_t, node);

        next = node->next;
        if (message->at == worker) {
            free(message->fetch);
            end_message(message, UCS_ERR_CONNECTION_RESET);
        }
    }
}

static void drop_events(worker_t *worker)
{
    tmsg_node_t *node;

    while ((node = tmsg_list_pop(&worker->events)) != NULL) {
        event_t *event = TMSG_CONTAINER_OF(node, event_t, node);

        if (event->kind == ARRIVES) {
            lose(event->message);
        } else if (event->kind == IS_SENT || event->kind == IS_CLOSED) {
            free(event->request);
        }
        free(event);
    }
}

static void drop_addresses(const worker_t *worker)
{
    tmsg_node_t *next;

    for (tmsg_node_t *node = addresses.head; node != NULL; node = next) {
        address_t *address = TMSG_CONTAINER_OF(node, address_t, node);

        next = node->next;
        if (address->worker == worker) {
            tmsg_list_remove(&addresses, node);
            free(address);
        }
    }
}

void ucp_worker_destroy(ucp_worker_h ucp)
{
    typedef void (*destroy_fn)(ucp_worker_h);
    REAL(destroy_fn, ucp_worker_destroy)
    worker_t *worker = worker_of(ucp);
    tmsg_node_t *node;

    drop_kept(worker);
    drop_ends(worker);
    drop_events(worker);
    drop_addresses(worker);
    while ((node = tmsg_list_pop(&worker->made)) != NULL) {
        free(TMSG_CONTAINER_OF(node, made_t, node));
    }
    tmsg_list_remove(&workers, &worker->node);
    free(worker);
    sweep();
    real(ucp);
}
