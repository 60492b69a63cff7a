/* SPDX-License-Identifier: BSD-3-Clause */
/* Prints the metrics of a caller, or of a server, as Prometheus reads them,
 * after calls to three methods, one of them with a name that has to be escaped:
 * the first argument so often, "fail" twice, and "kept" once, which goes on.
 * Then one that the server rejects, and one of a method that it has not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/peers.h"
#include "support/seeded_maps.h"

#define ODD "a\"b\\c\nd\xc3\xbc{e=\"f\"}, "

enum { BYTES = 1000 };

static tmsg_task_t *kept;
static tmsg_call_t *goes_on;
static tmsg_server_t *server;

static void echo(void *arg, tmsg_task_t *task)
{
    (void)arg;
    must(tmsg_task_reply(task, tmsg_task_map(task), NULL));
}

static void fail(void *arg, tmsg_task_t *task)
{
    (void)arg;
    must(tmsg_task_fail(task, TMSG_ERR_APPLICATION, 1, "so", NULL));
}

static void keep(void *arg, tmsg_task_t *task)
{
    (void)arg;
    kept = tmsg_task_keep(task);
}

static bool has_ended(void *arg)
{
    return tmsg_call_status(arg) != TMSG_IN_PROGRESS;
}

static bool is_kept(void *arg)
{
    (void)arg;
    return kept != NULL;
}

static tmsg_call_t *begin(pair_t *pair, const char *method)
{
    tmsg_map_t *map = sample_bytes(1, BYTES);
    tmsg_call_t *call;

    must(tmsg_endpoint_call(pair->to_a, method, map, NULL, &call));
    tmsg_map_destroy(map);
    return call;
}

static void call(pair_t *pair, const char *method, tmsg_status_t wanted)
{
    tmsg_call_t *made = begin(pair, method);

    pair_await(pair, has_ended, made, "the end of a call");
    must_be(tmsg_call_status(made), wanted);
    tmsg_call_destroy(made);
}

static void play(pair_t *pair, unsigned count)
{
    const tmsg_method_params_t one = {
        .field_mask = TMSG_METHOD_PARAM_CONCURRENCY | TMSG_METHOD_PARAM_QUEUE,
        .concurrency = 1,
        .queue = 0};

    must(tmsg_server_create(pair->a.worker, NULL, &server));
    must(tmsg_server_register(server, ODD, echo, NULL, NULL));
    must(tmsg_server_register(server, "fail", fail, NULL, NULL));
    must(tmsg_server_register(server, "kept", keep, NULL, &one));
    for (unsigned i = 0; i < count; i++) {
        call(pair, ODD, TMSG_OK);
    }
    call(pair, "fail", TMSG_ERR_APPLICATION);
    call(pair, "fail", TMSG_ERR_APPLICATION);
    goes_on = begin(pair, "kept");
    pair_await(pair, is_kept, NULL, "a task");
    call(pair, "kept", TMSG_ERR_RESOURCE_EXHAUSTED);
    call(pair, "strange", TMSG_ERR_NOT_FOUND);
}

int main(int argc, char **argv)
{
    bool caller = argc == 3 && strcmp(argv[1], "caller") == 0;
    pair_t pair;
    char *text;

    must_true(argc == 3);
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    must(tmsg_metrics_start(pair.a.worker));
    must(tmsg_metrics_start(pair.b.worker));
    play(&pair, (unsigned)strtoul(argv[2], NULL, 10));
    must(tmsg_metrics_text(caller ? pair.b.worker : pair.a.worker, &text));
    fputs(text, stdout);
    tmsg_string_free(text);
    tmsg_call_destroy(goes_on);
    tmsg_task_destroy(kept);
    tmsg_server_destroy(server);
    pair_close(&pair);
    return 0;
}
