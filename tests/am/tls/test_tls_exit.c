/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* A process ends while threads of the library are in TLS. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/must.h"
#include "support/numbered_keys.h"

#define PROCESSES 8
#define DIALS 10
#define PAUSE_US 1500
#define LINGER_US 100000

/* What the threads have at the exit is no leak, and they are not stopped for a
 * look at it. */
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) { return 1; }

static void linger(void) { usleep(LINGER_US); }

/* Dials its own listener, and exits. OpenSSL ends before linger(). */
_Noreturn static void work(unsigned dials)
{
    const tmsg_worker_params_t driven = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
                                         .flags = TMSG_WORKER_SHARED |
                                                  TMSG_WORKER_THREAD};
    tmsg_keyring_t *keyring = ring("client", 1);
    const tmsg_listener_params_t listening = {
        .field_mask = TMSG_LISTENER_PARAM_KEYRING, .keyring = keyring};
    const tmsg_endpoint_params_t dialling = {
        .field_mask = TMSG_ENDPOINT_PARAM_KEYRING, .keyring = keyring};
    tmsg_worker_t *listens, *dial;
    tmsg_listener_t *listener;
    tmsg_endpoint_t *endpoint;
    tmsg_context_t *context;

    atexit(linger);
    must(tmsg_context_create(NULL, &context));
    must(tmsg_worker_create(context, &driven, &listens));
    must(tmsg_worker_create(context, &driven, &dial));
    must(tmsg_listener_create(listens, "tls://127.0.0.1:0", &listening,
                              &listener));
    while (dials-- > 0) {
        must(tmsg_endpoint_connect(dial, tmsg_listener_url(listener), &dialling,
                                   &endpoint));
        usleep(PAUSE_US);
    }
    exit(0);
}

Test(tls_exit, may_come_while_threads_are_in_tls)
{
    pid_t processes[PROCESSES];

    for (unsigned i = 0; i < PROCESSES; i++) {
        processes[i] = fork();
        if (processes[i] == 0) {
            work(DIALS + i);
        }
    }
    for (unsigned i = 0; i < PROCESSES; i++) {
        int ended;

        must_true(waitpid(processes[i], &ended, 0) == processes[i]);
        must_eq(ended, 0);
    }
}
