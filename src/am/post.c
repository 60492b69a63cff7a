/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/post.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "am/endpoint.h"
#include "am/message.h"
#include "am/progress.h"
#include "am/stage_in.h"
#include "core/dlpack.h"
#include "core/error.h"
#include "core/map.h"
#include "core/tensor.h"
#include "memory/domain.h"

static bool same_name(const tmsg_map_entry_t *a, const tmsg_map_entry_t *b)
{
    return a->name_bytes == b->name_bytes &&
           memcmp(a->name, b->name, a->name_bytes) == 0;
}

/* The tensor of `map` that is called as one at `index` elsewhere, which is
 * where it is looked for first; NULL: none. */
static const tmsg_map_entry_t *find(const tmsg_map_t *map, size_t index,
                                    const tmsg_map_entry_t *like)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);

    if (index >= tmsg_map_size(map) || !same_name(&entries[index], like)) {
        index = tmsg_map_position(map, like->name, like->name_bytes);
    }
    return index < tmsg_map_size(map) ? &entries[index] : NULL;
}

static int64_t stride_of(const tmsg_tensor_t *tensor, int32_t dimension)
{
    int64_t stride = 1;

    if (tensor->strides != NULL) {
        return tensor->strides[dimension];
    }
    for (int32_t i = tensor->ndim - 1; i > dimension; i--) {
        stride *= tensor->shape[i];
    }
    return stride;
}

/* Both without gaps: whether the elements lie in the same order. */
static bool same_order(const tmsg_tensor_t *a, const tmsg_tensor_t *b)
{
    if (a->strides == NULL && b->strides == NULL) {
        return true;
    }
    if (tmsg_tensor_is_contiguous(a) || tmsg_tensor_is_contiguous(b)) {
        return tmsg_tensor_is_contiguous(a) && tmsg_tensor_is_contiguous(b);
    }
    for (int32_t i = 0; i < a->ndim; i++) {
        if (a->shape[i] > 1 && stride_of(a, i) != stride_of(b, i)) {
            return false;
        }
    }
    return true;
}

#define NUMBERS_MOST 100 /* characters, and a number beyond that */

typedef struct {
    char text[NUMBERS_MOST + sizeof("-9223372036854775808,...]")];
} words_t;

/* Numbers as "[2,3]", behind what there is; of what is long "..." at the end.
 */
static void put_numbers(words_t *words, const int64_t *numbers, int32_t count)
{
    size_t at = strlen(words->text);
    int32_t i = 0;

    words->text[at++] = '[';
    for (; i < count && at < NUMBERS_MOST; i++) {
        at += (size_t)sprintf(words->text + at, "%s%" PRId64, i == 0 ? "" : ",",
                              numbers[i]);
    }
    strcpy(words->text + at, i < count ? ",...]" : "]");
}

/* "float32[2,3]" */
static words_t describe(const tmsg_tensor_t *tensor)
{
    words_t words;

    tmsg_dtype_format(tensor->dtype, words.text, sizeof(words.text));
    put_numbers(&words, tensor->shape, tensor->ndim);
    return words;
}

/* "[3,1]" */
static words_t strides_of(const tmsg_tensor_t *tensor)
{
    int64_t strides[TMSG_NDIM_MAX];
    words_t words = {""};

    for (int32_t i = 0; i < tensor->ndim; i++) {
        strides[i] = stride_of(tensor, i);
    }
    put_numbers(&words, strides, tensor->ndim);
    return words;
}

static tmsg_status_t differs(const tmsg_map_entry_t *theirs,
                             const tmsg_map_entry_t *ours)
{
    return tmsg_error_set(
        TMSG_ERR_INVALID_PARAM,
        "tensor '%s': %s came, and the map to receive into has %s",
        tmsg_error_name(ours->name, ours->name_bytes).text,
        describe(&theirs->tensor).text, describe(&ours->tensor).text);
}

static tmsg_status_t lies_otherwise(const tmsg_map_entry_t *theirs,
                                    const tmsg_map_entry_t *ours)
{
    return tmsg_error_set(
        TMSG_ERR_INVALID_PARAM,
        "tensor '%s': the elements of %s came in another order, with strides "
        "of %s, than the map to receive into has, %s",
        tmsg_error_name(ours->name, ours->name_bytes).text,
        describe(&theirs->tensor).text, strides_of(&theirs->tensor).text,
        strides_of(&ours->tensor).text);
}

