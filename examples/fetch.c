/* fetch [URL]: fetches version 3 or a newer one of "weights", which
 * examples/offer.c offers: all of it, then two rows. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <tensormsg/tensormsg.h>

static void check(tmsg_status_t status)
{
    if (status != TMSG_OK) {
        fprintf(stderr, "fetch: %s\n", tmsg_error_message());
        exit(1);
    }
}

/* Fetches version 3 or a newer one, and prints what came. */
static void fetch(tmsg_endpoint_t *owner, tmsg_fetch_params_t params)
{
    tmsg_tensor_t w;
    int64_t version;
    tmsg_call_t *call;

    params.field_mask |= TMSG_FETCH_PARAM_WAIT | TMSG_FETCH_PARAM_TIMEOUT;
    params.wait_ms = 4000;    /* it need not be there yet */
    params.timeout_ms = 5000; /* longer: the owner can say what is not there */
    check(tmsg_endpoint_fetch_name(owner, "weights", 3, &params, &call));
    check(tmsg_call_wait(call, -1));
    check(tmsg_map_find(tmsg_call_reply(call), "w", &w));
    check(tmsg_map_get_i64(tmsg_call_reply(call), TMSG_META_OFFER_VERSION,
                           &version));
    printf("version %" PRId64 ": %" PRId64 " x %" PRId64 ", the first is %g\n",
           version, w.shape[0], w.shape[1], *(const float *)w.data);
    tmsg_call_destroy(call); /* with the weights */
}

int main(int argc, char **argv)
{
    const char *url = argc > 1 ? argv[1] : "tcp://127.0.0.1:13339";
    const int64_t start[] = {1, 0}, count[] = {2, 3};
    const tmsg_slice_t rows = {
        .name = "w", .ndim = 2, .start = start, .count = count};
    const tmsg_fetch_params_t whole = {.field_mask = 0};
    const tmsg_fetch_params_t part = {.field_mask = TMSG_FETCH_PARAM_SLICES,
                                      .slices = &rows,
                                      .slice_count = 1};
    tmsg_context_t *context;
    tmsg_worker_t *worker;
    tmsg_endpoint_t *owner;

    check(tmsg_context_create(NULL, &context));
    check(tmsg_worker_create(context, NULL, &worker));
    check(tmsg_endpoint_connect(worker, url, NULL, &owner));
    fetch(owner, whole);
    fetch(owner, part);
    tmsg_worker_destroy(worker); /* with its endpoint */
    tmsg_context_destroy(context);
}
