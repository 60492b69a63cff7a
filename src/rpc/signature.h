/* SPDX-License-Identifier: BSD-3-Clause */
/* rpc/signature.h - the inside of a signature. */
#ifndef TMSG_RPC_SIGNATURE_H
#define TMSG_RPC_SIGNATURE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

#include <tensormsg/signature.h>

#include "core/arena.h"
#include "core/index.h"
#include "core/refs.h"

/* These extents are not numbers. In an array of extents the first symbol of the
 * signature is TMSG_EXTENT_SYMBOL, the second is one less, and so on. */
#define TMSG_EXTENT_ANY INT64_C(-1)    /* one dimension of any size */
#define TMSG_EXTENT_REST INT64_C(-2)   /* any number of dimensions */
#define TMSG_EXTENT_SYMBOL INT64_C(-3) /* the first symbol */

/* Describes a tensor that a signature names. `name` and `name_bytes` come
 * first, because tmsg_names_t demands it. */
typedef struct {
    const char *name;
    size_t name_bytes;
    bool optional;
    bool any_dtype; /* `dtype` is not used */
    tmsg_dtype_t dtype;
    int32_t extent_count;
    int32_t rest; /* index of "..." in `extents`; -1: there is none */
    const int64_t *extents;
} tmsg_want_tensor_t;

/* Describes a key of the metadata that a signature names. `key` and `key_bytes`
 * come first, because tmsg_names_t demands it. */
typedef struct {
    const char *key;
    size_t key_bytes;
    bool optional;
    int32_t type; /* tmsg_meta_type_t; 0: any type */
} tmsg_want_meta_t;

/* Describes one side of a signature: its inputs or its outputs. */
typedef struct {
    tmsg_want_tensor_t *tensors;
    tmsg_names_t tensor_names; /* the array `tensors`, as the index sees it */
    size_t tensor_room;        /* items that `tensors` has memory for */
    tmsg_index_t tensor_index;
    tmsg_want_meta_t *metas;
    tmsg_names_t meta_names; /* the array `metas`, as the index sees it */
    size_t meta_room;        /* items that `metas` has memory for */
    tmsg_index_t meta_index;
    bool further; /* the side takes items that it does not name, too */
} tmsg_want_side_t;

struct tmsg_signature {
    tmsg_refs_t refs;          /* of the handle, and of streams */
    tmsg_want_side_t sides[2]; /* by tmsg_signature_side_t */
    tmsg_arena_t arena;        /* memory of names, extents and symbols */
    const char *symbols[TMSG_SIGNATURE_SYMBOLS_MAX];
    size_t symbol_count;
};

/* Takes a reference, which the caller gives back by tmsg_signature_destroy().
 * Returns `signature`, which may be NULL. */
tmsg_signature_t *tmsg_signature_hold(const tmsg_signature_t *signature);

/* Returns the number of a symbol, and adds the symbol if it is new. Returns -1
 * if the signature has TMSG_SIGNATURE_SYMBOLS_MAX others, -2 if there is no
 * memory. */
int tmsg_signature_symbol(tmsg_signature_t *signature, const char *name,
                          size_t bytes);

/* These functions add a copy of *want to a side, with its name, extents or key.
 * Errors: ALREADY_EXISTS, LIMIT_EXCEEDED, NO_MEMORY. */
tmsg_status_t tmsg_signature_put_tensor(tmsg_signature_t *signature,
                                        tmsg_signature_side_t side,
                                        const tmsg_want_tensor_t *want);
tmsg_status_t tmsg_signature_put_meta(tmsg_signature_t *signature,
                                      tmsg_signature_side_t side,
                                      const tmsg_want_meta_t *want);

/* Checks whether a name can be a name of a map. Returns NULL if it can, else
 * what is wrong with the name ("is empty"). */
const char *tmsg_signature_name_fault(const char *name, size_t bytes);

/* Checks whether a key may have its type. Returns NULL if it may, else what is
 * wrong with the key ("is a key of another type"). */
const char *tmsg_signature_meta_fault(const tmsg_want_meta_t *want);

/* Reads a type like "uint8[b,h,w,3]", after which the text must end, into
 * *want; the name is left as it is. want->extents then points to `extents`,
 * which has room for TMSG_SIGNATURE_EXTENTS. New symbols are added to the
 * signature, on error too. Errors: INVALID_PARAM, LIMIT_EXCEEDED, NO_MEMORY. */
#define TMSG_SIGNATURE_EXTENTS 65 /* those of a tensor, and "..." */
tmsg_status_t tmsg_signature_read_type(tmsg_signature_t *signature,
                                       const char *text,
                                       tmsg_want_tensor_t *want,
                                       int64_t *extents);

/* Returns the word for a tmsg_meta_type_t, such as "i64"; 0 (any type) is "*".
 */
const char *tmsg_signature_meta_type(int32_t type);

/* Returns whether a name can be written without quotes. */
bool tmsg_signature_is_bare(const char *name, size_t bytes);

/* Writes a type like "uint8[b,h,w,3]" into `text`. A type that does not fit is
 * cut and ends in "...". */
#define TMSG_SIGNATURE_TYPE_TEXT 48
void tmsg_signature_show_want(const tmsg_signature_t *signature,
                              const tmsg_want_tensor_t *want,
                              char text[TMSG_SIGNATURE_TYPE_TEXT]);

#endif
