/* SPDX-License-Identifier: BSD-3-Clause */
/* The command `tensormsg`: moves tensor files between processes. */
#include <signal.h>
#include <string.h>

#include "output.h"
#include "tool.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *title; /* argv[0] of the subcommand, shown in its --help */
    const char *what;
} commands[] = {
    {"recv", recv_main, "tensormsg recv", "receive tensor maps into files"},
    {"send", send_main, "tensormsg send", "send tensor files to a receiver"},
    {"call", call_main, "tensormsg call", "call a method of a server"},
    {"serve", serve_main, "tensormsg serve", "answer calls, to try a client"},
    {"health", health_main, "tensormsg health",
     "check whether a server is ready"},
    {"info", info_main, "tensormsg info",
     "show versions, transports and settings"},
    {"dump", dump_main, "tensormsg dump",
     "print the contents of a file, as JSON"},
    {"perf", perf_main, "tensormsg perf",
     "measure latency and bandwidth; tune thresholds"},
    {"key", key_main, "tensormsg key", "make a new key or certificate"},
};

#define COMMAND_COUNT (sizeof(commands) / sizeof(commands[0]))

static int print_usage(FILE *stream, int code)
{
    fputs("usage: tensormsg COMMAND [OPTION...]\n\n", stream);
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        fprintf(stream, "  %-6s %s\n", commands[i].name, commands[i].what);
    }
    fputs("\n'tensormsg COMMAND --help' lists the options of a command, 'man "
          "tensormsg' explains all of them,\n'tensormsg --version' prints the "
          "version.\nExit codes: 0 success, 1 the transfer failed, 2 bad usage "
          "or bad input file; call, health and\nserve also use 3 to 8 (see the "
          "man page). SIGINT and SIGTERM end each command; a second one "
          "ends\nit at once.\n",
          stream);
    return code;
}

/* argp itself knows only -? and --help. */
static void take_h_as_help(char **argv)
{
    static char help[] = "--help";

    for (; *argv != NULL && strcmp(*argv, "--") != 0; argv++) {
        if (strcmp(*argv, "-h") == 0) {
            *argv = help;
        }
    }
}

static int run_command(int argc, char **argv)
{
    const char *name;

    take_h_as_help(argv);
    name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "--help") == 0 || strcmp(name, "-?") == 0 ||
        strcmp(name, "help") == 0) {
        return print_usage(stdout, EXIT_DONE);
    }
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        printf("tensormsg %s\n", tmsg_version());
        return EXIT_DONE;
    }
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(name, commands[i].name) == 0) {
            char title[24];

            snprintf(title, sizeof(title), "%s", commands[i].title);
            argv[1] = title;
            return commands[i].run(argc - 1, argv + 1);
        }
    }
    if (*name != '\0') {
        complain("there is no command '%s': 'tensormsg --help' lists them",
                 name);
    }
    return print_usage(stderr, EXIT_USAGE);
}

int main(int argc, char **argv)
{
    output_open();
    argp_err_exit_status = EXIT_USAGE;
    /* A write to a closed pipe then returns an error. */
    signal(SIGPIPE, SIG_IGN);
    return output_end(run_command(argc, argv));
}
