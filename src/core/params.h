/* SPDX-License-Identifier: BSD-3-Clause */
/* core/params.h - structs of parameters, whose field_mask tells which fields
 * the application has set. */
#ifndef TMSG_CORE_PARAMS_H
#define TMSG_CORE_PARAMS_H

#include <stddef.h>
#include <stdint.h>

#include <tensormsg/status.h>

/* Names a bit of the mask, and the bytes of the struct that it stands for. */
typedef struct {
    uint64_t bit;
    size_t offset;
    size_t bytes;
} tmsg_param_t;

/* These make the row of one field (TMSG_PARAM), and of several fields that lie
 * side by side (TMSG_PARAMS). */
#define TMSG_PARAM(params_t, bit, field)                                       \
    TMSG_PARAMS(params_t, bit, field, field)
#define TMSG_PARAMS(params_t, bit, first, last)                                \
    {                                                                          \
        (bit), offsetof(params_t, first),                                      \
            offsetof(params_t, last) + sizeof(((params_t *)0)->last) -         \
                offsetof(params_t, first)                                      \
    }

/* Returns the error for unknown bits. `what` names the struct, such as
 * "listener". */
tmsg_status_t tmsg_params_unknown(const char *what, uint64_t bits);

/* Copies the fields that `mask` names from *params to *read. *read is a struct
 * of the same type and has the defaults. params may be NULL if mask is 0.
 * Errors: INVALID_PARAM (no row has the bit). */
tmsg_status_t tmsg_params_read(const char *what, const void *params,
                               uint64_t mask, const tmsg_param_t *rows,
                               size_t row_count, void *read);

#endif
