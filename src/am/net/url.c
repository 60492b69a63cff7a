/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/net/url.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "core/error.h"
#include "core/shown.h"

#define QUOTED_BYTES 301 /* most bytes of a text that an error quotes */

/* Says what follows the scheme. */
typedef enum { HOST_PORT, HOST, PATH } form_t;

#define SCHEME_ROW(NAME, name, form) {#name, form},
#define SCHEME_WORD(NAME, name, form) " " #name "://"

static const struct {
    const char *name;
    form_t form;
} schemes[TMSG_URL_KINDS] = {TMSG_SCHEMES(SCHEME_ROW)};

static form_t form_of(const tmsg_url_t *url) { return schemes[url->kind].form; }

static tmsg_status_t bad_url(const char *text, const char *why)
{
    char shown[QUOTED_BYTES];

    tmsg_shown_format(shown, sizeof(shown), "%s", text);
    return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "URL '%s': %s", shown, why);
}

/* Returns whether a host may have the character. isalnum() would depend on the
 * program's locale, which a host must not. */
static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';
}

static bool is_name(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (!is_name_char(text[i])) {
            return false;
        }
    }
    return true;
}

static bool is_ipv6(const char *host, struct in6_addr *parsed)
{
    char address[INET6_ADDRSTRLEN];
    size_t length = strcspn(host, "%");

    if (length >= sizeof(address)) {
        return false;
    }
    memcpy(address, host, length);
    address[length] = '\0';
    if (inet_pton(AF_INET6, address, parsed) != 1) {
        return false;
    }
    return host[length] == '\0' ||
           (host[length + 1] != '\0' &&
            is_name(host + length + 1, strlen(host + length + 1)));
}

/* Returns what is wrong with the zone of an address, or NULL. fe80::1 is on
 * every device, and its zone says which one is meant; all other addresses are
 * on one. A URL without a port only names a device, for which the first will
 * do. */
static const char *wrong_zone(const tmsg_url_t *url,
                              const struct in6_addr *address)
{
    bool has_zone = strchr(url->host, '%') != NULL;
    bool is_local =
        IN6_IS_ADDR_LINKLOCAL(address) || IN6_IS_ADDR_MULTICAST(address);

    if (has_zone && !is_local) {
        return "a zone (what follows %) is for link-local addresses, fe80::, "
               "alone: leave it out";
    }
    return !has_zone && IN6_IS_ADDR_LINKLOCAL(address) &&
                   form_of(url) == HOST_PORT
               ? "a link-local address needs its network device as the zone, "
                 "as in [fe80::1%eth0]"
               : NULL;
}

/* Takes the host off the front. *rest_p is what follows it. */
static tmsg_status_t take_host(const char *text, const char *from,
                               tmsg_url_t *url, const char **rest_p)
{
    bool bracketed = *from == '[';
    size_t length;
    const char *rest;

    from += bracketed;
    length = strcspn(from, bracketed ? "]" : ":");
    rest = from + length;
    if (bracketed && *rest == '\0') {
        return bad_url(text, "'[' is never closed");
    }
    if (length >= sizeof(url->host)) {
        return bad_url(text, "the host is longer than 255 characters");
    }
    memcpy(url->host, from, length);
    if (bracketed) {
        const char *wrong = "the text in brackets is not an IPv6 address";
        struct in6_addr address;

        rest++;
        if (is_ipv6(url->host, &address)) {
            wrong = wrong_zone(url, &address);
        }
        if (wrong != NULL) {
            return bad_url(text, wrong);
        }
    } else if (!is_name(from, length)) {
        return bad_url(text, "the host has a character that no host name has");
    } else if (*rest == ':' && strchr(rest + 1, ':') != NULL) {
        return bad_url(text, "an IPv6 address stands in brackets, [::1]:80");
    }
    *rest_p = rest;
    return TMSG_OK;
}