/* Whether it lies as nothing does that is received into. */
static bool is_loose(const tmsg_tensor_t *tensor)
{
    return tmsg_tensor_is_broadcast(tensor) || !tmsg_tensor_is_dense(tensor);
}

static bool same_kind(const tmsg_tensor_t *a, const tmsg_tensor_t *b)
{
    return a->dtype.code == b->dtype.code && a->dtype.bits == b->dtype.bits &&
           a->dtype.lanes == b->dtype.lanes && a->ndim == b->ndim &&
           (a->ndim == 0 || memcmp(a->shape, b->shape,
                                   (size_t)a->ndim * sizeof(*a->shape)) == 0);
}

/* A tensor that is broadcast, or has gaps, is written out into one that is not
 * and has none; `copied`: it is here for that. */
static bool tensor_fits(const tmsg_map_entry_t *theirs,
                        const tmsg_map_entry_t *ours, bool copied)
{
    const tmsg_map_entry_t shown = tmsg_map_shown(theirs);
    const tmsg_tensor_t *a = &shown.tensor, *b = &ours->tensor;

    return same_kind(a, b) &&
           (theirs->bytes == 0 ||
            (tmsg_map_view(theirs) == NULL && same_order(a, b)) ||
            (copied && (is_loose(a) || same_order(a, b))));
}

/* Of what both maps have the first that does not fit, and what it is to fit
 * into; NULL: all does. */
static const tmsg_map_entry_t *misfit(const tmsg_map_t *theirs,
                                      const tmsg_map_t *ours, bool copied,
                                      const tmsg_map_entry_t **into_p)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(ours);

    for (size_t i = 0; i < tmsg_map_size(ours); i++) {
        const tmsg_map_entry_t *entry = find(theirs, i, &entries[i]);

        if (entry != NULL && !tensor_fits(entry, &entries[i], copied)) {
            *into_p = &entries[i];
            return entry;
        }
    }
    return NULL;
}

static bool fits(const tmsg_map_t *theirs, const tmsg_map_t *ours)
{
    const tmsg_map_entry_t *into;

    return misfit(theirs, ours, false, &into) == NULL;
}

/* Whether it fits to be copied. Errors: INVALID_PARAM. */
static tmsg_status_t check_copied(const tmsg_map_t *theirs,
                                  const tmsg_map_t *ours)
{
    const tmsg_map_entry_t *into, *entry = misfit(theirs, ours, true, &into);
    tmsg_map_entry_t shown;

    if (entry == NULL) {
        return TMSG_OK;
    }
    shown = tmsg_map_shown(entry);
    return same_kind(&shown.tensor, &into->tensor)
               ? lies_otherwise(&shown, into)
               : differs(&shown, into);
}

/* The dimensions of a tensor without gaps or broadcast that has more than one
 * element in each, the slowest first: in this order it is in C order. */
static int32_t order_of(const tmsg_tensor_t *tensor, int32_t *order)
{
    int32_t count = 0;

    for (int32_t i = 0; i < tensor->ndim; i++) {
        int32_t at = count;

        if (tensor->shape[i] == 1) {
            continue;
        }
        while (at > 0 && tensor->strides != NULL &&
               tensor->strides[order[at - 1]] < tensor->strides[i]) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = i;
        count++;
    }
    return count;
}

/* Copies elements to where `to` has them, which is without gaps. */
static void write_out(const tmsg_map_entry_t *from, const tmsg_map_entry_t *to)
{
    tmsg_tensor_t tensor = from->tensor;
    int32_t order[TMSG_NDIM_MAX];
    int64_t shape[TMSG_NDIM_MAX], strides[TMSG_NDIM_MAX];

    tensor.ndim = order_of(&to->tensor, order);
    tensor.shape = shape;
    tensor.strides = strides;
    for (int32_t i = 0; i < tensor.ndim; i++) {
        shape[i] = from->tensor.shape[order[i]];
        strides[i] = from->tensor.strides[order[i]];
    }
    tmsg_tensor_pack_part(&tensor, 0, to->bytes, to->tensor.data);
}

