/* SPDX-License-Identifier: BSD-3-Clause */
/* am/loan.h - the parts of large messages over shared memory: their sender says
 * where they lie, and the receiver reads them there by itself, a turn at a
 * time. The rules are docs/connection.md, "Loans".
 *
 * UCX reads its peer's memory in the same way (CMA), but piece by piece, each
 * of which is asked for and answered, and all of a piece in one turn. */
#ifndef TMSG_AM_LOAN_H
#define TMSG_AM_LOAN_H

#include "am/endpoint.h"
#include "am/kinds.h"

/* Of a place: where it begins, u64, and its bytes, u64. */
#define TMSG_LOAN_PLACE_BYTES 16

/* The sender's side. */

/* Whether parts may be lent, and be asked for so. */
bool tmsg_loans_are_made(const tmsg_endpoint_t *endpoint);

/* Places that are being listed; what lies together becomes one of them. */
typedef struct {
    uint8_t *at; /* has room for all */
    size_t count;
    uint64_t end; /* of the last */
} tmsg_loan_list_t;

void tmsg_loan_add(tmsg_loan_list_t *list, const ucp_dt_iov_t *places,
                   size_t count);

/* The receiver's side. */

/* The peer lends what was asked for: inside UCX. */
ucs_status_t tmsg_lent_arrived(const tmsg_arrival_t *arrival);

/* Lock held, in progress: reads some bytes of each loan. Gives the number of
 * endpoints that have some. */
unsigned tmsg_loans_turn(tmsg_worker_t *worker);

/* Lock held, outside UCX: with the connection, once its messages were
 * abandoned. */
void tmsg_loans_end(tmsg_endpoint_t *endpoint);

#endif
