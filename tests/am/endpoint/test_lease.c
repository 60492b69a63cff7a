/* SPDX-License-Identifier: BSD-3-Clause */
/* The lease's word, which says whether bytes that were read from a sender still
 * count. Its effect is tested in test_torn.c. */
#include <criterion/criterion.h>
#include <string.h>

#include "am/endpoint/lease.h"
#include "support/peers.h"

/* Another connection of b's to a: b's end of it. */
static tmsg_endpoint_t *again(pair_t *pair)
{
    tmsg_endpoint_t *endpoint = side_dial(&pair->b, &pair->a);
    tmsg_request_t *ready;

    must(tmsg_endpoint_ready(endpoint, &ready));
    must(pair_finish(pair, ready));
    return endpoint;
}

Test(lease, stands_until_it_is_withdrawn)
{
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    must_true(tmsg_lease_is_known(pair.to_a));
    must_true(pair.to_a->lease.peer_at != 0 && pair.to_b->lease.peer_at != 0);
    must_true(tmsg_lease_stands(pair.to_a) && tmsg_lease_stands(pair.to_b));
    tmsg_lease_withdraw(pair.to_b);
    must_true(!tmsg_lease_stands(pair.to_a) && tmsg_lease_stands(pair.to_b));
    pair_drop(&pair);
}

/* All connections by one blob have one token. An endpoint that uses the memory
 * of a former one must not vouch for what that one lent. */
static void is_its_own(link_t link)
{
    tmsg_endpoint_t *other;
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    other = again(&pair);
    must_true(tmsg_lease_stands(pair.to_b) && tmsg_lease_stands(pair.to_a));
    must_true(tmsg_lease_stands(other));
    memcpy(pair.to_a->lease.word, other->lease.word, sizeof(other->lease.word));
    must_true(!tmsg_lease_stands(pair.to_b));
    pair_drop(&pair);
}

Test(lease, is_each_connections_own) { is_its_own(LINK_SHM); }
Test(lease, is_each_connections_own_by_blob) { is_its_own(LINK_BLOB); }
