/* SPDX-License-Identifier: BSD-3-Clause */
/* tests/netns/test_addresses.py has UCX take them. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

#include "am/ucx/first.h"

#define MOST 6

/* A list as getifaddrs(3) makes it, and how it is written here: "name
 * address" each. */
typedef struct {
    struct ifaddrs entries[MOST];
    char names[MOST][16];
    char hosts[MOST][INET6_ADDRSTRLEN];
    union {
        struct sockaddr any;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    } addresses[MOST];
} list_t;

static void make(list_t *list, const char *text)
{
    int used;

    memset(list, 0, sizeof(*list));
    for (size_t i = 0; *text != '\0'; i++, text += used) {
        struct ifaddrs *entry = &list->entries[i];

        cr_assert(i < MOST);
        cr_assert(sscanf(text, "%15s %45s%n", list->names[i], list->hosts[i],
                         &used) == 2);
        if (i > 0) {
            list->entries[i - 1].ifa_next = entry;
        }
        entry->ifa_name = list->names[i];
        entry->ifa_flags = (unsigned)i; /* goes with the address */
        entry->ifa_addr = &list->addresses[i].any;
        if (strcmp(list->hosts[i], "-") == 0) {
            entry->ifa_addr = NULL;
        } else if (strchr(list->hosts[i], ':') != NULL) {
            entry->ifa_addr->sa_family = AF_INET6;
            inet_pton(AF_INET6, list->hosts[i],
                      &list->addresses[i].in6.sin6_addr);
        } else {
            entry->ifa_addr->sa_family = AF_INET;
            inet_pton(AF_INET, list->hosts[i], &list->addresses[i].in.sin_addr);
        }
    }
}

static struct in6_addr address(const char *text)
{
    char mapped[INET6_ADDRSTRLEN + 8];
    struct in6_addr ip;

    snprintf(mapped, sizeof(mapped), "%s%s",
             strchr(text, ':') == NULL ? "::ffff:" : "", text);
    cr_assert(inet_pton(AF_INET6, mapped, &ip) == 1);
    return ip;
}

static const struct {
    const char *list, *wanted, *order; /* of their addresses, afterwards */
} rows[] = {
    {"e 10.0.0.1 e 10.0.0.2", "10.0.0.2", "e1 e0"},
    {"e 10.0.0.1 e 10.0.0.2", "10.0.0.1", "e0 e1"},
    {"e 10.0.0.1 e 10.0.0.2 e 10.0.0.3", "10.0.0.3", "e2 e1 e0"},
    {"e - e 10.0.0.1 e fd00::1 e fd00::2", "fd00::2", "e0 e1 e3 e2"},
    {"e fd00::1 e 10.0.0.1", "10.0.0.1", "e0 e1"},
    {"e fe80::1 e fd00::1 e fd00::2", "fd00::2", "e2 e1 e0"},
    {"f 10.0.0.2 e 10.0.0.1 e 10.0.0.2", "10.0.0.2", "f0 e2 e1"},
    {"e 10.0.0.1 e:1 10.0.0.2", "10.0.0.2", "e1 e:10"},
    {"e:1 10.0.0.2 e 10.0.0.1", "10.0.0.2", "e:11 e0"},
    {"ee 10.0.0.1 e 10.0.0.3", "10.0.0.3", "ee0 e1"},
    {"e 10.0.0.1", "10.0.0.2", "e0"},
    {"f 10.0.0.1 f 10.0.0.2", "10.0.0.2", "f0 f1"},
};

Test(first, puts_an_address_before_the_others_of_its_device)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct in6_addr ip = address(rows[i].wanted);
        char order[64] = "";
        list_t list;

        make(&list, rows[i].list);
        tmsg_first_sort(list.entries, "e", &ip);
        for (const struct ifaddrs *at = list.entries; at != NULL;
             at = at->ifa_next) {
            snprintf(order + strlen(order), sizeof(order) - strlen(order),
                     "%s%s%u", order[0] == '\0' ? "" : " ", at->ifa_name,
                     at->ifa_flags);
        }
        cr_expect_str_eq(order, rows[i].order, "%s: %s", rows[i].list, order);
    }
}

/* Of libucs as it is loaded here. */
Test(first, libucs_can_be_led)
{
    struct in6_addr ip = address("10.9.8.7");

    cr_expect(tmsg_first_begin("lo", &ip));
    cr_expect(tmsg_first_begin("lo", &ip), "again");
    tmsg_first_end();
    tmsg_first_end();
    cr_expect(tmsg_first_begin("lo", &ip), "anew");
    tmsg_first_end();
}
