/* SPDX-License-Identifier: BSD-3-Clause */
/* older/codec.h - what stands in a peer in the place of src/serialize's codec
 * (the linker's --wrap puts it there), and counts, so that a codec that was
 * passed over shows. */
#ifndef TMSG_TESTS_OLDER_CODEC_H
#define TMSG_TESTS_OLDER_CODEC_H

#include <stddef.h>

#include <tensormsg/map.h>

#include "am/boot/hello.h"
#include "serialize/header.h"

/* Bodies of maps written and read so far. */
typedef struct {
    unsigned written;
    unsigned read;
} codec_counts_t;
codec_counts_t codec_counts(void);

/* Whether this peer writes nothing but the minimal dialect. */
bool codec_is_minimal(void);

/* The version that this peer's hello says. */
extern uint8_t codec_wire_version;

/* Of the same type as what they stand for, which is ours of today. */
#define CODEC_REAL(function) extern __typeof__(function) __real_##function
#define CODEC_WRAP(function) extern __typeof__(function) __wrap_##function

CODEC_REAL(tmsg_preamble_encode);
CODEC_REAL(tmsg_body_decode);
CODEC_REAL(tmsg_hello_encode);
CODEC_REAL(tmsg_hello_decode);
CODEC_REAL(tmsg_hello_fill_local);

CODEC_WRAP(tmsg_preamble_encode);
CODEC_WRAP(tmsg_preamble_decode);
CODEC_WRAP(tmsg_body_encode);
CODEC_WRAP(tmsg_body_decode);
CODEC_WRAP(tmsg_hello_encode);
CODEC_WRAP(tmsg_hello_decode);
CODEC_WRAP(tmsg_hello_fill_local);

#endif
