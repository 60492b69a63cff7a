/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/stall.h"

#include <stdio.h>

#include "core/log.h"
#include "core/shown.h"
#include "core/ticks.h"

#define LONG_NS 1e9 /* of a handler on the thread that progresses */
#define LOOK_NS UINT64_C(500000000) /* between two looks */
#define LOOKS 2                     /* in vain: the method is stalled */
#define SILENT_NS (UINT64_C(60) * 1000000000) /* between a method's lines */

void tmsg_stall_begin(tmsg_task_t *task)
{
    task->waits = true;
    task->server->load.waiting++;
    task->method->load.waiting++;
}

void tmsg_stall_put_off(tmsg_task_t *task)
{
    task->put_off = true;
    task->server->load.put_off++;
    task->method->load.put_off++;
}

void tmsg_stall_end(tmsg_task_t *task, bool begins)
{
    tmsg_load_t *loads[] = {&task->server->load, &task->method->load};

    for (int i = 0; i < 2; i++) {
        loads[i]->waiting--;
        loads[i]->put_off -= task->put_off;
    }
    task->waits = false;
    task->put_off = false;
    if (begins) {
        task->method->begun++;
        task->method->stalled = false;
    }
}

static unsigned running(const tmsg_load_t *load)
{
    return load->running - load->put_off;
}

void tmsg_stall_why(const tmsg_method_t *method, char *words, size_t room)
{
    const tmsg_server_t *server = method->server;

    if (method->load.put_off > 0) {
        snprintf(words, room,
                 "%u calls run there, and no thread is free for another",
                 running(&server->load));
    } else if (method->load.running >= method->load.concurrency) {
        snprintf(words, room,
                 "%u calls of '%s' run there, as many as may (concurrency)",
                 method->load.running, tmsg_shown_short(method->name).text);
    } else if (server->load.running >= server->load.concurrency) {
        snprintf(words, room,
                 "%u calls run there, as many as may (concurrency)",
                 server->load.running);
    } else {
        snprintf(words, room, "another handler runs there");
    }
}

/* Returns how many tasks of the same method wait and came before this one. */
static unsigned count_before(const tmsg_task_t *task)
{
    unsigned count = 0;

    for (tmsg_node_t *node = task->node.previous; node != NULL;
         node = node->previous) {
        const tmsg_task_t *before = TMSG_CONTAINER_OF(node, tmsg_task_t, node);

        count += before->waits && before->method == task->method;
    }
    return count;
}

void tmsg_stall_late(const tmsg_task_t *task, char *words, size_t room)
{
    char why[TMSG_STALL_WORDS], before[48] = "";
    unsigned count;

    if (!task->waits) {
        snprintf(words, room, "its request had not come when its time was up");
        return;
    }
    tmsg_stall_why(task->method, why, sizeof(why));
    count = count_before(task);
    if (count > 0) {
        snprintf(before, sizeof(before), ", and %u waited before it", count);
    }
    snprintf(words, room, "its turn had not come when its time was up: %s%s",
             why, before);
}

const tmsg_method_t *tmsg_stall_find(const tmsg_server_t *server)
{
    const tmsg_method_t *method = server->methods;

    while (method != NULL && !method->stalled) {
        method = method->next;
    }
    return method;
}

bool tmsg_stall_starves(const tmsg_server_t *server, char *words, size_t room)
{
    const tmsg_hub_t *hub = server->hub;

    return !atomic_load(&hub->over) &&
           tmsg_calls_starve_for(hub->calls, LOOKS * LOOK_NS, words, room);
}

/* Looks whether a task of the method has begun since the last look. Returns
 * whether the log is to say that none has. */
static bool look_at(tmsg_method_t *method, uint64_t now_ns)
{
    bool stalls, says = false;

    method->looks = method->begun == method->begun_seen ? method->looks + 1 : 0;
    stalls = method->looks >= LOOKS;
    if (stalls && !method->stalled) {
        method->stalls++;
        says = method->said_ns == 0 || now_ns - method->said_ns > SILENT_NS;
    }
    if (says) {
        method->said_ns = now_ns;
        method->to_say = true;
    }
    method->stalled = stalls;
    method->begun_seen = method->begun;
    return says;
}

