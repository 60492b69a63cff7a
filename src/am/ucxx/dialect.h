/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucxx/dialect.h - the dialect of peers that speak UCXX. */
#ifndef TMSG_AM_UCXX_DIALECT_H
#define TMSG_AM_UCXX_DIALECT_H

#include "am/endpoint/dialect.h"

extern const tmsg_dialect_t tmsg_dialect_ucxx;

#endif
