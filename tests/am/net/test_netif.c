/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "am/net/netif.h"

typedef union {
    struct sockaddr any;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
    struct sockaddr_un un;
} sa_t;

static sa_t make(const char *text)
{
    sa_t sa;

    memset(&sa, 0, sizeof(sa));
    if (strchr(text, ':') != NULL) {
        sa.in6.sin6_family = AF_INET6;
        cr_assert(inet_pton(AF_INET6, text, &sa.in6.sin6_addr) == 1);
    } else {
        sa.in.sin_family = AF_INET;
        cr_assert(inet_pton(AF_INET, text, &sa.in.sin_addr) == 1);
    }
    return sa;
}

static const struct {
    const char *address;
    bool is_loopback, is_any;
} kinds[] = {
    {"127.0.0.1", true, false},
    {"127.255.255.254", true, false},
    {"126.255.255.255", false, false},
    {"128.0.0.1", false, false},
    {"0.0.0.0", false, true},
    {"0.0.0.1", false, false},
    {"10.0.0.127", false, false},
    {"::1", true, false},
    {"::", false, true},
    {"::2", false, false},
    {"::127.0.0.1", false, false},
    {"::ffff:127.0.0.1", true, false},
    {"::ffff:127.9.9.9", true, false},
    {"::ffff:10.0.0.1", false, false},
    {"::ffff:0.0.0.0", false, true},
    {"fe80::1", false, false},
    {"7f00::1", false, false},
};

Test(netif, knows_loopback_and_any)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        sa_t sa = make(kinds[i].address);

        cr_expect(
            eq(int, tmsg_netif_is_loopback(&sa.any), kinds[i].is_loopback),
            "%s", kinds[i].address);
        cr_expect(eq(int, tmsg_netif_is_any(&sa.any), kinds[i].is_any), "%s",
                  kinds[i].address);
    }
}

Test(netif, takes_unix_for_loopback_and_others_for_nothing)
{
    sa_t sa = {.any.sa_family = AF_UNIX};

    cr_expect(tmsg_netif_is_loopback(&sa.any));
    cr_expect(not(tmsg_netif_is_any(&sa.any)));
    sa.any.sa_family = AF_UNSPEC;
    cr_expect(not(tmsg_netif_is_loopback(&sa.any)));
    cr_expect(not(tmsg_netif_is_any(&sa.any)));
}

Test(netif, finds_the_loopback_device_for_every_loopback_address)
{
    static const char *const addresses[] = {"127.0.0.1", "127.8.8.8", "::1",
                                            "::ffff:127.0.0.1"};

    for (size_t i = 0; i < 4; i++) {
        sa_t sa = make(addresses[i]);
        char name[IFNAMSIZ];

        cr_assert(eq(int, tmsg_netif_of_address(&sa.any, name), TMSG_OK), "%s",
                  addresses[i]);
        cr_expect(if_nametoindex(name) != 0, "%s", name);
        cr_expect_str_eq(name, "lo");
    }
}

Test(netif, finds_the_device_of_every_address_of_this_machine)
{
    struct ifaddrs *devices;

    cr_assert(getifaddrs(&devices) == 0);
    for (struct ifaddrs *d = devices; d != NULL; d = d->ifa_next) {
        char name[IFNAMSIZ] = "";
        int family = d->ifa_addr != NULL ? d->ifa_addr->sa_family : AF_UNSPEC;

        if (family != AF_INET && family != AF_INET6) {
            continue;
        }
        cr_assert(eq(int, tmsg_netif_of_address(d->ifa_addr, name), TMSG_OK),
                  "%s", d->ifa_name);
        cr_expect(strncmp(name, d->ifa_name, strcspn(d->ifa_name, ":")) == 0,
                  "%s is not %s", name, d->ifa_name);
    }
    freeifaddrs(devices);
}

Test(netif, says_which_address_no_device_has)
{
    sa_t sa = make("192.0.2.77"); /* of the documentation's network */
    char name[IFNAMSIZ] = "kept";

    cr_assert(
        eq(int, tmsg_netif_of_address(&sa.any, name), TMSG_ERR_NOT_FOUND));
    cr_expect(strstr(tmsg_error_message(), "192.0.2.77") != NULL, "%s",
              tmsg_error_message());
    cr_expect_str_eq(name, "kept");
    sa = make("2001:db8::77");
    cr_assert(
        eq(int, tmsg_netif_of_address(&sa.any, name), TMSG_ERR_NOT_FOUND));
    cr_expect(strstr(tmsg_error_message(), "2001:db8::77") != NULL, "%s",
              tmsg_error_message());
}

Test(netif, refuses_other_families)
{
    sa_t sa = {.any.sa_family = AF_UNIX};
    char name[IFNAMSIZ];

    cr_assert(
        eq(int, tmsg_netif_of_address(&sa.any, name), TMSG_ERR_INVALID_PARAM));
}

/* A file of a made-up /sys. */
static void put(const char *root, const char *path, const char *text)
{
    char full[512];
    FILE *file;

    snprintf(full, sizeof(full), "mkdir -p $(dirname %s/%s)", root, path);
    cr_assert(eq(int, system(full), 0));
    snprintf(full, sizeof(full), "%s/%s", root, path);
    file = fopen(full, "w");
    cr_assert(file != NULL);
    fputs(text, file);
    fclose(file);
}

Test(netif, finds_the_rdma_devices_of_a_network_device)
{
    char root[] = "/tmp/tmsg-sys-XXXXXX", text[64], remove[64];

    cr_assert(mkdtemp(root) != NULL);
    put(root, "class/net/eth7/device/infiniband/mlx5_3/x", "");
    put(root, "class/net/eth7/dev_port", "1\n");
    put(root, "class/net/lo/type", "772\n");
    cr_expect_str_eq(tmsg_netif_rdma(root, "eth7", text, sizeof(text)),
                     ",mlx5_3:2");
    cr_expect_str_eq(tmsg_netif_rdma(root, "eth7", text, 8), "");
    cr_expect_str_eq(tmsg_netif_rdma(root, "lo", text, sizeof(text)), "");
    cr_expect_str_eq(tmsg_netif_rdma(root, "none", text, sizeof(text)), "");
    snprintf(remove, sizeof(remove), "rm -r %s", root);
    cr_assert(eq(int, system(remove), 0));
}
