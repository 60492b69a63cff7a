/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/device.h"
#include "core/dlpack.h"
#include "core/error.h"
#include "core/params.h"
#include "core/tensor.h"

#define FLAGS_KNOWN                                                            \
    ((uint64_t)(TMSG_DLPACK_READ_ONLY | TMSG_DLPACK_COPIED |                   \
                TMSG_DLPACK_PADDED))
#define FLAGS_GIVEN ((uint64_t)(TMSG_DLPACK_READ_ONLY | TMSG_DLPACK_COPIED))
#define PARAMS_KNOWN                                                           \
    ((uint64_t)(TMSG_DLPACK_PARAM_FLAGS | TMSG_DLPACK_PARAM_RELEASE))

static tmsg_status_t check_offset(const tmsg_dl_tensor_t *dl)
{
    const char *name = tmsg_device_type_name(dl->device.type);

    if (name == NULL) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED, "unknown device type %d",
                              dl->device.type);
    }
    if (dl->byte_offset != 0 && !tmsg_device_has_addresses(dl->device.type)) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "byte_offset %" PRIu64 " into memory of %s, "
                              "which has handles and no addresses",
                              dl->byte_offset, name);
    }
    if (dl->byte_offset > UINTPTR_MAX - (uintptr_t)dl->data) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "byte_offset %" PRIu64
                              " is larger than any memory",
                              dl->byte_offset);
    }
    return TMSG_OK;
}

static tmsg_status_t describe_managed(const tmsg_dl_tensor_t *dl,
                                      tmsg_tensor_t *tensor_p)
{
    tmsg_tensor_t tensor = {dl->data, dl->device, dl->dtype,
                            dl->ndim, dl->shape,  dl->strides};
    tmsg_status_t status = check_offset(dl);

    if (status != TMSG_OK) {
        return status;
    }
    if (dl->data != NULL) {
        tensor.data = (char *)dl->data + dl->byte_offset;
    }
    status = tmsg_tensor_check(&tensor);
    if (status == TMSG_OK) {
        *tensor_p = tensor;
    }
    return status;
}

static tmsg_status_t check_flags(const struct DLManagedTensorVersioned *managed)
{
    uint8_t bits = managed->dl_tensor.dtype.bits; /* lanes are padded, too */

    if (managed->flags & ~FLAGS_KNOWN) {
        return tmsg_error_set(
            TMSG_ERR_UNSUPPORTED,
            "unknown flags 0x%" PRIx64 " of a tensor of DLPack %u.%u",
            managed->flags & ~FLAGS_KNOWN, managed->major, managed->minor);
    }
    if ((managed->flags & TMSG_DLPACK_PADDED) && bits % 8 != 0) {
        return tmsg_error_set(
            TMSG_ERR_UNSUPPORTED,
            "values of %u bits are padded to whole bytes: pack them first",
            bits);
    }
    return TMSG_OK;
}

static tmsg_status_t check_managed(const void *managed)
{
    return managed != NULL
               ? TMSG_OK
               : tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                                "the managed tensor of DLPack is NULL");
}

tmsg_status_t tmsg_tensor_from_dlpack(const struct DLManagedTensor *managed,
                                      tmsg_tensor_t *tensor_p)
{
    tmsg_status_t status = check_managed(managed);

    return status == TMSG_OK ? describe_managed(&managed->dl_tensor, tensor_p)
                             : status;
}

tmsg_status_t tmsg_tensor_from_dlpack_versioned(
    const struct DLManagedTensorVersioned *managed, tmsg_tensor_t *tensor_p,
    uint64_t *flags_p)
{
    tmsg_status_t status = check_managed(managed);

    if (status != TMSG_OK) {
        return status;
    }
    if (managed->major != TMSG_DLPACK_MAJOR) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "the tensor is of DLPack %u.%u; this version of "
                              "tensormsg reads DLPack %d",
                              managed->major, managed->minor,
                              TMSG_DLPACK_MAJOR);
    }
    status = check_flags(managed);
    if (status == TMSG_OK) {
        status = describe_managed(&managed->dl_tensor, tensor_p);
    }
    if (status == TMSG_OK && flags_p != NULL) {
        *flags_p = managed->flags;
    }
    return status;
}

void tmsg_dlpack_destroy(struct DLManagedTensor *managed)
{
    if (managed != NULL && managed->deleter != NULL) {
        managed->deleter(managed);
    }
}

void tmsg_dlpack_destroy_versioned(struct DLManagedTensorVersioned *managed)
{
    if (managed != NULL && managed->deleter != NULL) {
        managed->deleter(managed);
    }
}

static void release_plain(void *arg) { tmsg_dlpack_destroy(arg); }

static void release_versioned(void *arg) { tmsg_dlpack_destroy_versioned(arg); }

bool tmsg_map_entry_is_read_only(const tmsg_map_entry_t *entry)
{
    const struct DLManagedTensorVersioned *managed = entry->release_arg;

    return entry->release == tmsg_map_read_only ||
           (entry->release == release_versioned &&
            (managed->flags & TMSG_DLPACK_READ_ONLY));
}

