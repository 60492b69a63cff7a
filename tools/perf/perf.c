/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg perf: what sending costs here, and where one way of it begins to be
 * better than another. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "key.h"
#include "output.h"
#include "perf.h"

enum {
    KEY_TUNE = 1000,
    KEY_OVER,
    KEY_UPDATE,
    KEY_QUICK,
    KEY_JSON,
    KEY_ALLOW,
    KEY_KEY,
};

static const struct argp_option option_list[] = {
    {"listen", 'l', "URL", 0,
     "Be the other side of a measurement: tcp://HOST:PORT (port 0: any) or "
     "unix:///PATH",
     0},
    {"count", 'n', "N", 0,
     "With --listen: end when N connections have come and gone", 0},
    {"allow-unauthenticated", KEY_ALLOW, NULL, 0,
     "With --listen: on an address that strangers reach (see "
     "docs/security.md)",
     0},
    {"key", KEY_KEY, "FILE", 0, KEY_HELP "; with a URL or --listen", 0},
    {"over", KEY_OVER, "CARRIER", 0,
     "shm or tcp, between two processes here; default: both", 0},
    {"tune", KEY_TUNE, NULL, 0,
     "Measure the thresholds of docs/transfer-ways.md and write them as a "
     "configuration file",
     0},
    {"out", 'o', "FILE", 0, "With --tune: write FILE, not standard output", 0},
    {"update", KEY_UPDATE, NULL, 0,
     "With --out: keep what else FILE says, if it exists", 0},
    {"force", 'f', NULL, 0, "With --out: replace FILE", 0},
    {"timeout", 't', "S", 0, "For connecting, and for each message; default 10",
     0},
    {"quick", KEY_QUICK, NULL, 0, "In a few seconds, and less exactly", 0},
    {"json", KEY_JSON, NULL, 0, "As a JSON array, without --tune", 0},
    {0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    perf_options_t *options = state->input;

    switch (key) {
    case 'l':
        options->listen = arg;
        return 0;
    case 'n':
        options->count = parse_count(arg, state);
        return 0;
    case KEY_ALLOW:
        options->allow_unauthenticated = true;
        return 0;
    case KEY_KEY:
        options->key = arg;
        return 0;
    case KEY_OVER:
        options->over = arg;
        return 0;
    case KEY_TUNE:
        options->tune = true;
        return 0;
    case 'o':
        options->out = arg;
        return 0;
    case KEY_UPDATE:
        options->update = true;
        return 0;
    case 'f':
        options->force = true;
        return 0;
    case 't':
        options->timeout_ms = parse_seconds(arg, state);
        return 0;
    case KEY_QUICK:
        options->quick = true;
        return 0;
    case KEY_JSON:
        options->json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (options->url != NULL) {
            argp_error(state, "'%s' is one argument too many", arg);
            return EINVAL;
        }
        options->url = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp parser = {
    .options = option_list,
    .parser = parse_option,
    .args_doc = "[URL]",
    .doc = "Measure latency and bandwidth between two processes here, or to a "
           "'tensormsg perf --listen' at URL; with --tune, the thresholds that "
           "suit this machine.",
};

/* What goes with what. NULL: all is well. */
static const char *check(const perf_options_t *options)
{
    bool measures = options->url != NULL || options->tune || options->json ||
                    options->quick || options->over != NULL;

    if (options->listen != NULL && (measures || options->out != NULL)) {
        return "--listen is the other side: it measures nothing";
    }
    if (options->listen == NULL &&
        (options->count > 0 || options->allow_unauthenticated)) {
        return "--count and --allow-unauthenticated go with --listen";
    }
    if (options->listen != NULL && (strncmp(options->listen, "blob:", 5) == 0 ||
                                    strncmp(options->listen, "ucx:", 4) == 0)) {
        return "--listen takes tcp://HOST:PORT or unix:///PATH";
    }
    if (options->key != NULL && options->listen == NULL &&
        options->url == NULL) {
        return "--key goes with a URL or --listen: two processes here need "
               "none";
    }
    if (options->over != NULL && strcmp(options->over, "shm") != 0 &&
        strcmp(options->over, "tcp") != 0) {
        return "--over is shm or tcp";
    }
    if (options->over != NULL && options->url != NULL) {
        return "--over is for two processes here: a URL's transport is what it "
               "is";
    }
    if (options->tune && options->json) {
        return "--json goes without --tune, which writes JSON anyway";
    }
    if (options->out != NULL && !options->tune) {
        return "--out goes with --tune";
    }
    if ((options->update || options->force) && options->out == NULL) {
        return "--update and --force go with --out";
    }
    if (options->update && options->force) {
        return "--update keeps what --force would replace: one of both";
    }
    return NULL;
}

/* What is collected. */
typedef struct {
    const perf_options_t *options;
    cJSON *json; /* rows, or thresholds by carrier; NULL: it is printed */
    char carrier[16];
    int code; /* of the command */
} collection_t;

static bool measure(collection_t *collection, perf_peer_t *peer)
{
    const perf_options_t *options = collection->options;
    cJSON *of;

    if (options->over != NULL && strcmp(options->over, peer->carrier) != 0) {
        complain("--over %s: what carries the connection is %s (%s)",
                 options->over, peer->transports, peer->why);
        return false;
    }
    memcpy(collection->carrier, peer->carrier, sizeof(peer->carrier));
    if (!options->tune) {
        return perf_table(peer, collection->json);
    }
    of = cJSON_AddObjectToObject(collection->json, peer->carrier);
    return of != NULL &&
           perf_tune(peer, of, options->out == NULL ? stderr : stdout);
}

static bool measure_over(collection_t *collection, const char *tls)
{
    perf_peer_t peer;
    bool ok = perf_peer_open(&peer, collection->options, tls);

    collection->code = ok ? EXIT_FAILED : peer.code;
    ok = ok && measure(collection, &peer);
    perf_peer_close(&peer);
    return ok;
}

/* What UCX takes by itself, and then tcp if that was something else; unless
 * somebody has said which it may take. */
static bool measure_all(collection_t *collection)
{
    const perf_options_t *options = collection->options;
    bool forced_tcp =
        options->over != NULL && strcmp(options->over, "tcp") == 0;

    if (!measure_over(collection, forced_tcp ? "tcp" : NULL)) {
        return false;
    }
    if (options->over != NULL || options->url != NULL ||
        getenv("UCX_TLS") != NULL || strcmp(collection->carrier, "tcp") == 0) {
        return true;
    }
    return measure_over(collection, "tcp");
}

static bool finish(const collection_t *collection)
{
    const perf_options_t *options = collection->options;
    char *text;

    if (options->tune) {
        return perf_file_write(options, collection->json);
    }
    if (collection->json != NULL) {
        text = cJSON_Print(collection->json);
        if (text == NULL) {
            complain("out of memory");
            return false;
        }
        put_json(stdout, text);
        putchar('\n');
        free(text);
    }
    return true;
}

int perf_main(int argc, char **argv)
{
    perf_options_t options = {.timeout_ms = 10000};
    collection_t collection = {.options = &options};
    const char *wrong;
    bool ok;

    argp_parse(&parser, argc, argv, 0, NULL, &options);
    wrong = check(&options);
    if (wrong != NULL) {
        complain("%s", wrong);
        return EXIT_USAGE;
    }
    if (options.listen != NULL) {
        return perf_listen(&options);
    }
    if (options.tune && !perf_file_check(&options)) {
        return EXIT_USAGE;
    }
    collection.json = options.tune   ? cJSON_CreateObject()
                      : options.json ? cJSON_CreateArray()
                                     : NULL;
    ok = measure_all(&collection) && finish(&collection);
    cJSON_Delete(collection.json);
    return ok ? EXIT_DONE : collection.code;
}
