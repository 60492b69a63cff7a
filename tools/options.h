/* SPDX-License-Identifier: BSD-3-Clause */
/* options.h - parses the command line of each command, and the options that
 * commands share: those for listening, connecting and proving keys. */
#ifndef TMSG_OPTIONS_H
#define TMSG_OPTIONS_H

#include "sandbox.h"
#include "tool.h"

/* Each flag is something that a command does with connections. The flags decide
 * which options it has. */
enum {
    LISTENS = 1 << 0,
    LISTENS_TO_UCXX = 1 << 1, /* also listens at ucx:// */
    CONNECTS = 1 << 2,        /* its first argument may be a URL */
    NEEDS_URL = 1 << 3,       /* its first argument must be a URL */
    SANDBOXES = 1 << 4        /* may shut itself in */
};

#define LISTEN_DEFAULT "tcp://127.0.0.1:0"

/* Files of tls://, the name that a listener's certificate is to be for, and
 * pins; or NULL. */
typedef struct {
    const char *ca, *cert, *key, *name, *crl, *pin, *password;
} tls_options_t;

typedef struct {
    const char *url;    /* URL of the peer, or NULL */
    const char *listen; /* URL to listen at, or NULL */
    const char *key;    /* file with keys, or NULL */
    tls_options_t tls;
    int timeout_ms; /* limit for connecting and for answers; default 10 s */
    int carrier;    /* TMSG_CARRIER_* */
    bool wait;      /* connecting waits until somebody listens */
    bool allow_unauthenticated;
    bool sandbox;
    /* In a sandbox: the folders that the command writes into, each or NULL. */
    const char *writes[SANDBOX_DIRS];
} connection_options_t;

/* Reads a command line. `command` parses the options that only this command has
 * into `options`; `connection` gets the others (NULL if `does` is 0). A wrong
 * command line ends the program with exit code 2. */
void parse_command(const struct argp *command, unsigned does, int argc,
                   char **argv, void *options,
                   connection_options_t *connection);

#endif
