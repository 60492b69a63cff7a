/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg key: makes a key for the other commands. */
#include "authority.h"
#include "options.h"
#include "output.h"

enum { KEY_PRINCIPAL = 1000, KEY_CA, KEY_HOST };

static const struct argp_option option_list[] = {
    {"out", 'o', "FILE", 0, "Write the key to FILE, which is not there yet", 0},
    {"principal", KEY_PRINCIPAL, "NAME", 0,
     "The principal: the name by which peers know the holder of the key; "
     "default \"default\"",
     0},
    {"ca", KEY_CA, "DIR", 0,
     "Instead of a key: a certificate for tls://, NAME.pem, and its private "
     "key, NAME.key, in DIR, signed by the authority there, ca.pem, which is "
     "created if it is missing. For tests and small sites",
     0},
    {"host", KEY_HOST, "HOST", 0,
     "With --ca: a DNS name or an IP address that the certificate is for; "
     "again for more; default localhost, 127.0.0.1 and ::1",
     0},
    {0},
};

typedef struct {
    const char *path;
    const char *principal;
    const char *ca;
    const char *hosts[HOSTS_MOST];
    size_t host_count;
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
    case KEY_CA:
        options->ca = arg;
        return 0;
    case KEY_HOST:
        if (options->host_count == HOSTS_MOST) {
            argp_error(state, "--host: at most %d are possible", HOSTS_MOST);
        }
        options->hosts[options->host_count++] = arg;
        return 0;
    case ARGP_KEY_END:
        if (options->path == NULL && options->ca == NULL) {
            argp_error(state, "--out FILE is missing, or --ca DIR");
        } else if (options->path != NULL && options->ca != NULL) {
            argp_error(state, "--out is for a key, and --ca for a certificate: "
                              "one at a time");
        } else if (options->host_count > 0 && options->ca == NULL) {
            argp_error(state, "--host goes with --ca");
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp parser = {
    .options = option_list,
    .parser = parse_key_option,
    .doc = "Make a new random key for --key FILE of the other commands: two "
           "sides that have it prove so to each other. With --ca: make a "
           "certificate for --tls-ca, --tls-cert and --tls-key.",
};

static int make_key(const options_t *options)
{
    uint8_t key[TMSG_KEY_BYTES];
    tmsg_status_t status = tmsg_key_generate(key);

    if (status == TMSG_OK) {
        status = tmsg_key_save(options->path, options->principal, key);
    }
    tmsg_key_wipe(key);
    if (status == TMSG_OK) {
        return EXIT_DONE;
    }
    complain("%s", tmsg_error_message());
    return status == TMSG_ERR_INVALID_PARAM ? EXIT_USAGE : EXIT_FAILED;
}

int key_main(int argc, char **argv)
{
    options_t options = {.principal = "default"};
    int code;

    parse_command(&parser, 0, argc, argv, &options, NULL);
    if (options.ca == NULL) {
        return make_key(&options);
    }
    code = make_certificate(options.ca, options.principal, options.hosts,
                            options.host_count);
    return output_flush() ? code : EXIT_FAILED;
}
