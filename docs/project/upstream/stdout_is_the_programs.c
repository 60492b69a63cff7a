/* SPDX-License-Identifier: BSD-3-Clause */
/* UCX writes its log to stdout, which is the program's: whatever reads the
 * output of the program gets UCX's lines among its data.
 *
 *     cc -o stdout_is_the_programs stdout_is_the_programs.c \
 *         $(pkg-config --cflags --libs ucx)
 *
 * Exits with 1 where the fault is seen, 0 where it is not, 2 where it cannot be
 * told. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

/* A transport that this UCX has not is enough for a warning. */
static void write_data(void)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                           .features = UCP_FEATURE_AM};
    ucp_context_h context;

    setenv("UCX_TLS", "self,of_another_version", 1);
    if (ucp_init(&params, NULL, &context) == UCS_OK) {
        ucp_cleanup(context);
    }
    printf("data\n");
    fflush(stdout);
}

int main(void)
{
    char got[4096];
    size_t bytes = 0;
    ssize_t n;
    int out[2];
    pid_t child;

    if (pipe(out) != 0) {
        return 2;
    }
    child = fork();
    if (child == 0) {
        dup2(out[1], STDOUT_FILENO);
        write_data();
        _exit(0);
    }
    close(out[1]);
    while (bytes < sizeof(got) - 1 &&
           (n = read(out[0], got + bytes, sizeof(got) - 1 - bytes)) > 0) {
        bytes += (size_t)n;
    }
    got[bytes] = '\0';
    waitpid(child, NULL, 0);
    printf("UCX %s\nof the program's output, of 5 bytes, %zu came:\n%s",
           ucp_get_version_string(), bytes, got);
    return strcmp(got, "data\n") != 0;
}
