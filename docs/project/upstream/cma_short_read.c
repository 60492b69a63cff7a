/* SPDX-License-Identifier: BSD-3-Clause */
/* UCX takes a read of the peer's memory that ended early for the whole: the
 * receiver is told UCS_OK, and has bytes that nobody sent.
 *
 *     cc -o cma_short_read cma_short_read.c $(pkg-config --cflags --libs ucx)
 *
 * Exits with 1 where the fault is seen, 0 where it is not, 2 where it cannot be
 * told. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

enum { ALL = 2 << 20, LEFT = ALL - (64 << 10), SECONDS = 10 };

static ucp_worker_h worker;

static void check(ucs_status_t status, const char *what)
{
    if (status != UCS_OK) {
        fprintf(stderr, "%s: %s\n", what, ucs_status_string(status));
        _exit(2);
    }
}

/* A worker, and an endpoint to the other process's. */
static ucp_ep_h meet(int in, int out)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                           .features = UCP_FEATURE_TAG};
    ucp_worker_params_t worker_params = {.field_mask = 0};
    ucp_ep_params_t ep_params = {.field_mask =
                                     UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    ucp_address_t *own;
    ucp_context_h context;
    size_t bytes;
    ucp_ep_h ep;
    void *other;

    check(ucp_init(&params, NULL, &context), "ucp_init");
    check(ucp_worker_create(context, &worker_params, &worker), "worker");
    check(ucp_worker_get_address(worker, &own, &bytes), "address");
    if (write(out, &bytes, sizeof(bytes)) != sizeof(bytes) ||
        write(out, own, bytes) != (ssize_t)bytes ||
        read(in, &bytes, sizeof(bytes)) != sizeof(bytes)) {
        _exit(2);
    }
    other = malloc(bytes);
    if (other == NULL || read(in, other, bytes) != (ssize_t)bytes) {
        _exit(2);
    }
    ep_params.address = other;
    check(ucp_ep_create(worker, &ep_params, &ep), "endpoint");
    return ep;
}

static ucs_status_t finish(void *request)
{
    time_t end = time(NULL) + SECONDS;
    ucs_status_t status = UCS_INPROGRESS;

    if (!UCS_PTR_IS_PTR(request)) {
        return UCS_PTR_STATUS(request);
    }
    while (status == UCS_INPROGRESS && time(NULL) < end) {
        ucp_worker_progress(worker);
        status = ucp_request_check_status(request);
    }
    return status;
}

/* The end of what is sent is unmapped, as by a bug, or as it is where a
 * mapped file was cut. */
static void sender(int in, int out)
{
    const ucp_request_param_t param = {.op_attr_mask = 0};
    ucp_ep_h ep = meet(in, out);
    uint8_t *data = mmap(NULL, ALL, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    memset(data, 0x11, ALL);
    munmap(data + LEFT, ALL - LEFT);
    printf(
        "the sender is told: %s\n",
        ucs_status_string(finish(ucp_tag_send_nbx(ep, data, ALL, 1, &param))));
    fflush(stdout);
}

static int receiver(int in, int out)
{
    const ucp_request_param_t param = {.op_attr_mask = 0};
    uint8_t *data = malloc(ALL);
    ucs_status_t status;
    size_t right = 0;

    meet(in, out);
    memset(data, 0xee, ALL);
    status =
        finish(ucp_tag_recv_nbx(worker, data, ALL, 1, ~(ucp_tag_t)0, &param));
    while (right < ALL && data[right] == 0x11) {
        right++;
    }
    printf("UCX %s\nthe receiver is told: %s; %zu of %d bytes were sent\n",
           ucp_get_version_string(), ucs_status_string(status), right, ALL);
    fflush(stdout);
    return status == UCS_OK && right < ALL;
}

int main(void)
{
    int to[2], from[2], fault;
    pid_t child;

    setenv("UCX_TLS", "posix,cma,self", 1);
    if (pipe(to) != 0 || pipe(from) != 0) {
        return 2;
    }
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    child = fork();
    if (child == 0) {
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
        sender(to[0], from[1]);
        _exit(0);
    }
    fault = receiver(from[0], to[1]);
    waitpid(child, NULL, 0);
    return fault;
}
