/* SPDX-License-Identifier: BSD-3-Clause */
/* Listens at a URL as far as the library has it, or ("dial URL") dials one, and
 * waits for its standard input to end: whose sockets test_sockets.py looks at.
 * What is to be reached from elsewhere has a key. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <tensormsg/tensormsg.h>

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, tmsg_error_message());
    return 1;
}

/* Makes a keyring, without which there is no tls://. */
static tmsg_status_t make_keyring(tmsg_keyring_t **keyring_p)
{
    uint8_t key[TMSG_KEY_BYTES];
    tmsg_status_t status = tmsg_key_generate(key);

    if (status == TMSG_OK) {
        status = tmsg_keyring_create(keyring_p);
    }
    return status == TMSG_OK ? tmsg_keyring_add(*keyring_p, "alice", key)
                             : status;
}

static tmsg_status_t open_url(tmsg_worker_t *worker, const char *how,
                              const char *url)
{
    tmsg_listener_params_t params = {
        .field_mask = TMSG_LISTENER_PARAM_KEYRING |
                      TMSG_LISTENER_PARAM_ALLOW_UNAUTHENTICATED,
        .keyring = NULL,
        .allow_unauthenticated = 1,
    };
    tmsg_listener_t *listener = NULL;
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *ready;
    tmsg_status_t status = TMSG_OK;

    if (strncmp(url, "tls:", 4) == 0) {
        status = make_keyring(&params.keyring);
    }
    if (status == TMSG_OK && strcmp(how, "listen") == 0) {
        status = tmsg_listener_create(worker, url, &params, &listener);
        tmsg_keyring_destroy(params.keyring);
    } else if (status == TMSG_OK) {
        status = tmsg_endpoint_connect(worker, url, NULL, &endpoint);
        if (status == TMSG_OK) {
            status = tmsg_endpoint_ready(endpoint, &ready);
        }
        if (status == TMSG_OK) {
            status = tmsg_request_wait(ready, -1);
            tmsg_request_destroy(ready);
        }
    }
    puts(listener == NULL ? url : tmsg_listener_url(listener));
    return status;
}

/* Until nobody holds the other end of standard input any more. */
static void stay(tmsg_worker_t *worker)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};

    while (poll(&input, 1, 0) == 0) {
        (void)tmsg_worker_wait(worker, 20);
    }
}

/* "listen URL", "dial URL", or nothing: a worker alone. */
int main(int argc, char **argv)
{
    tmsg_context_t *context;
    tmsg_worker_t *worker;

    if (tmsg_context_create(NULL, &context) != TMSG_OK ||
        tmsg_worker_create(context, NULL, &worker) != TMSG_OK) {
        return fail("a worker");
    }
    if (argc == 3 && open_url(worker, argv[1], argv[2]) != TMSG_OK) {
        return fail(argv[2]);
    }
    if (argc < 3) {
        puts("a worker");
    }
    fflush(stdout);
    stay(worker);
    tmsg_worker_destroy(worker);
    tmsg_context_destroy(context);
    return 0;
}
