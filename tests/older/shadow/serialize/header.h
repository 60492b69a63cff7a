/* SPDX-License-Identifier: BSD-3-Clause */
/* In front of src/serialize/header.h where src/am is compiled for a peer whose
 * preamble has another length. */
#ifndef TMSG_TESTS_OLDER_SHADOW_H
#define TMSG_TESTS_OLDER_SHADOW_H

#include "../src/serialize/header.h"

enum { TODAYS_PREAMBLE_BYTES = TMSG_PREAMBLE_BYTES };
#undef TMSG_PREAMBLE_BYTES
#define TMSG_PREAMBLE_BYTES PEER_PREAMBLE_BYTES

#endif
