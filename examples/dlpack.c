/* SPDX-License-Identifier: BSD-3-Clause */
/* dlpack: a tensor of another library's goes into a map and, where a map would
 * arrive, out of it again, without a copy. Both sides know each other by
 * <dlpack/dlpack.h> alone, of whatever version is installed. */
#include <stdio.h>
#include <stdlib.h>

#include <dlpack/dlpack.h>
#include <tensormsg/tensormsg.h>

#ifndef DLPACK_MAJOR_VERSION /* 0.6 has no versioned tensors */
#define DLPACK_MAJOR_VERSION 0
#endif

static float pixels[2][3] = {{1, 2, 3}, {4, 5, 6}};
static int64_t shape[] = {2, 3}, strides[] = {3, 1};

static void check(tmsg_status_t status)
{
    if (status != TMSG_OK) {
        fprintf(stderr, "dlpack: %s\n", tmsg_error_message());
        exit(1);
    }
}

/* What any library does that exports: Python's take the interpreter's lock
 * here. */
static void delete_image(struct DLManagedTensor *self)
{
    puts("the producer has its tensor back");
    free(self);
}

static DLManagedTensor *export_image(void)
{
    DLManagedTensor *managed = calloc(1, sizeof(*managed));

    if (managed == NULL) {
        exit(1);
    }
    managed->deleter = delete_image;
    managed->dl_tensor.data = pixels;
    managed->dl_tensor.device.device_type = kDLCPU;
    managed->dl_tensor.dtype.code = kDLFloat;
    managed->dl_tensor.dtype.bits = 32;
    managed->dl_tensor.dtype.lanes = 1;
    managed->dl_tensor.ndim = 2;
    managed->dl_tensor.shape = shape;
    managed->dl_tensor.strides = strides;
    return managed;
}

static void show(const char *from, const DLTensor *tensor)
{
    const float *first =
        (const void *)((const char *)tensor->data + tensor->byte_offset);

    printf("%s: %d dimensions, %lld x %lld, last pixel %g, %s\n", from,
           (int)tensor->ndim, (long long)tensor->shape[0],
           (long long)tensor->shape[1],
           first[tensor->strides[0] + 2 * tensor->strides[1]],
           first == &pixels[0][0] ? "not copied" : "copied");
}

#if DLPACK_MAJOR_VERSION >= 1
static void show_versioned(const tmsg_map_t *map)
{
    struct DLManagedTensorVersioned *managed; /* 1.0 has no typedef of it */

    check(tmsg_map_to_dlpack_versioned(map, "image", &managed));
    if (managed->version.major != DLPACK_MAJOR_VERSION ||
        (managed->flags & DLPACK_FLAG_BITMASK_READ_ONLY)) {
        exit(1);
    }
    show("versioned", &managed->dl_tensor);
    managed->deleter(managed);
}
#endif

int main(void)
{
    DLManagedTensor *managed;
    tmsg_map_t *map;

    check(tmsg_map_create(&map));
    check(tmsg_map_add_dlpack(map, "image", export_image()));
#if DLPACK_MAJOR_VERSION >= 1
    show_versioned(map);
#endif
    check(tmsg_map_to_dlpack(map, "image", &managed));
    tmsg_map_destroy(map); /* it lives on in `managed` */
    show("plain", &managed->dl_tensor);
    managed->deleter(managed);
}
