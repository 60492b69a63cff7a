/* SPDX-License-Identifier: BSD-3-Clause */
#include "options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GROUP 9 /* places these options after a command's own */
#define TIMEOUT_MS 10000

enum {
    KEY_KEY = 3000,
    KEY_ALLOW,
    KEY_SANDBOX,
    KEY_WAIT,
    KEY_CARRIER,
    KEY_TLS_CA,
    KEY_TLS_CERT,
    KEY_TLS_KEY,
    KEY_TLS_NAME,
    KEY_TLS_CRL,
    KEY_TLS_PIN,
    KEY_TLS_PASSWORD
};

/* Each row has a shared option, and names the commands that have it by what
 * they do. */
static const struct {
    unsigned does;
    struct argp_option option;
} table[] = {
    {LISTENS | CONNECTS, {NULL, 0, NULL, 0, "The connection:", GROUP}},
    {LISTENS,
     {"listen", 'l', "URL", 0,
      "Listen at tcp://HOST:PORT (port 0: any free port), tls://HOST:PORT "
      "(encrypted) or unix:///PATH",
      GROUP}},
    {LISTENS,
     {"allow-unauthenticated", KEY_ALLOW, NULL, 0,
      "Listen without a key where other machines reach the address (see "
      "docs/understand/security.md)",
      GROUP}},
    {SANDBOXES,
     {"sandbox", KEY_SANDBOX, NULL, 0,
      "Once it listens, write into --out DIR alone, run no program, and use "
      "no shared memory of UCX's (Landlock and seccomp)",
      GROUP}},
    {CONNECTS,
     {"timeout", 't', "S", 0,
      "Give up when connecting, or an answer, takes more than S seconds; "
      "default 10",
      GROUP}},
    {CONNECTS,
     {"wait", KEY_WAIT, NULL, 0,
      "Wait until somebody listens at the URL, and serves the call, for the S "
      "seconds of --timeout at most",
      GROUP}},
    {LISTENS | CONNECTS,
     {"key", KEY_KEY, "FILE", 0,
      "Prove a key of FILE, and refuse peers that prove none (see tensormsg "
      "key)",
      GROUP}},
    {LISTENS | CONNECTS,
     {"tls-ca", KEY_TLS_CA, "FILE", 0,
      "At tls://, refuse peers whose certificate no authority of FILE has "
      "signed (see tensormsg key --ca)",
      GROUP}},
    {LISTENS | CONNECTS,
     {"tls-cert", KEY_TLS_CERT, "FILE", 0,
      "At tls://, show the certificate of FILE", GROUP}},
    {LISTENS | CONNECTS,
     {"tls-key", KEY_TLS_KEY, "FILE", 0, "Its private key", GROUP}},
    {LISTENS | CONNECTS,
     {"tls-password", KEY_TLS_PASSWORD, "FILE", 0,
      "The first line of FILE is the password of the private key", GROUP}},
    {LISTENS | CONNECTS,
     {"tls-crl", KEY_TLS_CRL, "FILE", 0,
      "Refuse certificates that a list of FILE revokes", GROUP}},
    {LISTENS | CONNECTS,
     {"tls-pin", KEY_TLS_PIN, "PINS", 0,
      "Refuse peers whose public key is not in PINS, a list with commas of "
      "[NAME=]SHA-256 in hexadecimal digits; with --tls-ca, or instead of it",
      GROUP}},
    {CONNECTS,
     {"tls-name", KEY_TLS_NAME, "NAME", 0,
      "The listener's certificate must be for NAME; default: the host of the "
      "URL",
      GROUP}},
    {LISTENS | CONNECTS,
     {"carrier", KEY_CARRIER, "NAME", 0,
      "Carrier of the messages: ucx, stream (TCP connections to the one port "
      "only), or auto, the default: the one that the peer asks for",
      GROUP}},
    {CONNECTS, {"connect", 'c', "URL", OPTION_HIDDEN, NULL, GROUP}},
};

#define ROWS (sizeof(table) / sizeof(table[0]))

typedef struct {
    connection_options_t *connection;
    unsigned does;
    void *options; /* options of the command */
} parsing_t;

static int read_carrier(const char *name, struct argp_state *state)
{
    static const char *const names[] = {"auto", "ucx", "stream"};

    for (int i = 0; i < 3; i++) {
        if (strcmp(name, names[i]) == 0) {
            return i;
        }
    }
    argp_error(state, "--carrier %s: it is auto, ucx or stream", name);
    return 0;
}

