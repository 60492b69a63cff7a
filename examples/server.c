/* server: answers calls of "double" at tcp://127.0.0.1:13338 until it is
 * killed. */
#include <stdio.h>
#include <stdlib.h>
#include <tensormsg/tensormsg.h>

static void check(tmsg_status_t status)
{
    if (status != TMSG_OK) {
        fprintf(stderr, "server: %s\n", tmsg_error_message());
        exit(1);
    }
}

/* The call's own tensors are writable, and are sent back. */
static void twice(void *arg, tmsg_task_t *task)
{
    const tmsg_map_t *map = tmsg_task_map(task);
    tmsg_tensor_t x;

    (void)arg;
    if (tmsg_map_find(map, "x", &x) != TMSG_OK || x.ndim != 1 ||
        x.dtype.code != TMSG_DTYPE_FLOAT || x.dtype.bits != 32) {
        tmsg_task_fail(task, TMSG_ERR_INVALID_PARAM, 0,
                       "'x' is to be float32[n]", NULL);
        return;
    }
    for (int64_t i = 0; i < x.shape[0]; i++) {
        ((float *)x.data)[i] *= 2;
    }
    tmsg_task_reply(task, map, NULL);
}

int main(int argc, char **argv)
{
    const char *url = argc > 1 ? argv[1] : "tcp://127.0.0.1:13338";
    tmsg_context_t *context;
    tmsg_worker_t *worker;
    tmsg_listener_t *listener;
    tmsg_server_t *server;

    check(tmsg_context_create(NULL, &context));
    check(tmsg_worker_create(context, NULL, &worker));
    check(tmsg_server_create(worker, NULL, &server));
    check(tmsg_server_register(server, "double", twice, NULL, NULL));
    check(tmsg_listener_create(worker, url, NULL, &listener));
    for (;;) {
        check(tmsg_worker_wait(worker, -1));
    }
}