static tmsg_status_t take_port(const char *text, const char *from,
                               tmsg_url_t *url)
{
    unsigned port = 0;

    if (*from == '\0' || strcmp(from, ":") == 0) {
        return bad_url(text, "no port: host:port is needed");
    }
    if (*from++ != ':') {
        return bad_url(text, "only a port can follow the host");
    }
    for (; *from != '\0'; from++) {
        if (*from < '0' || *from > '9') {
            return bad_url(text, "the port is not a decimal number");
        }
        port = port * 10 + (unsigned)(*from - '0');
        if (port > UINT16_MAX) {
            return bad_url(text, "the port is not within 0 to 65535");
        }
    }
    url->port = (uint16_t)port;
    return TMSG_OK;
}

/* Returns whether a path has a character that cannot be seen, such as a line
 * end, which would make two lines of one in a log. Bytes that are not UTF-8 are
 * allowed: the file system takes them, and a log escapes them. */
static bool hides_something(const char *path, size_t length)
{
    for (size_t i = 0; i < length;) {
        uint32_t code;

        i += tmsg_shown_read(path + i, length - i, &code);
        if ((code & TMSG_SHOWN_BYTE) == 0 && tmsg_shown_hides(code)) {
            return true;
        }
    }
    return false;
}

static tmsg_status_t take_path(const char *text, const char *from,
                               tmsg_url_t *url)
{
    size_t length = strlen(from);
    bool is_abstract = *from == TMSG_URL_ABSTRACT;

    if (*from != '/' && !is_abstract) {
        return bad_url(text, "the path is not absolute: unix:///run/x.sock, or "
                             "without a file unix://@name");
    }
    if (is_abstract && length == 1) {
        return bad_url(text, "no name follows the @");
    }
    if (!is_abstract && from[length - 1] == '/') {
        return bad_url(text, "the path names no file");
    }
    if (hides_something(from, length)) {
        return bad_url(
            text, "the path has a control character, or another invisible one");
    }
    if (length >= sizeof(url->path)) {
        return bad_url(text, "the path is longer than 107 bytes, which is all "
                             "that a socket address holds");
    }
    memcpy(url->path, from, length);
    return TMSG_OK;
}

/* Takes the scheme off the front. Text without a scheme means tcp. *rest_p is
 * what follows the scheme. */
static tmsg_status_t take_scheme(const char *text, tmsg_url_t *url,
                                 const char **rest_p)
{
    for (int kind = 0; kind < TMSG_URL_KINDS; kind++) {
        size_t length = strlen(schemes[kind].name);

        if (strncmp(text, schemes[kind].name, length) == 0 &&
            strncmp(text + length, "://", 3) == 0) {
            url->kind = (tmsg_url_kind_t)kind;
            *rest_p = text + length + 3;
            return TMSG_OK;
        }
    }
    if (strstr(text, "://") != NULL) {
        return bad_url(text,
                       "the scheme is not one of" TMSG_SCHEMES(SCHEME_WORD));
    }
    if (*text == '\0') {
        return bad_url(text, "it is empty");
    }
    url->kind = TMSG_URL_TCP;
    *rest_p = text;
    return TMSG_OK;
}

tmsg_status_t tmsg_url_parse(const char *text, tmsg_url_t *url_p)
{
    tmsg_url_t url;
    const char *rest = NULL;
    tmsg_status_t status;

    if (text == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "the URL is NULL");
    }
    memset(&url, 0, sizeof(url));
    status = take_scheme(text, &url, &rest);
    if (status == TMSG_OK && form_of(&url) == PATH) {
        status = take_path(text, rest, &url);
    } else if (status == TMSG_OK) {
        status = take_host(text, rest, &url, &rest);
        if (status == TMSG_OK && form_of(&url) == HOST_PORT) {
            status = take_port(text, rest, &url);
        } else if (status == TMSG_OK && *rest != '\0') {
            status = bad_url(text, "nothing can follow the host");
        }
    }
    if (status == TMSG_OK) {
        *url_p = url;
    }
    return status;
}

bool tmsg_url_has_path(const tmsg_url_t *url) { return form_of(url) == PATH; }

bool tmsg_url_is_abstract(const char *path)
{
    return path[0] == TMSG_URL_ABSTRACT;
}

