/* SPDX-License-Identifier: BSD-3-Clause */
/* am/path/loans.h - messages whose tensors are not sent but lent: their
 * receiver reads them in the sender's memory. The rules are
 * docs/wire/connection.md, "Loans".
 *
 * The *owner* lends *segments*, each a file without a name whose descriptor the
 * *borrower* gets by the bootstrap socket. A *lending* is what the tensors of
 * one map lie in: segments of the application (tmsg_shareable_alloc()), or one
 * segment of the library's own that they were copied into. A *loan* is one
 * message of a lending to one peer, until it is given back.
 *
 * Lock held, for all functions here, unless they say otherwise. */
#ifndef TMSG_AM_PATH_LOANS_H
#define TMSG_AM_PATH_LOANS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "am/endpoint/endpoint.h"
#include "core/map.h"
#include "serialize/header.h"

/* A loan has at most this many segments. */
#define TMSG_LENDING_SEGMENTS 16

typedef struct tmsg_lending tmsg_lending_t;
typedef struct tmsg_loan_out tmsg_loan_out_t;
typedef struct tmsg_loan_hold tmsg_loan_hold_t;
typedef struct tmsg_loan_in tmsg_loan_in_t;

/* Returns whether messages may be lent to the peer now. `asked`: the peer has
 * asked for this one. False: *why_p tells why not. */
bool tmsg_loans_may_lend(const tmsg_endpoint_t *endpoint, bool asked,
                         const char **why_p);

/* Returns whether the peer keeps so many copies, of this connection and of
 * those of its process that have ended, that a further one of `bytes` would be
 * more than half of those that this side may lend: others need the rest. */
bool tmsg_loans_keeps_most(tmsg_endpoint_t *endpoint, uint64_t bytes);

/* Returns whether the peer may be offered one more segment now. False: *why_p
 * tells why not. */
bool tmsg_loans_may_offer(const tmsg_endpoint_t *endpoint, const char **why_p);

/* What a worker lends. */
typedef struct {
    uint64_t loans;  /* that are out, also of connections that have ended */
    uint64_t copies; /* segments that tensors were copied into */
    uint64_t copied_bytes; /* of these segments */
} tmsg_loans_counts_t;

void tmsg_loans_count(tmsg_worker_t *worker, tmsg_loans_counts_t *counts);

/* Notes that this side asks the peer for a loan by a call: replies may come as
 * loans from now on. */
void tmsg_loans_ask(tmsg_endpoint_t *endpoint);
/* Notes as much for an endpoint that takes over the calls of another. */
void tmsg_loans_ask_as(tmsg_endpoint_t *heir, const tmsg_endpoint_t *old);

/* Makes the lending of a map whose tensors lie in segments of the application,
 * with one reference. NULL: they do not, or segments would be lent that have
 * more than them, or there is no memory. *why_p then tells why they are copied,
 * or is NULL: the first tensor lies in no segment. */
tmsg_lending_t *tmsg_lending_of(const tmsg_map_t *map, const char **why_p);

/* Notes why a copy is lent, for describe(): a constant text, or NULL. */
void tmsg_lending_explain(tmsg_lending_t *lending, const char *why);

/* Makes a lending with a segment of the library's own of `bytes`, laid out as
 * tmsg_payload_place() lays the tensors out, for the caller to fill. `group`:
 * the number of the publisher whose subscribers get it, or 0: the peer alone
 * does. NULL: there are too many such segments, or no memory; *why_p tells why.
 */
tmsg_lending_t *tmsg_lending_copy(tmsg_endpoint_t *endpoint,
                                  const tmsg_map_t *map, uint64_t bytes,
                                  uint64_t group, const char **why_p);

/* Makes one with a segment that is for this map alone, and that is not used
 * again: when it is full it is sealed for good, and any peer may have it. NULL:
 * there is no memory, or peers keep too many such segments after
 * tmsg_lending_leave(). */
