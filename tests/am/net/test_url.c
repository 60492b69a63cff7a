/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "am/net/url.h"
#include "core/shown.h"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

#define TEXT_107                                                               \
    "/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" \
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

static const struct {
    const char *text;
    tmsg_url_kind_t kind;
    const char *host;
    unsigned port;
    const char *path;
    const char *full; /* as it is formatted */
} good[] = {
    {"tcp://127.0.0.1:4000", TMSG_URL_TCP, "127.0.0.1", 4000, "",
     "tcp://127.0.0.1:4000"},
    {"127.0.0.1:0", TMSG_URL_TCP, "127.0.0.1", 0, "", "tcp://127.0.0.1:0"},
    {"node-7.lab_2.example:65535", TMSG_URL_TCP, "node-7.lab_2.example", 65535,
     "", "tcp://node-7.lab_2.example:65535"},
    {"[::1]:80", TMSG_URL_TCP, "::1", 80, "", "tcp://[::1]:80"},
    {"tcp://[fe80::1%eth0]:80", TMSG_URL_TCP, "fe80::1%eth0", 80, "",
     "tcp://[fe80::1%eth0]:80"},
    {"[febf::1%2]:80", TMSG_URL_TCP, "febf::1%2", 80, "",
     "tcp://[febf::1%2]:80"},
    {"blob://[fe80::1]", TMSG_URL_BLOB, "fe80::1", 0, "", "blob://[fe80::1]"},
    {"tcp://[::ffff:10.0.0.1]:1", TMSG_URL_TCP, "::ffff:10.0.0.1", 1, "",
     "tcp://[::ffff:10.0.0.1]:1"},
    {"tcp://:4000", TMSG_URL_TCP, "", 4000, "", "tcp://:4000"},
    {":4000", TMSG_URL_TCP, "", 4000, "", "tcp://:4000"},
    {"tcp://h:00080", TMSG_URL_TCP, "h", 80, "", "tcp://h:80"},
    {"unix:///run/x.sock", TMSG_URL_UNIX, "", 0, "/run/x.sock",
     "unix:///run/x.sock"},
    {"unix:///tmp/a b:[é]", TMSG_URL_UNIX, "", 0, "/tmp/a b:[é]",
     "unix:///tmp/a b:[é]"},
    {"unix://@a/b", TMSG_URL_UNIX, "", 0, "@a/b", "unix://@a/b"},
    {"unix://" TEXT_107, TMSG_URL_UNIX, "", 0, TEXT_107, "unix://" TEXT_107},
    {"ucx://127.0.0.1:13337", TMSG_URL_UCX, "127.0.0.1", 13337, "",
     "ucx://127.0.0.1:13337"},
    {"ucx://[::1]:0", TMSG_URL_UCX, "::1", 0, "", "ucx://[::1]:0"},
    {"ucx://:7", TMSG_URL_UCX, "", 7, "", "ucx://:7"},
    {"blob://", TMSG_URL_BLOB, "", 0, "", "blob://"},
    {"blob://10.1.2.3", TMSG_URL_BLOB, "10.1.2.3", 0, "", "blob://10.1.2.3"},
    {"blob://[::1]", TMSG_URL_BLOB, "::1", 0, "", "blob://[::1]"},
};

Test(url, parses_and_formats_every_form)
{
    char text[TMSG_URL_TEXT_BYTES];

    for (size_t i = 0; i < COUNT(good); i++) {
        tmsg_url_t url;

        memset(&url, 0xee, sizeof(url));
        cr_assert(eq(int, tmsg_url_parse(good[i].text, &url), TMSG_OK), "%s",
                  good[i].text);
        cr_expect(eq(int, (int)url.kind, (int)good[i].kind), "%s",
                  good[i].text);
        cr_expect_str_eq(url.host, good[i].host);
        cr_expect(eq(uint, url.port, good[i].port), "%s", good[i].text);
        cr_expect_str_eq(url.path, good[i].path);
        cr_expect_str_eq(tmsg_url_format(&url, text, sizeof(text)),
                         good[i].full);
    }
}