const char *tmsg_url_scheme(tmsg_url_kind_t kind) { return schemes[kind].name; }

const char *tmsg_url_format(const tmsg_url_t *url, char *text, size_t bytes)
{
    const char *scheme = schemes[url->kind].name;
    bool is_v6 = strchr(url->host, ':') != NULL;
    const char *open = is_v6 ? "[" : "";
    const char *close = is_v6 ? "]" : "";

    switch (form_of(url)) {
    case HOST_PORT:
        snprintf(text, bytes, "%s://%s%s%s:%u", scheme, open, url->host, close,
                 url->port);
        break;
    case PATH:
        snprintf(text, bytes, "%s://%s", scheme, url->path);
        break;
    case HOST:
        snprintf(text, bytes, "%s://%s%s%s", scheme, open, url->host, close);
        break;
    }
    return text;
}

static void format_ipv6(const struct sockaddr_in6 *in6, char *text,
                        size_t bytes)
{
    char host[INET6_ADDRSTRLEN];
    char zone[IF_NAMESIZE + 1] = "";
    unsigned port = ntohs(in6->sin6_port);

    if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
        inet_ntop(AF_INET, &in6->sin6_addr.s6_addr[12], host, sizeof(host));
        snprintf(text, bytes, "tcp://%s:%u", host, port);
        return;
    }
    inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host));
    if (in6->sin6_scope_id != 0) {
        zone[0] = '%';
        if (if_indextoname(in6->sin6_scope_id, zone + 1) == NULL) {
            snprintf(zone + 1, sizeof(zone) - 1, "%u", in6->sin6_scope_id);
        }
    }
    snprintf(text, bytes, "tcp://[%s%s]:%u", host, zone, port);
}

static void format_unix(const struct sockaddr_un *un, socklen_t un_bytes,
                        char *text, size_t bytes)
{
    size_t head = offsetof(struct sockaddr_un, sun_path);
    size_t length = un_bytes > head ? un_bytes - head : 0;

    if (length > sizeof(un->sun_path)) {
        length = sizeof(un->sun_path);
    }
    if (length > 1 && un->sun_path[0] == '\0' && un->sun_path[1] != '\0') {
        tmsg_shown_format(text, bytes, "unix://%c%.*s", TMSG_URL_ABSTRACT,
                          (int)length - 1, un->sun_path + 1);
    } else {
        tmsg_shown_format(text, bytes, "unix://%.*s", (int)length,
                          un->sun_path);
    }
}

const char *tmsg_url_format_sockaddr(const struct sockaddr *address,
                                     socklen_t address_bytes, char *text,
                                     size_t bytes)
{
    union {
        sa_family_t family;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
        struct sockaddr_un un;
    } sa;
    char host[INET_ADDRSTRLEN];

    /* The address is copied, because the caller's may be aligned for struct
     * sockaddr only. */
    memset(&sa, 0, sizeof(sa));
    memcpy(&sa, address,
           address_bytes < sizeof(sa) ? address_bytes : sizeof(sa));
    if (sa.family == AF_INET && address_bytes >= sizeof(sa.in)) {
        inet_ntop(AF_INET, &sa.in.sin_addr, host, sizeof(host));
        snprintf(text, bytes, "tcp://%s:%u", host, ntohs(sa.in.sin_port));
    } else if (sa.family == AF_INET6 && address_bytes >= sizeof(sa.in6)) {
        format_ipv6(&sa.in6, text, bytes);
    } else if (sa.family == AF_UNIX && address_bytes >= sizeof(sa.family)) {
        format_unix(&sa.un, address_bytes, text, bytes);
    } else {
        snprintf(text, bytes, "unknown address");
    }
    return text;
}

void tmsg_url_rename(char *text, size_t bytes, tmsg_url_kind_t kind)
{
    char address[TMSG_URL_TEXT_BYTES];

    if (strncmp(text, "tcp://", 6) == 0) {
        snprintf(address, sizeof(address), "%s", text + 6);
        snprintf(text, bytes, "%s://%s", schemes[kind].name, address);
    }
}
