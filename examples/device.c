/* SPDX-License-Identifier: BSD-3-Clause */
/* device.c - a map of host and device memory, sent and received where it is.
 *
 * `device` adds a domain of its own, a "card" whose memory only the functions
 * of its table touch; `device cuda` does the same on the first GPU. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tensormsg/tensormsg.h>

#define CARD 12 /* kDLExtDev */
#define BYTES 3000000

#define CHECK(call)                                                            \
    do {                                                                       \
        if ((call) != TMSG_OK) {                                               \
            fprintf(stderr, "%s: %s\n", #call, tmsg_error_message());          \
            return 1;                                                          \
        }                                                                      \
    } while (0)

/* The card. Its pointers are none that the CPU could use: they are scrambled,
 * as addresses of a real one are. It has no streams: what is done is done. */
#define SCRAMBLED ((uintptr_t)1 << 56)

static void *scramble(const void *data)
{
    return (void *)((uintptr_t)data ^ SCRAMBLED);
}

static int holds(void *arg, tmsg_device_t device)
{
    (void)arg;
    return device.type == CARD && device.id == 0;
}

static tmsg_status_t card_alloc(void *arg, tmsg_device_t device, uint64_t bytes,
                                uint64_t alignment, tmsg_stream_t stream,
                                void **data_p)
{
    void *data = aligned_alloc(alignment, (bytes / alignment + 1) * alignment);

    (void)arg;
    (void)device;
    (void)stream;
    if (data == NULL) {
        return tmsg_domain_fail(TMSG_ERR_NO_MEMORY, "the card is full");
    }
    *data_p = scramble(data);
    return TMSG_OK;
}

static void card_free(void *arg, tmsg_device_t device, void *data,
                      uint64_t bytes, tmsg_stream_t stream)
{
    (void)arg;
    (void)device;
    (void)bytes;
    (void)stream;
    free(scramble(data));
}

static tmsg_status_t card_in(void *arg, tmsg_device_t device, void *to,
                             const void *host, uint64_t bytes,
                             tmsg_stream_t stream)
{
    (void)arg;
    (void)device;
    (void)stream;
    memcpy(scramble(to), host, bytes);
    return TMSG_OK;
}

static tmsg_status_t card_out(void *arg, tmsg_device_t device, void *host,
                              const void *from, uint64_t bytes,
                              tmsg_stream_t stream)
{
    (void)arg;
    (void)device;
    (void)stream;
    memcpy(host, scramble(from), bytes);
    return TMSG_OK;
}

static tmsg_status_t card_within(void *arg, tmsg_device_t device, void *to,
                                 const void *from, uint64_t bytes,
                                 tmsg_stream_t stream)
{
    return card_in(arg, device, to, scramble(from), bytes, stream);
}

static const tmsg_domain_t card = {.table_bytes = sizeof(card),
                                   .name = "card",
                                   .holds = holds,
                                   .alloc = card_alloc,
                                   .free = card_free,
                                   .copy_in = card_in,
                                   .copy_out = card_out,
                                   .copy_within = card_within};

static void accepted(void *arg, tmsg_endpoint_t *endpoint)
{
    *(tmsg_endpoint_t **)arg = endpoint;
}

static tmsg_status_t add(tmsg_map_t *map, const char *name,
                         tmsg_device_t device, void *data)
{
    static const int64_t shape[] = {BYTES};
    const tmsg_tensor_t tensor = {.data = data,
                                  .device = device,
                                  .dtype = {TMSG_DTYPE_UINT, 8, 1},
                                  .ndim = 1,
                                  .shape = shape};

    return tmsg_map_add(map, name, &tensor, NULL);
}

/* Prints where each tensor is, with a byte of its middle. */
static int show(const tmsg_map_t *map)
{
    static const tmsg_stream_t none;

    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        const tmsg_domain_t *domain;
        const char *name;
        tmsg_tensor_t tensor;
        uint8_t byte;

        CHECK(tmsg_map_at(map, i, &name, &tensor));
        CHECK(tmsg_domain_find(tensor.device, &domain));
        CHECK(domain->copy_out(domain->arg, tensor.device, &byte,
                               (uint8_t *)tensor.data + BYTES / 2, 1, none));
        printf("%s: memory of '%s' %d, its middle is %d\n", name, domain->name,
               tensor.device.id, byte);
    }
    return 0;
}

int main(int count, char **arguments)
{
    static const tmsg_stream_t none;
    static uint8_t host[BYTES], filled[BYTES];
    const tmsg_device_t cpu = {TMSG_DEVICE_CPU, 0};
    const tmsg_send_params_t strict = {.field_mask = TMSG_SEND_PARAM_POLICY,
                                       .policy = TMSG_POLICY_STRICT};
    tmsg_device_t device = {CARD, 0};
    tmsg_endpoint_t *from = NULL, *to = NULL;
    const tmsg_listener_params_t params = {.field_mask =
                                               TMSG_LISTENER_PARAM_ON_ACCEPT,
                                           .on_accept = accepted,
                                           .on_accept_arg = &from};
    const tmsg_domain_t *domain;
    tmsg_context_t *context;
    tmsg_worker_t *worker;
    tmsg_listener_t *listener;
    tmsg_message_t *message;
    tmsg_request_t *sent;
    tmsg_map_t *map;
    void *data;

    if (count > 1 && strcmp(arguments[1], "cuda") == 0) {
        device.type = TMSG_DEVICE_CUDA;
        CHECK(tmsg_domain_use(device));
    } else {
        CHECK(tmsg_domain_register(&card));
    }
    CHECK(tmsg_domain_find(device, &domain));
    CHECK(domain->alloc(domain->arg, device, BYTES, 64, none, &data));
    memset(host, 1, sizeof(host));
    memset(filled, 2, sizeof(filled));
    CHECK(domain->copy_in(domain->arg, device, data, filled, BYTES, none));

    CHECK(tmsg_context_create(NULL, &context));
    CHECK(tmsg_worker_create(context, NULL, &worker));
    CHECK(
        tmsg_listener_create(worker, "tcp://127.0.0.1:0", &params, &listener));
    CHECK(
        tmsg_endpoint_connect(worker, tmsg_listener_url(listener), NULL, &to));
    CHECK(tmsg_map_create(&map));
    CHECK(add(map, "image", cpu, host));
    CHECK(add(map, "weights", device, data));
    CHECK(tmsg_endpoint_send(to, map, &strict, &sent));
    CHECK(tmsg_worker_recv(worker, 10000, &message));
    if (show(tmsg_message_map(message)) != 0) {
        return 1;
    }
    CHECK(tmsg_request_wait(sent, 10000));
    tmsg_request_destroy(sent);
    tmsg_message_destroy(message);
    tmsg_map_destroy(map);
    domain->free(domain->arg, device, data, BYTES, none);
    tmsg_worker_destroy(worker);
    tmsg_context_destroy(context);
    return 0;
}
