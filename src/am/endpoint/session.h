/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/session.h - what a connection knows of its session. */
#ifndef TMSG_AM_ENDPOINT_SESSION_H
#define TMSG_AM_ENDPOINT_SESSION_H

#include "am/endpoint/endpoint.h"

/* Whether what the peer has not confirmed is kept for another connection. */
bool tmsg_resume_keeps(const tmsg_endpoint_t *endpoint);

/* Whether an endpoint is between two connections. */
bool tmsg_resume_is_away(const tmsg_endpoint_t *endpoint);

bool tmsg_resume_is_asking(const tmsg_endpoint_t *endpoint);

/* Sends that the peer did not get go before all others. */
bool tmsg_resume_has_again(const tmsg_endpoint_t *endpoint);

/* The words while it is away; a text of this thread. */
const char *tmsg_resume_words(const tmsg_endpoint_t *endpoint);

#endif
