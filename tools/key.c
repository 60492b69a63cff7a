/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg key: makes a key, and what the other commands read of it. */
#include <errno.h>

#include "key.h"

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

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    options_t *options = state->input;

    switch (key) {
    case 'o':
        options->path = arg;
        return 0;
    case KEY_PRINCIPAL:
        options->principal = arg;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "'%s' is one argument too many", arg);
        return EINVAL;
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
    .parser = parse_option,
    .doc = "Make a new random key, by which two sides prove to each other that "
           "they have it: --key FILE of the other commands.",
};

int key_main(int argc, char **argv)
{
    options_t options = {.principal = "default"};
    uint8_t key[TMSG_KEY_BYTES];
    tmsg_status_t status;

    argp_parse(&parser, argc, argv, 0, NULL, &options);
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

tmsg_status_t create_context(const char *key_path,
                             const tmsg_context_params_t *params,
                             tmsg_context_t **context_p)
{
    tmsg_context_params_t all = {.field_mask = 0};
    tmsg_keyring_t *keyring = NULL;
    tmsg_status_t status = TMSG_OK;

    if (params != NULL) {
        all = *params;
    }
    if (key_path != NULL) {
        status = tmsg_keyring_create(&keyring);
        if (status == TMSG_OK) {
            status = tmsg_keyring_load(keyring, key_path);
        }
        all.field_mask |= TMSG_CONTEXT_PARAM_KEYRING;
        all.keyring = keyring;
    }
    if (status == TMSG_OK) {
        status = tmsg_context_create(&all, context_p);
    }
    tmsg_keyring_destroy(keyring);
    return status;
}
