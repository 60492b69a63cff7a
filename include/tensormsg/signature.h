/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/signature.h - what a method takes and gives.
 *
 * A signature is a text that lists tensors and metadata of the request and of
 * the reply. A server checks it for each call (server.h); this object checks a
 * map by hand.
 *
 *     tmsg_signature_parse("(x: float32[n]) -> (y: float32[n])", &signature);
 *     tmsg_signature_check_inputs(signature, map);
 *     tmsg_signature_check_outputs(signature, map, reply);
 *     tmsg_signature_destroy(signature);
 */
#ifndef TENSORMSG_SIGNATURE_H
#define TENSORMSG_SIGNATURE_H

#include <stdint.h>

#include <tensormsg/map.h>
#include <tensormsg/meta.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The tensors, and keys of the metadata, that a map has to have: names, dtypes
 * and extents, for the maps that go in (the request) and those that come out
 * (the reply). As text, whose grammar is in docs/reference/signatures.md:
 *
 *   (image: uint8[b,h,w,3], threshold?: float32[]) -> (scores: float32[b,1000])
 *
 * A symbol such as b is the same number wherever it stands, in the request and
 * in its reply. `*` is any one extent (or any dtype), `...` any number of them,
 * `?` may be missing, `@key: i64` is of the metadata. A side takes nothing that
 * it does not name, unless its last item is `...`; keys that begin with
 * "tensormsg." are taken always. Without `->` the reply may be anything.
 *
 * A method is given its signature when it is registered (tensormsg/server.h).
 * The object here is for those who want to look at one, to make one out of
 * parts, or to check a map before they send it.
 *
 * Threads: one that nobody changes may be used by any number of them. */
typedef struct tmsg_signature tmsg_signature_t;

typedef enum {
    TMSG_SIGNATURE_INPUTS = 0,
    TMSG_SIGNATURE_OUTPUTS = 1
} tmsg_signature_side_t;

/* What a signature holds at most. */
enum {
    TMSG_SIGNATURE_TEXT_MAX = 65536, /* bytes of its text */
    TMSG_SIGNATURE_ITEMS_MAX = 1024, /* tensors of a side, and keys of it */
    TMSG_SIGNATURE_SYMBOLS_MAX = 64, /* different ones, of 64 bytes at most */
};

/* Reads a text, UTF-8 with a NUL after it. The caller frees *signature_p with
 * tmsg_signature_destroy(). Errors: INVALID_PARAM, with line and column and
 * what is wrong there ("signature, line 1, column 9: 'flaot32' names no
 * dtype"), LIMIT_EXCEEDED (the bounds above, likewise), NO_MEMORY. */
TMSG_API tmsg_status_t tmsg_signature_parse(const char *text,
                                            tmsg_signature_t **signature_p);

/* One that takes nothing and gives nothing: "() -> ()". Freed likewise. Errors:
 * NO_MEMORY. */
TMSG_API tmsg_status_t tmsg_signature_create(tmsg_signature_t **signature_p);

/* Gives the caller's handle back; a stream that was opened with it keeps the
 * signature as long as it needs it. Any thread. NULL is allowed. */
TMSG_API void tmsg_signature_destroy(tmsg_signature_t *signature);

enum { TMSG_SIGNATURE_OPTIONAL = 1 << 0 /* it may be missing */ };

/* Adds a tensor behind those that are there. `name` is one of a map's, which
 * needs no quotes here; `type` is a text like "uint8[b,h,w,3]"; both are
 * copied. `flags` is TMSG_SIGNATURE_OPTIONAL or 0. On failure nothing changes.
 * Errors: INVALID_PARAM (a NULL, name, side, flag; in `type`, with the column),
 * BUSY (a stream has it), ALREADY_EXISTS (name), LIMIT_EXCEEDED, NO_MEMORY. */
TMSG_API tmsg_status_t tmsg_signature_add_tensor(tmsg_signature_t *signature,
                                                 tmsg_signature_side_t side,
                                                 const char *name,
                                                 const char *type,
                                                 uint32_t flags);

/* The same for a key of the metadata. `type` is a tmsg_meta_type_t, or 0: any.
 * Errors: as above; INVALID_PARAM (a type that a reserved key cannot have). */
TMSG_API tmsg_status_t tmsg_signature_add_meta(tmsg_signature_t *signature,
                                               tmsg_signature_side_t side,
                                               const char *key, int32_t type,
                                               uint32_t flags);

/* Has that side take tensors and keys that it does not name, too. Errors:
 * INVALID_PARAM (signature is NULL; side), BUSY (a stream has it). */
TMSG_API tmsg_status_t tmsg_signature_allow_further(tmsg_signature_t *signature,
                                                    tmsg_signature_side_t side);

/* Whether a map is what goes in. Nothing is allocated. Errors: INVALID_PARAM,
 * which says what and how: '"image" is float32[1,480,640,3]: the method takes
 * uint8[b,h,w,3]' (also where a pointer is NULL). */
TMSG_API tmsg_status_t tmsg_signature_check_inputs(
    const tmsg_signature_t *signature, const tmsg_map_t *map);

/* Whether `map` is what comes out where `inputs` went in, whose extents the
 * symbols have; with `inputs` NULL only those of `map` have to agree. Nothing
 * is allocated. Errors: INVALID_PARAM, likewise; that `inputs` is not what goes
 * in is found first. */
TMSG_API tmsg_status_t
tmsg_signature_check_outputs(const tmsg_signature_t *signature,
                             const tmsg_map_t *inputs, const tmsg_map_t *map);

/* Writes the text that reads back as the same signature, on one line: tensors
 * in their order, then keys. *text_p is freed with tmsg_string_free(). Errors:
 * INVALID_PARAM (signature is NULL), LIMIT_EXCEEDED (one that was built, and
 * whose text would be too long to read), NO_MEMORY. */
TMSG_API tmsg_status_t tmsg_signature_to_text(const tmsg_signature_t *signature,
                                              char **text_p);

/* The same as JSON, as docs/reference/signatures.md shows; freed likewise.
 * Errors: INVALID_PARAM (signature is NULL), NO_MEMORY. */
TMSG_API tmsg_status_t tmsg_signature_to_json(const tmsg_signature_t *signature,
                                              char **json_p);

#ifdef __cplusplus
}
#endif

#endif
