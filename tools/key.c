/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg key: makes a key for the other commands. */
#include "options.h"

enum { KEY_PRINCIPAL = 1000 };

static const struct argp_option option_list[] = {
    {"out", 'o', "FILE", 0, "Write the key to FILE, which is not there yet", 0},
    {"principal", KEY_PRINCIPAL, "NAME", 0,
     "Whose key it is: what the others call who proves it; default \"default\"",
     0},
    {0},
};

typedef struct {
    const char *path;
    const char *principal;
} options_t;

static error_t parse_key_option(int key, char *arg, struct argp_state *state)
{
    options_t *options = state->input;

    switch (key) {
    case 'o':
        options->path = arg;
        return 0;
    case KEY_PRINCIPAL:
        options->principal = arg;
        return 0;
    case ARGP_KEY_END:
        if (options->path == NULL) {
            argp_error(state, "--out FILE is missing");
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp parser = {
    .options = option_list,
    .parser = parse_key_option,
    .doc = "Make a new random key, by which two sides prove to each other that "
           "they have it: --key FILE of the other commands.",
};

int key_main(int argc, char **argv)
{
    options_t options = {.principal = "default"};
    uint8_t key[TMSG_KEY_BYTES];
    tmsg_status_t status;

    parse_command(&parser, 0, argc, argv, &options, NULL);
    status = tmsg_key_generate(key);
    if (status == TMSG_OK) {
        status = tmsg_key_save(options.path, options.principal, key);
    }
    tmsg_key_wipe(key);
    if (status == TMSG_OK) {
        return EXIT_DONE;
    }
    complain("%s", tmsg_error_message());
    return status == TMSG_ERR_INVALID_PARAM ? EXIT_USAGE : EXIT_FAILED;
}
