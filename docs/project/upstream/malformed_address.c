/* SPDX-License-Identifier: BSD-3-Clause */
/* A worker address of which bytes are changed ends the process that gives it to
 * ucp_ep_create(), which is not told how long it is and takes what it says.
 *
 *     cc -o malformed_address malformed_address.c $(pkg-config --cflags --libs
 * ucx)
 *     ./malformed_address [SEED]
 *
 * Exits with 1 where the fault is seen, 0 where it is not, 2 where it cannot be
 * told. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

enum { ROUNDS = 200, PADDING = 4096 };

/* Of 1 to 4 bytes of the address. */
static void change(uint8_t *address, size_t bytes)
{
    for (int i = 1 + rand() % 4; i > 0; i--) {
        address[(size_t)rand() % bytes] = (uint8_t)rand();
    }
}

/* A process of its own: UCX does not survive a fork(). */
static int dial(unsigned seed)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                           .features = UCP_FEATURE_AM};
    ucp_worker_params_t worker_params = {.field_mask = 0};
    ucp_ep_params_t ep_params = {.field_mask =
                                     UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    ucp_address_t *own;
    ucp_context_h context;
    ucp_worker_h worker;
    uint8_t *copy;
    size_t bytes;
    ucp_ep_h ep;

    if (ucp_init(&params, NULL, &context) != UCS_OK ||
        ucp_worker_create(context, &worker_params, &worker) != UCS_OK ||
        ucp_worker_get_address(worker, &own, &bytes) != UCS_OK) {
        return 2;
    }
    copy = calloc(1, bytes + PADDING);
    if (copy == NULL) {
        return 2;
    }
    memcpy(copy, own, bytes);
    srand(seed);
    change(copy, bytes);
    ep_params.address = (const ucp_address_t *)(const void *)copy;
    if (ucp_ep_create(worker, &ep_params, &ep) == UCS_OK) {
        for (int i = 0; i < 100; i++) {
            ucp_worker_progress(worker);
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    unsigned seed = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
    const struct rlimit none = {0, 0};
    int killed = 0;

    setenv("UCX_TLS", "tcp,posix,self", 1);
    setenv("UCX_NET_DEVICES", "lo", 1);
    setenv("UCX_HANDLE_ERRORS", "none", 1);
    setenv("UCX_LOG_LEVEL", "fatal", 1);
    setrlimit(RLIMIT_CORE, &none);
    for (unsigned i = 0; i < ROUNDS; i++) {
        int status;
        pid_t child = fork();

        if (child == 0) {
            alarm(10);
            _exit(dial(seed + i));
        }
        waitpid(child, &status, 0);
        if (WIFSIGNALED(status)) {
            killed++;
            printf("seed %u: signal %d (%s)\n", seed + i, WTERMSIG(status),
                   strsignal(WTERMSIG(status)));
            fflush(stdout);
        }
    }
    printf("UCX %s: %d of %d changed addresses end the process\n",
           ucp_get_version_string(), killed, ROUNDS);
    return killed > 0;
}