static error_t parse_connection_option(int key, char *arg,
                                       struct argp_state *state)
{
    const parsing_t *parsing = state->input;
    connection_options_t *connection = parsing->connection;

    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = parsing->options;
        return 0;
    case 'l':
        connection->listen = arg;
        return 0;
    case KEY_ALLOW:
        connection->allow_unauthenticated = true;
        return 0;
    case KEY_SANDBOX:
        connection->sandbox = true;
        return 0;
    case 't':
        connection->timeout_ms = parse_seconds(arg, state);
        return 0;
    case KEY_WAIT:
        connection->wait = true;
        return 0;
    case KEY_KEY:
        connection->key = arg;
        return 0;
    case KEY_TLS_CA:
        connection->tls.ca = arg;
        return 0;
    case KEY_TLS_CERT:
        connection->tls.cert = arg;
        return 0;
    case KEY_TLS_KEY:
        connection->tls.key = arg;
        return 0;
    case KEY_TLS_NAME:
        connection->tls.name = arg;
        return 0;
    case KEY_TLS_CRL:
        connection->tls.crl = arg;
        return 0;
    case KEY_TLS_PIN:
        connection->tls.pin = arg;
        return 0;
    case KEY_TLS_PASSWORD:
        connection->tls.password = arg;
        return 0;
    case KEY_CARRIER:
        connection->carrier = read_carrier(arg, state);
        return 0;
    case 'c':
        argp_error(state, "--connect is now the argument URL: %s %s",
                   state->name, arg);
        return EINVAL;
    case ARGP_KEY_ARG:
        if (!(parsing->does & CONNECTS) || connection->url != NULL) {
            return ARGP_ERR_UNKNOWN;
        }
        connection->url = arg;
        return 0;
    case ARGP_KEY_NO_ARGS:
        if (parsing->does & NEEDS_URL) {
            argp_error(state, "the URL to connect to is missing");
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* Refuses the arguments that no other parser took. */
static error_t refuse_argument(int key, char *arg, struct argp_state *state)
{
    if (key == ARGP_KEY_ARG) {
        argp_error(state, "there is an argument too many: '%s'", arg);
    }
    return ARGP_ERR_UNKNOWN;
}

/* Nobody can connect to a listener with a blob unless a program carries the
 * blob to the peers. */
static bool can_listen(const char *url, unsigned does)
{
    return strncmp(url, "blob:", 5) != 0 &&
           ((does & LISTENS_TO_UCXX) || strncmp(url, "ucx:", 4) != 0);
}

static bool is_tls_consistent(const connection_options_t *connection)
{
    const tls_options_t *tls = &connection->tls;
    const char *url =
        connection->listen != NULL ? connection->listen : connection->url;
    bool is_tls = url != NULL && strncmp(url, "tls://", 6) == 0;
    bool all = (tls->ca != NULL || tls->pin != NULL) && tls->cert != NULL &&
               tls->key != NULL;
    bool any = tls->ca != NULL || tls->cert != NULL || tls->key != NULL ||
               tls->name != NULL || tls->crl != NULL || tls->pin != NULL ||
               tls->password != NULL;

    if (any && !all) {
        complain("--tls-ca (or --tls-pin), --tls-cert and --tls-key go "
                 "together");
    } else if (any && connection->key != NULL) {
        complain("--key and --tls-cert exclude each other: give one of them");
    } else if (any && !is_tls) {
        complain("--tls-cert goes with a URL of tls://%s%s",
                 url == NULL ? "" : ", and not with ", url == NULL ? "" : url);
    } else if (is_tls && !any && connection->key == NULL) {
        complain("%s needs --tls-ca, --tls-cert and --tls-key, or --key", url);
    } else {
        return true;
    }
    return false;
}

static bool is_consistent(const connection_options_t *connection, unsigned does)
{
    const char *listen = connection->listen;

    if (listen != NULL && !can_listen(listen, does)) {
        complain("--listen %s: a command listens at tcp://HOST:PORT, "
                 "tls://HOST:PORT or unix:///PATH%s",
                 listen,
                 does & LISTENS_TO_UCXX ? ", and this one at ucx://HOST:PORT"
                                        : "");
    } else if (listen == NULL && connection->allow_unauthenticated) {
        complain("--allow-unauthenticated goes with --listen");
    } else if (connection->sandbox && listen != NULL &&
               strncmp(listen, "ucx:", 4) == 0) {
        complain("--sandbox goes with tcp://, tls:// and unix://, where the "
                 "library listens, and not with %s",
                 listen);
    } else if (connection->sandbox && listen != NULL &&
               strncmp(listen, "unix://@", 8) == 0) {
        complain("--sandbox goes with a socket file, unix:///PATH, and not "
                 "with %s",
                 listen);
    } else if (connection->wait && connection->url == NULL) {
        complain("--wait goes with a URL");
    } else if (connection->key != NULL && listen == NULL &&
               connection->url == NULL) {
        complain("--key goes with a URL%s",
                 does & LISTENS ? " or --listen" : "");
    } else {
        return is_tls_consistent(connection);
    }
    return false;
}

void parse_command(const struct argp *command, unsigned does, int argc,
                   char **argv, void *options, connection_options_t *connection)
{
    static const struct argp rest = {.parser = refuse_argument};
    const struct argp own = {
        command->options, command->parser, NULL, NULL, NULL, NULL, NULL};
    const struct argp_child children[] = {
        {&own, 0, NULL, 0}, {&rest, 0, NULL, 0}, {0}};
    struct argp_option chosen[ROWS + 1] = {{0}};
    struct argp all = {NULL,
                       parse_connection_option,
                       command->args_doc,
                       command->doc,
                       children,
                       NULL,
                       NULL};
    parsing_t parsing = {connection, does, options};
    size_t count = 0;

    for (size_t i = 0; i < ROWS; i++) {
        if (table[i].does & does) {
            chosen[count++] = table[i].option;
        }
    }
    /* glibc's argp leaks two bytes for the help of an empty list. */
    all.options = count > 0 ? chosen : NULL;
    if (connection != NULL) {
        connection->timeout_ms = TIMEOUT_MS;
    }
    argp_parse(&all, argc, argv, 0, NULL, &parsing);
    if (connection != NULL && !is_consistent(connection, does)) {
        exit(EXIT_USAGE);
    }
}
