/* offer [URL]: offers "weights", in three versions, at tcp://127.0.0.1:13339.
 * examples/fetch.c fetches them. It runs until it is killed. */
#include <stdio.h>
#include <stdlib.h>
#include <tensormsg/tensormsg.h>

enum { VERSIONS = 3, ROWS = 4, COLUMNS = 3 };

static void check(tmsg_status_t status)
{
    if (status != TMSG_OK) {
        fprintf(stderr, "offer: %s\n", tmsg_error_message());
        exit(1);
    }
}

/* No peer reads these weights any more: the memory may be used for others. */
static void released(void *arg)
{
    printf("version %.0f is mine again\n", *(float *)arg);
    fflush(stdout);
    free(arg);
}

/* Offers weights of a version: version + row / 10. */
static tmsg_offer_t *offer_weights(tmsg_worker_t *worker, unsigned version)
{
    float *weights = malloc(ROWS * COLUMNS * sizeof(*weights));
    const int64_t shape[] = {ROWS, COLUMNS};
    const tmsg_tensor_t tensor = {
        .data = weights,
        .device = {.type = TMSG_DEVICE_CPU},
        .dtype = {.code = TMSG_DTYPE_FLOAT, .bits = 32, .lanes = 1},
        .ndim = 2,
        .shape = shape,
    };
    const tmsg_offer_params_t params = {
        .field_mask = TMSG_OFFER_PARAM_NAME | TMSG_OFFER_PARAM_VERSION |
                      TMSG_OFFER_PARAM_ON_RELEASE,
        .name = "weights",
        .version = version,
        .on_release = released,
        .on_release_arg = weights,
    };
    tmsg_offer_t *offer;
    tmsg_map_t *map;

    for (int i = 0; i < ROWS * COLUMNS; i++) {
        weights[i] = (float)version + (float)(i / COLUMNS) / 10;
    }
    check(tmsg_map_create(&map));
    check(tmsg_map_add(map, "w", &tensor, NULL));
    check(tmsg_offer_create(worker, map, &params, &offer));
    tmsg_map_destroy(map); /* the offer keeps it */
    return offer;
}

int main(int argc, char **argv)
{
    const char *url = argc > 1 ? argv[1] : "tcp://127.0.0.1:13339";
    tmsg_context_t *context;
    tmsg_worker_t *worker;
    tmsg_listener_t *listener;
    tmsg_offer_t *offer = NULL;

    check(tmsg_context_create(NULL, &context));
    check(tmsg_worker_create(context, NULL, &worker));
    check(tmsg_listener_create(worker, url, NULL, &listener));
    for (unsigned version = 1; version <= VERSIONS; version++) {
        tmsg_offer_t *before = offer;

        offer = offer_weights(worker, version);
        /* Whoever fetches now gets the new version. Those who are fetching the
         * one before may go on, and its memory is released after them. */
        if (before != NULL) {
            (void)tmsg_offer_withdraw(before, 1000);
            tmsg_offer_destroy(before);
        }
    }
    for (;;) {
        check(tmsg_worker_wait(worker, -1)); /* the library answers in here */
    }
}
