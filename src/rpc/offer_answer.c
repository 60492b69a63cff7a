/* SPDX-License-Identifier: BSD-3-Clause */
/* Answers fetches. The thread that progresses does so, in the handler of a
 * method of the library's own. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tensormsg/meta.h>

#include "core/map.h"
#include "core/utf8.h"
#include "rpc/metrics.h"
#include "rpc/offer.h"

#define WAIT_MS_MOST INT32_MAX

static tmsg_status_t refuse_ask(const char *why)
{
    return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "fetch: %s", why);
}

static tmsg_status_t read_key(const tmsg_tensor_t *tensor,
                              tmsg_fetch_ask_t *ask)
{
    if (tensor->device.type != TMSG_DEVICE_CPU ||
        tensor->dtype.code != TMSG_DTYPE_UINT || tensor->dtype.bits != 8 ||
        tensor->dtype.lanes != 1 || tensor->ndim != 1 ||
        tensor->shape[0] != TMSG_OFFER_KEY_BYTES || tensor->strides != NULL) {
        return refuse_ask("the key is not uint8[48]");
    }
    tmsg_key_read(tensor->data, &ask->key);
    return TMSG_OK;
}

/* Returns whether the request says that. To ask for what is not there would
 * make an error, which costs a tenth of a fetch. */
static bool says(const tmsg_map_t *request, const char *key)
{
    const tmsg_map_meta_entry_t wanted = {.key = key, .key_bytes = strlen(key)};

    return tmsg_map_meta_size(request) > 0 &&
           tmsg_map_meta_has(request, &wanted);
}

/* Reads a number that need not be there. */
static tmsg_status_t read_number(const tmsg_map_t *request, const char *key,
                                 int64_t *number_p)
{
    return says(request, key) ? tmsg_map_get_i64(request, key, number_p)
                              : TMSG_OK;
}

static tmsg_status_t read_by_name(const tmsg_map_t *request,
                                  tmsg_fetch_ask_t *ask)
{
    int64_t at_least = 0, epoch = 0;
    tmsg_status_t status =
        tmsg_map_get_string(request, TMSG_FETCH_NAME, &ask->name);

    if (status == TMSG_ERR_NOT_FOUND) {
        return refuse_ask("neither a key nor a name");
    }
    if (status == TMSG_OK && strlen(ask->name) > TMSG_OFFER_NAME_MAX) {
        return refuse_ask("the name has more than 255 bytes");
    }
    if (status == TMSG_OK) {
        status = read_number(request, TMSG_FETCH_AT_LEAST, &at_least);
    }
    if (status == TMSG_OK) {
        ask->has_epoch = says(request, TMSG_FETCH_EPOCH);
        status = read_number(request, TMSG_FETCH_EPOCH, &epoch);
    }
    if (status == TMSG_OK) {
        status = read_number(request, TMSG_FETCH_WAIT, &ask->wait_ms);
    }
    if (status == TMSG_OK && (at_least < 0 || ask->wait_ms < -1)) {
        status = refuse_ask(at_least < 0 ? "at_least is below 0"
                                         : "wait_ms is below -1");
    }
    ask->at_least = (uint64_t)at_least;
    ask->epoch = (uint64_t)epoch;
    return status;
}

/* Reads whether the reply may be a loan. */
static tmsg_status_t read_loan(const tmsg_map_t *request, tmsg_fetch_ask_t *ask)
{
    int borrows = 0;
    tmsg_status_t status =
        says(request, TMSG_FETCH_LOAN)
            ? tmsg_map_get_bool(request, TMSG_FETCH_LOAN, &borrows)
            : TMSG_OK;

    ask->borrows = borrows;
    return status;
}

static tmsg_status_t check_slices(const tmsg_map_entry_t *entries, size_t count)
{
    tmsg_status_t status = count > TMSG_FETCH_SLICES_MOST
                               ? refuse_ask("it has more than 65536 slices")
                               : TMSG_OK;

    for (size_t i = 0; i < count && status == TMSG_OK; i++) {
        status = tmsg_slice_check(&entries[i]);
    }
    return status;
}