static const struct {
    const char *text;
    const char *why;
} bad[] = {
    {"", "it is empty"},
    {"tcp://", "no port"},
    {"ucx://host", "no port"},
    {"ucx://host:65536", "not within 0 to 65535"},
    {"ucxx://host:1", "not one of tcp:// unix:// blob:// ucx://"},
    {"localhost", "no port"},
    {"localhost:", "no port"},
    {"[::1]", "no port"},
    {"[::1]x:1", "only a port can follow"},
    {"host:port", "not a decimal number"},
    {"host:-1", "not a decimal number"},
    {"host:+1", "not a decimal number"},
    {"host: 1", "not a decimal number"},
    {"host:1 ", "not a decimal number"},
    {"tcp://host:80/", "not a decimal number"},
    {"host:65536", "not within 0 to 65535"},
    {"host:18446744073709551617", "not within 0 to 65535"},
    {"::1:80", "stands in brackets"},
    {"1:2:3", "stands in brackets"},
    {"[::1:80", "never closed"},
    {"[]:80", "not an IPv6 address"},
    {"[127.0.0.1]:80", "not an IPv6 address"},
    {"[host]:80", "not an IPv6 address"},
    {"[fe80::1%]:80", "not an IPv6 address"},
    {"[fe80::1%a/b]:80", "not an IPv6 address"},
    {"[fe80::1]:80", "needs its network device as the zone"},
    {"tcp://[febf::1]:80", "needs its network device as the zone"},
    {"ucx://[fe80::1]:80", "needs its network device as the zone"},
    {"[fd00::1%eth0]:80", "for link-local addresses"},
    {"tcp://[::1%lo]:80", "for link-local addresses"},
    {"ucx://[fec0::1%2]:80", "for link-local addresses"},
    {"blob://[2001:db8::1%eth0]", "for link-local addresses"},
    {"[11111111111111111111111111111111111111111111111111]:80",
     "not an IPv6 address"},
    {"ho st:80", "no host name has"},
    {"user@host:80", "no host name has"},
    {"tcp:///:80", "no host name has"},
    {"h\xc3\xb6st:80", "no host name has"},
    {"host\n:80", "no host name has"},
    {"unix://run/x.sock", "not absolute"},
    {"unix://", "not absolute"},
    {"unix://@", "no name follows the @"},
    {"unix://@a\nb", "a control character"},
    {"unix:///", "names no file"},
    {"unix:///tmp/", "names no file"},
    {"unix:///tmp/a\nb", "a control character"},
    {"unix:///tmp/\x1b[31m", "a control character"},
    {"unix:///tmp/\x7f", "a control character"},
    {"unix:///tmp/\xc2\x85", "a control character"},
    {"unix:///tmp/\xe2\x80\xa8", "a control character"},
    {"unix:///tmp/\xe2\x80\xaegnp", "another invisible one"},
    {"unix://" TEXT_107 "a", "longer than 107"},
    {"blob://host:80", "nothing can follow"},
    {"blob://[::1]:80", "nothing can follow"},
    {"TCP://host:80", "scheme is not one of"},
    {"http://host:80", "scheme is not one of"},
};

Test(url, refuses_what_is_no_url_and_says_why)
{
    for (size_t i = 0; i < COUNT(bad); i++) {
        tmsg_url_t url = {.port = 77};
        char shown[512];

        cr_assert(
            eq(int, tmsg_url_parse(bad[i].text, &url), TMSG_ERR_INVALID_PARAM),
            "'%s'", bad[i].text);
        tmsg_shown_format(shown, sizeof(shown), "%s", bad[i].text);
        cr_expect(strstr(tmsg_error_message(), shown) != NULL,
                  "'%s' is not in '%s'", shown, tmsg_error_message());
        cr_expect(strstr(tmsg_error_message(), bad[i].why) != NULL,
                  "'%s' is not in '%s'", bad[i].why, tmsg_error_message());
        cr_expect(eq(uint, url.port, 77), "'%s' changed the output",
                  bad[i].text);
    }
}

