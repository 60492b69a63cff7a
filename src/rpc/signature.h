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

/* An extent that is no number: */
#define TMSG_EXTENT_ANY INT64_C(-1)    /* one of any size */
#define TMSG_EXTENT_REST INT64_C(-2)   /* any number of these */
#define TMSG_EXTENT_SYMBOL INT64_C(-3) /* the first symbol; the next, -4 */

typedef struct {
    const char *name; /* first two: as tmsg_names_t wants them */
    size_t name_bytes;
    bool optional;
    bool any_dtype;
    tmsg_dtype_t dtype;
    int32_t extent_count;
    int32_t rest; /* where in `extents` the "..." stands; -1: nowhere */
    const int64_t *extents;
} tmsg_want_tensor_t;

typedef struct {
    const char *key;
    size_t key_bytes;
    bool optional;
    int32_t type; /* tmsg_meta_type_t; 0: any */
} tmsg_want_meta_t;

typedef struct {
    tmsg_want_tensor_t *tensors;
    tmsg_names_t tensor_names; /* these */
    size_t tensor_room;
    tmsg_index_t tensor_index;
    tmsg_want_meta_t *metas;
    tmsg_names_t meta_names;
    size_t meta_room;
    tmsg_index_t meta_index;
    bool further;
} tmsg_want_side_t;

struct tmsg_signature {
    tmsg_refs_t refs; /* the handle's, and those of streams */
    tmsg_want_side_t sides[2];
    tmsg_arena_t arena; /* names, extents, symbols */
    const char *symbols[TMSG_SIGNATURE_SYMBOLS_MAX];
    size_t symbol_count;
};

/* One more reference, given back by tmsg_signature_destroy(). Gives
 * `signature`, or NULL. */
tmsg_signature_t *tmsg_signature_hold(const tmsg_signature_t *signature);

/* The number of a symbol, which is new or not, or -1: there are too many (-2:
 * no memory). */
int tmsg_signature_symbol(tmsg_signature_t *signature, const char *name,
                          size_t bytes);

/* Take a copy of *want into a side; extents and name are copied. Errors:
 * ALREADY_EXISTS, LIMIT_EXCEEDED, NO_MEMORY. */
tmsg_status_t tmsg_signature_put_tensor(tmsg_signature_t *signature,
                                        tmsg_signature_side_t side,
                                        const tmsg_want_tensor_t *want);
tmsg_status_t tmsg_signature_put_meta(tmsg_signature_t *signature,
                                      tmsg_signature_side_t side,
                                      const tmsg_want_meta_t *want);

/* Whether a name can be one of a map's, and NULL, or what is wrong with it. */
const char *tmsg_signature_name_fault(const char *name, size_t bytes);

/* Whether a key may have that type, and NULL, or why not. */
const char *tmsg_signature_meta_fault(const tmsg_want_meta_t *want);

/* Reads "uint8[b,h,w,3]" alone into *want, whose extents lie in `extents`,
 * which has room for TMSG_SIGNATURE_EXTENTS. Errors: INVALID_PARAM,
 * LIMIT_EXCEEDED, NO_MEMORY. */
#define TMSG_SIGNATURE_EXTENTS 65 /* as many as a tensor's, and "..." */
tmsg_status_t tmsg_signature_read_type(tmsg_signature_t *signature,
                                       const char *text,
                                       tmsg_want_tensor_t *want,
                                       int64_t *extents);

/* "i64", or "*". */
const char *tmsg_signature_meta_type(int32_t type);

/* Whether a name can be written as it is; else it is quoted. */
bool tmsg_signature_is_bare(const char *name, size_t bytes);

/* Writes "uint8[b,h,w,3]" into `text`; what does not fit ends in "...". */
#define TMSG_SIGNATURE_TYPE_TEXT 48
void tmsg_signature_show_want(const tmsg_signature_t *signature,
                              const tmsg_want_tensor_t *want,
                              char text[TMSG_SIGNATURE_TYPE_TEXT]);

#endif