tmsg_status_t tmsg_fetch_read(const tmsg_map_t *request, tmsg_fetch_ask_t *ask)
{
    const tmsg_map_entry_t *first = tmsg_map_entries(request);
    size_t tensors = tmsg_map_size(request);
    bool by_key = tensors > 0 && strcmp(first->name, TMSG_FETCH_KEY) == 0;
    tmsg_status_t status;

    *ask = (tmsg_fetch_ask_t){.name = NULL, .has_slices = tensors > by_key};
    status =
        by_key ? read_key(&first->tensor, ask) : read_by_name(request, ask);
    if (status == TMSG_OK) {
        status = read_loan(request, ask);
    }
    return status == TMSG_OK && ask->has_slices
               ? check_slices(first + by_key, tensors - by_key)
               : status;
}

static void fail_fetch(tmsg_task_t *task, tmsg_status_t status)
{
    char words[TMSG_ERROR_BYTES];

    snprintf(words, sizeof(words), "%s", tmsg_error_message());
    (void)tmsg_task_fail(task, status, 0, words, NULL);
}

/* Sends the map of a fetch, or the views of it that the request asks for. */
static tmsg_status_t send_map(tmsg_task_t *task, const tmsg_map_t *request,
                              const tmsg_fetch_ask_t *ask, tmsg_lent_t *lent)
{
    const tmsg_offer_t *offer = lent->offer;
    const tmsg_map_t *map = offer->map;
    tmsg_map_t *views = NULL;
    tmsg_status_t status = TMSG_OK;

    lent->bytes = offer->bytes;
    if (ask->has_slices) {
        status = tmsg_slices_make(request, map, &views);
        if (status != TMSG_OK) {
            fail_fetch(task, status);
            return status;
        }
        map = views;
        lent->bytes = tmsg_meter_bytes(map);
    }
    task->how.on_done = tmsg_lent_done;
    task->how.on_done_arg = lent;
    task->how.flags =
        offer->fetches_most > 0 && lent->whole ? TMSG_CALL_SEND_ACKED : 0;
    task->how.reclaims = true;
    if (lent->by_loan) {
        task->how.flags |=
            TMSG_CALL_SEND_LEND | (ask->borrows ? TMSG_CALL_SEND_ASKED : 0);
        task->how.lending_p = &lent->offer->lending;
        task->how.on_release = tmsg_lent_released;
        task->how.on_release_arg = lent;
    }
    if (ask->name != NULL) {
        task->how.more = offer->version_meta;
    }
    status = tmsg_task_reply(task, map, NULL);
    tmsg_map_destroy(views);
    return status;
}

/* Answers a fetch, if there is what it asks for. Errors: NOT_FOUND; the fetch
 * was not answered, and if `tells` tmsg_error_message() says why. */
static tmsg_status_t try_to_answer(tmsg_task_t *task, const tmsg_map_t *request,
                                   const tmsg_fetch_ask_t *ask, bool tells)
{
    tmsg_hub_t *hub = task->server->hub;
    tmsg_lent_t *lent = NULL;
    tmsg_offer_t *offer;
    tmsg_status_t status;

    tmsg_hub_lock(hub);
    status = tmsg_offers_find(hub->offers, ask, task->endpoint, tells, &offer);
    if (status == TMSG_OK) {
        lent = tmsg_lent_begin(offer, task, !ask->has_slices);
        status = lent == NULL ? TMSG_ERR_NO_MEMORY : TMSG_OK;
    }
    tmsg_hub_unlock(hub);
    if (lent != NULL) {
        tmsg_lent_begun(lent, send_map(task, request, ask, lent) == TMSG_OK);
    } else if (status != TMSG_ERR_NOT_FOUND) {
        fail_fetch(task, status);
    }
    return status == TMSG_ERR_NOT_FOUND ? status : TMSG_OK;
}

/* Gives a wait back, and its handle on the task. Lock not held. */
static void drop_wait(tmsg_hub_t *hub, tmsg_fetch_wait_t *wait)
{
    tmsg_hub_lock(hub);
    tmsg_lifetime_end(hub, &wait->patience);
    tmsg_lifetime_end(hub, &wait->deadline);
    tmsg_waits_give_place(hub, wait);
    tmsg_hub_unlock(hub);
    tmsg_task_destroy(wait->task);
    tmsg_map_destroy(wait->request);
    free(wait);
}