Test(url, refuses_null)
{
    tmsg_url_t url;

    cr_assert(eq(int, tmsg_url_parse(NULL, &url), TMSG_ERR_INVALID_PARAM));
}

Test(url, takes_a_host_of_255_characters_and_no_more)
{
    char text[300], formatted[TMSG_URL_TEXT_BYTES];
    tmsg_url_t url;

    memset(text, 'a', sizeof(text));
    memcpy(text + 255, ":80", 4);
    cr_assert(eq(int, tmsg_url_parse(text, &url), TMSG_OK));
    tmsg_url_format(&url, formatted, sizeof(formatted));
    cr_assert_str_eq(formatted + strlen("tcp://"), text);

    memcpy(text + 255, "a:80", 5);
    cr_assert(eq(int, tmsg_url_parse(text, &url), TMSG_ERR_INVALID_PARAM));
    cr_assert(strstr(tmsg_error_message(), "longer than 255") != NULL, "%s",
              tmsg_error_message());
}

static const char *format(const void *address, size_t bytes)
{
    static char text[TMSG_URL_TEXT_BYTES];

    return tmsg_url_format_sockaddr(address, (socklen_t)bytes, text,
                                    sizeof(text));
}

Test(url, formats_ip_addresses)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(4000)};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6,
                               .sin6_port = htons(4000)};

    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    cr_expect_str_eq(format(&in, sizeof(in)), "tcp://127.0.0.1:4000");
    in6.sin6_addr = in6addr_loopback;
    cr_expect_str_eq(format(&in6, sizeof(in6)), "tcp://[::1]:4000");
    inet_pton(AF_INET6, "::ffff:10.0.0.7", &in6.sin6_addr);
    cr_expect_str_eq(format(&in6, sizeof(in6)), "tcp://10.0.0.7:4000");
    inet_pton(AF_INET6, "fe80::7", &in6.sin6_addr);
    in6.sin6_scope_id = if_nametoindex("lo");
    cr_expect_str_eq(format(&in6, sizeof(in6)), "tcp://[fe80::7%lo]:4000");
    in6.sin6_scope_id = 999999;
    cr_expect_str_eq(format(&in6, sizeof(in6)), "tcp://[fe80::7%999999]:4000");
}

Test(url, formats_unix_and_unknown_addresses)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX, .sun_path = "/run/x"};
    struct sockaddr unknown = {.sa_family = AF_UNSPEC};

    cr_expect_str_eq(format(&un, sizeof(un)), "unix:///run/x");
    cr_expect_str_eq(format(&un, offsetof(struct sockaddr_un, sun_path)),
                     "unix://");
    strcpy(un.sun_path, "/run/a\nb\xe2\x80\xae"); /* a peer may bind this */
    cr_expect_str_eq(format(&un, sizeof(un)), "unix:///run/a\\x0ab\\u202e");
    memcpy(un.sun_path, "\0x\ny", 5);
    cr_expect_str_eq(format(&un, offsetof(struct sockaddr_un, sun_path) + 4),
                     "unix://@x\\x0ay");
    memset(un.sun_path, 'a', sizeof(un.sun_path));
    cr_expect(eq(sz, strlen(format(&un, sizeof(un))), 7 + 108));
    cr_expect_str_eq(format(&unknown, sizeof(unknown)), "unknown address");
    un.sun_family = AF_INET; /* cut off */
    cr_expect_str_eq(format(&un, 4), "unknown address");
}

Test(url, cuts_what_does_not_fit)
{
    struct sockaddr_in in = {.sin_family = AF_INET};
    char text[8];

    tmsg_url_format_sockaddr((const struct sockaddr *)&in, sizeof(in), text,
                             sizeof(text));
    cr_assert_str_eq(text, "tcp://0");
}
