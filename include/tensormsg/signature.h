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

/* A signature lists the tensors and metadata keys that a map has to have:
 * names, dtypes and extents, of the map that goes in (the request) and of the
 * one that comes out (the reply). As text, whose grammar is in
 * docs/reference/signatures.md:
 *
 *   (image: uint8[b,h,w,3], threshold?: float32[]) -> (scores: float32[b,1000])
 *
 * A symbol such as b is the same number wherever it stands, in the request and
 * in its reply. `*` is any one extent (or any dtype), `...` any number of
 * extents. `?` marks what may be missing. `@key: i64` is of the metadata. A
 * side takes nothing that the signature does not name, unless the last item is
 * `...`. Keys that begin with "tensormsg." are always taken. Without `->` the
 * reply may be anything.
 *
 * A method gets its signature when it is registered (tensormsg/server.h). This
 * object is for programs that look at a signature, build one, or check a map
 * before they send it.
 *
 * Threads: any number of threads may use a signature that nobody changes. */
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

/* Reads a text, UTF-8 and NUL-terminated. The caller frees *signature_p with
 * tmsg_signature_destroy(). The words of an error say line, column and what is
 * wrong there: "signature, line 1, column 9: 'flaot32' names no dtype".
 * Errors:
 *   INVALID_PARAM - the text is no signature
 *   LIMIT_EXCEEDED - the text is beyond the limits above
 *   NO_MEMORY */
TMSG_API tmsg_status_t tmsg_signature_parse(const char *text,
                                            tmsg_signature_t **signature_p);

/* Creates a signature that takes nothing and gives nothing: "() -> ()". Freed
 * likewise.
 * Errors: NO_MEMORY. */
TMSG_API tmsg_status_t tmsg_signature_create(tmsg_signature_t **signature_p);

/* Gives the caller's handle back. A stream that was opened with the signature
 * keeps it as long as it needs it. From any thread. NULL is allowed. */
TMSG_API void tmsg_signature_destroy(tmsg_signature_t *signature);

enum { TMSG_SIGNATURE_OPTIONAL = 1 << 0 /* it may be missing */ };

/* Adds a tensor after those that are there. `name` is that of a map's tensor,
 * which needs no quotes here. `type` is a text like "uint8[b,h,w,3]". Both are
 * copied. `flags` is TMSG_SIGNATURE_OPTIONAL or 0. On failure nothing changes.
 * Errors:
 *   INVALID_PARAM - a NULL, the name, side or flag; or `type`, with the column
 *   BUSY - a stream has the signature
 *   ALREADY_EXISTS - that side has a tensor of that name
 *   LIMIT_EXCEEDED
 *   NO_MEMORY */
TMSG_API tmsg_status_t tmsg_signature_add_tensor(tmsg_signature_t *signature,
                                                 tmsg_signature_side_t side,
                                                 const char *name,
                                                 const char *type,
                                                 uint32_t flags);

/* Adds a key of the metadata, likewise. `type` is a tmsg_meta_type_t, or 0:
 * any.
 * Errors: those of tmsg_signature_add_tensor(), and:
 *   INVALID_PARAM - a type that a reserved key cannot have */
TMSG_API tmsg_status_t tmsg_signature_add_meta(tmsg_signature_t *signature,
                                               tmsg_signature_side_t side,
                                               const char *key, int32_t type,
                                               uint32_t flags);

/* Lets that side also take tensors and keys that the signature does not name.
 * Errors:
 *   INVALID_PARAM - signature is NULL, or the side
 *   BUSY - a stream has the signature */
TMSG_API tmsg_status_t tmsg_signature_allow_further(tmsg_signature_t *signature,
                                                    tmsg_signature_side_t side);

/* Checks that a map is what goes in. Nothing is allocated.
 * Errors:
 *   INVALID_PARAM - it is not, and the error says what and how: '"image" is
 *     float32[1,480,640,3]: the method takes uint8[b,h,w,3]'; or a pointer is
 *     NULL */
TMSG_API tmsg_status_t tmsg_signature_check_inputs(
    const tmsg_signature_t *signature, const tmsg_map_t *map);

/* Checks that `map` is what comes out if `inputs` went in, whose extents give
 * the symbols their values. With `inputs` NULL only the symbols of `map` have
 * to agree. Nothing is allocated.
 * Errors:
 *   INVALID_PARAM - it is not, as in tmsg_signature_check_inputs(); first it is
 *     said if `inputs` is not what goes in */
TMSG_API tmsg_status_t
tmsg_signature_check_outputs(const tmsg_signature_t *signature,
                             const tmsg_map_t *inputs, const tmsg_map_t *map);

/* Writes the text of the signature, on one line: tensors in their order, then
 * keys. Reading that text gives the same signature. *text_p is freed with
 * tmsg_string_free().
 * Errors:
 *   INVALID_PARAM - signature is NULL
 *   LIMIT_EXCEEDED - it was built, and its text would be too long to read
 *   NO_MEMORY */
TMSG_API tmsg_status_t tmsg_signature_to_text(const tmsg_signature_t *signature,
                                              char **text_p);

/* Writes the signature as JSON, as docs/reference/signatures.md shows. *json_p
 * is freed likewise.
 * Errors:
 *   INVALID_PARAM - signature is NULL
 *   NO_MEMORY */
TMSG_API tmsg_status_t tmsg_signature_to_json(const tmsg_signature_t *signature,
                                              char **json_p);

#ifdef __cplusplus
}
#endif

#endif