/* Serves as `fire` of a wait's event: an offer came, or the time is up. All
 * such events, and on_over of the task, run one after the other. */
static void look_again(tmsg_rpc_event_t *event)
{
    tmsg_fetch_wait_t *wait =
        TMSG_CONTAINER_OF(event, tmsg_fetch_wait_t, event);
    tmsg_task_t *task = wait->task;
    tmsg_hub_t *hub = task->server->hub;
    bool last, waits = false;
    tmsg_status_t status;

    tmsg_task_let_go(task); /* a message is held against the worker's limits */
    tmsg_hub_lock(hub);
    last = wait->time_is_up;
    tmsg_hub_unlock(hub);
    if (wait->pushed_out) {
        status = tmsg_error_set(TMSG_ERR_RESOURCE_EXHAUSTED,
                                "others wait, and most of the fetches that "
                                "wait are of this connection");
    } else {
        status = try_to_answer(task, wait->request, &wait->ask, last);
    }
    if (status == TMSG_ERR_NOT_FOUND && !last) {
        tmsg_hub_lock(hub);
        waits = tmsg_task_is_open(task);
        if (waits && wait->time_is_up) {
            tmsg_hub_tell(hub, &wait->event); /* to look for the last time */
        } else if (waits) {                   /* somebody else had what came */
            tmsg_waits_begin(hub, wait);
        }
        tmsg_hub_unlock(hub);
    }
    if (waits) {
        return;
    }
    if (status != TMSG_OK) {
        fail_fetch(task, status);
    }
    tmsg_task_on_over(task, NULL, NULL);
    drop_wait(hub, wait);
}

static void wait_is_up(tmsg_lifetime_t *patience)
{
    tmsg_fetch_wait_t *wait =
        TMSG_CONTAINER_OF(patience, tmsg_fetch_wait_t, patience);
    tmsg_hub_t *hub = wait->task->server->hub;

    wait->time_is_up = true;
    if (wait->waits) {
        tmsg_waits_end(hub, wait);
        tmsg_hub_tell(hub, &wait->event);
    }
}

static void deadline_is_over(tmsg_lifetime_t *deadline)
{
    tmsg_fetch_wait_t *wait =
        TMSG_CONTAINER_OF(deadline, tmsg_fetch_wait_t, deadline);

    if (tmsg_task_is_open(wait->task)) {
        tmsg_task_abandon(wait->task, TMSG_ERR_TIMED_OUT);
    }
}

/* Moves the deadline of a task to where thousands of others do not delay a call
 * that begins. Its alarm was asked for. Lock held. */
static void move_deadline(tmsg_hub_t *hub, tmsg_fetch_wait_t *wait)
{
    tmsg_task_t *task = wait->task;

    if (task->deadline_ns != 0 && tmsg_task_is_open(task)) {
        tmsg_hub_forgo(hub, &task->expiry);
        (void)tmsg_lifetime_begin(hub, &wait->deadline, task->deadline_ns);
    }
}

/* Serves as on_over of a task that waits. */
static void waiter_is_gone(void *arg, tmsg_task_t *task, tmsg_status_t status)
{
    tmsg_fetch_wait_t *wait = arg;
    tmsg_hub_t *hub = task->server->hub;
    bool mine;

    (void)status;
    tmsg_hub_lock(hub);
    mine = wait->waits;
    if (mine) {
        tmsg_waits_end(hub, wait);
    }
    tmsg_hub_unlock(hub);
    if (mine) {
        drop_wait(hub, wait);
    }
}

/* Copies what a request by name asks for: its message goes, and with it what
 * else a peer has put there. */
