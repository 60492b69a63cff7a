/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg perf: measures what sending costs on this machine, and at which
 * sizes one way becomes better than another. */
#include <stdlib.h>
#include <string.h>

#include "perf.h"
#include "signals.h"

static bool options_allow(const perf_options_t *options, const char *transport)
{
    return options->over == NULL || strstr(options->over, transport) != NULL;
}

/* Measures over the transports that UCX chooses itself, or over those of
 * `tls`. */
static int over_one(const perf_options_t *options, const char *tls,
                    perf_measure_fn measure, void *arg, char transport[16])
{
    const char *wanted = options_allow(options, "shm") ? "shm" : "tcp";
    perf_peer_t peer;
    bool ok = perf_peer_open(&peer, options, tls);
    int code = ok ? EXIT_FAILED : peer.code;

    memcpy(transport, peer.transport, sizeof(peer.transport));
    if (ok && tls == NULL && options->over != NULL &&
        strcmp(peer.transport, wanted) != 0) {
        complain("--over %s: the connection uses %s (%s)", options->over,
                 peer.transports, peer.why);
        ok = false;
    }
    ok = ok && measure(arg, &peer);
    perf_peer_close(&peer);
    return ok ? EXIT_DONE : code;
}

int perf_each_transport(const perf_options_t *options, perf_measure_fn measure,
                        void *arg)
{
    char transport[16];
    int code = over_one(options, options_allow(options, "shm") ? NULL : "tcp",
                        measure, arg, transport);

    if (code != EXIT_DONE || options->connection.url != NULL ||
        !options_allow(options, "tcp") ||
        (options->over == NULL && getenv("UCX_TLS") != NULL) ||
        strcmp(transport, "tcp") == 0 || signals_came()) {
        return code;
    }
    return over_one(options, "tcp", measure, arg, transport);
}

typedef struct {
    const perf_options_t *options;
    cJSON *thresholds;
} tuning_t;

static bool tune_transport(void *arg, perf_peer_t *peer)
{
    const tuning_t *tuning = arg;
    cJSON *of = cJSON_AddObjectToObject(tuning->thresholds, peer->transport);

    return of != NULL &&
           perf_tune(peer, of, tuning->options->out == NULL ? stderr : stdout);
}

/* Explains the words of the table, and how a program uses the file. */
static void explain_tuning(const char *path)
{
    puts("noise: not 5 % faster in every run, measured twice");
    puts("for none but the bulk stream: all that it would meet go by the bulk "
         "stream or a "
         "ring");
    fputs("in force for a program with TENSORMSG_CONFIG=", stdout);
    put_text(stdout, path);
    putchar('\n');
}

static int run_tune(const perf_options_t *options)
{
    tuning_t tuning = {options, NULL};
    int code;

    if (!perf_file_check(options)) {
        return EXIT_USAGE;
    }
    tuning.thresholds = cJSON_CreateObject();
    code = perf_each_transport(options, tune_transport, &tuning);
    if (code == EXIT_DONE && !perf_file_write(options, tuning.thresholds)) {
        code = EXIT_FAILED;
    }
    if (code == EXIT_DONE && options->out != NULL) {
        explain_tuning(options->out);
    }
    cJSON_Delete(tuning.thresholds);
    return code;
}

int perf_main(int argc, char **argv)
{
    perf_options_t options = {.tune = false};

    perf_options_read(argc, argv, &options);
    return options.connection.listen != NULL ? perf_listen(&options)
           : options.tune                    ? run_tune(&options)
                                             : perf_sweep(&options);
}
