/* SPDX-License-Identifier: BSD-3-Clause */
/* am/net/url.h - where to listen or connect, as text and as parts. */
#ifndef TMSG_AM_NET_URL_H
#define TMSG_AM_NET_URL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <tensormsg/status.h>

#define TMSG_URL_HOST_BYTES 256 /* longest host, NUL included */
#define TMSG_URL_PATH_BYTES 108 /* of sockaddr_un */
#define TMSG_URL_TEXT_BYTES 272 /* holds every URL we format, NUL included */

typedef enum {
    TMSG_URL_TCP = 0,
    TMSG_URL_UNIX = 1,
    TMSG_URL_BLOB = 2,
    TMSG_URL_UCX = 3
} tmsg_url_kind_t;

typedef struct {
    tmsg_url_kind_t kind;
    char host[TMSG_URL_HOST_BYTES]; /* no brackets; "": loopback */
    uint16_t port;                  /* tcp, ucx; 0 lets the kernel pick one */
    char path[TMSG_URL_PATH_BYTES]; /* unix: absolute */
} tmsg_url_t;

/* Parses "tcp://host:port", "host:port" (which means tcp), "ucx://host:port",
 * "unix:///path" or "blob://host". IPv6 addresses stand in brackets, with a
 * %zone, one of this host's devices, where they are link-local, and none else.
 * Nothing may follow, and a host holds only what names and addresses hold.
 * Unused fields of *url_p are zeroed. Errors: INVALID_PARAM, with the text and
 * what is wrong with it. */
tmsg_status_t tmsg_url_parse(const char *text, tmsg_url_t *url_p);

/* Writes the URL in its full form, cut to `bytes` and NUL-terminated; returns
 * `text`. */
const char *tmsg_url_format(const tmsg_url_t *url, char *text, size_t bytes);

/* The same for an address: "tcp://127.0.0.1:4000", "tcp://[::1]:4000" (an
 * IPv4-mapped one as IPv4), "unix:///run/x.sock", "unix://" for an unnamed
 * socket; "unknown address" for what is none of these. */
const char *tmsg_url_format_sockaddr(const struct sockaddr *address,
                                     socklen_t address_bytes, char *text,
                                     size_t bytes);

/* Turns "tcp://" in front of such a text into "ucx://". */
void tmsg_url_as_ucx(char *text);

#endif
