/* SPDX-License-Identifier: BSD-3-Clause */
/* support/still_serves.h - whether a side still serves who comes. */
#ifndef TMSG_TESTS_STILL_SERVES_H
#define TMSG_TESTS_STILL_SERVES_H

#include "support/peers.h"

/* Connects a new side to where `to` listens, passes a map, and closes. */
void side_serves(side_t *to);

#endif
