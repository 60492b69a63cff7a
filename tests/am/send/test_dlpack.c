/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* Messages whose tensors are given out as DLPack's, and maps made of such. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>

#include "core/dlpack.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

static unsigned deleted;

static void delete_it(struct DLManagedTensorVersioned *self)
{
    free(self->dl_tensor.data);
    deleted++;
}

static int64_t extent;

static struct DLManagedTensorVersioned filled(uint64_t seed, size_t bytes)
{
    struct DLManagedTensorVersioned managed = {
        .major = 1,
        .deleter = delete_it,
        .dl_tensor = {.data = malloc(bytes),
                      .device = {TMSG_DEVICE_CPU, 0},
                      .ndim = 1,
                      .dtype = {TMSG_DTYPE_UINT, 8, 1},
                      .shape = &extent}};

    must_true(managed.dl_tensor.data != NULL);
    sample_fill(seed, managed.dl_tensor.data, bytes);
    extent = (int64_t)bytes;
    return managed;
}

static const size_t small_and_large[] = {10, 8000, 300000, 5000000};

/* From deleter to deleter: in one process, out of the other, and in again. */
Test(dlpack, a_tensor_outlives_message_endpoint_worker_and_context)
{
    for (link_t link = 0; link < LINKS; link++) {
        struct DLManagedTensorVersioned managed[4], *out[4];
        pair_t pair;

        deleted = 0;
        pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
        for (unsigned i = 0; i < 4; i++) {
            tmsg_message_t *message;
            tmsg_map_t *map;

            managed[i] = filled(i, small_and_large[i]);
            must(tmsg_map_create(&map));
            must(tmsg_map_add_dlpack_versioned(map, "x", &managed[i]));
            tmsg_request_destroy(send_map(pair.to_a, map, 0));
            message = pair_take(&pair, &pair.a);
            must(tmsg_map_to_dlpack_versioned(tmsg_message_map(message), "x",
                                              &out[i]));
            tmsg_message_destroy(message);
        }
        tmsg_endpoint_destroy(pair.to_b);
        pair_drop(&pair);
        must_eq(deleted, 4);
        for (unsigned i = 0; i < 4; i++) {
            size_t bytes = (size_t)out[i]->dl_tensor.shape[0];

            must_eq(bytes, small_and_large[i]);
            must_eq(sample_compare(i, out[i]->dl_tensor.data, bytes), bytes);
            must_eq(out[i]->flags, 0);
            tmsg_dlpack_destroy_versioned(out[i]);
        }
    }
}

Test(dlpack, nothing_is_received_into_what_is_read_only)
{
    struct DLManagedTensorVersioned managed = filled(1, 100), *out;
    tmsg_message_t *message;
    tmsg_map_t *map;
    pair_t pair;

    managed.flags = TMSG_DLPACK_READ_ONLY;
    must(tmsg_map_create(&map));
    must(tmsg_map_add_dlpack_versioned(map, "weights 0", &managed));
    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    tmsg_request_destroy(send_map(pair.to_a, sample_bytes(2, 100), 0));
    must_be(tmsg_endpoint_recv_into(pair.to_b, map, 1000, &message),
            TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), "tensor 'weights 0' is read-only");
    must_eq(sample_compare(1, managed.dl_tensor.data, 100), 100);
    message = pair_take(&pair, &pair.a); /* it has lost nothing */
    sample_check_bytes(2, 100, tmsg_message_map(message));
    must(tmsg_map_to_dlpack_versioned(tmsg_message_map(message), "weights 0",
                                      &out));
    must_eq(out->flags, 0); /* what was received is nobody else's */
    tmsg_dlpack_destroy_versioned(out);
    tmsg_message_destroy(message);
    tmsg_map_destroy(map);
    pair_drop(&pair);
    must_eq(deleted, 1);
}

/* A map that gave a tensor out is not received into, and may be sent. */
Test(dlpack, what_is_given_out_may_be_sent)
{
    tmsg_map_t *map = sample_bytes(3, 100000);
    tmsg_message_t *message = NULL;
    struct DLManagedTensor *out;
    tmsg_request_t *sent;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    must(tmsg_map_to_dlpack(map, "weights 0", &out));
    must_be(tmsg_endpoint_recv_into(pair.to_b, map, 0, &message),
            TMSG_ERR_BUSY);
    must(tmsg_endpoint_send(pair.to_a, map, NULL, &sent));
    tmsg_map_destroy(map);
    message = pair_take(&pair, &pair.a);
    sample_check_bytes(3, 100000, tmsg_message_map(message));
    tmsg_message_destroy(message);
    must(pair_finish(&pair, sent));
    pair_drop(&pair);
    must_eq(sample_compare(3, out->dl_tensor.data, 100000), 100000);
    tmsg_dlpack_destroy(out);
}
