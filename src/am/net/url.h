/* SPDX-License-Identifier: BSD-3-Clause */
/* am/net/url.h - URLs at which to listen or connect, as text and as parts. */
#ifndef TMSG_AM_NET_URL_H
#define TMSG_AM_NET_URL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <tensormsg/status.h>

#define TMSG_URL_HOST_BYTES 256 /* longest host, NUL included */
#define TMSG_URL_PATH_BYTES 108 /* as in sockaddr_un */
#define TMSG_URL_ABSTRACT '@'   /* stands for the NUL of an abstract name */
#define TMSG_URL_TEXT_BYTES 272 /* holds every URL we format, NUL included */

/* Lists the schemes, a line each: SCHEME(NAME, name, what follows "name://").
 * tmsg_scheme_<name> says what a scheme does, see endpoint/scheme.h. */
#define TMSG_SCHEMES(SCHEME)                                                   \
    SCHEME(TCP, tcp, HOST_PORT)                                                \
    SCHEME(UNIX, unix, PATH)                                                   \
    SCHEME(BLOB, blob, HOST)                                                   \
    SCHEME(UCX, ucx, HOST_PORT)                                                \
    SCHEME(TLS, tls, HOST_PORT)

#define TMSG_URL_KIND(NAME, name, form) TMSG_URL_##NAME,

typedef enum { TMSG_SCHEMES(TMSG_URL_KIND) TMSG_URL_KINDS } tmsg_url_kind_t;

typedef struct {
    tmsg_url_kind_t kind;
    char host[TMSG_URL_HOST_BYTES]; /* no brackets; "": loopback */
    uint16_t port;                  /* of HOST_PORT; 0: the kernel picks one */
    char path[TMSG_URL_PATH_BYTES]; /* of PATH: absolute, or "@name" */
} tmsg_url_t;

/* Parses "tcp://host:port", "host:port" (which means tcp), "ucx://host:port",
 * "tls://host:port", "unix:///path", "unix://@name" or "blob://host". IPv6
 * addresses stand in brackets. Only link-local ones have a %zone, which is one
 * of this host's devices. Nothing may follow, and a host holds only what names
 * and addresses hold. Unused fields of *url_p are zeroed. Errors:
 * INVALID_PARAM, with the text and what is wrong with it. */
tmsg_status_t tmsg_url_parse(const char *text, tmsg_url_t *url_p);

/* Writes the URL in its full form, cut to `bytes` and NUL-terminated. Returns
 * `text`. */
const char *tmsg_url_format(const tmsg_url_t *url, char *text, size_t bytes);

/* Writes an address as a URL: "tcp://127.0.0.1:4000", "tcp://[::1]:4000" (an
 * IPv4-mapped one as IPv4), "unix:///run/x.sock", "unix://@name" for an
 * abstract socket, "unix://" for an unnamed one; "unknown address" for what is
 * none of these. Returns `text`. */
const char *tmsg_url_format_sockaddr(const struct sockaddr *address,
                                     socklen_t address_bytes, char *text,
                                     size_t bytes);

/* Turns "tcp://" in front of such a text into another scheme, cut to
 * `bytes`. */
void tmsg_url_rename(char *text, size_t bytes, tmsg_url_kind_t kind);

/* Returns whether a Unix socket stands in the URL, and no host. */
bool tmsg_url_has_path(const tmsg_url_t *url);

/* Returns whether the path of a URL names an abstract socket (unix(7)): it has
 * no file, and is gone with the process that listens. */
bool tmsg_url_is_abstract(const char *path);

/* Returns the name of a scheme, as "tcp". */
const char *tmsg_url_scheme(tmsg_url_kind_t kind);

#endif
