/* SPDX-License-Identifier: BSD-3-Clause */
/* control.h - what both sides of `tensormsg perf` tell each other, by calls:
 * what is measured goes beside them, as messages, or as calls of PERF_ECHO.
 *
 *   perf.hello  {protocol, version} -> {protocol, version}
 *   perf.begin  {echo, verify, poll, device_type, device_id} -> {}: from here
 *               on messages are sent back, looked at, waited for without
 *               sleeping, come from memory of that kind
 *   perf.end    {sent} -> {wrong, words}: once so many messages have come since
 *               perf.begin; how many of them had not the contents that they
 *               should, and what the first had
 */
#ifndef TMSG_PERF_CONTROL_H
#define TMSG_PERF_CONTROL_H

#include "perf.h"

/* Another one measures something else: both sides refuse it. */
#define PERF_PROTOCOL 1

#define PERF_HELLO "perf.hello"
#define PERF_BEGIN "perf.begin"
#define PERF_END "perf.end"
#define PERF_ECHO "perf.echo"

/* Both sides of the connection speak the same. False: it was said why not. */
bool perf_say_hello(perf_peer_t *peer);

/* Before messages. False: it was said why not. */
bool perf_begin(perf_peer_t *peer, bool echo, const perf_memory_t *memory);

/* After `sent` messages: waits until all have come. False: it was said why not,
 * or what was wrong with one of them. */
bool perf_end(perf_peer_t *peer, uint64_t sent);

#endif
