/* SPDX-License-Identifier: BSD-3-Clause */
/* older/frozen.h - the codec of a peer that was built when wire version 0 was
 * young. It writes the minimal dialect of docs/wire-format.md and reads what
 * was in that document then; its hello has the fields 1 to 27.
 *
 * FROZEN: a change to it, other than to make it compile, takes away what the
 * tests of this folder prove. It uses nothing of src/. */
#ifndef TMSG_TESTS_OLDER_FROZEN_H
#define TMSG_TESTS_OLDER_FROZEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FROZEN_PREAMBLE_BYTES 32
#define FROZEN_NDIM_MAX 64

/* All that follow return NULL, or in words what is wrong with the bytes. */

typedef struct {
    uint8_t length;
    uint8_t kind;
    uint8_t flags;
    uint16_t channel;
    uint32_t message_id;
    uint32_t endpoint_id;
    uint32_t sequence;
    uint32_t body_bytes;
    uint64_t payload_bytes;
    uint8_t policy;
} frozen_preamble_t;

/* The length written is always 32, the policy never. */
void frozen_write_preamble(const frozen_preamble_t *preamble,
                           uint8_t to[FROZEN_PREAMBLE_BYTES]);
const char *frozen_read_preamble(const uint8_t *from, size_t bytes,
                                 frozen_preamble_t *preamble_p);

typedef struct {
    const char *name;
    size_t name_bytes;
    uint8_t code, bits;
    uint16_t lanes;
    uint32_t ndim;
    int64_t shape[FROZEN_NDIM_MAX];
    bool has_strides; /* read only */
    int64_t strides[FROZEN_NDIM_MAX];
    int32_t device[2]; /* type and id; read only */
} frozen_tensor_t;

typedef enum {
    FROZEN_BOOL,
    FROZEN_I64,
    FROZEN_F64,
    FROZEN_STRING,
    FROZEN_BYTES
} frozen_type_t;

typedef struct {
    const char *key;
    size_t key_bytes;
    frozen_type_t type;
    int64_t integer; /* of a bool, too */
    double number;
    const void *data;
    size_t bytes;
} frozen_meta_t;

/* A body, piece by piece. `to` NULL only counts. Each returns the bytes. */
size_t frozen_write_body_head(size_t tensors, uint8_t *to);
size_t frozen_write_tensor(const frozen_tensor_t *tensor, uint8_t *to);

/* Calls back for what is read, in its order; a false ends it. */
typedef struct {
    bool (*tensor)(void *arg, const frozen_tensor_t *tensor);
    bool (*meta)(void *arg, const frozen_meta_t *meta);
    void *arg;
} frozen_reader_t;
const char *frozen_read_body(const uint8_t *from, size_t bytes,
                             const frozen_reader_t *reader);

#define FROZEN_HELLO_FIELDS 27

typedef struct {
    uint64_t number[FROZEN_HELLO_FIELDS + 1]; /* by type, where it is one */
    uint8_t instance_id[16];
    char host[64];
    char boot_id[37];
} frozen_hello_t;

/* Returns the bytes, 512 at most. */
size_t frozen_write_hello(const frozen_hello_t *hello, uint8_t *to);
const char *frozen_read_hello(const uint8_t *from, size_t bytes,
                              frozen_hello_t *hello_p);

#endif