static bool is_on_host(const tmsg_map_entry_t *entry)
{
    return entry->tensor.device.type == TMSG_DEVICE_CPU;
}

/* Between the host and a device, or two of these. */
static tmsg_status_t move_across(const tmsg_map_entry_t *from,
                                 const tmsg_map_entry_t *to)
{
    if (is_loose(&from->tensor)) {
        return tmsg_error_set(
            TMSG_ERR_UNSUPPORTED,
            "tensor '%s': %s, and only the CPU can write it out",
            tmsg_error_name(to->name, to->name_bytes).text,
            tmsg_tensor_is_broadcast(&from->tensor)
                ? "a stride of it is 0"
                : "its strides leave gaps or overlap");
    }
    return tmsg_stage_in_move(&to->tensor, to->stream, &from->tensor,
                              from->bytes);
}

/* Gives those tensors of a message that `ours` has, too, the places that they
 * have there, and the data that they have. */
static tmsg_status_t copy_in(tmsg_map_t *map, const tmsg_map_t *ours)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    tmsg_status_t status = TMSG_OK;

    for (size_t i = 0; i < tmsg_map_size(map) && status == TMSG_OK; i++) {
        const tmsg_map_entry_t *place = find(ours, i, &entries[i]);

        if (place == NULL) {
            continue;
        }
        if (!is_on_host(place) || !is_on_host(&entries[i])) {
            status = move_across(&entries[i], place);
            tmsg_map_set_device(map, i, place->tensor.device);
            tmsg_map_place(map, i, place->tensor.data);
            continue;
        }
        if (is_loose(&entries[i].tensor)) {
            write_out(&entries[i], place);
            tmsg_map_replace(map, i, place);
            continue;
        }
        if (entries[i].bytes > 0) {
            memcpy(place->tensor.data, entries[i].tensor.data,
                   entries[i].bytes);
        }
        tmsg_map_place(map, i, place->tensor.data);
    }
    return status;
}

/* The same of a message that has no data yet, but for what was placed. */
static tmsg_status_t lend(tmsg_message_t *message, const tmsg_map_t *ours)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(message->map);
    tmsg_status_t status = TMSG_OK;

    for (size_t i = 0; i < tmsg_map_size(message->map); i++) {
        const tmsg_map_entry_t *place = find(ours, i, &entries[i]);

        if (place == NULL || entries[i].tensor.data != NULL) {
            continue;
        }
        if (!is_on_host(place) || !is_on_host(&entries[i])) {
            status = tmsg_stage_in_choose(message, i, place->tensor.device,
                                          place->stream);
        }
        if (status != TMSG_OK) {
            return status;
        }
        tmsg_map_place(message->map, i, place->tensor.data);
    }
    return TMSG_OK;
}

/* What cannot be received into it is copied there when it is whole. */
static tmsg_status_t take_call(tmsg_message_t *message)
{
    tmsg_status_t status;

    if (message->posted == NULL || message->lent) {
        return TMSG_OK;
    }
    status = check_copied(message->map, message->posted);
    if (status != TMSG_OK || !fits(message->map, message->posted)) {
        return status;
    }
    message->lent = true;
    return lend(message, message->posted);
}

tmsg_status_t tmsg_post_finish(tmsg_message_t *message)
{
    return message->posted == NULL || message->lent
               ? TMSG_OK
               : copy_in(message->map, message->posted);
}

tmsg_status_t tmsg_post_take(tmsg_message_t *message)
{
    tmsg_endpoint_t *endpoint = message->endpoint;
    tmsg_post_t *post = &endpoint->post;

    if (message->head.kind == TMSG_KIND_CALL) {
        return take_call(message);
    }
    if (post->map == NULL || post->message != NULL || !post->waiting ||
        message->head.kind != TMSG_KIND_MAP || endpoint->ready.count > 0 ||
        message->head.sequence != message->channel->rx_sequence ||
        !fits(message->map, post->map)) {
        return TMSG_OK;
    }
    post->message = message;
    return lend(message, post->map);
}

