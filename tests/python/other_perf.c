/* SPDX-License-Identifier: BSD-3-Clause */
/* What answers like the `tensormsg perf --listen` of another age, until its
 * standard input ends. */
#include <poll.h>
#include <stdio.h>

#include <tensormsg/tensormsg.h>

static void hello(void *arg, tmsg_task_t *task)
{
    tmsg_map_t *map = NULL;

    (void)arg;
    if (tmsg_map_create(&map) == TMSG_OK &&
        tmsg_map_set_i64(map, "protocol", 99) == TMSG_OK &&
        tmsg_map_set_string(map, "version", "9.8.7") == TMSG_OK) {
        (void)tmsg_task_reply(task, map, NULL);
    }
    tmsg_map_destroy(map);
}

int main(void)
{
    struct pollfd input = {.events = POLLIN};
    tmsg_context_t *context;
    tmsg_worker_t *worker;
    tmsg_server_t *server;
    tmsg_listener_t *listener;

    if (tmsg_context_create(NULL, &context) != TMSG_OK ||
        tmsg_worker_create(context, NULL, &worker) != TMSG_OK ||
        tmsg_server_create(worker, NULL, &server) != TMSG_OK ||
        tmsg_server_register(server, "perf.hello", hello, NULL, NULL) !=
            TMSG_OK ||
        tmsg_listener_create(worker, "tcp://127.0.0.1:0", NULL, &listener) !=
            TMSG_OK) {
        fprintf(stderr, "%s\n", tmsg_error_message());
        return 1;
    }
    puts(tmsg_listener_url(listener));
    fflush(stdout);
    while (poll(&input, 1, 0) == 0) {
        (void)tmsg_worker_wait(worker, 20);
    }
    tmsg_server_destroy(server);
    tmsg_worker_destroy(worker);
    tmsg_context_destroy(context);
    return 0;
}