tmsg_lending_t *tmsg_lending_draft(tmsg_endpoint_t *endpoint,
                                   const tmsg_map_t *map, uint64_t bytes,
                                   const char **why_p);

/* Which byte of which tensor is written next into a lending of a copy. */
typedef struct {
    bool full;
    size_t tensor;
    uint64_t done;             /* bytes of it that are there */
    const tmsg_endpoint_t *by; /* whose send wrote last, compared only */
    uint64_t others_ns;        /* sends of others go on with it from then on */
} tmsg_lending_fill_t;

/* A lending of a copy is filled in parts. tmsg_lending_fill() returns where the
 * filling stands, which the caller moves on. tmsg_lending_into() returns where
 * byte `done` of tensor `index` is to be written or, if the segment takes
 * memory only as it is written to, NULL: tmsg_lending_write() then writes bytes
 * from there on, also those of gaps and of tensors behind. Behind the last
 * tensor tmsg_lending_finish() clears up to `most` bytes of earlier messages,
 * and seals the segment: nothing is offered before. Errors of the two:
 * NO_MEMORY, UNSUPPORTED, IO (`data` cannot be read); IN_PROGRESS (there is
 * more to be cleared). */
tmsg_lending_fill_t *tmsg_lending_fill(tmsg_lending_t *lending);
uint8_t *tmsg_lending_into(const tmsg_lending_t *lending, size_t index,
                           uint64_t done);
tmsg_status_t tmsg_lending_write(tmsg_lending_t *lending, size_t index,
                                 uint64_t done, const void *data, size_t bytes);
tmsg_status_t tmsg_lending_finish(tmsg_lending_t *lending, uint64_t most);

/* Drops the reference by which the lending was kept for further loans. NULL:
 * nothing. */
void tmsg_lending_leave(tmsg_lending_t *lending);

void tmsg_lending_hold(tmsg_lending_t *lending);
void tmsg_lending_drop(tmsg_lending_t *lending); /* NULL: nothing */

/* tmsg_lending_is_copy() returns whether the segment is the library's own.
 * tmsg_lending_at() returns where tensor `index` lies, or NULL if it has no
 * bytes. tmsg_lending_offset() returns its place in the segment of a copy.
 * tmsg_lending_is_of() returns whether the lending is of a map of that
 * layout; the caller knows that the tensors are the same. */
bool tmsg_lending_is_copy(const tmsg_lending_t *lending);
uint8_t *tmsg_lending_at(const tmsg_lending_t *lending, size_t index);
uint64_t tmsg_lending_offset(const tmsg_lending_t *lending, size_t index);
bool tmsg_lending_is_of(const tmsg_lending_t *lending, const tmsg_map_t *map);

/* Offers the peer the segments that it has not got. OK: it has taken all of
 * them, and the places are in places[0..tensors-1]. IN_PROGRESS: it has not
 * answered yet; the endpoint's chores follow when it has, or when it has not
 * for too long. Other errors: they cannot be lent, and the message says why. */
tmsg_status_t tmsg_lending_offer(tmsg_endpoint_t *endpoint,
                                 const tmsg_lending_t *lending,
                                 tmsg_lent_place_t *places);

/* Begins a loan, of `bytes` bytes of tensors. The peer gives it back by
 * `token`, the message id. `hold` may be NULL. Errors: NO_MEMORY. */
tmsg_status_t tmsg_loan_begin(tmsg_endpoint_t *endpoint, uint32_t token,
                              tmsg_lending_t *lending, tmsg_loan_hold_t *hold,
                              uint64_t bytes);

/* A hold is what is to happen when nobody reads a map's memory any more. The
 * send has a reference, and each loan of the map has one. The last one to drop
 * it has the map released, and on_release called, if the hold was given them.
 */
