/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/map.h - the tensor map: what travels.
 *
 * A map is an ordered set of named tensors, with metadata (meta.h). It is what
 * Python calls dict[str, ndarray].
 *
 *     tmsg_map_create(&map);
 *     tmsg_map_add_array(map, "image", pixels, "uint8", 3, shape);
 *     tmsg_endpoint_send_wait(endpoint, map, NULL, 1000);
 *     tmsg_map_destroy(map);
 *     // and at the receiver:
 *     tmsg_map_find_array(received, "image", "uint8", 3, &tensor);
 */
#ifndef TENSORMSG_MAP_H
#define TENSORMSG_MAP_H

#include <stddef.h>

#include <tensormsg/domain.h>
#include <tensormsg/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A map copies names, shapes and strides; it never copies tensor data. Each
 * tensor's data are borrowed or owned:
 *  - borrowed: there is no release function. The caller keeps the data valid
 *    while the map is in use.
 *  - owned: the release function is called once, when the tensor leaves the
 *    map. It runs inside the call that releases the tensor, and must not use
 *    that map.
 *
 * A map may be used by one thread at a time; different maps are independent. A
 * map is busy while it is being sent (from tmsg_endpoint_send() until its
 * request has ended), or a tensor of it is given out (tensormsg/dlpack.h). It
 * may then be read and sent again, but a change returns BUSY. */
typedef struct tmsg_map tmsg_map_t;

/* Creates an empty map, freed with tmsg_map_destroy(). Errors: NO_MEMORY. */
TMSG_API tmsg_status_t tmsg_map_create(tmsg_map_t **map_p);

/* Gives the caller's hold on the map back. The tensors are released now; if the
 * map is still being sent, when the last send has ended. NULL is allowed. Do
 * not destroy the map of a received message. */
TMSG_API void tmsg_map_destroy(tmsg_map_t *map);

enum {
    TMSG_MAP_ADD_PARAM_RELEASE = 1 << 0,
    TMSG_MAP_ADD_PARAM_STREAM = 1 << 1
};

/* How a tensor is added. */
typedef struct tmsg_map_add_params {
    uint64_t field_mask;     /* TMSG_MAP_ADD_PARAM_*; unset: defaults */
    tmsg_release_fn release; /* gives the data back; default NULL: borrowed */
    void *release_arg;       /* passed to release; set with it */
    tmsg_stream_t stream;    /* for memory of a device. A send reads the data
                              * after the earlier work of this stream. A receive
                              * into the tensor writes them after that work. The
                              * stream lives until then. Default none: the data
                              * are there */
} tmsg_map_add_params_t;

/* Appends a tensor under a new name. `name` is UTF-8, 1 to 4096 bytes,
 * NUL-terminated. The descriptor is copied with its shape and strides.
 * tensor->data is borrowed, or owned if `params` (NULL: defaults) give a
 * release function. On failure nothing changes and release is not called.
 * Errors:
 *   INVALID_PARAM - a NULL, the name, the descriptor, or an unknown bit
 *   ALREADY_EXISTS - the map has a tensor of that name
 *   LIMIT_EXCEEDED - the name or the tensor is too large
 *   UNSUPPORTED - the dtype; or elements that, with their lanes, are not whole
 *     bytes, with strides that leave gaps, overlap or are 0
 *   NO_MEMORY
 *   BUSY - the map is being sent */
TMSG_API tmsg_status_t tmsg_map_add(tmsg_map_t *map, const char *name,
                                    const tmsg_tensor_t *tensor,
                                    const tmsg_map_add_params_t *params);

/* Appends a C array under a new name: a tensor in host memory, in C order. The
 * data are borrowed. `dtype` is a name as tmsg_dtype_parse() reads it,
 * "float32" or "uint8". This is tmsg_map_add() with a descriptor of `data`,
 * `dtype`, `ndim` and `shape`, and no params. For the next frame in other
 * memory call tmsg_map_set_data().
 * Errors: those of tmsg_map_add(), and:
 *   INVALID_PARAM - dtype is NULL or names no dtype */
TMSG_API tmsg_status_t tmsg_map_add_array(tmsg_map_t *map, const char *name,
                                          void *data, const char *dtype,
                                          int32_t ndim, const int64_t *shape);

/* Returns the number of tensors; 0 if map is NULL. */
TMSG_API size_t tmsg_map_size(const tmsg_map_t *map);

/* Gives the tensor at `index`, in insertion order. *name_p and *tensor_p belong
 * to the map, and live until the map next changes. Either may be NULL. Errors:
 *   NOT_FOUND - the index is out of range
 *   INVALID_PARAM - map is NULL */
TMSG_API tmsg_status_t tmsg_map_at(const tmsg_map_t *map, size_t index,
                                   const char **name_p,
                                   tmsg_tensor_t *tensor_p);

/* Gives the tensor called `name`, as tmsg_map_at() does.
 * Errors:
 *   NOT_FOUND - no tensor has this name
 *   INVALID_PARAM - map or name is NULL */
TMSG_API tmsg_status_t tmsg_map_find(const tmsg_map_t *map, const char *name,
                                     tmsg_tensor_t *tensor_p);

/* Gives the tensor called `name` if C code can read it as an array. It has this
 * dtype (a name, as for tmsg_map_add_array()) and `ndim` dimensions. It lies in
 * host memory, in C order. tensor_p->data then has as many elements as
 * tensor_p->shape says, which may be none. Use this for the maps of peers,
 * which may send anything. *tensor_p is as in tmsg_map_find(), and may be NULL.
 * Errors:
 *   NOT_FOUND - no tensor has this name
 *   INVALID_PARAM - the tensor has another dtype or number of dimensions, which
 *     the error names; map, name or dtype is NULL; dtype names no dtype
 *   UNSUPPORTED - the CPU cannot read the tensor's memory; or its strides are
 *     others: tmsg_tensor_pack() copies it to C order */
TMSG_API tmsg_status_t tmsg_map_find_array(const tmsg_map_t *map,
                                           const char *name, const char *dtype,
                                           int32_t ndim,
                                           tmsg_tensor_t *tensor_p);

/* Points the tensor at `index` to other data, the next frame. Name, dtype,
 * shape, strides and device stay. This costs less than to clear the map and add
 * all tensors anew. The next send costs less too: it knows the layout. The
 * tensor's release function is called, if it has one. The new data are
 * borrowed, or owned, and on a stream, as `params` say (tmsg_map_add()). On
 * failure nothing changes and no release function is called.
 * Errors:
 *   NOT_FOUND - the index is out of range
 *   INVALID_PARAM - map is NULL; data is NULL and the tensor has elements; an
 *     unknown bit
 *   BUSY - the map is being sent */
TMSG_API tmsg_status_t tmsg_map_set_data(tmsg_map_t *map, size_t index,
                                         void *data,
                                         const tmsg_map_add_params_t *params);

/* Takes a tensor out and releases it. The later tensors keep their order.
 * Errors:
 *   NOT_FOUND - no tensor has this name
 *   INVALID_PARAM - map or name is NULL
 *   BUSY - the map is being sent */
TMSG_API tmsg_status_t tmsg_map_remove(tmsg_map_t *map, const char *name);

/* Takes everything out, metadata included. The map keeps its memory for the
 * next frame.
 * Errors:
 *   BUSY - the map is being sent
 *   INVALID_PARAM - map is NULL */
TMSG_API tmsg_status_t tmsg_map_clear(tmsg_map_t *map);

#ifdef __cplusplus
}
#endif

#endif
