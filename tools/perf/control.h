/* SPDX-License-Identifier: BSD-3-Clause */
/* control.h - the calls by which both sides of `tensormsg perf` agree. The
 * measured data travel beside these calls, as messages or as calls of
 * PERF_ECHO.
 *
 *   perf.hello  {protocol, version} -> {protocol, version}
 *   perf.begin  {echo, verify, poll, device_type, device_id} -> {}: from now
 *               on the receiver sends messages back (echo), checks them
 *               (verify), and does not sleep (poll); the memory of the messages
 *               is of that device
 *   perf.end    {sent} -> {wrong, words}: the reply comes when `sent` messages
 *               have arrived since perf.begin; `wrong` counts those whose
 *               contents differ, and `words` describes the first of them */
#ifndef TMSG_PERF_CONTROL_H
#define TMSG_PERF_CONTROL_H

#include "perf.h"

/* PERF_PROTOCOL is the version of these calls. Both sides refuse a peer with
 * another version, because its measurements differ. */
#define PERF_PROTOCOL 1

#define PERF_HELLO "perf.hello"
#define PERF_BEGIN "perf.begin"
#define PERF_END "perf.end"
#define PERF_ECHO "perf.echo"

/* Checks that both sides have the same protocol. Returns false after a
 * complaint. */
bool perf_say_hello(perf_peer_t *peer);

/* Announces messages to the receiver. Returns false after a complaint. */
bool perf_begin(perf_peer_t *peer, bool echo, const perf_memory_t *memory);

/* Waits until all `sent` messages have arrived. Returns false after a
 * complaint, also if the contents of a message were wrong. */
bool perf_end(perf_peer_t *peer, uint64_t sent);

#endif