/* Puts the name in front of the error of a tensor that could not be
 * described. */
static tmsg_status_t put_name_in_front(tmsg_status_t status, const char *name)
{
    return name == NULL
               ? status
               : tmsg_error_set(status, "tensor '%s': %s",
                                tmsg_error_name(name, strlen(name)).text,
                                tmsg_error_message());
}

/* Adds a managed tensor if `status`, of describing it, is TMSG_OK. Otherwise,
 * or if it cannot be added, the tensor is released. */
static tmsg_status_t add_managed(tmsg_map_t *map, const char *name,
                                 tmsg_status_t status,
                                 const tmsg_tensor_t *tensor,
                                 tmsg_release_fn release, void *managed)
{
    const tmsg_map_add_params_t params = {
        .field_mask = TMSG_MAP_ADD_PARAM_RELEASE,
        .release = release,
        .release_arg = managed,
    };

    status = status == TMSG_OK ? tmsg_map_add(map, name, tensor, &params)
                               : put_name_in_front(status, name);
    if (status != TMSG_OK) {
        char why[TMSG_ERROR_BYTES];

        strcpy(why, tmsg_error_message());
        release(managed); /* may set an error message of its own */
        tmsg_error_set(status, "%s", why);
    }
    return status;
}

tmsg_status_t tmsg_map_add_dlpack(tmsg_map_t *map, const char *name,
                                  struct DLManagedTensor *managed)
{
    tmsg_tensor_t tensor = {0};
    tmsg_status_t status = tmsg_tensor_from_dlpack(managed, &tensor);

    return add_managed(map, name, status, &tensor, release_plain, managed);
}

tmsg_status_t
tmsg_map_add_dlpack_versioned(tmsg_map_t *map, const char *name,
                              struct DLManagedTensorVersioned *managed)
{
    tmsg_tensor_t tensor = {0};
    tmsg_status_t status =
        tmsg_tensor_from_dlpack_versioned(managed, &tensor, NULL);

    return add_managed(map, name, status, &tensor, release_versioned, managed);
}

/* Holds a managed tensor that this library has made. Its shape and strides are
 * at its end. */
typedef struct {
    union {
        struct DLManagedTensor plain;
        struct DLManagedTensorVersioned versioned;
    } managed;
    tmsg_release_fn release;
    void *release_arg;
    int64_t extents[];
} made_t;

static void end_managed(made_t *made)
{
    if (made->release != NULL) {
        made->release(made->release_arg);
    }
    free(made);
}

static void delete_plain(struct DLManagedTensor *self)
{
    end_managed(self->manager_ctx);
}

static void delete_versioned(struct DLManagedTensorVersioned *self)
{
    end_managed(self->manager_ctx);
}

/* Writes strides for a reader that expects them. If the tensor has no elements,
 * the strides may be any. */
static void put_strides(const tmsg_tensor_t *tensor, int64_t *strides)
{
    uint64_t step = 1;

    for (int32_t i = tensor->ndim; i-- > 0;) {
        strides[i] =
            tensor->strides != NULL ? tensor->strides[i] : (int64_t)step;
        step *= (uint64_t)tensor->shape[i];
    }
}

/* Describes the tensor that is to be given out. */
typedef struct {
    tmsg_tensor_t tensor;
    uint64_t bytes;
    uint64_t flags;
    tmsg_release_fn release;
    void *release_arg;
} source_t;

/* Makes all of a managed tensor but `managed`. */
static made_t *alloc_managed(const source_t *source, tmsg_dl_tensor_t *dl_p)
{
    const tmsg_tensor_t *tensor = &source->tensor;
    size_t ndim = (size_t)tensor->ndim;
    made_t *made = malloc(sizeof(*made) + 2 * ndim * sizeof(int64_t));

    if (made == NULL) {
        tmsg_error_memory("a tensor of DLPack");
        return NULL;
    }
    made->release = source->release;
    made->release_arg = source->release_arg;
    if (ndim > 0) {
        memcpy(made->extents, tensor->shape, ndim * sizeof(int64_t));
        put_strides(tensor, made->extents + ndim);
    }
    *dl_p = (tmsg_dl_tensor_t){.data = source->bytes == 0 ? NULL : tensor->data,
                               .device = tensor->device,
                               .ndim = tensor->ndim,
                               .dtype = tensor->dtype,
                               .shape = made->extents,
                               .strides = made->extents + ndim};
    return made;
}

static tmsg_status_t make_plain(const source_t *source,
                                struct DLManagedTensor **managed_p)
{
    tmsg_dl_tensor_t dl;
    made_t *made;

    if (source->flags & TMSG_DLPACK_READ_ONLY) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "the tensor is read-only, which DLManagedTensor "
                              "cannot express: use DLManagedTensorVersioned");
    }
    made = alloc_managed(source, &dl);
    if (made == NULL) {
        return TMSG_ERR_NO_MEMORY;
    }
    made->managed.plain = (struct DLManagedTensor){dl, made, delete_plain};
    *managed_p = &made->managed.plain;
    return TMSG_OK;
}