void tmsg_post_delivered(tmsg_message_t *message)
{
    tmsg_post_t *post = &message->endpoint->post;

    if (post->message == message) {
        message->posted = post->map;
        post->map = NULL;
        post->message = NULL;
    }
}

/* Its release is the application's: without the lock. */
static void let_go(const tmsg_map_t *map)
{
    if (map != NULL && tmsg_map_unhold(map)) {
        tmsg_map_free(map);
    }
}

static void run_leave(tmsg_due_t *due)
{
    tmsg_endpoint_t *endpoint =
        TMSG_CONTAINER_OF(due, tmsg_endpoint_t, post.due);
    tmsg_worker_t *worker = endpoint->worker;
    tmsg_post_t *post = &endpoint->post;
    const tmsg_map_t *map = NULL;

    tmsg_worker_lock(worker);
    post->leaving = false;
    if (!post->waiting && post->message == NULL) {
        map = post->map;
        post->map = NULL;
    }
    tmsg_worker_unlock(worker);
    let_go(map);
    tmsg_endpoint_drop(endpoint);
}

/* Nobody may come back for it. */
static void leave(tmsg_endpoint_t *endpoint)
{
    tmsg_post_t *post = &endpoint->post;

    if (!post->leaving) {
        post->leaving = true;
        post->due.run = run_leave;
        tmsg_endpoint_hold(endpoint);
        tmsg_worker_due(endpoint->worker, &post->due);
    }
}

void tmsg_post_return(tmsg_message_t *message)
{
    tmsg_post_t *post = &message->endpoint->post;

    if (post->message != message || message->pending > 0) {
        return; /* parts of it may still be on their way into the map */
    }
    post->message = NULL;
    if (!post->waiting) {
        leave(message->endpoint);
    }
    tmsg_worker_arrived(message->endpoint->worker);
}

static tmsg_status_t check_map(const tmsg_map_t *map)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);

    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        const tmsg_tensor_t *tensor = &entries[i].tensor;

        if (tmsg_map_entry_is_read_only(&entries[i])) {
            return tmsg_error_set(
                TMSG_ERR_UNSUPPORTED, "tensor '%s' is read-only",
                tmsg_error_name(entries[i].name, entries[i].name_bytes).text);
        }
        if (tmsg_domain_of(tensor->device) == NULL ||
            (tensor->strides != NULL && (!tmsg_tensor_is_dense(tensor) ||
                                         tmsg_tensor_is_broadcast(tensor)))) {
            return tmsg_error_set(
                TMSG_ERR_UNSUPPORTED,
                "tensor '%s': received into is memory without gaps of the CPU "
                "or of a device that a domain holds",
                tmsg_error_name(entries[i].name, entries[i].name_bytes).text);
        }
    }
    return tmsg_map_check_apart(map);
}

static bool has_foreign(const tmsg_map_t *map)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);

    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        if (!is_on_host(&entries[i])) {
            return true;
        }
    }
    return false;
}

bool tmsg_post_is_simple(const tmsg_message_t *message)
{
    const tmsg_endpoint_t *endpoint = message->endpoint;

    if (message->head.kind == TMSG_KIND_CALL) {
        return message->posted != NULL && !has_foreign(message->posted);
    }
    return message->head.kind == TMSG_KIND_MAP &&
           endpoint->worker->on_header == NULL && endpoint->post.map != NULL &&
           !endpoint->post.foreign;
}

tmsg_status_t tmsg_post_check(const tmsg_map_t *map)
{
    if (!tmsg_map_is_idle(map)) {
        return tmsg_error_set(TMSG_ERR_BUSY,
                              "the map is being sent, or belongs to a message "
                              "that was received into it");
    }
    return check_map(map);
}

/* The message that was received into `map` and waits to be pulled, or NULL. */
static tmsg_message_t *find_ready(const tmsg_endpoint_t *endpoint,
                                  const tmsg_map_t *map)
{
    for (tmsg_node_t *node = endpoint->ready.head; node != NULL;
         node = node->next) {
        tmsg_message_t *message =
            TMSG_CONTAINER_OF(node, tmsg_message_t, own_queue);

        if (message->posted == map) {
            return message;
        }
    }
    return NULL;
}

