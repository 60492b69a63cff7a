/* SPDX-License-Identifier: BSD-3-Clause */
/* UCX uses the first address of a network device, IPv4 before IPv6, and no key
 * names another: a peer that reaches the second one alone is not met.
 *
 *     cc -o first_address first_address.c $(pkg-config --cflags --libs ucx)
 *
 * It gives "lo" further addresses in a namespace of its own, for which it is
 * root or may make user namespaces. Exits with 1 where the fault is seen, 0
 * where it is not, 2 where it cannot be told. */
#include <arpa/inet.h>
#include <linux/ipv6.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#define SECOND4 "192.0.2.7"
#define SECOND6 "fd00::7"

static void must(int ok, const char *what)
{
    if (!ok) {
        perror(what);
        exit(2);
    }
}

static void add_addresses(void)
{
    int four = socket(AF_INET, SOCK_DGRAM, 0);
    int six = socket(AF_INET6, SOCK_DGRAM, 0);
    struct ifreq request = {.ifr_name = "lo"};
    struct sockaddr_in *address =
        (struct sockaddr_in *)(void *)&request.ifr_addr;
    struct in6_ifreq request6 = {.ifr6_prefixlen = 64,
                                 .ifr6_ifindex = (int)if_nametoindex("lo")};

    request.ifr_flags = IFF_UP | IFF_RUNNING;
    must(ioctl(four, SIOCSIFFLAGS, &request) == 0, "lo up");
    memset(&request.ifr_addr, 0, sizeof(request.ifr_addr));
    strcpy(request.ifr_name, "lo:1");
    address->sin_family = AF_INET;
    inet_pton(AF_INET, SECOND4, &address->sin_addr);
    must(ioctl(four, SIOCSIFADDR, &request) == 0, "a second address");
    inet_pton(AF_INET6, SECOND6, &request6.ifr6_addr);
    must(ioctl(six, SIOCSIFADDR, &request6) == 0, "an IPv6 address");
    close(four);
    close(six);
}

/* The address at which a process of this namespace listens. */
static void find_listening(const char *path, int family, char *text)
{
    char line[512];
    FILE *file = fopen(path, "r");

    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        unsigned words[4] = {0}, state;
        int found =
            family == AF_INET
                ? sscanf(line, " %*d: %8x:%*x %*x:%*x %x", words, &state)
                : sscanf(line, " %*d: %8x%8x%8x%8x:%*x %*x:%*x %x", words,
                         words + 1, words + 2, words + 3, &state);

        if (found == (family == AF_INET ? 2 : 5) && state == 10) {
            inet_ntop(family, words, text, INET6_ADDRSTRLEN);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
}

static void listen_by_ucx(const char *key, const char *value, char *text)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                           .features = UCP_FEATURE_AM};
    ucp_worker_params_t worker_params = {.field_mask = 0};
    ucp_context_h context;
    ucp_worker_h worker;

    setenv(key, value, 1);
    if (ucp_init(&params, NULL, &context) != UCS_OK ||
        ucp_worker_create(context, &worker_params, &worker) != UCS_OK) {
        strcpy(text, "UCX does not open");
        return;
    }
    find_listening("/proc/self/net/tcp", AF_INET, text);
    find_listening("/proc/self/net/tcp6", AF_INET6, text);
}

/* Tells where UCX listens, and returns whether that is at the address. */
static int is_at(const char *address, const char *key, const char *value)
{
    char text[INET6_ADDRSTRLEN] = "nowhere";
    int out[2];

    must(pipe(out) == 0, "pipe");
    if (fork() == 0) {
        listen_by_ucx(key, value, text);
        _exit(write(out[1], text, sizeof(text)) != sizeof(text));
    }
    must(read(out[0], text, sizeof(text)) == sizeof(text), "the child");
    wait(NULL);
    printf("%s=%s: UCX listens at %s\n", key, value, text);
    fflush(stdout);
    return strcmp(text, address) == 0;
}

int main(void)
{
    if (unshare((geteuid() == 0 ? 0 : CLONE_NEWUSER) | CLONE_NEWNET) != 0) {
        perror("a network namespace");
        return 2;
    }
    setenv("UCX_TLS", "tcp", 1);
    setenv("UCX_NET_DEVICES", "lo", 1);
    add_addresses();
    printf("UCX %s; lo has 127.0.0.1, " SECOND4 ", ::1 and " SECOND6 "\n",
           ucp_get_version_string());
    fflush(stdout);
    is_at(SECOND4, "UCX_TCP_AF_PRIO", "inet,inet6");
    is_at(SECOND4, "UCX_TCP_AF_PRIO", "inet6,inet");
    return !is_at(SECOND4, "UCX_TCP_ADDR", SECOND4); /* the patch's */
}
