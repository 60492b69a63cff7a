/* SPDX-License-Identifier: BSD-3-Clause */
#include "run.h"

#include <stdlib.h>
#include <string.h>

#include "control.h"
#include "measure/contents.h"
#include "signals.h"

#define NS_PER_MS UINT64_C(1000000)
#define PATIENT_BYTES (32ULL << 20) /* these add a second to the timeout */

typedef struct run run_t;

/* Holds a message or call that may be in flight beside others. */
typedef struct {
    run_t *run;
    size_t copy;
    uint64_t begun_ns, made_ns, posted_ns;
} slot_t;

struct run {
    perf_peer_t *peer;
    load_t *load;
    const perf_plan_t *plan;
    unsigned measure, in_flight;
    slot_t *slots;
    slot_t **idle;
    unsigned idle_count;
    uint64_t sent;
    uint64_t heard_ns; /* time of the last answer */
    result_t *result;  /* where results are counted, or NULL */
    bool failed;       /* an error has been printed */
};

static bool fail_run(run_t *run, const char *words)
{
    if (!run->failed) {
        complain("%s", words);
    }
    run->failed = true;
    return false;
}

static void count_slot(const run_t *run, const slot_t *slot, uint64_t end_ns)
{
    result_t *result = run->result;
    uint64_t ways = run->measure == PERF_LATENCY ? 2 : 1;

    if (result == NULL) {
        return;
    }
    histogram_add(&result->times, (end_ns - slot->begun_ns) / ways);
    if (run->plan->phases) {
        histogram_add(&result->prepare, slot->made_ns - slot->begun_ns);
        histogram_add(&result->post, slot->posted_ns - slot->made_ns);
        histogram_add(&result->transfer, end_ns - slot->posted_ns);
    }
}

static void check_returned_map(run_t *run, const tmsg_map_t *map)
{
    char why[CONTENTS_WHY_BYTES];

    if (run->plan->verify && !contents_check(map, why) && !run->failed) {
        complain("--verify: %s sent back other data than were sent: %s",
                 run->peer->url, why);
        run->failed = true;
    }
}

static void note_slot_sent(void *arg, tmsg_status_t status, const char *error)
{
    slot_t *slot = arg;
    run_t *run = slot->run;

    run->idle[run->idle_count++] = slot;
    if (status != TMSG_OK) {
        fail_run(run, error);
    } else if (run->measure == PERF_BANDWIDTH) {
        run->heard_ns = now_ns();
        count_slot(run, slot, run->heard_ns);
    }
}

static void note_slot_replied(void *arg, tmsg_call_t *call)
{
    slot_t *slot = arg;
    run_t *run = slot->run;

    run->idle[run->idle_count++] = slot;
    if (tmsg_call_status(call) != TMSG_OK) {
        fail_run(run, tmsg_call_error(call));
        return;
    }
    run->heard_ns = now_ns();
    count_slot(run, slot, run->heard_ns);
    check_returned_map(run, tmsg_call_reply(call));
}

static tmsg_status_t hand_over(run_t *run, slot_t *slot, const tmsg_map_t *map)
{
    const tmsg_send_params_t send = {
        .field_mask = TMSG_SEND_PARAM_FLAGS | TMSG_SEND_PARAM_POLICY |
                      TMSG_SEND_PARAM_ON_DONE,
        .flags = run->measure == PERF_BANDWIDTH ? TMSG_SEND_ACKED : 0,
        .policy = TMSG_POLICY_STRICT,
        .on_done = note_slot_sent,
        .on_done_arg = slot,
    };
    const tmsg_call_params_t call = {
        .field_mask = TMSG_CALL_PARAM_ON_DONE,
        .on_done = note_slot_replied,
        .on_done_arg = slot,
    };

    return run->measure == PERF_CALLS
               ? tmsg_endpoint_call(run->peer->endpoint, PERF_ECHO, map, &call,
                                    NULL)
               : tmsg_endpoint_send(run->peer->endpoint, map, &send, NULL);
}

/* Sends the next message. Requires an idle slot. */
static slot_t *post_slot(run_t *run)
{
    slot_t *slot = run->idle[--run->idle_count];
    tmsg_map_t *map;

    slot->begun_ns = slot->made_ns = slot->posted_ns = now_ns();
    if (run->plan->phases) {
        map = perf_load_renew(run->load, slot->copy, run->sent);
        slot->made_ns = slot->posted_ns = now_ns();
    } else {
        map = perf_load_map(run->load, slot->copy, run->sent);
    }
    if (map == NULL) {
        /* perf_load_renew() has printed why. */
        run->idle[run->idle_count++] = slot;
        run->failed = true;
        return slot;
    }
    if (hand_over(run, slot, map) != TMSG_OK) {
        run->idle[run->idle_count++] = slot;
        fail_run(run, tmsg_error_message());
        return slot;
    }
    run->sent++;
    if (run->plan->phases) {
        slot->posted_ns = now_ns();
    }
    return slot;
}

/* Like that of `tensormsg send`, it grows with the bytes that are in flight. */
static uint64_t patience_ns(const run_t *run)
{
    uint64_t bytes = run->load->copy_bytes * run->in_flight;
    uint64_t ms = (uint64_t)run->peer->options->connection.timeout_ms;

    return (ms + bytes / PATIENT_BYTES * 1000) * NS_PER_MS;
}

