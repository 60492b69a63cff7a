/* SPDX-License-Identifier: BSD-3-Clause */
/* am/connect/dialect.h - the dialect of peers of our own kind. */
#ifndef TMSG_AM_CONNECT_DIALECT_H
#define TMSG_AM_CONNECT_DIALECT_H

#include "am/endpoint/dialect.h"

extern const tmsg_dialect_t tmsg_dialect_own;

#endif
