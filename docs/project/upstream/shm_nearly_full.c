/* SPDX-License-Identifier: BSD-3-Clause */
/* UCX 1.19 to 1.22 crash in ucp_worker_create() where some 16 MiB are free in
 * /dev/shm: the transport is found while there are more, and takes memory from
 * the heap when there are less, which has no handle.
 *
 *     cc -o shm_nearly_full shm_nearly_full.c $(pkg-config --cflags --libs ucx)
 *
 * It mounts a small /dev/shm in a namespace of its own, for which it is root or
 * may make user namespaces. Exits with 1 where the fault is seen, 0 where it is
 * not, 2 where it cannot be told. */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

enum { FIRST_KIB = 15872, LAST_KIB = 20992, STEP_KIB = 256 };

/* Returns 0 if UCX opens, or how it does not. */
static int open_ucx(void)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                           .features = UCP_FEATURE_AM};
    ucp_worker_params_t worker_params = {.field_mask = 0};
    ucp_context_h context;
    ucp_worker_h worker;

    if (ucp_init(&params, NULL, &context) != UCS_OK) {
        return 3;
    }
    return ucp_worker_create(context, &worker_params, &worker) == UCS_OK ? 0
                                                                         : 4;
}

static int is_killed_with(int kib)
{
    char options[64];
    int status;
    pid_t child = fork();

    if (child == 0) {
        snprintf(options, sizeof(options), "size=%dk", kib);
        if (mount("tmpfs", "/dev/shm", "tmpfs", 0, options) != 0) {
            perror("mount");
            _exit(2);
        }
        _exit(open_ucx());
    }
    waitpid(child, &status, 0);
    umount("/dev/shm");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 2) {
        exit(2);
    }
    if (WIFSIGNALED(status)) {
        printf("%d KiB free: signal %d (%s)\n", kib, WTERMSIG(status),
               strsignal(WTERMSIG(status)));
    }
    return WIFSIGNALED(status);
}

int main(void)
{
    int killed = 0;

    setenv("UCX_TLS", "posix,self", 1);
    setenv("UCX_HANDLE_ERRORS", "none", 1);
    setenv("UCX_LOG_LEVEL", "fatal", 1);
    if (unshare((geteuid() == 0 ? 0 : CLONE_NEWUSER) | CLONE_NEWNS) != 0 ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
        perror("a mount namespace");
        return 2;
    }
    printf("UCX %s\n", ucp_get_version_string());
    fflush(stdout);
    for (int kib = FIRST_KIB; kib <= LAST_KIB; kib += STEP_KIB) {
        killed += is_killed_with(kib);
        fflush(stdout);
    }
    printf("%d of %d sizes of /dev/shm end the process\n", killed,
           (LAST_KIB - FIRST_KIB) / STEP_KIB + 1);
    return killed > 0;
}