/* Tells whether the peer, or the user, has ended the measurement: nothing has
 * come back for so long that it has failed, or a signal came and what was in
 * flight had time to come back. The answers count and nothing else, because the
 * library of a peer that hangs still sends signs of life. */
static bool is_over(run_t *run, uint64_t at_ns)
{
    uint64_t ns = patience_ns(run);
    char words[400];

    if (signals_grace_is_over()) {
        run->failed = true;
        return true;
    }
    if (at_ns < run->heard_ns + ns) {
        return false;
    }
    snprintf(words, sizeof(words), "%s: nothing came back for %g s (--timeout)",
             run->peer->url, (double)ns / 1e9);
    fail_run(run, words);
    return true;
}

/* Returns false if the measurement is over. */
static bool drive_run(run_t *run)
{
    uint64_t start_ns;
    tmsg_status_t status =
        perf_drive(run->peer->worker, !run->plan->sleep, &start_ns);

    if (status != TMSG_OK && status != TMSG_ERR_TIMED_OUT) {
        return fail_run(run, tmsg_error_message());
    }
    return !is_over(run, start_ns);
}

static bool await_idle(run_t *run, unsigned count)
{
    while (!run->failed && run->idle_count < count) {
        if (!drive_run(run)) {
            return false;
        }
    }
    return !run->failed;
}

static bool await_echo(run_t *run, const slot_t *slot)
{
    tmsg_message_t *message;

    while (!tmsg_endpoint_readable(run->peer->endpoint)) {
        if (!drive_run(run)) {
            return false;
        }
    }
    if (tmsg_endpoint_recv(run->peer->endpoint, 0, &message) != TMSG_OK) {
        return fail_run(run, tmsg_error_message());
    }
    run->heard_ns = now_ns();
    count_slot(run, slot, run->heard_ns);
    check_returned_map(run, tmsg_message_map(message));
    tmsg_message_destroy(message);
    return !run->failed;
}

static bool send_one(run_t *run)
{
    const slot_t *slot;

    if (!await_idle(run, 1)) {
        return false;
    }
    slot = post_slot(run);
    return !run->failed &&
           (run->measure != PERF_LATENCY || await_echo(run, slot));
}

/* Sends for `ns` nanoseconds or, if `messages` is not 0, so many messages. */
static bool send_block(run_t *run, uint64_t ns, uint64_t messages)
{
    uint64_t end = now_ns() + ns, last = run->sent + messages;
    bool ok;

    run->heard_ns = now_ns();
    do {
        ok = send_one(run);
    } while (ok && !signals_came() &&
             (messages > 0 ? run->sent < last : now_ns() < end));
    return await_idle(run, run->in_flight) && ok;
}

/* Runs a repetition. Each repetition has other contents. */
static bool run_repetition(run_t *run, result_t *result)
{
    static uint64_t seed;
    uint64_t start, before = run->sent;

    if (run->load->verify && !perf_load_refill(run->load, ++seed)) {
        return false;
    }
    run->result = result;
    start = now_ns();
    if (!send_block(run, run->plan->block_ns, run->plan->messages)) {
        return false;
    }
    result->rates[result->repetitions++] =
        (double)(run->sent - before) * 1e9 / (double)(now_ns() - start);
    return perf_end(run->peer, run->sent);
}

static bool measure_all(run_t *run, result_t *result)
{
    const perf_plan_t *plan = run->plan;

    if (!perf_begin(run->peer, run->measure == PERF_LATENCY,
                    &run->load->memory) ||
        (run->load->verify && !perf_load_refill(run->load, 0)) ||
        !send_block(run, plan->warmup_ns, 0)) {
        return false;
    }
    for (unsigned i = 0; i < plan->repetitions && !signals_came(); i++) {
        if (!run_repetition(run, result)) {
            return false;
        }
    }
    return true;
}

static bool make_slots(run_t *run)
{
    run->slots = calloc(run->in_flight, sizeof(*run->slots));
    run->idle = calloc(run->in_flight, sizeof(*run->idle));
    if (run->slots == NULL || run->idle == NULL) {
        return fail_run(run, "out of memory");
    }
    while (run->idle_count < run->in_flight) {
        slot_t *slot = &run->slots[run->idle_count];

        *slot = (slot_t){.run = run, .copy = run->idle_count};
        run->idle[run->idle_count++] = slot;
    }
    return true;
}

bool perf_run(perf_peer_t *peer, load_t *load, unsigned measure,
              unsigned in_flight, result_t *result)
{
    run_t run = {
        .peer = peer,
        .load = load,
        .plan = &peer->options->plan,
        .measure = measure,
        .in_flight = measure == PERF_LATENCY ? 1 : in_flight,
    };
    bool ok;

    memset(result, 0, sizeof(*result));
    ok = make_slots(&run) && measure_all(&run, result);
    if (!ok) {
        /* The callbacks of the slots run here, before the slots are freed. */
        perf_peer_drop(peer);
    }
    free(run.slots);
    free(run.idle);
    return ok;
}