static tmsg_status_t make_versioned(const source_t *source,
                                    struct DLManagedTensorVersioned **managed_p)
{
    tmsg_dl_tensor_t dl;
    made_t *made = alloc_managed(source, &dl);

    if (made == NULL) {
        return TMSG_ERR_NO_MEMORY;
    }
    made->managed.versioned = (struct DLManagedTensorVersioned){
        TMSG_DLPACK_MAJOR, TMSG_DLPACK_MINOR, made,
        delete_versioned,  source->flags,     dl};
    *managed_p = &made->managed.versioned;
    return TMSG_OK;
}

static tmsg_status_t read_dlpack_params(const tmsg_dlpack_params_t *params,
                                        source_t *source)
{
    if (params->field_mask & ~PARAMS_KNOWN) {
        return tmsg_params_unknown("dlpack",
                                   params->field_mask & ~PARAMS_KNOWN);
    }
    if (params->field_mask & TMSG_DLPACK_PARAM_FLAGS) {
        source->flags = params->flags;
    }
    if (source->flags & ~FLAGS_GIVEN) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "dlpack: flags 0x%" PRIx64
                              " are neither READ_ONLY nor COPIED",
                              source->flags & ~FLAGS_GIVEN);
    }
    if (params->field_mask & TMSG_DLPACK_PARAM_RELEASE) {
        source->release = params->release;
        source->release_arg = params->release_arg;
    }
    return TMSG_OK;
}

static tmsg_status_t source_of_tensor(const tmsg_tensor_t *tensor,
                                      const tmsg_dlpack_params_t *params,
                                      const void *managed_p, source_t *source)
{
    tmsg_status_t status;

    if (managed_p == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "managed_p is NULL");
    }
    status = tmsg_tensor_check_data(tensor, &source->bytes);
    if (status == TMSG_OK) {
        source->tensor = *tensor;
    }
    return status == TMSG_OK && params != NULL
               ? read_dlpack_params(params, source)
               : status;
}

tmsg_status_t tmsg_tensor_to_dlpack(const tmsg_tensor_t *tensor,
                                    const tmsg_dlpack_params_t *params,
                                    struct DLManagedTensor **managed_p)
{
    source_t source = {.flags = 0};
    tmsg_status_t status = source_of_tensor(tensor, params, managed_p, &source);

    return status == TMSG_OK ? make_plain(&source, managed_p) : status;
}

tmsg_status_t
tmsg_tensor_to_dlpack_versioned(const tmsg_tensor_t *tensor,
                                const tmsg_dlpack_params_t *params,
                                struct DLManagedTensorVersioned **managed_p)
{
    source_t source = {.flags = 0};
    tmsg_status_t status = source_of_tensor(tensor, params, managed_p, &source);

    return status == TMSG_OK ? make_versioned(&source, managed_p) : status;
}

static void release_map(void *arg)
{
    const tmsg_map_t *map = arg;

    if (tmsg_map_unhold(map)) {
        tmsg_map_free(map);
    }
}

static tmsg_status_t source_of_map(const tmsg_map_t *map, const char *name,
                                   const void *managed_p, source_t *source)
{
    tmsg_tensor_t tensor;
    const tmsg_map_entry_t *entry;
    tmsg_status_t status = tmsg_map_find(map, name, &tensor);

    if (status == TMSG_OK) {
        status = source_of_tensor(&tensor, NULL, managed_p, source);
    }
    if (status != TMSG_OK) {
        return status;
    }
    entry = &tmsg_map_entries(map)[tmsg_map_position(map, name, strlen(name))];
    if (tmsg_map_entry_is_read_only(entry)) {
        source->flags = TMSG_DLPACK_READ_ONLY;
    }
    source->release = release_map;
    source->release_arg = (void *)(uintptr_t)map;
    return TMSG_OK;
}

/* Holds the map for what was made. If nothing was made, the map is not held and
 * the error gets the name. */
static tmsg_status_t hold_map(const tmsg_map_t *map, const char *name,
                              tmsg_status_t status)
{
    if (status == TMSG_OK) {
        tmsg_map_hold(map);
        return TMSG_OK;
    }
    return put_name_in_front(status, name);
}

tmsg_status_t tmsg_map_to_dlpack(const tmsg_map_t *map, const char *name,
                                 struct DLManagedTensor **managed_p)
{
    source_t source = {.flags = 0};
    tmsg_status_t status = source_of_map(map, name, managed_p, &source);

    return status == TMSG_OK
               ? hold_map(map, name, make_plain(&source, managed_p))
               : status;
}

tmsg_status_t
tmsg_map_to_dlpack_versioned(const tmsg_map_t *map, const char *name,
                             struct DLManagedTensorVersioned **managed_p)
{
    source_t source = {.flags = 0};
    tmsg_status_t status = source_of_map(map, name, managed_p, &source);

    return status == TMSG_OK
               ? hold_map(map, name, make_versioned(&source, managed_p))
               : status;
}
