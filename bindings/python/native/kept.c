/* SPDX-License-Identifier: BSD-3-Clause */
#include "kept.h"

#include <string.h>

#include <tensormsg/meta.h>

#include "arrays.h"
#include "device.h"
#include "names.h"

#define KEPT_MAX 8
#define TRIED_MAX 3 /* of those of as many tensors */
#define TENSORS_MAX 1024
#define META_MAX 4096 /* bytes of values: taking out more gives up memory */

/* Laid out, the one that was given last at the end. */
static tmsg_map_t *kept[KEPT_MAX];
static unsigned kept_count;

/* An empty one, for what is laid out anew. Of maps of more tensors, which have
 * megabytes, only this is kept. */
static tmsg_map_t *room;

static bool same_extents(const int64_t *a, const int64_t *b, int32_t ndim)
{
    if (ndim == 0 || a == NULL || b == NULL) {
        return ndim == 0 || a == b;
    }
    return memcmp(a, b, (size_t)ndim * sizeof(*a)) == 0;
}

static bool is_like(const tmsg_tensor_t *a, const tmsg_tensor_t *b)
{
    return a->ndim == b->ndim && a->dtype.code == b->dtype.code &&
           a->dtype.bits == b->dtype.bits && a->dtype.lanes == b->dtype.lanes &&
           a->device.type == b->device.type && a->device.id == b->device.id &&
           same_extents(a->shape, b->shape, a->ndim) &&
           same_extents(a->strides, b->strides, a->ndim);
}

static bool is_ascii(const char *text)
{
    while (*text != '\0' && ((unsigned char)*text & 0x80) == 0) {
        text++;
    }
    return *text == '\0';
}

/* Returns false for equal names, too, if `name` has no UTF-8 yet and is not
 * ASCII: it is not converted here. */
static bool is_name(PyObject *name, const char *laid_name)
{
    const char *utf8 = tmsgpy_name_utf8(name);

    if (utf8 != NULL) {
        return strcmp(utf8, laid_name) == 0;
    }
    return PyUnicode_Check(name) && is_ascii(laid_name) &&
           PyUnicode_CompareWithASCIIString(name, laid_name) == 0;
}

/* A tensor that is like the one that lies there needs no checks: that one was
 * checked when it was added. */
static bool fill_one(tmsg_map_t *map, size_t index, PyObject *name,
                     PyObject *value)
{
    int64_t strides[TMSGPY_NDIM_MAX];
    tmsg_tensor_t tensor, laid;
    const char *laid_name;

    return tmsg_map_at(map, index, &laid_name, &laid) == TMSG_OK &&
           is_name(name, laid_name) &&
           tmsgpy_tensor_of(value, &tensor, strides) == 1 &&
           tmsgpy_is_host(&tensor) && is_like(&tensor, &laid) &&
           tmsg_map_set_data(map, index, tensor.data, NULL) == TMSG_OK;
}

/* Where it fails the map may have data of both, and is not to be sent. */
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

    kept_count--;
    memmove(kept + index, kept + index + 1,
            (kept_count - index) * sizeof(kept[0]));
    return map;
}

tmsg_map_t *tmsgpy_kept_take(PyObject *data, bool *filled_p)
{
    size_t size = PyDict_CheckExact(data) ? (size_t)PyDict_Size(data) : 0;
    tmsg_map_t *map = room;

    for (unsigned i = kept_count, tried = 0; i-- > 0 && tried < TRIED_MAX;) {
        if (tmsg_map_size(kept[i]) != size) {
            continue;
        }
        if (fill(kept[i], data)) {
            *filled_p = true;
            return take(i);
        }
        tried++;
    }
    *filled_p = false;
    room = NULL;
    return map != NULL || tmsg_map_create(&map) == TMSG_OK ? map : NULL;
}

static void keep_room(tmsg_map_t *map)
{
    if (room == NULL && tmsg_map_clear(map) == TMSG_OK) {
        room = map;
    } else {
        tmsg_map_destroy(map);
    }
}

static bool drop_meta(tmsg_map_t *map)
{
    size_t count, bytes = 0;

    while ((count = tmsg_map_meta_size(map)) > 0) {
        const char *key;
        tmsg_meta_t value;

        if (tmsg_map_meta_at(map, count - 1, &key, &value) != TMSG_OK ||
            (bytes += value.bytes) > META_MAX ||
            tmsg_map_remove_meta(map, key) != TMSG_OK) {
            return false;
        }
    }
    return true;
}

/* Whether nobody reads it any more, as of a call that goes on. */
static bool is_idle(tmsg_map_t *map)
{
    tmsg_tensor_t first;

    return tmsg_map_at(map, 0, NULL, &first) == TMSG_OK &&
           tmsg_map_set_data(map, 0, first.data, NULL) == TMSG_OK;
}

void tmsgpy_kept_give(tmsg_map_t *map)
{
    size_t size = tmsg_map_size(map);

    if (size == 0 || size > TENSORS_MAX) {
        keep_room(map);
    } else if (!is_idle(map)) {
        tmsg_map_destroy(map);
    } else if (!drop_meta(map)) {
        keep_room(map);
    } else {
        if (kept_count == KEPT_MAX) {
            keep_room(take(0));
        }
        kept[kept_count++] = map;
    }
}

void tmsgpy_kept_give_back(tmsg_map_t *map) { keep_room(map); }