static tmsg_status_t copy_request(const tmsg_map_t *request,
                                  const tmsg_fetch_ask_t *ask,
                                  tmsg_fetch_wait_t *wait)
{
    uint64_t bytes = 0;
    tmsg_status_t status = tmsg_map_create(&wait->request);

    if (status == TMSG_OK) {
        status = tmsg_map_set_string(wait->request, TMSG_FETCH_NAME, ask->name);
    }
    if (status == TMSG_OK) {
        status = tmsg_map_set_i64(wait->request, TMSG_FETCH_AT_LEAST,
                                  (int64_t)ask->at_least);
    }
    if (status == TMSG_OK && ask->has_epoch) {
        status = tmsg_map_set_i64(wait->request, TMSG_FETCH_EPOCH,
                                  (int64_t)ask->epoch);
    }
    if (status == TMSG_OK && ask->borrows) {
        status = tmsg_map_set_bool(wait->request, TMSG_FETCH_LOAN, true);
    }
    if (status == TMSG_OK && ask->has_slices) {
        status = tmsg_slices_copy(request, wait->request, &bytes);
    }
    if (status == TMSG_OK) {
        status = tmsg_fetch_read(wait->request, &wait->ask);
    }
    wait->places = 1 + (uint32_t)(bytes / TMSG_WAIT_PLACE_BYTES);
    return status;
}

/* Makes a wait, if there is room for one more. Lock not held. */
static tmsg_status_t make_wait(tmsg_task_t *task, const tmsg_fetch_ask_t *ask,
                               tmsg_fetch_wait_t **wait_p)
{
    tmsg_hub_t *hub = task->server->hub;
    tmsg_fetch_wait_t *wait = calloc(1, sizeof(*wait));
    tmsg_status_t status;

    if (wait == NULL) {
        return tmsg_error_memory("a fetch that waits");
    }
    wait->task = task;
    wait->name = tmsg_offer_name_key(ask->name, strlen(ask->name));
    status = copy_request(tmsg_task_map(task), ask, wait);
    if (status == TMSG_OK && wait->places > TMSG_WAITS_OF_A_PEER) {
        status = refuse_ask("its slices are too many to wait");
    }
    if (status == TMSG_OK) {
        tmsg_hub_lock(hub);
        status = tmsg_waits_take_place(hub, wait);
        tmsg_hub_unlock(hub);
        tmsg_hub_wake(hub); /* for those that it has pushed out */
    }
    if (status != TMSG_OK) {
        tmsg_map_destroy(wait->request);
        free(wait);
        return status;
    }
    wait->task = tmsg_task_keep(task);
    *wait_p = wait;
    return TMSG_OK;
}

/* Has a fetch wait until an offer comes, or its time is up. */
static void wait_for_offer(tmsg_task_t *task, const tmsg_fetch_ask_t *ask)
{
    tmsg_hub_t *hub = task->server->hub;
    tmsg_fetch_wait_t *wait = NULL;
    uint64_t at_ns = 0;
    tmsg_status_t status = make_wait(task, ask, &wait);

    if (status != TMSG_OK) {
        fail_fetch(task, status);
        return;
    }
    wait->event.fire = look_again;
    wait->patience.expire = wait_is_up;
    wait->deadline.expire = deadline_is_over;
    tmsg_task_on_over(task, waiter_is_gone, wait);
    tmsg_hub_lock(hub);
    move_deadline(hub, wait);
    if (ask->wait_ms > 0) {
        uint64_t ms =
            ask->wait_ms < WAIT_MS_MOST ? (uint64_t)ask->wait_ms : WAIT_MS_MOST;

        at_ns = tmsg_calls_now_ns() + ms * 1000000;
        if (!tmsg_lifetime_begin(hub, &wait->patience, at_ns)) {
            at_ns = 0;
        }
    }
    /* An offer may have come since it was looked for. */
    tmsg_hub_tell(hub, &wait->event);
    tmsg_hub_unlock(hub);
    if (at_ns != 0) {
        tmsg_calls_alarm(hub->calls, at_ns);
    }
    tmsg_hub_wake(hub);
}

void tmsg_offer_answer(void *arg, tmsg_task_t *task)
{
    const tmsg_map_t *request = tmsg_task_map(task);
    tmsg_fetch_ask_t ask;
    bool waits = false;
    tmsg_status_t status = tmsg_fetch_read(request, &ask);

    (void)arg;
    if (status == TMSG_OK) {
        waits = ask.name != NULL && ask.wait_ms != 0;
        status = try_to_answer(task, request, &ask, !waits);
    }
    if (status == TMSG_ERR_NOT_FOUND && waits) {
        wait_for_offer(task, &ask);
    } else if (status != TMSG_OK) {
        fail_fetch(task, status);
    }
}