tmsg_loan_hold_t *tmsg_loan_hold_create(tmsg_worker_t *worker);
void tmsg_loan_hold_drop(tmsg_loan_hold_t *hold);
/* Returns whether a loan has a reference. */
bool tmsg_loan_hold_is_lent(const tmsg_loan_hold_t *hold);
void tmsg_loan_hold_give(tmsg_loan_hold_t *hold, const tmsg_map_t *map);
void tmsg_loan_hold_call(tmsg_loan_hold_t *hold, tmsg_release_fn on_release,
                         void *arg);

/* Takes a frame TMSG_FRAME_SEGMENT to TMSG_FRAME_SEGMENT_GONE of an open
 * connection. It has a descriptor, which is closed or kept here, or
 * TMSG_FRAME_FD_*. */
tmsg_status_t tmsg_loan_frame(tmsg_endpoint_t *endpoint, uint8_t frame,
                              const uint8_t *data, size_t bytes, int fd);

/* Notes that the message `token` has come, which is to be given back. May be
 * inside UCX. Errors: MALFORMED (this side does not borrow), NO_MEMORY. */
tmsg_status_t tmsg_loan_arrived(tmsg_endpoint_t *endpoint, uint32_t token,
                                bool asked, tmsg_loan_in_t **loan_p);

/* Finds the tensors of a decoded map in the segments that were borrowed.
 * Errors: MALFORMED (names the tensor that does not lie there), NO_MEMORY. */
tmsg_status_t tmsg_loan_find(tmsg_endpoint_t *endpoint, tmsg_loan_in_t *loan,
                             const tmsg_map_t *map,
                             const tmsg_lent_places_t *lent);

/* Returns where tensor `index` lies; NULL: it has no bytes. */
const uint8_t *tmsg_loan_at(const tmsg_loan_in_t *loan, size_t index);

/* Gives the loan back: nobody reads its tensors any more. Any thread, also
 * after the worker's end. */
void tmsg_loan_end(tmsg_loan_in_t *loan);

/* Sends what is to be given back: a chore of the endpoint. */
void tmsg_loans_chores(tmsg_endpoint_t *endpoint);

/* While loans of peers are there, worker->seldom says so. Then
 * tmsg_loans_tend() is called in each step: it sends what was given back
 * meanwhile, and returns 1 if anything was. tmsg_loans_wait() returns whether
 * something waits for that. tmsg_loans_arm() has the worker woken for what is
 * given back from now on, and returns false if something waits already. */
unsigned tmsg_loans_tend(tmsg_worker_t *worker);
bool tmsg_loans_wait(const tmsg_worker_t *worker);
bool tmsg_loans_arm(const tmsg_worker_t *worker);

/* Hears what the peer has given back by its fast box, as far as it comes next.
 */
void tmsg_loans_hear(tmsg_endpoint_t *endpoint);

/* Reads, when the connection ends, what the peer has given back by its fast
 * box. */
void tmsg_loans_take_back(tmsg_endpoint_t *endpoint);

/* Returns whether the peer has loans of this side's. */
bool tmsg_loans_are_out(const tmsg_endpoint_t *endpoint);

/* Sends it once more before the socket is closed. */
void tmsg_loans_last(tmsg_endpoint_t *endpoint);

/* Ends the loans of a connection that is over. */
void tmsg_loans_end(tmsg_endpoint_t *endpoint);

/* Ends all loans of a worker that ends, and frees what is kept for them. */
void tmsg_loans_finish(tmsg_worker_t *worker);

/* Notes why a message that was to be lent went by the usual ways. */
void tmsg_loans_note(tmsg_endpoint_t *endpoint, const char *why);

/* Returns what describe() says of lending to the peer: "lends", or "none: " and
 * the reason. */
const char *tmsg_loans_words(const tmsg_endpoint_t *endpoint, char *text,
                             size_t bytes);

/* Return the bytes of the segments that the peer has of this side, and the
 * reverse. */
uint64_t tmsg_loans_lent_bytes(const tmsg_endpoint_t *endpoint);
uint64_t tmsg_loans_borrowed_bytes(const tmsg_endpoint_t *endpoint);

#endif
