/* SPDX-License-Identifier: BSD-3-Clause */
/* UCX leaves room for the address of a peer by the family of its own device's
 * first address, which is IPv4, and puts an IPv6 address there: who listens at
 * an IPv6 address, with all else as it is, writes and reads beyond the end of
 * heap memory when a peer comes.
 *
 *     cc -fsanitize=address -o ipv6_listener ipv6_listener.c \
 *         $(pkg-config --cflags --libs ucx)
 *
 * It gives "lo" an IPv6 address in a namespace of its own, for which it is root
 * or may make user namespaces. Exits with 1, and AddressSanitizer's report,
 * where the fault is seen, 0 where it is not, 2 where it cannot be told. */
#include <arpa/inet.h>
#include <linux/ipv6.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#define ADDRESS "fd00::7"

enum { PORT = 4567, TURNS = 3000 };

static ucp_worker_h server, client;
static int came;

static void must(int ok, const char *what)
{
    if (!ok) {
        perror(what);
        exit(2);
    }
}

static void add_address(void)
{
    int four = socket(AF_INET, SOCK_DGRAM, 0);
    int six = socket(AF_INET6, SOCK_DGRAM, 0);
    struct ifreq request = {.ifr_name = "lo"};
    struct in6_ifreq request6 = {.ifr6_prefixlen = 64,
                                 .ifr6_ifindex = (int)if_nametoindex("lo")};

    request.ifr_flags = IFF_UP | IFF_RUNNING;
    must(ioctl(four, SIOCSIFFLAGS, &request) == 0, "lo up");
    inet_pton(AF_INET6, ADDRESS, &request6.ifr6_addr);
    must(ioctl(six, SIOCSIFADDR, &request6) == 0, "an IPv6 address");
    close(four);
    close(six);
}

static void accept_peer(ucp_conn_request_h request, void *arg)
{
    const ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST, .conn_request = request};
    ucp_ep_h ep;

    (void)arg;
    came++;
    printf("a peer came: %s\n",
           ucs_status_string(ucp_ep_create(server, &params, &ep)));
    fflush(stdout);
}

static void ended(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)arg;
    (void)ep;
    printf("the connection ends: %s\n", ucs_status_string(status));
}

static void open_workers(void)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                           .features = UCP_FEATURE_AM};
    ucp_worker_params_t worker_params = {.field_mask = 0};
    ucp_context_h context;

    if (ucp_init(&params, NULL, &context) != UCS_OK ||
        ucp_worker_create(context, &worker_params, &server) != UCS_OK ||
        ucp_worker_create(context, &worker_params, &client) != UCS_OK) {
        exit(2);
    }
}

static void meet(void)
{
    struct sockaddr_in6 at = {.sin6_family = AF_INET6,
                              .sin6_port = htons(PORT)};
    const ucs_sock_addr_t address = {(const struct sockaddr *)(const void *)&at,
                                     sizeof(at)};
    ucp_listener_params_t door = {.field_mask =
                                      UCP_LISTENER_PARAM_FIELD_SOCK_ADDR |
                                      UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
                                  .sockaddr = address,
                                  .conn_handler = {accept_peer, NULL}};
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
        .flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
        .sockaddr = address,
        .err_handler = {ended, NULL},
        .err_mode = UCP_ERR_HANDLING_MODE_PEER};
    ucp_listener_h listener;
    ucp_ep_h ep;

    inet_pton(AF_INET6, ADDRESS, &at.sin6_addr);
    if (ucp_listener_create(server, &door, &listener) != UCS_OK ||
        ucp_ep_create(client, &params, &ep) != UCS_OK) {
        exit(2);
    }
}

int main(int argc, char **argv)
{
    const struct timespec pause = {.tv_nsec = 1000000};

    if (argc == 1) { /* UCX patches no function that AddressSanitizer has */
        setenv("UCX_MEM_MMAP_HOOK_MODE", "none", 1);
        setenv("UCX_HANDLE_ERRORS", "none", 1);
        setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
        execl("/proc/self/exe", argv[0], "again", NULL);
        return 2;
    }
    must(unshare((geteuid() == 0 ? 0 : CLONE_NEWUSER) | CLONE_NEWNET) == 0,
         "a network namespace");
    add_address();
    nanosleep(&(struct timespec){.tv_sec = 2}, NULL); /* the kernel tries it */
    setenv("UCX_TLS", "tcp", 1);
    setenv("UCX_NET_DEVICES", "lo", 1);
    printf("UCX %s\n", ucp_get_version_string());
    fflush(stdout);
    open_workers();
    meet();
    for (int i = 0; i < TURNS; i++) {
        ucp_worker_progress(server);
        ucp_worker_progress(client);
        nanosleep(&pause, NULL);
    }
    printf("%d peers came, and nothing was seen\n", came);
    return came == 0 ? 2 : 0;
}
