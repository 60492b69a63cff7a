/* SPDX-License-Identifier: BSD-3-Clause */
/* serialize/wire.h - the numbers of docs/wire/wire-format.md that the encoder
 * and the decoder share. */
#ifndef TMSG_SERIALIZE_WIRE_H
#define TMSG_SERIALIZE_WIRE_H

/* Keys of the body. */
enum {
    TMSG_BODY_TENSORS = 1,
    TMSG_BODY_METADATA = 2,
    TMSG_BODY_DEFINITION = 3,
    TMSG_BODY_REFERENCE = -1,
    TMSG_BODY_CHECKSUMS = -2,
    TMSG_BODY_PARTS = -3,
    TMSG_BODY_LOAN = -4
};

/* A tensor is the array [name, code, bits, lanes, shape]. A tensor with options
 * has one element more. */
enum { TMSG_TENSOR_FIELDS = 5 };

/* Keys of a tensor's options. */
enum {
    TMSG_OPTION_STRIDES = 1,
    TMSG_OPTION_DEVICE = 2,
    TMSG_OPTION_BYTES = 3,
    TMSG_OPTION_ENCODING = 4
};

/* Encodings of a tensor's bytes. */
enum { TMSG_ENCODING_RAW = 0, TMSG_ENCODING_SPAN = 1 };

#endif