/* One that was given up and not let go of yet, *stale_p, makes room. */
static tmsg_status_t post_map(tmsg_endpoint_t *endpoint, const tmsg_map_t *map,
                              const tmsg_map_t **stale_p)
{
    tmsg_post_t *post = &endpoint->post;
    tmsg_status_t status;

    if (map == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "map is NULL");
    }
    if (post->map != map && !post->waiting && post->message == NULL) {
        *stale_p = post->map;
        post->map = NULL;
    }
    if (post->waiting || (post->map != NULL && post->map != map)) {
        return tmsg_error_set(TMSG_ERR_BUSY,
                              "%s: another receive waits with a map",
                              endpoint->peer);
    }
    if (post->map == NULL && find_ready(endpoint, map) == NULL) {
        status = tmsg_post_check(map);
        if (status != TMSG_OK) {
            return status;
        }
        tmsg_map_hold(map);
        post->map = map;
        post->foreign = has_foreign(map);
    }
    post->waiting = true;
    return TMSG_OK;
}

static bool is_settled(void *arg)
{
    const tmsg_endpoint_t *endpoint = arg;

    return endpoint->post.message == NULL &&
           (endpoint->ready.count > 0 || endpoint->state == TMSG_EP_ENDED);
}

/* What the wait has come to. The map is let go or goes to a message that has to
 * be copied yet, *copy_p; *spent_p is one to be let go of after that. */
static tmsg_status_t settle(tmsg_endpoint_t *endpoint, const tmsg_map_t *map,
                            tmsg_status_t status, tmsg_message_t **message_p,
                            bool *copy_p, const tmsg_map_t **spent_p)
{
    tmsg_post_t *post = &endpoint->post;
    tmsg_message_t *message = find_ready(endpoint, map);

    post->waiting = false;
    if (post->message != NULL) {
        return TMSG_CANCEL_PENDING;
    }
    if (message == NULL && status == TMSG_OK && endpoint->ready.count > 0) {
        message =
            TMSG_CONTAINER_OF(endpoint->ready.head, tmsg_message_t, own_queue);
        status = check_copied(message->map, map);
        *copy_p = status == TMSG_OK;
    }
    if (status == TMSG_OK && message == NULL) {
        status = tmsg_error_set(endpoint->status, "%s", endpoint->error);
    }
    if (status == TMSG_OK) {
        tmsg_message_take_out(message);
        *message_p = message;
    }
    if (*copy_p && post->map == NULL) { /* a message had it that was given up */
        tmsg_map_hold(map);
    }
    if (*copy_p) {
        *spent_p = message->posted; /* by an earlier call; NULL: none */
        message->posted = map;
    } else {
        *spent_p = post->map;
    }
    post->map = NULL;
    return status;
}

tmsg_status_t tmsg_endpoint_recv_into(tmsg_endpoint_t *endpoint,
                                      const tmsg_map_t *map, int timeout_ms,
                                      tmsg_message_t **message_p)
{
    tmsg_worker_t *worker = endpoint->worker;
    const tmsg_map_t *spent = NULL, *stale = NULL;
    tmsg_message_t *message = NULL;
    bool copy = false;
    tmsg_status_t status = tmsg_endpoint_check_pull(endpoint);

    if (status != TMSG_OK) {
        return status;
    }
    tmsg_worker_enter(worker);
    tmsg_endpoint_hold(endpoint); /* a callback may destroy it meanwhile */
    status = post_map(endpoint, map, &stale);
    if (status == TMSG_OK) {
        status = tmsg_worker_until(worker, is_settled, endpoint, timeout_ms,
                                   "no message from ", endpoint->peer);
        status = settle(endpoint, map, status, &message, &copy, &spent);
    }
    tmsg_worker_leave(worker, message != NULL);
    tmsg_endpoint_drop(endpoint);
    if (copy) {
        status = copy_in(message->map, map);
    }
    if (status != TMSG_OK && message != NULL) { /* it was taken all the same */
        tmsg_message_destroy(message);
        message = NULL;
    }
    let_go(spent);
    let_go(stale);
    if (message != NULL) {
        *message_p = message;
    }
    return status;
}
