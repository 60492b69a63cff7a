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

/* The call's own tensors are writable, and are sent back. What has another
 * dtype or shape than the signature below says does not come here. */
static void twice(void *arg, tmsg_task_t *task)
{
    const tmsg_map_t *map = tmsg_task_map(task);
    tmsg_tensor_t x;

    (void)arg;
    tmsg_map_find(map, "x", &x);
    for (int64_t i = 0; i < x.shape[0]; i++) {
        ((float *)x.data)[i] *= 2;
    }
    tmsg_task_reply(task, map, NULL);
}

int main(int argc, char **argv)
{
    const tmsg_method_params_t params = {
        .field_mask = TMSG_METHOD_PARAM_SIGNATURE |
                      TMSG_METHOD_PARAM_DESCRIPTION | TMSG_METHOD_PARAM_FLAGS,
        .signature = "(x: float32[n]) -> (x: float32[n])",
        .description = "Twice each element",
        .flags = TMSG_METHOD_IDEMPOTENT, /* to call it again is as once */
    };
    const char *url = argc > 1 ? argv[1] : "tcp://127.0.0.1:13338";
    tmsg_context_t *context;
    tmsg_worker_t *worker;
    tmsg_listener_t *listener;
    tmsg_server_t *server;

    check(tmsg_context_create(NULL, &context));
    check(tmsg_worker_create(context, NULL, &worker));
    check(tmsg_server_create(worker, NULL, &server));
    check(tmsg_server_register(server, "double", twice, NULL, &params));
    check(tmsg_listener_create(worker, url, NULL, &listener));
    for (;;) {
        check(tmsg_worker_wait(worker, -1));
    }
}
