/* SPDX-License-Identifier: BSD-3-Clause */
#include "kept.h"

#include <string.h>

#include <tensormsg/meta.h>

#include "arrays.h"
#include "device.h"
#include "names.h"

#define KEPT_MAX 8
#define TRIED_MAX 3 /* whose layout is compared */

static tmsg_map_t *kept[KEPT_MAX]; /* what came last is mostly the last */
static unsigned kept_count;

static bool same_extents(const int64_t *a, const int64_t *b, int32_t ndim)
{
    return a == NULL || b == NULL
               ? a == b
               : memcmp(a, b, (size_t)ndim * sizeof(*a)) == 0;
}

static bool is_like(const tmsg_tensor_t *a, const tmsg_tensor_t *b)
{
    return a->ndim == b->ndim && a->dtype.code == b->dtype.code &&
           a->dtype.bits == b->dtype.bits && a->dtype.lanes == b->dtype.lanes &&
           a->device.type == b->device.type && a->device.id == b->device.id &&
           same_extents(a->shape, b->shape, a->ndim) &&
           same_extents(a->strides, b->strides, a->ndim);
}

static bool fill_one(tmsg_map_t *map, size_t index, PyObject *name,
                     PyObject *value)
{
    int64_t strides[TMSGPY_NDIM_MAX];
    const char *utf8 = tmsgpy_name_utf8(name), *laid_name;
    tmsg_tensor_t tensor, laid;

    return utf8 != NULL && tmsgpy_tensor_of(value, &tensor, strides) == 1 &&
           tmsgpy_is_host(&tensor) &&
           tmsg_map_at(map, index, &laid_name, &laid) == TMSG_OK &&
           strcmp(utf8, laid_name) == 0 && is_like(&tensor, &laid) &&
           tmsg_map_set_data(map, index, tensor.data, NULL) == TMSG_OK;
}

/* Where it fails the map may have data of both, and is to be cleared. */
static bool fill(tmsg_map_t *map, PyObject *data)
{
    PyObject *name, *value;
    Py_ssize_t at = 0;
    size_t index = 0;

    while (PyDict_Next(data, &at, &name, &value)) {
        if (!fill_one(map, index++, name, value)) {
            return false;
        }
    }
    return true;
}

static tmsg_map_t *take(unsigned index)
{
    tmsg_map_t *map = kept[index];

    kept[index] = kept[--kept_count];
    return map;
}

tmsg_map_t *tmsgpy_kept_take(PyObject *data, bool *filled_p)
{
    size_t size = PyDict_CheckExact(data) ? (size_t)PyDict_Size(data) : 0;
    tmsg_map_t *map;

    *filled_p = false;
    for (unsigned i = kept_count, tried = 0; i-- > 0 && tried < TRIED_MAX;) {
        if (size > 0 && tmsg_map_size(kept[i]) == size) {
            tried++;
            *filled_p = fill(kept[i], data);
        }
        if (*filled_p) {
            return take(i);
        }
    }
    while (kept_count == KEPT_MAX) {
        map = take(0);
        if (tmsg_map_clear(map) == TMSG_OK) {
            return map;
        }
        tmsg_map_destroy(map); /* somebody reads it yet */
    }
    return tmsg_map_create(&map) == TMSG_OK ? map : NULL;
}

static bool drop_meta(tmsg_map_t *map)
{
    size_t count;

    while ((count = tmsg_map_meta_size(map)) > 0) {
        const char *key;

        if (tmsg_map_meta_at(map, count - 1, &key, NULL) != TMSG_OK ||
            tmsg_map_remove_meta(map, key) != TMSG_OK) {
            return false;
        }
    }
    return true;
}

void tmsgpy_kept_give(tmsg_map_t *map)
{
    if (kept_count < KEPT_MAX && drop_meta(map)) {
        kept[kept_count++] = map;
    } else {
        tmsg_map_destroy(map);
    }
}