/* Serves as `expire` of the watch. */
static void look(tmsg_lifetime_t *lifetime)
{
    tmsg_server_t *server = TMSG_CONTAINER_OF(lifetime, tmsg_server_t, watch);
    uint64_t now_ns = tmsg_calls_now_ns();
    bool says = false;

    for (tmsg_method_t *method = server->methods; method != NULL;
         method = method->next) {
        if (method->load.waiting > 0) {
            says = look_at(method, now_ns) || says;
        } else {
            method->looks = 0;
            method->stalled = false;
        }
    }
    if (server->load.waiting > 0) {
        (void)tmsg_lifetime_begin(server->hub, &server->watch,
                                  now_ns + LOOK_NS);
    }
    if (says && !server->says) {
        server->says = true;
        server->refs++;
        tmsg_hub_tell(server->hub, &server->saying);
    }
}

/* Writes the lines of the methods that look_at() has found. Each line is made
 * with the lock, and written without it. */
static void say(tmsg_rpc_event_t *event)
{
    tmsg_server_t *server = TMSG_CONTAINER_OF(event, tmsg_server_t, saying);
    tmsg_hub_t *hub = server->hub;
    char why[TMSG_STALL_WORDS];
    bool last;

    tmsg_hub_lock(hub);
    server->says = false;
    for (tmsg_method_t *method = server->methods; method != NULL;
         method = method->next) {
        tmsg_load_t load = method->load;

        if (!method->to_say) {
            continue;
        }
        method->to_say = false;
        tmsg_stall_why(method, why, sizeof(why));
        tmsg_hub_unlock(hub);
        tmsg_log(TMSG_LOG_WARN,
                 "method '%s': %u calls wait, and none has begun for a second: "
                 "%s. Have handlers answer, or allow more at once; further "
                 "stalls of this method are counted",
                 tmsg_shown_short(method->name).text, load.waiting, why);
        tmsg_hub_lock(hub);
    }
    last = --server->refs == 0;
    tmsg_hub_unlock(hub);
    if (last) {
        tmsg_server_free(server);
    }
}

uint64_t tmsg_stall_watch(tmsg_server_t *server)
{
    uint64_t at_ns;

    if (server->load.waiting == 0 || server->watch.node.number != 0 ||
        server->hub->server != server) {
        return 0;
    }
    for (tmsg_method_t *method = server->methods; method != NULL;
         method = method->next) {
        method->looks = 0;
        method->begun_seen = method->begun;
    }
    at_ns = tmsg_calls_now_ns() + LOOK_NS;
    server->watch.expire = look;
    server->saying.fire = say;
    return tmsg_lifetime_begin(server->hub, &server->watch, at_ns) ? at_ns : 0;
}

void tmsg_stall_forget(tmsg_server_t *server)
{
    tmsg_lifetime_end(server->hub, &server->watch);
}

void tmsg_stall_report(const tmsg_server_t *server, const tmsg_method_t *method,
                       tmsg_health_report_t *report)
{
    const tmsg_load_t *load = method == NULL ? &server->load : &method->load;

    report->running = running(load);
    report->waiting = load->waiting;
    report->held = load->held;
    report->stalls = method == NULL ? 0 : method->stalls;
    for (const tmsg_method_t *each = server->methods;
         method == NULL && each != NULL; each = each->next) {
        report->stalls += each->stalls;
    }
}

void tmsg_stall_count(tmsg_hub_t *hub, tmsg_calls_counts_t *counts)
{
    tmsg_health_report_t report;

    tmsg_hub_lock(hub);
    if (hub->server != NULL) {
        tmsg_stall_report(hub->server, NULL, &report);
        counts->running_calls += report.running;
        counts->waiting_calls += report.waiting;
        counts->held_calls += report.held;
        counts->stalls += report.stalls;
    }
    tmsg_hub_unlock(hub);
}

/* The counter's rate is what it was since the server was created. */
void tmsg_stall_held(tmsg_method_t *method, uint64_t ticks)
{
    tmsg_server_t *server = method->server;
    uint64_t now = tmsg_ticks(), since = now - server->ticks;
    double ns = (double)(tmsg_calls_now_ns() - server->ticks_ns);
    double took_ns =
        since == 0 ? 0 : (double)(now - ticks) * ns / (double)since;
    bool first;

    if (took_ns < LONG_NS) {
        return;
    }
    tmsg_hub_lock(server->hub);
    first = method->longs++ == 0;
    tmsg_hub_unlock(server->hub);
    if (first) {
        tmsg_log(
            TMSG_LOG_WARN,
            "method '%s': its handler has held the thread that progresses "
            "for %.1f s, and nothing else of this worker went on. Give the "
            "server threads, or have it answer later; further times are "
            "counted",
            tmsg_shown_short(method->name).text, took_ns / LONG_NS);
    }
}
