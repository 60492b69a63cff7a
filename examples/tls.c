/* SPDX-License-Identifier: BSD-3-Clause */
/* tls DIR: a client and a server of tls://, which prove by certificates who
 * they are. One process plays both. `tensormsg key --ca DIR --principal server`
 * makes the certificate of one, and with "client" that of the other. */
#include <stdio.h>
#include <stdlib.h>
#include <tensormsg/tensormsg.h>

enum { NUMBERS = 1000000, PATH_BYTES = 4096 };

static void check(tmsg_status_t status)
{
    if (status != TMSG_OK) {
        fprintf(stderr, "tls: %s\n", tmsg_error_message());
        exit(1);
    }
}

/* What a side proves, and whose certificates it takes. */
static tmsg_tls_t *read_certificates(const char *folder, const char *principal)
{
    char ca[PATH_BYTES], cert[PATH_BYTES], key[PATH_BYTES];
    const tmsg_tls_params_t params = {
        .field_mask =
            TMSG_TLS_PARAM_CA | TMSG_TLS_PARAM_CERT | TMSG_TLS_PARAM_KEY,
        .ca = ca,
        .cert = cert,
        .key = key,
    };
    tmsg_tls_t *tls;

    snprintf(ca, sizeof(ca), "%s/ca.pem", folder);
    snprintf(cert, sizeof(cert), "%s/%s.pem", folder, principal);
    snprintf(key, sizeof(key), "%s/%s.key", folder, principal);
    check(tmsg_tls_create(&params, &tls));
    return tls;
}

static tmsg_listener_t *serve(tmsg_worker_t *worker, const char *folder)
{
    const tmsg_listener_params_t params = {
        .field_mask = TMSG_LISTENER_PARAM_TLS,
        .tls = read_certificates(folder, "server"),
    };
    tmsg_listener_t *listener;

    check(
        tmsg_listener_create(worker, "tls://localhost:0", &params, &listener));
    tmsg_tls_destroy(params.tls); /* the listener holds it */
    return listener;
}

static tmsg_endpoint_t *dial(tmsg_worker_t *worker, const char *url,
                             const char *folder)
{
    const tmsg_endpoint_params_t params = {
        .field_mask = TMSG_ENDPOINT_PARAM_TLS,
        .tls = read_certificates(folder, "client"),
    };
    tmsg_endpoint_t *endpoint;

    check(tmsg_endpoint_connect(worker, url, &params, &endpoint));
    tmsg_tls_destroy(params.tls);
    return endpoint;
}

static void send_numbers(tmsg_endpoint_t *endpoint)
{
    static float numbers[NUMBERS];
    const int64_t shape[] = {NUMBERS};
    const tmsg_tensor_t tensor = {
        .data = numbers,
        .device = {.type = TMSG_DEVICE_CPU},
        .dtype = {.code = TMSG_DTYPE_FLOAT, .bits = 32, .lanes = 1},
        .ndim = 1,
        .shape = shape,
    };
    tmsg_map_t *map;

    check(tmsg_map_create(&map));
    check(tmsg_map_add(map, "numbers", &tensor, NULL));
    check(tmsg_endpoint_send(endpoint, map, NULL, NULL));
    tmsg_map_destroy(map); /* the send keeps it */
}

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : ".";
    const tmsg_worker_params_t threaded = {
        .field_mask = TMSG_WORKER_PARAM_FLAGS,
        .flags = TMSG_WORKER_THREAD,
    };
    tmsg_context_t *context;
    tmsg_worker_t *server, *client;
    tmsg_listener_t *listener;
    tmsg_endpoint_t *endpoint;
    tmsg_message_t *message;
    tmsg_tensor_t tensor;

    check(tmsg_context_create(NULL, &context));
    check(tmsg_worker_create(context, &threaded, &server));
    check(tmsg_worker_create(context, &threaded, &client));
    listener = serve(server, folder);
    endpoint = dial(client, tmsg_listener_url(listener), folder);
    send_numbers(endpoint);
    check(tmsg_worker_recv(server, 10000, &message));
    check(tmsg_map_find(tmsg_message_map(message), "numbers", &tensor));
    printf("%s sent %lld numbers to %s\n",
           tmsg_endpoint_principal(tmsg_message_endpoint(message)),
           (long long)tensor.shape[0], tmsg_endpoint_principal(endpoint));
    tmsg_message_destroy(message);
    tmsg_worker_destroy(client); /* with its endpoint */
    tmsg_worker_destroy(server);
    tmsg_context_destroy(context);
    return 0;
}
